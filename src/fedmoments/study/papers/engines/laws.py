"""Identities and unbiasedness: what the papers prove, checked on drawn classes with the package's own code."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

from fedmoments.core.observations import Observation
from fedmoments.errors import InputError, UnknownNameError
from fedmoments.study.papers.engines import law_estimates, law_identities
from fedmoments.study.papers.engines.law_worlds import Finding
from fedmoments.study.papers.engines.seeds import across_seeds
from fedmoments.study.papers.world import World, known_settings

__all__ = ["LAWS", "Law", "run"]


@dataclass(frozen=True)
class Law:
    """A law: what it measures, the settings that it takes, and the points that it is measured at.

    Parameters
    ----------
    measure
        (settings of a point, seed) -> findings.
    known
        Names of the settings.
    points
        Settings -> those of every point; one point alone by default.
    optional
        Settings that may be left out.
    """

    measure: Callable[[Mapping[str, Any], int], Iterable[Finding]]
    known: tuple[str, ...]
    points: Callable[[Mapping[str, Any]], list[dict[str, Any]]] = lambda settings: [dict(settings)]
    optional: tuple[str, ...] = ()


_SIZE = ("samples", "dim", "classes", "clients")
#: All laws by name.
LAWS: Mapping[str, Law] = {
    "client means": Law(law_estimates.client_means, ("dim", "samples", "draws")),
    "free covariance": Law(law_estimates.free_covariance, ("dim", "draws", "cases", "shape"), optional=("shape",)),
    "shift": Law(law_estimates.shift, ("dim", "draws", "sizes", "cases")),
    "errors": Law(
        law_estimates.errors,
        ("clients", "samples", "dim", "means", "sweeps", "shapes"),
        law_estimates.sweep_points,
        optional=("shapes",),
    ),
    "scatters": Law(law_identities.scatters, (*_SIZE, "split", "ridge", "cases")),
    "oracle": Law(law_identities.oracle, (*_SIZE, "splits", "shrinkage", "ridge")),
    "moments": Law(law_identities.moments, (*_SIZE, "partitions", "projection")),
    "heads": Law(law_identities.heads, (*_SIZE, "partitions", "heads", "projection"), optional=("projection",)),
    "ridge": Law(law_identities.ridge, (*_SIZE, "partitions", "ridge", "fourier"), optional=("fourier",)),
    "class means": Law(law_identities.class_means, (*_SIZE, "partitions")),
}


def run(settings: Mapping[str, Any], world: World) -> list[Observation]:
    """Measure a law with every seed.

    Parameters
    ----------
    settings
        ``law``, one of :data:`LAWS`, and what that law takes.
    world
        Seeds, and what was computed before; no data.

    Returns
    -------
    list of Observation
        As the law's function tells, one value a seed.

    Examples
    --------
    >>> from fedmoments.settings.study import StudySettings
    >>> law = {"law": "class means", "samples": 40, "dim": 3, "classes": 3, "clients": 4, "partitions": ["iid"]}
    >>> found = run(law, World(StudySettings(), cache_dir=False))
    >>> [(each.where["part"], each.mean < 1e-12) for each in found]
    [('means', True), ('weights', True), ('predictions', True)]
    """
    name, law, given = _asked(settings)
    points = law.points(given)
    memory, total = world.memory("none"), world.seeds * len(points)
    by_seed: dict[int, list[Observation]] = {}
    for i, (seed, point) in enumerate(product(world.each_seed, points)):
        world.say(i, total, f"{name}, seed {seed}")
        by_seed.setdefault(seed, []).extend(
            memory.once(["laws", name, point, seed], partial(_measured, law, point, seed))
        )
    return across_seeds(by_seed.items())


def _asked(settings: Mapping[str, Any]) -> tuple[str, Law, dict[str, Any]]:
    """Return the law that settings name, and what they give it."""
    name = str(settings.get("law"))
    if name not in LAWS:
        raise UnknownNameError("law", name, LAWS)
    law, given = LAWS[name], {key: value for key, value in settings.items() if key != "law"}
    known_settings(given, law.known, f"laws, {name}")
    missing = [key for key in law.known if key not in given and key not in law.optional]
    if missing:
        raise InputError(f"the law '{name}' needs settings that are not there: {', '.join(missing)}")
    return name, law, given


def _measured(law: Law, point: Mapping[str, Any], seed: int) -> list[Observation]:
    """Return what a law finds at a point with one seed."""
    return [
        Observation(where, (value,), quantity, seeds=(seed,)) for where, quantity, value in law.measure(point, seed)
    ]
