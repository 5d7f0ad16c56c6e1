"""Runs of tuning as pages and terminals need them: figures over seeds; what is missing, null or not finite is None.

A run is one start under one optimiser, on every seed. Bytes and FLOPs of a point are those of all clients and rounds
up to it, the upload of the head that it starts from included. A curve ends at the round that validation chose, or at
its last one where nothing chose. Where seeds stop at different rounds, means keep the last point of those that stopped.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean, stdev
from typing import Any

from fedmoments.pages.plain import as_number, items, mapping

__all__ = ["RANDOM", "Curve", "Figure", "OneShot", "Reached", "Run", "Spot", "Tuning", "read_tuning"]

#: The start that others are compared with.
RANDOM = "random"


@dataclass(frozen=True)
class Figure:
    """What seeds gave: mean, standard deviation (None of one seed), lowest and highest, and how many seeds."""

    mean: float
    deviation: float | None
    low: float
    high: float
    seeds: int

    @staticmethod
    def of(values: Iterable[float | None]) -> "Figure | None":
        """Return the figure of those values that are known, or None when none is.

        Examples
        --------
        >>> Figure.of([0.5, None, 1.5, 2.5])
        Figure(mean=1.5, deviation=1.0, low=0.5, high=2.5, seeds=3)
        >>> Figure.of([0.5]).deviation, Figure.of([None])
        (None, None)
        """
        known = [value for value in values if value is not None]
        if not known:
            return None
        return Figure(fmean(known), stdev(known) if len(known) > 1 else None, min(known), max(known), len(known))


@dataclass(frozen=True)
class Spot:
    """A point of a curve; bytes and FLOPs are sums over all clients and rounds so far."""

    round: int
    accuracy: float | None = None
    up: float | None = None
    down: float | None = None
    up_formula: float | None = None
    down_formula: float | None = None
    flops: float | None = None

    @property
    def bytes(self) -> float | None:
        """Bytes up and down together, None when neither is known.

        Examples
        --------
        >>> Spot(1, up=3.0, down=4.0).bytes, Spot(1).bytes
        (7.0, None)
        """
        return _together(self.up, self.down)

    @property
    def formula(self) -> float | None:
        """Bytes up and down that the formulas give."""
        return _together(self.up_formula, self.down_formula)


@dataclass(frozen=True)
class Curve:
    """One seed of a run."""

    start: str
    optimiser: str
    seed: str
    temperature: float | None
    plan: Mapping[str, Any]
    best_round: int | None
    stopped: str | None
    spots: tuple[Spot, ...]
    refit: Mapping[str, float]
    before: float | None
    after: float | None

    @property
    def first(self) -> float | None:
        """Accuracy before the first round."""
        return next((spot.accuracy for spot in self.spots if spot.round == 0), None)

    @property
    def end(self) -> Spot | None:
        """The last tested point up to the round that validation chose, or of all."""
        last = self.best_round
        tested = [spot for spot in self.spots if spot.accuracy is not None and (last is None or spot.round <= last)]
        return tested[-1] if tested else None

    @property
    def highest(self) -> Spot | None:
        """The point with the highest accuracy on test samples, the first of equals."""
        tested = [spot for spot in self.spots if spot.accuracy is not None]
        return max(tested, key=lambda spot: spot.accuracy or 0.0, default=None)


@dataclass(frozen=True)
class Reached:
    """When a run first was as accurate as the random start is at its end: means over the seeds that were."""

    target: float | None
    seeds: int | None
    hit: int | None
    rounds: float | None
    bytes: float | None
    flops: float | None


@dataclass(frozen=True)
class Run:
    """A start under an optimiser, on every seed."""

    start: str
    optimiser: str
    curves: tuple[Curve, ...]
    reached: Reached | None

    @cached_property
    def first(self) -> Figure | None:
        """Accuracy before the first round."""
        return Figure.of(curve.first for curve in self.curves)

    @cached_property
    def end(self) -> Figure | None:
        """Accuracy at the end."""
        return Figure.of(curve.end.accuracy if curve.end else None for curve in self.curves)

    @cached_property
    def highest(self) -> Figure | None:
        """Highest accuracy of a curve on test samples."""
        return Figure.of(curve.highest.accuracy if curve.highest else None for curve in self.curves)

    @cached_property
    def highest_round(self) -> Figure | None:
        """Round of that accuracy."""
        return Figure.of(float(curve.highest.round) if curve.highest else None for curve in self.curves)

    @cached_property
    def rounds(self) -> Figure | None:
        """Rounds that were run."""
        return Figure.of(float(curve.spots[-1].round) for curve in self.curves)

    def spent(self, name: str) -> float | None:
        """Return the mean of a cost (a field or property of :class:`Spot`) of whole curves."""
        found = Figure.of(getattr(curve.spots[-1], name) for curve in self.curves)
        return found.mean if found else None

    @cached_property
    def trail(self) -> tuple[tuple[Spot, Figure | None], ...]:
        """The mean point of every round, with the accuracies of the seeds; a seed that stopped keeps its last point."""
        rounds = sorted({spot.round for curve in self.curves for spot in curve.spots})
        places = [0] * len(self.curves)
        found = []
        for number in rounds:
            now = []
            for i, curve in enumerate(self.curves):
                while places[i] < len(curve.spots) and curve.spots[places[i]].round <= number:
                    places[i] += 1
                if places[i]:
                    now.append(curve.spots[places[i] - 1])
            costs = {name: Figure.of(getattr(spot, name) for spot in now) for name in ("up", "down", "flops")}
            means = {name: figure.mean if figure else None for name, figure in costs.items()}
            accuracy = Figure.of(spot.accuracy for spot in now)
            found.append((Spot(number, accuracy.mean if accuracy else None, **means), accuracy))
        return tuple(found)


@dataclass(frozen=True)
class OneShot:
    """A head without any tuning."""

    name: str
    accuracy: Figure
    bytes: float | None
    flops: float | None


@dataclass(frozen=True)
class Tuning:
    """All runs, and the heads that were not tuned."""

    about: Mapping[str, Any]
    runs: tuple[Run, ...]
    heads: tuple[OneShot, ...]

    @cached_property
    def starts(self) -> tuple[str, ...]:
        """Every start once."""
        return tuple(dict.fromkeys(run.start for run in self.runs))

    @cached_property
    def optimisers(self) -> tuple[str, ...]:
        """Every optimiser once."""
        return tuple(dict.fromkeys(run.optimiser for run in self.runs))

    @cached_property
    def seeds(self) -> int:
        """The most seeds of a run."""
        return max((len(run.curves) for run in self.runs), default=0)

    def under(self, optimiser: str) -> tuple[Run, ...]:
        """Return the runs of an optimiser."""
        return tuple(run for run in self.runs if run.optimiser == optimiser)

    def random(self, optimiser: str) -> Run | None:
        """Return the run from the random start, if there is one."""
        return next((run for run in self.under(optimiser) if run.start == RANDOM), None)

    def target(self, optimiser: str) -> float | None:
        """Return where the random start ends: the accuracy that others are to reach."""
        known = (run.reached.target for run in self.under(optimiser) if run.reached is not None)
        said = next((target for target in known if target is not None), None)
        random = self.random(optimiser)
        return random.end.mean if said is None and random and random.end else said


def read_tuning(document: Mapping[str, Any]) -> Tuning:
    """Return the runs of a document's ``tuning``, optimiser by optimiser; a curve without any point is left out.

    Parameters
    ----------
    document
        What ``results.json`` holds.

    Examples
    --------
    >>> points = [{"round": 0, "accuracy": 0.5, "up": 10}, {"round": 1, "accuracy": 0.75, "up": 20, "down": 9}]
    >>> run, = read_tuning({"tuning": {"curves": [{"start": "fedcof", "optimiser": "fedavg", "points": points}]}}).runs
    >>> run.first.mean, run.end.mean, run.spent("bytes")
    (0.5, 0.75, 29.0)
    """
    about = mapping(document.get("tuning"))
    groups: dict[tuple[str, str], list[Curve]] = {}
    for curve in (_curve(mapping(each)) for each in items(about.get("curves"))):
        if curve.spots:
            groups.setdefault((curve.start, curve.optimiser), []).append(curve)
    reached = {_key(each): _reached(each) for each in map(mapping, items(about.get("reached")))}
    optimisers = list(dict.fromkeys(optimiser for _, optimiser in groups))
    order = sorted(groups, key=lambda key: optimisers.index(key[1]))
    runs = tuple(Run(*key, tuple(groups[key]), reached.get(key)) for key in order)
    return Tuning(about, runs, _heads(about))


def _key(entry: Mapping[str, Any]) -> tuple[str, str]:
    return str(entry.get("start", "?")), str(entry.get("optimiser", "?"))


def _curve(entry: Mapping[str, Any]) -> Curve:
    spots: dict[int, Spot] = {}
    for point in map(mapping, items(entry.get("points"))):
        number = as_number(point.get("round"))
        if number is not None and number >= 0:
            costs = {name: _positive(point.get(name)) for name in ("up", "down", "up_formula", "down_formula", "flops")}
            spots[int(number)] = Spot(int(number), as_number(point.get("accuracy")), **costs)
    refit = {str(name): as_number(value) for name, value in mapping(entry.get("refit")).items()}
    probe = mapping(entry.get("probe"))
    best = as_number(entry.get("best_round"))
    return Curve(
        *_key(entry),
        seed=str(entry.get("seed", "?")),
        temperature=as_number(entry.get("temperature")),
        plan=mapping(entry.get("plan")),
        best_round=None if best is None else int(best),
        stopped=str(entry["stopped"]) if entry.get("stopped") else None,
        spots=tuple(spots[number] for number in sorted(spots)),
        refit={name: value for name, value in refit.items() if value is not None},
        before=as_number(probe.get("before")),
        after=as_number(probe.get("after")),
    )


def _reached(entry: Mapping[str, Any]) -> Reached:
    seeds, hit = as_number(entry.get("seeds")), as_number(entry.get("hit"))
    figures = (as_number(entry.get(name)) for name in ("rounds", "bytes", "flops"))
    return Reached(
        as_number(entry.get("target")),
        None if seeds is None else int(seeds),
        None if hit is None else int(hit),
        *figures,
    )


def _heads(about: Mapping[str, Any]) -> tuple[OneShot, ...]:
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for entry in map(mapping, items(about.get("heads"))):
        groups.setdefault(str(entry.get("head", "?")), []).append(entry)
    found = []
    for name, entries in groups.items():
        accuracy = Figure.of(as_number(entry.get("accuracy")) for entry in entries)
        costs = [
            Figure.of(_together(*(_positive(entry.get(part)) for part in parts)) for entry in entries)
            for parts in (("up", "down"), ("flops",))
        ]
        if accuracy:
            found.append(OneShot(name, accuracy, *(cost.mean if cost else None for cost in costs)))
    return tuple(found)


def _positive(value: Any) -> float | None:
    number = as_number(value)
    return number if number is not None and number >= 0 else None


def _together(*parts: float | None) -> float | None:
    known = [part for part in parts if part is not None]
    return sum(known) if known else None
