"""DLR-QDA of GH-OFL (App. A.2): QDA with Σ_c ≈ diag(D_c) + U_c U_cᵀ, U_c of rank r.

With eigenpairs of the class covariance, U_c = V_r √Λ_r and D_c = diag(Σ_c − U_c U_cᵀ) + shrinkage, so that the diagonal
of the covariance is kept whatever the rank. **Law** r = 0 is naive Bayes, r = d is full QDA with the same pooling and
shrinkage (automatic pooling apart, which full QDA grades by direction: few eigenvectors could not hold the result).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky, eigh, solve_triangular

from fedmoments.core.classifier import Classifier, LowRankClassifier
from fedmoments.core.gaussian import ClassGaussians, Pooling, Shrinkage, covariance_source
from fedmoments.core.gaussian.pooling import PooledClasses
from fedmoments.core.heads.head import Head
from fedmoments.core.heads.registry import Preset
from fedmoments.core.linalg import EPSILON
from fedmoments.core.statistics import Statistics, StatisticsSpec
from fedmoments.errors import InputError, NotEnoughDataError

__all__ = ["PRESETS", "LowRankQda"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class LowRankQda(Head):
    """Gaussian classes with a diagonal-plus-low-rank covariance each.

    Parameters
    ----------
    rank
        r ≥ 0; more than d means d.
    covariance
        ``exact`` (class grams) or ``free`` (client means).
    shrinkage
        Of every class covariance towards the identity, as in QDA.
    pooling
        Of every class covariance towards the pooled one, before eigenvectors are sought; see
        :class:`fedmoments.core.gaussian.Pooling`. ``automatic`` is half, and more where classes have few samples for r
        directions. ``none`` is GH-OFL's DLR-QDA.

    Examples
    --------
    >>> X, y = np.array([[0.0, 0.0], [0.1, 0.2], [0.2, 0.1], [3.0, 9.0], [9.0, 3.0], [4.0, 4.0]]), [0, 0, 0, 1, 1, 1]
    >>> stats = Statistics.of(X, y, StatisticsSpec.of("class_grams"), n_classes=2)
    >>> LowRankQda(rank=1, shrinkage="blend:0.1", pooling="none").fit(stats).predict([[0.1, 0.1], [2.0, 2.0]])
    array([0, 1])
    """

    slow = True

    rank: int = 8
    covariance: str = "exact"
    shrinkage: Shrinkage | str | float = "automatic"
    pooling: Pooling | str | float = "automatic"

    def __post_init__(self) -> None:
        Shrinkage.parse(self.shrinkage)
        Pooling.parse(self.pooling)
        covariance_source(self.covariance)
        rank: object = self.rank
        if not isinstance(rank, int | np.integer) or rank < 0:
            raise InputError(f"rank is a whole number from 0, not {rank!r}")

    @property
    def needs(self) -> StatisticsSpec:
        return covariance_source(self.covariance).class_needs

    def solve(self, stats: Statistics) -> Classifier:
        gaussians = ClassGaussians(stats, self.covariance)
        rank = min(self.rank, stats.dim)
        precisions = np.ones((stats.n_classes, stats.dim))
        projections = np.zeros((stats.n_classes, rank, stats.dim))
        half_log_det = np.zeros(stats.n_classes)
        classes = PooledClasses.of(gaussians, self.pooling, self.shrinkage, dim=max(rank, 1))
        for label, spread, add in classes.covariances():
            if not float(np.trace(spread)) + add > 0:
                raise NotEnoughDataError(
                    f"the covariance of class {label} ({stats.counts[label]} samples, {stats.dim} dimensions) is zero: "
                    "its samples do not differ; use an absolute shrinkage or gh-nb"
                )
            precisions[label], projections[label], half_log_det[label] = _diagonal_plus_low_rank(spread, add, rank)
        gaussians.check_variances(1.0 / precisions, gaussians.class_variances()[1])
        present, offset = gaussians.present, gaussians.global_mean
        return LowRankClassifier(
            offset=offset,
            means=np.where(present[:, None], gaussians.means - offset, 0.0),
            precisions=precisions,
            projections=projections,
            bias=gaussians.prior_scores("data", self.shrinkage) - half_log_det,
            present=present,
        )


def _diagonal_plus_low_rank(covariance: Floats, add: float, rank: int) -> tuple[Floats, Floats, float]:
    """Return 1/D (d,), P (r, d) = M⁻¹ᐟ²UᵀD⁻¹ and ½ log|D + UUᵀ| of a covariance plus ``add``·I."""
    dim = len(covariance)
    factors = np.zeros((dim, 0))
    if rank:
        values, vectors = eigh(covariance, subset_by_index=(dim - rank, dim - 1))
        values = np.maximum(values, 0.0)
        if rank == dim:  # leave half of the least eigenvalue to D: with nothing in D, Woodbury would cancel all digits
            values -= 0.5 * values[0]
        factors = vectors * np.sqrt(values)
    diagonal = np.diagonal(covariance) - np.einsum("dr,dr->d", factors, factors)
    # What eigenvectors do not hold is never negative but for rounding; without any shrinkage it may vanish. A least
    # share of √ε costs as many digits as Woodbury's difference of two numbers divided by it.
    least = max(float(np.diagonal(covariance).max()) * EPSILON**0.5, np.finfo(np.float64).tiny)
    diagonal = np.maximum(np.maximum(diagonal, 0.0) + add, least)
    weighted = factors / diagonal[:, None]
    lower = cholesky(np.eye(factors.shape[1]) + factors.T @ weighted, lower=True)
    projection = solve_triangular(lower, weighted.T, lower=True)
    half_log_det = 0.5 * float(np.log(diagonal).sum()) + float(np.log(np.diagonal(lower)).sum())
    return 1.0 / diagonal, projection, half_log_det


PRESETS = (Preset("gh-dlr-qda", LowRankQda, "QDA with a diagonal-plus-low-rank covariance a class", "GH-OFL"),)
