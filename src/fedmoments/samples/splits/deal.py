"""From a table of counts, client by class, to an assignment of samples.

All schemes that look at labels decide only *how many* samples of a class a client gets; which ones is a shuffle,
the same for all of them, and is done here once.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedmoments.samples.splits.draws import check_keys, shuffle
from fedmoments.samples.splits.split import DROPPED

__all__ = ["Cells", "Groups", "deal", "group"]


@dataclass(frozen=True, eq=False)
class Groups:
    """Samples grouped by a key.

    Attributes
    ----------
    keys
        (c,), the different keys, sorted.
    codes
        (n,), which of the keys each sample has.
    sizes
        (c,), samples a key; all are at least 1.
    """

    keys: NDArray[np.generic]
    codes: NDArray[np.int64]
    sizes: NDArray[np.int64]


def group(values: ArrayLike, what: str) -> Groups:
    """Group samples by their key, (n,); labels need not be contiguous, and absent ones cost nothing.

    Examples
    --------
    >>> group([7, 3, 7], "labels").sizes.tolist()
    [1, 2]
    """
    keys, codes = np.unique(check_keys(values, what), return_inverse=True)
    codes = codes.astype(np.int64, copy=False)
    return Groups(keys, codes, np.bincount(codes, minlength=len(keys)).astype(np.int64, copy=False))


@dataclass(frozen=True, eq=False)
class Cells:
    """Nonzero cells of the table client × class, three parallel arrays of the shape (cells,)."""

    clients: NDArray[np.int64]
    classes: NDArray[np.int64]
    counts: NDArray[np.int64]


def deal(rng: np.random.Generator, groups: Groups, cells: Cells) -> NDArray[np.int64]:
    """Deal shuffled samples of every class to clients by the counts; samples that are left over are dropped.

    Returns
    -------
    NDArray[np.int64]
        (n,), the client of each sample, or DROPPED.

    Examples
    --------
    >>> groups = group([0, 0, 1], "labels")
    >>> one = Cells(np.array([5]), np.array([0]), np.array([2]))
    >>> deal(np.random.default_rng(0), groups, one).tolist()
    [5, 5, -1]
    """
    n_classes = len(groups.keys)
    dealt = np.zeros(n_classes, dtype=np.int64)
    np.add.at(dealt, cells.classes, cells.counts)
    clients = np.concatenate([cells.clients, np.full(n_classes, DROPPED, dtype=np.int64)])
    classes = np.concatenate([cells.classes, np.arange(n_classes)])
    counts = np.concatenate([cells.counts, groups.sizes - dealt])
    by_class = np.argsort(classes, kind="stable")

    shuffled = shuffle(rng, len(groups.codes))
    samples = shuffled[np.argsort(groups.codes[shuffled], kind="stable")]
    out = np.empty(len(groups.codes), dtype=np.int64)
    out[samples] = np.repeat(clients[by_class], counts[by_class])
    return out
