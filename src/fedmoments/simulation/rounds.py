"""Partial participation: a few clients a round, each contributing the first time it is drawn.

A head can be fitted after every round from the clients seen so far. **Law** once every client was seen, the accuracy
is that of one shot, whatever the order and however clients were drawn.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.data import Split
from fedmoments.data.draws import generator, shuffle
from fedmoments.errors import FedMomentsError, InputError
from fedmoments.heads import Head
from fedmoments.simulation.evaluation import predict_blocks
from fedmoments.simulation.features import Features
from fedmoments.simulation.measuring import sent_by
from fedmoments.simulation.notices import fit_notes
from fedmoments.statistics import Ledger, Statistics, StatisticsSpec

__all__ = ["Participation", "Point", "RoundCurve", "participants", "simulate_rounds"]

Ints = NDArray[np.int64]

#: Rounds after which drawing stops even if a client was never seen: far beyond what any real setting needs.
MOST_ROUNDS = 1_000_000


@dataclass(frozen=True)
class Participation:
    """How clients take part.

    Parameters
    ----------
    per_round
        κ, clients drawn a round.
    replacement
        Whether a client can be drawn again in a later round; otherwise everybody is drawn once.
    most_points
        At most this many rounds are fitted and tested, evenly spread over the *clients* seen.

    Examples
    --------
    >>> Participation.parse("10:replacement")
    Participation(per_round=10, replacement=True, most_points=50)
    """

    per_round: int
    replacement: bool = False
    most_points: int = 50

    def __post_init__(self) -> None:
        if self.per_round < 1 or self.most_points < 2:
            raise InputError(
                f"clients per round must be 1 or more and points 2 or more, not {self.per_round} and {self.most_points}"
            )

    @classmethod
    def parse(cls, text: str) -> "Participation":
        """Read ``KAPPA`` or ``KAPPA:replacement``."""
        read = re.fullmatch("([0-9]+)(:replacement)?", text)
        if read is None:
            raise InputError(
                f"participation is typed as KAPPA or KAPPA:replacement, such as 10:replacement, not '{text}'"
            )
        return cls(int(read[1]), replacement=read[2] is not None)

    def __str__(self) -> str:
        return f"{self.per_round}:replacement" if self.replacement else str(self.per_round)


@dataclass(frozen=True)
class Point:
    """After a round: clients seen so far, and the accuracy (None where the head cannot be fitted yet)."""

    round: int
    seen: int
    accuracy: float | None


@dataclass(frozen=True)
class RoundCurve:
    """Accuracy of one head, round by round."""

    head: str
    participation: Participation
    seed: int
    points: tuple[Point, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the curve, ready for JSON."""
        return {
            "head": self.head,
            "per_round": self.participation.per_round,
            "replacement": self.participation.replacement,
            "seed": self.seed,
            "points": [vars(point).copy() for point in self.points],
        }


def participants(n_clients: int, participation: Participation, seed: int) -> Iterator[Ints]:
    """Yield the clients of every round, (κ,), until everybody was drawn.

    Examples
    --------
    >>> [chosen.tolist() for chosen in participants(5, Participation(2), seed=0)]
    [[3, 2], [1, 0], [4]]
    """
    rng = generator(seed)
    kappa = min(participation.per_round, n_clients)
    if not participation.replacement:
        order = shuffle(rng, n_clients)
        yield from (order[start : start + kappa] for start in range(0, n_clients, kappa))
        return
    unseen = np.ones(n_clients, bool)
    for _ in range(MOST_ROUNDS):
        chosen = shuffle(rng, n_clients)[:kappa]
        unseen[chosen] = False
        yield chosen
        if not unseen.any():
            return


def simulate_rounds(
    features: Features,
    split: Split,
    heads: Mapping[str, Head],
    participation: Participation,
    *,
    seed: int,
    means_per_client: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[RoundCurve, ...]:
    """Fit and test heads after rounds of partial participation.

    Parameters
    ----------
    features, split
        Everybody's samples, and who holds what.
    heads
        Name -> head. Heads with a feature map of their own are left out: their map needs all clients first.
    participation
        Clients a round, with or without replacement.
    seed
        Draws the clients, and deals samples to shares.
    means_per_client
        Means that a client sends of a class.
    progress
        Called with (clients seen, clients in all).

    Examples
    --------
    >>> from fedmoments.heads import make_head
    >>> from fedmoments.data import iid
    >>> from fedmoments.simulation.features import Samples
    >>> y = np.arange(40) % 2
    >>> part = Samples(np.eye(2)[y], y)
    >>> toy = Features("toy", 2, part, part)
    >>> curves = simulate_rounds(toy, iid(40, 4, 0), {"fedncm": make_head("fedncm")}, Participation(2), seed=0)
    >>> [(point.round, point.seen, point.accuracy) for point in curves[0].points]
    [(1, 2, 1.0), (2, 4, 1.0)]
    """
    shared = {name: head for name, head in heads.items() if not head.has_own_map}
    spec = StatisticsSpec()
    for head in shared.values():
        spec = spec | sent_by(head, means_per_client)
    holders = np.flatnonzero(split.sizes > 0)
    points: dict[str, list[Point]] = {name: [] for name in shared}
    total: Statistics | None = None
    pending = np.zeros(split.n_clients, bool)
    seen = np.zeros(split.n_clients, bool)
    reported = 0
    for number, drawn in enumerate(participants(len(holders), participation, seed), start=1):
        chosen = holders[drawn]
        pending[chosen] |= ~seen[chosen]
        seen[chosen] = True
        n_seen = int(seen.sum())
        if n_seen < len(holders) and n_seen - reported < len(holders) / participation.most_points:
            continue
        if not pending.any():
            continue
        fresh = _measure(features, split, pending, spec, seed)
        total = fresh if total is None else total + fresh
        pending[:] = False
        reported = n_seen
        for name, head in shared.items():
            points[name].append(Point(number, n_seen, _accuracy(head, total, features)))
        if progress:
            progress(n_seen, len(holders))
    return tuple(RoundCurve(name, participation, seed, tuple(found)) for name, found in points.items())


def _measure(features: Features, split: Split, who: NDArray[np.bool_], spec: StatisticsSpec, seed: int) -> Statistics:
    """Return the merged statistics of some clients."""
    mine = np.flatnonzero((split.clients >= 0) & who[split.clients])
    X, y = features.train.X[mine], features.train.y[mine]
    ledger = Ledger.of(X, y, split.clients[mine], spec, n_classes=features.n_classes, seed=seed, fold=True)
    return ledger.statistics()


def _accuracy(head: Head, stats: Statistics, features: Features) -> float | None:
    """Return the accuracy, or None while too few clients were seen for this head."""
    try:
        with fit_notes():  # what is fitted in a lesser way is told once, of all clients together
            classifier = head.fit(stats.restricted(head.needs))
    except FedMomentsError:
        return None
    return float((predict_blocks(classifier, features.test.X) == features.test.y).mean())
