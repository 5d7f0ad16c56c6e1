"""The centre of a class as most of its holders see it: a weighted median of client means, coordinate by coordinate.

A mean of n samples scatters by s/√n, so the median with weights √n is the most precise: its variance is π/2·s²/Σn. No
voice weighs more than twice the median holder's, so that a large count buys little.

Robust yardsticks: how far is far, when some of the numbers are an attacker's.

A distance² r that averages over n samples scatters around s²·(ρ + v + 1/n): 1/n from its own samples, v from those of
the centre that it is measured from, ρ from differences between honest clients that no number of samples averages away.
On the logarithmic scale that is one unknown shift, log s², and the ratio ρ is the one that makes the logarithms most
alike: the median of their absolute deviations from their median (MAD) is least. Medians need an honest majority only,
and nothing depends on the unit of the features.

All clients' classes as one table: row i says that a client's ``counts[i]`` samples of a class sum to ``sums[i]``.
"""

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.linalg import blocks
from fedmoments.core.statistics import Statistics
from fedmoments.core.statistics.arithmetic import require_mergeable
from fedmoments.errors import InputError

__all__ = ["NORMAL", "Cells", "class_centres", "excess", "mad", "margins", "own_share", "stack", "weighted_median"]


Floats = NDArray[np.float64]

#: Standard deviation of a normal distribution in units of its median absolute deviation.
NORMAL = 1.4826022185056018
#: Ratios ρ that are tried, as shares of a single sample's variance.
RATIOS = (0.0, *(2.0**power for power in range(-12, 5)))


def mad(values: Floats) -> tuple[float, float]:
    """Return the median, and the standard deviation that the median absolute deviation from it implies.

    Examples
    --------
    >>> centre, spread = mad(np.array([1.0, 2.0, 3.0, 4.0, 1000.0]))
    >>> centre, round(spread, 3)
    (3.0, 1.483)
    """
    centre = float(np.median(values))
    return centre, NORMAL * float(np.median(np.abs(values - centre)))


def excess(distances: Floats, variances: Floats) -> Floats:
    """Return log(r/(s²·(ρ + variance))) of every squared distance, the median being 0: see the module.

    Parameters
    ----------
    distances
        (m,) squared distances r, in the square of any unit; 0 where there is none.
    variances
        (m,) their expectation without differences between clients, v + 1/n, in units of one sample's variance.

    Examples
    --------
    >>> excess(np.array([4.0, 1.0, 0.25, 64.0]), np.array([4.0, 1.0, 0.25, 1.0])).round(3)
    array([0.   , 0.   , 0.   , 4.159])
    """
    if not len(distances):
        return np.zeros(0)
    logs = np.log(np.maximum(distances, np.finfo(np.float64).tiny))
    deviations: Floats = np.zeros(len(logs))
    best = math.inf
    for ratio in RATIOS:
        tried = logs - np.log(ratio + variances)
        centre, spread = mad(tried)
        if spread < best * (1 - 1e-9):
            best, deviations = spread, tried - centre
    return deviations


def own_share(scores: Floats, sizes: Floats, spread: float) -> Floats:
    """Return how ``scores`` (K,), means of ``sizes`` (K,) numbers of spread ``spread``, scatter, as (K,).

    √(a² + spread²/size): the numbers of one client share the part a², which is what the scores scatter beyond spread.

    Examples
    --------
    >>> own_share(np.array([-1.0, 0.0, 1.0]), np.array([4.0, 4.0, 4.0]), 1.0).round(3)
    array([1.483, 1.483, 1.483])
    """
    _, whole = mad(scores)
    shared = max(whole**2 - spread**2 * float(np.median(1.0 / sizes)), 0.0)
    return np.sqrt(shared + spread**2 / sizes)


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


#: A holder's weight √n is capped at this many times the median holder's.
LOUDEST = 2.0
#: So many coordinates are sorted at once.
BLOCK_COLUMNS = 64


def weighted_median(values: Floats, weights: Floats) -> Floats:
    """Return the lower weighted median of every column, (m, d) with weights (m,) -> (d,).

    Examples
    --------
    >>> weighted_median(np.array([[1.0], [2.0], [9.0]]), np.array([1.0, 1.0, 1.0]))
    array([2.])
    >>> weighted_median(np.array([[1.0], [2.0], [9.0]]), np.array([1.0, 1.0, 5.0]))
    array([9.])
    """
    out = np.empty(values.shape[1])
    for some in blocks(values.shape[1], BLOCK_COLUMNS):
        part = np.ascontiguousarray(values[:, some].T)
        order = np.argsort(part, axis=1, kind="stable")
        reached = np.cumsum(weights[order], axis=1)
        half = reached[:, -1:] / 2 * (1 - 1e-12)
        place = (reached < half).sum(axis=1)
        out[some] = part[np.arange(len(part)), order[np.arange(len(part)), place]]
    return out


def class_centres(cells: Cells, use: NDArray[np.bool_]) -> tuple[Floats, Floats, NDArray[np.int64]]:
    """Return the centres of all classes, their variance, and how many holders they are the median of.

    Parameters
    ----------
    cells
        The table of all clients.
    use
        (cells,) which of them may speak.

    Returns
    -------
    centres
        (C, d); 0 where nobody speaks.
    variances
        (C,) in units of one sample's variance.
    voices
        (C,) how many spoke.
    """
    centres = np.zeros((cells.n_classes, cells.means.shape[1]))
    variances = np.zeros(cells.n_classes)
    voices = np.bincount(cells.labels[use], minlength=cells.n_classes)
    bounds = np.searchsorted(cells.labels, np.arange(cells.n_classes + 1))
    for label in np.flatnonzero(voices):
        here = slice(bounds[label], bounds[label + 1])
        spoken = use[here]
        roots = np.sqrt(cells.counts[here][spoken])
        weights = np.minimum(roots, LOUDEST * np.median(roots))
        centres[label] = weighted_median(cells.means[here][spoken], weights)
        variances[label] = np.pi / 2 * (weights**2).sum() / (weights * roots).sum() ** 2
    return centres, variances, voices


def margins(means: Floats, labels: NDArray[np.int64], centres: Floats, known: NDArray[np.int64]) -> Floats:
    """Return by how much nearer means lie to the centre of their own class than to the nearest other one.

    (‖μ − m_o‖² − ‖μ − m_c‖²)/‖m_o − m_c‖²: 1 at the own centre m_c, −1 at the other one m_o, 0 half-way. For one
    other class it is linear in μ, so its expectation does not depend on the number of samples.

    Parameters
    ----------
    means, labels
        (m, d) and (m,), of classes that are known.
    centres, known
        (k, d) centres of two classes or more, and their labels (k,), ascending.

    Examples
    --------
    >>> centres, known = np.array([[0.0], [4.0]]), np.array([2, 5])
    >>> margins(np.array([[0.0], [3.0]]), np.array([2, 2]), centres, known)
    array([ 1. , -0.5])
    """
    out = np.empty(len(means))
    own = np.searchsorted(known, labels)
    lengths = np.einsum("ij,ij->i", centres, centres)
    for some in blocks(len(means)):
        distances = lengths - 2 * (means[some] @ centres.T)  # less ‖μ‖², which cancels
        rows = np.arange(len(distances))
        mine = distances[rows, own[some]]
        distances[rows, own[some]] = np.inf
        other = distances.argmin(axis=1)
        gaps = centres[other] - centres[own[some]]
        apart = np.einsum("ij,ij->i", gaps, gaps)
        out[some] = (distances[rows, other] - mine) / np.maximum(apart, np.finfo(np.float64).tiny)
    return out
