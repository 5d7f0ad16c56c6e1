"""The longest rows R of a matrix's singular vectors times singular values: RᵀR is the leading part of WᵀW.

They come from the smaller Gram matrix W Wᵀ = U Λ Uᵀ as UᵀW, without a division, so RᵀR errs by the rounding of ‖WᵀW‖
and no more; what is below that rounding counts as 0.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, eigh

from fedmoments.core.linalg import EPSILON
from fedmoments.errors import InputError

__all__ = ["leading_of_blocks", "leading_of_gram"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Eigenvalues below this share of the largest, times the size of the matrix, are rounding.
_NOISE = 8 * EPSILON


def leading_of_blocks(
    rows: Floats, blocks: Ints, most: int, caps: dict[int, int] | None = None
) -> tuple[Floats, Ints, Floats]:
    """Return right singular vectors times singular values of every block, those blocks, and the squares, all falling.

    At most ``most`` of all blocks together, those with the largest singular values, and of a block as its cap says.

    Parameters
    ----------
    rows, blocks
        W (m, d), and the block (m,) of every row.
    most
        Rows of all blocks together.
    caps
        Block -> rows of it; None: ``most`` for each.

    Examples
    --------
    >>> rows, blocks, energies = leading_of_blocks(np.diag([1.0, 3.0, 2.0]), np.array([0, 0, 1]), 2)
    >>> blocks, energies
    (array([0, 1]), array([9., 4.]))
    """
    parts = [_leading_of_block(rows[:0], 0, 0)]
    for block in np.unique(blocks).tolist():
        allowed = most if caps is None else min(most, caps[block])
        parts.append(_leading_of_block(rows[blocks == block], block, allowed))
    vectors, owners, energies = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.argsort(-energies, kind="stable")[:most]
    return vectors[order], owners[order], energies[order]


def leading_of_gram(gram: Floats, most: int) -> Floats:
    """Return rows R, at most ``most``, of falling length with RᵀR the leading part of an upper triangle (d, d).

    The triangle may be overwritten.

    Examples
    --------
    >>> np.abs(leading_of_gram(np.diag([4.0, 9.0]), 1))
    array([[0., 3.]])
    """
    if not most:
        return np.zeros((0, len(gram)))
    energies, vectors = _eigenpairs(gram, most)
    return np.asarray(vectors.T * np.sqrt(energies)[:, None])


def _leading_of_block(rows: Floats, block: int, most: int) -> tuple[Floats, Ints, Floats]:
    """Return the leading rows of one block, its number for each, and their squared lengths."""
    if not len(rows) or not most:
        return np.zeros((0, rows.shape[1])), np.zeros(0, np.int64), np.zeros(0)
    energies, vectors = _eigenpairs(blas.dsyrk(1.0, rows.T, trans=1), most)
    return np.asarray(vectors.T @ rows), np.full(len(energies), block, np.int64), energies


def _eigenpairs(gram: Floats, most: int) -> tuple[Floats, Floats]:
    """Return the leading eigenvalues (r,) and vectors (m, r) of an upper triangle, falling, r ≤ most, all above 0."""
    size = len(gram)
    few = 8 * most <= size  # all pairs by divide and conquer are cheaper than many one by one
    options = {"subset_by_index": (size - most, size - 1)} if few else {"driver": "evd"}
    values, vectors = eigh(gram, lower=False, overwrite_a=True, check_finite=False, **options)
    values, vectors = values[::-1][:most], vectors[:, ::-1][:, :most]
    if not values.size or not np.isfinite(values[0]):
        raise InputError(
            "the scatter of a client's samples overflows float64: its features are too large; divide them by a constant"
        )
    keep = values > max(float(values[0]), 0.0) * _NOISE * size
    return values[keep], vectors[:, keep]
