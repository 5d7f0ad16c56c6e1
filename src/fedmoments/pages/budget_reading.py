"""Accuracy against bytes, as a document has it under ``budget_curve``: what is missing or no number is left out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from fedmoments.core.statistics.sketch_plan import Budget
from fedmoments.errors import InputError
from fedmoments.pages.plain import as_number, items, mapping

__all__ = ["BudgetCurve", "BudgetCurves", "BudgetPoint", "Recompressed", "read_budget_curves"]

#: The kind of curves that are swept by budget; all others are behind random projections.
SKETCH = "sketch"
#: Share by which bytes may exceed a payload, which is a mean over clients, and still count as no more: budgets double.
NOMINAL = 0.05


@dataclass(frozen=True)
class BudgetPoint:
    """What one budget bought: bytes a client, and the accuracy with its deviation over seeds."""

    bytes: float
    accuracy: float
    deviation: float | None = None
    budget: str = ""
    seeds: int | None = None
    dimensions: int | None = None
    rank: float | None = None
    own: bool = False

    @property
    def low(self) -> float:
        """One deviation below the accuracy."""
        return max(self.accuracy - (self.deviation or 0.0), 0.0)

    @property
    def high(self) -> float:
        """One deviation above the accuracy."""
        return min(self.accuracy + (self.deviation or 0.0), 1.0)


@dataclass(frozen=True)
class BudgetCurve:
    """A head's points, by bytes."""

    head: str
    sketch: bool
    points: tuple[BudgetPoint, ...]

    def best(self, most: float) -> BudgetPoint | None:
        """Return the point of most bytes, but about so many at most."""
        known = [point for point in self.points if point.bytes <= most * (1 + NOMINAL)]
        return max(known, key=lambda point: point.bytes, default=None)


@dataclass(frozen=True)
class Recompressed:
    """Accuracy when a server keeps no more than so many rows, against that without a bound."""

    head: str
    rows: int | None
    blocks: int | None
    accuracy: float
    unbounded: float | None


@dataclass(frozen=True)
class BudgetCurves:
    """All curves of one federation: ``means`` and ``gram`` are FedNCM's and Fed3R's float32 payloads in bytes."""

    about: Mapping[str, Any]
    curves: tuple[BudgetCurve, ...]
    recompressed: tuple[Recompressed, ...] = ()

    @property
    def means(self) -> float | None:
        """FedNCM's and FedCOF's float32 payload in bytes a client."""
        return _positive(self.about.get("means"))

    @property
    def gram(self) -> float | None:
        """Fed3R's float32 packed payload in bytes a client."""
        return _positive(self.about.get("gram"))

    @cached_property
    def points(self) -> tuple[BudgetPoint, ...]:
        """The points of all curves."""
        return tuple(point for curve in self.curves for point in curve.points)

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
        >>> BudgetCurves({"means": 10240.0, "dim": 512}, ()).allowed("means/2")
        5120.0
        """
        dim = _whole(self.about.get("dim"))
        if self.means is not None and dim is not None and dim > 0:
            try:
                parsed = Budget.parse(budget, dim)
            except InputError:
                pass  # a word of another release
            else:
                return parsed.fixed + parsed.per_class * self.means / (4.0 * dim)
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


def read_budget_curves(document: Any) -> BudgetCurves:
    """Return the budget curve of a document, without curves when there is none.

    Examples
    --------
    >>> points = [{"bytes": 800.0, "accuracy": 0.9, "own": True}, {"bytes": None, "accuracy": 0.8}]
    >>> curves = read_budget_curves({"budget_curve": {"curves": [{"head": "fedcof", "points": points}]}})
    >>> curves.curves[0].points, curves.means
    ((BudgetPoint(bytes=800.0, accuracy=0.9, ..., own=True),), None)
    """
    about = mapping(mapping(document).get("budget_curve"))
    curves = [_curve(mapping(each)) for each in items(about.get("curves"))]
    bounded = [_recompressed(mapping(each)) for each in items(about.get("recompressed"))]
    return BudgetCurves(
        about, tuple(curve for curve in curves if curve.points), tuple(each for each in bounded if each is not None)
    )


def _curve(curve: Mapping[str, Any]) -> BudgetCurve:
    found = [point for each in items(curve.get("points")) if (point := _point(mapping(each))) is not None]
    found.sort(key=lambda point: (point.bytes, point.accuracy))
    return BudgetCurve(_word(curve.get("head"), "?"), curve.get("kind") == SKETCH, tuple(found))


def _point(point: Mapping[str, Any]) -> BudgetPoint | None:
    size, accuracy = _positive(point.get("bytes")), as_number(point.get("accuracy"))
    if size is None or accuracy is None:
        return None
    return BudgetPoint(
        size,
        accuracy,
        as_number(point.get("std")),
        _word(point.get("budget"), ""),
        _whole(point.get("seeds")),
        _whole(point.get("dimensions")),
        as_number(point.get("rank")),
        own=point.get("own") is True,
    )


def _recompressed(each: Mapping[str, Any]) -> Recompressed | None:
    accuracy = as_number(each.get("accuracy"))
    if accuracy is None:
        return None
    rows, blocks = _whole(each.get("rows")), _whole(each.get("blocks"))
    return Recompressed(_word(each.get("head"), "?"), rows, blocks, accuracy, as_number(each.get("unbounded")))


def _word(value: Any, otherwise: str) -> str:
    return value if isinstance(value, str) else otherwise


def _whole(value: Any) -> int | None:
    number = as_number(value)
    return None if number is None else int(number)


def _positive(value: Any) -> float | None:
    number = as_number(value)
    return number if number is not None and number > 0 else None
