"""Class means of many clients, kept apart."""

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.statistics.fixed_point import FixedPoint

__all__ = ["MeanRows"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class MeanRows:
    """Class means kept apart: row i says that ``counts[i]`` samples of class ``labels[i]`` have a mean.

    Shapes: labels (r,), counts (r,). A client has one row a class, or several shares of it. The sums behind the means
    stay as they are stored; :meth:`block_means` widens a block at a time, so that no copy of all rows is made.
    """

    labels: Ints
    counts: Ints
    stored_sums: NDArray[Any]
    fixed_point: FixedPoint | None = None

    def block_sums(self, block: slice | Ints = slice(None)) -> Floats:
        """Return the sums n·mean of some rows, (rows in block, d) float64."""
        stored = self.stored_sums[block]
        return self.fixed_point.dequantize(stored, degree=1) if self.fixed_point else stored

    def block_means(self, block: slice | Ints = slice(None)) -> Floats:
        """Return the means of some rows, (rows in block, d) float64."""
        return np.asarray(self.block_sums(block) / self.counts[block, None])

    def order(self) -> Ints:
        """Return (r,) places of the rows in an order that does not depend on that of merging.

        Examples
        --------
        >>> MeanRows(np.array([1, 0]), np.array([1, 3]), np.array([[4.0], [0.0]])).order()
        array([1, 0])
        """
        return self._order

    @cached_property
    def _order(self) -> Ints:
        marks = [hashlib.blake2b(row.tobytes(), digest_size=16).digest() for row in self.stored_sums]
        keys = list(zip(self.labels.tolist(), self.counts.tolist(), marks, strict=True))
        return np.array(sorted(range(len(keys)), key=keys.__getitem__), np.int64)

    def __len__(self) -> int:
        return len(self.labels)
