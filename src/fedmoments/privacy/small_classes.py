"""Classes of which a client has too few samples: who of a party's clients measures them, and as how many means.

A mean over n samples shows each of them with weight 1/n, so a client's policy sets a least n. Two things may be done
about what is below it, besides keeping it back:

- *rows*: a class that would be split into s means over fewer than n samples each is sent as one mean;
- *clients*: a party that serves several clients may measure a class that is too small at some of them at one of them,
  the one that holds most of it, if there are n samples or more together.

Both are functions of counts alone. A scatter sketch is centred by whole classes, so merging rows leaves it as it is.

How much of a client's scatter may leave as a sketch, and what a sketch cannot go with.

A client with n samples of |C| classes has n − |C| directions in which samples differ from their class means: its
*spare* samples. A sketch of that many rows spans them all, and with the class means tells every sample up to a rotation
among samples. So a client cuts its own sketch, whatever the terms ask for:

    r ≤ share · (n − |C|),    and r = 0 where n − |C| < spare.

Where rows belong to classes, both hold in every class, whose spare samples are n_c − 1: a row of a small class is near
to one of its samples more often than a row of all classes is. Rows that are cut leave their energy to the residual
trace, so that tr M, or that of every class, stays exact.

A sketch is read row by row. It adds nothing up across clients, so nothing that hides a client among others works on it:
secure sums, noise and blurred counts are refused, not ignored (``Mode.check_sketch``). Their counterpart that adds up
is ``gram``.
"""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedmoments.core.statistics import Statistics
from fedmoments.core.statistics.moments import cell_sums
from fedmoments.errors import InputError
from fedmoments.settings.policy import SHARE, SPARE

__all__ = [
    "NOBODY",
    "allowed_rank",
    "check_limits",
    "hand_over",
    "limit_sketch",
    "merge_rows",
    "row_counts",
    "spare_samples",
]


def spare_samples(stats: Statistics) -> int:
    """Return n − |C|, the rank at which a client's sketch would span its samples.

    Examples
    --------
    >>> from fedmoments.core.statistics import StatisticsSpec
    >>> spare_samples(Statistics.of([[1.0], [2.0], [4.0]], [0, 0, 1], StatisticsSpec(), n_classes=2))
    1
    """
    return stats.n_samples - len(stats.classes)


def check_limits(share: Any, spare: Any) -> None:
    """Refuse a share that is not from 0 to 1, or a least number of spare samples that is not 0 or more.

    Examples
    --------
    >>> check_limits(1.5, 20)
    Traceback (most recent call last):
    fedmoments.errors.InputError: the share of spare samples that a sketch may span is from 0 to 1, not 1.5
    """
    if type(share) not in (int, float) or not 0 <= share <= 1:
        raise InputError(f"the share of spare samples that a sketch may span is from 0 to 1, not {share!r}")
    if type(spare) is not int or spare < 0:
        raise InputError(f"the fewest spare samples of a sketch are a whole number of 0 or more, not {spare!r}")


def allowed_rank(spare: int, *, share: float = SHARE, least: int = SPARE) -> int:
    """Return the largest rank that a client lets out.

    Parameters
    ----------
    spare
        n − |C|, of the samples that leave.
    share
        Of them, the largest part that a sketch spans.
    least
        With fewer, there are no rows.

    Examples
    --------
    >>> allowed_rank(80), allowed_rank(19), allowed_rank(19, least=0)
    (20, 0, 4)
    """
    check_limits(share, least)
    return 0 if spare < least else int(share * max(spare, 0) + 1e-9)


def limit_sketch(stats: Statistics, share: float = SHARE, least: int = SPARE) -> Statistics:
    """Return one client's statistics with no more sketch rows than its rules allow; the trace stays exact.

    Parameters
    ----------
    stats
        What one client measured, without what it withholds.
    share
        Largest part of n − |C| that the sketch spans; 0 for no rows at all.
    least
        With fewer spare samples n − |C|, there are no rows.

    Examples
    --------
    >>> from fedmoments.core.statistics import SketchPlan, StatisticsSpec
    >>> X, y = np.random.default_rng(0).normal(size=(42, 8)), [0] * 21 + [1] * 21
    >>> spec = StatisticsSpec.of("scatter_sketch", sketch=SketchPlan(None, rank=6))
    >>> stats = Statistics.of(X, y, spec, n_classes=2)
    >>> cut = limit_sketch(stats, share=0.1)
    >>> stats.sketches.sizes, cut.sketches.sizes
    (array([6]), array([4]))
    >>> round(stats.sketches.trace - cut.sketches.trace, 9)
    0.0
    """
    check_limits(share, least)
    if not stats.spec.has_sketch or not len(stats.sketch_sizes):
        return stats
    sketches = stats.sketches
    if len(sketches) > (len(stats.classes) if sketches.by_class else 1):
        raise InputError(
            f"a client limits its own sketch, but statistics of {int(stats.sketch_owners.max()) + 1} contributions "
            "arrived: limit each before they are merged"
        )
    spare = (stats.class_counts - 1).tolist() if sketches.by_class else [spare_samples(stats)]
    most = [allowed_rank(own, share=share, least=least) for own in spare]
    if (sketches.sizes <= most).all():
        return stats
    # Rows come by falling singular value, those of a block together.
    block = np.repeat(np.arange(len(sketches)), sketches.sizes)
    kept = np.arange(len(block)) - sketches.starts[block] < np.array(most)[block]
    # Added up as coded_factor adds up what it subtracts, so that a block without rows has its trace to the last bit.
    cut = [sketches.rows[(block == place) & ~kept] for place in range(len(sketches))]
    lost = np.array([float(np.square(rows).sum()) for rows in cut])
    return replace(
        stats,
        arrays={**stats.arrays, "scatter_sketch": np.ascontiguousarray(sketches.rows[kept])},
        sketch_sizes=np.minimum(sketches.sizes, most),
        sketch_residuals=stats.sketch_residuals + lost,
    )


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
