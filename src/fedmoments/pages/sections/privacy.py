"""The privacy card: who learns what, what was withheld and spent, what must be true, and what is not promised."""

from collections.abc import Sequence
from typing import Any

from fedmoments.pages.blocks import bullets, pairs, titled
from fedmoments.pages.markup import Html, join, tag
from fedmoments.pages.plain import items, mapping
from fedmoments.pages.reading import Results
from fedmoments.pages.shell import section

__all__ = ["privacy_section"]

#: Clients that a filter left out and that are listed; the files have all.
MOST = 20


@section("privacy", "What protects the parties", place=50)
def privacy_section(results: Results) -> Html | None:
    """Return the section, or None when the results hold no card."""
    card = mapping(results.raw.get("privacy"))
    if not card:
        return None
    dropped = mapping(card.get("dropped")) if not results.raw.get("robust") else {}
    return join(
        [
            tag("p", "Contributions travelled as ", tag("b", str(card.get("mode", "?"))), _where(results), "."),
            pairs(_sound(items(card.get("facts")))),
            titled("Who learns what", pairs(_sound(items(card.get("sees"))))),
            titled("What must be true", bullets([str(each) for each in items(card.get("assumptions"))])),
            titled("What is not promised", bullets([str(each) for each in items(card.get("not_promised"))])),
            titled(
                "Clients left out",
                bullets([join([tag("b", client), ": ", str(why)]) for client, why in dropped.items()], most=MOST),
            ),
        ]
    )


def _where(results: Results) -> str:
    """Return which setting the card is of, where protections are swept."""
    several = {"epsilon", "privacy"} & set(results.swept)
    return f" in the first setting ({results.setting_words(results.settings[0])})" if several else ""


def _sound(found: Sequence[Any]) -> list[tuple[str, str]]:
    """Return what are pairs."""
    return [(str(pair[0]), str(pair[1])) for pair in map(items, found) if len(pair) == 2]
