"""Rounds of tuning: one curve a start, optimiser and seed; runs are the curves of all seeds, heads are not tuned."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import fmean
from typing import ClassVar

from fedmoments.core.observations.observation import ACCURACY, Observation, Scalar
from fedmoments.core.observations.tuning_curve import Probe, RoundPoint, TuningCurve
from fedmoments.settings.plan import RANDOM

__all__ = ["OneShot", "Probe", "Reached", "RoundPoint", "Tuning", "TuningCurve", "TuningRun", "Waypoint"]


@dataclass(frozen=True)
class Reached:
    """When a run first was as accurate as the random start is at its end: means over the seeds that were.

    Seeds are compared with themselves: the target of a seed is what the random start ends at under the same optimiser
    and seed.
    """

    start: str
    optimiser: str
    target: float
    seeds: int
    hit: int
    rounds: float | None
    bytes: float | None
    flops: float | None


@dataclass(frozen=True)
class Waypoint:
    """Where the seeds of a run are after a round: accuracies, and mean costs; one that stopped stays where it was."""

    round: int
    accuracy: Observation
    bytes: float
    flops: float | None


@dataclass(frozen=True)
class TuningRun:
    """A start under an optimiser, on every seed.

    Parameters
    ----------
    curves
        One a seed, each with a point at least.
    targets
        Seed -> accuracy at which the random start ends under this optimiser; empty without a random start.
    place
        Stage, split and clients.

    Examples
    --------
    >>> curves = [TuningCurve("fedcof", "fedavg", seed, (RoundPoint(0, 0.5 + seed / 4),)) for seed in (0, 1)]
    >>> run = TuningRun(tuple(curves), {0: 0.5, 1: 0.9})
    >>> run.end.values, run.reached.hit, run.reached.rounds
    ((0.5, 0.75), 1, 0.0)
    """

    curves: tuple[TuningCurve, ...]
    targets: Mapping[int, float] = field(default_factory=dict)
    place: Mapping[str, Scalar] = field(default_factory=dict)

    @property
    def start(self) -> str:
        """Where it starts."""
        return self.curves[0].start

    @property
    def optimiser(self) -> str:
        """What merges."""
        return self.curves[0].optimiser

    def over_seeds(
        self, value: Callable[[TuningCurve], float | None], quantity: str = ACCURACY, unit: str = "", **where: Scalar
    ) -> Observation:
        """Return what every curve gives."""
        place = {"head": self.start, "optimiser": self.optimiser, **self.place, **where}
        seeds = tuple(curve.seed for curve in self.curves)
        stopped = next((curve.stopped for curve in self.curves if curve.stopped), None)
        values = tuple(map(value, self.curves))
        return Observation(place, values, quantity, stopped if None in values else None, seeds, unit)

    @cached_property
    def first(self) -> Observation:
        """Accuracy before the first round."""
        return self.over_seeds(lambda curve: curve.first_accuracy, "accuracy before tuning")

    @cached_property
    def end(self) -> Observation:
        """Accuracy at the end."""
        return self.over_seeds(lambda curve: curve.final_accuracy)

    @cached_property
    def highest(self) -> Observation:
        """Highest accuracy of a curve on test samples."""
        return self.over_seeds(lambda curve: curve.highest.accuracy if curve.highest else None, "accuracy, highest")

    @cached_property
    def highest_round(self) -> Observation:
        """Round of that accuracy."""
        quantity = "round of the highest accuracy"
        return self.over_seeds(lambda curve: curve.highest.round if curve.highest else None, quantity)

    @cached_property
    def rounds(self) -> Observation:
        """Rounds that were run."""
        return self.over_seeds(lambda curve: curve.last.round, "rounds")

    def spent(self, name: str) -> Observation:
        """Return a cost of whole curves, a field or property of :class:`RoundPoint`."""
        unit = "FLOP" if name == "flops" else "bytes"
        return self.over_seeds(lambda curve: getattr(curve.last, name), f"{name.replace('_', ' ')}, total", unit)

    def refitted(self, head: str) -> Observation:
        """Return the accuracy of a head that was fitted anew on the tuned encoder."""
        return self.over_seeds(lambda curve: curve.refit.get(head), "accuracy, refitted", refit=head)

    @property
    def refits(self) -> tuple[str, ...]:
        """Heads that were fitted anew."""
        return tuple(dict.fromkeys(head for curve in self.curves for head in curve.refit))

    def probed(self, when: str) -> Observation:
        """Return the accuracy of the probe, ``before`` or ``after``."""
        return self.over_seeds(lambda curve: getattr(curve.probe, when, None), f"accuracy of the probe, {when}")

    @cached_property
    def reached(self) -> Reached | None:
        """When it was where the random start ends; None without a random start."""
        compared = [(curve, self.targets[curve.seed]) for curve in self.curves if curve.seed in self.targets]
        return self._reached(compared) if compared else None

    def _reached(self, compared: Sequence[tuple[TuningCurve, float]]) -> Reached:
        """Compare curves with the end of the random start of their seed."""
        points = [curve.reaches(target) for curve, target in compared]
        hits = [point for point in points if point is not None]
        flops = [point.flops for point in hits if point.flops is not None]
        return Reached(
            self.start,
            self.optimiser,
            fmean(target for _, target in compared),
            len(compared),
            len(hits),
            _mean([point.round for point in hits]),
            _mean([point.total_bytes for point in hits]),
            _mean(flops if len(flops) == len(hits) else []),
        )

    @cached_property
    def trail(self) -> tuple[Waypoint, ...]:
        """Where its seeds are after every round that one of them has."""
        return tuple(map(self._waypoint, sorted({point.round for curve in self.curves for point in curve.points})))

    def _waypoint(self, number: int) -> Waypoint:
        now = {curve.seed: point for curve in self.curves if (point := curve.before(number)) is not None}
        flops = [point.flops for point in now.values() if point.flops is not None]
        accuracy = self.over_seeds(
            lambda curve: now[curve.seed].accuracy if curve.seed in now else None, "accuracy by round", round=number
        )
        mean_bytes = fmean(point.total_bytes for point in now.values())
        return Waypoint(number, accuracy, mean_bytes, fmean(flops) if flops else None)

    @property
    def observations(self) -> Iterator[Observation]:
        """What was measured: accuracies, costs, refits, and the curve round by round."""
        yield from (self.end, self.first, self.highest, self.rounds)
        yield from (self.spent(name) for name in ("up", "down", "flops"))
        yield from map(self.refitted, self.refits)
        yield from (waypoint.accuracy for waypoint in self.trail)


@dataclass(frozen=True)
class OneShot:
    """A head without any tuning, on one seed; ``up`` and ``flops`` are of all clients."""

    head: str
    seed: int = 0
    accuracy: float | None = None
    up: float | None = None
    up_formula: float | None = None
    flops: float | None = None
    reason: str | None = None


@dataclass(frozen=True)
class Tuning:
    """All runs, and the heads that were not tuned.

    Parameters
    ----------
    stage
        ``lp``, ``ft`` or ``feat``.
    clients, split
        Of the federation.
    per_round, replacement, rounds
        Clients that take part in a round, how they are drawn, and how many rounds there are at most.
    batchnorm
        How batch normalisation is treated; None where the encoder is not trained.
    curves, heads
        One for every start, optimiser and seed; one for every one-shot head and seed.

    Examples
    --------
    >>> curves = [TuningCurve(start, "fedavg", 0, tuple(RoundPoint(t, a, up=10 * t) for t, a in enumerate(accuracies)))
    ...           for start, accuracies in (("random", (0.1, 0.5, 0.7)), ("fedcof", (0.6, 0.8, 0.8)))]
    >>> [(each.start, each.rounds, each.bytes) for each in Tuning(curves=tuple(curves)).reached]
    [('random', 2.0, 20.0), ('fedcof', 1.0, 10.0)]
    """

    stage: str = "lp"
    clients: int | None = None
    split: str | None = None
    per_round: int | None = None
    replacement: bool | None = None
    rounds: int | None = None
    batchnorm: str | None = None
    curves: tuple[TuningCurve, ...] = ()
    heads: tuple[OneShot, ...] = ()

    derived: ClassVar[tuple[str, ...]] = ("reached",)

    @cached_property
    def runs(self) -> tuple[TuningRun, ...]:
        """The runs, optimiser by optimiser; a curve without any point is left out."""
        groups: dict[tuple[str, str], list[TuningCurve]] = {}
        for curve in self.curves:
            if curve.points:
                groups.setdefault((curve.optimiser, curve.start), []).append(curve)
        place = {"stage": self.stage, "split": self.split, "clients": self.clients}
        order = sorted(groups, key=lambda key: self.optimisers.index(key[0]))
        return tuple(TuningRun(tuple(groups[key]), self._targets(key[0]), place) for key in order)

    def _targets(self, optimiser: str) -> dict[int, float]:
        mine = [curve for curve in self.curves if (curve.start, curve.optimiser) == (RANDOM, optimiser)]
        return {curve.seed: curve.final_accuracy for curve in mine if curve.final_accuracy is not None}

    @property
    def reached(self) -> tuple[Reached, ...]:
        """When every run was where the random start ends."""
        return tuple(run.reached for run in self.runs if run.reached is not None)

    @cached_property
    def starts(self) -> tuple[str, ...]:
        """Every start once."""
        return tuple(dict.fromkeys(curve.start for curve in self.curves if curve.points))

    @cached_property
    def optimisers(self) -> tuple[str, ...]:
        """Every optimiser once."""
        return tuple(dict.fromkeys(curve.optimiser for curve in self.curves if curve.points))

    @cached_property
    def seeds(self) -> int:
        """The most seeds of a run."""
        return max((len(run.curves) for run in self.runs), default=0)

    def under(self, optimiser: str) -> tuple[TuningRun, ...]:
        """Return the runs of an optimiser."""
        return tuple(run for run in self.runs if run.optimiser == optimiser)

    def random(self, optimiser: str) -> TuningRun | None:
        """Return the run from the random start, if there is one."""
        return next((run for run in self.under(optimiser) if run.start == RANDOM), None)

    def target(self, optimiser: str) -> float | None:
        """Return where the random start ends: the accuracy that others are to reach."""
        random = self.random(optimiser)
        return random.end.mean if random else None

    @cached_property
    def one_shots(self) -> dict[str, dict[str, Observation]]:
        """Head -> accuracy, bytes and FLOPs of the heads that were not tuned; those never fitted are left out."""
        groups: dict[str, list[OneShot]] = {}
        for shot in self.heads:
            groups.setdefault(shot.head, []).append(shot)
        observed = {head: self._one_shot(head, shots) for head, shots in groups.items()}
        return {head: mine for head, mine in observed.items() if mine["accuracy"].known}

    def _one_shot(self, head: str, shots: list[OneShot]) -> dict[str, Observation]:
        where = {"head": head, "optimiser": "none", "stage": "none", "split": self.split, "clients": self.clients}
        seeds = tuple(shot.seed for shot in shots)
        reason = next((shot.reason for shot in shots if shot.reason), None)
        columns = {
            "accuracy": (tuple(shot.accuracy for shot in shots), ACCURACY, ""),
            "bytes": (tuple(shot.up for shot in shots), "up, total", "bytes"),
            "flops": (tuple(shot.flops for shot in shots), "flops, total", "FLOP"),
        }
        return {
            name: Observation(where, values, quantity, reason, seeds, unit)
            for name, (values, quantity, unit) in columns.items()
        }

    @property
    def observations(self) -> Iterator[Observation]:
        """What was measured of every run and every one-shot head."""
        for run in self.runs:
            yield from run.observations
        for shots in self.one_shots.values():
            yield from shots.values()


def _mean(numbers: Sequence[float]) -> float | None:
    return fmean(numbers) if numbers else None
