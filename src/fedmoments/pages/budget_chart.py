"""The chart of a budget curve: accuracy against bytes per client, heads on scatter sketches before all others.

A head on sketches is a heavy line with dots and a band of one standard deviation over seeds. Every other head is a thin
line, behind ever wider random projections, up to a ring: the method as it is published. Hair lines stand at the float32
payloads of FedNCM and Fed3R. A thin line that comes from far below enters the chart at its lower edge.

Budget curves of one or several data sets as an SVG of its own, light or dark as the viewer's system asks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from fedmoments.core.observations import Report
from fedmoments.core.observations.budget import BudgetCurve, BudgetCurves, BudgetPoint
from fedmoments.errors import InputError
from fedmoments.pages.chart import (
    COLOURS,
    DASHES,
    Chart,
    Point,
    Rule,
    Scale,
    Series,
    Style,
    Symbol,
    bytes_scale,
    share_scale,
)
from fedmoments.pages.figure import GAP, HEADING, figure_file
from fedmoments.pages.formats import bytes_, count, percent, shorten
from fedmoments.pages.plot import fitted

__all__ = ["Look", "accuracy_scale", "budget_chart", "budget_figure", "shown_range", "tip"]


#: Share of the range of what must be seen that is added below it, for lines that come from there.
ROOM_BELOW = 0.3
#: Factors by which the horizontal axis reaches beyond the least and the most bytes.
BEYOND = 0.8, 1.1
#: Letters of a name.
MOST_LETTERS = 22
#: Dots of a sketch, rings of published methods, and specks that tell when they are pointed at.
DOT, RING, SPECK = (Symbol(size=size, dot=True) for size in (4.0, 5.4, 1.6))


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
        >>> curves = [BudgetCurve(head, kind, ()) for head, kind in (("fed3r", ""), ("auto", "sketch"), ("fedcof", ""))]
        >>> [Look.of(curves).style(curve).classes for curve in curves]
        ['s1 other', 's0 ours', 's2 other']
        """
        ours = dict.fromkeys((curve.head, True) for curve in curves if curve.sketch)
        others = dict.fromkeys((curve.head, False) for curve in curves if not curve.sketch)
        return cls(names or {}, {key: i for keys in (ours, others) for i, key in enumerate(keys)})

    def name(self, curve: BudgetCurve) -> str:
        """Return what a curve is called."""
        return shorten(self.names.get(curve.head, curve.head), MOST_LETTERS)

    def style(self, curve: BudgetCurve) -> Style:
        """Return the style of a curve: sketches are heavy and have the first colour, others are thin."""
        number = self.numbers.get((curve.head, curve.sketch), 0)
        again = number if curve.sketch else number // (COLOURS - 1)
        colour = 0 if curve.sketch else 1 + number % (COLOURS - 1)
        return Style(colour, (again - 1) % DASHES + 1 if again else 0, "ours" if curve.sketch else "other")


def shown_range(curves: BudgetCurves) -> tuple[float, float]:
    """Return the lowest and the highest accuracy of a chart: all of sketches and rings, of others the upper part.

    Examples
    --------
    >>> ours = BudgetCurve("auto", "sketch", (BudgetPoint((0.8,), (100.0,)), BudgetPoint((0.9,), (800.0,))))
    >>> points = (BudgetPoint((0.1,), (100.0,)), BudgetPoint((0.85,), (9000.0,), own=True))
    >>> [round(end, 3) for end in shown_range(BudgetCurves((ours, BudgetCurve("fed3r", "projected", points))))]
    [0.77, 0.9]
    """
    seen = [point.low for curve in curves.sketches for point in curve.points]
    seen += [point.low for curve in curves.others for point in curve.points if point.own]
    seen += [max(point.accuracy for point in curve.points) for curve in curves.curves]
    high = max((point.high for point in curves.points), default=1.0)
    lowest = min((point.low for point in curves.points), default=0.0)
    low = min(seen, default=0.0)
    return max(lowest, low - ROOM_BELOW * (high - low)), high


def accuracy_scale(curves: BudgetCurves) -> Scale:
    """Return the vertical scale of a chart."""
    return share_scale(values=shown_range(curves), about=9)


def tip(name: str, point: BudgetPoint) -> str:
    r"""Return what is told of a point that is pointed at.

    Examples
    --------
    >>> point = BudgetPoint((0.71, 0.714, 0.718), (5120.0,), (0, 1, 2), "means/2", None, 4.25)
    >>> tip("auto", point).replace("\u202f", " ")
    'auto, budget means/2: 71.4 % ± 0.4 over 3 seeds, 5.1 kB per client, rank 4.2'
    """
    seeds = len(point.accuracies)
    words = f"{name}, budget {point.budget}" if point.budget else name
    words += f": {percent(point.accuracy)}"
    words += f" ± {point.std * 100:.1f}" if point.std is not None else ""
    words += f" over {count(seeds, 'seed')}" if seeds > 1 else ""
    words += f", {bytes_(point.bytes)} per client"
    words += f", {count(point.dimensions, 'dimension')}" if point.dimensions is not None else ""
    words += f", rank {point.rank:.1f}" if point.rank is not None else ""
    return words + (", as published" if point.own else "")


def budget_chart(curves: BudgetCurves, look: Look, *, height: float = 340.0) -> Chart:
    """Return the chart.

    Parameters
    ----------
    curves
        At least one, each with at least one point.
    look
        Names and colours.
    height
        Of the plot in pixels.
    """
    tops = [f"{look.name(curve)} up to {percent(max(p.accuracy for p in curve.points))}" for curve in curves.curves]
    payloads = [(curves.means, "FedNCM, FedCOF"), (curves.gram, "Fed3R")]
    known = [(size, words) for size, words in payloads if size is not None]
    least = [curves.means / 8] if curves.means else []
    return Chart(
        f"Accuracy against bytes per client: {'; '.join(tops)}",
        bytes_scale("bytes per client (logarithmic)", values=(*(size for size, _ in known), *least), beyond=BEYOND),
        accuracy_scale(curves),
        tuple(_series(curve, look) for curve in (*curves.others, *reversed(curves.sketches))),
        rules=tuple(Rule(size, (words, bytes_(size))) for size, words in known),
        height=height,
    )


def _series(curve: BudgetCurve, look: Look) -> Series:
    points = tuple(_point(curve, point, look.name(curve)) for point in curve.points)
    return Series(look.name(curve), points, look.style(curve), spread="band" if curve.sketch else "bars")


def _point(curve: BudgetCurve, point: BudgetPoint, name: str) -> Point:
    symbol = DOT if curve.sketch else RING if point.own else SPECK
    return Point(
        point.bytes,
        point.accuracy,
        point.low,
        point.high,
        tip(name, point),
        weight=point.accuracy + curve.sketch,
        symbol=symbol,
        kind="own" if point.own else "speck",
        head=curve.head,
        focus=curve.sketch or point.own,
    )


def budget_figure(
    reports: Report | Sequence[Report],
    *,
    title: str = "",
    headings: Sequence[str] | None = None,
    heads: Sequence[str] | None = None,
    names: Mapping[str, str] | None = None,
    columns: int | None = None,
    size: tuple[float, float] = (820.0, 330.0),
) -> str:
    """Return accuracy against bytes per client as an SVG file that needs nothing else.

    Parameters
    ----------
    reports
        One with a budget curve (:func:`~fedmoments.core.observations.read_report`), or several such, a panel each.
    title
        Above the whole figure.
    headings
        Above every panel; by default the name of its data and its clients, where there are several panels.
    heads
        Which to draw, in the order of their colours; all of them by default.
    names
        What heads are called in the figure, where that is not their name.
    columns
        Panels beside each other, three at most by default.
    size
        Width of the figure and height of a panel in pixels, without the margin about it.

    Raises
    ------
    InputError
        When a report has no budget curve, or no curve of these heads, or headings are too many or too few.

    Examples
    --------
    >>> from fedmoments.core.observations.budget import BudgetCurve, BudgetPoint
    >>> points = tuple(BudgetPoint((0.9 - 0.02 * b,), (8000 / b,), (0,), f"means/{b}") for b in (4, 2, 1))
    >>> report = Report(budget_curve=BudgetCurves((BudgetCurve("auto", "sketch", points),), means=8000.0))
    >>> drawn = budget_figure(report, names={"auto": "ours"})
    >>> drawn[:4], "ours, budget means/2" in drawn
    ('<svg', True)
    """
    given = [reports] if isinstance(reports, Report) else list(reports)
    panels = [_curves(report, place, heads) for place, report in enumerate(given, 1)]
    if not panels:
        raise InputError("a figure of budget curves needs at least one report; an empty list arrived")
    shown = _headings(given, panels, headings)
    look = Look.of([curve for panel in panels for curve in panel.curves], names)
    across = min(columns or 3, len(panels))
    width = (size[0] - (across - 1) * GAP) / across
    high = size[1] - (HEADING if any(shown) else 0.0)
    charts = []
    for place, (panel, heading) in enumerate(zip(panels, shown, strict=True)):
        chart = replace(budget_chart(panel, look), heading=heading)
        chart = _once(chart, first=place % across == 0, last=place + across >= len(panels))
        charts.append(fitted(chart, width, high))
    spoken = _spoken(panels, shown, title, look)
    return figure_file(charts, title=title, spoken=spoken, width=size[0], columns=across)


def _once(chart: Chart, *, first: bool, last: bool) -> Chart:
    """Return a panel without titles that others have: of the vertical axis in the first column, and so on."""
    x, y = (replace(scale, title=scale.title * shown) for scale, shown in ((chart.x, last), (chart.y, first)))
    return replace(chart, x=x, y=y)


def _curves(report: Report, place: int, heads: Sequence[str] | None) -> BudgetCurves:
    curves = report.budget_curve
    if curves is None or not curves.curves:
        raise InputError(
            f"a figure of budget curves needs points with bytes and accuracies, but report {place} has none: run the "
            "simulation with --budget-curve"
        )
    kept = curves.charted.of(heads)
    if not kept.curves:
        raise InputError(
            f"report {place} has no budget curve of {', '.join(heads or ())}; it has those of "
            f"{', '.join(curve.head for curve in curves.curves)}"
        )
    return kept


def _headings(reports: Sequence[Report], panels: Sequence[BudgetCurves], headings: Sequence[str] | None) -> list[str]:
    """Return what stands above every panel."""
    if headings is None:
        several = len(reports) > 1
        return [_where(report, panel) if several else "" for report, panel in zip(reports, panels, strict=True)]
    if len(headings) != len(reports):
        raise InputError(f"every report needs one heading; there are {len(reports)} and {len(headings)} headings")
    return list(headings)


def _where(report: Report, curves: BudgetCurves) -> str:
    """Return the name of a report's data and how many clients hold them."""
    parts = [report.data.name, count(curves.clients, "client") if curves.clients else ""]
    return " · ".join(part for part in parts if part)


def _spoken(panels: Sequence[BudgetCurves], headings: Sequence[str], title: str, look: Look) -> str:
    """Return the figure for those who cannot see it."""
    said = []
    for panel, heading in zip(panels, headings, strict=True):
        tops = [f"{look.name(c)} up to {percent(max(p.accuracy for p in c.points))}" for c in panel.curves]
        said.append(f"{heading}: {', '.join(tops)}" if heading else ", ".join(tops))
    return f"{title or 'Accuracy against bytes per client'}. {'; '.join(said)}"
