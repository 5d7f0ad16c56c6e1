"""Tables of several data sets side by side, with the range of the paper's numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from fedmoments.pages.formats import plain_words
from fedmoments.pages.plain import as_number, items, mapping
from fedmoments.study.papers.overview import data_label
from fedmoments.study.papers.pages.markdown import markdown_table
from fedmoments.study.papers.pages.words import number_words, spread_words

__all__ = ["Side", "read_sides", "sides_markdown"]


@dataclass(frozen=True)
class Side:
    """One table of a paper on all data sets that it was measured on.

    Parameters
    ----------
    name, title
        Of the experiment.
    labels
        Of the data sets.
    rows
        Name of the row, our number on each data set, and the least and largest number of the paper.
    """

    name: str
    title: str
    labels: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def read_sides(documents: Sequence[Mapping[str, Any]]) -> list[Side]:
    """Return the tables that data stood in for, each with a column for every data set.

    Examples
    --------
    >>> cell = {"mean": 90.0, "spread": None, "paper": 41.5}
    >>> table = {"rows": ["FedNCM"], "columns": ["accuracy"], "ours": [[cell]], "blocks": [{"cells": [[cell]]}]}
    >>> told = {"name": "fedcof/table3", "source": "Table 3", "title": "Bytes"}
    >>> document = {"mode": "stand-in", "data": {"name": "npz:a.npz"}, "table": table, "experiment": told}
    >>> read_sides([document])[0].rows
    (('FedNCM', '90.0', '41.5'),)
    """
    by_name: dict[str, list[Mapping[str, Any]]] = {}
    for document in documents:
        if document.get("mode") == "stand-in" and _is_measured(document):
            by_name.setdefault(str(mapping(document.get("experiment")).get("name")), []).append(document)
    sides = []
    for name, several in by_name.items():
        experiment = mapping(several[0].get("experiment"))
        labels = tuple(data_label(document) for document in several)
        sides.append(Side(name, f"{experiment.get('source')}: {experiment.get('title')}", labels, _rows(several)))
    return sides


def _is_measured(document: Mapping[str, Any]) -> bool:
    lines = items(mapping(document.get("table")).get("ours"))
    return any(mapping(cell).get("mean") is not None for line in lines for cell in items(line))


def _rows(documents: Sequence[Mapping[str, Any]]) -> tuple[tuple[str, ...], ...]:
    tables = [mapping(document.get("table")) for document in documents]
    rows, columns = (list(map(str, items(tables[0].get(key)))) for key in ("rows", "columns"))
    lines = []
    for i, j in product(range(len(rows)), range(len(columns))):
        cells = [_words(_cell(table, "ours", i, j)) for table in tables]
        name = rows[i] if len(columns) == 1 else f"{rows[i]}, {columns[j]}"
        if set(cells) != {"–"}:
            lines.append((name, *cells, _range(_printed(tables[0], i, j))))
    return tuple(lines)


def _printed(table: Mapping[str, Any], i: int, j: int) -> list[float | None]:
    """Return the numbers of the paper's blocks at one place."""
    return [as_number(_cell(mapping(block), "cells", i, j).get("paper")) for block in items(table.get("blocks"))]


def _cell(table: Mapping[str, Any], key: str, i: int, j: int) -> Mapping[str, Any]:
    return mapping(items(items(table.get(key))[i])[j])


def _words(cell: Mapping[str, Any]) -> str:
    mean, spread = as_number(cell.get("mean")), as_number(cell.get("spread"))
    if mean is None:
        return "–"
    decimals = 1 if abs(mean) <= 100 else None
    return (
        f"{number_words(mean, decimals)} ± {spread_words(spread, decimals)}" if spread else number_words(mean, decimals)
    )


def _range(printed: Sequence[float | None]) -> str:
    known = [value for value in printed if value is not None]
    ends = dict.fromkeys(number_words(value) for value in (min(known), max(known))) if known else {}
    return " to ".join(ends) or "–"


def sides_markdown(documents: Sequence[Mapping[str, Any]]) -> str:
    """Return the tables as Markdown; nothing where there is none.

    Examples
    --------
    >>> sides_markdown([])
    ''
    """
    parts = []
    for side in read_sides(documents):
        heads = ["", *map(plain_words, side.labels), "the paper, on its data"]
        rows = [list(map(plain_words, row)) for row in side.rows]
        table = markdown_table(heads, rows, numbers=range(1, len(heads)))
        parts += [f"**{plain_words(side.title)}** ({plain_words(side.name)})", table]
    return "\n\n".join(parts)
