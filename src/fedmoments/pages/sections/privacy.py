"""The privacy card: who learns what, what was withheld and spent, what must be true, and what is not promised."""

from fedmoments.core.observations import Report
from fedmoments.core.observations.federated import PrivacyCard
from fedmoments.pages.answer import cheapest
from fedmoments.pages.blocks import bullets, note, pairs, titled
from fedmoments.pages.formats import count
from fedmoments.pages.markup import Html, join, tag
from fedmoments.pages.reading import setting_words
from fedmoments.pages.shell import section
from fedmoments.pages.table import Cell, Column, Table, number_cell
from fedmoments.pages.table import Row as TableRow

__all__ = ["privacy_section"]

#: Clients that a filter left out and that are listed; the files have all.
MOST = 20


@section("privacy", "Privacy", place=50, of="privacy")
def privacy_section(report: Report, card: PrivacyCard) -> Html:
    """Return the privacy card."""
    dropped = card.dropped if report.robust is None else {}
    return join(
        [
            tag("p", "Contributions were sent as ", tag("b", card.mode), _where(report), "."),
            pairs(card.facts),
            titled("Who learns what", pairs(card.sees)),
            _revealed(report),
            titled("Assumptions", bullets(card.assumptions)),
            titled("Not promised", bullets(card.not_promised)),
            titled(
                "Clients left out",
                bullets([join([tag("b", client), ": ", why]) for client, why in dropped.items()], most=MOST),
            ),
        ]
    )


def _revealed(report: Report) -> Html | None:
    """Return what 'fedmoments audit' says of contributions for the advised head, where a server reads them."""
    best = cheapest(report.rivals_of(report.main_setting))
    place = best[0].detail if best else None
    detail = None if place is None else report.details[place]
    if detail is None or not detail.audit:
        return None
    columns = (
        Column("severity"),
        Column("what it reveals"),
        Column("clients", number=True),
        Column("samples", number=True),
    )
    rows = tuple(
        TableRow(
            Cell(line.severity),
            (
                Cell(line.text),
                number_cell(line.clients, f"{line.clients:,}"),
                number_cell(line.samples, f"{line.samples:,}"),
            ),
        )
        for line in detail.audit
    )
    audited = max(line.clients for line in detail.audit)
    return titled(
        join(["What a contribution for ", tag("b", detail.head), " reveals"]),
        Table("What contributions reveal", columns, rows).html(),
        note(
            f"What 'fedmoments audit' finds, summed over {count(audited, 'client')}. Exposed: the server can "
            "compute it exactly. Weak: it can guess better than by chance."
        ),
    )


def _where(report: Report) -> str:
    """Return which setting the card is of, where protections are swept."""
    several = {"epsilon", "privacy"} & set(report.swept)
    return f" in the first setting ({setting_words(report, report.settings[0])})" if several else ""
