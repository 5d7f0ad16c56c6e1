"""The figures of a reproduction."""

from collections.abc import Mapping
from typing import Any

from fedmoments.pages.markup import Html, join
from fedmoments.pages.shell import section
from fedmoments.study.papers.pages.figures import drawings, figure_html

__all__ = ["figures_section"]


@section("figures", "Drawn from our numbers", place=20)
def figures_section(document: Mapping[str, Any]) -> Html | None:
    """Return the section, or None when nothing of a figure was measured."""
    drawn = [figure_html(drawing, number) for number, drawing in enumerate(drawings(document), 1)]
    return join(drawn) if drawn else None
