"""The outline of a contribution: which moments over how many samples. It decides what a contribution reveals.

Nothing of the numbers themselves is needed, so an outline can be drawn before anything is measured or encoded.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedmoments.core.statistics import Statistics, StatisticsSpec
from fedmoments.core.statistics.moments import DERIVED
from fedmoments.core.statistics.sketches import ALL_CLASSES
from fedmoments.errors import InputError
from fedmoments.privacy.map_leaks import MapOutline
from fedmoments.privacy.rare_values import find_rare
from fedmoments.privacy.sketch_leaks import SketchOutline, measure_exposure, outlines_of
from fedmoments.privacy.small_classes import allowed_rank, limit_sketch, row_counts

__all__ = ["Outline"]


@dataclass(frozen=True)
class Outline:
    """What is measured, and over how many samples.

    Parameters
    ----------
    spec
        The moments.
    dim
        Dimension d of the features.
    counts
        Label -> samples, of the classes that are there.
    rows
        Label -> over how many samples each mean that is kept apart is; one mean a class where only sums are sent.
    sketches
        Of every contribution that has a scatter sketch (of every class, where rows belong to one), its rank and what
        that says.
    behind
        The feature map; None where it is not known, which is judged as no map.
    categories
        Label -> how many samples have each category or gap of a raw table, of those that any has; empty where numbers
        are not at hand.
    alone
        Label -> how many samples alone differ, in some column, from all others of a second moment; empty where numbers
        are not at hand.

    Examples
    --------
    >>> spec = StatisticsSpec.of("client_means", means_per_client=2)
    >>> Outline.of_labels([3, 3, 3, 3, 3, 8], spec, dim=64).rows
    {3: (3, 2), 8: (1,)}
    """

    spec: StatisticsSpec
    dim: int
    counts: dict[int, int]
    rows: dict[int, tuple[int, ...]]
    sketches: tuple[SketchOutline, ...] = ()
    behind: MapOutline | None = None
    categories: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    alone: Mapping[int, int] = field(default_factory=dict)

    @property
    def n_samples(self) -> int:
        """Samples in all."""
        return sum(self.counts.values())

    @classmethod
    def of(cls, stats: Statistics, behind: MapOutline | None = None) -> "Outline":
        """Return the outline of statistics that were measured behind a map, where that is known.

        Examples
        --------
        >>> stats = Statistics.of([[1.0], [2.0]], [0, 0], StatisticsSpec.of("gram"), n_classes=2)
        >>> Outline.of(stats).counts
        {0: 2}
        """
        counts = dict(zip(stats.classes.tolist(), stats.class_counts.tolist(), strict=True))
        told = _told(stats.classes, stats.sums[stats.classes], behind)
        if not stats.spec.keeps_clients_apart:
            one_each: dict[int, tuple[int, ...]] = {label: (count,) for label, count in counts.items()}
            return cls(stats.spec, stats.dim, counts, one_each, behind=behind, categories=told)
        rows: dict[int, list[int]] = {label: [] for label in counts}
        for label, count in zip(stats.row_labels.tolist(), stats.row_counts.tolist(), strict=True):
            rows[label].append(count)
        kept_apart = {label: tuple(sizes) for label, sizes in rows.items()}
        return cls(stats.spec, stats.dim, counts, kept_apart, outlines_of(stats), behind, told)

    @classmethod
    def of_labels(cls, labels: ArrayLike, spec: StatisticsSpec, dim: int, *, fewest: int = 1) -> "Outline":
        """Return the outline of what would be measured of one client's samples.

        Parameters
        ----------
        labels
            (n,) the class of every sample.
        spec, dim
            What would be measured, in how many dimensions.
        fewest
            A class with a mean over fewer samples has one mean, over all of them.

        Examples
        --------
        >>> spec = StatisticsSpec.of("client_means", means_per_client=2)
        >>> Outline.of_labels([3, 3, 3, 3, 3, 8], spec, dim=64, fewest=5).rows
        {3: (5,), 8: (1,)}
        """
        array = np.asarray(labels)
        if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
            raise InputError(
                f"labels must be one whole number a sample, (n,); an array of shape {array.shape} and type "
                f"{array.dtype} arrived"
            )
        derived = sorted(spec.moments & DERIVED.keys())
        if derived:
            raise InputError(
                f"no client measures {', '.join(derived)}: several parties compute it together. Say what they measure "
                "for it, such as client_means"
            )
        classes, sizes = np.unique(array, return_counts=True)
        counts = {int(label): int(count) for label, count in zip(classes, sizes, strict=True)}
        rows = {label: tuple(row_counts(count, spec.means_per_client)) for label, count in counts.items()}
        merged = {label: (counts[label],) if min(means) < fewest else means for label, means in rows.items()}
        return cls(spec, dim, counts, merged, _planned(spec, dim, counts))

    def limited(self, share: float, least: int) -> "Outline":
        """Return the outline with no more sketch rows than a client's rules allow.

        Parameters
        ----------
        share, least
            As for :func:`~fedmoments.privacy.small_classes.limit_sketch`.

        Examples
        --------
        >>> outline = Outline.of_labels([0] * 81, StatisticsSpec.of("scatter_sketch"), dim=64)
        >>> outline.sketches[0].rank, outline.limited(0.0, 20).sketches[0].rank
        (4, 0)
        """
        ranks = [min(sketch.rank, allowed_rank(sketch.spare, share=share, least=least)) for sketch in self.sketches]
        pairs = zip(self.sketches, ranks, strict=True)
        cut = tuple(
            sketch if rank == sketch.rank else SketchOutline(rank, sketch.spare, label=sketch.label)
            for sketch, rank in pairs
        )
        return replace(self, sketches=cut)

    def measured(self, features: ArrayLike, labels: ArrayLike, share: float = 1.0, least: int = 0) -> "Outline":
        """Return the outline of one client with what its sketch, and counts of categories, tell of its samples.

        Parameters
        ----------
        features, labels
            (n, d) behind the feature map, and (n,): the samples of this outline.
        share, least
            The client's rules for its sketch.

        Examples
        --------
        >>> X, labels = np.random.default_rng(0).normal(size=(81, 64)), [0] * 81
        >>> outline = Outline.of_labels(labels, StatisticsSpec.of("scatter_sketch"), dim=64)
        >>> round(outline.measured(X, labels).sketches[0].exposure.mean, 2)
        0.19
        """
        if not self.counts:
            return self
        X, y = np.asarray(features), np.asarray(labels)
        outline = replace(self, categories=_categories(X, y, self.behind), alone=_alone(X, y, self.spec))
        return outline._sketched(X, y, share, least) if self.spec.has_sketch else outline

    def _sketched(self, X: NDArray[Any], y: NDArray[Any], share: float, least: int) -> "Outline":
        """Return the outline with what its sketch tells of samples X (n, d) with labels y (n,)."""
        spec = StatisticsSpec.of("scatter_sketch", sketch=self.spec.plan)
        stats = limit_sketch(Statistics.of(X, y, spec, n_classes=max(self.counts) + 1), share, least)
        sketches = []
        for outline, (rows, _, _) in zip(outlines_of(stats), stats.sketches.blocks(), strict=True):
            mine = (y == outline.label) | (outline.label == ALL_CLASSES)
            sketches.append(replace(outline, exposure=measure_exposure(X[mine], y[mine], rows)))
        return replace(self, sketches=tuple(sketches))

    def without_small(self, min_count: int) -> "Outline":
        """Return the outline without the classes that have a mean over fewer than ``min_count`` samples.

        It has no sketches: those of fewer samples would be others.

        Examples
        --------
        >>> Outline.of_labels([3, 3, 8], StatisticsSpec(), dim=64).without_small(2).counts
        {3: 2}
        """
        kept = [label for label, sizes in self.rows.items() if min(sizes) >= min_count]
        counts, rows = {label: self.counts[label] for label in kept}, {label: self.rows[label] for label in kept}
        return replace(self, counts=counts, rows=rows, sketches=())


def _categories(X: NDArray[Any], y: NDArray[Any], behind: MapOutline | None) -> dict[int, tuple[int, ...]]:
    """Return how many samples of each class have each category, of features X (n, d) and labels y (n,)."""
    classes, places = np.unique(y, return_inverse=True)
    if behind is None or not behind.counted:
        return {}
    sums = np.zeros((len(classes), X.shape[1]))
    np.add.at(sums, places, X)
    return _told(classes, sums, behind)


def _alone(X: NDArray[Any], y: NDArray[Any], spec: StatisticsSpec) -> dict[int, int]:
    """Return how many samples of each class differ alone, in some column, from all others of a second moment."""
    matrices = {"class_grams", "gram"} & spec.moments
    whole = spec.plan is not None and spec.plan.choose(len(y), len(np.unique(y)), X.shape[1]).rank >= X.shape[1]
    if not matrices and not whole:  # of fewer directions, no row is one sample's
        return {}
    groups = np.unique(y if "class_grams" in spec.moments else np.zeros_like(y), return_inverse=True)[1]
    found = y[find_rare(X.__getitem__, groups, 2).holders(X, groups)]
    return {int(label): int(n) for label, n in zip(*np.unique(found, return_counts=True), strict=True)}


def _told(classes: NDArray[Any], sums: NDArray[Any], behind: MapOutline | None) -> dict[int, tuple[int, ...]]:
    """Return the counts among the sums (c, d) of classes (c,)."""
    if behind is None or not behind.counted:
        return {}
    counts = np.rint(sums[:, list(behind.counted)]).astype(np.int64)
    return {int(label): tuple(row[row > 0].tolist()) for label, row in zip(classes, counts, strict=True)}


def _planned(spec: StatisticsSpec, dim: int, counts: dict[int, int]) -> tuple[SketchOutline, ...]:
    """Return the sketch that a client with such counts would measure."""
    if spec.plan is None or not counts:
        return ()
    n_samples = sum(counts.values())
    rank = spec.plan.choose(n_samples, len(counts), dim).rank
    if spec.plan.by_class:  # any class may have all rows, as far as its own share goes
        most = spec.plan.class_ranks(np.array(list(counts.values())))
        pairs = zip(counts.items(), most.tolist(), strict=True)
        return tuple(SketchOutline(min(rank, cap), count - 1, label=label) for (label, count), cap in pairs)
    spare = n_samples - len(counts)
    return (SketchOutline(min(rank, spare), spare),)
