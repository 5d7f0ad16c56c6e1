"""What happened in a federation: its rounds, and whatever went wrong, by name."""

from collections.abc import Mapping
from typing import Any

from fedmoments.report.formats import bytes_, seconds
from fedmoments.report.markup import Html, join, tag
from fedmoments.report.plain import as_number, items, mapping
from fedmoments.report.reading import Results
from fedmoments.report.table import sortable

__all__ = ["events_section"]

#: Troubles that are spelled out; federation.json and the ledger's log have all.
MOST = 20

_COLUMNS = ("Round", "Nodes asked", "Taken in", "Refused", "Declined", "Failed", "Bytes", "Took")


def events_section(results: Results) -> Html | None:
    """Return the section, or None when these are not the results of a federation."""
    federation = mapping(results.raw.get("federation"))
    rounds = [mapping(each) for each in items(federation.get("rounds"))]
    if not federation:
        return None
    columns = [(name, True) for name in _COLUMNS]
    table = sortable("What each round brought", columns, [_row(each) for each in rounds])
    troubles = [trouble for each in rounds for trouble in _troubles(each)]
    troubles += [_trouble(mapping(each), "did not evaluate") for each in items(federation.get("failures"))]
    more = len(troubles) - MOST
    known = [("Federation", federation.get("name")), ("Id", federation.get("id")), ("State", federation.get("state"))]
    facts = [join([tag("dt", name), tag("dd", tag("code", str(value)))]) for name, value in known if value]
    return join(
        [
            table if rounds else None,
            tag("ul", *(tag("li", trouble) for trouble in troubles[:MOST])) if troubles else None,
            tag("p", f"… and {more} more, in federation.json.", class_="note") if more > 0 else None,
            tag("dl", *facts) if facts else None,
        ]
    )


def _row(report: Mapping[str, Any]) -> Html:
    counts = mapping(report.get("counts"))
    lengths = [str(counts.get(key, len(items(report.get(key))))) for key in ("refused", "declined", "failures")]
    size, took = as_number(report.get("bytes")), as_number(report.get("seconds"))
    cells = [
        str(report.get("number", "")),
        str(len(items(report.get("asked")))),
        str(report.get("accepted", "")),
        *lengths,
        bytes_(size),
        seconds(took),
    ]
    return tag("tr", *(tag("td", cell, class_="number") for cell in cells))


def _troubles(report: Mapping[str, Any]) -> list[str]:
    words = {"refused": "was refused", "declined": "declined", "failures": "failed"}
    return [_trouble(mapping(each), word) for key, word in words.items() for each in items(report.get(key))]


def _trouble(each: Mapping[str, Any], what: str) -> str:
    who = f"Client {each['client']}" if each.get("client") else f"Node {each.get('node', '?')}"
    why = each.get("sentence") or each.get("why") or each.get("reason") or "no reason given"
    return f"{who} {what}: {why}"
