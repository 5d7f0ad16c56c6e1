"""The privacy card: who learns what, what was withheld and spent, what must be true, and what is not promised."""

from fedmoments.core.observations import Report
from fedmoments.pages.blocks import bullets, pairs, titled
from fedmoments.pages.markup import Html, join, tag
from fedmoments.pages.reading import setting_words
from fedmoments.pages.shell import section

__all__ = ["privacy_section"]

#: Clients that a filter left out and that are listed; the files have all.
MOST = 20


@section("privacy", "What protects the parties", place=50)
def privacy_section(report: Report) -> Html | None:
    """Return the section, or None when the report hold no card."""
    card = report.privacy
    if card is None:
        return None
    dropped = card.dropped if report.robust is None else {}
    return join(
        [
            tag("p", "Contributions travelled as ", tag("b", card.mode), _where(report), "."),
            pairs(card.facts),
            titled("Who learns what", pairs(card.sees)),
            titled("What must be true", bullets(card.assumptions)),
            titled("What is not promised", bullets(card.not_promised)),
            titled(
                "Clients left out",
                bullets([join([tag("b", client), ": ", why]) for client, why in dropped.items()], most=MOST),
            ),
        ]
    )


def _where(report: Report) -> str:
    """Return which setting the card is of, where protections are swept."""
    several = {"epsilon", "privacy"} & set(report.swept)
    return f" in the first setting ({setting_words(report, report.settings[0])})" if several else ""
