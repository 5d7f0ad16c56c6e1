"""The table of all rows, sortable by any column."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedmoments.core.observations import SWEPT, Report, Row, plain_moments
from fedmoments.pages.answer import frontier
from fedmoments.pages.blocks import bullets, fold, note
from fedmoments.pages.formats import THIN, bytes_, count, seconds
from fedmoments.pages.markup import Html, join, tag
from fedmoments.pages.reading import setting_words
from fedmoments.pages.shell import section
from fedmoments.pages.table import Cell, Column, number_cell, share_cell, sortable
from fedmoments.pages.table import Row as TableRow

__all__ = ["heads_section"]

#: So many rows that could not be fitted are not folded.
UNFOLDED = 6


@dataclass(frozen=True)
class _Field:
    """A column of the table, and the cell that a row has in it."""

    column: Column
    cell: Callable[[Row], Cell]


@section("heads", "All heads", place=30, of="rows")
def heads_section(report: Report, measured: tuple[Row, ...]) -> Html:
    """Return the table of heads and settings, best first, and why some could not be fitted."""
    best = {id(row) for rows in report.groups.values() for row in frontier(rows)}
    order = sorted(measured, key=lambda row: -1.0 if row.accuracy is None else row.accuracy, reverse=True)
    fields = _fields(report)
    rows = [_row(row, fields, on_frontier=id(row) in best) for row in order]
    columns = [Column("Head"), *(field.column for field in fields)]
    return join(
        [
            sortable("Accuracy, upload and time of every head", columns, rows, sorted_by=1),
            note(_note(report)),
            _failures(report, [row for row in order if row.reasons]),
            _hypers(report),
        ]
    )


def _row(row: Row, fields: Sequence[_Field], *, on_frontier: bool) -> TableRow:
    cells = tuple(field.cell(row) for field in fields)
    return TableRow(_name(row, on_frontier=on_frontier), cells, row.head, "best" if on_frontier else "")


def _fields(report: Report) -> list[_Field]:
    fields = [
        _Field(Column(f"Accuracy{THIN}", number=True), _accuracy),
        _Field(Column("Bytes per client", number=True), lambda row: _sized(row.up_bytes_per_client)),
        _Field(Column("All clients", number=True), lambda row: _sized(row.up_bytes_total)),
        *(_swept(key, report.data.dim) for key in report.swept),
        _Field(Column("Solve", number=True), lambda row: _timed(row.fit_seconds)),
    ]
    if _works(report):
        fields.append(_Field(Column("Clients’ work", number=True), lambda row: _timed(row.client_seconds)))
    return [*fields, _Field(Column("Sends"), _sends)]


def _works(report: Report) -> bool:
    """Return whether the work of clients is known."""
    return any(row.client_seconds is not None for row in report.rows)


def _name(row: Row, *, on_frontier: bool) -> Cell:
    mark = tag("span", "◆", class_="mark", title="on the frontier", aria_label="on the frontier", role="img")
    baseline = tag("span", " baseline", class_="minor") if row.baseline else None
    return Cell(join([row.head, baseline, *((" ", mark) if on_frontier else ())]))


def _accuracy(row: Row) -> Cell:
    if row.accuracy is None:
        return Cell(tag("span", "not fitted", class_="failed"), "", "number")
    return share_cell(row.accuracy, row.accuracy_std)


def _sized(size: float | None) -> Cell:
    return number_cell(size, bytes_(size))


def _timed(duration: float | None) -> Cell:
    return number_cell(duration, seconds(duration))


def _sends(row: Row) -> Cell:
    return Cell(plain_moments(row.sends) or "–", kind="minor")


def _swept(key: str, dim: float | None) -> _Field:
    part = SWEPT[key]
    title = part.name if len(part.name) == 1 else part.name.capitalize()
    kind = "number" if part.number else "nowrap"
    return _Field(
        Column(title, number=part.number),
        lambda row: Cell(row.setting.word(key), _order(row, key, dim), kind),
    )


def _order(row: Row, key: str, dim: float | None) -> Any:
    """Return what a part of a setting is sorted by: a budget by its bytes; unprojected means all dimensions."""
    value = row.up_bytes_per_client if key == "budget" else getattr(row.setting, key)
    return (dim if key == "projection" and value is None else value) or ""


def _note(report: Report) -> str:
    said = ["A mark ◆ is on the frontier of accuracy against bytes."]
    said += ["± is one standard deviation over seeds."] if report.seeds > 1 else []
    said.append("Class counts are part of every upload; their few bytes are not included.")
    if any(row.baseline for row in report.rows):
        said.append(
            "Baselines are compared with: what their clients send does not add up, and the frontier is the heads’."
        )
    if _works(report):
        said.append("Clients’ work is the time of all clients together, apart from the server’s.")
    return " ".join(said)


def _hypers(report: Report) -> Html | None:
    """Return the hyper-parameters of every head, once for all settings that share them."""
    known = dict.fromkeys((row.head, _pairs(row.hyper)) for row in report.rows if row.hyper)
    shown = bullets([join([tag("b", head), ": ", words]) for head, words in sorted(known)])
    return fold("Hyper-parameters", shown) if shown else None


def _pairs(hyper: Mapping[str, Any]) -> str:
    shown = ((key, value if isinstance(value, str) else json.dumps(value, default=str)) for key, value in hyper.items())
    return ", ".join(f"{str(key).replace('_', ' ')} {value}" for key, value in shown)


def _failures(report: Report, rows: Sequence[Row]) -> Html | None:
    if not rows:
        return None
    several = len(report.settings) > 1
    where = [f" ({setting_words(report, row.setting)})" if several else "" for row in rows]
    shown = [
        join([tag("b", row.head), f"{place}: ", " · ".join(row.reasons)])
        for row, place in zip(rows, where, strict=True)
    ]
    title = f"{count(len(rows), 'row' if several else 'head')} could not be fitted on every seed"
    return fold(title, bullets(shown), unfolded=len(rows) < UNFOLDED)
