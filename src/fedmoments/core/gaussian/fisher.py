"""The Fisher subspace: the few directions in which classes differ most, measured by the spread inside classes.

With S_W the shrunk pooled covariance and S_B = Σ_c π_c (μ_c−μ_g)(μ_c−μ_g)ᵀ, the directions solve S_B v = λ S_W v. They
are scaled so that Vᵀ S_W V = I: in the subspace the pooled covariance is the identity, LDA measures plain Euclidean
distances, and naive Bayes with pooled variances *is* LDA.

S_B has rank C − 1 at most, so the problem is solved in min(C, d) dimensions: with S_W = LLᵀ and rows √π_c (μ_c−μ_g),
the left singular vectors U of H = L⁻¹Mᵀ (d, C) give V = L⁻ᵀU. H is not squared: one class that lies 10⁷ standard
deviations away would hide all others from each other.

**Law** LDA in all C − 1 Fisher dimensions is LDA in the full space.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular, svd

from fedmoments.core.gaussian.class_gaussians import ClassGaussians
from fedmoments.core.gaussian.shrinkage import Shrinkage
from fedmoments.core.linalg import EPSILON, lower_factor
from fedmoments.errors import InputError, NotEnoughDataError

__all__ = ["ENERGY", "MOST_DIRECTIONS", "FisherSubspace", "parse_directions"]

Floats = NDArray[np.float64]

#: Share of the Fisher energy Σλ that is kept, and most directions, by default (GH-OFL).
ENERGY = 0.995
MOST_DIRECTIONS = 256


def parse_directions(value: str | int | float) -> tuple[float, int | None]:
    """Return (least energy, most directions) of ``automatic``, ``all``, a number of directions or ``energy:SHARE``.

    Examples
    --------
    >>> parse_directions("automatic"), parse_directions("all"), parse_directions(16), parse_directions("energy:0.9")
    ((0.995, 256), (1.0, None), (1.0, 16), (0.9, None))
    """
    text = str(value)
    if text in ("automatic", "all"):
        return (ENERGY, MOST_DIRECTIONS) if text == "automatic" else (1.0, None)
    kind, _, share = text.partition(":")
    try:
        if share:
            if kind != "energy" or not 0.0 < float(share) <= 1.0:
                raise ValueError
            return float(share), None
        if int(text) < 1:
            raise ValueError
        return 1.0, int(text)
    except ValueError:
        raise InputError(
            "directions is automatic (99.5 % of the Fisher energy, at most 256), all, a number of directions from 1, "
            f"or energy:SHARE with 0 < SHARE <= 1; '{value}' arrived"
        ) from None


@dataclass(frozen=True, eq=False)
class FisherSubspace:
    """The leading Fisher directions of a Gaussian description.

    Parameters
    ----------
    basis
        V, (d, k), with Vᵀ S_W V = I; the first direction separates best.
    eigenvalues
        (r,) all that are not zero, falling; r ≤ min(C − 1, d), also those of directions that were left out.
    offset
        (d,) the global mean, which is subtracted first.
    means
        (C, k) class means in the subspace; 0 for classes without a sample.

    Examples
    --------
    >>> from fedmoments.core.statistics import Statistics, StatisticsSpec
    >>> X, y = np.array([[0.0, 0.0], [2.0, 0.1], [0.1, 5.0], [2.0, 5.1]]), [0, 0, 1, 1]
    >>> stats = Statistics.of(X, y, StatisticsSpec.of("gram"), n_classes=2)
    >>> fisher = FisherSubspace.of(ClassGaussians(stats), shrinkage="blend:0.05")
    >>> fisher.basis.shape, fisher.energy
    ((2, 1), array([1.]))
    >>> bool(np.sign(fisher.means[0, 0]) != np.sign(fisher.means[1, 0]))
    True
    """

    basis: Floats
    eigenvalues: Floats
    offset: Floats
    means: Floats

    @classmethod
    def of(
        cls,
        gaussians: ClassGaussians,
        *,
        shrinkage: Shrinkage | str | float = "automatic",
        directions: str | int | float = "automatic",
        within: Floats | None = None,
    ) -> "FisherSubspace":
        """Return the Fisher subspace of classes.

        Parameters
        ----------
        gaussians
            Means, priors and a pooled covariance, exact or free: client means alone suffice.
        shrinkage
            Of the pooled covariance.
        directions
            How many to keep; see :func:`parse_directions`.
        within
            S_W (d, d); the shrunk pooled covariance by default.
        """
        least, most = parse_directions(directions)
        offset, present = gaussians.global_mean, gaussians.present
        centred = np.where(present[:, None], gaussians.means - offset, 0.0)
        priors = gaussians.counts / gaussians.stats.n_samples
        lower = _factor(gaussians.pooled_covariance(shrinkage) if within is None else within)
        between = solve_triangular(lower, (centred * np.sqrt(priors)[:, None]).T, lower=True)
        # C means span C − 1 directions; one more is rounding.
        values, vectors = _left_singular(between, max(int(np.count_nonzero(present)) - 1, 0))
        energy = np.cumsum(values) / max(float(values.sum()), np.finfo(np.float64).tiny)
        # All of the energy is all directions, however little one of them has beside another.
        enough = len(values) if least >= 1.0 else int(np.searchsorted(energy, least - 1e-12)) + 1
        keep = min(enough, len(values), most or len(values))
        basis = solve_triangular(lower, vectors[:, :keep], lower=True, trans="T")
        return cls(basis=basis, eigenvalues=values, offset=offset, means=centred @ basis)

    @property
    def dim(self) -> int:
        """Number of directions k that were kept."""
        return int(self.basis.shape[1])

    @property
    def energy(self) -> Floats:
        """(r,) share of the Fisher energy Σλ in the first 1, 2, … directions."""
        total = float(self.eigenvalues.sum())
        return np.asarray(np.cumsum(self.eigenvalues) / (total if total > 0 else 1.0))

    def project(self, X: NDArray[np.floating]) -> Floats:
        """Return features (n, d) in the subspace, (n, k)."""
        return np.asarray((X - self.offset) @ self.basis)

    def covariance(self, full: Floats) -> Floats:
        """Return a covariance (d, d) in the subspace, Vᵀ Σ V (k, k)."""
        inside = self.basis.T @ full @ self.basis
        return np.asarray(0.5 * (inside + inside.T))


def _factor(covariance: Floats) -> Floats:
    lower = lower_factor(covariance)
    if lower is None:
        raise NotEnoughDataError(
            f"the pooled covariance ({len(covariance)} dimensions) is singular, so no Fisher subspace is defined: use "
            "more shrinkage"
        )
    return lower


def _left_singular(matrix: Floats, most: int) -> tuple[Floats, Floats]:
    """Return at most so many squared singular values, falling, and left singular vectors of (d, C), signs fixed."""
    vectors, values, _ = svd(matrix, full_matrices=False, overwrite_a=True)
    keep = values > max(float(values.max(initial=0.0)) * EPSILON * max(matrix.shape), 0.0)
    values, left = values[keep][:most], vectors[:, keep][:, :most]
    largest = np.abs(left).argmax(axis=0) if left.size else np.zeros(0, np.int64)
    return values**2, np.asarray(left * np.sign(left[largest, np.arange(left.shape[1])]))
