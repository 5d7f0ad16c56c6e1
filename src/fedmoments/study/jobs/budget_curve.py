"""Accuracy against bytes, from an eighth of FedNCM's payload to Fed3R's, for all heads.

Heads on scatter sketches spend a budget as they like. Any other head fits a budget only behind a random projection to
fewer dimensions, its numbers in float32, as it was published; its own point is that of the full dimension.
"""

import math
import statistics
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from fedmoments.core.costs.budgets import plan_of, sketch_sizes
from fedmoments.core.gaussian.recompression import recompress
from fedmoments.core.heads import Head
from fedmoments.core.observations import Outcome
from fedmoments.core.statistics import Statistics
from fedmoments.errors import FedMomentsError, InputError
from fedmoments.samples import Split
from fedmoments.samples.features import Features
from fedmoments.settings.study import StudySettings
from fedmoments.study.simulation import Federation
from fedmoments.study.simulation.evaluation import predict_blocks
from fedmoments.study.simulation.measuring import sent_by
from fedmoments.study.simulation.methods import choose_methods
from fedmoments.study.simulation.payload import upload_size
from fedmoments.study.simulation.points import Point, federation_of, make_split

__all__ = ["BUDGETS", "budget_curve"]

#: Called with (done, in all, what is being done).
Progress = Callable[[int, int, str], None]

#: From an eighth of FedNCM's payload on, doubling; those above Fed3R's are left out, and Fed3R's closes the row.
BUDGETS = ("means/8", "means/4", "means/2", "means", *(f"means*{2**power}" for power in range(1, 12)))
LAST = "gram"
#: Bytes of a float32.
WIDTH = 4


def budget_curve(
    features: Features, config: StudySettings, setting: Point, *, progress: Progress | None = None
) -> dict[str, Any]:
    """Return the curve of every head of a job, ready for JSON.

    Parameters
    ----------
    features
        Everybody's training samples, and the test samples.
    config
        Heads, hyper-parameters and seeds; baselines are left out.
    setting
        Clients and split; its budget and projection are not used.
    progress
        Called before every step.
    """
    plain = replace(setting, budget=None, projection=None, shrinkage=None)
    methods = choose_methods(config.heads, config.hyper)
    heads = {name: head for name, head in methods.items() if isinstance(head, Head) and not head.has_own_map}
    seeds = range(config.seed, config.seed + config.seeds)
    splits = {seed: make_split(features, plain.clients, plain.split, seed) for seed in seeds}
    classes = statistics.fmean(_classes(features, split) for split in splits.values())
    budgets = _budgets(features, classes)
    found: list[dict[str, Any]] = []
    limit = config.memory_limit * 1e9
    for done, (name, head) in enumerate(heads.items()):
        points: list[dict[str, Any]] = []
        for budget, dimensions, own in _steps(head, budgets, features.dim, classes):
            if progress:
                progress(done, len(heads), f"budget curve, {name}, {budget or 'as published'}")
            where = replace(plain, budget=budget if head.needs.has_sketch else None, projection=dimensions)
            outcomes = [
                federation_of(features, splits[seed], [head], where, seed=seed, memory_limit=limit).outcome(head)
                for seed in seeds
            ]
            point = _point(budget, outcomes, _dimensions(where, features), own=own)
            if point and head.needs.has_sketch:
                point["rank"] = statistics.fmean(_rank(features, split, where) for split in splits.values())
            points += [point] if point else []
        found.append({"head": name, "kind": "sketch" if head.needs.has_sketch else "projected", "points": points})
    means = WIDTH * features.dim * classes
    bounded = {name: head for name, head in heads.items() if head.needs.has_sketch and not head.slow}
    first = splits[config.seed]
    return {
        "clients": plain.clients,
        "split": plain.split,
        "seeds": len(seeds),
        "dim": features.dim,
        "n_classes": features.n_classes,
        "means": means,
        "gram": means + WIDTH * features.dim * (features.dim + 1) / 2,
        "curves": found,
        "recompressed": [
            each
            for name, head in bounded.items()
            for each in _recompressed(
                name, head, federation_of(features, first, [head], plain, seed=config.seed, memory_limit=limit)
            )
        ],
    }


def _recompressed(name: str, head: Head, federation: Federation) -> Iterator[dict[str, Any]]:
    """Yield what is left of a head's accuracy when the server keeps no more sketch rows than d, d/2 and d/4."""
    try:
        received = federation.received(head)
        unbounded = _accuracy(head, received, federation)
    except FedMomentsError:
        return
    for rows in (federation.dim, federation.dim // 2, federation.dim // 4):
        few = recompress(received, max(rows, 2))
        if len(few.sketches) == len(received.sketches):  # there were no more rows than that
            continue
        found = {"rows": len(few.sketches.rows), "of": len(received.sketches.rows), "blocks": len(few.sketches)}
        yield {"head": name, **found, "accuracy": _accuracy(head, few, federation), "unbounded": unbounded}


def _accuracy(head: Head, stats: Statistics, federation: Federation) -> float:
    test = federation.mapped.test
    return float((predict_blocks(head.fit(stats), test.X) == test.y).mean())


def _classes(features: Features, split: Split) -> float:
    """Return how many classes a client with samples holds, on average."""
    present = np.diff(split.cells(features.train.y, features.n_classes).indptr)
    return float(present[present > 0].mean()) if (present > 0).any() else 0.0


def _budgets(features: Features, classes: float) -> dict[str, float]:
    """Return budgets up to Fed3R's payload, with the numbers that a client may send; those for nothing left out."""
    most = 1 + (features.dim + 1) / 2 / max(classes, 1e-9)
    found: dict[str, float] = {}
    for place, word in enumerate(BUDGETS):
        factor = 2.0 ** (place - 3)
        try:
            plan_of(word, n_classes=features.n_classes, dim=features.dim)
        except InputError:  # not one dimension: features have few
            continue
        if factor < most:
            found[word] = factor * features.dim * classes
    return {**found, LAST: math.inf}


def _steps(
    head: Head, budgets: dict[str, float], dim: int, classes: float
) -> Iterator[tuple[str | None, int | None, bool]]:
    """Yield (budget, dimensions of a projection, whether it is the head as published) of every point of a curve."""
    if head.needs.has_sketch:
        yield from ((budget, None, False) for budget in budgets)
        return
    own = _floats(head, dim, classes)
    for budget, floats in budgets.items():
        most = bisect_right(range(1, dim), floats, key=lambda k: _floats(head, k, classes)) if floats < own else 0
        if most:
            yield budget, most, False
    yield None, None, True


def _floats(head: Head, dim: int, classes: float) -> float:
    """Return the numbers that a client with so many classes sends for a head."""
    from scipy.sparse import csr_array

    whole, rest = math.floor(classes), classes - math.floor(classes)
    sizes = [upload_size(sent_by(head, 1), dim, csr_array(np.ones((1, max(p, 1))))).floats for p in (whole, whole + 1)]
    return sizes[0] * (1 - rest) + sizes[1] * rest


def _dimensions(setting: Point, features: Features) -> int | None:
    if setting.budget is None:
        return setting.projection
    return plan_of(setting.budget, n_classes=features.n_classes, dim=features.dim)[1]


def _rank(features: Features, split: Split, setting: Point) -> float:
    """Return how many sketch rows a client with samples sends, on average."""
    plan, width = plan_of(setting.budget, n_classes=features.n_classes, dim=features.dim)
    cells = split.cells(features.train.y, features.n_classes)
    return sketch_sizes(plan, width or features.dim, cells).rows / max(int((np.diff(cells.indptr) > 0).sum()), 1)


def _point(budget: str | None, outcomes: list[Outcome], dimensions: int | None, *, own: bool) -> dict[str, Any]:
    """Return the point of a curve; nothing is in it where no seed could be fitted."""
    fitted = [outcome for outcome in outcomes if outcome.accuracy is not None]
    accuracies = [outcome.accuracy for outcome in fitted if outcome.accuracy is not None]
    if not fitted:
        return {}
    return {
        "budget": budget,
        "bytes": statistics.fmean(outcome.up_bytes / max(outcome.clients, 1) for outcome in fitted),
        "accuracy": statistics.fmean(accuracies),
        "std": statistics.stdev(accuracies) if len(accuracies) > 1 else None,
        "seeds": len(fitted),
        "dimensions": dimensions,
        "rank": None,
        "own": own,
    }
