"""Gaussian mixtures by expectation maximisation, with a floor under every variance.

The floor is a constraint, not an addition: the M-step takes max(variance, floor), and for full covariances the
eigenvalues' max with the floor, which maximise the expected likelihood among the allowed ones. **Law** so the
likelihood never falls. The start is k-means++ (Arthur and Vassilvitskii 2007): samples belong to their nearest seed.

A full covariance is kept as floor·I + UᵀU with U (r, d) from a singular value decomposition of the responsible samples:
no (d, d) matrix is formed when a class has fewer samples than dimensions.

A positive semi-definite matrix of low rank in as few numbers as it has degrees of freedom.

M (d, d) of rank at most r is RᵀR with R (r, d) upper trapezoidal, R[i, j] = 0 for j < i: r(2d − r + 1)/2 numbers. For
r = d these are the d(d+1)/2 of a packed symmetric matrix; the covariance of n < d samples, rank n − 1, takes far fewer.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import qr, svd
from scipy.special import logsumexp

from fedmoments.study.baselines.baseline import check_choice

__all__ = ["COVARIANCES", "Mixture", "centred_rows", "fit_mixture", "pack_factor", "trapezoid_size", "unpack_factor"]


Floats = NDArray[np.float64]


def trapezoid_size(rank: int, dim: int) -> int:
    """Return r(2d − r + 1)/2, r at most d.

    Examples
    --------
    >>> trapezoid_size(1, 4), trapezoid_size(4, 4), trapezoid_size(9, 4)
    (4, 10, 10)
    """
    rank = min(rank, dim)
    return rank * (2 * dim - rank + 1) // 2


def pack_factor(rows: Floats, rank: int) -> Floats:
    """Return the numbers of R, RᵀR = rowsᵀ·rows, for rows (m, d) of rank at most ``rank`` ≥ m or m ≥ ``rank`` = d.

    Examples
    --------
    >>> rows = np.array([[3.0, 1.0], [4.0, 2.0], [0.0, 2.0]])
    >>> R = unpack_factor(pack_factor(rows, 2), 2, 2)
    >>> bool(np.allclose(R.T @ R, rows.T @ rows))
    True
    """
    dim = rows.shape[1]
    rank = min(rank, dim)
    packed = np.zeros((rank, dim))
    if len(rows):
        factor = qr(rows, mode="r")[0][:rank]
        packed[: len(factor)] = factor
    return packed[np.triu_indices(rank, m=dim)]


def unpack_factor(packed: Floats, rank: int, dim: int) -> Floats:
    """Return R (r, d), r at most d.

    Examples
    --------
    >>> unpack_factor(np.array([1.0, 2.0, 3.0]), 2, 2)
    array([[1., 2.],
           [0., 3.]])
    """
    rank = min(rank, dim)
    factor = np.zeros((rank, dim))
    factor[np.triu_indices(rank, m=dim)] = packed
    return factor


def centred_rows(X: Floats) -> Floats:
    """Return rows (n − 1, d) whose Gram is the centred scatter Σ (x − x̄)(x − x̄)ᵀ, by Helmert's contrasts.

    Examples
    --------
    >>> X = np.array([[1.0], [2.0], [6.0]])
    >>> bool(np.isclose((centred_rows(X) ** 2).sum(), ((X - 3.0) ** 2).sum()))
    True
    """
    steps = np.arange(1.0, len(X))[:, None]
    near = X - X[0] if len(X) else X
    return np.asarray((np.cumsum(near[:-1], axis=0) - steps * near[1:]) / np.sqrt(steps * (steps + 1.0)))


COVARIANCES = ("spherical", "diagonal", "full")


@dataclass(frozen=True, eq=False)
class Mixture:
    """A mixture of Gaussians.

    Parameters
    ----------
    weights
        (g,), summing to 1.
    means
        (g, d).
    variances
        (g, 1) if spherical, (g, d) if diagonal; for full covariances (g, 1), the floor.
    factors
        U of every component, (r, d) each, for full covariances; otherwise empty.
    log_likelihoods
        Mean log-density of the samples after the start and after every round of EM.
    """

    weights: Floats
    means: Floats
    variances: Floats
    factors: tuple[Floats, ...] = ()
    log_likelihoods: tuple[float, ...] = field(default=(), repr=False)

    def log_densities(self, X: Floats) -> Floats:
        """Return log (weight · density) of every sample and component, (n, g).

        Examples
        --------
        >>> one = Mixture(np.ones(1), np.zeros((1, 1)), np.ones((1, 1)))
        >>> one.log_densities(np.array([[0.0], [1.0]])).round(3)
        array([[-0.919],
               [-1.419]])
        """
        dim = X.shape[1]
        # Around the components' middle the expanded square is two matrix products that do not cancel.
        middle = self.means.mean(axis=0)
        Z, means = X - middle, self.means - middle
        precisions = np.broadcast_to(1.0 / self.variances, means.shape)
        squares = np.square(Z) @ precisions.T - 2.0 * (Z @ (means * precisions).T)
        squares += np.einsum("gd,gd->g", np.square(means), precisions)
        log_dets = -np.log(precisions).sum(axis=1)
        for g, rows in enumerate(self.factors):
            # U's rows are orthogonal: eigenvalue floor + ‖u‖² along each, floor everywhere else
            floor, along = float(self.variances[g, 0]), np.einsum("rd,rd->r", rows, rows)
            squares[:, g] -= np.square((Z - means[g]) @ rows.T) @ (1.0 / (floor * (floor + along)))
            log_dets[g] += float(np.log1p(along / floor).sum())
        logs = -0.5 * (squares + log_dets + dim * np.log(2 * np.pi))
        with np.errstate(divide="ignore"):
            return np.asarray(logs + np.log(self.weights))


def fit_mixture(
    X: Floats,
    components: int,
    *,
    covariance: str,
    floor: float,
    rng: np.random.Generator,
    tolerance: float = 1e-3,
    most_rounds: int = 50,
) -> Mixture:
    """Fit a mixture of ``components`` Gaussians, at most one a sample.

    Parameters
    ----------
    X
        (n, d), n ≥ 1.
    components
        g ≥ 1.
    covariance
        ``spherical``, ``diagonal`` or ``full``.
    floor
        Least variance in any direction, positive.
    rng
        Draws the seeds.
    tolerance
        EM stops when a round lifts the mean log-density by less, or after ``most_rounds``.

    Examples
    --------
    >>> X = np.array([[0.0], [0.2], [9.0], [9.2]])
    >>> fitted = fit_mixture(X, 2, covariance="diagonal", floor=1e-4, rng=np.random.default_rng(0))
    >>> np.sort(fitted.means.ravel()).round(3)
    array([0.1, 9.1])
    """
    check_choice("covariance", covariance, COVARIANCES)
    components = min(components, len(X))
    belongs = np.zeros((len(X), components))
    belongs[np.arange(len(X)), _nearest_seed(X, components, rng)] = 1.0
    mixture = _maximise(X, belongs, covariance, floor)
    history: list[float] = []
    for _ in range(most_rounds):
        joint = mixture.log_densities(X)
        total = logsumexp(joint, axis=1)
        history.append(float(total.mean()))
        if components == 1 or (len(history) > 1 and history[-1] - history[-2] < tolerance):
            break
        mixture = _maximise(X, np.exp(joint - total[:, None]), covariance, floor)
    return Mixture(mixture.weights, mixture.means, mixture.variances, mixture.factors, tuple(history))


def _nearest_seed(X: Floats, components: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return the nearest of k-means++ seeds for every sample: each seed drawn by squared distance from the earlier."""
    squares = np.empty((len(X), components))
    squares[:, 0] = np.square(X - X[rng.integers(len(X))]).sum(axis=1)
    for g in range(1, components):
        nearest = squares[:, :g].min(axis=1)
        total = nearest.sum()
        # samples that are all alike leave nothing to draw by
        pick = rng.choice(len(X), p=nearest / total) if total > 0 else rng.integers(len(X))
        squares[:, g] = np.square(X - X[pick]).sum(axis=1)
    return np.asarray(squares.argmin(axis=1))


def _maximise(X: Floats, belongs: Floats, covariance: str, floor: float) -> Mixture:
    """Return the M-step: the mixture that fits samples best when each belongs to components in these shares (n, g)."""
    sizes = belongs.sum(axis=0)
    safe = np.where(sizes > 0, sizes, 1.0)
    middle = X.mean(axis=0)
    # a component that nothing belongs to (copies of one sample leave some) rests in the middle with weight 0
    means = np.where(sizes[:, None] > 0, (belongs.T @ X) / safe[:, None], middle)
    weights = sizes / len(X)
    if covariance == "full":
        factors = tuple(_factor(X, means[g], belongs[:, g] / safe[g], floor) for g in range(len(means)))
        return Mixture(weights, means, np.full((len(means), 1), floor), factors)
    variances = (belongs.T @ np.square(X - middle)) / safe[:, None] - np.square(means - middle)
    if covariance == "spherical":
        variances = variances.mean(axis=1, keepdims=True)
    return Mixture(weights, means, np.maximum(variances, floor))


def _factor(X: Floats, mean: Floats, shares: Floats, floor: float) -> Floats:
    """Return U with floor·I + UᵀU = the weighted covariance, its eigenvalues lifted to the floor."""
    held = shares > 0
    if not held.any():
        return np.zeros((0, X.shape[1]))
    _, values, vectors = svd((X[held] - mean) * np.sqrt(shares[held])[:, None], full_matrices=False)
    above = np.square(values) > floor
    return np.asarray(vectors[above] * np.sqrt(np.square(values[above]) - floor)[:, None])
