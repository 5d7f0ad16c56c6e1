"""Who holds what: clients × classes as a heat map, with how much a client holds and how many clients hold a class."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.report.axes import both, svg
from fedmoments.report.formats import count, shorten, split_words
from fedmoments.report.labels import text_width
from fedmoments.report.markup import Html, Node, join, json_block, tag
from fedmoments.report.plain import as_number, items, mapping
from fedmoments.report.png import shade_uri
from fedmoments.report.reading import Results

__all__ = ["holders_section"]

#: Most columns and rows of the picture: more clients or classes are put together.
MOST_COLUMNS, MOST_ROWS = 160, 100
#: Up to this many classes are named beside their row.
NAMED_ROWS = 40
#: Of the cells and the bars; alpha does the shading, so it suits light and dark.
COLOUR = (52, 132, 205)
#: The lightest cell that holds anything.
FAINTEST = 46
#: The strongest cell that a number can still be read on.
LEGIBLE = 150


@dataclass(frozen=True)
class _Map:
    """Samples (classes, clients) in order, put together into bins where there are many."""

    cells: NDArray[np.int64]
    rows: list[str]
    columns: list[str]
    holders: NDArray[np.float64]  # (rows,) clients that hold a class, mean over the bin
    sizes: NDArray[np.float64]  # (columns,) samples of a client, mean over the bin
    n_classes: int
    n_clients: int
    largest: int
    most_held: int


def holders_section(results: Results) -> Html | None:
    """Return the section, or None when the results do not say who holds what."""
    holders = mapping(results.raw.get("holders"))
    cells = _cells(holders)
    n_clients = int(as_number(holders.get("n_clients")) or len(items(holders.get("clients"))))
    if cells is None or not n_clients or not results.n_classes:
        return None
    inside = (cells >= 0).all(axis=1) & (cells[:, 0] < n_clients) & (cells[:, 1] < results.n_classes)
    cells = cells[inside]
    names = [str(name) for name in items(holders.get("clients"))]
    names = names if len(names) == n_clients else [f"client {i}" for i in range(n_clients)]
    made = _map(cells, names, [results.class_name(label) for label in range(results.n_classes)])
    seed = holders.get("seed")
    drawn = [split_words(holders["split"]) if holders.get("split") else "", f"seed {seed}" if seed is not None else ""]
    which = f" Split: {', '.join(filter(None, drawn))}." if any(drawn) else ""
    binned = made.cells.shape != (made.n_classes, made.n_clients)
    note = "The stronger the colour, the more samples, on a logarithmic scale from 1 to "
    note += f"{count(int(made.cells.max(initial=0)))}. Above: samples of a client, at most {count(made.largest)}. "
    note += f"Right: clients that hold a class, at most {count(made.most_held)}."
    if binned:
        note += f" Neighbours are put together: {made.cells.shape[1]} × {made.cells.shape[0]} cells are drawn."
    return join(
        [
            tag("p", _facts(cells, made.n_clients, made.n_classes), which, class_="lead"),
            tag("figure", both(lambda width: _chart(made, width)), class_="heat"),
            json_block({"rows": made.rows, "columns": made.columns, "cells": made.cells.tolist()}, id="holders-data"),
            tag("p", note, class_="note"),
        ]
    )


def _cells(holders: Any) -> NDArray[np.int64] | None:
    found = [cell for cell in items(holders.get("cells")) if len(items(cell)) == 3 and None not in cell]
    table = np.asarray(found).reshape(-1, 3)
    return table.astype(np.int64) if found and table.dtype.kind in "iu" else None


def _facts(cells: NDArray[np.int64], n_clients: int, n_classes: int) -> str:
    """Return in words how unevenly classes are held."""
    held = cells[cells[:, 2] > 0]
    per_class = np.bincount(held[:, 1], minlength=n_classes)
    per_client = np.bincount(held[:, 0], minlength=n_clients)
    words = (
        f"In the median, a client holds {np.median(per_client):.0f} of {count(n_classes, 'class', 'classes')}, and a "
        f"class is held by {np.median(per_class):.0f} of {count(n_clients, 'client')}."
    )
    alone = int((per_class == 1).sum())
    if alone:
        one = alone == 1
        words += f" {count(alone, 'class', 'classes')} {'is' if one else 'are'} held by a single client, and "
        words += f"give{'s' if one else ''} no free covariance."
    return words


def _map(cells: NDArray[np.int64], clients: list[str], classes: list[str]) -> _Map:
    client, label, samples = cells.T
    sizes = np.bincount(client, weights=samples, minlength=len(clients))
    totals = np.bincount(label, weights=samples, minlength=len(classes))
    holders = np.bincount(label[samples > 0], minlength=len(classes)).astype(np.float64)
    client_order, class_order = np.argsort(-sizes, kind="stable"), np.argsort(-totals, kind="stable")
    column_of = _bins(len(clients), MOST_COLUMNS)
    row_of = _bins(len(classes), MOST_ROWS)
    n_columns, n_rows = int(column_of[-1]) + 1, int(row_of[-1]) + 1
    rank_client, rank_class = np.argsort(client_order), np.argsort(class_order)
    table = np.zeros((n_rows, n_columns), np.int64)
    np.add.at(table, (row_of[rank_class[label]], column_of[rank_client[client]]), samples)
    return _Map(
        table,
        _bin_names([classes[i] for i in class_order], row_of, "classes"),
        _bin_names([clients[i] for i in client_order], column_of, "clients"),
        np.bincount(row_of, weights=holders[class_order]) / np.bincount(row_of),
        np.bincount(column_of, weights=sizes[client_order]) / np.bincount(column_of),
        len(classes),
        len(clients),
        int(sizes.max()),
        int(holders.max()),
    )


def _bins(n: int, most: int) -> NDArray[np.int64]:
    """Return the bin of each of n places: as many bins as places, or at most so many of nearly equal size."""
    return np.arange(n, dtype=np.int64) * min(n, most) // n


def _bin_names(names: list[str], bins: NDArray[np.int64], word: str) -> list[str]:
    if len(names) == int(bins[-1]) + 1:
        return names
    starts = np.flatnonzero(np.diff(bins, prepend=-1)).tolist()
    ends = [*starts[1:], len(names)]
    return [
        names[a] if b - a == 1 else f"{b - a} {word}, {shorten(names[a], 24)} … {shorten(names[b - 1], 24)}"
        for a, b in zip(starts, ends, strict=True)
    ]


def _chart(made: _Map, width: float) -> Html:
    n_rows, n_columns = made.cells.shape
    named = n_rows <= NAMED_ROWS and n_rows == made.n_classes
    letters = 24 if width > 500 else 13
    labels = [shorten(name, letters) for name in made.rows] if named else []
    left = max((text_width(label, 12) for label in labels), default=14.0) + 6
    top, side = 44.0, 64.0
    line = 17.0 if named else min(7.0, max(3.0, 420.0 / n_rows))
    across, down = width - left - side, line * n_rows
    column = across / n_columns
    levels = np.log1p(made.cells) / max(float(np.log1p(made.cells.max(initial=0))), 1e-9)
    numbered = named and n_columns == made.n_clients and column > 34
    strongest = LEGIBLE if numbered else 255
    shades = np.where(made.cells > 0, FAINTEST + levels * (strongest - FAINTEST), 0).round().astype(np.uint8)
    drawn: list[Node] = [
        tag("rect", x=left, y=top, width=across, height=down, class_="heat-ground"),
        tag(
            "image",
            href=shade_uri(shades, COLOUR),
            x=left,
            y=top,
            width=across,
            height=down,
            preserveAspectRatio="none",
            class_="pixels",
        ),
        tag("rect", x=left, y=top, width=across, height=down, class_="heat-hit"),
        tag("path", d=_bars_up(made.sizes, left, top - 4, column, 34.0), class_="margin"),
        tag("path", d=_bars_right(made.holders, left + across + 5, top, line, side - 12), class_="margin"),
    ]
    drawn += [
        tag("text", label, x=left - 6, y=top + (i + 0.5) * line, dy="0.34em", text_anchor="end", class_="tick")
        for i, label in enumerate(labels)
    ]
    if numbered:
        drawn += [
            tag(
                "text",
                count(number),
                x=left + (j + 0.5) * column,
                y=top + (i + 0.5) * line,
                dy="0.34em",
                text_anchor="middle",
                class_="cell",
            )
            for i, numbers in enumerate(made.cells.tolist())
            for j, number in enumerate(numbers)
            if number
        ]
    if not named:
        middle = top + down / 2
        words = f"{count(made.n_classes, 'class', 'classes')}, commonest first"
        drawn.append(
            tag(
                "text",
                words,
                x=11.0,
                y=middle,
                transform=f"rotate(-90 11 {middle:.0f})",
                text_anchor="middle",
                class_="axis-title",
            )
        )
    below = f"{count(made.n_clients, 'client')}, largest first"
    bottom = top + down + 17
    if n_columns == made.n_clients and all(text_width(name, 12) < column for name in made.columns):
        drawn += [
            tag("text", name, x=left + (i + 0.5) * column, y=bottom, text_anchor="middle", class_="tick")
            for i, name in enumerate(made.columns)
        ]
        bottom += 18
    drawn.append(tag("text", below, x=left + across / 2, y=bottom, text_anchor="middle", class_="axis-title"))
    title = f"Who holds what: {count(made.n_clients, 'client')} by {count(made.n_classes, 'class', 'classes')}."
    return svg(width, bottom + 8, title, *drawn)


def _bars_up(values: NDArray[np.float64], left: float, bottom: float, step: float, room: float) -> str:
    scaled = values / max(float(values.max(initial=0)), 1e-9) * room
    gap = min(1.0, step * 0.2)
    return "".join(
        f"M{left + i * step:.1f},{bottom:.0f}v{-height:.1f}h{step - gap:.2f}V{bottom:.0f}z"
        for i, height in enumerate(scaled.tolist())
    )


def _bars_right(values: NDArray[np.float64], left: float, top: float, step: float, room: float) -> str:
    scaled = values / max(float(values.max(initial=0)), 1e-9) * room
    gap = min(1.0, step * 0.2)
    return "".join(
        f"M{left:.1f},{top + i * step:.1f}h{length:.1f}v{step - gap:.2f}H{left:.1f}z"
        for i, length in enumerate(scaled.tolist())
    )
