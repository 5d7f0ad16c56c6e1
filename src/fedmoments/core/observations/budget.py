"""Accuracy against bytes per client: one curve a head, each point over all seeds."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean, stdev
from typing import ClassVar

from fedmoments.core.observations.observation import Observation, Scalar
from fedmoments.core.statistics.sketch_plan import Budget
from fedmoments.errors import InputError

__all__ = ["SKETCH", "BudgetCurve", "BudgetCurves", "BudgetPoint", "Recompressed"]

#: The kind of curves that are swept by budget; all others are behind random projections.
SKETCH = "sketch"
#: Share by which bytes may exceed a payload, which is a mean over clients, and still count as no more: budgets double.
NOMINAL = 0.05


@dataclass(frozen=True)
class BudgetPoint:
    """What one budget bought.

    Parameters
    ----------
    accuracies, sizes
        Accuracy of every seed that could be fitted, at least one, and its bytes a client.
    seeds
        Those seeds.
    budget
        As it is typed; None for a method as it is published.
    dimensions, rank
        Behind a projection, and sketch rows a client; None without.
    own
        Whether it is the method as published.

    Examples
    --------
    >>> point = BudgetPoint((0.8, 0.9), (100.0, 110.0), (0, 1), "means/2")
    >>> round(point.accuracy, 2), point.bytes, round(point.std, 3)
    (0.85, 105.0, 0.071)
    """

    accuracies: tuple[float, ...]
    sizes: tuple[float, ...]
    seeds: tuple[int, ...] = ()
    budget: str | None = None
    dimensions: int | None = None
    rank: float | None = None
    own: bool = False

    derived: ClassVar[tuple[str, ...]] = ("accuracy", "std", "bytes")

    @property
    def accuracy(self) -> float:
        """Mean accuracy."""
        return fmean(self.accuracies)

    @property
    def std(self) -> float | None:
        """Standard deviation over seeds, or None for fewer than two."""
        return stdev(self.accuracies) if len(self.accuracies) > 1 else None

    @property
    def bytes(self) -> float:
        """Mean bytes a client."""
        return fmean(self.sizes)

    @property
    def low(self) -> float:
        """One deviation below the accuracy."""
        return max(self.accuracy - (self.std or 0.0), 0.0)

    @property
    def high(self) -> float:
        """One deviation above the accuracy."""
        return min(self.accuracy + (self.std or 0.0), 1.0)


@dataclass(frozen=True)
class BudgetCurve:
    """A head's points, by bytes; ``kind`` is ``sketch`` or ``projected``."""

    head: str
    kind: str
    points: tuple[BudgetPoint, ...]

    def __post_init__(self) -> None:
        by_bytes = sorted(self.points, key=lambda point: (point.bytes, point.accuracy))
        object.__setattr__(self, "points", tuple(by_bytes))

    @property
    def sketch(self) -> bool:
        """Whether the head is on scatter sketches."""
        return self.kind == SKETCH

    def best(self, most: float) -> BudgetPoint | None:
        """Return the point of most bytes, but about so many at most."""
        known = [point for point in self.points if point.bytes <= most * (1 + NOMINAL)]
        return max(known, key=lambda point: point.bytes, default=None)


@dataclass(frozen=True)
class Recompressed:
    """Accuracy when a server keeps no more than so many rows ``of`` all, against that without a bound."""

    head: str
    rows: int
    of: int
    blocks: int
    accuracy: float
    unbounded: float


@dataclass(frozen=True)
class BudgetCurves:
    """All curves of one federation.

    Parameters
    ----------
    curves, recompressed
        One a head; and what a bound on the server's memory costs.
    means, gram
        FedNCM's and FedCOF's float32 payload in bytes a client, and Fed3R's, packed.
    clients, split
        Of the federation.
    dim, n_classes
        Of the features.
    """

    curves: tuple[BudgetCurve, ...] = ()
    recompressed: tuple[Recompressed, ...] = ()
    means: float | None = None
    gram: float | None = None
    clients: int | None = None
    split: str | None = None
    dim: int | None = None
    n_classes: int | None = None

    @cached_property
    def points(self) -> tuple[BudgetPoint, ...]:
        """The points of all curves."""
        return tuple(point for curve in self.curves for point in curve.points)

    @property
    def seeds(self) -> int:
        """The most seeds of a point."""
        return max((len(point.accuracies) for point in self.points), default=1)

    @cached_property
    def sketches(self) -> tuple[BudgetCurve, ...]:
        """Curves of heads on scatter sketches."""
        return tuple(curve for curve in self.curves if curve.sketch)

    @cached_property
    def others(self) -> tuple[BudgetCurve, ...]:
        """All other curves."""
        return tuple(curve for curve in self.curves if not curve.sketch)

    @cached_property
    def budgets(self) -> tuple[str, ...]:
        """Every budget once, from the smallest; points that have none are not in them."""
        return tuple(sorted(dict.fromkeys(p.budget for p in self.points if p.budget), key=self.allowed))

    def allowed(self, budget: str) -> float:
        """Return what a budget allows in bytes a client, or the most that was sent under it where that is unknown.

        Examples
        --------
        >>> BudgetCurves(means=10240.0, dim=512).allowed("means/2")
        5120.0
        """
        if self.means and self.dim:
            with suppress(InputError):  # a word of another release
                parsed = Budget.parse(budget, self.dim)
                return parsed.fixed + parsed.per_class * self.means / (4.0 * self.dim)
        return max((point.bytes for point in self.points if point.budget == budget), default=0.0)

    @cached_property
    def beyond(self) -> tuple[tuple[BudgetCurve, BudgetPoint], ...]:
        """Points that take more than Fed3R's payload, where charts end."""
        most = (self.gram or float("inf")) * (1 + NOMINAL)
        return tuple((curve, point) for curve in self.curves for point in curve.points if point.bytes > most)

    @cached_property
    def charted(self) -> "BudgetCurves":
        """Curves up to Fed3R's payload, or all of them when none has a point there."""
        gone = {id(point) for _, point in self.beyond}
        kept = [replace(c, points=tuple(point for point in c.points if id(point) not in gone)) for c in self.curves]
        shown = tuple(curve for curve in kept if curve.points)
        return replace(self, curves=shown) if shown else self

    def of(self, heads: Sequence[str] | None) -> "BudgetCurves":
        """Return the curves of some heads alone, in their order; of all for None."""
        if heads is None:
            return self
        kept = tuple(curve for head in heads for curve in self.curves if curve.head == head)
        return replace(self, curves=kept)

    @property
    def observations(self) -> Iterator[Observation]:
        """Accuracy and bytes a client of every point, at its budget; None for methods as published."""
        for curve in self.curves:
            for point in curve.points:
                where: dict[str, Scalar] = {"head": curve.head, "clients": self.clients, "split": self.split}
                where["budget"] = point.budget
                yield Observation(where, point.accuracies, "accuracy by budget", None, point.seeds)
                yield Observation(where, point.sizes, "up by budget", None, point.seeds, "bytes")
