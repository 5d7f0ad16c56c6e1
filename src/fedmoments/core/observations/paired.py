"""Are two methods different, or is it chance? Paired comparisons over seeds, and over test samples.

Seeds: differences of the same seed, their mean m and standard deviation s over n seeds have Student's interval
m ± t(n − 1) · s/√n. Samples: of two classifiers that disagree on b + c samples, of which only the first is right on b,
b is binomial with probability ½ if both are equally good (McNemar 1947); the two-sided exact probability is returned.
"""

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeGuard

__all__ = ["Interval", "McNemar", "difference", "differences", "mcnemar", "student_interval"]

#: Share of chance that an interval keeps out.
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Interval:
    """A mean with its standard error, and how far Student's interval reaches to either side.

    Examples
    --------
    >>> Interval(0.02, 0.01, 0.03, 3).is_clear
    False
    """

    mean: float
    error: float
    reach: float
    seeds: int

    @property
    def low(self) -> float:
        """Lower end."""
        return self.mean - self.reach

    @property
    def high(self) -> float:
        """Upper end."""
        return self.mean + self.reach

    @property
    def is_clear(self) -> bool:
        """Whether 0 lies outside."""
        return abs(self.mean) > self.reach


def student_interval(values: Iterable[float], confidence: float = CONFIDENCE) -> Interval | None:
    """Return Student's interval of a mean, or None for fewer than two values.

    Examples
    --------
    >>> interval = student_interval([0.01, 0.02, 0.03])
    >>> round(interval.mean, 4), round(interval.low, 4), round(interval.high, 4)
    (0.02, -0.0048, 0.0448)
    >>> student_interval([0.5]) is None
    True
    """
    from scipy.special import stdtrit

    several = list(values)
    if len(several) < 2:
        return None
    error = statistics.stdev(several) / math.sqrt(len(several))
    reach = error * float(stdtrit(len(several) - 1, (1 + confidence) / 2))
    return Interval(statistics.fmean(several), error, reach, len(several))


def differences(
    ours: Sequence[float | None], our_seeds: Sequence[int], theirs: Sequence[float | None], their_seeds: Sequence[int]
) -> list[float]:
    """Return one difference for every seed that both sides have a value for; 0 where it is of rounding alone.

    Examples
    --------
    >>> [round(value, 3) for value in differences([0.9, 0.8, None], [0, 1, 2], [0.5, 0.7], [2, 1])]
    [0.1]
    """
    other = dict(zip(their_seeds, theirs, strict=True))
    pairs = [(value, other.get(seed)) for seed, value in zip(our_seeds, ours, strict=True)]
    return [difference(one, two) for one, two in pairs if _is_finite(one) and _is_finite(two)]


def _is_finite(value: float | None) -> TypeGuard[float]:
    return value is not None and math.isfinite(value)


def difference(one: float, other: float) -> float:
    """Return one − other; 0 where it is of rounding alone.

    Examples
    --------
    >>> difference(0.1 + 0.2, 0.3), difference(2.0, 1.5)
    (0.0, 0.5)
    """
    return 0.0 if abs(one - other) <= 1e-12 * max(abs(one), abs(other)) else one - other


@dataclass(frozen=True)
class McNemar:
    """Test samples on which only one of two classifiers is right, and how probable so uneven a share is by chance."""

    only_first: int
    only_second: int
    probability: float


def mcnemar(only_first: int, only_second: int) -> McNemar:
    """Return the exact two-sided test on discordant counts.

    Examples
    --------
    >>> round(mcnemar(1, 9).probability, 4), mcnemar(0, 0).probability
    (0.0215, 1.0)
    """
    from scipy.special import bdtr

    total, fewer = only_first + only_second, min(only_first, only_second)
    probability = min(1.0, 2 * float(bdtr(fewer, total, 0.5))) if total else 1.0
    return McNemar(only_first, only_second, probability)
