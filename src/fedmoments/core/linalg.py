"""Dense kernels that everything above stands on: packed symmetric matrices, Gram products, positive solves.

A symmetric matrix M (d, d) travels and is stored *packed*: its d(d+1)/2 entries M[i, j], i <= j, ordered by
column j of the upper triangle (the order of LAPACK's ``uplo='U'``): M00, M01, M11, M02, M12, M22, …

All kernels compute in float64, whatever arrives: ``B − Σ N μ μᵀ`` cancels, and float32 loses definiteness there.
"""

from collections.abc import Iterator
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, eigh, lapack

from fedmoments.core.cross_validation import gcv_ridge
from fedmoments.errors import InputError

__all__ = [
    "BLOCK_ROWS",
    "add_gram",
    "add_packed",
    "blocks",
    "gcv_ridge",
    "least_eigenvalue",
    "low_rank_factor",
    "lower_factor",
    "new_gram",
    "pack_symmetric",
    "packed_diagonal",
    "packed_size",
    "packed_trace",
    "solve_definite",
    "solve_positive",
    "solve_rows_plus_ridge",
    "symmetrize_upper",
    "unpack_symmetric",
    "unpacked_dim",
]

Floats = NDArray[np.float64]

#: Rows of a feature matrix that are widened to float64 and multiplied at once: large enough for BLAS, small in memory.
BLOCK_ROWS = 2048

#: Eigenvalues below this share of the largest, times the dimension, count as zero: the only jitter-like constant here.
EPSILON = float(np.finfo(np.float64).eps)
#: LAPACK's eigenvalues of a singular matrix, and the inverse's norm estimated from its factor, err by up to 3 of them.
_NOISE = 8 * EPSILON


def packed_size(dim: int) -> int:
    """Return d(d+1)/2, how many numbers a packed symmetric (d, d) matrix has.

    Examples
    --------
    >>> packed_size(3)
    6
    """
    return dim * (dim + 1) // 2


def unpacked_dim(size: int) -> int:
    """Return d of a packed matrix of ``size`` numbers.

    Examples
    --------
    >>> unpacked_dim(6)
    3
    """
    dim = int((np.sqrt(8 * size + 1) - 1) / 2)
    if packed_size(dim) != size:
        raise InputError(f"a packed symmetric matrix has d(d+1)/2 numbers for a whole d, but {size} arrived")
    return dim


def pack_symmetric(matrix: NDArray[np.floating]) -> Floats:
    """Pack the upper triangle of a symmetric matrix, (d, d) -> (d(d+1)/2,); the lower triangle is not read.

    Examples
    --------
    >>> pack_symmetric(np.array([[1.0, 2.0], [2.0, 5.0]]))
    array([1., 2., 5.])
    """
    packed, _ = lapack.dtrttp(np.asfortranarray(matrix, dtype=np.float64), uplo="U")
    return np.asarray(packed)


def unpack_symmetric(packed: NDArray[np.floating]) -> Floats:
    """Undo :func:`pack_symmetric`, (d(d+1)/2,) -> (d, d), both triangles filled.

    Examples
    --------
    >>> unpack_symmetric(np.array([1.0, 2.0, 5.0]))
    array([[1., 2.],
           [2., 5.]])
    """
    dim = unpacked_dim(len(packed))
    upper, _ = lapack.dtpttr(dim, np.asarray(packed, dtype=np.float64), uplo="U")
    return symmetrize_upper(upper)


def packed_diagonal(packed: NDArray[np.generic]) -> NDArray[np.generic]:
    """Return the diagonal of packed matrices, (…, d(d+1)/2) -> (…, d).

    Examples
    --------
    >>> packed_diagonal(np.array([1.0, 2.0, 5.0]))
    array([1., 5.])
    """
    dim = unpacked_dim(packed.shape[-1])
    steps = np.arange(dim)
    return np.asarray(packed[..., steps * (steps + 3) // 2])


def packed_trace(packed: Floats) -> float:
    """Return the trace of a packed matrix.

    Examples
    --------
    >>> packed_trace(np.array([1.0, 2.0, 5.0]))
    6.0
    """
    return float(packed_diagonal(packed).sum())


def symmetrize_upper(matrix: Floats) -> Floats:
    """Copy the upper triangle onto the lower one, in place, and return the same (d, d) matrix.

    Examples
    --------
    >>> symmetrize_upper(np.array([[1.0, 2.0], [0.0, 5.0]]))
    array([[1., 2.],
           [2., 5.]])
    """
    for start in range(0, len(matrix), 256):
        stop = start + 256
        corner = matrix[start:stop, start:stop]
        np.copyto(corner, corner.T.copy(), where=_below(len(corner)))
        matrix[stop:, start:stop] = matrix[start:stop, stop:].T
    return matrix


@lru_cache(maxsize=4)
def _below(size: int) -> NDArray[np.bool_]:
    """Return (size, size) what is below the diagonal."""
    return np.tri(size, k=-1, dtype=np.bool_)


def new_gram(dim: int) -> Floats:
    """Return a zero (d, d) matrix laid out so that :func:`add_gram` can accumulate into it in place.

    Examples
    --------
    >>> new_gram(2).flags.f_contiguous
    True
    """
    return np.zeros((dim, dim), order="F")


def blocks(n_rows: int, size: int = BLOCK_ROWS) -> Iterator[slice]:
    """Yield slices that cover ``n_rows`` rows, at most ``size`` at a time.

    Examples
    --------
    >>> list(blocks(5, 2))
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    for start in range(0, n_rows, size):
        yield slice(start, min(start + size, n_rows))


def add_gram(out: Floats, X: NDArray[np.floating], *, weight: float = 1.0) -> None:
    """Add ``weight · XᵀX`` to the **upper triangle** of ``out`` in place: one ``syrk`` a block, no temporary (d, d).

    Parameters
    ----------
    out
        (d, d) from :func:`new_gram`. Only its upper triangle is meaningful; :func:`symmetrize_upper` completes it.
    X
        (n, d), any floating type; widened to float64 a block at a time.
    weight
        Factor of the product.

    Examples
    --------
    >>> gram = new_gram(2)
    >>> add_gram(gram, np.array([[1.0, 2.0], [0.0, 1.0]]))
    >>> symmetrize_upper(gram)
    array([[1., 2.],
           [2., 5.]])
    """
    if not out.flags.f_contiguous or out.dtype != np.float64:
        raise InputError("add_gram accumulates into a Fortran-ordered float64 matrix: make it with new_gram(d)")
    for block in blocks(len(X)):
        rows = np.ascontiguousarray(X[block], dtype=np.float64)
        blas.dsyrk(weight, rows.T, beta=1.0, c=out, overwrite_c=1, lower=0)


def add_packed(out: Floats, packed: Floats, *, weight: float = 1.0) -> None:
    """Add a packed symmetric matrix to the upper triangle of ``out`` (d, d) in place, a column at a time.

    Examples
    --------
    >>> total = new_gram(2)
    >>> add_packed(total, np.array([1.0, 2.0, 5.0]), weight=2.0)
    >>> symmetrize_upper(total)
    array([[ 2.,  4.],
           [ 4., 10.]])
    """
    start = 0
    for column in range(len(out)):
        stop = start + column + 1
        out[: column + 1, column] += weight * packed[start:stop]
        start = stop


def solve_positive(matrix: Floats, right: Floats, *, overwrite: bool = False) -> Floats:
    """Solve M W = R for a symmetric positive semi-definite M by one Cholesky factorisation.

    Where M is singular to working precision (a constant feature without ridge, more dimensions than samples), the
    answer is the minimum-norm least-squares solution, from the eigenvectors whose eigenvalue is above 8·d·ε of the
    largest one.

    Parameters
    ----------
    matrix
        (d, d), both triangles filled.
    right
        (d, m).
    overwrite
        Let the solver destroy ``matrix`` and ``right`` (Fortran order): saves two copies.

    Examples
    --------
    >>> solve_positive(np.array([[4.0, 2.0], [2.0, 3.0]]), np.array([[2.0], [1.0]])).round(12)
    array([[0.5],
           [0. ]])
    >>> solve_positive(np.array([[2.0, 0.0], [0.0, 0.0]]), np.array([[2.0], [1.0]]))
    array([[1.],
           [0.]])
    """
    if not len(matrix):
        return np.zeros(right.shape)
    diagonal = np.diagonal(matrix).copy()
    factor, info = lapack.dpotrf(matrix, lower=0, clean=0, overwrite_a=overwrite)
    if info == 0 and _is_definite(factor, diagonal):
        solution, _ = lapack.dpotrs(factor, right, lower=0, overwrite_b=overwrite)
        return np.asarray(solution)
    # The factorisation wrote into the upper triangle only, so the lower one (and the diagonal kept above) still hold M.
    damaged = factor if overwrite else matrix
    values, vectors = eigh(np.tril(damaged, -1) + np.diag(diagonal), lower=True)
    keep = values > max(values[-1], 0.0) * _NOISE * len(diagonal)
    basis = vectors[:, keep]
    return np.asarray(basis @ ((basis.T @ right) / values[keep, None]))


def lower_factor(matrix: Floats) -> Floats | None:
    """Return L (d, d), lower triangular with L Lᵀ = M, or None where M is singular to working precision.

    Examples
    --------
    >>> lower_factor(np.array([[4.0, 2.0], [2.0, 2.0]]))
    array([[2., 0.],
           [1., 1.]])
    >>> lower_factor(np.array([[1.0, 1.0], [1.0, 1.0]])) is None
    True
    """
    upper, info = lapack.dpotrf(matrix, lower=0, clean=1)
    if info != 0 or not _is_definite(upper, np.diagonal(matrix)):
        return None
    return np.asarray(upper.T)


def least_eigenvalue(matrix: Floats, enough: float = np.inf) -> float | None:
    """Return a symmetric matrix's least eigenvalue, or None where it is singular to working precision.

    Parameters
    ----------
    matrix
        (d, d), both triangles filled.
    enough
        If the least eigenvalue is above this, a bound from below that is, too, will do: one Cholesky factorisation.

    Examples
    --------
    >>> least_eigenvalue(np.diag([4.0, 1.0])), least_eigenvalue(np.ones((2, 2)))
    (1.0, None)
    """
    factor, info = lapack.dpotrf(matrix, lower=0, clean=0)
    if info != 0 or not _is_definite(factor, np.diagonal(matrix)):
        return None
    bound, _ = lapack.dpocon(factor, 1.0, uplo="U")  # 1/‖M⁻¹‖₁, no more than the least eigenvalue but for the estimate
    if bound > 3.0 * enough:
        return float(bound) / 3.0
    return float(eigh(matrix, eigvals_only=True, subset_by_index=(0, 0))[0])


def solve_definite(matrix: Floats, right: Floats) -> Floats | None:
    """Solve M W = R for a symmetric positive definite M, or return None where it is singular to working precision.

    Parameters
    ----------
    matrix
        (d, d), both triangles filled.
    right
        (d, m).

    Examples
    --------
    >>> solve_definite(np.array([[2.0, 0.0], [0.0, 4.0]]), np.array([[2.0], [2.0]]))
    array([[1. ],
           [0.5]])
    >>> solve_definite(np.ones((2, 2)), np.ones((2, 1))) is None
    True
    """
    factor, info = lapack.dpotrf(matrix, lower=0, clean=0)
    if info != 0 or not _is_definite(factor, np.diagonal(matrix)):
        return None
    return np.asarray(lapack.dpotrs(factor, right, lower=0)[0])


def _is_definite(factor: Floats, diagonal: Floats) -> bool:
    """Return whether the least eigenvalue is above rounding noise, once the matrix has a unit diagonal.

    The norm of the inverse is estimated from the factor in O(d²). Looking at pivots alone would not do: where
    elimination has divided by a small one, the noise that it leaves of a vanishing one can be 10⁵ times d·ε.
    """
    least, _ = lapack.dpocon(factor / np.sqrt(diagonal), 1.0, uplo="U")
    return bool(least > _NOISE * len(diagonal))


def solve_rows_plus_ridge(rows: Floats, ridge: float, right: Floats) -> Floats:
    """Solve (RᵀR + ridge·I) W = right in the *dual*: an (r, r) system instead of a (d, d) one.

    By Woodbury, W = (right − Rᵀ (ridge·I + R Rᵀ)⁻¹ R right) / ridge. Worth it when there are few rows.

    Parameters
    ----------
    rows
        (r, d), the factor R.
    ridge
        Positive number on the diagonal.
    right
        (d, m).

    Examples
    --------
    >>> R = np.array([[1.0, 2.0, 0.0]])
    >>> b = np.array([[1.0], [1.0], [1.0]])
    >>> W = solve_rows_plus_ridge(R, 0.5, b)
    >>> np.allclose((R.T @ R + 0.5 * np.eye(3)) @ W, b)
    True
    """
    if not ridge > 0:
        raise InputError(f"the dual solve divides by the ridge, which must be positive; {ridge} arrived")
    inner = rows @ rows.T
    inner[np.diag_indices_from(inner)] += ridge
    return np.asarray((right - rows.T @ solve_positive(inner, rows @ right)) / ridge)


def low_rank_factor(matrix: Floats) -> Floats:
    """Return R (r, d) with RᵀR = M for a positive semi-definite M (d, d) of rank r, by pivoted Cholesky.

    Examples
    --------
    >>> R = low_rank_factor(np.array([[1.0, 2.0], [2.0, 4.0]]))
    >>> R.shape
    (1, 2)
    >>> (R.T @ R).round(12)
    array([[1., 2.],
           [2., 4.]])
    """
    scale = float(np.diagonal(matrix).max(initial=0.0))
    if scale <= 0.0:
        return np.zeros((0, len(matrix)))
    factor, pivot, rank, _ = lapack.dpstrf(matrix, tol=scale * EPSILON * len(matrix), lower=0)
    rows = np.zeros((rank, len(matrix)))
    rows[:, pivot - 1] = np.triu(factor)[:rank]
    return rows
