"""How coarse the results of a test are that leave a client: no count of few samples, told or left over by subtraction.

A server chooses which classifiers are tested. With exact results it can put one sample alone into a cell of the
confusion table or a bin of confidence, and read its features from there, a number a head; and where cells hold many,
two heads that differ for one sample tell by the difference into which of all cells and bins the first one put it. So of
one party's results

- a row of the table is told cell by cell where cells have ``minimum`` samples or more; the others of the row are told
  as one number, which is 0 or at least ``minimum``: the smallest cells join them until it is. A row whose right answers
  would have to join is not told. Wrong answers are told in whole multiples of ``minimum``, by chance one fewer, and
  what is beyond them joins the others;
- answers up to each edge of the bins of confidence are told in multiples of ``minimum``, rounded by chance, at each
  edge for itself; answers that are not told are none or at least so many;
- ranks of true classes likewise; prediction sets are widened by what chance may have moved;
- samples and right answers of a class are told where it has ``minimum`` samples or more, the latter rounded by chance
  so that neither they nor the wrong ones are few: what tables leave out are rows with few errors, and rows without any
  would stand for all;
- wrong answers by the class that was answered, of these samples, are rounded by chance to multiples of
  ``minimum``; so are, at each edge, both histograms of a class that tell how well it is told from others;
- right answers of a bin, and of all rows that are not told, are rounded by chance so that neither they nor the wrong
  ones are few; mean confidences of bins are rounded by chance to quarters of the bin;
- sums of confidences at other temperatures are rounded by chance to whole answers, by the same chance at all of them;
- a sum of losses, of which one sample has at most 10 nats, is rounded by chance to tens of nats.

What two such heads tell of one sample is then little more than whether it was answered rightly.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "MOST_LOSS",
    "coarse_bins",
    "coarse_classes",
    "coarse_losses",
    "coarse_odds",
    "coarse_ranks",
    "coarse_rows",
    "coarse_wrongly",
    "rounded_part",
]

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


def coarse_rows(table: Ints, minimum: int, draw: Callable[[], float]) -> tuple[Ints, Ints]:
    """Return the confusion table (C, C) with the cells that are told, and (C,) samples of the others of told rows.

    Examples
    --------
    >>> cells, others = coarse_rows(np.array([[20, 6, 1], [0, 9, 2], [0, 0, 7]]), 5, lambda: 0.5)
    >>> cells.tolist(), others.tolist()  # 6 joins the 1; 2 wrong answers cannot be told, so neither can the 9
    ([[20, 0, 0], [0, 0, 0], [0, 0, 7]], [7, 0, 0])
    >>> coarse_rows(np.array([[20, 13], [0, 9]]), 5, lambda: 0.5)[0].tolist()  # the 3 beyond 10 would be few
    [[20, 5], [0, 9]]
    """
    cells, others = np.zeros_like(table), np.zeros(len(table), np.int64)
    for label in np.flatnonzero(table.sum(axis=1) >= minimum):
        row = table[label]
        last = np.arange(len(row)) == label  # right answers join the others last of all
        told = _told(row, minimum, last)
        if told[label] or not row[label]:
            cells[label, told] = row[told]
            _take_apart(cells[label], int(label), minimum, int(row[~told].sum()), draw)
            others[label] = row.sum() - cells[label].sum()
    counts = cells.sum(axis=1) + others
    for label in np.argsort(counts, kind="stable")[np.sort(counts) > 0]:
        if not 0 < table.sum() - counts.sum() < minimum:
            break
        cells[label], others[label], counts[label] = 0, 0, 0  # hides the few samples of rows that are not told
    return cells, others


def _take_apart(row: Ints, label: int, minimum: int, rest: int, draw: Callable[[], float]) -> None:
    """Make wrong answers of a row multiples of ``minimum``, in place; what is beyond joins a rest that is never few."""
    wrong = [place for place in np.flatnonzero(row) if place != label]
    total = rest + int(row[wrong].sum())
    for place in wrong:
        row[place] = max(0, int(row[place]) - int(draw() * minimum)) // minimum * minimum
    for place in sorted(wrong, key=lambda place: int(row[place])):
        if not 0 < total - int(row[wrong].sum()) < minimum:
            break
        row[place] -= minimum * (row[place] > 0)


def coarse_ranks(counts: Ints, minimum: int, draw: Callable[[], float]) -> Ints:
    """Return a histogram without a bin of few samples; its sum is exact.

    Up to each bin it is right on average, or low: what rounding leaves over is told as improbable. Of fewer samples
    than ``minimum`` in all, nothing is told.

    Examples
    --------
    >>> coarse_ranks(np.array([9, 2, 4, 0, 7, 1]), 5, lambda: 0.5).tolist()
    [10, 0, 5, 0, 8, 0]
    """
    if counts.sum() < minimum:
        return np.zeros_like(counts)
    return _spread_out(counts, minimum, int(counts.sum()), len(counts) - 1, draw, rising=False)


def coarse_classes(table: Ints, minimum: int, draw: Callable[[], float]) -> tuple[Ints, Ints]:
    """Return samples (C,) and right answers (C,) of the classes that have enough, so that no few samples are left over.

    Examples
    --------
    >>> [part.tolist() for part in coarse_classes(np.array([[20, 1], [3, 2]]), 5, lambda: 0.9)]
    [[21, 5], [21, 0]]
    >>> [part.tolist() for part in coarse_classes(np.array([[20, 0], [3, 1]]), 5, lambda: 0.9)]  # hides the 4
    [[0, 0], [0, 0]]
    """
    counts = table.sum(axis=1)
    tested = counts * (counts >= minimum)
    for label in np.argsort(counts, kind="stable"):
        if not 0 < counts.sum() - tested.sum() < minimum:
            break
        tested[label] = 0
    found = np.zeros_like(tested)
    for label in np.flatnonzero(tested).tolist():
        found[label] = rounded_part(int(table[label, label]), int(tested[label]), minimum, draw())
    return tested, found


def coarse_wrongly(table: Ints, told: NDArray[np.bool_], minimum: int, draw: Callable[[], float]) -> Ints:
    """Return the wrong answers (C,) by the class that was answered, of rows (C,) that are told, in multiples.

    Examples
    --------
    >>> coarse_wrongly(np.array([[9, 7], [3, 9]]), np.array([True, False]), 5, lambda: 0.9).tolist()
    [0, 10]
    """
    wrong = table[told].sum(axis=0) - np.diagonal(table) * told
    shifted = np.array([int(number) + int(draw() * minimum) for number in wrong], np.int64)
    return np.asarray(np.minimum(shifted, table.sum()) // minimum * minimum)


def coarse_odds(counts: Ints, minimum: int, draw: Callable[[], float]) -> Ints:
    """Return histograms (2, C, bins) in multiples of ``minimum``; of one with fewer samples nothing is told.

    Examples
    --------
    >>> coarse_odds(np.array([[[2, 9, 4]], [[3, 0, 1]]]), 5, lambda: 0.5).tolist()
    [[[0, 10, 5]], [[0, 0, 0]]]
    """
    told = np.zeros_like(counts)
    for kind, label in np.argwhere(counts.sum(axis=2) >= minimum).tolist():
        mine = counts[kind, label]
        total = (int(mine.sum()) + int(draw() * minimum)) // minimum * minimum
        # the middle one of the last few samples says where these are: the very last stays hidden
        middle = int(np.searchsorted(np.cumsum(mine), mine.sum() - minimum // 2))
        told[kind, label] = _spread_out(mine, minimum, total, middle, draw, rising=draw() < 0.5)
    return told


def _spread_out(counts: Ints, minimum: int, total: int, end: int, draw: Callable[[], float], *, rising: bool) -> Ints:
    """Return one histogram of ``total`` samples without a bin of few; up to each bin it is right on average.

    What rounding leaves of the total, but for a few, goes to the bin ``end``. Each edge is rounded by itself: where
    numbers fall, later ones are raised or, unless ``rising``, earlier ones lowered.
    """
    up_to = np.cumsum(counts)
    few = total % minimum  # they join those before them, or, as often as makes up for it, some of these join them
    whole = total - few - minimum * (draw() * (few + minimum) < few)
    shifted = np.array([int(number) + int(draw() * minimum) for number in up_to])
    reached = np.minimum(shifted // minimum * minimum, whole)
    ordered = np.maximum.accumulate(reached) if rising else np.minimum.accumulate(reached[::-1])[::-1]
    told = np.diff(ordered, prepend=0)
    rest = total - int(ordered[-1])
    told[end if rest >= minimum or told[end] else np.flatnonzero(told)[-1]] += rest
    return told


def coarse_bins(
    counts: Ints, hits: Ints, confidences: Ints, *, minimum: int, one: int, draw: Callable[[], float]
) -> tuple[Ints, Ints, Ints]:
    """Return bins of confidence, (bins,) each, as they are told.

    Parameters
    ----------
    counts, hits, confidences
        Answers, right answers and sums of confidences of all bins.
    minimum, one
        Fewest answers that are told, and what a confidence of 1 is.
    draw
        Returns chances from 0 to 1.

    Examples
    --------
    >>> bins = np.array([2, 9, 30]), np.array([1, 4, 29]), np.array([48, 450, 2700])
    >>> [numbers.tolist() for numbers in coarse_bins(*bins, minimum=5, one=90, draw=lambda: 0.5)]
    [[0, 10, 25], [0, 5, 25], [0, 525, 2250]]
    """
    told = np.diff(_reached(counts, minimum, lambda: int(draw() * minimum)), prepend=0)
    right, rough, width = np.zeros_like(told), np.zeros_like(told), one / len(counts)
    for place in np.flatnonzero(told):
        had = max(int(counts[place]), 1)
        share = hits[place] / had
        right[place] = minimum * int(share * (told[place] // minimum) + draw())
        inside = confidences[place] / had - place * width if counts[place] else width / 2
        quarters = min(int(4 * min(max(inside / width, 0.0), 1.0) + draw()), 4)
        rough[place] = round(told[place] * width * (place + quarters / 4))
        rough[place] -= told[place] * (quarters == 4) * (place + 1 < len(counts))  # the edge belongs to the next bin
    return told, np.minimum(right, told), rough


def _reached(counts: Ints, minimum: int, shift: Callable[[], int]) -> Ints:
    """Return how many samples lie up to each bin, in multiples of ``minimum``, each shifted by itself before it is cut.

    What is beyond the last number is none or at least ``minimum``.
    """
    total = int(counts.sum())
    most = total if total % minimum == 0 else (total - minimum) // minimum * minimum
    shifted = np.array([int(number) + shift() for number in np.cumsum(counts)])
    return np.maximum.accumulate(np.clip(shifted // minimum * minimum, 0, max(most, 0)))


def _told(numbers: Ints, minimum: int, last: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return which numbers are told so that each of them, and the sum of the others, is at least ``minimum`` or 0."""
    told = numbers >= minimum
    order = np.lexsort((numbers, last))
    for place in order[told[order]]:
        if not 0 < numbers[~told].sum() < minimum:
            break
        told[place] = False
    return told
