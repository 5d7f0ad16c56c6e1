"""The pooled within-class scatter Σ_c (N_c − 1) Σ_c, in whichever form it is cheapest.

A scatter knows two scales. ``weight`` divides it to give the pooled covariance. ``trace`` and ``dof`` are those of the
covariance estimate that shrinkage is measured against: for exact scatters the pooled covariance with ν = N − C; for
free ones S = Σ n (μ_kc − μ_c)(μ_kc − μ_c)ᵀ/ν with ν = Σ_c (K_c − 1).

A scatter also knows what rounding leaves of it. What is not above that is 0: dimensions in which samples do not differ,
and the whole scatter (its trace is then exactly 0) where no class has any spread.
"""

import math
from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas

from fedmoments.core import floats
from fedmoments.core.gaussian.precision import DEAD, HIDDEN, TYPICAL
from fedmoments.core.linalg import add_packed, blocks, new_gram, unpacked_dim
from fedmoments.core.statistics.mean_rows import MeanRows

__all__ = ["DiagonalScatter", "FreeScatter", "MatrixScatter", "RowScatter", "Scatter", "without_spread"]

Floats = NDArray[np.float64]

#: Client means that are visited at once; the same in numbers, where a mean has few.
ROWS, NUMBERS = 512, 2**17


def without_spread(scatter: Floats, rounding: Floats) -> NDArray[np.bool_]:
    """Return (…) where a scatter (…) is nothing but rounding.

    Examples
    --------
    >>> without_spread(np.array([1.0, 1e-12, -1e-12]), np.full(3, 1e-11))
    array([False,  True,  True])
    """
    return np.asarray(scatter <= rounding)


class Scatter(ABC):
    """Within-class scatter of features of dimension ``dim``."""

    dim: int
    #: Divides the scatter to give the pooled covariance.
    weight: float
    #: Degrees of freedom ν behind the covariance that shrinkage is measured against.
    dof: float
    _noise: float = 0.0
    #: How many rows R with RᵀR = scatter there are, if it is held that way.
    n_rows: int | None = None

    @property
    @abstractmethod
    def trace(self) -> float:
        """Trace of the covariance that shrinkage is measured against."""

    @property
    def noise(self) -> float:
        """What rounding leaves of an eigenvalue of the pooled covariance."""
        return self._noise

    @abstractmethod
    def add_to(self, out: Floats, factor: float) -> None:
        """Add ``factor`` times the scatter to the upper triangle of ``out`` (d, d, Fortran order) in place."""

    def scaled(self, factor: float) -> Floats:
        """Return ``factor`` times the scatter (d, d), its upper triangle meaningful; 0 where there is no spread."""
        matrix = new_gram(self.dim)
        self.add_to(matrix, factor)  # first, because a pass over rows tells the trace along the way
        if self.trace == 0.0:
            matrix[:] = 0.0
        return matrix

    def along(self, directions: Floats) -> Floats:
        """Return vᵀ·scatter·v (m,) of directions v (m, d).

        Examples
        --------
        >>> MatrixScatter(np.diag([4.0, 2.0]), 2.0).along(np.array([[1.0, 0.0], [1.0, 1.0]]))
        array([4., 6.])
        """
        matrix = self.scaled(1.0)
        return np.asarray(np.einsum("md,dm->m", directions, blas.dsymm(1.0, matrix, directions.T)))

    def factor(self) -> Floats:
        """Return R (rows, d) with RᵀR = scatter; only where ``n_rows`` is known."""
        raise TypeError(f"{type(self).__name__} is not held as rows")


def add_upper(out: Floats, matrix: NDArray[np.floating], factor: float) -> None:
    """Add ``factor`` times a matrix to ``out``, at least above the diagonal: no second (d, d) in memory."""
    for start in range(0, len(out), 256):  # a strip of columns at a time
        stop = start + 256
        out[:stop, start:stop] += factor * matrix[:stop, start:stop]


class MatrixScatter(Scatter):
    """A scatter held as a full matrix, (d, d) with a meaningful upper triangle.

    Parameters
    ----------
    matrix
        (d, d); it is kept, and dimensions without spread are set to 0 in it.
    weight
        Degrees of freedom.
    rounding
        (d,) what rounding may leave of the diagonal of equal samples; None for nothing.
    between
        (d,) the scatter of class means: where these differ, rounding may hide a spread inside classes.

    Examples
    --------
    >>> MatrixScatter(np.diag([4.0, 1e-9]), 2.0, np.array([1e-8, 1e-8])).trace
    2.0
    """

    def __init__(
        self, matrix: Floats, weight: float, rounding: Floats | None = None, between: Floats | None = None
    ) -> None:
        self.matrix, self.dim = matrix, len(matrix)
        self.weight = self.dof = weight
        self.rounding = np.zeros(self.dim) if rounding is None else rounding
        dead = without_spread(np.diagonal(matrix), self.rounding)
        if dead.any():
            matrix[dead] = 0.0
            matrix[:, dead] = 0.0
        noise = np.where(dead, 0.0, TYPICAL * self.rounding)
        #: How much of the total scatter rounding may hide in a dimension without spread inside classes, at most.
        self.hidden = 0.0
        if between is not None:
            told_apart = dead & (between > HIDDEN * self.rounding)
            noise[told_apart] = self.rounding[told_apart]
            self.hidden = float((self.rounding[told_apart] / between[told_apart]).max(initial=0.0))
        self._noise = float(noise.max(initial=0.0)) / max(weight, 1.0)

    @property
    def trace(self) -> float:
        return max(float(np.trace(self.matrix)), 0.0) / self.weight if self.weight > 0 else 0.0

    def add_to(self, out: Floats, factor: float) -> None:
        add_upper(out, self.matrix, factor)


class DiagonalScatter(Scatter):
    """A scatter of which only the diagonal (d,) is known or wanted.

    Parameters
    ----------
    diagonal
        (d,); what is below 0 counts as 0.
    weight
        Degrees of freedom.
    rounding
        (d,) what rounding may leave of it of equal samples; None for nothing.
    """

    def __init__(self, diagonal: Floats, weight: float, rounding: Floats | None = None) -> None:
        self.dim, self.weight, self.dof = len(diagonal), weight, weight
        noise = np.zeros(self.dim) if rounding is None else rounding
        dead = without_spread(diagonal, noise)
        self.diagonal = np.where(dead, 0.0, diagonal)
        self._noise = TYPICAL * float(noise[~dead].max(initial=0.0)) / max(weight, 1.0)

    @property
    def trace(self) -> float:
        return float(self.diagonal.sum()) / self.weight if self.weight > 0 else 0.0

    def add_to(self, out: Floats, factor: float) -> None:
        out[np.diag_indices(self.dim)] += factor * self.diagonal


class RowScatter(Scatter):
    """FedCOF's free scatter: one weighted Gram product over rows √(n (N_c−1)/(K_c−1)) · (μ_kc − μ_c).

    Parameters
    ----------
    rows
        Means kept apart.
    counts
        (C,) samples of every class.
    means
        (C, d) mean of every class.
    rounding
        Σ n ‖error‖² over rows: a spread that is not above it is none.
    held_by
        (C,) rows K_c by which a class counts; those that it has, by default.
    scales
        (rows,) by what the outer product of every row is multiplied; None for 1.
    """

    def __init__(
        self,
        rows: MeanRows,
        counts: NDArray[np.int64],
        means: Floats,
        rounding: float = 0.0,
        *,
        held_by: NDArray[np.int64] | None = None,
        scales: Floats | None = None,
    ) -> None:
        self._rows, self._means, self.dim = rows, means, means.shape[1]
        self._rounding = rounding
        held = np.bincount(rows.labels, minlength=len(counts))
        estimable = held >= 2
        self.weight = float((counts[estimable] - 1).sum())
        held_by = held if held_by is None else held_by
        self.dof = float((held_by[estimable] - 1).sum())
        self.n_rows = int(estimable[rows.labels].sum())
        class_weight = np.where(estimable, (counts - 1) / np.maximum(held_by - 1, 1), 0.0)
        self._counts = rows.counts.astype(np.float64) if scales is None else rows.counts * scales
        self._row_weights = np.sqrt(self._counts * class_weight[rows.labels])
        self._spread: Floats | None = None
        self._matrix: Floats | None = None

    def _centred(self, block: slice) -> Floats:
        centred = self._rows.block_means(block)
        centred -= self._means.take(self._rows.labels[block], axis=0)
        return centred

    def _weighted(self, some: slice, spread: Floats) -> Floats:
        """Return centred rows times the roots of their weights; their weighted squares are added to a spread (d,)."""
        centred = self._centred(some)
        for few in blocks(len(centred), ROWS // 4):
            spread += self._counts[some][few] @ np.square(centred[few])
        centred *= self._row_weights[some, None]
        return centred

    def _visit(self, *, product: bool) -> Floats:
        """Pass over the rows once, for Σ n (μ_kc − μ_c)² (d,) and, if wanted, the Gram product, which is kept."""
        spread, matrix = np.zeros(self.dim), new_gram(self.dim) if product else None
        size, is_single = max(ROWS, NUMBERS // self.dim), floats.is_single()
        for block in blocks(len(self._rows), max(size, floats.BLOCK * is_single)):
            single = floats.single_rows(block.stop - block.start, self.dim) if is_single else None
            for part in blocks(block.stop - block.start, size):
                centred = self._weighted(slice(block.start + part.start, block.start + part.stop), spread)
                if single is not None:
                    single[part] = centred
                elif matrix is not None:
                    floats.add_centred_rows(matrix, centred)
            if single is not None and matrix is not None:
                floats.add_centred_rows(matrix, single)
        self._spread, self._matrix = spread, self._matrix if matrix is None else matrix
        return spread

    @property
    def spread(self) -> Floats:
        """Σ n (μ_kc − μ_c)² (d,), dimension by dimension; 0 where rounding could leave as much."""
        spread = self._visit(product=False) if self._spread is None else self._spread
        sound = self.dof > 0 and float(spread.sum()) > DEAD**2 * self._rounding
        return spread if sound else np.zeros(self.dim)

    @property
    def trace(self) -> float:
        return float(self.spread.sum()) / self.dof if self.dof > 0 else 0.0

    @property
    def noise(self) -> float:
        error = self._rounding / max(self.dof, 1.0) / self.dim
        return 2.0 * math.sqrt(self.trace / self.dim * error) + error  # of σ², where σ errs by e: 2σe + e²

    def add_to(self, out: Floats, factor: float) -> None:
        add_upper(out, self._product, factor)

    @property
    def _product(self) -> Floats:
        if self._matrix is None:
            self._visit(product=True)
        return self._matrix if self._matrix is not None else new_gram(self.dim)

    def along(self, directions: Floats) -> Floats:
        if self._matrix is not None:
            return super().along(directions)
        energies = np.zeros(len(directions))
        for block in blocks(len(self._rows), 512):
            inside = (self._centred(block) * self._row_weights[block, None]) @ directions.T
            energies += np.einsum("rm,rm->m", inside, inside)
        return energies if self.trace > 0.0 else np.zeros(len(directions))

    def factor(self) -> Floats:
        keep = self._row_weights > 0 if self.trace > 0.0 else np.zeros(len(self._row_weights), bool)
        return np.asarray((self._centred(slice(None)) * self._row_weights[:, None])[keep])


class FreeScatter(Scatter):
    """FedCOF's free scatter as a matrix: several parties added it up, and no row of it is known.

    Parameters
    ----------
    packed
        (d(d+1)/2 + 1,) the packed matrix, then Σ n ‖μ_kc − μ_c‖²; see the moment ``free_scatter``.
    counts
        (C,) samples of every class.
    held_by
        (C,) clients K_c that hold a class.
    rounding
        Of the spread Σ n ‖μ_kc − μ_c‖²: if that is not above it, there is none.

    Examples
    --------
    >>> scatter = FreeScatter(np.array([6.0, 2.0]), np.array([4, 9]), np.array([3.0, 1.0]))
    >>> scatter.weight, scatter.dof, scatter.trace
    (3.0, 2.0, 1.0)
    """

    def __init__(self, packed: Floats, counts: NDArray[np.int64], held_by: Floats, rounding: float = 0.0) -> None:
        self._packed, self._spread, self.dim = packed[:-1], float(packed[-1]), unpacked_dim(len(packed) - 1)
        estimable = held_by >= 2
        self.weight = float((counts[estimable] - 1).sum())
        self.dof = float((held_by[estimable] - 1).sum())
        self._sound = self.dof > 0 and self._spread > rounding
        self._noise = TYPICAL * rounding / max(self.dof, 1.0)

    @property
    def trace(self) -> float:
        return self._spread / self.dof if self._sound else 0.0

    def add_to(self, out: Floats, factor: float) -> None:
        add_packed(out, self._packed, weight=factor)
