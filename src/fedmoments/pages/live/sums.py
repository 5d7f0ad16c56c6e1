"""What the ledger holds: clients, samples, bytes, classes that are covered, rounds, accuracy over all."""

from fedmoments.pages.blocks import bullets, fold, pairs
from fedmoments.pages.formats import bytes_
from fedmoments.pages.live_view import LiveView
from fedmoments.pages.markup import Html, join
from fedmoments.pages.shell import section
from fedmoments.pages.table import Column, Row, Table, bar_cell, name_cell, number_cell

__all__ = ["sums_section"]

#: Classes that a page lists.
MOST = 200


@section("sums", "What is in", place=20, short="Sums")
def sums_section(view: LiveView) -> Html:
    """Return the section."""
    known = {
        "Clients": f"{view.clients:,}",
        "Samples": f"{view.samples:,}" if view.classes else "",
        "Classes covered": f"{view.covered:,} of {view.n_classes:,}" if view.classes else "",
        "Bytes": bytes_(view.bytes),
        "Refused": f"{view.refused:,}" if view.refused else "",
        **{
            f"Accuracy of {head}": "" if share is None else f"{100 * share:.2f} %"
            for head, share in view.accuracy.items()
        },
        "Federation": view.federation,
    }
    most = max(view.classes.values(), default=0) or 1
    rows = [
        Row(name_cell(name), (number_cell(n, f"{n:,}"), bar_cell(n / most)))
        for name, n in list(view.classes.items())[:MOST]
    ]
    columns = [Column("Class"), Column("Samples", number=True), Column("")]
    rounds = [
        f"round {entry.get('round')}: {entry.get('accepted')} of {entry.get('asked')} nodes' contributions taken in, "
        f"{bytes_(entry.get('bytes', 0))}"
        for entry in view.rounds
    ]
    return join(
        [
            pairs(known.items(), code=["Federation"]),
            bullets(rounds),
            fold("Samples by class", Table("Samples by class", tuple(columns), tuple(rows)).html()) if rows else None,
        ]
    )
