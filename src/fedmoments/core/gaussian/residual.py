"""What the clients did not send of their scatter: how much is known, in which directions it is guessed.

Client k sent rows V_k, the leading directions of its class-centred scatter M_k, and ρ_k = tr M_k − ‖V_k‖², the trace of
the rest. With B₂ the scatter of the client means around the class means and K₁ = Σ V_kᵀV_k, the server holds

    Ŵ = B₂ + K₁ + R,    tr R = ρ = Σ ρ_k,

in which only the shape of R is a guess. It is that of a Gaussian with the covariance F, less what is known already: the
rows that a client kept are eigenvectors of its scatter, so that the rest has no part in them, and what F leaves is the
conditional covariance given them,

    R = Σ_k ρ_k · S_k / tr S_k,    S_k = F − F V_kᵀ (V_k F V_kᵀ)⁻¹ V_k F.

F is all that is known of the spread inside classes, mixed with a share a of the identity:

    F₀ = (1−a)·B₂/tr B₂ + a·I/d,    W₀ = B₂ + K₁ + ρ·F₀,    F = (1−a)·W₀/tr W₀ + a·I/d.

That is one step of expectation maximisation; further steps let the guess confirm itself, and accuracy falls.

With G_k = V_k F V_kᵀ = C_k C_kᵀ, S_k = F − T_kᵀT_k, T_k = C_k⁻¹ V_k F. So R takes one product of all rows with F, and
one Gram product of all T_k; there is no (d, d) matrix a client: R is positive semi-definite and S_k V_kᵀ is 0 to
rounding. Where the rows of a client nearly depend on each other, C_k would magnify rounding: then T_k = Q_k Lᵀ, where
F = L Lᵀ and Q_k is an orthonormal basis of the rows V_k L.

**Laws** tr R = ρ; R is 0 where nothing was left out; R of a single client is orthogonal to its rows; R does not depend
on the order of the clients.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cache, partial

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, eigh

from fedmoments.core.linalg import EPSILON, add_gram, lower_factor, new_gram, symmetrize_upper
from fedmoments.errors import InputError

__all__ = ["Part", "check_share", "conditional_rows", "residual_scatter", "residual_shape"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
#: Numbers of some clients, their weights, and the rows that F has too much of: see :func:`conditional_rows`.
Part = tuple[Ints, Floats, Floats]

#: Rows that are multiplied at once.
TOGETHER = 512
#: Rows of equal-sized blocks that are factorised at once.
CHUNK_ROWS = 4096
#: Rows whose part outside the rows before them is below this share of their length count as dependent on them.
DEPENDENT = 1e-10
#: The same share, below which a basis is made by columns instead of from products: C_k magnifies rounding no more than
#: some 10⁶ times above it.
STEADY = 1e-3
#: Blocks of fewer rows are solved together.
FEW_ROWS = 16
#: Where kept rows leave less than this share of F, they leave nothing but rounding.
NOTHING = 1e-10


def check_share(share: float) -> float:
    """Return the share of the identity in the shape of the rest, or refuse what is not between 0 and 1.

    Examples
    --------
    >>> check_share(0.3)
    0.3
    """
    if not 0.0 <= share <= 1.0:
        raise InputError(f"the isotropic share of a sketch's residual is a number from 0 to 1; {share:g} arrived")
    return float(share)


def residual_shape(between: Floats, kept: Floats, residual: float, share: float) -> Floats:
    """Return F (d, d), of trace 1: the shape that the rest has before it is conditioned on kept rows.

    Parameters
    ----------
    between
        B₂ (d, d), the scatter of client means around class means.
    kept
        K₁ (d, d), Σ V_kᵀV_k.
    residual
        ρ, the trace of all that was not kept.
    share
        a, from 0 to 1: how much of F is the identity.

    Examples
    --------
    >>> residual_shape(np.diag([3.0, 0.0]), np.diag([1.0, 0.0]), 4.0, 0.5).round(6)
    array([[0.6875, 0.    ],
           [0.    , 0.3125]])
    """
    a = check_share(share)
    first = _towards_identity(between.copy(order="K"), a)
    first *= residual
    first += between + kept
    return _towards_identity(first, a)


def _towards_identity(matrix: Floats, share: float) -> Floats:
    """Return (1−a)·M/tr M + a·I/d, or I/d of a matrix without a trace; ``matrix`` is overwritten."""
    dim, trace = len(matrix), float(np.trace(matrix))
    flat = 1.0 / dim
    if trace > 0.0:
        matrix /= trace
    else:
        matrix[:] = np.eye(dim) * flat
    matrix *= 1.0 - share
    matrix[np.diag_indices(dim)] += share * flat
    return matrix


def residual_scatter(
    rows: Floats, sizes: Ints, residuals: Floats, shape: Floats, parts: Iterable[Part] | None = None
) -> Floats:
    """Return R (d, d), the scatter that clients did not send: positive semi-definite, of trace Σ ρ_k.

    Parameters
    ----------
    rows
        (s, d), V_k of all clients, one below the other.
    sizes
        (b,) how many rows every client has, 0 among them; their sum is s.
    residuals
        (b,) ρ_k ≥ 0 of every client.
    shape
        F (d, d), positive semi-definite; see :func:`residual_shape`.
    parts
        What :func:`conditional_rows` makes of the same, where that is known already.

    Notes
    -----
    A client whose rows leave nothing of F (they span its range, but the client says that something is left) has its
    residual in the shape of F itself: the trace is known, a direction is not.

    Examples
    --------
    One client kept the first direction, so that its rest lies in the second; the other kept nothing.

    >>> residual_scatter(np.array([[2.0, 0.0]]), np.array([1, 0]), np.array([3.0, 1.0]), np.eye(2) / 2)
    array([[0.5, 0. ],
           [0. , 3.5]])
    """
    dim, total = len(shape), float(np.sum(residuals))
    if total <= 0.0:
        return np.zeros((dim, dim))
    scatter, weight, waiting = new_gram(dim), 0.0, [np.zeros((0, dim))]
    for _, weights, taken in conditional_rows(rows, sizes, residuals, shape) if parts is None else parts:
        weight += float(weights.sum())
        waiting.append(taken.reshape(-1, dim))
        if sum(map(len, waiting)) >= TOGETHER:  # a product of few rows takes as long as reading the matrix
            add_gram(scatter, np.concatenate(waiting), weight=-1.0)
            waiting.clear()
    if waiting:
        add_gram(scatter, np.concatenate(waiting), weight=-1.0)
    scatter += weight * shape
    symmetrize_upper(scatter)
    return np.asarray(scatter * (total / float(np.trace(scatter))))


def conditional_rows(rows: Floats, sizes: Ints, residuals: Floats, shape: Floats) -> Iterator[Part]:
    """Yield R_k = ρ_k·S_k/tr S_k of some clients at a time, as w_k·F − T_kᵀT_k: no (d, d) matrix a client.

    Parameters
    ----------
    rows, sizes, residuals, shape
        As in :func:`residual_scatter`.

    Yields
    ------
    which, weights, taken
        (m,) numbers of clients that left something out, (m,) their w_k, and (m, r, d) their T_k, all of r rows.

    Examples
    --------
    >>> kept, left = np.array([[2.0, 0.0]]), np.array([3.0, 1.0])
    >>> for which, weights, taken in conditional_rows(kept, np.array([1, 0]), left, np.eye(2) / 2):
    ...     print(which, weights.round(9), taken.shape)
    [1] [1.] (1, 0, 2)
    [0] [6.] (1, 1, 2)
    """
    dim, without = len(shape), np.flatnonzero((sizes == 0) & (residuals > 0))
    factor, whole = cache(partial(_factor, shape)), float(np.trace(shape))
    if len(without):
        yield without, residuals[without] / whole, np.zeros((len(without), 0, dim))
    for which, block in _equal_blocks(rows, sizes, residuals):
        taken = _taken(block, shape, factor)
        left = 1.0 - np.einsum("mrd,mrd->m", taken, taken) / whole
        something = left > NOTHING
        weights = residuals[which] / np.where(something, left, 1.0) / whole
        taken *= np.sqrt(np.where(something, weights, 0.0))[:, None, None]
        yield which, weights, taken


def _taken(block: Floats, shape: Floats, factor: Callable[[], Floats]) -> Floats:
    """Return T_k (m, r, d) of equal blocks V_k of rows (m, r, d): what of F they take up, T_kᵀT_k."""
    m, _, dim = block.shape
    products = (block.reshape(-1, dim) @ shape).reshape(block.shape)
    grams = products @ block.transpose(0, 2, 1)
    lengths = np.sqrt(np.maximum(np.diagonal(grams, axis1=1, axis2=2), 0.0))[:, :, None]
    unsteady = np.ones(m, np.bool_)
    with suppress(np.linalg.LinAlgError), np.errstate(divide="ignore", invalid="ignore"):
        lower = np.asarray(np.linalg.cholesky(grams / lengths / lengths.transpose(0, 2, 1)), np.float64)
        steady = np.asarray((np.diagonal(lower, axis1=1, axis2=2) > STEADY).all(axis=1))
        products /= np.where(steady[:, None, None], lengths, 1.0)
        _solve_triangles(lower, products, np.flatnonzero(steady))
        unsteady = ~steady
    if unsteady.any():
        basis = _bases(block[unsteady].reshape(-1, dim) @ factor(), int(unsteady.sum()))
        products[unsteady] = 0.0
        rows = (basis.reshape(-1, basis.shape[2]) @ factor().T).reshape(*basis.shape[:2], dim)  # one product, not m
        products[unsteady, : rows.shape[1]] = rows
    return products


def _solve_triangles(lower: Floats, right: Floats, which: Ints) -> None:
    """Replace R_k (r, d) of some blocks by C_k⁻¹ R_k in place; all at once where a block has few rows."""
    if lower.shape[1] < FEW_ROWS:
        right[which] = np.linalg.solve(lower[which], right[which])
        return
    for k in which.tolist():  # of half the work; in columns, T_kᵀ C_kᵀ = R_kᵀ
        right[k] = blas.dtrsm(1.0, lower[k].T, right[k].T, side=1, lower=0).T


def _factor(shape: Floats) -> Floats:
    """Return L (d, e) with L Lᵀ = F: triangular, or where F is singular, by its eigenvectors."""
    triangular = lower_factor(shape)
    if triangular is not None:
        return triangular
    values, vectors = eigh(shape)
    sound = values > max(float(values[-1]), 0.0) * EPSILON * len(shape)
    return np.asarray(vectors[:, sound] * np.sqrt(values[sound]))


def _equal_blocks(rows: Floats, sizes: Ints, residuals: Floats) -> Iterator[tuple[Ints, Floats]]:
    """Yield numbers (m,) and rows (m, r, d) of blocks of equal size, those without rows or residual left out."""
    starts = np.cumsum(sizes) - sizes
    for size in np.unique(sizes[(sizes > 0) & (residuals > 0)]).tolist():
        mine = np.flatnonzero((sizes == size) & (residuals > 0))
        step = max(CHUNK_ROWS // size, 1)
        for first in range(0, len(mine), step):
            some = mine[first : first + step]
            yield some, rows[starts[some][:, None] + np.arange(size)]


def _bases(rows: Floats, count: int) -> Floats:
    """Return an orthonormal basis of the rows of each of ``count`` equal blocks: (m, r', e), unused rows 0."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    unit = np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0).reshape(count, -1, rows.shape[1])
    columns, upper = np.linalg.qr(unit.transpose(0, 2, 1))
    basis = np.ascontiguousarray(columns.transpose(0, 2, 1))
    pivots = np.abs(np.diagonal(upper, axis1=1, axis2=2))
    doubtful = np.flatnonzero((pivots < DEPENDENT).any(axis=1))
    for k in doubtful.tolist():  # dependent rows: a basis by columns would take up directions that are in no row
        _, values, right = np.linalg.svd(unit[k], full_matrices=False)
        basis[k] = np.where((values > DEPENDENT * max(float(values[0]), DEPENDENT))[:, None], right, 0.0)
    return basis
