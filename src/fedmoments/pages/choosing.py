"""Panels of which one is shown: a drop-down list chooses, here and in every section that has the same panels."""

from collections.abc import Sequence

from fedmoments.pages.markup import Html, Node, join, tag

__all__ = ["chooser", "panels"]


def chooser(name: str, label: str, options: Sequence[tuple[str, str]], chosen: str) -> Html | None:
    """Return a drop-down list of (key, words), or None when there is nothing to choose."""
    if len(options) < 2:
        return None
    return tag(
        "label",
        tag("span", label),
        tag(
            "select",
            *(tag("option", words, value=key, selected=key == chosen) for key, words in options),
            data_chooser=name,
        ),
        class_="chooser",
    )


def panels(name: str, contents: Sequence[tuple[str, Node]], chosen: str) -> Html:
    """Return all panels, each under its key; all but the chosen one are hidden."""
    return join(
        tag("div", content, class_="panel", data_panel=name, data_key=key, hidden=key != chosen)
        for key, content in contents
    )
