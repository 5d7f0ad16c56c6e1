"""One number of a table or a figure, as we measured it: where it stands, what it is, and its value for every seed."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeGuard

__all__ = ["ACCURACY", "Measurement", "is_known", "is_share", "matching"]

#: The quantity that a table shows unless it says otherwise: a share of the test samples, from 0 to 1.
ACCURACY = "accuracy"


@dataclass(frozen=True)
class Measurement:
    """A quantity at one place.

    Parameters
    ----------
    where
        The place: ``{"head": "fedcof", "clients": 100}``. Values are text, numbers or booleans.
    values
        One for every seed, in the order of the seeds; one alone where nothing is drawn. None where it could not be
        measured.
    quantity
        What it is. Accuracies are shares from 0 to 1.
    reason
        Why there is no value, where there is none.

    Examples
    --------
    >>> found = Measurement({"head": "fedcof", "clients": 100}, (0.8, 0.9))
    >>> round(found.mean, 3), round(found.spread, 3), found.at({"head": "fedcof"})
    (0.85, 0.071, True)
    """

    where: Mapping[str, Any]
    values: tuple[float | None, ...]
    quantity: str = ACCURACY
    reason: str | None = None
    seeds: tuple[int, ...] = field(default=())

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

    def at(self, where: Mapping[str, Any]) -> bool:
        """Say whether the measurement stands at a place: all keys that are named have these values."""
        return all(key in self.where and self.where[key] == value for key, value in where.items())

    def to_dict(self) -> dict[str, Any]:
        """Return the measurement, ready for JSON."""
        values = [value if is_known(value) else None for value in self.values]
        plain = {"where": dict(self.where), "quantity": self.quantity, "values": values}
        return plain | {"mean": self.mean, "spread": self.spread, "seeds": list(self.seeds), "reason": self.reason}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> "Measurement":
        """Read what :meth:`to_dict` wrote."""
        values, seeds = tuple(plain["values"]), tuple(plain["seeds"])
        return cls(dict(plain["where"]), values, plain["quantity"], plain["reason"], seeds)


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


def matching(measurements: Iterable[Measurement], where: Mapping[str, Any]) -> list[Measurement]:
    """Return the measurements at a place; a key ``quantity`` chooses the quantity, which is the accuracy by default.

    Examples
    --------
    >>> both = [Measurement({"head": "fedcof"}, (0.9,)), Measurement({"head": "fedcof"}, (5.9,), "megabytes")]
    >>> [found.values for found in matching(both, {"head": "fedcof", "quantity": "megabytes"})]
    [(5.9,)]
    """
    place = {key: value for key, value in where.items() if key != "quantity"}
    quantity = where.get("quantity", ACCURACY)
    return [each for each in measurements if each.quantity == quantity and each.at(place)]


def sorted_values(measurements: Sequence[Measurement], key: str) -> list[Any]:
    """Return the different values that a key has, numbers by size, words in the order in which they were met."""
    found = list(dict.fromkeys(each.where[key] for each in measurements if key in each.where))
    numbers = all(isinstance(value, int | float) for value in found)
    return sorted(found) if numbers else found
