"""Inverse Cholesky factors of class covariances, which QDA scores with."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from fedmoments.core.floats import is_single
from fedmoments.core.linalg import lower_factor
from fedmoments.core.statistics.statistics import Statistics
from fedmoments.errors import NotEnoughDataError

__all__ = ["class_whiteners", "log_determinants"]

Floats = NDArray[np.float64]

#: Reciprocal condition of a covariance of unit diagonal, below which it is inverted in float64 whatever was requested.
LEAST_CONDITION = 1e-4
#: Variances between this and its inverse are far from the ends of float32.
MOST_SPAN = 1e24


def class_whiteners(
    stats: Statistics, covariances: Iterable[tuple[int, Floats]], dim: int, into: Floats | None = None
) -> Floats:
    """Return T (C, k, k), lower triangular with T_c Σ_c T_cᵀ = I; zeros for absent classes.

    Parameters
    ----------
    stats
        What was measured: how many classes there are, and counts for what is said of a singular covariance.
    covariances
        Labels and covariances (k, k).
    dim
        k.
    into
        (C, k, k) of covariances that nobody needs any more, each of which its T may take the place of.

    Examples
    --------
    >>> from fedmoments.core.statistics import StatisticsSpec
    >>> stats = Statistics.of([[0.0], [2.0]], [1, 1], StatisticsSpec.of("class_grams"), n_classes=2)
    >>> class_whiteners(stats, [(1, np.array([[4.0]]))], 1)
    array([[[0. ]],
    <BLANKLINE>
           [[0.5]]])
    """
    whiteners = np.zeros((stats.n_classes, dim, dim)) if into is None else into
    whiteners[stats.counts == 0] = 0.0
    for label, covariance in covariances if dim else ():
        whiteners[label] = _whitener(covariance, label, stats)
    return whiteners


def log_determinants(whiteners: Floats, present: NDArray[np.bool_]) -> Floats:
    """Return log |det T_c| (C,) of triangular T (C, k, k); 0 for absent classes.

    Examples
    --------
    >>> log_determinants(np.array([[[0.0]], [[0.5]]]), np.array([False, True]))
    array([ 0.        , -0.69314718])
    """
    logarithms = np.zeros(len(whiteners))
    for label in np.flatnonzero(present).tolist():
        logarithms[label] = np.log(np.diagonal(whiteners[label])).sum()
    return logarithms


def _whitener(covariance: Floats, label: int, stats: Statistics) -> NDArray[np.floating]:
    if np.array_equal(covariance, np.eye(len(covariance))):  # of a class that has the pooled one in Fisher directions
        return np.eye(len(covariance))
    quick = _single_whitener(covariance) if is_single() else None
    if quick is not None:
        return quick
    lower = lower_factor(covariance)
    if lower is None:
        raise NotEnoughDataError(
            f"the covariance of class {label} ({stats.counts[label]} samples, {stats.dim} dimensions) is singular: "
            "use more pooling, more shrinkage or gh-lda; if its samples differ, rounding has taken their spread: give "
            "fixed point a smaller norm_bound or max_samples"
        )
    return np.asarray(lapack.dtrtri(lower.T, lower=0, overwrite_c=1)[0].T)  # as LAPACK lays it out: no copy


def _single_whitener(covariance: Floats) -> NDArray[np.float32] | None:
    """Return T in float32, or None of a covariance whose inverse would lose more than three digits of seven there."""
    diagonal = np.diagonal(covariance)
    if not (diagonal.min(initial=1.0) > 1.0 / MOST_SPAN and diagonal.max(initial=1.0) < MOST_SPAN):
        return None
    scale = (1.0 / np.sqrt(diagonal)).astype(np.float32)
    unit = covariance.astype(np.float32).T  # symmetric, as LAPACK lays it out
    unit *= scale[:, None]
    unit *= scale
    upper, info = lapack.spotrf(unit, lower=0, clean=1, overwrite_a=1)
    if info != 0 or lapack.spocon(upper, 1.0, uplo="U")[0] < LEAST_CONDITION:
        return None
    inverse = lapack.strtri(upper, lower=0, overwrite_c=1)[0].T
    return np.asarray(inverse * scale)
