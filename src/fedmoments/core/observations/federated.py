"""What a federation tells beside its results: who left, what was looked at, its privacy card, rounds and troubles."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

__all__ = [
    "ClientInfluence",
    "Dropped",
    "Examination",
    "FederationEvents",
    "PrivacyCard",
    "ServerRound",
    "SiteAccuracy",
    "Spread",
    "Trouble",
]


@dataclass(frozen=True)
class Dropped:
    """A client that the server left out, and why."""

    client: str
    reason: str


@dataclass(frozen=True)
class ClientInfluence:
    """What one client does to a head: change of class probabilities, share of points that change class, its samples."""

    client: str
    change: float
    flips: float | None = None
    samples: int | None = None
    share: float | None = None


@dataclass(frozen=True)
class Examination:
    """Whom the server left out, and who moves a head most.

    Parameters
    ----------
    clients
        How many contributed, those left out among them.
    examined
        Whether the server looked at contributions.
    dropped, untested
        Whom it left out, and class means that had too few others to be compared with.
    head, influence
        Whose influence is measured, and that of every client.
    attack, attackers, caught, false
        What a simulation played, who attacked, how many of them were found and how many honest clients left out.
    """

    clients: int
    examined: bool = False
    dropped: tuple[Dropped, ...] = ()
    untested: int = 0
    head: str = ""
    influence: tuple[ClientInfluence, ...] = ()
    attack: str | None = None
    attackers: tuple[str, ...] = ()
    caught: int | None = None
    false: int | None = None


@dataclass(frozen=True)
class PrivacyCard:
    """In plain language, who learns what, under which assumption, and what is not promised.

    Parameters
    ----------
    mode
        How contributions travelled.
    agreed, min_count, withheld, spent, obfuscation, robust, dropped, exposed, sketches, simulated
        As in :func:`fedmoments.privacy.card.privacy_card`, which makes cards.
    facts, sees
        Pairs (name, value): the rules, and who learns what.
    assumptions, not_promised
        Sentences.
    """

    mode: str
    agreed: Mapping[str, Any] = field(default_factory=dict)
    min_count: int | None = None
    withheld: Mapping[str, int] | None = None
    spent: Mapping[str, Any] | None = None
    obfuscation: str | None = None
    robust: str | None = None
    dropped: Mapping[str, str] = field(default_factory=dict)
    exposed: Mapping[str, int] | None = None
    sketches: Mapping[str, float] | None = None
    simulated: bool = False
    facts: tuple[tuple[str, str], ...] = ()
    sees: tuple[tuple[str, str], ...] = ()
    assumptions: tuple[str, ...] = ()
    not_promised: tuple[str, ...] = ()


@dataclass(frozen=True)
class Trouble:
    """A node or a client that took no part, or a contribution that was refused, and why.

    Parameters
    ----------
    node, client
        Whose it is, as far as the server knows; ``all`` nodes together where results were only seen added up.
    reason
        In a word, or as the node's machine said it.
    why, sentence
        In full: of a client that kept its contribution back, and of the server that refused one.
    version, federation
        Of the contribution that was refused.
    code, kind
        Of the message that a node did not answer.

    Examples
    --------
    >>> Trouble(7, reason="no answer").who, Trouble(7, "lab", why="too few samples").because
    ('node 7', 'too few samples')
    """

    node: int | str | None = None
    client: str | None = None
    reason: str | None = None
    why: str | None = None
    sentence: str | None = None
    version: int | None = None
    federation: str | None = None
    code: int | None = None
    kind: str | None = None

    @property
    def who(self) -> str:
        """The client's name, or the node's number."""
        return self.client or f"node {'?' if self.node is None else self.node}"

    @property
    def because(self) -> str:
        """What is known of the reason."""
        return self.sentence or self.why or self.reason or "no reason given"

    def flattened(self) -> dict[str, Any]:
        """Return what is known, for JSON."""
        return {
            entry.name: getattr(self, entry.name) for entry in fields(self) if getattr(self, entry.name) is not None
        }


@dataclass(frozen=True)
class ServerRound:
    """What one round of asking brought; ``counts`` are all that was refused, declined or failed, of which some is told.

    ``bytes`` are those of contributions that arrived, unknown where they would tell too much; ``asked`` are nodes.
    """

    number: int = 0
    asked: tuple[int, ...] = ()
    accepted: int = 0
    refused: tuple[Trouble, ...] = ()
    declined: tuple[Trouble, ...] = ()
    failures: tuple[Trouble, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    bytes: int | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class SiteAccuracy:
    """Accuracy of a head on the samples of one site; ``alone``: of one fitted from that site's own samples alone."""

    accuracy: float
    samples: int
    alone: float | None = None


@dataclass(frozen=True)
class Spread:
    """How far the accuracies of nodes lie apart, and the largest share of tested samples that one of them has.

    Of results that were only seen added up, nothing is known but from how many ``clients`` they are. ``alone`` is the
    accuracy on the same samples of heads that each client fitted from its own samples alone.
    """

    nodes: int | None = None
    lowest: float | None = None
    median: float | None = None
    highest: float | None = None
    largest_share: float | None = None
    sites: tuple[SiteAccuracy, ...] = ()
    clients: int | None = None
    alone: float | None = None


@dataclass(frozen=True)
class FederationEvents:
    """A federation that ran: its terms and state, and what its server told of rounds and of nodes that failed.

    ``failures`` are nodes that did not test the heads; ``unfitted`` says why heads could not be fitted, ``spread`` how
    far the nodes' results of each head lie apart.
    """

    id: str = ""
    name: str = ""
    state: str = ""
    rounds: tuple[ServerRound, ...] = ()
    failures: tuple[Trouble, ...] = ()
    unfitted: Mapping[str, str] = field(default_factory=dict)
    spread: Mapping[str, Spread] = field(default_factory=dict)
