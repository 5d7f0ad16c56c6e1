"""How well the pooled covariance is conditioned, and in how many directions it spreads, before and after shrinkage.

With eigenvalues e_i and shares p_i = e_i/Σe,

- the condition number is max e / min e, infinite (reported as None) while the covariance is singular;
- the effective rank is exp(−Σ p log p), the exponential of the entropy of the shares: d when all directions spread
  alike, 1 when there is only one;
- the participation ratio is tr(Σ)²/tr(Σ²) = 1/Σp², which counts small directions for less.

Shrinkage keep·Σ + add·I maps e to keep·e + add, so one decomposition serves both.

How many Fisher directions are needed: energy, and LDA's accuracy, of the first 2, 4, 8, … (GH-OFL App. D, Table 10).

In the Fisher space the pooled covariance is the identity, so LDA in the first k directions scores
z·μ_c − ½‖μ_c‖² + log π_c over k coordinates: one projection of the test samples serves every k.

Priors π are those of the preset on the same covariance: of the data with an exact one (``gh-lda``), balanced with a
free one (``lda-free``), which is too large under feature shift, so that the priors of the data would decide alone.

**Law** with all directions LDA is LDA in the full space, which is fitted for comparison.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from fedmoments.core.gaussian import ClassGaussians, FisherSubspace, Shrinkage
from fedmoments.core.heads.lda import Lda
from fedmoments.core.linalg import EPSILON, blocks

__all__ = [
    "ENERGY",
    "Conditioning",
    "FisherCurve",
    "HeldOut",
    "Spectrum",
    "fisher_curve",
    "priors_of",
    "spectrum_of",
    "steps",
]


Floats = NDArray[np.float64]
#: Features (n, d) and labels (n,) that were not measured.
HeldOut = tuple[NDArray[np.floating], NDArray[np.integer]]

#: Share of the energy that GH-OFL keeps.
ENERGY = 0.995


def priors_of(source: str) -> str:
    """Return the priors that LDA has on a covariance, as its preset has them.

    Examples
    --------
    >>> priors_of("exact"), priors_of("free")
    ('data', 'balanced')
    """
    return "balanced" if source == "free" else "data"


def steps(directions: int) -> tuple[int, ...]:
    """Return 2, 4, 8, … and all.

    Examples
    --------
    >>> steps(76), steps(4), steps(1)
    ((2, 4, 8, 16, 32, 64, 76), (2, 4), (1,))
    """
    powers = (2**i for i in range(1, max(directions, 1).bit_length()))
    return tuple(dict.fromkeys([*(power for power in powers if power < directions), directions]))


@dataclass(frozen=True)
class FisherCurve:
    """What the first Fisher directions keep.

    Parameters
    ----------
    source
        Where the covariance comes from: ``exact`` or ``free``.
    directions
        2, 4, 8, … and all.
    energy
        Share of Σλ in the first so many directions.
    enough
        Least directions with 99.5 % of the energy.
    accuracy
        Of LDA in the first so many directions on test samples; None without any.
    full_accuracy
        Of LDA in the full space; None without test samples.
    priors
        Of that LDA: ``data`` or ``balanced``.
    """

    source: str
    directions: tuple[int, ...]
    energy: tuple[float, ...]
    enough: int
    accuracy: tuple[float, ...] | None = None
    full_accuracy: float | None = None
    priors: str = "data"


def fisher_curve(
    gaussians: ClassGaussians,
    fisher: FisherSubspace,
    *,
    shrinkage: Shrinkage | str | float = "automatic",
    test: HeldOut | None = None,
) -> FisherCurve:
    """Return what the first 2, 4, 8, … directions of a Fisher subspace keep.

    Parameters
    ----------
    gaussians
        Classes with a pooled covariance, exact or free.
    fisher
        Their Fisher subspace with all its directions, at the same shrinkage.
    shrinkage
        Of the full-space LDA that is compared.
    test
        Features and labels to measure accuracy on.

    Examples
    --------
    >>> from fedmoments.core.statistics import Statistics, StatisticsSpec
    >>> y = np.arange(300) % 3
    >>> X = np.random.default_rng(0).normal(size=(300, 6)) + 4 * np.eye(3, 6)[y]
    >>> stats = Statistics.of(X[:200], y[:200], StatisticsSpec.of("gram"), n_classes=3)
    >>> classes = ClassGaussians(stats)
    >>> curve = fisher_curve(classes, FisherSubspace.of(classes, directions="all"), test=(X[200:], y[200:]))
    >>> curve.directions, curve.energy, curve.accuracy[-1] == curve.full_accuracy > 0.9
    ((2,), (1.0,), True)
    """
    priors = priors_of(gaussians.source)
    if not len(fisher.eigenvalues):  # one class, or all means alike
        return FisherCurve(gaussians.source, (), (), 0, priors=priors)
    sizes = steps(len(fisher.eigenvalues))
    energy = (*(float(fisher.energy[k - 1]) for k in sizes[:-1]), 1.0)
    enough = int(np.searchsorted(fisher.energy, ENERGY - 1e-12)) + 1
    enough = min(enough, len(fisher.eigenvalues))
    if test is None or not len(test[1]):
        return FisherCurve(gaussians.source, sizes, energy, enough, priors=priors)
    X, y = test
    right = np.zeros(len(sizes))
    for block in blocks(len(y)):
        right += [(predicted == y[block]).sum() for predicted in _predicted(gaussians, fisher, sizes, X[block])]
    full = Lda(gaussians.source, shrinkage, priors).fit(gaussians.stats)
    hits = sum(int((full.predict(X[block]) == y[block]).sum()) for block in blocks(len(y)))
    accuracy = tuple((right / len(y)).tolist())
    return FisherCurve(gaussians.source, sizes, energy, enough, accuracy, hits / len(y), priors)


def _predicted(
    gaussians: ClassGaussians, fisher: FisherSubspace, sizes: tuple[int, ...], X: NDArray[np.floating]
) -> Iterable[NDArray[np.int64]]:
    """Yield the labels (n,) that LDA finds in the first so many directions, adding directions as it goes."""
    Z, means = fisher.project(X), fisher.means
    start_scores = np.where(gaussians.present, gaussians.prior_scores(priors_of(gaussians.source)), -np.inf)
    scores = np.tile(start_scores, (len(Z), 1))
    for start, stop in pairwise((0, *sizes)):
        mine = means[:, start:stop]
        scores += Z[:, start:stop] @ mine.T
        scores -= 0.5 * np.einsum("ck,ck->c", mine, mine)
        yield np.asarray(scores.argmax(axis=1), dtype=np.int64)


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
        As it was requested.
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
