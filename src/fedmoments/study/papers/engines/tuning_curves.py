"""From the curves of runs to measurements: ends, bests, refits, thinned curves, rounds to a target."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

import numpy as np

from fedmoments.core.observations import ACCURACY, Observation
from fedmoments.settings.plan import RANDOM
from fedmoments.tuning.reached import final_accuracy, reached

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
        As results of tuning hold them; none where the job could not be run.
    seeds
        All seeds.
    rounds
        That were asked for.
    clients
        Who held samples.
    forward
        Multiply-adds of encoding one sample; None where they are not known.
    reason
        Why there are no curves.
    """

    curves: tuple[Mapping[str, Any], ...]
    seeds: tuple[int, ...]
    rounds: int
    clients: int = 0
    forward: float | None = None
    reason: str | None = None

    @property
    def stopped(self) -> str | None:
        """Why a run did not go to its end: diverged, say."""
        return next((curve["stopped"] for curve in self.curves if "diverged" in (curve["stopped"] or "")), None)


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
    found: list[Observation] = []
    for place, curves in done.items():
        found += _ends(place, curves, at)
        if not curves.curves:
            continue
        found += _costs(place, curves) + _by_round(place, curves) + _to_targets(place, curves, targets)
        found += _lost(place, curves, done)
        random = done.get(replace(place, start=RANDOM))
        if random is not None and random.curves:
            found.append(_to_random(place, curves, random))
    return found


def _ends(place: Place, curves: Curves, at: Sequence[int]) -> list[Observation]:
    """Return accuracies at the end or after some rounds, the highest, and those of refits."""
    where, seeds = place.where(curves.clients), curves.seeds
    if not curves.curves:
        nothing: tuple[float | None, ...] = (None,) * len(seeds)
        places = [{**where, "after": number} for number in at] or [where]
        return [Observation(each, nothing, reason=curves.reason, seeds=seeds) for each in places]
    reason = curves.stopped
    found = []
    for number in at:
        values = tuple(_accuracy_at(curve, number) for curve in curves.curves)
        why = reason if number <= curves.rounds else f"{curves.rounds} rounds were run"
        found.append(Observation({**where, "after": number}, values, reason=why, seeds=seeds))
    if not at:
        ends = tuple(final_accuracy(curve) for curve in curves.curves)
        found.append(Observation(where, ends, reason=reason, seeds=seeds))
    best = tuple(max(_tested(curve).values(), default=None) for curve in curves.curves)
    found.append(Observation(where, best, "highest accuracy", reason, seeds))
    for head in curves.curves[0]["refit"]:
        values = tuple(curve["refit"][head] for curve in curves.curves)
        found.append(Observation({**where, "refit": head}, values, ACCURACY, reason, seeds))
    return found


def _tested(curve: Mapping[str, Any]) -> dict[int, float]:
    """Return accuracies by round, of the rounds that were tested."""
    return {point["round"]: point["accuracy"] for point in curve["points"] if point["accuracy"] is not None}


def _accuracy_at(curve: Mapping[str, Any], number: int) -> float | None:
    return _tested(curve).get(number)


def _costs(place: Place, curves: Curves) -> list[Observation]:
    where, seeds = place.where(curves.clients), curves.seeds
    ends = [curve["points"][-1] for curve in curves.curves]
    sent = tuple((point["up"] + point["down"]) / 1e6 for point in ends)
    found = [Observation(where, sent, "megabytes", seeds=seeds)]
    flops = [point["flops"] for point in ends]
    if None not in flops:
        found.append(Observation(where, tuple(each / 1e9 / curves.clients for each in flops), "gigaflops", seeds=seeds))
        if curves.forward:
            passes = tuple(each / curves.forward for each in flops)
            found.append(Observation(where, passes, "forward passes", seeds=seeds))
    return found


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
    where, seeds = place.where(curves.clients), curves.seeds
    tested = [_tested(curve) for curve in curves.curves]
    costs = [{point["round"]: point for point in curve["points"]} for curve in curves.curves]
    found = []
    for number in thinned(sorted(set().union(*tested))):
        points = [each[number] for each in costs if number in each]
        key: dict[str, Any] = {"round": number}
        key["megabytes"] = _short(fmean(point["up"] + point["down"] for point in points) / 1e6)
        if all(point["flops"] is not None for point in points):
            key["gigaflops"] = _short(fmean(point["flops"] for point in points) / 1e9 / curves.clients)
        values = tuple(each.get(number) for each in tested)
        found.append(Observation({**where, **key}, values, "accuracy by round", seeds=seeds))
    return found


def _short(value: float) -> float:
    return float(f"{value:.6g}")


def _to_targets(place: Place, curves: Curves, targets: Sequence[float]) -> list[Observation]:
    where, found = place.where(curves.clients), []
    for target in targets:
        values = tuple(
            next((float(number) for number, value in sorted(_tested(curve).items()) if value >= target), None)
            for curve in curves.curves
        )
        reason = f"{curves.rounds} rounds did not get there" if None in values else None
        found.append(Observation({**where, "target": target}, values, "rounds to target", reason, curves.seeds))
    return found


def _lost(place: Place, curves: Curves, done: Mapping[Place, Curves]) -> list[Observation]:
    """Return how much lower a run ends than the same one with the first split of the settings, seed by seed."""
    first = next(each for each in done if replace(each, split=place.split) == place)
    if first == place or not done[first].curves:
        return []
    pairs = zip(done[first].curves, curves.curves, strict=True)
    ends = [(final_accuracy(one), final_accuracy(other)) for one, other in pairs]
    values = tuple(None if one is None or other is None else one - other for one, other in ends)
    return [Observation(place.where(curves.clients), values, "accuracy lost to skew", curves.stopped, curves.seeds)]


def _to_random(place: Place, curves: Curves, random: Curves) -> Observation:
    """Return the rounds until a run is where the random start ends, seed by seed."""
    never = float(max(curves.rounds, random.rounds) + 1)
    values = []
    for mine, other in zip(curves.curves, random.curves, strict=True):
        entries = reached([other] if place.start == RANDOM else [other, mine])
        rounds = next((each["rounds"] for each in entries if each["start"] == place.start), None)
        values.append(never if rounds is None else rounds)
    return Observation(place.where(curves.clients), tuple(values), "rounds to random's final", seeds=curves.seeds)
