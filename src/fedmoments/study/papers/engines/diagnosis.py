"""What the features of a data set are like: Gaussianity, the Fisher subspace, the temperature of a head's scores."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from fedmoments.core.diagnostics import fisher_curve, gaussianity
from fedmoments.core.diagnostics.shapes import NEEDS as SHAPE_NEEDS
from fedmoments.core.diagnostics.spectrum import FisherCurve, HeldOut
from fedmoments.core.gaussian import ClassGaussians, FisherSubspace
from fedmoments.core.heads import make_head
from fedmoments.core.observations import Observation
from fedmoments.core.statistics import Statistics, StatisticsSpec
from fedmoments.errors import FedMomentsError, InputError, UnknownNameError
from fedmoments.samples.features import Features
from fedmoments.study.papers.world import World, known_settings
from fedmoments.tuning import start_from
from fedmoments.tuning.temperature import TEMPERATURES, best_temperature, cross_entropy_sums

__all__ = ["curve_at", "curve_of", "run"]

_KNOWN = ("looks", "shrinkages", "directions", "heads", "hyper", "temperatures")


def run(settings: Mapping[str, Any], world: World) -> list[Observation]:
    """Look at the features of a data set: nothing is drawn, so that every number has one value, whatever the seeds.

    Parameters
    ----------
    settings
        ``looks``: which of ``gaussianity``, ``fisher`` and ``temperature``.

        ``gaussianity`` gives |skewness| and |excess kurtosis| over all classes and dimensions of the training samples:
        ``mean``, ``median`` and ``p90``, at ``shape`` = ``skewness`` or ``kurtosis`` and ``of`` = ``features``; and at
        ``of`` = ``chance`` the mean that samples of Gaussian classes would show, as many as there are.

        ``fisher`` gives LDA's ``accuracy`` at ``space`` = ``full``, ``fisher`` (with ``directions``), ``best`` (the
        fewest of these directions with the best accuracy) and ``all`` (classes − 1 directions), with ``energy``,
        ``dimensions`` (k), ``useful dimensions`` (at most classes − 1) and ``compression`` (d/k), for each of the
        ``shrinkages`` (``blend:0.05``). The numbers of ``directions`` are continued by doubling until they hold all.

        ``temperature`` gives the mean training ``cross-entropy`` of ``heads`` (with ``hyper``) at each of the
        ``temperatures``, and the ``best temperature``.
    world
        Data and encoders.

    Returns
    -------
    list of Observation
        With ``encoder``, besides.
    """
    known_settings(settings, _KNOWN, "diagnosis")
    measurements: list[Observation] = []
    for encoder in world.encoder_names:
        features, name = world.features(encoder), world.encoded(encoder).encoder.name
        looks: Mapping[str, Callable[[], list[Observation]]] = {
            "gaussianity": partial(_shapes, features),
            "fisher": partial(_subspaces, features, settings),
            "temperature": partial(_temperatures, features, settings),
        }
        for look in settings.get("looks", list(looks)):
            if look not in looks:
                raise UnknownNameError("look of the engine 'diagnosis'", look, looks)
            world.say(0, 1, f"looking at the features: {look}")
            key = ["diagnosis", look, {key: value for key, value in settings.items() if key != "looks"}]
            seen = world.memory(encoder).once(key, looks[look])
            measurements += [replace(observation, where={**observation.where, "encoder": name}) for observation in seen]
    return measurements


def _shapes(features: Features) -> list[Observation]:
    """Return what skewness and kurtosis are, over classes and dimensions."""
    train = features.train
    seen = gaussianity(Statistics.of(train.X, train.y, SHAPE_NEEDS, n_classes=features.n_classes))
    measurements = []
    for shape, tail in (("skewness", seen.skewness), ("kurtosis", seen.kurtosis)):
        for quantity in ("mean", "median", "p90"):
            measurements.append(_one({"shape": shape, "of": "features"}, getattr(tail, quantity), quantity))
        measurements.append(_one({"shape": shape, "of": "chance"}, tail.by_chance, "mean"))
    return measurements


def _one(where: Mapping[str, Any], value: float, quantity: str) -> Observation:
    """Return one value; what is not known is None."""
    if math.isfinite(value):
        return Observation(where, (float(value),), quantity)
    return Observation(where, (None,), quantity, "no coordinate varies in a class of four samples or more")


def _subspaces(features: Features, settings: Mapping[str, Any]) -> list[Observation]:
    """Return what LDA is worth in Fisher subspaces, for every shrinkage."""
    stats = Statistics.of(features.train.X, features.train.y, StatisticsSpec.of("gram"), n_classes=features.n_classes)
    measurements = []
    for shrinkage in settings.get("shrinkages", ["blend:0.05"]):
        place = {"shrinkage": str(shrinkage)}
        try:
            curve = curve_of(ClassGaussians(stats), shrinkage, (features.test.X, features.test.y))
        except FedMomentsError as error:
            measurements.append(Observation({**place, "space": "full"}, (None,), reason=str(error)))
            continue
        measurements += _curve(curve, features.dim, settings.get("directions", (2, 4, 8, 16, 32, 64, 128)), place)
    return measurements


def curve_of(gaussians: ClassGaussians, shrinkage: Any, test: HeldOut) -> FisherCurve:
    """Return LDA's accuracy in all Fisher subspaces of 2, 4, 8, … directions and in the full space.

    Parameters
    ----------
    gaussians
        Classes, as they were measured on training samples.
    shrinkage
        Of the pooled covariance, in the subspace and in the full space alike.
    test
        Features (n, d) and labels (n,), n > 0.

    Examples
    --------
    >>> import numpy as np
    >>> y = np.arange(300) % 3
    >>> X = np.random.default_rng(0).normal(size=(300, 6)) + 4 * np.eye(3, 6)[y]
    >>> stats = Statistics.of(X[:200], y[:200], StatisticsSpec.of("gram"), n_classes=3)
    >>> curve = curve_of(ClassGaussians(stats), "blend:0.05", (X[200:], y[200:]))
    >>> curve.directions, curve.accuracy[0] == curve.full_accuracy
    ((2,), True)
    """
    fisher = FisherSubspace.of(gaussians, shrinkage=shrinkage, directions="all")
    return fisher_curve(gaussians, fisher, shrinkage=shrinkage, test=test)


def curve_at(curve: FisherCurve, directions: int) -> tuple[float, float]:
    """Return LDA's accuracy and the energy in so many directions, a power of two.

    Classes have at most C − 1 directions: class means are alike in any further one, which changes no decision.

    Examples
    --------
    >>> curve_at(FisherCurve("exact", (2, 3), (0.9, 1.0), 3, (0.5, 0.6), 0.6), 16)
    (0.6, 1.0)
    """
    places = [place for place, size in enumerate(curve.directions) if size >= directions]
    place = places[0] if places else -1
    return (curve.accuracy or (math.nan,))[place], curve.energy[place]


def _curve(curve: FisherCurve, dim: int, asked: Sequence[int], place: Mapping[str, Any]) -> list[Observation]:
    """Return the measurements of a curve."""
    full = Observation({**place, "space": "full"}, (curve.full_accuracy,))
    if not curve.directions:  # one class, or all means alike
        return [full]
    if not asked or min(asked) < 1:
        raise InputError(f"directions must be one number or more, each 1 or more, but {list(asked)} arrived")
    rank, sizes = curve.directions[-1], sorted(asked)
    while sizes[-1] < rank:
        sizes.append(2 * sizes[-1])
    best = max(sizes, key=lambda size: (curve_at(curve, size)[0], -size))
    measurements = [full, Observation(full.where, (float(dim),), "dimensions")]
    spaces = [({**place, "space": "fisher", "directions": size}, size) for size in sizes]
    for where, size in [*spaces, ({**place, "space": "best"}, best), ({**place, "space": "all"}, rank)]:
        accuracy, energy = curve_at(curve, size)
        measurements += [
            Observation(where, (accuracy,)),
            Observation(where, (energy,), "energy"),
            Observation(where, (float(size),), "dimensions"),
            Observation(where, (float(min(size, rank)),), "useful dimensions"),
            Observation(where, (dim / size,), "compression"),
        ]
    return measurements


def _temperatures(features: Features, settings: Mapping[str, Any]) -> list[Observation]:
    """Return the training cross-entropy of heads at every temperature of the softmax."""
    train, grid = features.train, [float(temperature) for temperature in settings.get("temperatures", TEMPERATURES)]
    measurements = []
    for name in settings.get("heads", ["fed3r"]):
        head = make_head(name, **settings.get("hyper", {}).get(name, {}))
        stats = Statistics.of(train.X, train.y, head.needs, n_classes=features.n_classes)
        sums = cross_entropy_sums(start_from(head.fit(stats), name), train.X, train.y, grid)
        chosen = best_temperature(sums, grid)
        for temperature, total in chosen.table.items():
            where = {"head": name, "temperature": temperature}
            measurements.append(Observation(where, (total / len(train),), "cross-entropy"))
        measurements.append(Observation({"head": name}, (chosen.temperature,), "best temperature"))
    return measurements
