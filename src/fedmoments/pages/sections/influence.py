"""Whom the server left out and why, and which clients move the head most."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedmoments.pages.blocks import lead, note
from fedmoments.pages.formats import count, percent
from fedmoments.pages.markup import Html, breakable, join, tag
from fedmoments.pages.plain import as_number, items, mapping
from fedmoments.pages.reading import Results
from fedmoments.pages.shell import section
from fedmoments.pages.table import Cell, Column, Row, measure_cell, name_cell, number_cell, sortable

__all__ = ["influence_section"]

#: Most clients with a bar, and most that are named with the reason why they were left out.
MOST_BARS, MOST_REASONS = 20, 50


@dataclass(frozen=True)
class _Client:
    """What changes without a client: class probabilities, the share of client means that change class."""

    name: str
    change: float
    flips: float | None
    samples: float | None
    dropped: bool


@section("influence", "Who moves the head, and who was left out", place=120)
def influence_section(results: Results) -> Html | None:
    """Return the section, or None when nobody was examined and nobody's influence is known."""
    robust = mapping(results.raw.get("robust"))
    if not robust:
        return None
    reasons = {
        str(mapping(each).get("client")): str(mapping(each).get("reason") or "")
        for each in items(robust.get("dropped"))
    }
    clients = _clients(robust, reasons)
    return join(
        [
            lead(" ".join(_sentences(robust, len(reasons)))),
            _influences(clients, str(robust.get("head") or "")) if clients else None,
            _reasons(reasons) if reasons else None,
        ]
    )


def _sentences(robust: Mapping[str, Any], dropped: int) -> list[str]:
    everybody = as_number(robust.get("clients"))
    of = f" of {count(everybody, 'client')}" if everybody else ""
    if not robust.get("examined"):
        said = ["Contributions were taken as they came: nobody was examined."]
    else:
        left_out = f"{count(dropped)}{of} {'was' if dropped == 1 else 'were'}" if dropped else f"Nobody{of} was"
        said = [f"{left_out} left out."]
    said += [_attack(robust)] if robust.get("attack") else []
    untested = as_number(robust.get("untested"))
    return said + ([f"{count(untested, 'class mean')} had too few others to be compared with."] if untested else [])


def _attack(robust: Mapping[str, Any]) -> str:
    """Return what a simulated attack was, and how many of its attackers were found."""
    attackers = len(items(robust.get("attackers")))
    said = f"The simulated attack {robust['attack']} had {count(attackers, 'attacker')}"
    caught, false = as_number(robust.get("caught")), as_number(robust.get("false"))
    if robust.get("examined") and caught is not None and false is not None:
        said += f"; {count(caught)} {'was' if caught == 1 else 'were'} found, and {count(false)} honest "
        said += f"client{' was' if false == 1 else 's were'} left out"
    return f"{said}."


def _clients(robust: Mapping[str, Any], reasons: Mapping[str, str]) -> list[_Client]:
    """Return the clients whose influence is known, the most influential first."""
    found = []
    for entry in map(mapping, items(robust.get("influence"))):
        change, flips, samples = (as_number(entry.get(key)) for key in ("change", "flips", "samples"))
        name = str(entry.get("client"))
        if change is not None:
            found.append(_Client(name, change, flips, samples, name in reasons))
    return sorted(found, key=lambda client: -client.change)[:MOST_BARS]


def _influences(clients: list[_Client], head: str) -> Html:
    columns = [Column("Client"), *(Column(title, number=True) for title in ("Change", "Flipped", "Samples"))]
    most = max(clients[0].change, 1e-9)
    rows = [
        Row(
            name_cell(breakable(client.name)),
            (
                measure_cell(client.change, client.change / most, percent(client.change, 2)),
                number_cell(client.flips, percent(client.flips)),
                number_cell(client.samples, count(client.samples)),
            ),
            kind="dropped" if client.dropped else "",
        )
        for client in clients
    ]
    of = f" of {head}" if head else ""
    said = f"Change: of the class probabilities{of}, on average over all client means, when a client is left out and "
    said += (
        "the head is fitted again without it (0 % nothing, 100 % everything). Flipped: client means that change class."
    )
    if any(client.dropped for client in clients):
        said += " Orange: left out by the server; their influence is what they would have had."
    table = sortable(f"The {count(len(clients), 'most influential client')}{of}", columns, rows, sorted_by=1)
    return join([tag("h3", "Who moves the head"), table, note(said)])


def _reasons(reasons: Mapping[str, str]) -> Html:
    shown = list(reasons.items())[:MOST_REASONS]
    rows = [Row(name_cell(breakable(client)), (Cell(reason),)) for client, reason in shown]
    more = len(reasons) - len(rows)
    return join(
        [
            tag("h3", "Left out", class_="below"),
            sortable("Clients that were left out, and why", [Column("Client"), Column("Why")], rows),
            note(f"… and {more:,} more, in results.json." if more > 0 else None),
        ]
    )
