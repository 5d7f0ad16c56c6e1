"""The bias diagnostic of FedCOF (Eq. 24): how far the free covariance is from the exact one, class by class."""

from fedmoments.report.axes import Axis, Box, both, frame, linear_axis, log_axis, svg
from fedmoments.report.formats import THIN, count, percent
from fedmoments.report.labels import Mark, place_labels
from fedmoments.report.markup import Html, Node, join, tag
from fedmoments.report.plain import as_number, items, mapping
from fedmoments.report.reading import Results

__all__ = ["bias_section"]

#: Classes that get a tooltip, and a name in the chart: those farthest from zero.
MOST_TOLD, MOST_NAMED = 300, 6

#: Below this relative bias, the free covariance is as good as the exact one.
CLOSE = 0.1

Known = tuple[int, float, float]  # class, clients that hold it, relative bias


def bias_section(results: Results) -> Html | None:
    """Return the section, or None when the bias was not measured."""
    bias = mapping(results.raw.get("bias"))
    overall = as_number(bias.get("overall"))
    held = [as_number(value) for value in items(bias.get("held_by"))]
    relative = [as_number(value) for value in items(bias.get("relative"))]
    known: list[Known] = [
        (label, clients, value)
        for label, (clients, value) in enumerate(zip(held, relative, strict=False))
        if clients and value is not None
    ]
    if overall is None and not known:
        return None
    unknown = len(relative) - len(known)
    lacking = ""
    if unknown:
        lacking = f" {count(unknown, 'class', 'classes')} with fewer than two clients or samples "
        lacking += f"{'is' if unknown == 1 else 'are'} left out."
    return join(
        [
            tag("p", _meaning(overall), class_="lead"),
            tag("figure", both(lambda width: _chart(results, known, width))) if known else None,
            tag(
                "p",
                "FedCOF, Eq. 24: trace of the free covariance against the exact one, by class and the number K",
                tag("sub", "c"),
                f" of clients that hold it.{lacking}",
                class_="note",
            ),
        ]
    )


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


def _chart(results: Results, known: list[Known], width: float) -> Html:
    height = 320.0
    box = Box(44.0, 30.0, width - 8, height - 46)
    y = linear_axis([0.0, *(value for _, _, value in known)], box.bottom, box.top + 8, _signed)
    holders = [clients for _, clients, _ in known]
    if max(holders) / min(holders) > 20:
        x = log_axis(holders, box.left, box.right, lambda v: f"{v:,g}")
    else:
        x = linear_axis(holders, box.left + 12, box.right - 12, "{:,g}".format)
        x = Axis(x.low, x.high, tuple(tick for tick in x.ticks if tick[0] == int(tick[0])), x.start, x.end)
    far = sorted(known, key=lambda each: -abs(each[2]))
    marks = [
        Mark(x(clients), y(value), _short(results.class_name(label), width), priority=abs(value))
        for label, clients, value in far[:MOST_NAMED]
    ]
    dots = [(x(c) - 4, y(v) - 4, x(c) + 4, y(v) + 4) for _, c, v in far[MOST_NAMED:MOST_TOLD]]
    labels = place_labels(marks, (box.left, box.top, box.right, box.bottom), dots)
    rest = "".join(f"M{x(clients):.1f},{y(value):.1f}h0" for _, clients, value in far[MOST_TOLD:])
    drawn: list[Node] = [
        frame(box, x, y, "clients that hold the class", "relative bias"),
        tag("line", x1=box.left, x2=box.right, y1=y(0), y2=y(0), class_="zero"),
        tag("path", d=rest, class_="dust") if rest else None,
    ]
    shape, size = ("dot", 4.0) if len(far) <= MOST_TOLD else ("speck", 2.4)
    for label, clients, value in far[:MOST_TOLD]:
        told = f"{results.class_name(label)}: {_signed(value)}, held by {count(clients, 'client')}"
        drawn.append(
            tag(
                "g", tag("title", told), tag("circle", cx=x(clients), cy=y(value), r=size, class_=shape), class_="point"
            )
        )
    drawn += [
        tag(
            "text",
            mark.text,
            x=label.x + (0 if label.right else label.width),
            y=label.y,
            dy="0.34em",
            text_anchor="start" if label.right else "end",
            class_="label quiet",
        )
        for mark, label in zip(marks, labels, strict=True)
        if label and not label.led
    ]
    return svg(width, height, f"Relative bias of {count(len(known), 'class', 'classes')}", *drawn)


def _short(name: str, width: float) -> str:
    most = 28 if width > 500 else 16
    return name if len(name) <= most else name[: most - 1] + "…"


def _signed(value: float) -> str:
    return "0" if abs(value) < 1e-9 else f"{'+' if value > 0 else '−'}{percent(abs(value), 0)}"
