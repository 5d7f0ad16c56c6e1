"""What happened in a federation: its rounds, and whatever went wrong, by name."""

from fedmoments.core.observations import Report
from fedmoments.core.observations.federated import FederationEvents, ServerRound, Spread, Trouble
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


@section("federation", "What happened", place=40, of="federation")
def federation_section(_: Report, federation: FederationEvents) -> Html:
    """Return the rounds of a federation, what went wrong, and how far sites lie apart."""
    troubles = [trouble for entry in federation.rounds for trouble in _troubles(entry)]
    troubles += [_trouble(entry, "did not evaluate") for entry in federation.failures]
    names = {"Federation": federation.name, "Id": federation.id, "State": federation.state}
    return join(
        [
            sortable("Rounds", COLUMNS, list(map(_row, federation.rounds))) if federation.rounds else None,
            bullets([_spread(name, spread) for name, spread in federation.spread.items()], most=MOST),
            bullets(troubles, most=MOST, elsewhere="federation.json"),
            pairs(names.items(), code=list(names)),
        ]
    )


def _spread(head: str, spread: Spread) -> str:
    """Say how far the results of nodes lie apart, or how many clients a masked sum is over."""
    if spread.nodes is None:
        clients = "?" if spread.clients is None else spread.clients
        return f"{head} was tested by {clients} clients, whose results were only seen added up{_alone(spread)}"
    known = (spread.lowest, spread.median, spread.highest, spread.largest_share)
    low, middle, high, share = (f"{100 * (value or 0.0):.1f}" for value in known)
    return (
        f"{head} has {low} to {high} % on {spread.nodes} nodes, median {middle}; no node has more than {share} % of "
        f"the tested samples{_alone(spread)}"
    )


def _alone(spread: Spread) -> str:
    """Say what clients have without the federation, where they told."""
    if spread.alone is None:
        return ""
    both = [site for site in spread.sites if site.alone is not None]
    better = sum(site.accuracy > (site.alone or 0.0) for site in both)
    nodes = f"; the federation's is better on {better} of {len(both)} nodes" if both else ""
    return f". Heads that clients fitted from their own samples alone have {100 * spread.alone:.1f} %{nodes}"


def _row(entry: ServerRound) -> Row:
    numbers = [len(entry.asked), entry.accepted]
    numbers += [entry.counts.get(key, len(getattr(entry, key))) for key in TROUBLES]
    cells = [Cell(str(number), kind="number") for number in numbers]
    cells += [number_cell(entry.bytes, bytes_(entry.bytes)), number_cell(entry.seconds, seconds(entry.seconds))]
    return Row(Cell(str(entry.number), kind="number"), tuple(cells))


def _troubles(entry: ServerRound) -> list[str]:
    return [_trouble(trouble, words) for key, (_, words) in TROUBLES.items() for trouble in getattr(entry, key)]


def _trouble(trouble: Trouble, what: str) -> str:
    who = f"Client {trouble.client}" if trouble.client else trouble.who.capitalize()
    return f"{who} {what}: {trouble.because}"
