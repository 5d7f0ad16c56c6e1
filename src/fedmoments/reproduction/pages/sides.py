"""Tables of several data sets side by side, with the range of the paper's numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedmoments.report.markup import Html, breakable, tag
from fedmoments.report.plain import as_number, items, mapping
from fedmoments.reproduction.overview import data_label
from fedmoments.reproduction.pages.markdown import markdown_table, plain_words
from fedmoments.reproduction.pages.words import number_words, spread_words

__all__ = ["Side", "read_sides", "sides_markdown", "sides_section"]


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
    found = []
    for name, several in by_name.items():
        told = mapping(several[0].get("experiment"))
        labels = tuple(data_label(document) for document in several)
        found.append(Side(name, f"{told.get('source')}: {told.get('title')}", labels, _rows(several)))
    return found


def _is_measured(document: Mapping[str, Any]) -> bool:
    lines = items(mapping(document.get("table")).get("ours"))
    return any(mapping(cell).get("mean") is not None for line in lines for cell in items(line))


def _rows(documents: Sequence[Mapping[str, Any]]) -> tuple[tuple[str, ...], ...]:
    tables = [mapping(document.get("table")) for document in documents]
    rows, columns = (list(map(str, items(tables[0].get(key)))) for key in ("rows", "columns"))
    made = []
    for i, row in enumerate(rows):
        for j, column in enumerate(columns):
            ours = [_cell(table, "ours", i, j) for table in tables]
            blocks = [mapping(block) for block in items(tables[0].get("blocks"))]
            printed = [as_number(_cell(block, "cells", i, j).get("paper")) for block in blocks]
            words = [_words(cell) for cell in ours]
            if any(word != "–" for word in words):
                made.append((row if len(columns) == 1 else f"{row}, {column}", *words, _range(printed)))
    return tuple(made)


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


def sides_section(documents: Sequence[Mapping[str, Any]]) -> Html | None:
    """Return the tables for the page; None where there is none."""
    shown = []
    for side in read_sides(documents):
        names = ("", *side.labels, "the paper, on its data")
        heads = [
            tag("th", breakable(word), scope="col", class_="number" if i else None) for i, word in enumerate(names)
        ]
        rows = [
            tag("tr", tag("th", row[0], scope="row"), *(tag("td", word, class_="number") for word in row[1:]))
            for row in side.rows
        ]
        table = tag("table", tag("thead", tag("tr", *heads)), tag("tbody", *rows), class_="list")
        shown.append(tag("h3", f"{side.title} ({side.name})", class_="below"))
        shown.append(tag("div", table, class_="scroll", tabindex="0", role="region", aria_label=side.title))
    return tag("div", *shown) if shown else None
