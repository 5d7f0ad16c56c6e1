"""How many rounds pass until a share of the clients was sampled (Fed3R, Section 4.3 and Appendix I).

Every round draws κ distinct clients of K. Without replacement across rounds, m clients take ⌈m/κ⌉ rounds. With it,
this is the batch coupon collector. The number s of clients seen is a Markov chain that moves up by j new clients with
the hypergeometric probability p(j|s) = C(K−s, j) C(s, κ−j) / C(K, κ), so the rounds T_s that are still to come until m
clients were seen follow from those of larger s, in O(mκ) altogether::

    E[T_s]   = (1 + Σ_{j≥1} p(j|s) E[T_{s+j}]) / (1 − p(0|s))
    Var[T_s] = (p(0|s) + Σ_{j≥1} p(j|s) (Var[T_{s+j}] + (1 + E[T_{s+j}] − E[T_s])²)) / (1 − p(0|s))

The second line is the law of total variance: only squares are added, nothing cancels.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.costs.cost import check_sampled, check_share, check_whole

__all__ = [
    "RoundsToSee",
    "expected_participations",
    "expected_rounds",
    "rounds_without_replacement",
    "simulate_rounds",
]

_BLOCK = 2**18  # entries of the transition matrix that are held at once: 2 MB


@dataclass(frozen=True)
class RoundsToSee:
    """Rounds until `target` of `clients` clients were seen, when each round samples `sampled` of them.

    Examples
    --------
    >>> print(RoundsToSee(clients=100, sampled=10, target=100, mean=49.9, standard_deviation=11.6))
    50 ± 12 rounds until 100 of 100 clients were seen, 10 a round
    """

    clients: int
    sampled: int
    target: int
    mean: float
    standard_deviation: float

    def __str__(self) -> str:
        return (
            f"{self.mean:,.0f} ± {self.standard_deviation:,.0f} rounds until {self.target:,} of {self.clients:,} "
            f"clients were seen, {self.sampled:,} a round"
        )


def _target(clients: int, share: float) -> int:
    """Fewest clients that are at least this share; rounding first, so that 0.07 of 100 is 7 and not 8."""
    return max(1, math.ceil(round(check_share(share) * clients, 6)))


def rounds_without_replacement(clients: int, sampled: int, share: float = 1.0) -> int:
    """Count the rounds until a share of the clients was seen when no client is sampled twice: ⌈share·K/κ⌉.

    Parameters
    ----------
    clients, sampled
        K and κ ≤ K.
    share
        Of the clients, in (0, 1].

    Returns
    -------
    int
        Rounds.

    Examples
    --------
    >>> rounds_without_replacement(9275, 10)
    928
    """
    clients, sampled = check_sampled(clients, sampled)
    return -(-_target(clients, share) // sampled)


def expected_participations(clients: int, sampled: int, rounds: int) -> float:
    """How often a client is expected to be sampled in t rounds: tκ/K.

    Parameters
    ----------
    clients, sampled, rounds
        K, κ ≤ K and t ≥ 0.

    Returns
    -------
    float
        Times.

    Examples
    --------
    >>> expected_participations(100, 10, 1500)
    150.0
    """
    clients, sampled = check_sampled(clients, sampled)
    return check_whole("rounds", rounds, least=0) * sampled / clients


def _transitions(clients: int, sampled: int, seen: NDArray[np.float64]) -> NDArray[np.float64]:
    """Probabilities p(j|s), shape (len(seen), sampled + 1), of j new clients in a round; needs seen ≥ sampled.

    Built from p(j+1|s) / p(j|s) = (K−s−j)(κ−j) / ((j+1)(s−κ+j+1)): logarithms of factorials would lose four digits.
    """
    old, new = seen[:, None], np.arange(sampled, dtype=np.float64)[None, :]
    ratios = (clients - old - new) * (sampled - new) / ((new + 1) * (old - sampled + new + 1))
    steps = np.log(ratios, where=ratios > 0, out=np.full_like(ratios, -np.inf))
    logs = np.concatenate([np.zeros_like(old), np.cumsum(steps, axis=1)], axis=1)
    weights: NDArray[np.float64] = np.exp(logs - logs.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    return weights


def _rows_downwards(clients: int, sampled: int, target: int) -> Iterator[tuple[int, NDArray[np.float64]]]:
    """Yield (s, p(·|s)) for s = target − 1 down to `sampled`, computed in blocks of bounded size."""
    height = max(1, _BLOCK // (sampled + 1))
    for top in range(target - 1, sampled - 1, -height):
        seen = np.arange(top, max(top - height, sampled - 1), -1)
        yield from zip(seen.tolist(), _transitions(clients, sampled, seen.astype(np.float64)), strict=True)


def expected_rounds(clients: int, sampled: int, share: float = 1.0) -> RoundsToSee:
    """Mean and standard deviation of the rounds until a share of the clients was seen, sampling with replacement.

    Within a round clients are distinct; between rounds they are drawn afresh. Exact up to rounding, in O(Kκ).

    Parameters
    ----------
    clients, sampled
        K and κ ≤ K.
    share
        Of the clients, in (0, 1]; ⌈share·K⌉ clients must have been seen.

    Returns
    -------
    RoundsToSee
        Mean and standard deviation, in rounds.

    Examples
    --------
    >>> print(expected_rounds(1262, 10, 0.25))
    37 ± 1 rounds until 316 of 1,262 clients were seen, 10 a round
    >>> expected_rounds(2, 1).mean
    3.0
    """
    clients, sampled = check_sampled(clients, sampled)
    target = _target(clients, share)
    # Indexed by clients seen; from `target` on nothing is left to wait for.
    mean, variance = np.zeros(target + sampled + 1), np.zeros(target + sampled + 1)
    for seen, probabilities in _rows_downwards(clients, sampled, target):
        stay, move = probabilities[0], probabilities[1:]
        leave = move.sum()
        ahead = slice(seen + 1, seen + sampled + 1)
        mean[seen] = (1 + move @ mean[ahead]) / leave
        spread = variance[ahead] + (1 + mean[ahead] - mean[seen]) ** 2
        variance[seen] = (stay + move @ spread) / leave
    # The first round always shows `sampled` new clients.
    return RoundsToSee(clients, sampled, target, 1 + float(mean[sampled]), math.sqrt(variance[sampled]))


def simulate_rounds(
    clients: int, sampled: int, share: float = 1.0, *, repetitions: int = 1000, seed: int | np.random.Generator
) -> NDArray[np.int64]:
    """Draw clients until a share of them was seen, many times over: the referee of `expected_rounds`.

    Parameters
    ----------
    clients, sampled
        K and κ ≤ K.
    share
        Of the clients, in (0, 1].
    repetitions
        How many independent federations to simulate.
    seed
        Of the draws.

    Returns
    -------
    (repetitions,) array of int64
        Rounds that each of them took.

    Examples
    --------
    >>> simulate_rounds(4, 4, repetitions=3, seed=0)
    array([1, 1, 1])
    """
    clients, sampled = check_sampled(clients, sampled)
    target = _target(clients, share)
    generator = np.random.default_rng(seed)
    rounds = np.zeros(check_whole("repetitions", repetitions), dtype=np.int64)
    for repetition in range(len(rounds)):
        seen = np.zeros(clients, dtype=np.bool_)
        while np.count_nonzero(seen) < target:
            seen[generator.choice(clients, sampled, replace=False, shuffle=False)] = True
            rounds[repetition] += 1
    return rounds
