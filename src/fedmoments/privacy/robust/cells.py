"""All clients' classes as one table: row i says that a client's ``counts[i]`` samples of a class sum to ``sums[i]``."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.statistics import Statistics
from fedmoments.core.statistics.arithmetic import require_mergeable
from fedmoments.errors import InputError

__all__ = ["Cells", "stack"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Cells:
    """Counts and means of every (client, class) cell, ascending by label and, in a class, in the clients' order.

    Parameters
    ----------
    clients
        K names.
    holders, labels, counts
        (cells,) number of the client, class, and samples.
    means
        (cells, d) mean of the samples.
    n_classes
        C.
    """

    clients: tuple[Hashable, ...]
    holders: Ints
    labels: Ints
    counts: Ints
    means: Floats
    n_classes: int

    @property
    def samples(self) -> Ints:
        """(K,) samples of every client."""
        return np.bincount(self.holders, weights=self.counts, minlength=len(self.clients)).astype(np.int64)

    def kept(self, keep: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return which cells belong to the clients (K,) that are kept."""
        return np.asarray(keep[self.holders])


def stack(statistics: Mapping[Any, Statistics]) -> Cells:
    """Return the table of all clients' cells.

    Parameters
    ----------
    statistics
        Client -> statistics of the same kind, in float64 or fixed point.

    Examples
    --------
    >>> from fedmoments.core.statistics import StatisticsSpec
    >>> one = Statistics.of([[1.0], [3.0]], [0, 0], StatisticsSpec(), n_classes=2)
    >>> two = Statistics.of([[4.0], [5.0]], [1, 0], StatisticsSpec(), n_classes=2)
    >>> cells = stack({"a": one, "b": two})
    >>> cells.labels, cells.holders, cells.means.ravel()
    (array([0, 0, 1]), array([0, 1, 1]), array([2., 5., 4.]))
    """
    parts = list(statistics.values())
    if not parts:
        raise InputError("there is no client: give the statistics of at least one, as {client: statistics}")
    for other in parts[1:]:
        require_mergeable(parts[0], other)
    labels = np.concatenate([part.classes for part in parts])
    counts = np.concatenate([part.class_counts for part in parts])
    holders = np.repeat(np.arange(len(parts)), [len(part.classes) for part in parts])
    means = np.concatenate([part.class_array("sums") for part in parts])
    order = np.argsort(labels, kind="stable")
    ordered = means[order]
    ordered /= counts[order, None]
    return Cells(tuple(statistics), holders[order], labels[order], counts[order], ordered, parts[0].n_classes)
