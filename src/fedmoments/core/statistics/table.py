"""A growing table of equally long columns: what keeps a ledger of 10,000 clients one matrix, not 10,000 objects."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Table"]


class Table:
    """Columns that grow by doubling and shrink in place.

    Parameters
    ----------
    columns
        Name -> (trailing shape, dtype) of every column.

    Examples
    --------
    >>> table = Table({"label": ((), np.int64), "sum": ((2,), np.float64)})
    >>> table.append(label=np.array([3, 4]), sum=np.array([[1.0, 2.0], [3.0, 4.0]]))
    >>> table.keep(np.array([False, True]))
    >>> table["sum"]
    array([[3., 4.]])
    """

    def __init__(self, columns: dict[str, tuple[tuple[int, ...], Any]]) -> None:
        self._buffers = {name: np.zeros((0, *shape), dtype) for name, (shape, dtype) in columns.items()}
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, name: str) -> NDArray[Any]:
        """Return a read-only view of a column."""
        view = self._buffers[name][: self._length].view()
        view.flags.writeable = False
        return view

    def reserve(self, extra: int) -> None:
        """Make room for ``extra`` more rows, at least doubling when the buffers are full."""
        needed = self._length + extra
        for name, buffer in self._buffers.items():
            if needed > len(buffer):
                grown = np.zeros((max(needed, 2 * len(buffer)), *buffer.shape[1:]), buffer.dtype)
                grown[: self._length] = buffer[: self._length]
                self._buffers[name] = grown

    def adopt(self, **columns: NDArray[Any]) -> None:
        """Fill an empty table with arrays that are the table's own from now on: no copy is made."""
        self._buffers = {name: columns[name].astype(old.dtype, copy=False) for name, old in self._buffers.items()}
        self._length = len(next(iter(columns.values())))

    def append(self, **columns: NDArray[Any]) -> None:
        """Add rows; every column must be given, all of the same length."""
        extra = len(next(iter(columns.values())))
        self.reserve(extra)
        for name, buffer in self._buffers.items():
            buffer[self._length : self._length + extra] = columns[name]
        self._length += extra

    def keep(self, mask: NDArray[np.bool_]) -> None:
        """Drop the rows where ``mask`` (rows,) is False."""
        kept = int(mask.sum())
        for name, buffer in self._buffers.items():
            # A fresh buffer: views handed out earlier (a fitted head's statistics) must not change under their holders.
            self._buffers[name] = buffer[: self._length][mask]
        self._length = kept
