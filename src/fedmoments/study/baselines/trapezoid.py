"""A positive semi-definite matrix of low rank in as few numbers as it has degrees of freedom.

M (d, d) of rank at most r is RᵀR with R (r, d) upper trapezoidal, R[i, j] = 0 for j < i: r(2d − r + 1)/2 numbers. For
r = d these are the d(d+1)/2 of a packed symmetric matrix; the covariance of n < d samples, rank n − 1, takes far fewer.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import qr

__all__ = ["centred_rows", "pack_factor", "trapezoid_size", "unpack_factor"]

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
