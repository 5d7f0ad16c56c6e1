"""Figures in the paper's form: for the page in two widths, and as SVG files of their own."""

from collections.abc import Mapping
from typing import Any

from fedmoments.report.axes import WIDE, both, svg
from fedmoments.report.figure import stand_alone
from fedmoments.report.markup import Html, Node, join, tag
from fedmoments.report.plain import items, mapping
from fedmoments.reproduction.pages.chart import panel_height, panel_inner
from fedmoments.reproduction.pages.series import Drawing, Panel, read_drawing

__all__ = ["drawings", "figure_files", "figure_html"]

#: Width of a panel that has another one beside it, and the gap between the two.
BESIDE, GAP = 418.0, 24.0
#: Room for a panel's heading.
HEADING = 24.0


def drawings(document: Mapping[str, Any]) -> list[Drawing]:
    """Return the figures of a document of which anything was measured."""
    figures = items(mapping(document.get("experiment")).get("figures"))
    measurements = [mapping(each) for each in items(document.get("measurements"))]
    found = [read_drawing(mapping(figure), measurements) for figure in figures]
    return [each for each in found if each is not None]


def figure_html(drawing: Drawing, number: int) -> Html:
    """Return a figure for the page.

    Parameters
    ----------
    drawing
        What to draw.
    number
        Its number on the page, from 1.
    """
    alone = len(drawing.panels) == 1

    def panel(each: Panel) -> Html:
        def draw(width: float) -> Html:
            wide = width if alone else min(width, BESIDE)
            title = ", ".join(word for word in (drawing.title, each.title) if word)
            return svg(wide, panel_height(drawing, each, wide), title, panel_inner(drawing, each, wide))

        heading = tag("h3", each.title) if each.title else None
        return tag("div", heading, both(draw), class_="facet" if not alone else None)

    shown = [panel(each) for each in drawing.panels]
    return tag(
        "figure",
        tag("div", *shown, class_=None if alone else "facets"),
        tag("figcaption", tag("b", f"Figure {number}. "), drawing.title),
        class_="reproduced",
    )


def figure_files(document: Mapping[str, Any]) -> list[str]:
    """Return the figures of a document as SVG files that need nothing else.

    Examples
    --------
    >>> row = {"where": {"head": "fedcof", "clients": 10}, "quantity": "accuracy", "values": [0.8], "seeds": [0],
    ...        "reason": None}
    >>> figure = {"title": "Accuracy", "x": "clients", "series": ["head"]}
    >>> files = figure_files({"experiment": {"figures": [figure]}, "measurements": [row]})
    >>> len(files), files[0][:4]
    (1, '<svg')
    """
    return [_file(drawing) for drawing in drawings(document)]


def _file(drawing: Drawing) -> str:
    """Return panels side by side in pairs, each under its heading."""
    alone = len(drawing.panels) == 1
    width = WIDE if alone else BESIDE
    heading = HEADING if any(panel.title for panel in drawing.panels) else 0.0
    drawn: list[Node] = [tag("title", drawing.title)]
    top = 0.0
    for first in range(0, len(drawing.panels), 2):
        pair = drawing.panels[first : first + 2]
        for place, panel in enumerate(pair):
            title = tag("text", panel.title, x=0.0, y=12.0, class_="heading") if panel.title else None
            inner = tag("g", panel_inner(drawing, panel, width), transform=f"translate(0 {heading:g})")
            drawn.append(tag("g", title, inner, transform=f"translate({place * (BESIDE + GAP):g} {top:g})"))
        top += heading + max(panel_height(drawing, panel, width) for panel in pair) + GAP
    whole = width if alone else 2 * BESIDE + GAP
    return stand_alone(join(drawn), (whole, top - GAP))
