"""Budget curves of one or several data sets as an SVG of its own, light or dark as the viewer's system asks."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from fedmoments.core.observations import Report
from fedmoments.core.observations.budget import BudgetCurves
from fedmoments.errors import InputError
from fedmoments.pages.budget_chart import Look, budget_chart
from fedmoments.pages.chart import Chart
from fedmoments.pages.figure import GAP, HEADING, figure_file
from fedmoments.pages.formats import count, percent
from fedmoments.pages.plot import fitted

__all__ = ["budget_figure"]


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
    """Return accuracy against bytes a client as an SVG file that needs nothing else.

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
    return f"{title or 'Accuracy against bytes a client'}. {'; '.join(said)}"
