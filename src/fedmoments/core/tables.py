"""Raw tables of many parties: what their columns hold, and the first exchange that centers and scales come from.

1. A **draft** says which columns hold numbers and which hold categories, and which categories: a data dictionary.
   People agree on it, or it is drawn from a table that may be shown; every number has a public range, a power of two,
   so that coded rows are at most √columns long.
2. In the **first exchange** clients measure counts, sums and squares behind the draft: an ordinary federation, under
   its terms, policies and secure sums if there are any.
3. `table_map` makes the map of these merged sums: mean and deviation of the numbers that are there, without columns
   that do not vary, and without categories of fewer than 5 samples, which count as another.

**Law** the map is a function of merged sums alone. In fixed point these are the same for every split of the same rows
over clients, and so is the map, bit for bit.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedmoments.core.linalg import blocks
from fedmoments.core.maps import Categories, Numbers, TableMap, median_bandwidth
from fedmoments.core.maps.base import FloatArray
from fedmoments.core.maps.cells import MISSING, cell_number, cell_text, cells_of, is_missing
from fedmoments.core.maps.table import LONGEST_NAME
from fedmoments.core.statistics import Accumulator, FixedPoint, Statistics, StatisticsSpec
from fedmoments.errors import InputError, NotEnoughDataError

__all__ = [
    "FIRST_EXCHANGE",
    "LEAST",
    "MOST_CATEGORIES",
    "draft_form",
    "draft_table",
    "table_after",
    "table_bandwidth",
    "table_map",
    "table_sums",
]

#: What clients send in the first exchange.
FIRST_EXCHANGE = StatisticsSpec.of("class_squares")
#: Categories of fewer samples have no column of their own.
LEAST = 5
#: Categories of a column in a draft: the most frequent ones.
MOST_CATEGORIES = 256
#: Variance of a column below this share of its mean square is rounding.
CONSTANT = 1e-12


def draft_table(given: Any, *, least: int = LEAST, categories: Collection[str] = ()) -> TableMap:
    """Return what a table's columns hold, to be agreed on: numbers with a range, categories with their texts.

    A column whose cells are all numbers, or missing, holds numbers; any other holds categories, of which those with
    ``least`` cells or more are listed, at most 256. A draft shows ranges (as powers of two) and texts of the table that
    it is drawn from.

    Parameters
    ----------
    given
        A dict of columns, or a table of pandas, polars, Arrow or Hugging Face: of features, without labels.
    least
        Cells that a category needs to be listed.
    categories
        Columns of numbers that are names of categories (codes, postal districts).

    Examples
    --------
    >>> draft = draft_table({"age": ["31", "70", "NA"] * 5, "smoker": ["no", "yes", "no"] * 5})
    >>> draft.columns[0]
    Numbers(name='age', center=0.0, scale=128.0, missing=True)
    >>> draft.columns[1].categories
    ('no', 'yes')
    """
    cells = cells_of(given)
    unknown = sorted(set(categories) - set(cells))
    if unknown:
        raise InputError(f"the table has no column '{unknown[0]}' of categories: it has {', '.join(map(str, cells))}")
    columns = [
        (None if name in categories else _numbers(name, values)) or _categories(name, values, least)
        for name, values in cells.items()
    ]
    return TableMap(tuple(columns))


def _numbers(name: str, values: Sequence[Any]) -> Numbers | None:
    """Return a column of numbers, or None if it holds something else, or nothing."""
    sizes = [abs(number) for number in _different_numbers(name, values) if number != MISSING]
    if not sizes:
        return None
    largest = max(sizes)
    return Numbers(name, scale=2.0 ** math.ceil(math.log2(largest)) if largest > 1e-30 else 1.0)


def _different_numbers(name: str, values: Sequence[Any]) -> set[float]:
    """Return each number of a column once; none of a column in which anything else is found."""
    try:
        different = set(values)
    except TypeError:  # lists, dicts: refused where they are coded
        return set()
    try:
        return {cell_number(value) for value in different}
    except InputError as error:
        if all(isinstance(value, Real) or is_missing(value) for value in different):  # infinite, not a category
            raise InputError(f"the column '{name}': {error}: correct it, or leave the column out") from error
        return set()


def _categories(name: str, values: Sequence[Any], least: int) -> Categories:
    counts = Counter(text for value in values if (text := cell_text(value)) is not None)
    often = sorted(counts, key=lambda text: (-counts[text], text))[:MOST_CATEGORIES]
    fit = [text for text in often if counts[text] >= least and len(text) <= LONGEST_NAME and text.isprintable()]
    return Categories(name, tuple(sorted(fit)))


def draft_form(draft: TableMap, n_samples: int) -> FixedPoint:
    """Return a fixed point in which sums behind a draft are exact in any order: rows are at most √columns long.

    Examples
    --------
    >>> draft_form(TableMap((Numbers("age", scale=128.0),)), 1000).norm_bound
    1.0
    """
    return FixedPoint(math.sqrt(len(draft.columns)), max(2, n_samples))


def table_after(draft: TableMap, X: ArrayLike, y: ArrayLike, *, n_classes: int, least: int = LEAST) -> TableMap:
    """Return the map after a first exchange about coded rows X (n, columns) with labels y (n,), whoever holds them.

    The sums are exact, so that the same rows give the same map however they are split over clients.

    Examples
    --------
    >>> draft = draft_table({"age": [30.0, 50.0] * 4})
    >>> table_after(draft, draft.code({"age": [30, 50]}), [0, 1], n_classes=2).columns[0].center
    40.0
    """
    return table_map(draft, table_sums(draft, X, y, n_classes=n_classes), least=least)


def table_sums(
    draft: TableMap, X: ArrayLike, y: ArrayLike, *, n_classes: int, form: FixedPoint | None = None
) -> Statistics:
    """Return what the client who holds coded rows X (n, columns) with labels y (n,) sends in the first exchange.

    Parameters
    ----------
    draft
        What is agreed on.
    X, y, n_classes
        The rows, their labels, and C.
    form
        The fixed point that all clients agree on; one for these rows alone by default.

    Examples
    --------
    >>> draft = draft_table({"age": [30.0, 50.0] * 4})
    >>> table_sums(draft, draft.code({"age": [30, 64]}), [0, 0], n_classes=1).sums.tolist()
    [[1.46875, 0.0]]
    """
    rows, labels = np.asarray(X), np.asarray(y)
    form = draft_form(draft, len(rows)) if form is None else form
    width = len(draft.outputs)
    measured = Accumulator(FIRST_EXCHANGE, n_classes=n_classes, dim=width, fixed_point=form)
    for block in blocks(len(rows)):
        measured.update(draft(rows[block]), labels[block])
    return measured.statistics()


def table_map(table: TableMap, stats: Statistics, *, least: int = LEAST) -> TableMap:
    """Return the map that the sums of a first exchange stand for.

    Parameters
    ----------
    table
        What the sums were measured behind: a draft, or any other centers and scales.
    stats
        Merged, with squares of the columns: of ``FIRST_EXCHANGE``, or with a gram.
    least
        Samples that a category needs for a column of its own.

    Examples
    --------
    >>> draft = draft_table({"age": [30.0, 50.0, 40.0] * 4, "unit": ["mg"] * 12})
    >>> rows = draft(draft.code({"age": [30, 50], "unit": ["mg", "mg"]}))
    >>> stats = Statistics.of(rows, [0, 1], FIRST_EXCHANGE, n_classes=2)
    >>> table_map(draft, stats, least=1).columns[0]
    Numbers(name='age', center=40.0, scale=10.0, missing=False)
    """
    return TableMap(tuple(column for column, _ in _settled(table, stats, least)))


def table_bandwidth(table: TableMap, stats: Statistics, *, least: int = LEAST) -> float:
    """Return the kernel width of random Fourier features behind the standardised table, from the same first exchange.

    Parameters
    ----------
    table, stats, least
        As for :func:`table_map`.

    Examples
    --------
    >>> draft = draft_table({"age": [30.0, 50.0] * 4})
    >>> stats = Statistics.of(draft(draft.code({"age": [30, 50]})), [0, 1], FIRST_EXCHANGE, n_classes=2)
    >>> table_bandwidth(draft, stats)
    2.0
    """
    # Behind the final map, numbers have the sum 0 and as many squares as there are; of counts both are the count.
    parts = [part for _, told in _settled(table, stats, least) for part in told]
    return median_bandwidth(
        stats.n_samples, np.array([total for total, _ in parts]), sum(square for _, square in parts)
    )


#: A column of the final map, with sum and squares of each column that it gives.
_Settled = tuple[Numbers | Categories, list[tuple[float, float]]]


def _settled(table: TableMap, stats: Statistics, least: int) -> Iterator[_Settled]:
    totals, squares, count = _totals(table, stats)
    start = 0
    for column in table.columns:
        stop = start + len(column.outputs)
        sums = totals[start:stop]
        if isinstance(column, Numbers):
            yield _settled_numbers(column, sums, squares[start:stop], count)
        else:
            yield _settled_categories(column, sums, count, least)
        start = stop


def _totals(table: TableMap, stats: Statistics) -> tuple[FloatArray, FloatArray, int]:
    """Return sums and squares (D,) over all samples, and how many there are."""
    if stats.dim != len(table.outputs):
        raise InputError(
            f"the first exchange was measured in {stats.dim} columns, but this table gives {len(table.outputs)}: it "
            "was measured behind another map"
        )
    if "class_squares" in stats.spec.moments:
        squares = stats.class_array("class_squares").sum(axis=0)
    elif "gram" in stats.spec.moments:
        squares = np.diagonal(stats.gram)
    else:
        raise InputError(
            f"centers and scales come from counts, sums and squares, but the first exchange collected {stats.spec}: "
            "let it serve the head gh-nb"
        )
    if not stats.n_samples:
        raise NotEnoughDataError("the first exchange holds no sample: centers and scales are unknown")
    return np.asarray(stats.sums.sum(axis=0), np.float64), np.asarray(squares, np.float64), stats.n_samples


def _settled_numbers(column: Numbers, sums: FloatArray, squares: FloatArray, count: int) -> _Settled:
    """Return a column with the mean and deviation of the numbers that are there."""
    gone = round(float(sums[-1])) if column.missing else 0
    there = count - gone
    missing = column.missing and 0 < gone < count
    deviations = [(float(gone), float(gone))] * missing
    if column.scale is None or not there:
        return replace(column, scale=None, missing=missing), deviations
    mean, second = float(sums[0]) / there, float(squares[0]) / there
    variance = second - mean * mean
    if variance <= CONSTANT * second:
        return replace(column, scale=None, missing=missing), deviations
    center, scale = column.center + column.scale * mean, column.scale * math.sqrt(variance)
    return Numbers(column.name, center, scale, missing), [(0.0, float(there)), *deviations]


def _settled_categories(column: Categories, sums: FloatArray, count: int, least: int) -> _Settled:
    """Return a column with the categories that are frequent enough, the others together, without constant ones."""
    counts = [round(total) for total in sums.tolist()]
    kept = {text: n for text, n in zip(column.categories, counts, strict=False) if least <= n < count}
    gone = counts[-1] if column.missing else 0
    others = count - gone - sum(kept.values())
    final = Categories(column.name, tuple(kept), other=column.other and 0 < others < count, missing=0 < gone < count)
    counts_told = [*kept.values(), *[others] * final.other, *[gone] * final.missing]
    return final, [(float(n), float(n)) for n in counts_told]
