"""Who holds how much: samples of every class, means per class K_c, and cells of one sample.

A row of client means is one client's mean of one class (or of a share of it). The free covariance of class c has
K_c − 1 degrees of freedom, and a row of one sample *is* that sample: its feature vector is sent as it is.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.statistics import Statistics

__all__ = ["Holdings", "holdings_of"]

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Holdings:
    """Samples and rows of every class.

    Parameters
    ----------
    counts
        (C,) samples N_c.
    held_by
        (C,) rows K_c, or None when clients were not kept apart.
    singles
        (C,) rows of one sample, or None.

    Examples
    --------
    >>> Holdings(np.array([4, 0, 2]), np.array([2, 0, 2]), np.array([0, 0, 2])).single_share
    0.5
    """

    counts: Ints
    held_by: Ints | None = None
    singles: Ints | None = None

    @property
    def present(self) -> NDArray[np.bool_]:
        """(C,) whether a class has a sample."""
        return np.asarray(self.counts > 0)

    @property
    def imbalance(self) -> float:
        """Samples of the largest class over those of the smallest that has any."""
        here = self.counts[self.present]
        return float(here.max() / here.min())

    @property
    def rows(self) -> int | None:
        """How many rows of client means there are, or None."""
        return None if self.held_by is None else int(self.held_by.sum())

    @property
    def single_share(self) -> float | None:
        """Share of rows that are one sample, or None."""
        if self.held_by is None or self.singles is None:
            return None
        return float(self.singles.sum() / max(int(self.held_by.sum()), 1))


def holdings_of(stats: Statistics) -> Holdings:
    """Return who holds how much.

    Parameters
    ----------
    stats
        Any statistics; K_c and single-sample cells are known from client means alone.

    Examples
    --------
    >>> from fedmoments.core.statistics import StatisticsSpec
    >>> spec = StatisticsSpec.of("client_means")
    >>> parts = [Statistics.of(np.ones((2, 1)), labels, spec, n_classes=3) for labels in ([0, 1], [0, 0])]
    >>> holdings = holdings_of(Statistics.merge(parts))
    >>> holdings.held_by, holdings.singles
    (array([2, 1, 0]), array([1, 1, 0]))
    """
    if not stats.spec.keeps_clients_apart:
        return Holdings(stats.counts)
    held_by = np.bincount(stats.row_labels, minlength=stats.n_classes)
    singles = np.bincount(stats.row_labels[stats.row_counts == 1], minlength=stats.n_classes)
    return Holdings(stats.counts, held_by.astype(np.int64), singles.astype(np.int64))
