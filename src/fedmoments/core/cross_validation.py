"""The ridge that generalised cross-validation asks for, from sums alone: one tridiagonal form serves every ridge."""

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh_tridiagonal, lapack

__all__ = ["gcv_ridge"]

Floats = NDArray[np.float64]


def gcv_ridge(gram: Floats, right: Floats, *, energy: float, n_samples: int) -> float:
    """Return the ridge λ that minimises generalised cross-validation, from sums alone.

    With W = (G + λI)⁻¹R, the training error of ridge regression is RSS = energy − 2 tr(WᵀR) + tr(WᵀGW) and its degrees
    of freedom are d − λ tr((G + λI)⁻¹); GCV(λ) = (RSS/N) / (1 − dof/N)². λ is sought among powers of ten times the mean
    eigenvalue tr(G)/d, ten steps a decade, so it scales with the squared features.

    Parameters
    ----------
    gram
        G = Σ x xᵀ, (d, d), both triangles filled.
    right
        R = Σ x yᵀ, (d, C).
    energy
        Σ ‖y‖² over samples: N for one-hot labels.
    n_samples
        N.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(50, 3)); y = X @ [[1.0], [0.0], [2.0]] + rng.normal(size=(50, 1))
    >>> bool(gcv_ridge(X.T @ X, X.T @ y, energy=float((y**2).sum()), n_samples=50) < 50)
    True
    """
    dim = len(gram)
    mean_eigenvalue = float(np.trace(gram)) / dim
    if mean_eigenvalue <= 0:
        return 0.0

    diagonal, beside, rotated = _tridiagonal(gram, right)
    values, vectors = eigh_tridiagonal(diagonal, beside)
    values = np.maximum(values, 0.0)
    energies = np.square(vectors.T @ rotated).sum(axis=1)
    ridges = mean_eigenvalue * 10.0 ** np.arange(-8.0, 2.05, 0.1)
    shifted = values + ridges[:, None]
    # With G = Σ eᵢvᵢvᵢᵀ, tr(WᵀR) = Σ ‖vᵢᵀR‖²/(eᵢ+λ) and tr(WᵀGW) = Σ eᵢ‖vᵢᵀR‖²/(eᵢ+λ)².
    rss = energy - (energies * (values + 2.0 * ridges[:, None]) / shifted**2).sum(axis=1)
    left = 1.0 - (values / shifted).sum(axis=1) / n_samples
    # Where nearly all degrees of freedom are spent, both parts of the ratio vanish and rounding decides.
    sound = left > 1e-3
    if not sound.any():
        return float(ridges[-1])
    scores = np.where(sound, rss / np.where(sound, left, 1.0) ** 2, np.inf)
    return float(ridges[np.argmin(scores)])


def _tridiagonal(matrix: Floats, right: Floats) -> tuple[Floats, Floats, Floats]:
    """Return the diagonals of T = QᵀMQ and QᵀR: no eigenvector of M itself is needed to know its products with R."""
    if len(matrix) == 1:
        return matrix[0], np.zeros(0), right
    size = int(lapack.dsytrd_lwork(len(matrix), lower=1)[0])
    reflectors, diagonal, beside, scales, _ = lapack.dsytrd(matrix, lower=1, lwork=size)
    rotated = right.copy()
    parts = ("L", "T", reflectors[1:, :-1], scales, right[1:])
    rotated[1:] = lapack.dormqr(*parts, int(lapack.dormqr(*parts, -1)[1][0]))[0]
    return diagonal, beside, rotated
