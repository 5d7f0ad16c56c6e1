"""What is worked out from simulated federations: the best of several heads, accuracy at its cost, memory and time."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.classifier import Classifier
from fedmoments.core.heads import Head
from fedmoments.core.heads.choosing import choose_heads
from fedmoments.core.observations import ACCURACY, Observation
from fedmoments.errors import UnknownNameError
from fedmoments.study.memory import identity_of
from fedmoments.study.papers.engines.seeds import across_seeds
from fedmoments.study.papers.world import World, known_settings
from fedmoments.study.simulation.fit import predict_blocks
from fedmoments.study.simulation.methods import Method
from fedmoments.study.simulation.points import Point, federation_of, make_split

__all__ = ["PERCENT", "against", "best_of", "inference"]

#: The quantity of accuracies that stand at their cost, in per cent.
PERCENT = "accuracy (%)"
#: Predictions are timed so many times, and the fastest counts.
_ROUNDS = 3


def best_of(measurements: Sequence[Observation], table: Mapping[str, Any]) -> list[Observation]:
    """Return the accuracy of the head that is best on average, wherever several were measured.

    Parameters
    ----------
    measurements
        Of a sweep.
    table
        ``name`` of what is returned, and ``heads`` to choose from.

    Examples
    --------
    >>> both = [Observation({"head": "gh-lda"}, (0.8, 0.7)), Observation({"head": "gh-nb"}, (0.6, 0.8))]
    >>> best_of(both, {"name": "best", "heads": ["gh-lda", "gh-nb"]})[0].values
    (0.8, 0.7)
    """
    known_settings(table, ("name", "heads"), "simulation")
    places: dict[Any, list[Observation]] = {}
    for observation in measurements:
        if (
            observation.quantity == ACCURACY
            and observation.where.get("head") in table["heads"]
            and observation.mean is not None
        ):
            rest = {key: value for key, value in observation.where.items() if key != "head"}
            places.setdefault(tuple(sorted(rest.items())), []).append(observation)
    measured_best = []
    for candidates in places.values():
        best = max(candidates, key=lambda observation: observation.mean or 0.0)
        measured_best.append(Observation({**best.where, "head": table["name"]}, best.values, seeds=best.seeds))
    return measured_best


def against(measurements: Sequence[Observation], cost: str) -> list[Observation]:
    """Return every accuracy in per cent, at its cost.

    Parameters
    ----------
    measurements
        Of a sweep.
    cost
        A quantity of it, which becomes a key of the place.

    Examples
    --------
    >>> place = {"head": "fedncm"}
    >>> both = [Observation(place, (0.9,)), Observation(place, (2.5,), "megabytes")]
    >>> against(both, "megabytes")[0]
    Observation(where={'head': 'fedncm', 'megabytes': 2.5}, values=(90.0,), quantity='accuracy (%)', ...)
    """
    costs = {_key(observation): observation.mean for observation in measurements if observation.quantity == cost}
    if not costs:
        raise UnknownNameError(
            "cost of a federation", cost, sorted({observation.quantity for observation in measurements})
        )
    at_cost = []
    for observation in measurements:
        price = costs.get(_key(observation)) if observation.quantity == ACCURACY else None
        if price is not None:
            values = tuple(None if value is None else 100.0 * value for value in observation.values)
            where = {**observation.where, cost: round(price, 9)}
            at_cost.append(replace(observation, where=where, values=values, quantity=PERCENT))
    return at_cost


def _key(observation: Observation) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted(observation.where.items()))


def inference(
    methods: Mapping[str, Method],
    settings: Mapping[str, Any],
    place: Mapping[str, Any],
    world: World,
    encoder: str | None,
) -> list[Observation]:
    """Return the memory and the time of a prediction that classifiers take, as multiples of those of one head.

    Parameters
    ----------
    methods
        Heads of a sweep, by name.
    settings
        ``inference``, the head that counts as 1, with its ``hyper``; the first of ``splits``, ``clients`` and
        ``projections``.
    place
        Common to all measurements.
    world, encoder
        Data and seeds.

    Returns
    -------
    list of Observation
        ``relative memory`` (numbers that the classifier consists of) and ``relative time`` (predicting the test part,
        behind the projection), at head, projection and place.
    """
    unit = settings["inference"]
    base = choose_heads([unit], {unit: settings.get("hyper", {}).get(unit, {})})[unit]
    heads = {name: method for name, method in methods.items() if isinstance(method, Head)}
    one = unit if heads.get(unit) == base else "the unit"
    setting = Point(
        next(iter(settings.get("clients", [])), None),
        next(iter(settings.get("splits", ["dirichlet:0.1"]))),
        projection=settings["projections"][0] or None,
    )

    def measured(seed: int) -> list[Observation]:
        features = world.features(encoder)
        split = make_split(features, setting.clients, setting.split, seed)
        federation = federation_of(features, split, [base, *heads.values()], setting, seed=seed)
        X = federation.mapped.test.X
        classifiers = {name: federation.fitted(head).mapped(None) for name, head in {**heads, one: base}.items()}
        sizes = {name: sum(array.size for _, array in classifier.arrays()) for name, classifier in classifiers.items()}
        times = _times(classifiers, X)
        return [
            observation
            for name in heads
            for observation in (
                Observation({"head": name}, (sizes[name] / sizes[one],), "relative memory"),
                Observation({"head": name}, (times[name] / times[one],), "relative time"),
            )
        ]

    identities = {name: identity_of(head) for name, head in {**heads, unit: base}.items()}
    by_seed = {}
    for done, seed in enumerate(world.each_seed):
        world.say(done, world.seeds, f"memory and time of predictions, seed {seed}")
        key = ["inference", identities, unit, setting.to_dict(), seed]
        by_seed[seed] = world.memory(encoder).once(key, partial(measured, seed))
    common = {**place, "projection": setting.projection or 0}
    return [replace(one, where={**common, **one.where}) for one in across_seeds(by_seed.items())]


def _times(classifiers: Mapping[str, Classifier], X: NDArray[Any]) -> dict[str, float]:
    """Return the seconds in which each classifier predicts X (n, d), the least of some rounds in turns."""
    times: dict[str, list[float]] = {name: [] for name in classifiers}
    for _ in range(_ROUNDS):
        for name, classifier in classifiers.items():
            start = time.process_time()
            predict_blocks(classifier, X)
            times[name].append(max(time.process_time() - start, 1e-9))
    return {name: float(np.min(several)) for name, several in times.items()}
