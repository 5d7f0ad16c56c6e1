"""Budget curves of one or several data sets as an SVG of its own, light or dark as the viewer's system asks."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from fedmoments.errors import InputError
from fedmoments.pages.budget_chart import Look, budget_chart
from fedmoments.pages.budget_reading import BudgetCurves, read_budget_curves
from fedmoments.pages.chart import Chart
from fedmoments.pages.figure import GAP, HEADING, figure_file
from fedmoments.pages.formats import count, percent
from fedmoments.pages.plain import as_number, mapping
from fedmoments.pages.plot import fitted

__all__ = ["budget_figure"]


def budget_figure(
    documents: Mapping[str, Any] | Sequence[Mapping[str, Any]],
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
    documents
        What ``results.json`` of a run with a budget curve holds, or several such, a panel each.
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
        When a document has no budget curve, or no curve of these heads, or headings are too many or too few.

    Examples
    --------
    >>> points = [{"budget": f"means/{b}", "bytes": 8000 / b, "accuracy": 0.9 - 0.02 * b} for b in (4, 2, 1)]
    >>> curve = {"means": 8000.0, "curves": [{"head": "auto", "kind": "sketch", "points": points}]}
    >>> drawn = budget_figure({"budget_curve": curve}, names={"auto": "ours"})
    >>> drawn[:4], "ours, budget means/2" in drawn
    ('<svg', True)
    """
    given = [documents] if isinstance(documents, Mapping) else list(documents)
    panels = [_curves(document, place, heads) for place, document in enumerate(given, 1)]
    if not panels:
        raise InputError("a figure of budget curves needs at least one document; an empty list arrived")
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


def _curves(document: Mapping[str, Any], place: int, heads: Sequence[str] | None) -> BudgetCurves:
    found = read_budget_curves(document)
    if not found.curves:
        raise InputError(
            f"a figure of budget curves needs points with bytes and accuracies under 'budget_curve', but document "
            f"{place} has none: run the simulation with --budget-curve"
        )
    kept = found.charted.of(heads)
    if not kept.curves:
        raise InputError(
            f"document {place} has no budget curve of {', '.join(heads or ())}; it has those of "
            f"{', '.join(curve.head for curve in found.curves)}"
        )
    return kept


def _headings(
    documents: Sequence[Mapping[str, Any]], panels: Sequence[BudgetCurves], headings: Sequence[str] | None
) -> list[str]:
    """Return what stands above every panel."""
    if headings is None:
        several = len(documents) > 1
        return [_where(each, panel) if several else "" for each, panel in zip(documents, panels, strict=True)]
    if len(headings) != len(documents):
        raise InputError(f"every document needs one heading; there are {len(documents)} and {len(headings)} headings")
    return list(headings)


def _where(document: Mapping[str, Any], curves: BudgetCurves) -> str:
    """Return the name of a document's data and how many clients hold them."""
    clients = as_number(curves.about.get("clients"))
    said = [str(mapping(document.get("data")).get("name") or ""), count(clients, "client") if clients else ""]
    return " · ".join(each for each in said if each)


def _spoken(panels: Sequence[BudgetCurves], headings: Sequence[str], title: str, look: Look) -> str:
    """Return the figure for those who cannot see it."""
    said = []
    for panel, heading in zip(panels, headings, strict=True):
        tops = [f"{look.name(c)} up to {percent(max(p.accuracy for p in c.points))}" for c in panel.curves]
        said.append(f"{heading}: {', '.join(tops)}" if heading else ", ".join(tops))
    return f"{title or 'Accuracy against bytes a client'}. {'; '.join(said)}"
