"""How well probabilities tell a class from all others: histograms of its probability, which add up, and areas (AUC).

With z the log-odds of a class, bin j of 24 counts samples with ⌊12 + 3.75·asinh z⌋ = j (the outermost: all beyond): a
quarter wide where a class is as likely as not, three wide where z is 12. Of a class there are two histograms: of its
own samples, and of others. The area under the ROC curve is the chance that a sample of the class has a higher
probability of it than another sample; within a bin the chance is one half.

Of a sample that leaves in coarse sums one other class is counted, drawn by its place, in place of all C − 1: what a
crafted head of many classes reads of it then does not grow with their number.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["N_ODDS", "areas", "odds_counts"]

Ints = NDArray[np.int64]

N_ODDS = 24
#: Bins by unit of asinh z.
FINE = 3.75
#: How many times the root of summed squared units a histogram must hold: areas are then right to a point or two.
FEW = 16
#: Spreads consecutive samples over classes: odd, and larger than there are classes.
STRIDE = 2654435761


def odds_counts(shares: NDArray[np.floating[Any]], labels: Ints, rows: Ints, *, drawn: bool) -> Ints:
    """Return the histograms (2, C + 1, 24) of probabilities (n, C) of samples with labels (n,), last those of all.

    Parameters
    ----------
    shares, labels
        Probabilities of all classes, and true classes.
    rows
        (n,) places of samples among their client's, which choose the other class that is counted.
    drawn
        Whether one other class of each sample is counted, or all are.

    Examples
    --------
    >>> counts = odds_counts(np.array([[0.9, 0.1], [0.4, 0.6]]), np.array([0, 1]), np.arange(2), drawn=False)
    >>> [np.flatnonzero(row).tolist() for row in counts.reshape(6, -1)]  # log-odds of 2.2, 0.4; −0.4, −2.2
    [[17], [13], [13, 17], [10], [6], [6, 10]]
    """
    n_classes = shares.shape[1]
    sure = np.clip(np.asarray(shares, np.float64), 1e-300, 1.0 - 1e-16)
    odds = np.floor(N_ODDS // 2 + FINE * np.arcsinh(np.log(sure) - np.log1p(-sure)))
    places = np.clip(odds, 0, N_ODDS - 1).astype(np.int64)
    cells, mine = np.arange(n_classes) * N_ODDS + places, np.arange(len(labels))
    found = np.zeros((2, n_classes * N_ODDS), np.int64)
    found[0] = np.bincount(cells[mine, labels], minlength=found.shape[1])
    if drawn and n_classes > 1:
        other = (labels + 1 + rows * STRIDE % 2**32 % (n_classes - 1)) % n_classes
        found[1] = np.bincount(cells[mine, other], minlength=found.shape[1])
    else:
        found[1] = np.bincount(cells.ravel(), minlength=found.shape[1]) - found[0]
    by_class = found.reshape(2, n_classes, N_ODDS)
    return np.concatenate([by_class, by_class.sum(axis=1, keepdims=True)], axis=1)


def areas(counts: Ints, rounded: int = 0) -> NDArray[np.float64]:
    """Return the area under the ROC curve of every class, (C,); NaN without samples of the class, or of others.

    Parameters
    ----------
    counts
        (2, C, 24) histograms.
    rounded
        Sum over coarse results of their squared unit. Where its root is more than a `FEW`-th of the samples, NaN.

    Examples
    --------
    >>> counts = np.zeros((2, 1, 24), np.int64)
    >>> counts[0, 0, [10, 15]], counts[1, 0, [3, 10]] = (1, 3), (2, 2)
    >>> areas(counts)  # of 16 pairs, 14 are in order and 2 in one bin
    array([0.9375])
    """
    own, other = counts.astype(np.float64)
    sizes = counts.sum(axis=2).min(axis=0)
    pairs = own.sum(axis=1) * other.sum(axis=1) * (sizes >= FEW * math.sqrt(rounded))
    below = np.cumsum(other, axis=1) - other / 2.0
    return np.where(pairs > 0, (own * below).sum(axis=1) / np.maximum(pairs, 1.0), np.nan)
