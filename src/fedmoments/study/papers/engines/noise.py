"""Counts of one client, true and blurred: what obfuscation hides (FedCOF, Figure 10)."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.observations import Observation
from fedmoments.privacy.obfuscation import parse_obfuscation
from fedmoments.study.papers.engines.simulation import feasible
from fedmoments.study.papers.world import World, known_settings
from fedmoments.study.simulation.points import make_split

__all__ = ["blurred_counts", "run"]

_KNOWN = ("clients", "splits", "client", "noises")


def run(settings: Mapping[str, Any], world: World) -> list[Observation]:
    """Return the samples that one client has of every class that it holds, true and blurred with every seed.

    Parameters
    ----------
    settings
        ``clients`` and ``splits``, of which the first ones count; ``client``, the number of the one that is shown (0);
        ``noises`` (``uniform:0.1``).
    world
        Data and seeds. The split is that of the first seed; every seed draws other noise.

    Returns
    -------
    list of Observation
        ``samples`` of every ``class``, at noise (``none`` for the true ones) and intensity; ``relative error`` (mean of
        |ñ − n|/n over classes) and ``withheld`` (share of classes that are not sent), at noise and intensity.
    """
    known_settings(settings, _KNOWN, "noise")
    encoded = world.encoded()
    features = encoded.features
    splits, clients = feasible(features, settings, world)
    split = make_split(features, clients[0] if clients else None, splits[0], world.config.seed)
    cells = split.cells(features.train.y, features.n_classes).toarray()[settings.get("client", 0)]
    held = np.flatnonzero(cells)
    true = cells[held]
    names = [encoded.data.class_names[label] for label in held.tolist()]
    seeds = tuple(world.each_seed)
    measurements = [
        Observation({"class": name, "noise": "none", "intensity": 0.0}, (float(count),), "samples", seeds=seeds[:1])
        for name, count in zip(names, true.tolist(), strict=True)
    ]
    for obfuscation in settings.get("noises", []):
        noise, _, intensity = obfuscation.partition(":")
        where = {"noise": noise, "intensity": float(intensity)}
        drawn = np.array([blurred_counts(true, obfuscation, seed) for seed in seeds])
        for place, name in enumerate(names):
            values = tuple(map(float, drawn[:, place]))
            measurements.append(Observation({"class": name, **where}, values, "samples", seeds=seeds))
        errors = tuple(map(float, (np.abs(drawn - true) / true).mean(axis=1)))
        measurements.append(Observation(where, errors, "relative error", seeds=seeds))
        measurements.append(Observation(where, tuple(map(float, (drawn == 0).mean(axis=1))), "withheld", seeds=seeds))
    return measurements


def blurred_counts(counts: NDArray[np.int64], obfuscation: str, seed: int) -> NDArray[np.int64]:
    """Return counts (k,) of the classes that a client holds, blurred by an obfuscation such as ``laplace:0.1``.

    Examples
    --------
    >>> blurred_counts(np.array([100, 100, 3]), "laplace:0.1", seed=1)
    array([98, 89,  9])
    """
    return parse_obfuscation(obfuscation).counts(counts, seed=f"one client {seed}")
