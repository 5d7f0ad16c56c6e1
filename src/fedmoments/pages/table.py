"""A table as data, and its markup: it scrolls inside its own frame when it is wide, and sorts by any column."""

from collections.abc import Sequence
from dataclasses import dataclass

from fedmoments.pages.formats import percent
from fedmoments.pages.markup import Html, Node, tag

__all__ = [
    "Cell",
    "Column",
    "Row",
    "Table",
    "bar",
    "bar_cell",
    "measure_cell",
    "name_cell",
    "number_cell",
    "share_cell",
    "sortable",
]

#: Tables with more rows scroll inside their own frame.
TALL = 30


@dataclass(frozen=True)
class Column:
    """A column: its title, and whether its cells are numbers, which stand right and sort from the highest."""

    title: Node
    number: bool = False
    kind: str = ""


@dataclass(frozen=True)
class Cell:
    """What a cell shows.

    Parameters
    ----------
    shown
        Its words.
    value
        What it sorts by, where its text does not sort well.
    kind, style
        Classes in the style sheet, and values for them.
    tip
        Told when it is pointed at.
    dir
        ``auto`` where words may be of any script.
    """

    shown: Node
    value: float | str | None = None
    kind: str = ""
    tip: str = ""
    dir: str | None = None
    style: str | None = None


@dataclass(frozen=True)
class Row:
    """A row: its name, its cells, whose points of charts light up with it, and classes."""

    name: Cell
    cells: tuple[Cell, ...]
    head: str | None = None
    kind: str = ""


@dataclass(frozen=True)
class Table:
    """What a table shows.

    Parameters
    ----------
    caption
        Read to those who cannot see it.
    columns
        That of the rows' names included; none leaves out the head.
    rows
        In order.
    kind
        Classes in the style sheet.
    sorts
        Whether a click on a column's title sorts.
    sorted_by
        The column that the rows are sorted by already, from the highest.
    groups
        Titles over several columns: words, and how many columns; the first over those of the rows' names.
    scrolls
        Whether it has a frame of its own that scrolls when it is wide.

    Examples
    --------
    >>> row = Row(Cell("fedcof"), (number_cell(5242.0, "5.2 kB"),))
    >>> table = Table("Bytes", (Column("Head"), Column("Bytes", number=True)), (row,), scrolls=False)
    >>> print(table.html().partition("<tbody>")[2])
    <tr><th scope="row">fedcof</th><td data-value="5242" class="number">5.2 kB</td></tr></tbody></table>
    """

    caption: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    kind: str = "list"
    sorts: bool = False
    sorted_by: int | None = None
    groups: tuple[tuple[Node, int], ...] = ()
    scrolls: bool = True

    def html(self) -> Html:
        """Return its markup."""
        heads = [tag("tr", *map(_group, self.groups))] if self.groups else []
        heads += [tag("tr", *(self._head(place) for place in range(len(self.columns))))] if self.columns else []
        table = tag(
            "table",
            tag("caption", self.caption, class_="unseen"),
            tag("thead", *heads) if heads else None,
            tag("tbody", *map(_row, self.rows)),
            class_="sortable" if self.sorts else self.kind,
        )
        if not self.scrolls:
            return table
        tall = " tall" if len(self.rows) > TALL else ""
        return tag("div", table, class_=f"scroll{tall}", tabindex="0", role="region", aria_label=self.caption)

    def _head(self, place: int) -> Html:
        column = self.columns[place]
        kind = f"{'number' if column.number else ''} {column.kind}".strip() or None
        if not self.sorts:
            return tag("th", column.title, scope="col", class_=kind)
        button = tag("button", column.title, tag("span", class_="arrow", aria_hidden="true"), type="button")
        order = "descending" if place == self.sorted_by else "none"
        return tag("th", button, scope="col", class_=kind, aria_sort=order, data_numeric=column.number)


def sortable(caption: str, columns: Sequence[Column], rows: Sequence[Row], sorted_by: int | None = None) -> Html:
    """Return a table that sorts; arguments as of :class:`Table`."""
    return Table(caption, tuple(columns), tuple(rows), sorts=True, sorted_by=sorted_by).html()


def _group(group: tuple[Node, int]) -> Html:
    words, columns = group
    return tag("th", words, colspan=columns, scope="colgroup", class_="group") if words else tag("td")


def _row(row: Row) -> Html:
    name = tag("th", row.name.shown, scope="row", class_=row.name.kind or None, dir=row.name.dir)
    return tag("tr", name, *map(_cell, row.cells), data_head=row.head, class_=row.kind or None)


def _cell(cell: Cell) -> Html:
    value = f"{cell.value:.9g}" if isinstance(cell.value, int | float) else cell.value
    return tag(
        "td",
        cell.shown,
        data_value=value,
        class_=cell.kind or None,
        data_tip=cell.tip or None,
        dir=cell.dir,
        style=cell.style,
    )


# ---------------------------------------------------------------------------------------------- cells


def number_cell(value: float | None, words: Node, *, kind: str = "number") -> Cell:
    """Return a cell with a number in words; what is unknown sorts last."""
    return Cell(words, "" if value is None else float(value), kind)


def name_cell(words: Node) -> Cell:
    """Return a cell with the name of a thing, which may be long and of any script."""
    return Cell(words, kind="name", dir="auto")


def bar(share: float | None) -> Html:
    """Return a small bar for a share of one."""
    width = 0.0 if share is None else min(max(share, 0.0), 1.0) * 100
    return tag("span", tag("i", style=f"width:{width:.1f}%"), class_="bar", aria_hidden="true")


def bar_cell(share: float | None) -> Cell:
    """Return a cell with a bar for a share of one."""
    return Cell(bar(share), kind="bars")


def measure_cell(value: float, share: float, words: Node) -> Cell:
    """Return a cell with a number in words behind a bar for a share of one."""
    return Cell(tag("span", bar(share), tag("span", tag("b", words)), class_="measure"), value, "number")


def share_cell(share: float | None, deviation: float | None = None, *, words: str = "") -> Cell:
    """Return a cell with a share of one, its spread and its bar; other words where it is unknown."""
    if share is None and words:
        return Cell(words, "", "number")
    spread = tag("span", f" ± {deviation * 100:.1f}", class_="spread") if deviation is not None else None
    shown = tag("span", bar(share), tag("span", tag("b", percent(share)), spread), class_="measure")
    return Cell(shown, "" if share is None else share, "number")
