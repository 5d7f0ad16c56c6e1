"""Hold out a test part, stratified: every class keeps its share, on every numpy release the same for a seed."""

import math
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.errors import InputError
from fedmoments.samples.splits.draws import Seed, generator, shuffle

__all__ = ["check_test_share", "hold_out"]


def check_test_share(value: object) -> float:
    """Return a share of at least 0 and below 1.

    Examples
    --------
    >>> check_test_share(1.5)
    Traceback (most recent call last):
    ...
    fedmoments.errors.InputError: test_share must be a number of at least 0 and below 1, but is 1.5
    """
    if not isinstance(value, bool) and isinstance(value, Real) and 0 <= float(value) < 1:
        return float(value)
    raise InputError(f"test_share must be a number of at least 0 and below 1, but is {value!r}")


def hold_out(
    labels: NDArray[np.int64], test_share: float = 0.2, seed: Seed = 0, *, groups: NDArray[Any] | None = None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Choose the test samples, class by class.

    Shares are rounded by largest remainders, so that the test part has round(test_share · n) samples, unless a class is
    so small that its share is: a class of two samples or more has at least one in each part, a class of one trains.

    Parameters
    ----------
    labels
        (n,) classes from 0.
    test_share
        At least 0, below 1; 0 holds out nothing.
    seed
        A whole number, or a generator (which is advanced).
    groups
        (n,) what must stay together, such as patients. In random order, a group joins the test part if that brings its
        counts of classes nearer to the shares asked for, and leaves every class a sample to train on.

    Returns
    -------
    train, test
        Indices, ascending.

    Examples
    --------
    >>> train, test = hold_out(np.array([0, 0, 0, 0, 0, 1, 1, 2]), 0.2, seed=0)
    >>> np.array([0, 0, 0, 0, 0, 1, 1, 2])[test].tolist()
    [0, 1]
    """
    share = check_test_share(test_share)
    if groups is not None:
        return _whole_groups(labels, groups, share, seed)
    n = len(labels)
    sizes = np.bincount(labels) if n else np.zeros(0, np.int64)
    quotas = share * sizes
    counts = np.floor(quotas).astype(np.int64)
    extra = math.floor(share * n + 0.5) - int(counts.sum())
    counts[np.argsort(counts - quotas, kind="stable")[: max(extra, 0)]] += 1
    if share:
        counts = np.clip(counts, np.minimum(1, np.maximum(sizes - 1, 0)), np.maximum(sizes - 1, 0))

    order = shuffle(generator(seed), n)
    by_class = order[np.argsort(labels[order], kind="stable")]
    starts = np.cumsum(sizes) - sizes
    rank = np.arange(n) - np.repeat(starts, sizes)
    chosen = rank < np.repeat(counts, sizes)
    return np.sort(by_class[~chosen]), np.sort(by_class[chosen])


def _whole_groups(
    labels: NDArray[np.int64], groups: NDArray[Any], share: float, seed: Seed
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return training and test samples with every group in one of the parts."""
    _, codes = np.unique(groups, return_inverse=True)
    n_groups = int(codes.max(initial=-1)) + 1
    cells = np.zeros((n_groups, int(labels.max(initial=-1)) + 1))
    np.add.at(cells, (codes, labels), 1)
    sizes = cells.sum(axis=0)
    wanted, held = share * sizes, np.zeros_like(sizes)
    test = np.zeros(n_groups, bool)
    order = shuffle(generator(seed), n_groups)
    for group in order if share else order[:0]:
        more = held + cells[group]
        if (more < sizes)[cells[group] > 0].all() and _away(more, wanted) < _away(held, wanted):
            held, test[group] = more, True
    if share and not test.any():  # groups are larger than the share: the one that is nearest to it
        fit = [group for group in order if (cells[group] < sizes)[cells[group] > 0].all()]
        test[min(fit, key=lambda group: _away(cells[group], wanted), default=order[:0])] = True
    return np.flatnonzero(~test[codes]), np.flatnonzero(test[codes])


def _away(counts: NDArray[np.float64], wanted: NDArray[np.float64]) -> float:
    return float(((counts - wanted) ** 2).sum())
