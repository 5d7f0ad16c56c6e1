"""Classes of which a client has too few samples: who of a party's clients measures them, and as how many means.

A mean over n samples shows each of them with weight 1/n, so a client's policy sets a least n. Two things may be done
about what is below it, besides keeping it back:

- *rows*: a class that would be split into s means over fewer than n samples each is sent as one mean;
- *clients*: a party that serves several clients may measure a class that is too small at some of them at one of them,
  the one that holds most of it, if there are n samples or more together.

Both are functions of counts alone. A scatter sketch is centred by whole classes, so merging rows leaves it as it is.
"""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedmoments.core.statistics import Statistics
from fedmoments.core.statistics.moments import cell_sums
from fedmoments.errors import InputError

__all__ = ["NOBODY", "hand_over", "merge_rows", "row_counts"]

Ints = NDArray[np.int64]

#: Stands for the client that measures what is withheld.
NOBODY = -1


def row_counts(count: int, means_per_client: int) -> list[int]:
    """Return over how many samples the means of a class are.

    Parameters
    ----------
    count
        Samples of the class.
    means_per_client
        Into how many means s a class of 2s samples or more is split.

    Examples
    --------
    >>> row_counts(11, 5), row_counts(9, 5)
    ([3, 2, 2, 2, 2], [9])
    """
    if count < 2 * means_per_client:
        return [count]
    whole, rest = divmod(count, means_per_client)
    return [whole + 1] * rest + [whole] * (means_per_client - rest)


def hand_over(counts: ArrayLike, min_count: int) -> Ints:
    """Say which of a party's clients measures each client's samples of each class.

    Parameters
    ----------
    counts
        (K, C) samples of every client and class.
    min_count
        Fewest samples that a class may be measured with.

    Returns
    -------
    numpy.ndarray
        (K, C) number of the client that measures them: the client itself where it has enough; where it has too few,
        the client of this party that holds most of the class (of several, the first), or `NOBODY` if that one would
        still have too few with those of all such clients.

    Examples
    --------
    Of class 0 the third client takes what the others have; of class 1 there are too few together.

    >>> hand_over([[4, 1], [2, 2], [9, 0]], min_count=5)
    array([[ 2, -1],
           [ 2, -1],
           [ 2,  2]])
    >>> hand_over([[4, 1], [2, 2]], min_count=5)
    array([[ 0, -1],
           [ 0, -1]])
    """
    table = np.asarray(counts)
    if table.ndim != 2 or table.dtype.kind not in "iu" or (table.size and table.min() < 0):
        raise InputError(
            f"counts must be whole numbers of 0 or more, one a client and class, (K, C); an array of shape "
            f"{table.shape} and type {table.dtype} arrived"
        )
    if min_count < 1:
        raise InputError(f"min_count must be 1 or more, not {min_count}")
    own = np.broadcast_to(np.arange(len(table))[:, None], table.shape)
    if not table.size:
        return own.astype(np.int64)
    small = (table > 0) & (table < min_count)
    most = table.argmax(axis=0)
    largest = table.max(axis=0)
    together = (table * small).sum(axis=0) + np.where(largest >= min_count, largest, 0)
    taker = np.where(together >= min_count, most, NOBODY)
    return np.where(small, taker, own).astype(np.int64)


def merge_rows(stats: Statistics, min_count: int) -> Statistics:
    """Return statistics in which a class with a mean over fewer than ``min_count`` samples has one mean, over all.

    Apply it before rounding to fixed point: a sum of rounded rows errs more than a row that is rounded once.

    Parameters
    ----------
    stats
        What one client measured.
    min_count
        Fewest samples of a row that may stay by itself.

    Examples
    --------
    >>> from fedmoments.core.statistics import StatisticsSpec
    >>> spec = StatisticsSpec.of("client_means", means_per_client=2)
    >>> stats = Statistics.of(np.arange(14.0)[:, None], [0] * 4 + [1] * 10, spec, n_classes=2)
    >>> stats.row_counts
    array([2, 2, 5, 5])
    >>> merged = merge_rows(stats, min_count=5)
    >>> merged.row_labels, merged.row_counts, merged.sums[0]
    (array([0, 1, 1]), array([4, 5, 5]), array([6.]))
    """
    if not stats.spec.keeps_clients_apart or not len(stats.row_labels):
        return stats
    if (np.diff(stats.row_labels) < 0).any():
        raise InputError("rows of several clients cannot be merged class by class: merge those of each client")
    thin = np.unique(stats.row_labels[stats.row_counts < min_count])
    several = np.isin(stats.row_labels, thin)
    starts = np.diff(stats.row_labels, prepend=-1) != 0
    first = starts | ~several
    if first.all():
        return stats
    places = np.cumsum(first) - 1
    n_rows = int(first.sum())
    arrays: dict[str, NDArray[Any]] = dict(stats.arrays)
    arrays["client_means"] = cell_sums(stats.arrays["client_means"], places, n_rows)
    counts = np.zeros(n_rows, np.int64)
    np.add.at(counts, places, stats.row_counts)
    return replace(
        stats,
        arrays=arrays,
        row_labels=stats.row_labels[first],
        row_counts=counts,
        row_owners=stats.row_owners[first],
    )
