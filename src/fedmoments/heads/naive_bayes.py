"""Gaussian naive Bayes, GH-NB_diag: every class has its own variance in every dimension.

Var_c = (scatter_c + κ·Var_pool)/(ν_c + κ): κ degrees of freedom are borrowed from the pooled variance, so that a
class of one sample (ν_c = 0) has the pooled variance. ν_c = N_c − 1 from squares, K_c − 1 from client means. No
variance falls below ``floor`` times the largest pooled variance.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedmoments.classifier import Classifier, DiagonalClassifier
from fedmoments.errors import InputError
from fedmoments.gaussian import ClassGaussians, Shrinkage, covariance_source
from fedmoments.heads.head import Head, Preset
from fedmoments.statistics import Statistics, StatisticsSpec

__all__ = ["PRESETS", "NaiveBayes"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class NaiveBayes(Head):
    """Gaussian classes with a diagonal covariance each.

    Parameters
    ----------
    covariance
        ``exact`` (class squares), ``spherical`` (class norms) or ``free`` (client means).
    pooling
        κ ≥ 0, degrees of freedom borrowed from the pooled variance.
    shrinkage
        Added to every variance of a class, as QDA adds it to the diagonal of a class covariance.
    floor
        Least variance, as a share of the largest pooled one.
    unbiased
        Divide by N_c − 1 (K_c − 1 for free ones); False divides by N_c, the maximum-likelihood variance.

    Examples
    --------
    >>> X, y = np.array([[0.0], [0.2], [3.0], [9.0]]), [0, 0, 1, 1]
    >>> stats = Statistics.of(X, y, StatisticsSpec.of("class_squares"), n_classes=2)
    >>> NaiveBayes(pooling=0.0).fit(stats).predict([[0.1], [1.0]])
    array([0, 1])
    """

    covariance: str = "exact"
    pooling: float = 1.0
    shrinkage: Shrinkage | str | float = "none"
    floor: float = 1e-9
    unbiased: bool = True

    def __post_init__(self) -> None:
        Shrinkage.parse(self.shrinkage)
        covariance_source(self.covariance)
        if not (self.pooling >= 0 and self.floor >= 0):
            raise InputError(f"pooling and floor must be 0 or more; {self.pooling} and {self.floor} arrived")

    @property
    def needs(self) -> StatisticsSpec:
        return covariance_source(self.covariance).variance_needs

    def solve(self, stats: Statistics) -> Classifier:
        gaussians = ClassGaussians(stats, self.covariance)
        variances = self._variances(gaussians)
        precisions = 1.0 / variances
        offset = gaussians.global_mean
        means = np.where(gaussians.present[:, None], gaussians.means - offset, 0.0)
        bias = np.where(gaussians.present, gaussians.log_priors, 0.0) - 0.5 * np.log(variances).sum(axis=1)
        return DiagonalClassifier(
            offset=offset, means=means, precisions=precisions, bias=bias, present=gaussians.present
        )

    def _variances(self, gaussians: ClassGaussians) -> Floats:
        """Return the variance (C, d) of every class and dimension, positive everywhere."""
        scatter, dof = gaussians.class_variances()
        pooled = scatter.sum(axis=0) / max(float(dof.sum()), 1.0)
        divisor = dof + (0.0 if self.unbiased else 1.0) * gaussians.present + self.pooling
        variances = (scatter + self.pooling * pooled) / np.where(divisor > 0, divisor, 1.0)[:, None]
        if Shrinkage.parse(self.shrinkage).kind != "none":
            for label in np.flatnonzero(dof > 0):
                keep, add = gaussians.class_shrinkage(self.shrinkage, float(variances[label].sum()))
                variances[label] = keep * variances[label] + add
        return np.asarray(np.maximum(variances, self.floor * _scale(pooled, gaussians)))


def _scale(pooled: Floats, gaussians: ClassGaussians) -> float:
    """Return a positive variance to measure the floor by: within classes, else between them, else 1."""
    present = gaussians.means[gaussians.present]
    return float(pooled.max()) or float(present.var(axis=0).max()) or 1.0


PRESETS = (
    Preset("gh-nb", NaiveBayes, "naive Bayes with class variances", "GH-OFL"),
    Preset(
        "nb-free",
        NaiveBayes,
        "naive Bayes on the free variances of client means",
        "new here, after FedCOF",
        {"covariance": "free"},
    ),
)
