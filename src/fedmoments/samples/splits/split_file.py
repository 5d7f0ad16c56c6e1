"""How a split is stored: a fedmoments file (see :mod:`fedmoments.files`) of one tensor, ``clients``, int64, (n,)."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedmoments.errors import FileFormatError
from fedmoments.files import Header, read_tensors, write_tensors

__all__ = ["Header", "read_split", "write_split"]


def write_split(path: Path, clients: NDArray[np.int64], header: Header) -> None:
    """Write an assignment, (n,), and its header; the file appears whole or not at all.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_split(Path(folder, "split"), np.array([0, 1, 1]), {"n_clients": 2})
    ...     clients, header = read_split(Path(folder, "split"))
    >>> clients.tolist(), header
    ([0, 1, 1], {'n_clients': 2})
    """
    write_tensors(path, "split", {"clients": clients.astype(np.int64, copy=False)}, header)


def read_split(path: Path) -> tuple[NDArray[np.int64], Header]:
    """Read what `write_split` wrote: the assignment, (n,), and the header.

    Raises
    ------
    FileFormatError
        When the file is damaged, or is something else.
    """
    tensors, header = read_tensors(path, "split")
    clients = tensors.get("clients")
    if len(tensors) != 1 or clients is None or clients.dtype != np.int64 or clients.ndim != 1:
        held = {name: f"{array.dtype}{array.shape}" for name, array in tensors.items()}
        raise FileFormatError(f"{path}: a split holds one tensor 'clients', int64 of shape (n,), but this file {held}")
    return clients, header
