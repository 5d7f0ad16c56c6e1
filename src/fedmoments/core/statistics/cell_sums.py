"""How an accumulator adds up exactly, in whole numbers.

:class:`ExactSums` rounds what **each sample** contributes to a public grid and adds whole numbers, so that sums do not
depend on the order of the samples, on batches, nor on how a stream was cut into shards, **bit for bit**.

A Gram matrix is exact, too, at the speed of BLAS. Of every feature x with ‖x‖ ≤ R ≤ 2^r two whole numbers are taken,

    high = rint(x·2^(t−r)),   low = rint((x·2^(t−r) − high)·2^t),   x ≈ (high + low·2^−t)·2^(r−t)   to 2t bits of R,

and Σ high highᵀ and Σ (high lowᵀ + low highᵀ) are collected apart (low lowᵀ is below the resolution). With
2t + 11 ≤ 53, float64 holds every partial sum of a block of 2,048 samples without rounding, in whatever order BLAS adds;
with N·2^2t ≤ 2⁶², int64 holds the sum over the N samples that the whole federation may have.
"""

import math
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas

from fedmoments.core.linalg import BLOCK_ROWS, blocks, packed_size
from fedmoments.core.statistics.fixed_point import RANGE_BITS, SLACK, FixedPoint
from fedmoments.core.statistics.moments import ClassGrams, Gram, Layout, Moment, cell_sums

__all__ = ["CellSums", "ExactSums", "sample_keys"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Words = NDArray[np.uint64]

#: Bits of a float64 without those that a sum over a block needs, halved: most bits of each of the two numbers.
_MOST_BITS = (53 - math.ceil(math.log2(BLOCK_ROWS))) // 2


class CellSums(Protocol):
    """A way to add up moments by cell."""

    def workspace(self, moment: Moment, n_cells: int, dim: int) -> NDArray[Any]:
        """Return a zero array that :meth:`add` can accumulate into; two of them may be added up."""

    def add(self, moment: Moment, work: NDArray[Any], X: Floats, cells: Ints) -> None:
        """Accumulate samples X (n, d) that belong to ``cells`` (n,) into ``work`` in place."""

    def finish(self, moment: Moment, work: NDArray[Any]) -> NDArray[Any]:
        """Return the moment's array, packed."""


class ExactSums:
    """Whole numbers in the units of a fixed-point form.

    Parameters
    ----------
    form
        The agreed range and resolution: samples of a larger norm are refused.

    Examples
    --------
    >>> from fedmoments.core.statistics.moments import moment
    >>> sums, gram = ExactSums(FixedPoint(norm_bound=8.0, max_samples=1000)), moment("gram")
    >>> work = sums.workspace(gram, 1, 2)
    >>> sums.add(gram, work, np.array([[3.0, 4.0], [1.0, 0.0]]), np.array([0, 0]))
    >>> sums.form.dequantize(sums.finish(gram, work), degree=2)
    array([10., 12., 16.])
    """

    def __init__(self, form: FixedPoint) -> None:
        self.form = form
        self._range = math.ceil(math.log2(form.norm_bound * (1 + SLACK)))
        self._bits = max(min(_MOST_BITS, (RANGE_BITS - math.ceil(math.log2(form.max_samples))) // 2), 1)

    def workspace(self, moment: Moment, n_cells: int, dim: int) -> NDArray[Any]:
        """Return zeros: of a Gram matrix two packed triangles, high and cross."""
        if isinstance(moment, Gram | ClassGrams):
            cells = (n_cells,) if moment.layout is Layout.CLASS else ()
            return np.zeros((*cells, 2, packed_size(dim)), np.int64)
        cells = () if moment.layout is Layout.GLOBAL else (n_cells,)
        return np.zeros((*cells, moment.width(dim)), np.int64)

    def add(self, moment: Moment, work: NDArray[Any], X: Floats, cells: Ints) -> None:
        """Round each sample's numbers and add them up."""
        if isinstance(moment, Gram):
            self._add_gram(work, X)
        elif isinstance(moment, ClassGrams):
            for cell in np.unique(cells):
                self._add_gram(work[cell], X[cells == cell])
        else:
            every = self.form.quantize(_each(moment, X), moment.degree, np.ones((len(X), 1), np.int64), moment.name)
            if moment.layout is Layout.GLOBAL:
                work += every.sum(axis=0)
            else:
                work += cell_sums(every, cells, len(work))

    def finish(self, moment: Moment, work: NDArray[Any]) -> NDArray[Any]:
        """Return the moment's array in fixed point."""
        return self._gram(work) if isinstance(moment, Gram | ClassGrams) else work.copy()

    def _add_gram(self, work: Ints, X: Floats) -> None:
        upper = np.triu_indices(X.shape[1])
        for block in blocks(len(X)):
            scaled = X[block] * math.ldexp(1.0, self._bits - self._range)
            high = np.rint(scaled)
            low = np.rint((scaled - high) * math.ldexp(1.0, self._bits))
            work[0] += blas.dsyrk(1.0, high.T)[upper].astype(np.int64)
            work[1] += blas.dsyr2k(1.0, high.T, low.T)[upper].astype(np.int64)

    def _gram(self, work: Ints) -> Ints:
        """Return (… , 2, m) as (…, m) in units of the form, in LAPACK's order of a packed triangle."""
        high, cross = work[..., 0, :], work[..., 1, :]
        shift = self.form.bits(2) + 2 * (self._range - self._bits)
        if shift >= 0:
            total = (high << shift) + _shifted(cross, shift - self._bits)
        else:
            total = _shifted(high + _shifted(cross, -self._bits), shift)
        dim = round((math.sqrt(8 * work.shape[-1] + 1) - 1) / 2)
        rows, columns = np.triu_indices(dim)
        return np.ascontiguousarray(total[..., np.lexsort((rows, columns))])


def _each(moment: Moment, X: Floats) -> Floats:
    """Return the numbers of every sample by itself, (n, width)."""
    n, dim = X.shape
    if moment.layout is Layout.GLOBAL:
        return np.stack([_alone(moment, row[None], 1, np.zeros(1, np.int64)) for row in X] or [np.zeros((0, dim))])
    return np.asarray(_alone(moment, X, n, np.arange(n)))


def _alone(moment: Moment, X: Floats, n_cells: int, cells: Ints) -> NDArray[Any]:
    work = moment.workspace(n_cells, X.shape[1])
    moment.add(work, X, cells)
    return moment.finish(work)


def _shifted(values: Ints, bits: int) -> Ints:
    """Return values·2^bits, rounded to whole numbers."""
    if bits >= 0:
        return values << bits
    return (values + (1 << (-bits - 1))) >> -bits


def sample_keys(X: Floats) -> Ints:
    """Return a number from 0 to 2⁶² of every sample (n, d), made of its features alone: equal ones have equal numbers.

    Examples
    --------
    >>> a, b, c = sample_keys(np.array([[1.0, 2.0], [2.0, 1.0], [1.0, 2.0]]))
    >>> a == c, a == b
    (np.True_, np.False_)
    """
    from fedmoments.core.statistics.shares import mixed

    words = (X + 0.0).view(np.uint64)  # −0.0 becomes 0.0
    with np.errstate(over="ignore"):
        total = mixed(words ^ mixed(np.arange(X.shape[1], dtype=np.uint64))).sum(axis=1, dtype=np.uint64)
    return np.asarray((mixed(total) >> np.uint64(2)).astype(np.int64))
