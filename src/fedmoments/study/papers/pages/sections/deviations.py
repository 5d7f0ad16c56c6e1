"""Where a run departs from the paper, and notes."""

from collections.abc import Mapping
from typing import Any

from fedmoments.pages.blocks import bullets, titled
from fedmoments.pages.markup import Html, join, tag
from fedmoments.pages.plain import items, mapping
from fedmoments.pages.shell import section

__all__ = ["deviations_section"]


@section("deviations", "Where this run departs from the paper", place=40)
def deviations_section(document: Mapping[str, Any]) -> Html | None:
    """Return the section, or None when there is neither a deviation nor a note."""
    deviations = [str(sentence) for sentence in items(document.get("deviations"))]
    notes = [str(sentence) for sentence in items(mapping(document.get("experiment")).get("notes"))]
    if not deviations and not notes:
        return None
    none = tag("p", "Nowhere, besides what the notes say.")
    below = tag("div", titled("Notes", bullets(notes)), class_="below") if notes else None
    return join([bullets(deviations) or none, below])
