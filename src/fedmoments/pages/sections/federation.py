"""What happened in a federation: its rounds, and whatever went wrong, by name."""

from collections.abc import Mapping
from typing import Any

from fedmoments.core.observations import Report
from fedmoments.pages.blocks import bullets, pairs
from fedmoments.pages.formats import bytes_, seconds
from fedmoments.pages.markup import Html, join
from fedmoments.pages.shell import section
from fedmoments.pages.table import Cell, Column, Row, number_cell, sortable

__all__ = ["federation_section"]

#: Troubles that are spelled out; federation.json and the ledger's log have all.
MOST = 20
#: Kinds of trouble in a round's report, what they are called in its table, and in a sentence.
TROUBLES = {
    "refused": ("Refused", "was refused"),
    "declined": ("Declined", "declined"),
    "failures": ("Failed", "failed"),
}
TITLES = ("Round", "Nodes asked", "Taken in", *(title for title, _ in TROUBLES.values()), "Bytes", "Took")
COLUMNS = [Column(title, number=True) for title in TITLES]


@section("federation", "What happened", place=40)
def federation_section(report: Report) -> Html | None:
    """Return the section, or None when these are not the report of a federation."""
    federation = report.federation
    if federation is None:
        return None
    troubles = [trouble for entry in federation.rounds for trouble in _troubles(entry)]
    troubles += [_trouble(entry, "did not evaluate") for entry in federation.failures]
    names = {"Federation": federation.name, "Id": federation.id, "State": federation.state}
    return join(
        [
            sortable("What each round brought", COLUMNS, list(map(_row, federation.rounds)))
            if federation.rounds
            else None,
            bullets([_spread(name, spread) for name, spread in federation.spread.items()], most=MOST),
            bullets(troubles, most=MOST, elsewhere="federation.json"),
            pairs(names.items(), code=list(names)),
        ]
    )


def _spread(head: str, spread: Mapping[str, Any]) -> str:
    """Say how far the results of nodes lie apart, or how many clients a masked sum is over."""
    if "nodes" not in spread:
        return f"{head} was tested by {spread.get('clients', '?')} clients, whose results were only seen added up"
    low, middle, high, share = (
        f"{100 * (spread.get(key) or 0.0):.1f}" for key in ("lowest", "median", "highest", "largest_share")
    )
    return (
        f"{head} has {low} to {high} % on {spread['nodes']} nodes, median {middle}; no node has more than {share} % of "
        "the tested samples"
    )


def _row(entry: Mapping[str, Any]) -> Row:
    counts = entry.get("counts", {})
    numbers = [len(entry["asked"]), entry["accepted"]]
    numbers += [counts.get(key, len(entry[key])) for key in TROUBLES]
    size, took = entry["bytes"], entry["seconds"]
    cells = [Cell(str(number), kind="number") for number in numbers]
    cells += [number_cell(size, bytes_(size)), number_cell(took, seconds(took))]
    return Row(Cell(str(entry["number"]), kind="number"), tuple(cells))


def _troubles(entry: Mapping[str, Any]) -> list[str]:
    return [_trouble(trouble, words) for key, (_, words) in TROUBLES.items() for trouble in entry[key]]


def _trouble(trouble: Mapping[str, Any], what: str) -> str:
    who = f"Client {trouble['client']}" if trouble.get("client") else f"Node {trouble.get('node', '?')}"
    why = trouble.get("sentence") or trouble.get("why") or trouble.get("reason") or "no reason given"
    return f"{who} {what}: {why}"
