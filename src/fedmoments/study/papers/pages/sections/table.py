"""Our numbers beside the paper's, each with its verdict."""

from collections.abc import Mapping
from typing import Any

from fedmoments.pages.blocks import bullets, titled
from fedmoments.pages.labels import text_width
from fedmoments.pages.markup import Html, Node, breakable, join, tag
from fedmoments.pages.plain import as_number, items, mapping
from fedmoments.pages.shell import section
from fedmoments.pages.table import Cell, Column, Row, Table
from fedmoments.study.papers.comparison import VERDICTS
from fedmoments.study.papers.pages.answer import misprint_words, verdict_counts
from fedmoments.study.papers.pages.grid import Grid, Group, Number, read_grid
from fedmoments.study.papers.pages.words import MARKS, number_words, verdict_class

__all__ = ["table_section"]

#: Pixels that tables have beside one another, those beside a cell's words, and the widest that a row's name takes.
ROOM, BESIDE, WIDEST = 860.0, 26.0, 200.0
#: Pixels after which the name of a group breaks.
HEADING = 128.0


@section("table", "Ours beside the paper’s", place=10)
def table_section(document: Mapping[str, Any]) -> Html | None:
    """Return the section, or None when the document has no table."""
    grid = read_grid(document)
    if grid is None:
        return None
    table = mapping(document.get("table"))
    tables = tag("div", *(_one(part, table.get("reference")) for part in _packed(grid)), class_="tables")
    return join([tag("p", _lead(document, grid), class_="lead"), tables, _legend(document), _misprints(document)])


#: When a number is near what it is compared with, by where that comes from.
_NEAR = {
    "printed": "agrees within {} of the paper’s",
    "formula": "is as derived within {} of what the formula gives",
    "unexplained": "that is within {} of the paper’s is told, not called agreement: no formula of the paper gives that",
}


def _lead(document: Mapping[str, Any], grid: Grid) -> str:
    table, experiment = mapping(document.get("table")), mapping(document.get("experiment"))
    said = ["Accuracies are in percent." if table.get("units") == "percent" else f"Units: {table.get('units')}."]
    said += ["± is the standard deviation over seeds."] if len(items(document.get("seeds"))) > 1 else []
    tolerance = as_number(experiment.get("tolerance"))
    if document.get("mode") == "stand-in":
        return " ".join(said + _gains(grid, table.get("reference"), tolerance))
    if any(group.kind == "both" for group in grid.groups):
        formula = experiment.get("origin") == "formula"
        said.append(
            f"{'What the paper’s formulas give stands' if formula else 'The paper’s numbers stand'} below ours."
        )
    if tolerance is not None:
        others = any(group.tolerance not in (None, tolerance) for group in grid.groups)
        some = ", or within what a part of the table says" if others else ""
        said.append(
            f"A number {_NEAR[str(experiment.get('origin', 'printed'))].format(number_words(tolerance))}{some}."
        )
    return " ".join(said)


def _gains(grid: Grid, reference: Any, tolerance: float | None) -> list[str]:
    """Return how gains of data that stand in are compared with the paper's, if any are."""
    if not any(number.verdict for group in grid.groups for row in group.cells for number in row):
        return []
    said = [f"Below are gains over {reference}: ours, and the paper’s over all its data."]
    return said + ([] if tolerance is None else [f"A gain within {number_words(tolerance)} is none."])


def _packed(grid: Grid) -> list[Grid]:
    """Return tables of as many groups as fit beside one another; the first group of a table has all of its rows."""
    kinds = list(dict.fromkeys(group.rows for group in grid.groups))
    packed: list[list[Group]] = []
    used = 0.0
    for group in sorted(grid.groups, key=lambda member: kinds.index(member.rows)):
        wide = _width(group)
        fits = bool(packed) and used + wide <= ROOM and set(group.rows) <= set(packed[-1][0].rows)
        if not fits:
            packed.append([])
            used = max(min(text_width(grid.rows[i], 13), WIDEST) for i in group.rows) + BESIDE
        packed[-1].append(group)
        used += wide
    return [Grid(grid.rows, tuple(groups)) for groups in packed]


def _width(group: Group) -> float:
    """Return about how wide the columns of a group are."""
    widths = []
    for j, column in enumerate(group.columns):
        cells = [group.cells[i][j] for i in group.rows]
        mains = [text_width(f"{cell.main} {cell.mark}", 13) for cell in cells]
        widths.append(
            max([text_width(column, 12), *mains, *(text_width(cell.beside, 10.5) for cell in cells)]) + BESIDE
        )
    return max(sum(widths), min(text_width(group.name, 12.5), HEADING) + BESIDE) + 14


def _one(grid: Grid, reference: Any) -> Html:
    columns: list[Column] = [Column("")]
    groups: list[tuple[Node, int]] = [("", 1)]
    for place, group in enumerate(grid.groups):
        own = None if group.tolerance is None else tag("span", f" ± {number_words(group.tolerance)}", class_="minor")
        groups.append((tag("span", group.name, own, class_="name"), len(group.columns)))
        columns += [Column(name, kind=_begins(place, j)) for j, name in enumerate(group.columns)]
    rows = [
        Row(
            Cell(breakable(grid.rows[i])),
            tuple(
                _cell(number, group, _begins(place, j))
                for place, group in enumerate(grid.groups)
                for j, number in enumerate(group.row(i))
            ),
            kind="reference" if grid.rows[i] == reference else "",
        )
        for i in grid.shown
    ]
    caption = "Our numbers and the paper’s"
    return Table(caption, tuple(columns), tuple(rows), "compared", groups=tuple(groups)).html()


def _begins(group: int, column: int) -> str:
    """Return the class of a column that begins a group other than the first."""
    return "begins" if group and not column else ""


def _cell(number: Number, group: Group, begins: str) -> Cell:
    verdict = f"verdict {verdict_class(number.verdict)}" if number.verdict else ""
    sign = tag("span", number.mark, class_="sign", aria_hidden="true") if number.mark else None
    unseen = tag("span", f" {number.verdict}", class_="unseen") if number.verdict else None
    main = tag("b", number.main) if group.kind != "paper" else number.main
    beside = tag("span", number.beside, class_="beside") if number.beside else None
    return Cell(join([main, sign, unseen, beside]), kind=f"{verdict} {begins}".strip(), tip=number.tip)


def _legend(document: Mapping[str, Any]) -> Html | None:
    counts = verdict_counts(document)
    shown = []
    for verdict, meaning in VERDICTS.items():
        if verdict in counts:
            sign = tag("span", MARKS[verdict], class_="sign")
            label = f"{verdict}: {counts[verdict]}"
            sample = tag("span", sign, label, class_=f"sample verdict {verdict_class(verdict)}")
            shown.append(tag("li", sample, meaning))
    return tag("ul", *shown, class_="legend-words") if shown else None


def _misprints(document: Mapping[str, Any]) -> Html | None:
    shown = []
    for misprint in map(mapping, items(mapping(document.get("experiment")).get("misprints"))):
        where = ", ".join(str(misprint.get(key)) for key in ("block", "row", "column") if misprint.get(key))
        shown.append(join([tag("b", where), f": {misprint_words(misprint)} {misprint.get('why') or ''}"]))
    return tag("div", titled("‡ Misprints of the paper", bullets(shown)), class_="below") if shown else None
