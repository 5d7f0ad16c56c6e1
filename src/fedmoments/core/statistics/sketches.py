"""Scatter sketches of many clients: one block each, or one a class of each, kept apart.

A block is a factor V (r, d) of the leading part of one client's class-centred scatter M, and the residual trace
ρ = tr M − ‖V‖²: together they have the trace of M exactly. M is that of all its classes together, or that of one class;
then the block has a label. Blocks are never added up; merging lays them side by side.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["ALL_CLASSES", "SKETCH_INDEX", "Sketches"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Label of a block of all classes together.
ALL_CLASSES = -1
#: Fields of statistics that index the blocks of :class:`Sketches`.
SKETCH_INDEX = ("sketch_sizes", "sketch_residuals", "sketch_owners", "sketch_labels")


@dataclass(frozen=True)
class Sketches:
    """Blocks of sketch rows.

    Parameters
    ----------
    rows
        (s, d) rows of all blocks, one block behind the other.
    sizes
        (b,) rows of every block.
    residuals
        (b,) residual trace of every block, in squared feature units.
    owners
        (b,) anonymous number of the contribution that a block came with, as in ``Statistics.row_owners``; −1 for a
        block that several contributions were compressed into.
    labels
        (b,) class of every block, or :data:`ALL_CLASSES`, which all have by default.

    Examples
    --------
    >>> some = Sketches(np.eye(3), np.array([2, 1]), np.array([0.5, 0.0]), np.array([0, 1]))
    >>> [(len(rows), residual, owner) for rows, residual, owner in some.blocks()]
    [(2, 0.5, 0), (1, 0.0, 1)]
    >>> some.trace
    3.5
    """

    rows: Floats
    sizes: Ints
    residuals: Floats
    owners: Ints
    labels: Ints = field(default_factory=lambda: np.zeros(0, np.int64))

    def __post_init__(self) -> None:
        if not len(self.labels):
            object.__setattr__(self, "labels", np.full(len(self.sizes), ALL_CLASSES, np.int64))

    @classmethod
    def of(cls, several: Sequence["Sketches"], owners: Sequence[int], dim: int) -> "Sketches":
        """Lay the blocks of several contributions side by side.

        Parameters
        ----------
        several
            Blocks of every contribution.
        owners
            Its number.
        dim
            d, for the case that there are none.

        Examples
        --------
        >>> one = Sketches(np.ones((1, 2)), np.array([1]), np.array([0.5]), np.array([0]))
        >>> Sketches.of([one, one], [3, 7], 2).owners
        array([3, 7])
        """
        return cls(
            np.concatenate([np.zeros((0, dim)), *(sketch.rows for sketch in several)]),
            np.concatenate([np.zeros(0, np.int64), *(sketch.sizes for sketch in several)]),
            np.concatenate([np.zeros(0), *(sketch.residuals for sketch in several)]),
            np.repeat(np.array(owners, np.int64), [len(sketch) for sketch in several]),
            np.concatenate([np.zeros(0, np.int64), *(sketch.labels for sketch in several)]),
        )

    @property
    def index(self) -> dict[str, Any]:
        """Everything but the rows, by the fields of statistics that hold it."""
        return dict(zip(SKETCH_INDEX, (self.sizes, self.residuals, self.owners, self.labels), strict=True))

    @property
    def by_class(self) -> bool:
        """Whether there are blocks, and each is of one class."""
        return len(self.labels) > 0 and bool((self.labels != ALL_CLASSES).all())

    @property
    def row_labels(self) -> Ints:
        """(s,) class of every row, or :data:`ALL_CLASSES`."""
        return np.repeat(self.labels, self.sizes)

    def __len__(self) -> int:
        return len(self.sizes)

    @property
    def starts(self) -> Ints:
        """(b,) where every block begins."""
        return np.cumsum(self.sizes) - self.sizes

    @property
    def trace(self) -> float:
        """Σ_k tr M_k, exact whatever the ranks."""
        return float(np.einsum("ij,ij->", self.rows, self.rows)) + float(self.residuals.sum())

    @property
    def traces(self) -> Floats:
        """(b,) trace of every block."""
        energies = np.einsum("ij,ij->i", self.rows, self.rows)
        return np.bincount(np.repeat(np.arange(len(self)), self.sizes), energies, len(self)) + self.residuals

    def blocks(self) -> Iterator[tuple[Floats, float, int]]:
        """Yield (rows (r, d), residual trace, owner) of every block."""
        for start, size, residual, owner in zip(
            self.starts.tolist(), self.sizes.tolist(), self.residuals.tolist(), self.owners.tolist(), strict=True
        ):
            yield self.rows[start : start + size], residual, owner

    def keys(self) -> list[bytes]:
        """Return the bytes that identify every block, whoever owns it."""
        residuals, labels = self.residuals.astype("<f8"), self.labels.astype("<i8")
        return [
            len(rows).to_bytes(8, "little")
            + labels[i : i + 1].tobytes()
            + residuals[i : i + 1].tobytes()
            + rows.astype("<f8", copy=False).tobytes()
            for i, (rows, _, _) in enumerate(self.blocks())
        ]

    def select(self, which: NDArray[np.int64] | NDArray[np.bool_]) -> "Sketches":
        """Return some blocks, by number in any order or by a mask (b,).

        Examples
        --------
        >>> some = Sketches(np.eye(3), np.array([2, 1]), np.array([0.5, 0.0]), np.array([0, 1]))
        >>> some.select(np.array([1])).rows
        array([[0., 0., 1.]])
        """
        chosen = np.flatnonzero(which) if which.dtype == bool else which
        sizes = self.sizes[chosen]
        shifts = np.repeat(self.starts[chosen] - (np.cumsum(sizes) - sizes), sizes)
        rows = self.rows[np.arange(int(sizes.sum())) + shifts]
        return Sketches(rows, sizes, self.residuals[chosen], self.owners[chosen], self.labels[chosen])

    def canonical(self) -> "Sketches":
        """Return the same blocks in an order that does not depend on the order of merging.

        Examples
        --------
        >>> a = Sketches(np.eye(2), np.array([1, 1]), np.array([1.0, 0.0]), np.array([0, 1]))
        >>> np.array_equal(a.canonical().rows, a.select(np.array([1, 0])).canonical().rows)
        True
        """
        keys = self.keys()
        return self.select(np.array(sorted(range(len(keys)), key=keys.__getitem__), np.int64))
