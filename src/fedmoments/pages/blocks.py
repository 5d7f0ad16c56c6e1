"""Small parts of pages: paragraphs, lists, pairs, what folds, and what can be copied."""

from collections.abc import Iterable, Sequence
from typing import Any

from fedmoments.pages.markup import Html, Node, join, tag

__all__ = ["bullets", "copied", "fold", "lead", "note", "pairs", "titled"]


def lead(*words: Node) -> Html | None:
    """Return the paragraph that opens a section; None without words."""
    return tag("p", *words, class_="lead") if any(words) else None


def note(*words: Node) -> Html | None:
    """Return a paragraph in small print; None without words."""
    return tag("p", *words, class_="note") if any(words) else None


def titled(title: Node, *body: Node) -> Html | None:
    """Return a part under a heading; None when there is nothing in it."""
    return join([tag("h3", title), *body]) if any(body) else None


def bullets(entries: Sequence[Node], *, most: int | None = None, elsewhere: str = "") -> Html | None:
    """Return a list of at most so many entries, with how many more there are elsewhere; None without any.

    Examples
    --------
    >>> bullets(["a", "b", "c"], most=1, elsewhere="results.json")
    '<ul class="plain"><li>a</li><li>… and 2 more, in results.json</li></ul>'
    """
    if not entries:
        return None
    shown = [tag("li", entry) for entry in entries[:most]]
    more = len(entries) - len(shown)
    rest = tag("li", f"… and {more:,} more{f', in {elsewhere}' if elsewhere else ''}") if more else None
    return tag("ul", *shown, rest, class_="plain")


def pairs(known: Iterable[tuple[str, Any]], *, code: Sequence[str] = ()) -> Html | None:
    """Return names and values, without what is unknown; those of some names are code. None without any.

    Examples
    --------
    >>> pairs([("Seeds", 3), ("Digest", "ab"), ("Data", None)], code=["Digest"])
    '<dl><dt>Seeds</dt><dd>3</dd><dt>Digest</dt><dd><code>ab</code></dd></dl>'
    """
    shown = [
        join([tag("dt", name), tag("dd", tag("code", str(value)) if name in code else _plain(value))])
        for name, value in known
        if value
    ]
    return tag("dl", *shown) if shown else None


def _plain(value: Any) -> Node:
    return value if isinstance(value, Html) else str(value)


def fold(summary: Node, *body: Node, unfolded: bool = False) -> Html:
    """Return what opens when it is requested."""
    return tag("details", tag("summary", summary), *body, open=unfolded)


def copied(title: str, words: str, *, file: str = "", wrap: bool = True) -> Html:
    """Return text that a button copies, under a title; its words are not broken where it wraps.

    Parameters
    ----------
    title
        What it is.
    words
        The text.
    file
        The name of the file that it would be in.
    wrap
        Whether lines break, or the block scrolls.
    """
    button = tag("button", "Copy", type="button", class_="copy", aria_label=f"Copy the {title.lower()}")
    whole = join((tag("span", word, class_="nowrap") for word in words.split(" ")), " ") if wrap else words
    block = tag("pre", tag("code", whole), tabindex="0", class_="wrap" if wrap else None)
    heading = tag("h3", title, tag("small", f" {file}") if file else None)
    return tag("div", tag("div", heading, button, class_="row"), block, class_="copied")
