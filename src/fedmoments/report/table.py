"""The table of all rows, sortable by any column."""

import json
from collections.abc import Mapping
from typing import Any

from fedmoments.report.answer import frontier
from fedmoments.report.formats import THIN, bytes_, count, percent, seconds
from fedmoments.report.markup import Html, Node, join, tag
from fedmoments.report.reading import SWEPT, Results, Row

__all__ = ["accuracy_cell", "bar", "sortable", "table_section"]

#: Tables with more rows scroll inside their own frame.
TALL = 30
#: Parts of a setting that are numbers, or are sorted by one.
NUMBERS = ("clients", "means_per_client", "projection", "budget", "epsilon")


def sortable(caption: str, columns: list[tuple[str, bool]], rows: list[Html], sorted_by: int | None = None) -> Html:
    """Return a table in a region of its own that scrolls when it is wide.

    Parameters
    ----------
    caption
        Read to those who cannot see the table.
    columns
        Title, and whether its cells are numbers (sorted from the highest first).
    rows
        Elements ``tr``, whose cells carry ``data-value`` where their text does not sort well.
    sorted_by
        The column that the rows are sorted by already, from the highest.
    """
    heads = [
        tag(
            "th",
            tag("button", title, tag("span", class_="arrow", aria_hidden="true"), type="button"),
            scope="col",
            class_="number" if numeric else None,
            aria_sort="descending" if place == sorted_by else "none",
            data_numeric=numeric,
        )
        for place, (title, numeric) in enumerate(columns)
    ]
    made = tag(
        "table",
        tag("caption", caption, class_="unseen"),
        tag("thead", tag("tr", *heads)),
        tag("tbody", *rows),
        class_="sortable",
    )
    tall = " tall" if len(rows) > TALL else ""
    return tag("div", made, class_=f"scroll{tall}", tabindex="0", role="region", aria_label=caption)


def bar(share: float | None) -> Html:
    """Return a small bar for a share of one."""
    width = 0.0 if share is None else min(max(share, 0.0), 1.0) * 100
    return tag("span", tag("i", style=f"width:{width:.1f}%"), class_="bar", aria_hidden="true")


def accuracy_cell(accuracy: float | None, deviation: float | None = None) -> Html:
    """Return a cell with an accuracy, its spread and its bar."""
    spread = tag("span", f" ± {deviation * 100:.1f}", class_="spread") if deviation is not None else None
    return tag(
        "td",
        tag("span", bar(accuracy), tag("span", tag("b", percent(accuracy)), spread), class_="measure"),
        data_value="" if accuracy is None else f"{accuracy:.6f}",
        class_="number",
    )


def table_section(results: Results) -> Html | None:
    """Return the table of heads and settings, best first, and why some could not be fitted."""
    if not results.rows:
        return None
    swept = [key for key in results.swept if key in SWEPT]
    columns = [("Head", False), (f"Accuracy{THIN}", True), ("Bytes a client", True), ("All clients", True)]
    columns += [(SWEPT[key] if key == "epsilon" else SWEPT[key].capitalize(), key in NUMBERS) for key in swept]
    works = any(row.client_seconds is not None for row in results.rows)
    columns += [("Solve", True), *([("Clients’ work", True)] if works else []), ("Sends", False)]
    best = {id(row) for rows in results.groups.values() for row in frontier(rows)}
    order = sorted(results.rows, key=lambda row: -1.0 if row.accuracy is None else row.accuracy, reverse=True)
    rows = [_row(row, swept, results.dim, on_frontier=id(row) in best, works=works) for row in order]
    note = "A mark ◆ is on the frontier of accuracy against bytes. "
    note += "± is one standard deviation over seeds. " if results.seeds > 1 else ""
    note += "Counts of samples go with every upload and are not priced."
    if any(row.baseline for row in results.rows):
        note += " Baselines are compared with: what their clients send does not add up, and the frontier is the heads’."
    note += " Clients’ work is the time of all clients together, apart from the server’s." if works else ""
    failed = [row for row in order if row.reasons]
    return join(
        [
            sortable("Accuracy, upload and time of every head", columns, rows, sorted_by=1),
            tag("p", note, class_="note"),
            _failures(results, failed) if failed else None,
            _hypers(results),
        ]
    )


def _row(row: Row, swept: list[str], dim: float | None, *, on_frontier: bool, works: bool) -> Html:
    mark = tag("span", "◆", class_="mark", title="on the frontier", aria_label="on the frontier", role="img")
    sizes = [(row.bytes_per_client, bytes_), (row.bytes_total, bytes_)]
    cells: list[Node] = [
        tag(
            "th",
            row.head,
            tag("span", " baseline", class_="minor") if row.baseline else None,
            " " if on_frontier else None,
            mark if on_frontier else None,
            scope="row",
        ),
        accuracy_cell(row.accuracy, row.deviation) if row.accuracy is not None else _unfitted(),
        *(_number(value, words(value)) for value, words in sizes),
        *(
            tag(
                "td",
                row.setting.word(key),
                data_value=_order(row, key, dim),
                class_=_kind(key),
            )
            for key in swept
        ),
        _number(row.fit_seconds, seconds(row.fit_seconds)),
        _number(row.client_seconds, seconds(row.client_seconds)) if works else None,
        tag("td", row.sends.removeprefix("counts + ") or "–", class_="minor nowrap"),
    ]
    return tag("tr", *cells, data_head=row.head, class_="best" if on_frontier else None)


def _kind(key: str) -> str:
    return "number" if key in NUMBERS else "nowrap"


def _order(row: Row, key: str, dim: float | None) -> Any:
    """Return what a part of a setting is sorted by: a budget by its bytes; unprojected means all dimensions."""
    value = row.bytes_per_client if key == "budget" else getattr(row.setting, key)
    return (dim if key == "projection" and value is None else value) or ""


def _unfitted() -> Html:
    return tag("td", tag("span", "not fitted", class_="failed"), data_value="", class_="number")


def _number(value: float | None, words: str) -> Html:
    return tag("td", words, data_value="" if value is None else f"{value:.9g}", class_="number")


def _hypers(results: Results) -> Html | None:
    """Return the hyper-parameters of every head, once for all settings that share them."""
    known = dict.fromkeys((row.head, _pairs(row.hyper)) for row in results.rows if row.hyper)
    shown = [tag("li", tag("b", head), ": ", words) for head, words in sorted(known)]
    return tag("details", tag("summary", "Hyper-parameters"), tag("ul", *shown, class_="plain")) if shown else None


def _pairs(hyper: Mapping[str, Any]) -> str:
    shown = ((key, value if isinstance(value, str) else json.dumps(value, default=str)) for key, value in hyper.items())
    return ", ".join(f"{str(key).replace('_', ' ')} {value}" for key, value in shown)


def _failures(results: Results, rows: list[Row]) -> Html:
    several = len(results.settings) > 1
    shown = [
        tag(
            "li",
            tag("b", row.head),
            f" ({results.setting_words(row.setting)})" if several else None,
            ": ",
            " · ".join(row.reasons),
        )
        for row in rows
    ]
    title = f"{count(len(rows), 'row' if several else 'head')} could not be fitted on every seed"
    return tag("details", tag("summary", title), tag("ul", *shown, class_="plain"), open=len(rows) < 6)
