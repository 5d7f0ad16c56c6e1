"""Who is where: enrolled, connected, measuring, in, refused and why, and how accurate each party finds the heads."""

from fedmoments.pages.blocks import bullets, lead
from fedmoments.pages.formats import bytes_
from fedmoments.pages.live_view import LiveView, Party
from fedmoments.pages.markup import Html, Node, join
from fedmoments.pages.shell import section
from fedmoments.pages.table import Cell, Column, Row, Table, bar, name_cell, number_cell, share_cell

__all__ = ["parties_section"]

#: Rows that a page holds; the ledger has all.
MOST = 1000


@section("parties", "Parties", place=10)
def parties_section(view: LiveView) -> Html:
    """Return the section."""
    heads = sorted({head for party in view.parties for head in party.accuracy})
    columns = [Column("Party"), Column("State"), Column("Samples", number=True), Column("Sent", number=True)]
    columns += [Column(head, number=True) for head in heads]
    counts = ", ".join(f"{n:,} {state}" for state, n in view.states.items() if n)
    rest = len(view.parties) - MOST
    return join(
        [
            lead(counts or "No party has been invited or enrolled yet."),
            Table("Who is where", tuple(columns), tuple(_row(party, heads) for party in view.parties[:MOST])).html()
            if view.parties
            else None,
            bullets([f"… and {rest:,} more"]) if rest > 0 else None,
            bullets(view.refusals),
        ]
    )


def _row(party: Party, heads: list[str]) -> Row:
    words: Node = party.state + (f": {party.detail}" if party.detail else "")
    shown = join([words, " ", bar(party.share)]) if party.share is not None else words
    cells = [
        Cell(shown, party.state, "name"),
        number_cell(party.samples, "–" if party.samples is None else f"{party.samples:,}"),
        number_cell(party.bytes, "–" if party.bytes is None else bytes_(party.bytes)),
        *(share_cell(party.accuracy.get(head), words="–") for head in heads),
    ]
    return Row(name_cell(party.name), tuple(cells))
