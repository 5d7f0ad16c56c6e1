"""Accuracy against bytes, from an eighth of FedNCM's payload to Fed3R's, for all heads.

Heads on scatter sketches spend a budget as they like. Any other head fits a budget only behind a random projection to
fewer dimensions, its numbers in float32, as it was published; its own point is that of the full dimension.
"""

import math
import statistics
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from fedmoments.core.costs.sketches import plan_of, sketch_sizes
from fedmoments.core.gaussian.recompression import recompress
from fedmoments.core.heads import Head
from fedmoments.core.observations.budget import SKETCH, BudgetCurve, BudgetCurves, BudgetPoint, Recompressed
from fedmoments.core.statistics import Statistics
from fedmoments.errors import FedMomentsError, InputError
from fedmoments.samples import Split
from fedmoments.samples.features import Features
from fedmoments.settings.study import StudySettings
from fedmoments.study.simulation import Federation
from fedmoments.study.simulation.fit import predict_blocks
from fedmoments.study.simulation.methods import choose_methods
from fedmoments.study.simulation.payload import sent_by, upload_size
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
) -> BudgetCurves:
    """Return the curve of every head of a job.

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
    setting = replace(setting, budget=None, projection=None, shrinkage=None)
    methods = choose_methods(config.heads, config.hyper)
    heads = {name: head for name, head in methods.items() if isinstance(head, Head) and not head.has_own_map}
    seeds = range(config.seed, config.seed + config.seeds)
    splits = {seed: make_split(features, setting.clients, setting.split, seed) for seed in seeds}
    study = _Study(features, setting, splits, config.memory_limit * 1e9)
    curves = []
    for done, (name, head) in enumerate(heads.items()):

        def say(budget: str | None, done: int = done, name: str = name) -> None:
            if progress:
                progress(done, len(heads), f"budget curve, {name}, {budget or 'as published'}")

        curves.append(study.curve(name, head, say))
    means = WIDTH * features.dim * study.classes
    return BudgetCurves(
        tuple(curves),
        tuple(study.recompressed(heads)),
        means,
        means + WIDTH * features.dim * (features.dim + 1) / 2,
        setting.clients,
        setting.split,
        features.dim,
        features.n_classes,
    )


@dataclass(frozen=True, eq=False)
class _Study:
    """One federation under all budgets, on every seed."""

    features: Features
    setting: Point
    splits: Mapping[int, Split]
    memory_limit: float

    @cached_property
    def classes(self) -> float:
        """How many classes a client with samples holds, mean over clients and seeds."""
        return statistics.fmean(_classes(self.features, split) for split in self.splits.values())

    def federation(self, head: Head, setting: Point, seed: int) -> Federation:
        """Return the federation of a seed."""
        limit = self.memory_limit
        return federation_of(self.features, self.splits[seed], [head], setting, seed=seed, memory_limit=limit)

    def curve(self, name: str, head: Head, say: Callable[[str | None], None]) -> BudgetCurve:
        """Return the curve of a head, without points where no seed could be fitted."""
        points = []
        for step in _steps(head, _budgets(self.features, self.classes), self.features.dim, self.classes):
            say(step.budget)
            point = self._point(head, step)
            points += [point] if point else []
        return BudgetCurve(name, SKETCH if head.needs.has_sketch else "projected", tuple(points))

    def _point(self, head: Head, step: "_Step") -> BudgetPoint | None:
        sketched = head.needs.has_sketch
        where = replace(self.setting, budget=step.budget if sketched else None, projection=step.dimensions)
        outcomes = [self.federation(head, where, seed).outcome(head) for seed in self.splits]
        fitted = [
            (outcome.accuracy, outcome.up_bytes / max(outcome.clients, 1), outcome.seed)
            for outcome in outcomes
            if outcome.accuracy is not None
        ]
        if not fitted:
            return None
        accuracies, sizes, seeds = zip(*fitted, strict=True)
        rank = self._mean_rank(where) if sketched else None
        return BudgetPoint(accuracies, sizes, seeds, step.budget, _dimensions(where, self.features), rank, step.own)

    def _mean_rank(self, where: Point) -> float:
        return statistics.fmean(_rank(self.features, split, where) for split in self.splits.values())

    def recompressed(self, heads: Mapping[str, Head]) -> Iterator[Recompressed]:
        """Yield what a bound on the server's memory costs the quick heads on sketches, on the first seed."""
        first = next(iter(self.splits))
        for name, head in heads.items():
            if head.needs.has_sketch and not head.slow:
                yield from _recompressed(name, head, self.federation(head, self.setting, first))


def _recompressed(name: str, head: Head, federation: Federation) -> Iterator[Recompressed]:
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
        kept, of, accuracy = len(few.sketches.rows), len(received.sketches.rows), _accuracy(head, few, federation)
        yield Recompressed(name, kept, of, len(few.sketches), accuracy, unbounded)


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
    allowed: dict[str, float] = {}
    for place, budget in enumerate(BUDGETS):
        factor = 2.0 ** (place - 3)
        try:
            plan_of(budget, n_classes=features.n_classes, dim=features.dim)
        except InputError:  # not one dimension: features have few
            continue
        if factor < most:
            allowed[budget] = factor * features.dim * classes
    return {**allowed, LAST: math.inf}


class _Step(NamedTuple):
    """A point of a curve: its budget, the dimensions of its projection, and whether it is the head as published."""

    budget: str | None
    dimensions: int | None = None
    own: bool = False


def _steps(head: Head, budgets: dict[str, float], dim: int, classes: float) -> Iterator[_Step]:
    """Yield the points of a curve."""
    if head.needs.has_sketch:
        yield from map(_Step, budgets)
        return
    own = _floats(head, dim, classes)
    for budget, floats in budgets.items():
        most = bisect_right(range(1, dim), floats, key=lambda k: _floats(head, k, classes)) if floats < own else 0
        if most:
            yield _Step(budget, most)
    yield _Step(None, own=True)


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
