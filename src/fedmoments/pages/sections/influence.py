"""Whom the server left out and why, and which clients move the head most."""

from collections.abc import Sequence

from fedmoments.core.observations import Report
from fedmoments.core.observations.federated import ClientInfluence, Dropped, Examination
from fedmoments.pages.blocks import lead, note
from fedmoments.pages.formats import count, percent
from fedmoments.pages.markup import Html, breakable, join, tag
from fedmoments.pages.shell import section
from fedmoments.pages.table import Cell, Column, Row, measure_cell, name_cell, number_cell, sortable

__all__ = ["influence_section"]

#: Most clients with a bar, and most that are named with the reason why they were left out.
MOST_BARS, MOST_REASONS = 20, 50


@section("influence", "Who moves the head, and who was left out", place=120, of="robust")
def influence_section(_: Report, examination: Examination) -> Html:
    """Return what examining the contributions found, and how much each client changes."""
    clients = sorted(examination.influence, key=lambda client: -client.change)[:MOST_BARS]
    return join(
        [
            lead(" ".join(_sentences(examination))),
            _influences(clients, examination) if clients else None,
            _reasons(examination.dropped) if examination.dropped else None,
        ]
    )


def _sentences(examination: Examination) -> list[str]:
    dropped, of = len(examination.dropped), f" of {count(examination.clients, 'client')}"
    if not examination.examined:
        said = ["No filter examined the contributions."]
    else:
        left_out = f"{count(dropped)}{of} {'was' if dropped == 1 else 'were'}" if dropped else f"Nobody{of} was"
        said = [f"{left_out} left out."]
    said += [_attack(examination)] if examination.attack else []
    untested = examination.untested
    return said + ([f"{count(untested, 'class mean')} had too few others to be compared with."] if untested else [])


def _attack(examination: Examination) -> str:
    """Return what a simulated attack was, and how many of its attackers were found."""
    said = f"The simulated attack {examination.attack} had {count(len(examination.attackers), 'attacker')}"
    caught, false = examination.caught, examination.false
    if examination.examined and caught is not None and false is not None:
        said += f"; {count(caught)} {'was' if caught == 1 else 'were'} found, and {count(false)} honest "
        said += f"client{' was' if false == 1 else 's were'} left out"
    return f"{said}."


def _influences(clients: Sequence[ClientInfluence], examination: Examination) -> Html:
    left_out = {client_left_out.client for client_left_out in examination.dropped}
    columns = [Column("Client"), *(Column(title, number=True) for title in ("Change", "Flipped", "Samples"))]
    most = max(clients[0].change, 1e-9)
    rows = [
        Row(
            name_cell(breakable(client.client)),
            (
                measure_cell(client.change, client.change / most, percent(client.change, 2)),
                number_cell(client.flips, percent(client.flips)),
                number_cell(client.samples, count(client.samples)),
            ),
            kind="dropped" if client.client in left_out else "",
        )
        for client in clients
    ]
    of = f" of {examination.head}" if examination.head else ""
    said = f"Change: of the class probabilities{of}, on average over all client means, when a client is left out and "
    said += (
        "the head is fitted again without it (0 % nothing, 100 % everything). Flipped: client means that change class."
    )
    if any(client.client in left_out for client in clients):
        said += " Orange: left out by the server; their influence is what they would have had."
    table = sortable(f"The {count(len(clients), 'most influential client')}{of}", columns, rows, sorted_by=1)
    return join([tag("h3", "Who moves the head"), table, note(said)])


def _reasons(dropped: Sequence[Dropped]) -> Html:
    shown = dropped[:MOST_REASONS]
    rows = [Row(name_cell(breakable(client.client)), (Cell(client.reason),)) for client in shown]
    more = len(dropped) - len(rows)
    return join(
        [
            tag("h3", "Left out", class_="below"),
            sortable("Clients that were left out, and why", [Column("Client"), Column("Why")], rows),
            note(f"… and {more:,} more, in results.json." if more > 0 else None),
        ]
    )
