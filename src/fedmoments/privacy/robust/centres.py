"""The centre of a class as most of its holders see it: a weighted median of client means, coordinate by coordinate.

A mean of n samples scatters by s/√n, so the median with weights √n is the most precise: its variance is π/2·s²/Σn. No
voice weighs more than twice the median holder's, so that a large count buys little.
"""

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.linalg import blocks
from fedmoments.privacy.robust.cells import Cells

__all__ = ["class_centres", "margins", "weighted_median"]

Floats = NDArray[np.float64]

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
