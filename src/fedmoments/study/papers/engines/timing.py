"""Seconds and memory of heads on this machine: fitting from statistics, scoring samples one by one and in batches."""

import time
import tracemalloc
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.api import measure
from fedmoments.core.classifier import Classifier
from fedmoments.core.heads import Head, make_head
from fedmoments.core.maps import FeatureMap, RandomProjection
from fedmoments.core.observations import Observation
from fedmoments.core.statistics import Statistics
from fedmoments.samples.features import Features
from fedmoments.study.papers.world import World, known_settings

__all__ = ["run"]

_KNOWN = ("heads", "hyper", "projections", "scored", "repeats")
#: Samples that are scored one by one, and times that each is taken; the least of these is what the machine can do.
SCORED, REPEATS = 64, 3
MEBI = 2.0**20


def run(settings: Mapping[str, Any], world: World) -> list[Observation]:
    """Time heads, each from statistics that nobody has looked at yet. Processor seconds: other programs do not count.

    Parameters
    ----------
    settings
        ``heads``, with ``hyper`` by head; ``projections`` to so many dimensions at random first (0: none); ``scored``
        samples are scored one by one, 64 by default, each of ``repeats`` times, of which the least counts.

        At ``head`` and ``projection`` there are ``fit seconds``, ``fit MiB`` (the most that arrays took while it was
        fitted, beyond the statistics), ``ms a sample`` (scored one by one) and ``ms a sample, batch`` (all at once).
    world
        Data and encoders.

    Returns
    -------
    list of Observation
        Never remembered from another run: it is this machine's answer, today.
    """
    known_settings(settings, _KNOWN, "timing")
    observations: list[Observation] = []
    for encoder in world.encoder_names:
        features, name = world.features(encoder), world.encoded(encoder).encoder.name
        for projection in settings.get("projections", [0]):
            public = _projection(features, int(projection))
            for number, head in enumerate(settings["heads"]):
                world.say(number, len(settings["heads"]), f"timing {head}")
                where = {"head": head, "projection": int(projection), "encoder": name}
                instance = make_head(head, **settings.get("hyper", {}).get(head, {}))
                observations += _timed(instance, features, public, where, settings)
    return observations


def _projection(features: Features, width: int) -> FeatureMap | None:
    return RandomProjection(features.dim, width, seed=0) if 0 < width < features.dim else None


def _timed(
    head: Head, features: Features, public: FeatureMap | None, where: Mapping[str, Any], settings: Mapping[str, Any]
) -> list[Observation]:
    """Return the times of one head."""
    train, repeats = features.train, int(settings.get("repeats", REPEATS))
    ledger = measure({0: (train.X, train.y)}, head.needs, n_classes=features.n_classes, feature_map=public, fold=True)
    sent = ledger.statistics().to_bytes()
    classifier, seconds = _least(lambda: head.fit(Statistics.from_bytes(sent)), 1)
    X = np.asarray(features.test.X if len(features.test) else train.X, np.float64)
    rows = (public(X) if public else X)[:1024]
    _, batch = _least(lambda: classifier.scores(rows), repeats)
    few = rows[: int(settings.get("scored", SCORED))]
    _, single = _least(lambda: _one_by_one(classifier, few), repeats)
    values = {
        "fit seconds": seconds,
        "fit MiB": _memory(lambda: head.fit(Statistics.from_bytes(sent))),
        "ms a sample": 1e3 * single / len(few),
        "ms a sample, batch": 1e3 * batch / len(rows),
    }
    return [Observation(where, (value,), quantity) for quantity, value in values.items()]


def _one_by_one(classifier: Classifier, rows: NDArray[Any]) -> Sequence[Any]:
    return [classifier.scores(row[np.newaxis]) for row in rows]


def _least(work: Callable[[], Any], repeats: int) -> tuple[Any, float]:
    """Return what the work gives, and the fewest processor seconds that it took."""
    taken, result = [], None
    for _ in range(repeats):
        start = time.process_time()
        result = work()
        taken.append(time.process_time() - start)
    return result, min(taken)


def _memory(work: Callable[[], Any]) -> float:
    """Return the most MiB that arrays took at once during the work."""
    tracing = tracemalloc.is_tracing()
    if not tracing:
        tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        work()
        return (tracemalloc.get_traced_memory()[1] - before) / MEBI
    finally:
        if not tracing:
            tracemalloc.stop()
