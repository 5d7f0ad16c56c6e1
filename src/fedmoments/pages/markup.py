"""HTML and SVG from nested calls: text is escaped unless it is markup already, so data cannot become code."""

import json
import re
from collections.abc import Iterable
from html import escape as _escape
from typing import Any

__all__ = ["Html", "Node", "breakable", "join", "json_block", "tag", "text"]

#: Elements that have no content and no closing tag.
_VOID = {"meta", "link", "br", "img", "input", "wbr", "hr"}
#: C0 and C1 controls, which HTML forbids, but for tab and line feed; and what turns the direction of text behind it,
#: so that a name could rewrite the numbers beside it. Letters that run from right to left need none of these.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


class Html(str):
    """Text that is markup already."""

    __slots__ = ()


#: What an element may contain; None is left out.
Node = str | int | float | None


def text(value: object) -> Html:
    """Return any value as markup that shows it, without lone surrogates, control characters and turns of direction.

    Examples
    --------
    >>> text('<script>"')
    '&lt;script&gt;&quot;'
    """
    if isinstance(value, Html):
        return value
    sound = str(value).encode("utf-8", "replace").decode()
    return Html(_escape(_CONTROLS.sub("\ufffd", sound)))


def join(nodes: Iterable[Node], between: str = "") -> Html:
    """Return nodes one after the other; None is left out.

    Examples
    --------
    >>> join([tag("b", "1 < 2"), None, "&"])
    '<b>1 &lt; 2</b>&amp;'
    """
    return Html(between.join(text(node) for node in nodes if node is not None))


def tag(_name: str, *children: Node, **attributes: Any) -> Html:
    """Return an element.

    A trailing underscore of an attribute's name is dropped, others become hyphens; None and False leave it out.

    Examples
    --------
    >>> tag("td", "a & b", class_="name", data_value=1.5, hidden=True, title=None)
    '<td class="name" data-value="1.5" hidden="">a &amp; b</td>'
    """
    written = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{"" if value is True else text(_short(value))}"'
        for name, value in attributes.items()
        if value is not None and value is not False
    )
    if _name in _VOID:
        return Html(f"<{_name}{written}>")
    return Html(f"<{_name}{written}>{join(children)}</{_name}>")


def breakable(words: str) -> Html:
    """Return a name that may break after an underscore, a hyphen or a slash rather than anywhere.

    Examples
    --------
    >>> breakable("card_arrival")
    'card_<wbr>arrival'
    """
    return Html(re.sub(r"([_\-/])(?=\w)", r"\1<wbr>", text(words)))


def json_block(value: object, **attributes: Any) -> Html:
    r"""Return data for the page's script, written so that nothing in them can end the block.

    Examples
    --------
    >>> json_block(["</script>"], id="d")
    '<script type="application/json" id="d">["\\u003c/script\\u003e"]</script>'
    """
    written = json.dumps(value, allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        written = written.replace(character, f"\\u{ord(character):04x}")
    return tag("script", Html(written), type="application/json", **attributes)


def _short(value: object) -> object:
    """Return coordinates with one decimal at most: a screen has no more."""
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else value
