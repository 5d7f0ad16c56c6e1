"""One number that was measured: where it stands, what it is, and its value for every seed.

Are two methods different, or is it chance? Paired comparisons over seeds, and over test samples.

Seeds: differences of the same seed, their mean m and standard deviation s over n seeds have Student's interval
m ± t(n − 1) · s/√n. Samples: of two classifiers that disagree on b + c samples, of which only the first is right on b,
b is binomial with probability ½ if both are equally good (McNemar 1947); the two-sided exact probability is returned.
"""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeGuard

from fedmoments.core.observations.codec import from_plain, to_plain

__all__ = [
    "ACCURACY",
    "Interval",
    "McNemar",
    "Observation",
    "Scalar",
    "difference",
    "differences",
    "is_known",
    "is_share",
    "matching",
    "mcnemar",
    "sorted_values",
    "student_interval",
]


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


#: What a place is described with.
Scalar = str | int | float | bool | None

#: The quantity of a table unless it says otherwise: a share of the test samples, from 0 to 1.
ACCURACY = "accuracy"


@dataclass(frozen=True)
class Observation:
    """A quantity at one place.

    Parameters
    ----------
    where
        The place: the setting, and the method as ``head``: ``{"head": "fedcof", "clients": 100}``.
    values
        One for every seed, in the order of the seeds; one alone where nothing is drawn. None where it could not be
        measured.
    quantity
        What it is. Accuracies are shares from 0 to 1.
    reason
        Why there is no value, where there is none.
    seeds
        One for every value; none where nothing is drawn.
    unit
        Of the values: ``bytes``, ``seconds``; nothing for a share or a plain number.

    Examples
    --------
    >>> observation = Observation({"head": "fedcof", "clients": 100}, (0.8, 0.9))
    >>> round(observation.mean, 3), round(observation.spread, 3), observation.at({"clients": 100})
    (0.85, 0.071, True)
    >>> observation.method, observation.place
    ('fedcof', {'clients': 100})
    """

    where: Mapping[str, Scalar]
    values: tuple[float | None, ...]
    quantity: str = ACCURACY
    reason: str | None = None
    seeds: tuple[int, ...] = ()
    unit: str = ""

    derived: ClassVar[tuple[str, ...]] = ("mean", "spread")

    @property
    def method(self) -> str:
        """Name of the head or baseline that it is of; empty where there is none."""
        return str(self.where.get("head") or "")

    @property
    def place(self) -> dict[str, Scalar]:
        """The setting: where it stands, whatever the method."""
        return {key: value for key, value in self.where.items() if key != "head"}

    @property
    def known(self) -> list[float]:
        """Values that could be measured."""
        return [value for value in self.values if is_known(value)]

    @property
    def mean(self) -> float | None:
        """Mean over seeds, or None where nothing could be measured."""
        return statistics.fmean(self.known) if self.known else None

    @property
    def spread(self) -> float | None:
        """Standard deviation over seeds (divided by seeds − 1), or None for fewer than two."""
        return statistics.stdev(self.known) if len(self.known) > 1 else None

    @property
    def low(self) -> float:
        """Lowest value; NaN where nothing could be measured."""
        return min(self.known, default=math.nan)

    @property
    def high(self) -> float:
        """Highest value; NaN where nothing could be measured."""
        return max(self.known, default=math.nan)

    @property
    def interval(self) -> Interval | None:
        """Student's interval of the mean over seeds (95 %), or None for fewer than two."""
        return student_interval(self.known)

    def at(self, where: Mapping[str, Any]) -> bool:
        """Say whether it stands at a place: all keys that are named have these values."""
        return all(key in self.where and self.where[key] == value for key, value in where.items())

    def to_dict(self) -> dict[str, Any]:
        """Return it ready for JSON, with mean and spread for whoever reads the file without this package."""
        return dict(to_plain(self))

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> "Observation":
        """Read what :meth:`to_dict` wrote."""
        return from_plain(cls, plain)


def is_known(value: float | None) -> TypeGuard[float]:
    """Say whether a value could be measured: it is a number, and finite.

    Examples
    --------
    >>> is_known(0.5), is_known(None), is_known(float("nan"))
    (True, False, False)
    """
    return value is not None and math.isfinite(value)


def is_share(where: Mapping[str, Any]) -> bool:
    """Say whether a place is one of accuracies that are shares.

    Examples
    --------
    >>> is_share({}), is_share({"quantity": "accuracy by round"}), is_share({"quantity": "accuracy (%)"})
    (True, True, False)
    """
    quantity = str(where.get("quantity", ACCURACY))
    return quantity.startswith(ACCURACY) and "%" not in quantity


def sorted_values(observations: Iterable[Observation], key: str) -> list[Any]:
    """Return the different values that a key has, numbers by size, words in the order in which they were met.

    Examples
    --------
    >>> sorted_values([Observation({"clients": 50}, (0.9,)), Observation({"clients": 10}, (0.8,))], "clients")
    [10, 50]
    """
    values: list[Any] = list(
        dict.fromkeys(observation.where[key] for observation in observations if key in observation.where)
    )
    return sorted(values) if all(isinstance(value, int | float) for value in values) else values


def matching(observations: Iterable[Observation], where: Mapping[str, Any]) -> list[Observation]:
    """Return the observations at a place; a key ``quantity`` chooses the quantity, which is the accuracy by default.

    Examples
    --------
    >>> both = [Observation({"head": "fedcof"}, (0.9,)), Observation({"head": "fedcof"}, (5.9,), "megabytes")]
    >>> [found.values for found in matching(both, {"head": "fedcof", "quantity": "megabytes"})]
    [(5.9,)]
    """
    place = {key: value for key, value in where.items() if key != "quantity"}
    quantity = where.get("quantity", ACCURACY)
    return [observation for observation in observations if observation.quantity == quantity and observation.at(place)]
