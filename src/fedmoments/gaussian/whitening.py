"""Inverse Cholesky factors of class covariances, which QDA scores with."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from fedmoments.errors import NotEnoughDataError
from fedmoments.linalg import lower_factor
from fedmoments.statistics.statistics import Statistics

__all__ = ["class_whiteners"]

Floats = NDArray[np.float64]


def class_whiteners(stats: Statistics, covariances: Iterable[tuple[int, Floats]], dim: int) -> tuple[Floats, Floats]:
    """Return T (C, k, k), lower triangular with T_c Σ_c T_cᵀ = I, and log |det T_c| (C,); zeros for absent classes.

    Parameters
    ----------
    stats
        What was measured: how many classes there are, and counts for what is said of a singular covariance.
    covariances
        Labels and covariances (k, k).
    dim
        k.

    Examples
    --------
    >>> from fedmoments.statistics import StatisticsSpec
    >>> stats = Statistics.of([[0.0], [2.0]], [1, 1], StatisticsSpec.of("class_grams"), n_classes=2)
    >>> class_whiteners(stats, [(1, np.array([[4.0]]))], 1)
    (array([[[0. ]],
    <BLANKLINE>
           [[0.5]]]), array([ 0.        , -0.69314718]))
    """
    whiteners, log_precision = np.zeros((stats.n_classes, dim, dim)), np.zeros(stats.n_classes)
    for label, covariance in covariances:
        if dim:
            whiteners[label] = _whitener(covariance, label, stats)
        log_precision[label] = np.log(np.diagonal(whiteners[label])).sum()
    return whiteners, log_precision


def _whitener(covariance: Floats, label: int, stats: Statistics) -> Floats:
    lower = lower_factor(covariance)
    if lower is None:
        raise NotEnoughDataError(
            f"the covariance of class {label} ({stats.counts[label]} samples, {stats.dim} dimensions) is singular: "
            "use more pooling, more shrinkage or gh-lda"
        )
    return np.asarray(lapack.dtrtri(lower, lower=1)[0])
