"""The value that every scheme returns: which client holds which sample."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array

from fedmoments.core.observations.parts import SplitReport
from fedmoments.errors import FileFormatError, InputError, reading
from fedmoments.files import Header, read_tensors, write_tensors

__all__ = ["DROPPED", "Header", "Split", "client_name", "read_split", "write_split"]

DROPPED = -1
"""The client of a sample that a scheme leaves out."""


@dataclass(frozen=True, eq=False)
class Split:
    """An assignment of samples to clients.

    A sample has one client, or none (`DROPPED`): clients are disjoint by construction, and complete up to `dropped`.
    Iterating gives the samples of client 0, 1, … as index arrays.

    Attributes
    ----------
    clients
        (n,), the client of every sample, from 0 to n_clients − 1, or −1 for a sample that is dropped. Read-only.
    n_clients
        Number of clients K, empty ones included.
    scheme
        The scheme as it was typed, for example ``dirichlet:0.1``.
    names
        K different names of the clients (user ids, domains), or empty when they have none.
    why
        One sentence that says why samples were dropped; empty when none were.
    notes
        Further sentences a reader of results must know.

    Examples
    --------
    >>> split = Split(np.array([0, 2, 0, -1]), n_clients=3, scheme="by hand", why="The last one is broken.")
    >>> [samples.tolist() for samples in split]
    [[0, 2], [], [1]]
    >>> split.sizes.tolist(), split.dropped.tolist(), split.empty.tolist()
    ([2, 0, 1], [3], [1])
    """

    clients: NDArray[np.int64]
    n_clients: int
    scheme: str
    names: tuple[str, ...] = ()
    why: str = ""
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        clients = np.asarray(self.clients)
        if clients.ndim != 1 or clients.dtype.kind not in "iu":
            raise InputError(
                f"clients of a split must be whole numbers of the shape (n,), but are {clients.dtype} of the shape "
                f"{clients.shape}"
            )
        if self.n_clients < 1:
            raise InputError(f"n_clients of a split must be at least 1, but is {self.n_clients}")
        if len(clients) and not (clients.min() >= DROPPED and clients.max() < self.n_clients):
            raise InputError(
                f"clients of a split must be from {DROPPED} (dropped) to n_clients − 1 = {self.n_clients - 1}, but go "
                f"from {clients.min()} to {clients.max()}"
            )
        clients = clients.astype(np.int64)
        clients.setflags(write=False)
        object.__setattr__(self, "clients", clients)
        if self.names and len(set(self.names)) != self.n_clients:
            raise InputError(
                f"names of a split must be {self.n_clients} different ones, one a client, but are "
                f"{len(self.names)} of which {len(set(self.names))} differ"
            )
        if bool(self.why) != bool(len(self.dropped)):
            raise InputError(
                f"'why' of a split must say why samples are dropped, exactly when some are: {len(self.dropped)} are, "
                f"and it is {self.why!r}"
            )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Split):
            return NotImplemented
        return self._header() == other._header() and np.array_equal(self.clients, other.clients)

    def __hash__(self) -> int:
        return hash(self.digest())

    def __len__(self) -> int:
        return self.n_clients

    def __iter__(self) -> Iterator[NDArray[np.int64]]:
        return (self.indices(k) for k in range(self.n_clients))

    @cached_property
    def _order(self) -> NDArray[np.int64]:
        order = np.argsort(self.clients, kind="stable").astype(np.int64, copy=False)
        order.setflags(write=False)
        return order

    @cached_property
    def _bounds(self) -> NDArray[np.int64]:
        """Where in `_order` each client begins; dropped samples come before client 0."""
        counts = np.bincount(self.clients + 1, minlength=self.n_clients + 1)
        return np.cumsum(counts, dtype=np.int64)

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Samples a client, (K,)."""
        return np.diff(self._bounds)

    @property
    def dropped(self) -> NDArray[np.int64]:
        """Indices of the samples that no client holds, ascending."""
        return self._order[: self._bounds[0]]

    @property
    def empty(self) -> NDArray[np.int64]:
        """Clients that hold no sample, ascending."""
        return np.flatnonzero(self.sizes == 0).astype(np.int64, copy=False)

    def indices(self, client: int) -> NDArray[np.int64]:
        """Return the samples of one client, ascending; samples are sorted once, so all clients together cost one sort.

        Examples
        --------
        >>> Split(np.array([1, 0, 1]), n_clients=2, scheme="by hand").indices(1).tolist()
        [0, 2]
        """
        if not 0 <= client < self.n_clients:
            raise InputError(f"client must be from 0 to n_clients − 1 = {self.n_clients - 1}, but is {client}")
        return self._order[self._bounds[client] : self._bounds[client + 1]]

    def cells(self, y: ArrayLike, n_classes: int) -> csr_array:
        """Count samples by client and class.

        Parameters
        ----------
        y
            (n,), class labels from 0 to n_classes − 1.
        n_classes
            Number of classes C; a class may be absent.

        Returns
        -------
        scipy.sparse.csr_array
            (K, C), int64. Dropped samples are not counted.

        Examples
        --------
        >>> Split(np.array([0, 1, 1]), n_clients=2, scheme="by hand").cells([2, 0, 0], n_classes=3).toarray()
        array([[0, 0, 1],
               [2, 0, 0]])
        """
        labels = np.asarray(y)
        if labels.shape != self.clients.shape or labels.dtype.kind not in "biu":
            raise InputError(
                f"labels must be whole numbers of the shape {self.clients.shape}, one a sample of the split, but are "
                f"{labels.dtype} of the shape {labels.shape}"
            )
        if len(labels) and not (labels.min() >= 0 and labels.max() < n_classes):
            raise InputError(
                f"labels must be from 0 to n_classes − 1 = {n_classes - 1}, but go from {labels.min()} to "
                f"{labels.max()}: number the classes with np.unique(y, return_inverse=True)"
            )
        held = self.clients != DROPPED
        ones = np.ones(int(held.sum()), dtype=np.int64)
        places = (self.clients[held], labels[held].astype(np.int64))
        table = csr_array((ones, places), shape=(self.n_clients, n_classes))
        table.sum_duplicates()
        return table

    def report(self, seed: int | None = None) -> SplitReport:
        """Say what a reader of results must know.

        Examples
        --------
        >>> Split(np.array([1, 0, 1]), n_clients=3, scheme="by hand").report()
        SplitReport(scheme='by hand', samples=3, clients=3, empty_clients=1, smallest=0, largest=2, dropped=0, why='',
                    notes=(), seed=None)
        """
        return SplitReport(
            scheme=self.scheme,
            samples=len(self.clients),
            clients=self.n_clients,
            empty_clients=len(self.empty),
            smallest=int(self.sizes.min()),
            largest=int(self.sizes.max()),
            dropped=len(self.dropped),
            why=self.why,
            notes=self.notes,
            seed=seed,
        )

    def digest(self) -> str:
        """Return the sha256 of the assignment (clients and their number; not scheme, names or sentences), as hex.

        Examples
        --------
        >>> Split(np.array([1, 0]), n_clients=2, scheme="by hand").digest()[:12]
        'b801a2bee451'
        """
        head = f"fedmoments split, {self.n_clients} clients, {len(self.clients)} samples\n"
        return hashlib.sha256(head.encode() + self.clients.astype("<i8").tobytes()).hexdigest()

    def renamed(self, scheme: str) -> "Split":
        """Return the same split under the name that a person typed.

        Examples
        --------
        >>> Split(np.array([1, 0]), n_clients=2, scheme="classes:1").renamed("dirichlet:0").scheme
        'dirichlet:0'
        """
        return replace(self, scheme=scheme)

    def _header(self) -> Header:
        return {
            "n_clients": self.n_clients,
            "scheme": self.scheme,
            "names": list(self.names),
            "why": self.why,
            "notes": list(self.notes),
        }

    def save(self, path: str | Path) -> None:
        """Write the split to a safetensors file, of which the bytes depend on the split alone.

        Examples
        --------
        >>> import tempfile
        >>> split = Split(np.array([1, 0]), n_clients=2, scheme="by hand")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     split.save(Path(folder, "split.safetensors"))
        ...     Split.load(Path(folder, "split.safetensors")) == split
        True
        """
        write_split(Path(path), self.clients, self._header())

    @classmethod
    def load(cls, path: str | Path) -> "Split":
        """Read a split that `save` wrote.

        Raises
        ------
        FileFormatError
            When the file is damaged, or is something else.
        """
        clients, header = read_split(Path(path))
        kinds: dict[str, type] = {"n_clients": int, "scheme": str, "names": list, "why": str, "notes": list}
        if any(type(header.get(key)) is not kind for key, kind in kinds.items()) or len(header) != len(kinds):
            raise FileFormatError(f"{path}: the header of a split must hold {sorted(kinds)}, but holds {header}")
        lists = {key: tuple(str(item) for item in header[key]) for key in ("names", "notes")}
        with reading(f"{path} does not hold a valid split"):
            return cls(clients, **(header | lists))


def client_name(number: int, n_clients: int) -> str:
    """Return the id of a client that is one part of a split; ids sort as their numbers do.

    Examples
    --------
    >>> client_name(7, 100), client_name(7, 100_000)
    ('client-0007', 'client-00007')
    """
    return f"client-{number:0{max(4, len(str(n_clients - 1)))}d}"


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
