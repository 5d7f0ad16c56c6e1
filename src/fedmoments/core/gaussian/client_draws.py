"""Client means as draws of samples: what the sums that clients sent anyway say of samples, where no spread was sent.

The mean μ_kc of a client's n_kc samples of class c misses the class mean μ_c, of N_c samples, by Σ·(1/n_kc − 1/N_c). So

    μ_c + (μ_kc − μ_c) / √(1/n_kc − 1/N_c)

has the mean and the covariance of *one* sample of the class in every direction, as FedCOF's free covariance has. A mean
of many samples is more like a Gaussian than a sample is: scores that are linear in the features hardly notice,
densities with a variance for every class do.

**Clients that differ in more than their labels** are √n_kc times as far away as samples. Where the trace of the scatter
inside classes was sent, the statistic F of :mod:`fedmoments.core.gaussian.shift` says how much of that is theirs, and
deviations are divided by √F. Without a trace, clients give themselves away by class means that miss in one direction:
where clients draw from one population, what they miss by in two classes has an inner product of 0 on average. It was
within 0.011 of their mean square on ten sets of 100 clients (0.1 on one of two classes), and 0.05 to 0.5 with one
domain a client. From 0.03 on there are no draws.

**Law** one sample a client gives samples around their class mean, up to (1 − 1/N_c)^−½; **law** they do not depend on
the order of clients.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.gaussian.held_out import folds_of_owners, marks_of_rows, of_owners
from fedmoments.core.gaussian.shift import Shift
from fedmoments.core.statistics.statistics import Statistics

__all__ = ["MOST_KEPT", "ClientDraws"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Draws that are made at about the most, of clients with few and many samples alike: more would tell no more.
MOST_DRAWS = 4096
#: Bytes up to which clients' class sums are kept apart for heads that need no more than what they add up to.
MOST_KEPT = 2**28
#: Inner products of what a client misses by in two classes, in those of one class with itself, of clients that differ.
IN_COMMON = 0.03


@dataclass(frozen=True, eq=False)
class ClientDraws:
    """Points that are spread around class means as samples are.

    Parameters
    ----------
    points
        (m, d), in feature units.
    labels
        (m,) their classes.
    weights
        (m,) that add up to 1: every class has its share of the samples, every point of a class the same.
    """

    points: Floats
    labels: Ints
    weights: Floats

    @classmethod
    def of(cls, stats: Statistics, trace: float | None = None) -> Self | None:
        """Make them of client means; None where these tell nothing.

        Parameters
        ----------
        stats
            With client means, clients kept apart.
        trace
            Of the scatter inside classes, Σ_c Σ_i ‖x_i − μ_c‖²; None where it was not sent.

        Examples
        --------
        >>> from fedmoments.core.statistics import StatisticsSpec
        >>> spec = StatisticsSpec.of("client_means")
        >>> clients = [Statistics.of([[x], [x]], [0, 0], spec, n_classes=1) for x in (1.0, 5.0)]
        >>> np.sort(ClientDraws.of(Statistics.merge(clients)).points, axis=0)
        array([[-1.],
               [ 7.]])
        """
        some = _few(stats)
        held = np.bincount(some.row_labels, minlength=stats.n_classes)
        own, several = some.row_counts, held[some.row_labels] > 1
        chosen = np.flatnonzero(several & (own < stats.counts[some.row_labels]))
        if not len(chosen):
            return None
        chosen = chosen[np.lexsort((marks_of_rows(some)[chosen], own[chosen], some.row_labels[chosen]))]
        labels, sizes = some.row_labels[chosen], own[chosen].astype(np.float64)
        centres = stats.sums[labels] / stats.counts[labels, None]
        away = some.rows.block_means(chosen) - centres
        if trace is None and _in_common(away, some.row_owners[chosen]) > IN_COMMON:
            return None
        away /= np.sqrt(1.0 / sizes - 1.0 / stats.counts[labels])[:, None]
        if trace is not None:
            means = stats.sums / np.maximum(stats.counts, 1)[:, None]
            away /= np.sqrt(max(Shift.of(stats, means, trace=trace).ratio, 1.0))
        weights = stats.counts[labels] / held[labels]
        return cls(centres + away, labels, weights / weights.sum())

    @property
    def size(self) -> float:
        """How many draws of one weight tell as much."""
        return float(1.0 / np.square(self.weights).sum())


def _few(stats: Statistics) -> Statistics:
    """Return the client means of all clients, or of so many that there are few."""
    n_folds = -(-len(stats.row_labels) // MOST_DRAWS)
    if n_folds < 2 or not (stats.row_owners >= 0).any():
        return stats
    owners, folds = folds_of_owners(stats, n_folds)
    return of_owners(stats, owners[folds == 0])


def _in_common(away: Floats, owners: Ints) -> float:
    """Return the mean inner product of what a client misses by in two classes, in its mean square; 0 of no pair."""
    places = np.unique(owners, return_inverse=True)[1]
    held = np.bincount(places)
    pairs = float((held * (held - 1)).sum())
    square = float(np.square(away).sum())
    if not pairs or not square > 0.0:
        return 0.0
    sums = np.zeros((len(held), away.shape[1]))
    np.add.at(sums, places, away)
    return (float(np.square(sums).sum()) - square) / pairs / (square / len(away))
