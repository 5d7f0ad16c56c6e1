"""From the curves of runs to measurements: ends, bests, refits, thinned curves, rounds to a target."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

import numpy as np

from fedmoments.core.observations import Observation
from fedmoments.core.observations.tuning import RoundPoint, TuningCurve
from fedmoments.settings.plan import RANDOM
from fedmoments.study.papers.engines.seeds import Spot

__all__ = ["POINTS", "Curves", "Place", "measured", "thinned"]

#: Points of a curve at most.
POINTS = 60


@dataclass(frozen=True)
class Place:
    """Where the measurements of a run stand.

    Parameters
    ----------
    encoder, weights
        The user's encoder, and whether it is ``trained`` or ``untrained``.
    variant
        Of the settings.
    stage, start, optimiser, split
        Of the run; heads that are not tuned have the stage and the optimiser ``none``.
    clients
        None where the split finds them in the data.
    local_epochs
        None where they are not swept.
    """

    encoder: str
    weights: str
    variant: str
    stage: str
    start: str
    optimiser: str
    split: str
    clients: int | None
    local_epochs: int | None = None

    def where(self, clients: int) -> dict[str, Any]:
        """Return the place, as measurements have it, with the number of clients that there were.

        Examples
        --------
        >>> place = Place("squeezenet-1.1", "trained", "main", "lp", "fedcof", "fedavg", "iid", 10)
        >>> place.where(10)["start"], "local_epochs" in place.where(10)
        ('fedcof', False)
        """
        found = {
            "encoder": self.encoder,
            "weights": self.weights,
            "variant": self.variant,
            "stage": self.stage,
            "start": self.start,
            "optimiser": self.optimiser,
            "split": self.split,
            "clients": clients if self.clients is None else self.clients,
            "refit": "none",
        }
        return found if self.local_epochs is None else {**found, "local_epochs": self.local_epochs}


@dataclass(frozen=True)
class Curves:
    """What the runs of a job found, one curve a seed.

    Parameters
    ----------
    curves
        None where the job could not be run.
    seeds
        All seeds.
    rounds
        That were requested.
    clients
        Who held samples.
    forward
        Multiply-adds of encoding one sample; None where they are not known.
    reason
        Why there are no curves.
    """

    curves: tuple[TuningCurve, ...]
    seeds: tuple[int, ...]
    rounds: int
    clients: int = 0
    forward: float | None = None
    reason: str | None = None

    @property
    def stopped(self) -> str | None:
        """Why a run did not go to its end: diverged, say."""
        return next((curve.stopped for curve in self.curves if "diverged" in (curve.stopped or "")), None)


def measured(done: Mapping[Place, Curves], at: Sequence[int] = (), targets: Sequence[float] = ()) -> list[Observation]:
    """Return the measurements of all jobs.

    Parameters
    ----------
    done
        What was found, by place.
    at
        Rounds after which accuracies are wanted, instead of at the end.
    targets
        Accuracies that rounds are counted to, as shares.
    """
    observations: list[Observation] = []
    for place, curves in done.items():
        observations += _ends(place, curves, at)
        if not curves.curves:
            continue
        observations += _costs(place, curves) + _by_round(place, curves) + _to_targets(place, curves, targets)
        observations += _lost(place, curves, done)
        random = done.get(replace(place, start=RANDOM))
        if random is not None and random.curves:
            observations.append(_to_random(place, curves, random))
    return observations


def _ends(place: Place, curves: Curves, at: Sequence[int]) -> list[Observation]:
    """Return accuracies at the end or after some rounds, the highest, and those of refits."""
    spot = _spot(place, curves)
    if not curves.curves:
        narrower: list[dict[str, Any]] = [{"after": number} for number in at] or [{}]
        return [spot.observe((None,) * len(curves.seeds), reason=curves.reason, **key) for key in narrower]
    runs, stopped = curves.curves, curves.stopped
    last = spot.observe([run.final_accuracy for run in runs], reason=stopped)
    accuracies = [_after(spot, curves, number) for number in at] or [last]
    highest = spot.observe(map(_highest, runs), "highest accuracy", stopped)
    refits = [spot.observe((run.refit[head] for run in runs), reason=stopped, refit=head) for head in runs[0].refit]
    return [*accuracies, highest, *refits]


def _spot(place: Place, curves: Curves) -> Spot:
    return Spot(place.where(curves.clients), curves.seeds)


def _after(spot: Spot, curves: Curves, number: int) -> Observation:
    """Return the accuracies after some rounds, and why there are none where fewer were run."""
    reason = curves.stopped if number <= curves.rounds else f"{curves.rounds} rounds were run"
    return spot.observe((_tested(run).get(number) for run in curves.curves), reason=reason, after=number)


def _highest(curve: TuningCurve) -> float | None:
    return max(_tested(curve).values(), default=None)


def _tested(curve: TuningCurve) -> dict[int, float]:
    """Return accuracies by round, of the rounds that were tested."""
    return {point.round: point.accuracy for point in curve.points if point.accuracy is not None}


def _costs(place: Place, curves: Curves) -> list[Observation]:
    """Return bytes and work; of runs that diverged they are those of fewer rounds, and why."""
    spot, stopped = _spot(place, curves), curves.stopped
    ends = [curve.last for curve in curves.curves]
    observed = [spot.observe((point.total_bytes / 1e6 for point in ends), "megabytes", stopped)]
    flops = [point.flops for point in ends if point.flops is not None]
    if len(flops) == len(ends):
        observed.append(spot.observe((number / 1e9 / curves.clients for number in flops), "gigaflops", stopped))
        if curves.forward:
            observed.append(spot.observe((number / curves.forward for number in flops), "forward passes", stopped))
    return observed


def thinned(numbers: Sequence[int], most: int = POINTS) -> list[int]:
    """Return at most so many of some rounds, the first and the last among them, about evenly spread.

    Examples
    --------
    >>> thinned(range(1001), 3), thinned([0, 1, 2], 60)
    ([0, 500, 1000], [0, 1, 2])
    """
    if len(numbers) <= most:
        return list(numbers)
    return [numbers[index] for index in np.unique(np.linspace(0, len(numbers) - 1, most).round().astype(int)).tolist()]


def _by_round(place: Place, curves: Curves) -> list[Observation]:
    """Return the curve: accuracies by round, with the mean costs up to there as further keys."""
    spot = _spot(place, curves)
    tested = [_tested(curve) for curve in curves.curves]
    points = [{point.round: point for point in curve.points} for curve in curves.curves]
    observed = []
    for number in thinned(sorted(set().union(*tested))):
        costs = _mean_costs([point[number] for point in points if number in point], curves.clients)
        values = (accuracies.get(number) for accuracies in tested)
        observed.append(spot.observe(values, "accuracy by round", round=number, **costs))
    return observed


def _mean_costs(points: Sequence[RoundPoint], clients: int) -> dict[str, Any]:
    """Return what a round has cost up to there: megabytes, and multiply-adds a client where they are known."""
    costs = {"megabytes": _short(fmean(point.total_bytes for point in points) / 1e6)}
    flops = [point.flops for point in points if point.flops is not None]
    if len(flops) == len(points):
        costs["gigaflops"] = _short(fmean(flops) / 1e9 / clients)
    return costs


def _short(value: float) -> float:
    return float(f"{value:.6g}")


def _to_targets(place: Place, curves: Curves, targets: Sequence[float]) -> list[Observation]:
    spot, observed = _spot(place, curves), []
    for target in targets:
        rounds = tuple(_first_round(curve, target) for curve in curves.curves)
        reason = f"{curves.rounds} rounds did not get there" if None in rounds else None
        observed.append(spot.observe(rounds, "rounds to target", reason, target=target))
    return observed


def _first_round(curve: TuningCurve, target: float) -> float | None:
    reached_in = (float(number) for number, accuracy in sorted(_tested(curve).items()) if accuracy >= target)
    return next(reached_in, None)


def _lost(place: Place, curves: Curves, done: Mapping[Place, Curves]) -> list[Observation]:
    """Return how much lower a run ends than the same one with the first split of the settings, seed by seed."""
    first = next(place_done for place_done in done if replace(place_done, split=place.split) == place)
    if first == place or not done[first].curves:
        return []
    pairs = zip(done[first].curves, curves.curves, strict=True)
    ends = [(one.final_accuracy, other.final_accuracy) for one, other in pairs]
    values = tuple(None if one is None or other is None else one - other for one, other in ends)
    return [_spot(place, curves).observe(values, "accuracy lost to skew", curves.stopped)]


def _to_random(place: Place, curves: Curves, random: Curves) -> Observation:
    """Return the rounds until a run is where the random start ends, seed by seed."""
    never = float(max(curves.rounds, random.rounds) + 1)
    values = []
    for mine, other in zip(curves.curves, random.curves, strict=True):
        target = other.final_accuracy
        point = None if target is None else mine.reaches(target)
        values.append(never if point is None else float(point.round))
    return Observation(place.where(curves.clients), tuple(values), "rounds to random's final", seeds=curves.seeds)
