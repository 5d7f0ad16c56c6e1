"""The privacy card: who learns what, what was withheld and spent, what must be true, and what is not promised."""

from collections.abc import Mapping, Sequence
from typing import Any

from fedmoments.report.markup import Html, join, tag
from fedmoments.report.plain import items, mapping
from fedmoments.report.reading import Results

__all__ = ["privacy_section"]

#: Clients that a filter left out and that are listed; the files have all.
MOST = 20


def privacy_section(results: Results) -> Html | None:
    """Return the section, or None when the results hold no card."""
    card = mapping(results.raw.get("privacy"))
    if not card:
        return None
    return join(
        [
            tag("p", "Contributions travelled as ", tag("b", str(card.get("mode", "?"))), _where(results), "."),
            _pairs(items(card.get("facts"))),
            _titled("Who learns what", _pairs(items(card.get("sees")))),
            _titled("What must be true", _sentences(items(card.get("assumptions")))),
            _titled("What is not promised", _sentences(items(card.get("not_promised")))),
            _dropped(mapping(card.get("dropped"))) if not results.raw.get("robust") else None,
        ]
    )


def _where(results: Results) -> str:
    """Return which setting the card is of, where protections are swept."""
    several = {"epsilon", "privacy"} & set(results.swept)
    return f" in the first setting ({results.setting_words(results.settings[0])})" if several else ""


def _titled(title: str, body: Html | None) -> Html | None:
    return join([tag("h3", title), body]) if body else None


def _pairs(pairs: Sequence[Any]) -> Html | None:
    sound = [pair for pair in map(items, pairs) if len(pair) == 2]
    shown = [join([tag("dt", str(name)), tag("dd", str(value))]) for name, value in sound]
    return tag("dl", *shown) if shown else None


def _sentences(sentences: Sequence[Any]) -> Html | None:
    return tag("ul", *(tag("li", str(each)) for each in sentences), class_="plain") if sentences else None


def _dropped(dropped: Mapping[str, Any]) -> Html | None:
    if not dropped:
        return None
    shown = [tag("li", tag("b", client), ": ", str(why)) for client, why in list(dropped.items())[:MOST]]
    more = len(dropped) - len(shown)
    rest = tag("li", f"… and {more} more") if more > 0 else None
    return _titled("Clients left out", tag("ul", *shown, rest, class_="plain"))
