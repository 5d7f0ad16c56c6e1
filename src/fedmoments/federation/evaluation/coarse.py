"""How coarse the results of a test are that leave a client: no count of few samples, told or left over by subtraction.

A server chooses which classifiers are tested. With exact results it can put one sample alone into a cell of the
confusion table or a bin of confidence, and read its features from there, a number a head. So of one party's results

- a row of the table is told cell by cell where cells have ``minimum`` samples or more; the others of the row are told
  as one number, which is 0 or at least ``minimum``: the smallest cells join them until it is. A row whose right answers
  would have to join is not told;
- a bin of confidence is told where it has so many answers, and the answers in bins that are not told are none or at
  least so many;
- ranks of true classes are told in bins of so many samples: smaller ones join the next bin of lower probability, which
  widens prediction sets and breaks no guarantee;
- right answers of a bin, and of all rows that are not told, are rounded by chance so that neither they nor the wrong
  ones are few, and are right on average; sums of confidences are rounded to quarters of an answer;
- a sum of losses, of which one sample has at most 10 nats, is rounded by chance to tens of nats.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

__all__ = ["MOST_LOSS", "coarse_bins", "coarse_losses", "coarse_ranks", "coarse_rows", "rounded_part"]

#: What one sample counts for at most in a sum of losses, in nats, and the unit that such a sum is rounded to: what a
#: crafted head makes of a single sample moves the sum by one unit at most.
MOST_LOSS = 10.0

Ints = NDArray[np.int64]


def rounded_part(part: int, whole: int, minimum: int, chance: float) -> int:
    """Return a part of a whole such that it and the rest are 0 or at least ``minimum``; on average it is the part.

    Parameters
    ----------
    part, whole, minimum
        Samples.
    chance
        Drawn from 0 to 1: decides how what is too small is rounded.

    Examples
    --------
    >>> [rounded_part(part, 20, 5, 0.5) for part in (0, 2, 3, 9, 17, 18)]
    [0, 0, 5, 9, 15, 20]
    >>> rounded_part(6, 7, 5, 0.5)  # of so few, all or none
    7
    """
    if whole < 2 * minimum:
        return whole if chance * whole < part else 0
    if part < minimum:
        return minimum if chance * minimum < part else 0
    if whole - part < minimum:
        return whole - minimum if chance * minimum < whole - part else whole
    return part


def coarse_losses(sums: NDArray[np.float64], draw: Callable[[], float], unit: float = MOST_LOSS) -> NDArray[np.float64]:
    """Return sums of losses as whole numbers of a unit, rounded by chance so that they are right on average.

    Examples
    --------
    >>> coarse_losses(np.array([3.0, 24.0, 40.0]), lambda: 0.35).tolist()
    [0.0, 30.0, 40.0]
    """
    parts = np.asarray(sums, np.float64) / unit
    chances = np.array([draw() for _ in range(parts.size)]).reshape(parts.shape)
    return np.asarray((np.floor(parts) + (chances < parts - np.floor(parts))) * unit)


def coarse_rows(table: Ints, minimum: int) -> tuple[Ints, Ints]:
    """Return the confusion table (C, C) with the cells that are told, and (C,) samples of the others of told rows.

    Examples
    --------
    >>> cells, others = coarse_rows(np.array([[20, 6, 1], [0, 9, 2], [0, 0, 7]]), 5)
    >>> cells.tolist(), others.tolist()  # 6 joins the 1; 2 wrong answers cannot be told, so neither can the 9
    ([[20, 0, 0], [0, 0, 0], [0, 0, 7]], [7, 0, 0])
    """
    cells, others = np.zeros_like(table), np.zeros(len(table), np.int64)
    for label in np.flatnonzero(table.sum(axis=1) >= minimum):
        row = table[label]
        last = np.arange(len(row)) == label  # right answers join the others last of all
        told = _told(row, minimum, last)
        if told[label] or not row[label]:
            cells[label, told] = row[told]
            others[label] = row[~told].sum()
    counts = cells.sum(axis=1) + others
    for label in np.argsort(counts, kind="stable")[np.sort(counts) > 0]:
        if not 0 < table.sum() - counts.sum() < minimum:
            break
        cells[label], others[label], counts[label] = 0, 0, 0  # hides the few samples of rows that are not told
    return cells, others


def coarse_ranks(counts: Ints, minimum: int) -> Ints:
    """Return a histogram, likely samples first, with no count below ``minimum``: few join the next lower bin.

    Of fewer samples than that in all, nothing is told.

    Examples
    --------
    >>> coarse_ranks(np.array([9, 2, 4, 0, 7, 1]), 5).tolist()
    [9, 0, 6, 0, 0, 8]
    """
    told = np.zeros_like(counts)
    if counts.sum() < minimum:
        return told
    carried = 0
    for place, count in enumerate(counts.tolist()):
        carried += count
        if carried >= minimum:
            told[place], carried = carried, 0
    if carried:  # too few at the end: the last bin that was told joins them
        last = int(np.flatnonzero(told)[-1])
        carried += int(told[last])
        told[last] = 0
        told[-1] += carried
    return told


def coarse_bins(
    counts: Ints, hits: Ints, confidences: Ints, *, minimum: int, step: int, draw: Callable[[], float]
) -> tuple[Ints, Ints, Ints]:
    """Return bins of confidence, (bins,) each, with those that are told.

    Parameters
    ----------
    counts, hits, confidences
        Answers, right answers and sums of confidences of all bins.
    minimum, step
        Fewest answers that are told, and the unit that sums of confidences are rounded to.
    draw
        Returns chances from 0 to 1.

    Examples
    --------
    >>> bins = np.array([2, 9, 30]), np.array([1, 4, 29]), np.array([3, 60, 290])
    >>> [numbers.tolist() for numbers in coarse_bins(*bins, minimum=5, step=8, draw=lambda: 0.5)]  # the 9 hide the 2
    [[0, 0, 30], [0, 0, 30], [0, 0, 288]]
    """
    told = _told(counts, minimum, np.zeros(len(counts), np.bool_))
    pairs = zip(hits.tolist(), counts.tolist(), strict=True)
    right = [rounded_part(hit, count, minimum, draw()) for hit, count in pairs]
    rough = (confidences + step // 2) // step * step
    return np.where(told, counts, 0), np.where(told, right, 0).astype(np.int64), np.where(told, rough, 0)


def _told(numbers: Ints, minimum: int, last: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return which numbers are told so that each of them, and the sum of the others, is at least ``minimum`` or 0."""
    told = numbers >= minimum
    order = np.lexsort((numbers, last))
    for place in order[told[order]]:
        if not 0 < numbers[~told].sum() < minimum:
            break
        told[place] = False
    return told
