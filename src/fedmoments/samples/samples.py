"""Samples: what a data source yields. Items that an encoder can prepare, labels, names, and who holds what if known."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedmoments.errors import InputError

__all__ = ["Chosen", "Hashed", "Modality", "Problem", "Samples", "item_digest"]

Modality = Literal["image", "text", "audio", "features"]


@dataclass(frozen=True)
class Problem:
    """A sample, or a class, that could not be used: where it came from and why."""

    where: str
    why: str

    def __str__(self) -> str:
        return f"{self.where}: {self.why}"


class Chosen(Sequence[Any]):
    """Some items of a sequence that reads them when asked, in the order of `indices` (n,); nothing is read here.

    Examples
    --------
    >>> list(Chosen("abc", np.array([2, 0])))
    ['c', 'a']
    """

    def __init__(self, items: Sequence[Any], indices: NDArray[np.integer[Any]]) -> None:
        self._items, self._indices = items, indices

    def __len__(self) -> int:
        return len(self._indices)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return Chosen(self._items, self._indices[place])
        return self._items[int(self._indices[place])]


@dataclass(frozen=True, eq=False)
class Hashed:
    """Digests (n, 32) of samples, and what tells of each file among them whether it has changed since."""

    digests: NDArray[np.uint8]
    stamps: tuple[Any, ...] = ()

    def take(self, indices: NDArray[np.integer[Any]]) -> "Hashed":
        """Return those of some samples."""
        return Hashed(self.digests[indices], tuple(self.stamps[i] for i in indices) if self.stamps else ())


@dataclass(frozen=True, eq=False)
class Samples:
    """Labelled samples of one part (train or test) of a data set.

    Parameters
    ----------
    items
        n samples: paths of images or sounds, the bytes of such files, image arrays (h, w) or (h, w, 3) of uint8,
        sentences, or rows of a feature matrix (n, d). A sequence may read its items when they are requested.
    labels
        (n,) int64 from 0 to len(class_names) − 1.
    class_names
        C names.
    modality
        What the items are.
    sources
        n short names for messages (a file's path, ``row 17``); numbers by default.
    domains, clients
        (n,) text or numbers, where the data say which domain a sample is from, or which client holds it.
    problems
        What was left out on the way here.
    groups
        (n,) text or numbers, where samples of one group (a patient) must stay together.

    Examples
    --------
    >>> both = Samples(["good", "bad"], np.array([1, 0]), ("negative", "positive"), "text")
    >>> len(both), both.source(1)
    (2, 'sample 1')
    """

    items: Sequence[Any] | NDArray[Any]
    labels: NDArray[np.int64]
    class_names: tuple[str, ...]
    modality: Modality
    sources: Sequence[str] = ()
    domains: NDArray[Any] | None = None
    clients: NDArray[Any] | None = None
    problems: tuple[Problem, ...] = field(default_factory=tuple)
    groups: NDArray[Any] | None = None
    #: What :func:`fedmoments.samples.digests.sample_digests` found, so that samples are hashed once.
    hashed: "Hashed | None" = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        for name in ("labels", "sources", "domains", "clients", "groups"):
            values = getattr(self, name)
            if values is not None and len(values) and len(values) != len(self.items):
                raise InputError(f"{name} must be one a sample, {len(self.items)}, but are {len(values)}")

    def __len__(self) -> int:
        return len(self.items)

    def source(self, index: int) -> str:
        """Return a short name of a sample, for messages."""
        return self.sources[index] if len(self.sources) else f"sample {index}"

    def take(self, indices: NDArray[np.integer[Any]]) -> "Samples":
        """Return some of the samples, in the order given; items that are read when asked for are not read now.

        Examples
        --------
        >>> Samples(["good", "bad"], np.array([1, 0]), ("-", "+"), "text").take(np.array([1])).items
        ['bad']
        """
        if len(indices) == len(self) and np.array_equal(indices, np.arange(len(self))):
            return self  # with what is known of it
        taken = Samples(
            _choose(self.items, indices),
            self.labels[indices],
            self.class_names,
            self.modality,
            [self.sources[i] for i in indices] if len(self.sources) else (),
            None if self.domains is None else self.domains[indices],
            None if self.clients is None else self.clients[indices],
            self.problems,
            None if self.groups is None else self.groups[indices],
        )
        if self.hashed is not None:
            taken.keep(self.hashed.take(indices))
        return taken

    def keep(self, hashed: "Hashed") -> None:
        """Remember digests: they follow from the items, so the samples stay the same value."""
        object.__setattr__(self, "hashed", hashed)


def _choose(items: Sequence[Any] | NDArray[Any], indices: NDArray[np.integer[Any]]) -> Sequence[Any] | NDArray[Any]:
    if len(indices) == len(items) and np.array_equal(indices, np.arange(len(items))):
        return items  # nothing is left out: a mapped file stays one
    if isinstance(items, np.ndarray):
        chosen: NDArray[Any] = items[indices]
        return chosen
    return [items[i] for i in indices] if isinstance(items, list | tuple) else Chosen(items, indices)


def item_digest(item: Any) -> bytes:
    """Return the SHA-256 of a sample's content: a file's bytes, a text's UTF-8, an array's type, shape and bytes.

    An image file has the same digest on disk and in memory.

    Examples
    --------
    >>> item_digest("a sentence") == item_digest("a sentence")
    True
    """
    if isinstance(item, Path):
        item = item.read_bytes()
    if isinstance(item, bytes):
        return hashlib.sha256(b"file" + item).digest()
    if isinstance(item, str):
        return hashlib.sha256(b"text" + item.encode("utf-8", "surrogatepass")).digest()
    array = np.ascontiguousarray(item)
    return hashlib.sha256(f"array{array.dtype.str}{array.shape}".encode() + array.tobytes()).digest()
