"""Class covariances shrunk towards the pooled one: Friedman's regularised discriminant analysis, and its kin.

Every kind blends a class covariance with the pooled one, Σ_c ← (1 − w_c)·Σ_c + w_c·Σ_pool, and differs in the share
w_c alone (ν_c degrees of freedom behind Σ_c, ν = Σ_c ν_c):

============  =========================  ================================================================
kind          share w_c of the pooled    what it is
============  =========================  ================================================================
automatic     (k + ν_c)/(k + 2ν_c)       k dimensions: half, and more where a class has few samples
none          0                          the class's own covariance, QDA
blend:w       w                          the same share for every class; 1 is LDA
friedman:λ    λν/((1 − λ)ν_c + λν)       ((1−λ)S_c + λS)/((1−λ)ν_c + λν) of scatters S; λ = 1 is LDA
borrow:κ      κ/(ν_c + κ)                (S_c + κ·Σ_pool)/(ν_c + κ): κ degrees of freedom are borrowed
============  =========================  ================================================================

A class without a covariance of its own (one sample, or one row of client means) has the pooled one, w_c = 1.

**Law** all shares are free of units: multiplying features by a constant changes none. **Law** w_c = 1 for every class
is LDA.

Whatever the shares, shrinkage adds the same to all classes: amounts that follow the shares would move log-determinants
against each other (BANKING77, whose classes have 35 to 187 samples: QDA with borrow:384 reaches 93.9 %, and 90.5 % that
way).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.gaussian.class_gaussians import ClassGaussians
from fedmoments.core.gaussian.fisher import FisherSubspace
from fedmoments.core.gaussian.projected import projected_class_covariances
from fedmoments.core.gaussian.shrinkage import Amount, Shrinkage

__all__ = ["PooledClasses", "Pooling", "fisher_class_covariances", "pooled_amounts"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Pooling(Amount):
    """A way to shrink class covariances towards the pooled one, and its amount.

    Examples
    --------
    >>> Pooling.parse("borrow:30").shares(np.array([10.0, 30.0, 0.0]), dim=5)
    array([0.75, 0.5 , 1.  ])
    >>> Pooling.parse("friedman:0.5").shares(np.array([10.0, 30.0]), dim=5)
    array([0.8       , 0.57142857])
    >>> Pooling.parse("automatic").shares(np.array([10.0, 30.0]), dim=5)
    array([0.6       , 0.53846154])
    >>> Pooling.parse(1.0)
    Pooling(kind='borrow', amount=1.0)
    """

    MOST: ClassVar[dict[str, float]] = {
        "automatic": 0.0,
        "none": 0.0,
        "blend": 1.0,
        "friedman": 1.0,
        "borrow": math.inf,
    }
    NUMBER = "borrow"
    ALLOWED = "pooling is one of automatic, none, blend:w, friedman:λ (0 ≤ w, λ ≤ 1), borrow:κ (κ ≥ 0)"

    def shares(self, dof: Floats, *, dim: int) -> Floats:
        """Return the share w_c (C,) of the pooled covariance in every class.

        Parameters
        ----------
        dof
            (C,) degrees of freedom ν_c; 0 where a class has no covariance of its own.
        dim
            k, dimensions of the covariances; 1 for variances.
        """
        own = dof > 0
        shares = np.ones(len(dof))
        if not own.any():
            return shares
        if self.kind == "automatic":
            shares[own] = (dim + dof[own]) / (dim + 2.0 * dof[own])
        elif self.kind == "friedman":
            total = float(dof.sum())
            shares[own] = self.amount * total / ((1.0 - self.amount) * dof[own] + self.amount * total)
        elif self.kind == "borrow":
            shares[own] = self.amount / (dof[own] + self.amount)
        else:
            shares[own] = self.amount
        return shares


@dataclass(frozen=True, eq=False)
class PooledClasses:
    """Class covariances that are first pooled, then shrunk to the identity: keep·Σ_c + add·I.

    What is added is the amount of a class covariance and that of the pooled one, weighted by the *mean* share: the same
    for all classes but in a blend. So all shares 0 is QDA and all shares 1 is LDA, whatever the shrinkage.

    Parameters
    ----------
    gaussians
        Means and class covariances of any source.
    shrinkage
        Towards the identity.
    shares
        (C,) of the pooled covariance in every class; see :meth:`Pooling.shares`.
    mean
        Mean of the shares over classes with a covariance of their own.
    pooled_amount
        What shrinkage would add to the pooled covariance.

    Examples
    --------
    >>> from fedmoments.core.statistics import Statistics, StatisticsSpec
    >>> X, y = np.array([[0.0], [2.0], [4.0], [9.0], [13.0], [17.0], [7.0]]), [0, 0, 0, 1, 1, 1, 2]
    >>> gaussians = ClassGaussians(Statistics.of(X, y, StatisticsSpec.of("class_grams"), n_classes=3))
    >>> pooled = PooledClasses.of(gaussians, "none", 0.5)
    >>> [(label, round(covariance.item(), 9), add) for label, covariance, add in pooled.covariances()]
    [(0, 4.0, 0.5), (1, 16.0, 0.5), (2, 10.0, 0.5)]
    """

    gaussians: ClassGaussians
    shrinkage: Shrinkage
    shares: Floats
    mean: float
    pooled_amount: float

    @classmethod
    def of(
        cls,
        gaussians: ClassGaussians,
        pooling: Pooling | str | float,
        shrinkage: Shrinkage | str | float,
        *,
        dim: int = 0,
        divisors: Floats | None = None,
    ) -> "PooledClasses":
        """Return the pooled classes of a Gaussian description.

        Parameters
        ----------
        gaussians
            Of any source.
        pooling, shrinkage
            Towards the pooled covariance, and towards the identity.
        dim
            Dimensions that automatic pooling counts; d where it is 0.
        divisors
            (C,) what divides the scatter of a class; its degrees of freedom by default.
        """
        _, dof = gaussians.class_variances()
        own = dof > 0
        behind = dof if divisors is None else np.where(own, divisors, 0.0)
        shares = Pooling.parse(pooling).shares(behind, dim=dim or gaussians.stats.dim)
        mean = float(shares[own].mean()) if own.any() else 1.0
        _, amount = pooled_amounts(gaussians, shrinkage)
        return cls(gaussians, Shrinkage.parse(shrinkage), shares, mean, amount)

    def amounts(self, trace: float) -> tuple[float, float]:
        """Return (keep, add) for the covariance of a class, pooled already, of that trace."""
        keep, amount = self.gaussians.class_shrinkage(self.shrinkage, trace)
        return keep, (1.0 - self.mean) * amount + self.mean * self.pooled_amount

    def covariances(self) -> Iterator[tuple[int, Floats, float]]:
        """Yield (label, keep·Σ_c (d, d), add) of every class present."""
        some = bool(self.shares[self.gaussians.present].any())
        pooled = self.gaussians.raw_covariance() if some else None
        for label, own, _ in self.gaussians.class_covariances():
            share = self.shares[label]
            covariance = own if pooled is None else (1.0 - share) * own + share * pooled
            keep, add = self.amounts(float(np.trace(covariance)))
            covariance *= keep
            yield label, covariance, add


def fisher_class_covariances(
    gaussians: ClassGaussians,
    fisher: FisherSubspace,
    pooling: Pooling | str | float = "automatic",
    shrinkage: Shrinkage | str | float = "automatic",
    *,
    diagonal: bool = False,
) -> Floats:
    """Return class covariances (C, k, k) in a Fisher subspace, pooled; the identity for classes without a sample.

    The pooled covariance is the identity there, so a class has (1 − w_c)·Vᵀ Σ̃_c V + w_c·I, with Σ̃_c shrunk by the very
    amounts of the pooled covariance.

    Parameters
    ----------
    gaussians
        Means and class covariances of any source.
    fisher
        Made from the same Gaussians with the same ``shrinkage``.
    pooling, shrinkage
        Towards the pooled covariance, and towards the identity of the full space.
    diagonal
        Return variances (C, k) only, in each direction; automatic pooling then counts one dimension.

    Examples
    --------
    >>> from fedmoments.core.statistics import Statistics, StatisticsSpec
    >>> X, y = np.array([[0.0, 0.0], [2.0, 0.1], [0.1, 5.0], [2.0, 5.4]]), [0, 0, 1, 1]
    >>> gaussians = ClassGaussians(Statistics.of(X, y, StatisticsSpec.of("class_grams"), n_classes=2))
    >>> fisher = FisherSubspace.of(gaussians)
    >>> fisher_class_covariances(gaussians, fisher, "blend:1").ravel()
    array([1., 1.])
    >>> bool(np.isclose(fisher_class_covariances(gaussians, fisher, "none").mean(), 1.0))
    True
    """
    shares = Pooling.parse(pooling).shares(gaussians.class_dof, dim=1 if diagonal else fisher.dim)
    unit = np.ones(fisher.dim) if diagonal else np.eye(fisher.dim)
    inside = np.repeat(unit[None], gaussians.stats.n_classes, axis=0)
    if (shares == 1.0).all():
        return inside
    keep, add = pooled_amounts(gaussians, shrinkage)
    identity = fisher.basis.T @ fisher.basis
    for label, covariance, _ in projected_class_covariances(gaussians, fisher.basis):
        share = shares[label]
        if share < 1.0:
            own = keep * covariance + add * identity
            inside[label] *= share
            inside[label] += (1.0 - share) * (np.diagonal(own) if diagonal else own)
    return inside


def pooled_amounts(gaussians: ClassGaussians, shrinkage: Shrinkage | str | float) -> tuple[float, float]:
    """Return (keep, add) of the pooled covariance.

    Examples
    --------
    >>> from fedmoments.core.statistics import Statistics, StatisticsSpec
    >>> stats = Statistics.of([[0.0], [2.0]], [0, 0], StatisticsSpec.of("class_grams"), n_classes=1)
    >>> pooled_amounts(ClassGaussians(stats), "absolute:0.5")
    (1.0, 0.5)
    """
    total = float(gaussians.class_dof.sum())
    trace = gaussians.class_trace / total if total > 0 else 0.0
    return gaussians.amounts(shrinkage, trace=trace, dof=total)
