"""Charts on a page, in a width for laptops and one for phones, and as SVG files of their own."""

import re
from collections.abc import Callable, Sequence
from importlib.resources import files

from fedmoments.pages.chart import Chart
from fedmoments.pages.markup import Html, Node, join, tag
from fedmoments.pages.plot import Drawing, draw, svg

__all__ = ["BESIDE", "GAP", "HEADING", "WIDE", "both", "draw_alone", "facets", "figure", "figure_file"]

#: Widths that charts are drawn in: for laptops and paper, beside another chart, and for phones. Text keeps its size.
WIDE, BESIDE, NARROW = 860.0, 420.0, 348.0
#: Pixels about a file's drawing, between its charts, and those that its title and a chart's heading take.
MARGIN, GAP, TITLE, HEADING = 12.0, 26.0, 32.0, 22.0
_FONT = '-apple-system, "Segoe UI", Roboto, "Helvetica Neue", "Noto Sans", "Liberation Sans", Arial, sans-serif'


def both(drawn: Callable[[float], Html]) -> Html:
    """Return a drawing of two widths; the style sheet shows the one that fits."""
    return join([tag("div", drawn(WIDE), class_="wide"), tag("div", drawn(NARROW), class_="narrow")])


def figure(chart: Chart, *, beside: bool = False) -> Html:
    """Return a chart for the page.

    Parameters
    ----------
    chart
        What to draw.
    beside
        Whether it stands beside another one on wide screens.
    """
    return tag("figure", both(lambda width: _svg(chart, min(width, BESIDE) if beside else width)))


def draw_alone(chart: Chart) -> Html:
    """Return a small chart in the width of a phone, for all screens."""
    return _svg(chart, NARROW)


def facets(charts: Sequence[Html]) -> Html:
    """Return small charts, each with its heading, two beside one another; one alone takes the whole width."""
    several = len(charts) > 1
    return tag("div", *(tag("div", chart, class_="facet") for chart in charts), class_="facets" if several else None)


def _svg(chart: Chart, width: float) -> Html:
    drawing = draw(chart, width)
    focused = any(point.focus for point in chart.points)
    return svg(width, drawing.height, chart.title, drawing.inner, role="group" if focused else "img")


def figure_file(
    charts: Sequence[Chart], *, title: str = "", spoken: str = "", width: float = WIDE, columns: int = 1
) -> str:
    """Return charts as one SVG file that needs nothing else, light or dark as the viewer's system asks.

    Parameters
    ----------
    charts
        At least one; headings stand above those that have one.
    title
        Above all of them.
    spoken
        The figure for those who cannot see it; the titles of its charts by default.
    width
        Of the figure in pixels, without the margin about it.
    columns
        Charts beside one another.

    Examples
    --------
    >>> from fedmoments.pages.chart import Scale
    >>> figure_file([Chart("A & B", Scale("x"), Scale("y"), ())], width=400)[:44]
    '<svg viewBox="-12 -12 424 368" width="424" h'
    """
    across = min(columns, len(charts))
    share = (width - (across - 1) * GAP) / across
    heading = HEADING if any(chart.heading for chart in charts) else 0.0
    drawn: list[Node] = [tag("title", spoken or "; ".join(chart.title for chart in charts))]
    top = 0.0
    if title:
        drawn.append(tag("text", title, x=0.0, y=14.0, class_="heading"))
        top = TITLE
    for first in range(0, len(charts), across):
        row = [(chart, draw(chart, share)) for chart in charts[first : first + across]]
        drawn += [
            _panel(chart, drawing, (place * (share + GAP), top), heading) for place, (chart, drawing) in enumerate(row)
        ]
        top += heading + max(drawing.height for _, drawing in row) + GAP
    return _file(join(drawn), width, top - GAP)


def _panel(chart: Chart, drawing: Drawing, corner: tuple[float, float], heading: float) -> Html:
    words = tag("text", chart.heading, x=0.0, y=12.0, class_="heading") if chart.heading else None
    inner = tag("g", drawing.inner, transform=f"translate(0 {heading:g})") if heading else drawing.inner
    return tag("g", words, inner, transform=f"translate({corner[0]:g} {corner[1]:g})", class_="panel")


def _file(inner: Html, width: float, height: float) -> str:
    width, height = width + 2 * MARGIN, height + 2 * MARGIN
    whole = tag(
        "svg",
        tag("style", Html(_style(width, height))),
        inner,
        viewBox=f"{-MARGIN:g} {-MARGIN:g} {width:g} {height:g}",
        width=f"{width:g}",
        height=f"{height:g}",
        role="img",
        xmlns="http://www.w3.org/2000/svg",
    )
    return f"{whole}\n"


def _style(width: float, height: float) -> str:
    """Return what the page's style sheet says of colours and charts, and the figure's own ground and size."""
    sheet = files(__package__).joinpath("report.css").read_text("utf-8")
    colours = sheet.partition("/* ----")[0]
    charts = re.search(r"/\* -+ charts \*/(.*?)/\* -+ how", sheet, re.S)
    own = f"svg {{ width: {width:g}px; height: {height:g}px; background: var(--ground); font-family: {_FONT}; }}"
    return f"{colours}{charts.group(1) if charts else ''}{own}"
