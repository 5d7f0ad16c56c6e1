"""The chart of a budget curve: accuracy against bytes a client, heads on scatter sketches before all others.

A head on sketches is a heavy line with dots and a band of one standard deviation over seeds. Every other head is a thin
line, behind ever wider random projections, up to a ring: the method as it is published. Hair lines stand at the float32
payloads of FedNCM and Fed3R. A thin line that comes from far below enters the chart at its lower edge.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from fedmoments.report.axes import Axis, Box, bytes_axis, frame, linear_axis, svg
from fedmoments.report.budget_reading import BudgetCurve, BudgetCurves, BudgetPoint
from fedmoments.report.formats import THIN, bytes_, count, percent, shorten
from fedmoments.report.labels import LINE, Label, Mark, Segment, place_labels, spread, text_width
from fedmoments.report.lines import STYLES, path_above
from fedmoments.report.markup import Html, Node, join, tag

__all__ = ["Look", "Words", "accuracy_axis", "budget_chart", "budget_plot", "shown_range", "told"]

#: Share of the range of what must be seen that is added below it, for lines that come from there.
ROOM_BELOW = 0.3
#: Factors by which the horizontal axis reaches beyond the least and the most bytes.
BEYOND = 0.8, 1.1
#: Pixels that a label may be away from its line, upwards and downwards.
REACH = 160
#: Pixels of a piece of a line that labels keep away from.
PIECE = 10.0
#: Letters of a name.
MOST_LETTERS = 22


@dataclass(frozen=True)
class Look:
    """How curves are called and which colours they have, alike in all charts.

    ``names`` are by head, and numbers are those of curves among the ones on sketches, or among all others.
    """

    names: Mapping[str, str]
    numbers: Mapping[tuple[str, bool], int]

    @classmethod
    def of(cls, curves: Sequence[BudgetCurve], names: Mapping[str, str] | None = None) -> "Look":
        """Return the look of curves in their order: those on sketches count by themselves.

        Examples
        --------
        >>> curves = [BudgetCurve("fed3r", False, ()), BudgetCurve("auto", True, ()), BudgetCurve("fedcof", False, ())]
        >>> [Look.of(curves).classes(curve) for curve in curves]
        ['s1 other', 's0 ours', 's2 other']
        """
        ours = dict.fromkeys((curve.head, True) for curve in curves if curve.sketch)
        others = dict.fromkeys((curve.head, False) for curve in curves if not curve.sketch)
        return cls(names or {}, {key: i for keys in (ours, others) for i, key in enumerate(keys)})

    def name(self, curve: BudgetCurve) -> str:
        """Return what a curve is called."""
        return shorten(self.names.get(curve.head, curve.head), MOST_LETTERS)

    def number(self, curve: BudgetCurve) -> int:
        """Return a curve's number among its like."""
        return self.numbers.get((curve.head, curve.sketch), 0)

    def colour(self, curve: BudgetCurve) -> int:
        """Return the number of a curve's colour: the first for sketches, the rest for others."""
        return 0 if curve.sketch else 1 + self.number(curve) % (STYLES - 1)

    def classes(self, curve: BudgetCurve) -> str:
        """Return the classes of a curve: colour, dash and weight."""
        again = self.number(curve) if curve.sketch else self.number(curve) // (STYLES - 1)
        dash = f" d{(again - 1) % 3 + 1}" if again else ""
        return f"s{self.colour(curve)}{dash} {'ours' if curve.sketch else 'other'}"


@dataclass(frozen=True)
class Words:
    """Titles of a plot's axes, and what stands above it."""

    x: str = "bytes a client sends (logarithmic)"
    y: str = f"accuracy,{THIN}%"
    heading: str = ""


def shown_range(curves: BudgetCurves) -> tuple[float, float]:
    """Return the lowest and the highest accuracy of a chart: all of sketches and rings, of others the upper part.

    Examples
    --------
    >>> ours = BudgetCurve("auto", True, (BudgetPoint(100.0, 0.8), BudgetPoint(800.0, 0.9)))
    >>> other = BudgetCurve("fed3r", False, (BudgetPoint(100.0, 0.1), BudgetPoint(9000.0, 0.85, own=True)))
    >>> [round(each, 3) for each in shown_range(BudgetCurves({}, (ours, other)))]
    [0.77, 0.9]
    """
    seen = [point.low for curve in curves.sketches for point in curve.points]
    seen += [point.low for curve in curves.others for point in curve.points if point.own]
    seen += [max(point.accuracy for point in curve.points) for curve in curves.curves]
    high = max((point.high for point in curves.points), default=1.0)
    lowest = min((point.low for point in curves.points), default=0.0)
    low = min(seen, default=0.0)
    return max(lowest, low - ROOM_BELOW * (high - low)), high


def accuracy_axis(curves: BudgetCurves, start: float, end: float) -> Axis:
    """Return the vertical axis of a chart, from the pixel where it starts to that where it ends."""
    return linear_axis(shown_range(curves), start, end, lambda v: f"{v * 100:g}", ticks=9, bounds=(0.0, 1.0))


def told(name: str, point: BudgetPoint) -> str:
    """Return what is told of a point.

    Examples
    --------
    >>> point = BudgetPoint(5120.0, 0.714, 0.004, "means/2", 3, None, 4.25)
    >>> told("auto", point).replace(THIN, " ")
    'auto, budget means/2: 71.4 % ± 0.4 over 3 seeds, 5.1 kB a client, rank 4.2'
    """
    said = f"{name}, budget {point.budget}" if point.budget else name
    said += f": {percent(point.accuracy)}"
    said += f" ± {point.deviation * 100:.1f}" if point.deviation is not None else ""
    said += f" over {count(point.seeds, 'seed')}" if point.seeds and point.seeds > 1 else ""
    said += f", {bytes_(point.bytes)} a client"
    said += f", {count(point.dimensions, 'dimension')}" if point.dimensions is not None else ""
    said += f", rank {point.rank:.1f}" if point.rank is not None else ""
    return said + (", as published" if point.own else "")


def budget_chart(curves: BudgetCurves, look: Look, *, size: tuple[float, float]) -> Html:
    """Return the chart as a drawing of a page.

    Parameters
    ----------
    curves
        At least one, each with at least one point.
    look
        Names and colours.
    size
        Width and height in pixels.
    """
    ends = [f"{look.name(curve)} up to {percent(max(p.accuracy for p in curve.points))}" for curve in curves.curves]
    title = f"Accuracy against bytes a client: {'; '.join(ends)}"
    return svg(*size, title, *budget_plot(curves, look, size=size), role="group", class_="chart budget")


def budget_plot(
    curves: BudgetCurves, look: Look, *, size: tuple[float, float], words: Words | None = None
) -> list[Node]:
    """Return the elements of the chart, from its upper left corner; arguments as of :func:`budget_chart`."""
    words = words or Words()
    width, height = size
    top = 52.0 + (22.0 if words.heading else 0.0)
    room = max((text_width(look.name(curve)) for curve in _far(curves)), default=0.0)
    box = Box(32.0, top, width - min(room + 18, width * 0.34), height - 46)
    y = accuracy_axis(curves, box.bottom, box.top + 4)
    payloads = [payload for payload in (curves.means, curves.gram) if payload is not None]
    least = [curves.means / 8] if curves.means else []
    sizes = [*(point.bytes for point in curves.points), *payloads, *least]
    x = bytes_axis(sizes, box.left, box.right, beyond=BEYOND)
    drawn: list[Node] = []
    if words.heading:
        drawn.append(tag("text", words.heading, x=0.0, y=12.0, class_="heading"))
    drawn.append(frame(box, x, y, words.x, words.y, title_at=top - 40))
    drawn += _payloads(curves, x, box, width)
    order = [*curves.others, *reversed(curves.sketches)]
    drawn += [_drawn(curve, look, x, y) for curve in order]
    drawn += _names(curves, look, (x, y), box)
    return drawn


# ---------------------------------------------------------------------------------------------- payloads


def _payloads(curves: BudgetCurves, x: Axis, box: Box, width: float) -> list[Node]:
    """Return the hair lines at published payloads, each with words above it that touch no others."""
    marks = [
        (x(size), words, bytes_(size))
        for size, words in ((curves.means, "FedNCM, FedCOF"), (curves.gram, "Fed3R"))
        if size is not None
    ]
    drawn: list[Node] = []
    before = -1e9
    for place, *lines in marks:
        half = 0.5 * max(text_width(line, 12.0) for line in lines)
        middle = max(min(place, width - half), box.left + half, before + half)
        before = middle + half + 8
        drawn.append(tag("line", x1=place, x2=place, y1=box.top - 6, y2=box.bottom, class_="payload"))
        drawn += [
            tag("text", line, x=middle, y=box.top - 24 + 13 * i, text_anchor="middle", class_="payload-words")
            for i, line in enumerate(lines)
        ]
    return [tag("g", *drawn)] if drawn else []


# ---------------------------------------------------------------------------------------------- lines


def _drawn(curve: BudgetCurve, look: Look, x: Axis, y: Axis) -> Html:
    """Return a curve: band, line and points; what lies below the vertical axis is cut off."""
    places = [(x(point.bytes), y(point.accuracy)) for point in curve.points]
    floor = y.start
    drawn: list[Node] = []
    if curve.sketch and any(point.deviation for point in curve.points):
        upper = [(x(point.bytes), min(y(point.high), floor)) for point in curve.points]
        lower = [(x(point.bytes), min(y(point.low), floor)) for point in curve.points]
        corners = " ".join(f"{a:.1f},{b:.1f}" for a, b in [*upper, *reversed(lower)])
        drawn.append(tag("polygon", points=corners, class_="band"))
    drawn.append(tag("path", d=path_above(places, floor), class_="line"))
    for point, (a, b) in zip(curve.points, places, strict=True):
        if b <= floor:
            drawn.append(_dot(curve, look, point, (a, b), (min(y(point.low), floor), y(point.high))))
    return tag("g", *drawn, class_=f"series {look.classes(curve)}", data_head=curve.head)


def _dot(
    curve: BudgetCurve, look: Look, point: BudgetPoint, place: tuple[float, float], ends: tuple[float, float]
) -> Html:
    """Return a point: a dot of a sketch, a ring of a published method, or a speck that tells when it is pointed at."""
    kind = "own" if point.own else "speck"
    size = 4.0 if curve.sketch else 5.4 if point.own else 1.6
    bar = None
    if not curve.sketch and ends[0] - ends[1] > 3:
        bar = tag("line", x1=place[0], x2=place[0], y1=ends[0], y2=ends[1], class_="error")
    focused = curve.sketch or point.own
    return tag(
        "g",
        tag("title", told(look.name(curve), point)),
        tag("circle", cx=place[0], cy=place[1], r=9.0, class_="hit"),
        bar,
        tag("circle", cx=place[0], cy=place[1], r=size, class_="dot"),
        class_=f"point {kind}",
        data_head=curve.head,
        tabindex="0" if focused else None,
        role="img" if focused else None,
    )


# ---------------------------------------------------------------------------------------------- names


def _far(curves: BudgetCurves) -> list[BudgetCurve]:
    """Return the curves that may end near the right edge."""
    most = max((point.bytes for point in curves.points), default=0.0)
    most = max(most, curves.gram or 0.0)
    return [curve for curve in curves.curves if curve.points[-1].bytes >= most / 2]


def _names(curves: BudgetCurves, look: Look, axes: tuple[Axis, Axis], box: Box) -> list[Node]:
    """Return the names of curves beside the ends of their lines: in the margin, or else where there is room."""
    x, y = axes
    ends = {curve: _end(curve, x, y) for curve in curves.curves}
    most = int((box.bottom - box.top) / LINE) + 1
    far = [curve for curve in _far(curves) if ends[curve][1] <= box.bottom][:most]
    inside = [curve for curve in curves.curves if curve not in _far(curves) and ends[curve][1] <= box.bottom]
    drawn: list[Node] = []
    wished = [ends[curve][1] for curve in far]
    for curve, place, wish in zip(far, spread(wished, box.top, box.bottom), wished, strict=True):
        start = box.right + 8
        drawn.append(tag("line", x1=ends[curve][0] + 5, y1=wish, x2=start - 2, y2=place, class_="leader"))
        drawn.append(_word(curve, look, (start, place)))
    marks = [Mark(*ends[curve], look.name(curve), curve.points[-1].accuracy + curve.sketch) for curve in inside]
    covered = _covered(curves, axes, box)
    labels = place_labels(marks, (box.left, box.top, box.right, box.bottom - 2), covered, reach=REACH, above=True)
    for curve, mark, label in zip(inside, marks, labels, strict=True):
        if label is not None:
            drawn.append(_placed(curve, look, mark, label))
    return [join(drawn)]


def _end(curve: BudgetCurve, x: Axis, y: Axis) -> tuple[float, float]:
    last = curve.points[-1]
    return x(last.bytes), y(last.accuracy)


def _placed(curve: BudgetCurve, look: Look, mark: Mark, label: Label) -> Html:
    near = label.x - 2 if label.right else label.x + label.width + 2
    at = label.x if label.right else label.x + label.width
    lead = tag("line", x1=mark.x, y1=mark.y, x2=near, y2=label.y, class_="leader") if label.led else None
    return join([lead, _word(curve, look, (at, label.y), anchor="start" if label.right else "end")])


def _word(curve: BudgetCurve, look: Look, place: tuple[float, float], anchor: str | None = None) -> Html:
    heavy = " ours" if curve.sketch else ""
    return tag(
        "text",
        look.name(curve),
        x=place[0],
        y=place[1],
        dy="0.34em",
        text_anchor=anchor,
        class_=f"label t{look.colour(curve)}{heavy}",
    )


def _covered(curves: BudgetCurves, axes: tuple[Axis, Axis], box: Box) -> list[Segment]:
    """Return what lines and hair lines cover, in pieces so short that their boxes hug them."""
    x, y = axes
    found: list[Segment] = [(x(size), box.top, x(size), box.bottom) for size in (curves.means, curves.gram) if size]
    for curve in curves.curves:
        places = [(x(point.bytes), y(point.accuracy)) for point in curve.points]
        for (x1, y1), (x2, y2) in pairwise(places):
            pieces = max(int(max(abs(x2 - x1), abs(y2 - y1)) / PIECE), 1)
            steps = [(x1 + (x2 - x1) * i / pieces, y1 + (y2 - y1) * i / pieces) for i in range(pieces + 1)]
            found += [(*a, *b) for a, b in pairwise(steps) if min(a[1], b[1]) <= box.bottom]
    return found
