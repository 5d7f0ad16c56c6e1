"""The table of a document: our numbers and the paper's, in groups of columns, each cell in words with its verdict."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedmoments.pages.plain import as_number, items, mapping
from fedmoments.study.papers.pages.words import MARKS, data_words, decimals_of, number_words, signed_words, spread_words

__all__ = ["Grid", "Group", "Number", "judged_cells", "read_grid"]


@dataclass(frozen=True)
class Number:
    """A number as it is shown.

    Parameters
    ----------
    main
        Our number with its spread; or the paper's, in a group of the paper's own.
    beside
        What it is compared with: the paper's number, or gains.
    verdict
        One of :data:`fedmoments.study.papers.comparison.VERDICTS`.
    tip
        All of it, in a sentence.
    """

    main: str
    beside: str = ""
    verdict: str = ""
    tip: str = ""

    @property
    def mark(self) -> str:
        """Sign of the verdict."""
        return MARKS.get(self.verdict, "")


@dataclass(frozen=True)
class Group:
    """Columns that belong together: ours, or a block of the paper.

    Parameters
    ----------
    name
        Over the columns.
    kind
        ``ours``, ``paper``, or ``both`` where ours and the paper's share cells.
    columns
        Their names.
    cells
        (rows, columns), of all rows of the table.
    rows
        Which rows it shows: without those that only other blocks of the paper have.
    distance
        Mean difference between our numbers and the paper's; None where there is none.
    tolerance
        Of this block, where it has one of its own.
    """

    name: str
    kind: str
    columns: tuple[str, ...]
    cells: tuple[tuple[Number, ...], ...]
    rows: tuple[int, ...]
    distance: float | None = None
    tolerance: float | None = None

    def row(self, i: int) -> tuple[Number, ...]:
        """Return the cells of a row, empty where it is not shown."""
        return self.cells[i] if i in self.rows else tuple(Number("") for _ in self.columns)


@dataclass(frozen=True)
class Grid:
    """Some groups, and the names of all rows."""

    rows: tuple[str, ...]
    groups: tuple[Group, ...]

    @property
    def shown(self) -> list[int]:
        """Rows that any group shows."""
        return [i for i in range(len(self.rows)) if any(i in group.rows for group in self.groups)]

    @property
    def width(self) -> int:
        """Columns of all groups."""
        return sum(len(group.columns) for group in self.groups)


def judged_cells(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the cells of a document that have a verdict which counts.

    Numbers of data that stand in for the paper's are not held against the paper's numbers: gains are.

    Examples
    --------
    >>> cell = {"mean": 1.0, "verdict": "agrees"}
    >>> document = {"mode": "computed", "table": {"blocks": [{"name": "one", "cells": [[cell]]}]}}
    >>> len(judged_cells(document))
    1
    """
    table = mapping(document.get("table"))
    ours = [[table.get("ours")]] if document.get("mode") != "computed" else []
    grids = ours or [[mapping(block).get("cells")] for block in items(table.get("blocks"))]
    cells = [mapping(cell) for blocks in grids for grid in blocks for row in items(grid) for cell in items(row)]
    return [cell for cell in cells if cell.get("verdict")]


def read_grid(document: Mapping[str, Any]) -> Grid | None:
    """Return the table of a document, or None when it has none.

    Parameters
    ----------
    document
        What :func:`fedmoments.study.papers.run_experiment` returns.

    Examples
    --------
    >>> cell = {"mean": 5.0, "spread": None, "values": [5.0], "paper": 5.0, "difference": 0.0, "verdict": "agrees"}
    >>> table = {"rows": ["FedNCM"], "columns": ["numbers"], "blocks": [{"name": "d = 5", "cells": [[cell]]}]}
    >>> grid = read_grid({"mode": "computed", "table": table})
    >>> grid.groups[0].cells[0][0].main, grid.groups[0].cells[0][0].mark
    ('5', '✓')
    """
    table = mapping(document.get("table"))
    rows = tuple(map(str, items(table.get("rows"))))
    if not rows:
        return None
    blocks = [mapping(block) for block in items(table.get("blocks"))]
    decimals = [_decimals(table, blocks, j) for j in range(len(items(table.get("columns"))))]
    computed = document.get("mode") == "computed"
    groups = [_block(table, block, decimals, "both" if computed else "paper") for block in blocks]
    if table.get("ours") or not computed:
        groups.insert(0, _ours(document, table, decimals))
    return Grid(rows, tuple(group for group in groups if group.columns))


def _decimals(table: Mapping[str, Any], blocks: Sequence[Mapping[str, Any]], j: int) -> int | None:
    """Return the decimals that the paper prints in a column; accuracies have one where it prints none."""
    printed = [as_number(_at(block.get("cells"), i, j).get("paper")) for block in blocks for i in _span(table)]
    places = decimals_of(printed)
    single = places is None and table.get("units") == "percent" and len(items(table.get("columns"))) == 1
    return 1 if single else places


def _span(table: Mapping[str, Any]) -> range:
    return range(len(items(table.get("rows"))))


def _at(cells: Any, i: int, j: int) -> Mapping[str, Any]:
    rows = items(cells)
    row = items(rows[i]) if i < len(rows) else ()
    return mapping(row[j]) if j < len(row) else {}


def _ours(document: Mapping[str, Any], table: Mapping[str, Any], decimals: Sequence[int | None]) -> Group:
    columns = tuple(str(name) for name in items(table.get("columns")))
    cells = tuple(
        tuple(_our_cell(_at(table.get("ours"), i, j), decimals[j]) for j in range(len(columns))) for i in _span(table)
    )
    name = mapping(document.get("data")).get("name")
    title = f"ours, on {data_words(name)}" if name else "ours"
    return Group(title, "ours", columns, cells, tuple(_span(table)))


def _our_cell(cell: Mapping[str, Any], decimals: int | None) -> Number:
    main = _with_spread(as_number(cell.get("mean")), as_number(cell.get("spread")), decimals)
    verdict = str(cell.get("verdict") or "")
    remarks = [f"ours: {main}", _seeds(cell, decimals)]
    beside = ""
    gain, gains = as_number(cell.get("gain")), [as_number(part) for part in items(cell.get("gains"))]
    if gain is not None and len(gains) == 2:
        beside = f"{signed_words(gain)} ({_range(gains[0], gains[1])})"
        remarks.append(f"gain {signed_words(gain)}, in the paper {_range(gains[0], gains[1])}: {verdict}")
    elif as_number(cell.get("paper")) is not None:
        beside = f"{signed_words(as_number(cell.get('difference')), decimals)}"
        remarks.append(f"{beside} from the paper’s number: {verdict}")
    if as_number(cell.get("mean")) is None and cell.get("reason"):
        remarks.append(str(cell["reason"]))
    return Number(main, beside, verdict, "; ".join(part for part in remarks if part))


def _block(table: Mapping[str, Any], block: Mapping[str, Any], decimals: Sequence[int | None], kind: str) -> Group:
    """Return a block of the paper, without rows and columns that only other blocks have."""
    names = list(map(str, items(table.get("columns"))))
    kept, shown = _places(table, block, len(names), extra=kind == "both")
    cells, base = block.get("cells"), _reference(table)
    starts = {j: _at(cells, base, j) if base is not None and _gained(table, j) else None for j in shown}

    def number(i: int, j: int) -> Number:
        cell = _at(cells, i, j)
        return _both_cell(cell, decimals[j]) if kind == "both" else _paper_cell(cell, starts[j], decimals[j])

    return Group(
        str(block.get("name", "")),
        kind,
        tuple(names[j] for j in shown),
        tuple(tuple(number(i, j) for j in shown) for i in _span(table)),
        kept,
        _distance([_at(cells, i, j) for i in _span(table) for j in shown]),
        as_number(block.get("tolerance")) if kind == "both" else None,
    )


def _places(
    table: Mapping[str, Any], block: Mapping[str, Any], columns: int, *, extra: bool
) -> tuple[tuple[int, ...], list[int]]:
    """Return the rows and columns of a block; with ``extra`` also those that no block has: they are ours alone."""
    rows, mine = _printed([block])
    all_rows, every = _printed([mapping(block) for block in items(table.get("blocks"))])
    kept = tuple(i for i in _span(table) if i in rows or (extra and i not in all_rows))
    return kept, [j for j in range(columns) if j in mine or (extra and j not in every)]


def _reference(table: Mapping[str, Any]) -> int | None:
    """Return the row that gains are over."""
    rows = list(items(table.get("rows")))
    return rows.index(table["reference"]) if table.get("reference") in rows else None


def _gained(table: Mapping[str, Any], j: int) -> bool:
    """Return whether a column is compared by gains."""
    return any(_at(table.get("ours"), i, j).get("gain") is not None for i in _span(table))


def _distance(cells: Sequence[Mapping[str, Any]]) -> float | None:
    """Return the mean difference between our numbers and the paper's."""
    sizes = [abs(difference) for cell in cells if (difference := as_number(cell.get("difference"))) is not None]
    return sum(sizes) / len(sizes) if sizes else None


def _printed(blocks: Sequence[Mapping[str, Any]]) -> tuple[set[int], set[int]]:
    """Return the rows and the columns in which some blocks of the paper have a number."""
    places = [
        (i, j)
        for block in blocks
        for i, row in enumerate(items(block.get("cells")))
        for j, cell in enumerate(items(row))
        if as_number(mapping(cell).get("paper")) is not None
    ]
    return {i for i, _ in places}, {j for _, j in places}


def _both_cell(cell: Mapping[str, Any], decimals: int | None) -> Number:
    main = _with_spread(as_number(cell.get("mean")), as_number(cell.get("spread")), decimals)
    paper, verdict = as_number(cell.get("paper")), str(cell.get("verdict") or "")
    whose = "formula" if verdict == "as derived" else "paper"
    beside = "" if paper is None else f"{whose} {_with_spread(paper, as_number(cell.get('paper_spread')), decimals)}"
    remarks = [f"ours {number_words(as_number(cell.get('mean')))}", beside]
    difference = as_number(cell.get("difference"))
    remarks.append("" if difference is None else f"difference {signed_words(difference, None)}: {verdict}")
    remarks.append(str(mapping(cell.get("misprint")).get("why") or ""))
    return Number(main, beside, verdict, "; ".join(remark for remark in remarks if remark))


def _paper_cell(cell: Mapping[str, Any], base: Mapping[str, Any] | None, decimals: int | None) -> Number:
    paper = as_number(cell.get("paper"))
    main = _with_spread(paper, as_number(cell.get("paper_spread")), decimals)
    start = as_number(base.get("paper")) if base else None
    gain = None if paper is None or start is None or base is cell else paper - start
    beside = "" if gain is None else signed_words(gain, 1)
    wrong = mapping(cell.get("misprint"))
    remark = f"the paper: {main}" + (f", a misprint for {number_words(as_number(wrong.get('right')))}" if wrong else "")
    return Number(f"{main}{' ‡' if wrong else ''}", beside, "", remark)


def _with_spread(mean: float | None, spread: float | None, decimals: int | None) -> str:
    text = number_words(mean, decimals)
    if spread is None or mean is None:
        return text
    return f"{text} ± {spread_words(spread, decimals)}"


def _seeds(cell: Mapping[str, Any], decimals: int | None) -> str:
    values = [as_number(value) for value in items(cell.get("values"))]
    return f"seeds {', '.join(number_words(value, decimals) for value in values)}" if len(values) > 1 else ""


def _range(low: float | None, high: float | None) -> str:
    if low == high:
        return f"paper {signed_words(low)}"
    return f"paper {signed_words(low)} to {signed_words(high)}"
