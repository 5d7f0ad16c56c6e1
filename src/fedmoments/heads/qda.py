"""Quadratic discriminant analysis, GH-QDA: every class has its own covariance.

score_c = log π_c − ½ log|Σ̃_c| − ½ (x−μ_c)ᵀ Σ̃_c⁻¹ (x−μ_c), with Σ̃_c = T_c⁻¹T_c⁻ᵀ and T_c lower triangular. A class with
no covariance of its own (one sample, or one row of client means) has the pooled one.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from fedmoments.classifier import Classifier, QuadraticClassifier
from fedmoments.errors import NotEnoughDataError
from fedmoments.gaussian import ClassGaussians, Shrinkage, covariance_source
from fedmoments.heads.head import Head, Preset
from fedmoments.statistics import Statistics, StatisticsSpec

__all__ = ["PRESETS", "Qda"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Qda(Head):
    """Gaussian classes with a full covariance each.

    Parameters
    ----------
    covariance
        ``exact`` (class grams), ``diagonal``, ``spherical`` or ``free`` (client means).
    shrinkage
        Of every class covariance; see :meth:`fedmoments.ClassGaussians.class_shrinkage`. GH-OFL's default is
        ``blend:0.1``.

    Examples
    --------
    >>> X, y = np.array([[0.0, 0.0], [0.1, 0.2], [0.2, 0.1], [3.0, 9.0], [9.0, 3.0], [4.0, 4.0]]), [0, 0, 0, 1, 1, 1]
    >>> stats = Statistics.of(X, y, StatisticsSpec.of("class_grams"), n_classes=2)
    >>> Qda(shrinkage="blend:0.1").fit(stats).predict([[0.1, 0.1], [2.0, 2.0]])
    array([0, 1])
    """

    covariance: str = "exact"
    shrinkage: Shrinkage | str | float = "automatic"

    def __post_init__(self) -> None:
        Shrinkage.parse(self.shrinkage)
        covariance_source(self.covariance)

    @property
    def needs(self) -> StatisticsSpec:
        return covariance_source(self.covariance).class_needs

    def solve(self, stats: Statistics) -> Classifier:
        gaussians = ClassGaussians(stats, self.covariance)
        whiteners = np.zeros((stats.n_classes, stats.dim, stats.dim))
        half_log_precision = np.zeros(stats.n_classes)
        pooled: Floats | None = None
        for label, covariance, dof in gaussians.class_covariances():
            if dof > 0:
                keep, add = gaussians.class_shrinkage(self.shrinkage, float(np.trace(covariance)))
                shrunk = keep * covariance
                shrunk[np.diag_indices_from(shrunk)] += add
            else:
                pooled = gaussians.pooled_covariance(self.shrinkage) if pooled is None else pooled
                shrunk = pooled
            whiteners[label] = _whitener(shrunk, label, stats)
            half_log_precision[label] = np.log(np.diagonal(whiteners[label])).sum()
        present, offset = gaussians.present, gaussians.global_mean
        means = np.where(present[:, None], gaussians.means - offset, 0.0)
        bias = np.where(present, gaussians.log_priors, 0.0) + half_log_precision
        return QuadraticClassifier(offset=offset, means=means, whiteners=whiteners, bias=bias, present=present)


def _whitener(covariance: Floats, label: int, stats: Statistics) -> Floats:
    """Return T, lower triangular with T Σ Tᵀ = I."""
    lower, info = lapack.dpotrf(covariance, lower=1, clean=1)
    if info == 0:
        inverse, info = lapack.dtrtri(lower, lower=1)
    if info != 0:
        raise NotEnoughDataError(
            f"the covariance of class {label} ({stats.counts[label]} samples, {stats.dim} dimensions) is singular: "
            "use more shrinkage, gh-dlr-qda or gh-lda"
        )
    return np.asarray(inverse)


PRESETS = (Preset("gh-qda", Qda, "QDA with a full covariance a class", "GH-OFL"),)
