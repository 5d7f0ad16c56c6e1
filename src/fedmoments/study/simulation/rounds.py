"""Partial participation: a few clients a round, each contributing the first time it is drawn.

A head can be fitted after every round from the clients seen so far. **Law** once every client was seen, the accuracy
is that of one shot, whatever the order and however clients were drawn.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.heads import Head
from fedmoments.core.observations.parts import RoundAccuracy, RoundCurve
from fedmoments.core.statistics import Statistics, StatisticsSpec
from fedmoments.errors import FedMomentsError, InputError
from fedmoments.samples.splits.draws import generator, shuffle
from fedmoments.study.simulation.fit import fit_notes, predict_blocks
from fedmoments.study.simulation.measuring import Federation
from fedmoments.study.simulation.payload import serve

__all__ = ["Participation", "participants", "simulate_rounds"]

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
    federation: Federation,
    heads: Mapping[str, Head],
    participation: Participation,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[RoundCurve, ...]:
    """Fit and test heads after rounds of partial participation.

    A federation that was not measured yet is measured here, as clients come, and not again afterwards. The last point,
    once every client was seen, is the federation's own fit.

    Parameters
    ----------
    federation
        Clients and what they measure; its seed draws who takes part.
    heads
        Name -> head, of those that the federation serves. Heads with a feature map of their own are left out: their
        map needs all clients first.
    participation
        Clients a round, with or without replacement.
    progress
        Called with (clients seen, clients in all).

    Examples
    --------
    >>> from fedmoments.core.heads import make_head
    >>> from fedmoments.samples import iid
    >>> from fedmoments.samples.features import Features, Samples
    >>> y = np.arange(40) % 2
    >>> part = Samples(np.eye(2)[y], y)
    >>> head = make_head("fedncm")
    >>> federation = Federation(Features("toy", 2, part, part), iid(40, 4, 0), [head])
    >>> curves = simulate_rounds(federation, {"fedncm": head}, Participation(2))
    >>> [(point.round, point.seen, point.accuracy) for point in curves[0].points]
    [(1, 2, 1.0), (2, 4, 1.0)]
    """
    shared = _without_own_map(heads)
    holders = np.flatnonzero(federation.split.sizes > 0)
    turns = _turns(holders, participation, federation.seed)
    points: dict[str, list[RoundAccuracy]] = {name: [] for name in shared}
    seen = 0
    for (number, group), total in zip(turns, federation.in_turns([group for _, group in turns]), strict=True):
        seen += len(group)
        # once every client was seen, it is the federation's own fit, below
        accuracies = {} if seen == len(holders) else _accuracies(shared, total, federation)
        for name, mine in points.items():
            mine.append(RoundAccuracy(number, seen, accuracies.get(name)))
        if progress:
            progress(seen, len(holders))
    if turns and seen == len(holders):
        _end_with_own_fit(points, shared, federation)
    how = (participation.per_round, participation.replacement, federation.seed)
    return tuple(RoundCurve(name, *how, tuple(mine), federation.split.scheme) for name, mine in points.items())


def _without_own_map(heads: Mapping[str, Head]) -> dict[str, Head]:
    return {name: head for name, head in heads.items() if not head.has_own_map}


def _end_with_own_fit(
    points: Mapping[str, list[RoundAccuracy]], heads: Mapping[str, Head], federation: Federation
) -> None:
    for name, mine in points.items():
        mine[-1] = replace(mine[-1], accuracy=federation.outcome(heads[name]).accuracy)


def _turns(holders: Ints, participation: Participation, seed: int) -> list[tuple[int, Ints]]:
    """Return the rounds after which heads are fitted, each with the clients seen since the one before."""
    turns: list[tuple[int, Ints]] = []
    seen, pending = np.zeros(len(holders), bool), np.zeros(len(holders), bool)
    reported = 0
    for number, drawn in enumerate(participants(len(holders), participation, seed), start=1):
        pending[drawn] |= ~seen[drawn]
        seen[drawn] = True
        n_seen = int(seen.sum())
        enough = n_seen == len(holders) or n_seen - reported >= len(holders) / participation.most_points
        if enough and pending.any():
            turns.append((number, holders[pending]))
            pending[:] = False
            reported = n_seen
    return turns


def _accuracies(heads: Mapping[str, Head], merged: Statistics, federation: Federation) -> dict[str, float | None]:
    served: dict[StatisticsSpec, Statistics] = {}
    return {name: _accuracy(head, merged, served, federation) for name, head in heads.items()}


def _accuracy(
    head: Head, merged: Statistics, served: dict[StatisticsSpec, Statistics], federation: Federation
) -> float | None:
    """Return the accuracy, or None while too few clients were seen for this head."""
    try:
        with fit_notes():  # what is fitted in a lesser way is told once, of all clients together
            classifier = head.fit(serve(head, merged, served))
    except FedMomentsError:
        return None
    test = federation.mapped.test
    return float((predict_blocks(classifier, test.X) == test.y).mean())
