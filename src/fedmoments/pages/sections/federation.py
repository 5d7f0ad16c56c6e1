"""What happened in a federation: its rounds, and whatever went wrong, by name."""

from collections.abc import Mapping
from typing import Any

from fedmoments.pages.blocks import bullets, pairs
from fedmoments.pages.formats import bytes_, seconds
from fedmoments.pages.markup import Html, join
from fedmoments.pages.plain import as_number, items, mapping
from fedmoments.pages.reading import Results
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
def federation_section(results: Results) -> Html | None:
    """Return the section, or None when these are not the results of a federation."""
    federation = mapping(results.raw.get("federation"))
    if not federation:
        return None
    rounds = [mapping(each) for each in items(federation.get("rounds"))]
    troubles = [trouble for each in rounds for trouble in _troubles(each)]
    troubles += [_trouble(mapping(each), "did not evaluate") for each in items(federation.get("failures"))]
    names = {"Federation": "name", "Id": "id", "State": "state"}
    return join(
        [
            sortable("What each round brought", COLUMNS, list(map(_row, rounds))) if rounds else None,
            bullets(
                [_spread(name, mapping(each)) for name, each in mapping(federation.get("spread")).items()], most=MOST
            ),
            bullets(troubles, most=MOST, elsewhere="federation.json"),
            pairs([(name, federation.get(key)) for name, key in names.items()], code=list(names)),
        ]
    )


def _spread(head: str, spread: Mapping[str, Any]) -> str:
    """Say how far the results of nodes lie apart, or how many clients a masked sum is over."""
    if "nodes" not in spread:
        return f"{head} was tested by {spread.get('clients', '?')} clients, whose results were only seen added up"
    low, middle, high, share = (
        f"{100 * (as_number(spread.get(key)) or 0.0):.1f}" for key in ("lowest", "median", "highest", "largest_share")
    )
    return (
        f"{head} has {low} to {high} % on {spread['nodes']} nodes, median {middle}; no node has more than {share} % of "
        "the tested samples"
    )


def _row(report: Mapping[str, Any]) -> Row:
    counts = mapping(report.get("counts"))
    numbers = [len(items(report.get("asked"))), report.get("accepted", "")]
    numbers += [counts.get(key, len(items(report.get(key)))) for key in TROUBLES]
    size, took = as_number(report.get("bytes")), as_number(report.get("seconds"))
    cells = [Cell(str(number), kind="number") for number in numbers]
    cells += [number_cell(size, bytes_(size)), number_cell(took, seconds(took))]
    return Row(Cell(str(report.get("number", "")), kind="number"), tuple(cells))


def _troubles(report: Mapping[str, Any]) -> list[str]:
    return [_trouble(mapping(each), words) for key, (_, words) in TROUBLES.items() for each in items(report.get(key))]


def _trouble(trouble: Mapping[str, Any], what: str) -> str:
    who = f"Client {trouble['client']}" if trouble.get("client") else f"Node {trouble.get('node', '?')}"
    why = trouble.get("sentence") or trouble.get("why") or trouble.get("reason") or "no reason given"
    return f"{who} {what}: {why}"
