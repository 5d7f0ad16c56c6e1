"""The bias of the free covariance when clients differ in more than their label shares (FedCOF Eq. 24).

With client populations of mean μ_k and covariance Σ_k around the class's own μ and Σ,

    E[Σ̂] − Σ = 1/(K−1) Σ_k (Σ_k − Σ) + 1/(K−1) Σ_k n_k (μ_k−μ)(μ_k−μ)ᵀ.

:func:`expected_bias` evaluates it for known populations. :func:`covariance_bias` estimates it where both client means
and exact variances were sent: the free estimate is compared with the exact one, class by class. Without feature shift
the ratio of their traces is 1 up to noise; clients of different domains raise it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.gaussian.class_gaussians import ClassGaussians, require
from fedmoments.core.statistics.spec import StatisticsSpec
from fedmoments.core.statistics.statistics import Statistics
from fedmoments.errors import InputError

__all__ = ["CovarianceBias", "covariance_bias", "expected_bias"]

Floats = NDArray[np.float64]

NEEDS = StatisticsSpec.of("client_means", "class_norms")


def expected_bias(
    counts: NDArray[np.integer], client_means: Floats, client_covariances: Floats, mean: Floats, covariance: Floats
) -> Floats:
    """Return FedCOF's Eq. 24, the bias (d, d) of the free covariance of one class.

    Parameters
    ----------
    counts
        (K,) samples n_k of every client that holds the class.
    client_means
        (K, d) population means μ_k.
    client_covariances
        (K, d, d) population covariances Σ_k.
    mean, covariance
        μ (d,) and Σ (d, d) of the class.

    Examples
    --------
    >>> same = np.zeros((2, 1)), np.ones((2, 1, 1)), np.zeros(1), np.ones((1, 1))
    >>> expected_bias(np.array([5, 5]), *same)
    array([[0.]])
    """
    if len(counts) < 2:
        raise InputError(f"the free covariance of a class needs two clients or more, not {len(counts)}")
    shift = client_means - mean
    spread = (client_covariances - covariance).sum(axis=0) + (counts[:, None] * shift).T @ shift
    return np.asarray(spread / (len(counts) - 1))


@dataclass(frozen=True)
class CovarianceBias:
    """How far the free covariance is from the exact one.

    Parameters
    ----------
    free_trace, exact_trace
        (C,) traces of the two estimates; NaN where a class has no two samples or rows.
    held_by
        (C,) rows K_c.
    counts
        (C,) samples N_c.
    """

    free_trace: Floats
    exact_trace: Floats
    held_by: NDArray[np.int64]
    counts: NDArray[np.int64]

    derived: ClassVar[tuple[str, ...]] = ("overall", "relative", "shift")  # written beside the fields, for readers

    @property
    def relative(self) -> Floats:
        """(C,) bias of the trace, relative to the exact trace: about 0 without feature shift."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(self.free_trace / self.exact_trace - 1.0)

    @property
    def overall(self) -> float:
        """Relative bias of the trace over all classes, each weighted by its degrees of freedom K_c − 1; NaN if none."""
        known = np.isfinite(self.free_trace) & np.isfinite(self.exact_trace)
        weight = (self.held_by[known] - 1).astype(np.float64)
        exact = float(weight @ self.exact_trace[known])
        return float(weight @ self.free_trace[known]) / exact - 1.0 if exact > 0 else float("nan")

    @property
    def shift(self) -> float:
        """F (``core.gaussian.shift``): about 1 where clients differ in their labels alone; NaN if it is not known."""
        known = np.isfinite(self.free_trace) & np.isfinite(self.exact_trace)
        between_dof, dof = (self.held_by[known] - 1).astype(np.float64), (self.counts[known] - 1).astype(np.float64)
        between, total = float(between_dof @ self.free_trace[known]), float(dof @ self.exact_trace[known])
        inside, inside_dof = total - between, float(dof.sum() - between_dof.sum())
        if inside <= 0.0 or inside_dof <= 0.0:
            return float("nan")
        return (between / float(between_dof.sum())) / (inside / inside_dof)


def covariance_bias(stats: Statistics) -> CovarianceBias:
    """Compare free and exact covariances by their traces, class by class.

    Parameters
    ----------
    stats
        Client means and class norms (or anything finer: class squares, class grams).

    Examples
    --------
    >>> shifted = [([[0.0], [1.0]], [0, 0]), ([[100.0], [101.0]], [0, 0])]
    >>> parts = [Statistics.of(X, y, NEEDS, n_classes=1) for X, y in shifted]
    >>> bool(covariance_bias(Statistics.merge(parts)).overall > 1)
    True
    """
    require(stats, NEEDS, "the bias of the free covariance")
    means = ClassGaussians(stats, "free").means
    free, rows_dof = ClassGaussians(stats, "free").class_variances()
    exact, dof = ClassGaussians(stats, "spherical").class_variances()
    with np.errstate(divide="ignore", invalid="ignore"):
        free_trace = np.where(rows_dof > 0, free.sum(axis=1) / rows_dof, np.nan)
        exact_trace = np.where(dof > 0, exact.sum(axis=1) / dof, np.nan)
    held_by = np.bincount(stats.rows.labels, minlength=len(means)).astype(np.int64)
    return CovarianceBias(free_trace, exact_trace, held_by, stats.counts)
