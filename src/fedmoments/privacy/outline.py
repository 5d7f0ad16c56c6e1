"""The outline of a contribution: which moments over how many samples. It decides what a contribution reveals.

Nothing of the numbers themselves is needed, so an outline can be drawn before anything is measured or encoded.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fedmoments.errors import InputError
from fedmoments.privacy.small_classes import row_counts
from fedmoments.statistics import Statistics, StatisticsSpec
from fedmoments.statistics.moments import DERIVED

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

    @property
    def n_samples(self) -> int:
        """Samples in all."""
        return sum(self.counts.values())

    @classmethod
    def of(cls, stats: Statistics) -> "Outline":
        """Return the outline of statistics.

        Examples
        --------
        >>> stats = Statistics.of([[1.0], [2.0]], [0, 0], StatisticsSpec.of("gram"), n_classes=2)
        >>> Outline.of(stats).counts
        {0: 2}
        """
        counts = dict(zip(stats.classes.tolist(), stats.class_counts.tolist(), strict=True))
        if not stats.spec.keeps_clients_apart:
            return cls(stats.spec, stats.dim, counts, {label: (count,) for label, count in counts.items()})
        rows: dict[int, list[int]] = {label: [] for label in counts}
        for label, count in zip(stats.row_labels.tolist(), stats.row_counts.tolist(), strict=True):
            rows[label].append(count)
        return cls(stats.spec, stats.dim, counts, {label: tuple(found) for label, found in rows.items()})

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
        classes, found = np.unique(array, return_counts=True)
        counts = {int(label): int(count) for label, count in zip(classes, found, strict=True)}
        rows = {label: tuple(row_counts(count, spec.means_per_client)) for label, count in counts.items()}
        merged = {label: (counts[label],) if min(each) < fewest else each for label, each in rows.items()}
        return cls(spec, dim, counts, merged)

    def without_small(self, min_count: int) -> "Outline":
        """Return the outline without the classes that have a mean over fewer than ``min_count`` samples.

        Examples
        --------
        >>> Outline.of_labels([3, 3, 8], StatisticsSpec(), dim=64).without_small(2).counts
        {3: 2}
        """
        kept = [label for label, each in self.rows.items() if min(each) >= min_count]
        return Outline(
            self.spec, self.dim, {label: self.counts[label] for label in kept}, {k: self.rows[k] for k in kept}
        )
