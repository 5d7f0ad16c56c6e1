"""Who holds which classes: a heat map of clients × classes, how much clients hold, and how many hold a class.

Small pictures: a palette PNG whose colour has one transparency a value, so that it suits any background.
"""

import base64
import struct
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.observations import Report
from fedmoments.core.observations.parts import Holders
from fedmoments.pages.blocks import lead, note
from fedmoments.pages.figure import both
from fedmoments.pages.formats import count, sentences, shorten
from fedmoments.pages.labels import text_width
from fedmoments.pages.markup import Html, Node, join, json_block, tag
from fedmoments.pages.plot import svg
from fedmoments.pages.shell import section
from fedmoments.settings.setting import split_words

__all__ = ["holders_section", "shade_uri"]


def shade_uri(shades: NDArray[np.uint8], colour: tuple[int, int, int]) -> str:
    """Return a picture as a data URI: shades (rows, columns) from 0, transparent, to 255, the full colour.

    Examples
    --------
    >>> shade_uri(np.zeros((2, 3), np.uint8), (0, 0, 0))[:36]
    'data:image/png;base64,iVBORw0KGgoAAA'
    """
    height, width = shades.shape
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    lines = np.concatenate([np.zeros((height, 1), np.uint8), shades], axis=1).tobytes()
    chunks = [
        _chunk(b"IHDR", header),
        _chunk(b"PLTE", bytes(colour) * 256),
        _chunk(b"tRNS", bytes(range(256))),
        _chunk(b"IDAT", zlib.compress(lines, 9)),
        _chunk(b"IEND", b""),
    ]
    picture = b"\x89PNG\r\n\x1a\n" + b"".join(chunks)
    return "data:image/png;base64," + base64.b64encode(picture).decode()


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


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
#: Pixels right of the picture, and those that a column must have for a number.
SIDE, BROAD = 64.0, 34.0


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

    @property
    def whole(self) -> bool:
        """Whether every class has a row and every client a column."""
        return self.cells.shape == (self.n_classes, self.n_clients)


@section("holders", "Who holds which classes", place=110, of="holders")
def holders_section(report: Report, holders: Holders) -> Html | None:
    """Return the section, or None when the report does not say who holds what."""
    if not holders.n_clients or not report.data.classes or not len(holders.cells):
        return None
    cells = _cells(holders, report.data.classes)
    named = len(holders.clients) == holders.n_clients
    names = list(holders.clients) if named else [f"client {i}" for i in range(holders.n_clients)]
    heat = _map(cells, names, [report.data.class_name(label) for label in range(report.data.classes)])
    return join(
        [
            lead(_facts(cells, heat.n_clients, heat.n_classes), _which(holders)),
            tag("figure", both(lambda width: _chart(heat, width)), class_="heat"),
            json_block({"rows": heat.rows, "columns": heat.columns, "cells": heat.cells.tolist()}, id="holders-data"),
            note(_legend(heat)),
        ]
    )


def _which(holders: Holders) -> str:
    """Return which split is shown."""
    split, seed = holders.split, holders.seed
    words = [split_words(split) if split else "", f"seed {seed}" if seed is not None else ""]
    return f" Split: {', '.join(filter(None, words))}." if any(words) else ""


def _legend(heat: _Map) -> str:
    rows, columns = heat.cells.shape
    return sentences(
        "The stronger the colour, the more samples, on a logarithmic scale from 1 to "
        f"{count(int(heat.cells.max(initial=0)))}.",
        f"Above: samples of a client, at most {count(heat.largest)}.",
        f"Right: clients that hold a class, at most {count(heat.most_held)}.",
        "" if heat.whole else f"Neighbours are put together: {columns} × {rows} cells are drawn.",
    )


def _cells(holders: Holders, n_classes: int) -> NDArray[np.int64]:
    """Return client, class and samples of every cell (n, 3) inside the table."""
    cells = holders.cells
    inside = (cells >= 0).all(axis=1) & (cells[:, 0] < holders.n_clients) & (cells[:, 1] < n_classes)
    return np.asarray(cells[inside])


def _facts(cells: NDArray[np.int64], n_clients: int, n_classes: int) -> str:
    """Return in words how unevenly classes are held."""
    held = cells[cells[:, 2] > 0]
    per_class = np.bincount(held[:, 1], minlength=n_classes)
    per_client = np.bincount(held[:, 0], minlength=n_clients)
    words = (
        f"The median client holds {np.median(per_client):.0f} of {count(n_classes, 'class', 'classes')}; the median "
        f"class is held by {np.median(per_class):.0f} of {count(n_clients, 'client')}."
    )
    alone = int((per_class == 1).sum())
    if alone:
        one = alone == 1
        words += f" {count(alone, 'class', 'classes')} {'is' if one else 'are'} held by a single client, and "
        words += f"give{'s' if one else ''} no covariance from client means."
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


def _chart(heat: _Map, width: float) -> Html:
    place = _lay_out(heat, width)
    numbers = _numbers(heat, place) if place.named and heat.whole and place.column > BROAD else []
    below = place.bottom + 17
    clients = _row_of_names(heat, place, below)
    below += 18 if clients else 0
    drawn: list[Node] = [
        *_picture(heat, place, LEGIBLE if numbers else 255),
        tag("path", d=_bars_up(heat.sizes, place.left, place.top - 4, place.column, 34.0), class_="margin"),
        tag("path", d=_bars_right(heat.holders, place.right + 5, place.top, place.line, SIDE - 12), class_="margin"),
        *_column_of_names(heat, place, width),
        *numbers,
        *clients,
        _words(f"{count(heat.n_clients, 'client')}, largest first", (place.left + place.right) / 2, below),
    ]
    title = (
        f"Who holds which classes: {count(heat.n_clients, 'client')} by {count(heat.n_classes, 'class', 'classes')}."
    )
    return svg(width, below + 8, title, *drawn)


@dataclass(frozen=True)
class _Place:
    """Where the picture lies: its left upper corner, the width of a column and the height of a line."""

    left: float
    top: float
    column: float
    line: float
    right: float
    bottom: float
    named: bool


def _lay_out(heat: _Map, width: float) -> _Place:
    n_rows, n_columns = heat.cells.shape
    named = n_rows <= NAMED_ROWS and n_rows == heat.n_classes
    left = max((text_width(name, 12) for name in _short(heat, width)), default=14.0) + 6 if named else 20.0
    line = 17.0 if named else min(7.0, max(3.0, 420.0 / n_rows))
    return _Place(left, 44.0, (width - SIDE - left) / n_columns, line, width - SIDE, 44.0 + line * n_rows, named)


def _short(heat: _Map, width: float) -> list[str]:
    return [shorten(name, 24 if width > 500 else 13) for name in heat.rows]


def _picture(heat: _Map, place: _Place, strongest: int) -> list[Node]:
    levels = np.log1p(heat.cells) / max(float(np.log1p(heat.cells.max(initial=0))), 1e-9)
    shades = np.where(heat.cells > 0, FAINTEST + levels * (strongest - FAINTEST), 0).round().astype(np.uint8)
    box = {"x": place.left, "y": place.top, "width": place.right - place.left, "height": place.bottom - place.top}
    return [
        tag("rect", **box, class_="heat-ground"),
        tag("image", href=shade_uri(shades, COLOUR), **box, preserveAspectRatio="none", class_="pixels"),
        tag("rect", **box, class_="heat-hit"),
    ]


def _words(words: str, x: float, y: float, **attributes: Any) -> Html:
    return tag("text", words, x=x, y=y, **{"text_anchor": "middle", "class_": "axis-title", **attributes})


def _numbers(heat: _Map, place: _Place) -> list[Node]:
    return [
        _words(
            count(number),
            place.left + (j + 0.5) * place.column,
            place.top + (i + 0.5) * place.line,
            dy="0.34em",
            class_="cell",
        )
        for i, numbers in enumerate(heat.cells.tolist())
        for j, number in enumerate(numbers)
        if number
    ]


def _column_of_names(heat: _Map, place: _Place, width: float) -> list[Node]:
    """Return the names of classes beside their rows, or else how many there are."""
    if place.named:
        return [
            _words(
                name, place.left - 6, place.top + (i + 0.5) * place.line, dy="0.34em", text_anchor="end", class_="tick"
            )
            for i, name in enumerate(_short(heat, width))
        ]
    middle = (place.top + place.bottom) / 2
    words = f"{count(heat.n_classes, 'class', 'classes')}, commonest first"
    return [_words(words, 11.0, middle, transform=f"rotate(-90 11 {middle:.0f})")]


def _row_of_names(heat: _Map, place: _Place, y: float) -> list[Node]:
    """Return the names of clients under their columns, where they fit."""
    if not heat.whole or any(text_width(name, 12) >= place.column for name in heat.columns):
        return []
    return [
        _words(name, place.left + (i + 0.5) * place.column, y, class_="tick") for i, name in enumerate(heat.columns)
    ]


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
