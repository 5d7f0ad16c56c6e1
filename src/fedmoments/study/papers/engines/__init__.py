"""What runs experiments: an engine turns settings (and data, where it needs any) into measurements.

An engine is a function of ``(settings, world)`` that returns a list of measurements; the file of an experiment names
it. Engines are imported when they are first needed.
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, cast

from fedmoments.core.observations import Observation
from fedmoments.errors import UnknownNameError
from fedmoments.study.papers.world import World

__all__ = ["ENGINES", "LISTS", "Engine", "load_engine"]

#: Settings of an experiment (with those of a block, where a block has its own) and the world -> measurements.
Engine = Callable[[Mapping[str, Any], World], list[Observation]]

#: Name -> module of this package, which has a function ``run``; and what it does.
ENGINES: Mapping[str, str] = {
    "communication": "numbers and bytes that methods send, by formula",
    "compute": "arithmetic at a client, by formula",
    "coupons": "rounds until a share of the clients was seen",
    "laws": "identities and unbiasedness, on drawn Gaussian classes",
    "simulation": "one-shot federations: heads and baselines over clients, splits, shrinkages, …",
    "rounds": "accuracy while clients arrive round by round, without training",
    "tuning": "linear probing and fine-tuning in rounds, from heads and from random starts",
    "diagnosis": "Gaussianity, and the Fisher subspace",
    "kernel": "random features against exact kernel ridge regression",
    "corruption": "heads on corrupted images, fitted on clean ones or at other severities",
    "timing": "processor seconds and memory of heads on this machine",
    "noise": "counts of one client, true and blurred",
}

#: Settings that are lists wherever an engine takes them, so that one value is a list of one.
LISTS = frozenset(
    {
        "at",
        "bandwidths",
        "best",
        "corruptions",
        "encoders",
        "heads",
        "local_epochs",
        "looks",
        "means_per_client",
        "measured_images",
        "measured_severities",
        "noises",
        "obfuscations",
        "once",
        "only",
        "optimisers",
        "participations",
        "projections",
        "refit",
        "severities",
        "shares",
        "shrinkages",
        "splits",
        "stages",
        "starts",
        "targets",
        "temperatures",
        "variants",
    }
)


def load_engine(name: str) -> Engine:
    """Return an engine by name.

    Examples
    --------
    >>> load_engine("simulation").__name__
    'run'
    """
    if name not in ENGINES:
        raise UnknownNameError("engine", name, ENGINES)
    return cast("Engine", import_module(f"{__package__}.{name}").run)
