"""The bias diagnostic of FedCOF (Eq. 24): how far the free covariance is from the exact one, class by class."""

import math
from collections.abc import Mapping
from typing import Any

from fedmoments.pages.blocks import lead, note
from fedmoments.pages.chart import Chart, Point, Scale, Series, Symbol, Trace
from fedmoments.pages.figure import figure
from fedmoments.pages.formats import THIN, count, percent, shorten
from fedmoments.pages.markup import Html, join, tag
from fedmoments.pages.plain import as_number, items, mapping
from fedmoments.pages.reading import Results
from fedmoments.pages.shell import section

__all__ = ["bias_chart", "bias_section"]

#: Classes that get a tooltip, and a name in the chart: those farthest from zero.
MOST_TOLD, MOST_NAMED = 300, 6
#: Letters of their names.
MOST_LETTERS = 20
#: Numbers of clients that are further apart than this factor have a logarithmic scale.
FACTOR = 20

#: Below this relative bias, the free covariance is as good as the exact one.
CLOSE = 0.1

Known = tuple[int, float, float]  # class, clients that hold it, relative bias


@section("bias", "Does the free covariance fit?", place=160)
def bias_section(results: Results) -> Html | None:
    """Return the section, or None when the bias was not measured."""
    bias = mapping(results.raw.get("bias"))
    overall, known = as_number(bias.get("overall")), _known(bias)
    if overall is None and not known:
        return None
    unknown = len(items(bias.get("relative"))) - len(known)
    lacking = f" {count(unknown, 'class', 'classes')} with fewer than two clients or samples "
    lacking += f"{'is' if unknown == 1 else 'are'} left out."
    return join(
        [
            lead(_meaning(overall)),
            figure(bias_chart(results, known)) if known else None,
            note(
                "FedCOF, Eq. 24: trace of the free covariance against the exact one, by class and the number K",
                tag("sub", "c"),
                f" of clients that hold it.{lacking if unknown else ''}",
            ),
        ]
    )


def _known(bias: Mapping[str, Any]) -> list[Known]:
    """Return the classes whose bias is known."""
    held, relative = ([as_number(value) for value in items(bias.get(key))] for key in ("held_by", "relative"))
    return [
        (label, clients, value)
        for label, (clients, value) in enumerate(zip(held, relative, strict=False))
        if clients and value is not None
    ]


def _meaning(overall: float | None) -> Html:
    if overall is None:
        return join(["The free covariance could be compared with the exact one for single classes only."])
    if abs(overall) < CLOSE:
        size = tag("strong", f"within {abs(overall) * 100:.1f}{THIN}%")
        end = " of the exact one over all classes: samples of a class look alike at all clients, as FedCOF assumes."
        return join(["The covariance that FedCOF estimates from client means is ", size, end])
    size = tag("strong", f"{abs(overall) * 100:.0f}{THIN}% too {'large' if overall >= 0 else 'small'}")
    if overall > 0:
        end = "clients’ samples of the same class differ (feature shift), and an exact covariance would help."
    else:
        end = "the client means vary less than samples drawn at random would: clients resemble each other too much."
    return join(["The covariance that FedCOF estimates from client means is ", size, " over all classes: ", end])


def bias_chart(results: Results, known: list[Known]) -> Chart:
    """Return the bias of every class against the clients that hold it; those farthest from zero are named."""
    far = sorted(known, key=lambda each: -abs(each[2]))
    symbol = Symbol(size=4.0 if len(far) <= MOST_TOLD else 2.4, dot=True)
    points = [
        Point(
            clients,
            value,
            tip=f"{results.class_name(label)}: {_signed(value)}, held by {count(clients, 'client')}"
            if rank < MOST_TOLD
            else "",
            label=shorten(results.class_name(label), MOST_LETTERS) if rank < MOST_NAMED else "",
            weight=abs(value),
            symbol=symbol,
            kind="quiet",
        )
        for rank, (label, clients, value) in enumerate(far)
    ]
    holders = [clients for _, clients, _ in known]
    log = max(holders) / min(holders) > FACTOR
    return Chart(
        f"Relative bias of {count(len(known), 'class', 'classes')}",
        Scale("clients that hold the class", "log") if log else Scale("clients that hold the class", whole=True),
        Scale("relative bias", words=_signed, values=(0.0, *(value for _, _, value in known))),
        (Series("", tuple(points), line=False),),
        traces=(Trace(((-math.inf, 0.0), (math.inf, 0.0)), "zero"),),
        height=244.0,
    )


def _signed(value: float) -> str:
    return "0" if abs(value) < 1e-9 else f"{'+' if value > 0 else '−'}{percent(abs(value), 0)}"
