"""A filter on rows of means that belong to nobody in particular: cohorts under secure sums.

Under secure sums no client is seen, but cohorts are: one row (count, mean) a cohort and class. A row with an attacker
in it lies far from the others, and is left out with what the honest clients of its cohort hold of the class. That
works as long as most rows of a class have no attacker: where an attacker holds every class, a share a of attackers
touches 1 − (1 − a)^m of the rows of cohorts of m clients, a tenth of them 65 % at m = 10, and then the medians are the
attackers'. Where clients hold few classes each, fewer rows are touched. An attacker with the count of an honest client
is one voice of m in its row, and mostly stays hidden.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.statistics import Statistics
from fedmoments.core.statistics.moments import cell_sums
from fedmoments.errors import MissingMomentError
from fedmoments.privacy.robust.centres import Cells
from fedmoments.privacy.robust.filtering import Filter, check_strictness

__all__ = ["suspect_rows", "without_rows"]

Mask = NDArray[np.bool_]


def suspect_rows(
    stats: Statistics, cohorts: NDArray[np.int64] | None = None, *, strictness: float = 1.0
) -> dict[int, str]:
    """Return the rows of client means to leave out, row -> reason.

    Parameters
    ----------
    stats
        Merged statistics that keep rows of means apart.
    cohorts
        (r,) the cohort that a row is of, if known: then whole cohorts are left out. None: every row is on its own.
    strictness
        See :func:`~fedmoments.privacy.robust.suspects`.

    Examples
    --------
    >>> from fedmoments.core.statistics import StatisticsSpec
    >>> rng, spec = np.random.default_rng(0), StatisticsSpec.of("client_means")
    >>> parts = [Statistics.of(rng.normal(size=(9, 8)) + 9 * (k == 3), [0] * 9, spec, n_classes=1) for k in range(8)]
    >>> list(suspect_rows(Statistics.merge(parts)))
    [3]
    """
    check_strictness(strictness)
    if not stats.spec.keeps_clients_apart:
        raise MissingMomentError(
            f"rows can only be examined where they are kept apart, but these statistics hold {stats.spec}: "
            "measure 'client_means'"
        )
    rows = stats.rows
    if not len(rows):
        return {}
    names, holders = np.unique(np.arange(len(rows)) if cohorts is None else cohorts, return_inverse=True)
    order = np.argsort(rows.labels, kind="stable")
    cells = Cells(
        tuple(names.tolist()),
        holders.astype(np.int64)[order],
        rows.labels[order],
        rows.counts[order],
        rows.block_means()[order],
        stats.n_classes,
    )
    dropped = Filter(cells, (), strictness, single=cohorts is None).run().dropped
    return {row: dropped[names[k]] for row, k in enumerate(holders.tolist()) if names[k] in dropped}


def without_rows(stats: Statistics, rows: dict[int, str]) -> Statistics:
    """Return statistics of client means without some rows.

    Parameters
    ----------
    stats
        Statistics that hold client means and nothing that was added up over clients.
    rows
        Row -> reason, as :func:`suspect_rows` returns them.

    Examples
    --------
    >>> from fedmoments.core.statistics import StatisticsSpec
    >>> stats = Statistics.of([[1.0], [5.0]], [0, 1], StatisticsSpec.of("client_means"), n_classes=2)
    >>> without_rows(stats, {1: "too far"}).counts
    array([1, 0])
    """
    if stats.spec.has_sketch:
        raise MissingMomentError(
            "a row of means can be taken out by itself, but a scatter sketch is of all classes of a client: these "
            f"statistics hold {stats.spec}. Leave out whole clients (suspects), or restrict them to 'client_means'"
        )
    if stats.spec.additive.sent != ("sums",):
        raise MissingMomentError(
            "rows can be taken out of client means, but not out of what was added up: these statistics hold "
            f"{stats.spec}. Restrict them to 'client_means' first"
        )
    keep = np.ones(len(stats.row_labels), bool)
    keep[list(rows)] = False
    classes, places = np.unique(stats.row_labels[keep], return_inverse=True)
    counts = cell_sums(stats.row_counts[keep][:, None], places.astype(np.int64), len(classes))[:, 0]
    return replace(
        stats,
        classes=classes,
        class_counts=counts,
        arrays={"client_means": stats.arrays["client_means"][keep]},
        row_labels=stats.row_labels[keep],
        row_counts=stats.row_counts[keep],
        row_owners=stats.row_owners[keep],
    )
