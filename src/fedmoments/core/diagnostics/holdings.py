"""Who holds how much: samples of every class, means per class K_c, and cells of one sample.

A row of client means is one client's mean of one class (or of a share of it). The free covariance of class c has
K_c − 1 degrees of freedom, and a row of one sample *is* that sample: its feature vector is sent as it is.

The nearest class of every class, in units of the spread inside classes.

The squared Mahalanobis distance of two class means, D² = (μ_a−μ_b)ᵀ Σ̃⁻¹ (μ_a−μ_b), is a squared Euclidean distance in
the Fisher space with all directions. Estimated means are farther apart than true ones: their noise alone gives
E[D²] = tr(Σ̃⁻¹Σ)·(1/N_a + 1/N_b), 5.9 for two classes of 130 samples in 384 dimensions. It is subtracted, so that two
classes of the same distribution have a distance of about 0. Two Gaussians at a distance D are told apart with an error
of Φ(−D/2) at best: 31 % at 1, 16 % at 2.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from fedmoments.core.gaussian import FisherSubspace
from fedmoments.core.linalg import blocks
from fedmoments.core.statistics import Statistics

__all__ = ["Holdings", "Neighbours", "holdings_of", "nearest_classes"]


Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Neighbours:
    """The nearest class of every class.

    Parameters
    ----------
    nearest
        (C,) label of the nearest class; −1 for a class without a sample, or without another one.
    distance
        (C,) distance to it in units of the spread inside classes, the means' own noise taken off; NaN where unknown.
    """

    nearest: NDArray[np.int64]
    distance: Floats

    @property
    def error(self) -> Floats:
        """(C,) share of two such classes that the best rule confuses, were they Gaussian: Φ(−D/2)."""
        return np.asarray(ndtr(-0.5 * self.distance))


def nearest_classes(fisher: FisherSubspace, counts: NDArray[np.int64], noise_dims: float) -> Neighbours:
    """Return the nearest class of every class.

    Parameters
    ----------
    fisher
        Subspace with all its directions.
    counts
        (C,) samples N_c.
    noise_dims
        tr(Σ̃⁻¹Σ), see :class:`fedmoments.core.diagnostics.Spectrum`.

    Examples
    --------
    >>> means = np.array([[0.0], [3.0], [10.0]])
    >>> fisher = FisherSubspace(basis=np.eye(1), eigenvalues=np.ones(1), offset=np.zeros(1), means=means)
    >>> neighbours = nearest_classes(fisher, np.array([100, 100, 100]), noise_dims=1.0)
    >>> neighbours.nearest, neighbours.distance.round(2)
    (array([1, 0, 1]), array([3., 3., 7.]))
    """
    nearest = np.full(len(counts), -1, np.int64)
    squared = np.full(len(counts), np.nan)
    here = np.flatnonzero(counts)
    if len(here) < 2:
        return Neighbours(nearest, squared)
    means, noise = fisher.means[here], noise_dims / counts[here]
    norms = np.einsum("ck,ck->c", means, means)
    for block in blocks(len(here), 512):
        distances = norms[block, None] + norms - 2.0 * means[block] @ means.T - noise[block, None] - noise
        distances[np.arange(len(distances)), np.arange(len(here))[block]] = np.inf
        closest = distances.argmin(axis=1)
        nearest[here[block]] = here[closest]
        squared[here[block]] = distances[np.arange(len(distances)), closest]
    return Neighbours(nearest, np.sqrt(np.maximum(squared, 0.0)))


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
