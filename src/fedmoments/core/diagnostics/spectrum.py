"""How well the pooled covariance is conditioned, and in how many directions it spreads, before and after shrinkage.

With eigenvalues e_i and shares p_i = e_i/Σe,

- the condition number is max e / min e, infinite (reported as None) while the covariance is singular;
- the effective rank is exp(−Σ p log p), the exponential of the entropy of the shares: d when all directions spread
  alike, 1 when there is only one;
- the participation ratio is tr(Σ)²/tr(Σ²) = 1/Σp², which counts small directions for less.

Shrinkage keep·Σ + add·I maps e to keep·e + add, so one decomposition serves both.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from fedmoments.core.gaussian import ClassGaussians, Shrinkage
from fedmoments.core.linalg import EPSILON

__all__ = ["Conditioning", "Spectrum", "spectrum_of"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Conditioning:
    """What eigenvalues say of a covariance.

    Parameters
    ----------
    condition
        Largest over smallest eigenvalue, or None while the smallest is zero to working precision.
    rank
        Eigenvalues that are not zero to working precision.
    effective_rank
        Exponential of the entropy of the eigenvalues.
    participation
        tr(Σ)²/tr(Σ²).

    Examples
    --------
    >>> Conditioning.of(np.array([1.0, 1.0, 2.0]))
    Conditioning(condition=2.0, rank=3, effective_rank=2.828..., participation=2.666...)
    >>> Conditioning.of(np.array([0.0, 0.0, 2.0])).condition is None
    True
    """

    condition: float | None
    rank: int
    effective_rank: float
    participation: float

    @classmethod
    def of(cls, eigenvalues: Floats) -> "Conditioning":
        """Return the conditioning of a covariance with these eigenvalues (d,), in any order."""
        values = np.maximum(eigenvalues, 0.0)
        largest = float(values.max(initial=0.0))
        positive = values > 8 * EPSILON * len(values) * largest
        if not positive.any():
            return cls(None, 0, 0.0, 0.0)
        shares = values[positive] / values[positive].sum()
        condition = largest / float(values.min()) if positive.all() else None
        entropy = float(-(shares * np.log(shares)).sum())
        return cls(condition, int(positive.sum()), float(np.exp(entropy)), float(1.0 / (shares**2).sum()))


@dataclass(frozen=True)
class Spectrum:
    """Conditioning of a pooled covariance.

    Parameters
    ----------
    source
        Where the covariance comes from: ``exact`` or ``free``.
    shrinkage
        As it was asked for.
    dof
        ν, degrees of freedom behind it: N − C of an exact one, Σ(K_c − 1) of a free one.
    before, after
        Shrinkage.
    whitened_trace
        tr(Σ̃⁻¹Σ): about in how many dimensions the noise of a class mean counts, of at most d.

    Examples
    --------
    See :func:`spectrum_of`.
    """

    source: str
    shrinkage: str
    dof: float
    before: Conditioning
    after: Conditioning
    whitened_trace: float


def spectrum_of(gaussians: ClassGaussians, shrinkage: Shrinkage | str | float = "automatic") -> Spectrum:
    """Return the conditioning of a pooled within-class covariance.

    Parameters
    ----------
    gaussians
        Classes with a pooled covariance.
    shrinkage
        What is added to its diagonal.

    Examples
    --------
    >>> from fedmoments.core.statistics import Statistics, StatisticsSpec
    >>> X = np.random.default_rng(0).normal(size=(12, 20))
    >>> stats = Statistics.of(X, np.arange(12) % 2, StatisticsSpec.of("gram"), n_classes=2)
    >>> spectrum = spectrum_of(ClassGaussians(stats))
    >>> spectrum.before.condition, spectrum.before.rank, spectrum.after.condition < 100
    (None, 10, True)
    """
    scatter = gaussians.scatter
    shrink = Shrinkage.parse(shrinkage)
    keep, add = shrink.amounts(trace=scatter.trace, dim=scatter.dim, dof=scatter.dof)
    values = np.maximum(eigh(gaussians.pooled_covariance("none"), eigvals_only=True, driver="evd"), 0.0)
    after = keep * values + add
    positive = after > 0
    whitened = float((values[positive] / after[positive]).sum())
    return Spectrum(
        gaussians.source, str(shrink), scatter.dof, Conditioning.of(values), Conditioning.of(after), whitened
    )
