"""A drawing as an SVG file of its own, with the page's colours, light or dark as the viewer's system asks."""

import re
from importlib.resources import files

from fedmoments.report.markup import Html, tag

__all__ = ["stand_alone"]

#: Pixels about the drawing.
MARGIN = 12.0
_FONT = '-apple-system, "Segoe UI", Roboto, "Helvetica Neue", "Noto Sans", "Liberation Sans", Arial, sans-serif'


def stand_alone(inner: Html, size: tuple[float, float]) -> str:
    """Return elements of a drawing as an SVG file that needs nothing else.

    Parameters
    ----------
    inner
        What is drawn; its first element should be a title.
    size
        Width and height of the drawing in pixels, without the margin about it.

    Examples
    --------
    >>> stand_alone(tag("title", "A & B"), (100, 50))[:42]
    '<svg viewBox="-12 -12 124 74" width="124" '
    """
    width, height = size[0] + 2 * MARGIN, size[1] + 2 * MARGIN
    made = tag(
        "svg",
        tag("style", Html(_style(width, height))),
        inner,
        viewBox=f"{-MARGIN:g} {-MARGIN:g} {width:g} {height:g}",
        width=f"{width:g}",
        height=f"{height:g}",
        role="img",
        xmlns="http://www.w3.org/2000/svg",
    )
    return f"{made}\n"


def _style(width: float, height: float) -> str:
    """Return what the page's style sheet says of colours and charts, and the figure's own ground and size."""
    sheet = files(__package__).joinpath("report.css").read_text("utf-8")
    colours = sheet.partition("/* ----")[0]
    charts = re.search(r"/\* -+ charts \*/(.*?)/\* -+ how", sheet, re.S)
    own = f"svg {{ width: {width:g}px; height: {height:g}px; background: var(--ground); font-family: {_FONT}; }}"
    return f"{colours}{charts.group(1) if charts else ''}{own}"
