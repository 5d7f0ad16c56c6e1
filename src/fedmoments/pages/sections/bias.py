"""The bias diagnostic of FedCOF (Eq. 24): how far the free covariance is from the exact one, class by class."""

import math

from fedmoments.core.gaussian import CovarianceBias
from fedmoments.core.observations import Report
from fedmoments.pages.blocks import lead, note
from fedmoments.pages.chart import Chart, Point, Scale, Series, Symbol, Trace
from fedmoments.pages.figure import figure
from fedmoments.pages.formats import THIN, count, percent, shorten
from fedmoments.pages.markup import Html, join, tag
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


@section("bias", "Does the free covariance fit?", place=160, of="bias")
def bias_section(report: Report, bias: CovarianceBias) -> Html | None:
    """Return the section, or None when the bias is known of no class."""
    known = _known(bias)
    overall = bias.overall if math.isfinite(bias.overall) else None
    if overall is None and not known:
        return None
    unknown = len(bias.relative) - len(known)
    lacking = f" {count(unknown, 'class', 'classes')} with fewer than two clients or samples "
    lacking += f"{'is' if unknown == 1 else 'are'} left out."
    return join(
        [
            lead(_meaning(overall)),
            figure(bias_chart(report, known)) if known else None,
            note(
                "FedCOF, Eq. 24: trace of the free covariance against the exact one, by class and the number K",
                tag("sub", "c"),
                f" of clients that hold it.{lacking if unknown else ''}",
            ),
        ]
    )


def _known(bias: CovarianceBias) -> list[Known]:
    """Return the classes whose bias is known."""
    pairs = zip(bias.held_by.tolist(), bias.relative.tolist(), strict=True)
    return [(label, clients, value) for label, (clients, value) in enumerate(pairs) if clients and math.isfinite(value)]


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


def bias_chart(report: Report, known: list[Known]) -> Chart:
    """Return the bias of every class against the clients that hold it; those farthest from zero are named."""
    far = sorted(known, key=lambda known: -abs(known[2]))
    symbol = Symbol(size=4.0 if len(far) <= MOST_TOLD else 2.4, dot=True)
    points = [
        Point(
            clients,
            value,
            tip=f"{report.data.class_name(label)}: {_signed(value)}, held by {count(clients, 'client')}"
            if rank < MOST_TOLD
            else "",
            label=shorten(report.data.class_name(label), MOST_LETTERS) if rank < MOST_NAMED else "",
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
