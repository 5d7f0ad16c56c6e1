"""The privacy card of a federation that runs."""

from fedmoments.pages.blocks import bullets, fold, pairs, titled
from fedmoments.pages.live_view import LiveView
from fedmoments.pages.markup import Html, join, tag
from fedmoments.pages.shell import section

__all__ = ["protection_section"]


@section("privacy", "Privacy", place=30)
def protection_section(view: LiveView) -> Html | None:
    """Return the section; None without a card."""
    card = view.card
    if card is None:
        return None
    return join(
        [
            tag("p", "Contributions are sent as ", tag("b", card.mode), "."),
            pairs(card.sees),
            fold(
                "Facts, assumptions, and what is not promised",
                pairs(card.facts),
                titled("Assumptions", bullets(card.assumptions)),
                titled("Not promised", bullets(card.not_promised)),
            ),
        ]
    )
