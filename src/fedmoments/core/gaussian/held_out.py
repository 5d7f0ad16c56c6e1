"""Clients held out: what statistics that were sent anyway say about samples that a fit has not seen.

The clients are dealt to folds. A fold's client means have not been seen by a fit from the other clients, whose class
means are μ_c from N_c samples. The mean μ_kc of n_kc held-out samples then misses μ_c by Σ·(1/n_kc + 1/N_c), so that

    δ_kc = (μ_kc − μ_c) / √(1/n_kc + 1/N_c)

is a draw with the within-class covariance Σ of *one* sample: in every direction, however few rows a client sent of its
scatter. It is more like a Gaussian than a sample is, because it is a mean; and where clients differ in more than their
labels, it holds their differences, √n_kc times as large.

Folds depend on what clients sent, not on the order of merging, and not on the unit of features: clients are sorted by
how many samples and rows they have, then by a fixed combination of their sums, and dealt in turn.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.linalg import blocks
from fedmoments.core.statistics.spec import StatisticsSpec
from fedmoments.core.statistics.statistics import Statistics
from fedmoments.errors import InputError

__all__ = ["HeldOut", "folds_of_owners", "held_out_folds", "marks_of_rows", "of_owners"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Seed of the fixed combination of sums by which equal-sized clients are sorted.
SORTING_SEED = 8
#: Deviations that are kept of one fold, (this many, d) numbers; more would tell no more.
MOST_DEVIATIONS = 2048


def marks_of_rows(stats: Statistics) -> Floats:
    """Return a number (r,) of every row of client means that changes with any of its sums, in units of the sums."""
    direction = np.random.default_rng(SORTING_SEED).normal(size=stats.dim)
    rows, marks = stats.rows, np.empty(len(stats.row_labels))
    for block in blocks(len(rows)):
        marks[block] = np.einsum("ij,j->i", rows.block_sums(block), direction)
    return marks


def folds_of_owners(stats: Statistics, n_folds: int) -> tuple[Ints, Ints]:
    """Return the contributions (o,) that hold client means, and the fold (o,) of each, from 0.

    There are as many folds as contributions where these are fewer. Rows that several contributions were compressed
    into (owner −1) belong to no fold.

    Parameters
    ----------
    stats
        With client means, clients kept apart.
    n_folds
        How many folds, 2 or more.

    Examples
    --------
    >>> spec = StatisticsSpec.of("client_means")
    >>> clients = [Statistics.of([[float(n)]] * n, [0] * n, spec, n_classes=1) for n in (3, 9, 5)]
    >>> owners, folds = folds_of_owners(Statistics.merge(clients), 2)
    >>> owners, folds
    (array([0, 1, 2]), array([0, 0, 1]))
    """
    if n_folds < 2:
        raise InputError(f"clients are held out in 2 folds or more; {n_folds} arrived")
    owners, place = np.unique(stats.row_owners, return_inverse=True)
    known = owners >= 0
    sizes = np.bincount(place, weights=stats.row_counts, minlength=len(owners))
    rows = np.bincount(place, minlength=len(owners))
    marks = np.zeros(len(owners))
    order = np.lexsort((marks_of_rows(stats), stats.row_counts, stats.row_labels, place))
    np.add.at(marks, place[order], marks_of_rows(stats)[order])
    ranks = np.lexsort((marks[known], rows[known], -sizes[known]))
    folds = np.empty(len(ranks), np.int64)
    folds[ranks] = np.arange(len(ranks)) % min(n_folds, max(len(ranks), 1))
    return owners[known], folds


def of_owners(stats: Statistics, owners: Ints, *, without: bool = False) -> Statistics:
    """Return the client means, and scatter sketches if there are any, of some contributions.

    Parameters
    ----------
    stats
        Of many contributions.
    owners
        Their numbers, as in ``stats.row_owners``.
    without
        Return those of all others instead.

    Examples
    --------
    >>> spec = StatisticsSpec.of("client_means")
    >>> both = Statistics.merge([Statistics.of([[x]], [0], spec, n_classes=1) for x in (1.0, 5.0)])
    >>> of_owners(both, np.array([1])).sums, of_owners(both, np.array([1]), without=True).sums
    (array([[5.]]), array([[1.]]))
    """
    names = [name for name in ("client_means", "scatter_sketch") if name in stats.spec.moments]
    every = stats.restricted(StatisticsSpec.of(*names, means_per_client=stats.spec.means_per_client))
    mine = np.isin(every.row_owners, owners) != without
    labels, counts = every.row_labels[mine], every.row_counts[mine]
    totals = np.bincount(labels, weights=counts, minlength=stats.n_classes).astype(np.int64)
    arrays = {"client_means": every.arrays["client_means"][mine]}
    index = {"row_labels": labels, "row_counts": counts, "row_owners": every.row_owners[mine]}
    if "scatter_sketch" in names:
        sketches = every.sketches.select(np.isin(every.sketch_owners, owners) != without)
        arrays["scatter_sketch"] = sketches.rows
        index |= sketches.index
    classes = np.flatnonzero(totals)
    return replace(every, classes=classes, class_counts=totals[classes], arrays=arrays, **index)


@dataclass(frozen=True)
class HeldOut:
    """One fold: the statistics of the others, and the deviations of the clients held out.

    Parameters
    ----------
    training
        Statistics of all other contributions.
    labels
        (m,) class of every deviation, ascending.
    deviations
        (m, d) δ_kc, in feature units.
    """

    training: Statistics
    labels: Ints
    deviations: Floats

    @classmethod
    def of(cls, stats: Statistics, owners: Ints) -> "HeldOut":
        """Hold out these contributions.

        Examples
        --------
        >>> spec = StatisticsSpec.of("client_means")
        >>> clients = [Statistics.of([[x]] * 2, [0] * 2, spec, n_classes=1) for x in (1.0, 5.0)]
        >>> HeldOut.of(Statistics.merge(clients), np.array([1])).deviations
        array([[4.]])
        """
        training, held = of_owners(stats, owners, without=True), of_owners(stats, owners)
        counts = training.counts[held.row_labels]
        usable = np.flatnonzero(counts > 0)
        order = np.lexsort((marks_of_rows(held)[usable], held.row_counts[usable], held.row_labels[usable]))
        chosen = usable[order]
        if len(chosen) > MOST_DEVIATIONS:
            chosen = chosen[np.linspace(0, len(chosen) - 1, MOST_DEVIATIONS).astype(np.int64)]
        labels, sizes = held.row_labels[chosen], held.row_counts[chosen]
        deviations = held.rows.block_sums()[chosen] / sizes[:, None]
        deviations -= training.sums[labels] / training.counts[labels, None]
        deviations /= np.sqrt(1.0 / sizes + 1.0 / training.counts[labels])[:, None]
        return cls(training, labels, deviations)


def held_out_folds(stats: Statistics, n_folds: int = 5) -> Iterator[HeldOut]:
    """Yield every fold that tells something: it has a deviation, and others are left to learn from.

    Parameters
    ----------
    stats
        With client means, clients kept apart; scatter sketches go with their clients.
    n_folds
        How many folds; fewer where there are fewer clients, and none where there is one.

    Examples
    --------
    >>> spec = StatisticsSpec.of("client_means")
    >>> clients = [Statistics.of([[x]], [0], spec, n_classes=1) for x in (1.0, 5.0, 6.0)]
    >>> [fold.deviations.round(2).item() for fold in held_out_folds(Statistics.merge(clients))]
    [2.45, 1.22, -3.67]
    """
    owners, folds = folds_of_owners(stats, n_folds)
    for fold in range(int(folds.max(initial=-1)) + 1):
        held = HeldOut.of(stats, owners[folds == fold])
        if len(held.labels):
            yield held
