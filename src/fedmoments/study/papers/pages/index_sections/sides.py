"""Tables on all data sets side by side."""

from fedmoments.pages.markup import Html, breakable, tag
from fedmoments.pages.shell import section
from fedmoments.pages.table import Cell, Column, Row, Table
from fedmoments.study.papers.pages.index import Documents
from fedmoments.study.papers.pages.sides import read_sides

__all__ = ["sides_section"]


@section("sides", "Tables on all data, and the paper's range", place=30, short="Side by side")
def sides_section(documents: Documents) -> Html | None:
    """Return the tables for the page; None where there is none."""
    parts = []
    for side in read_sides(documents):
        titles = ("", *side.labels, "the paper, on its data")
        columns = tuple(Column(breakable(title), number=place > 0) for place, title in enumerate(titles))
        rows = [Row(Cell(name), tuple(Cell(text, kind="number") for text in cells)) for name, *cells in side.rows]
        parts.append(tag("h3", f"{side.title} ({side.name})", class_="below"))
        parts.append(Table(side.title, columns, tuple(rows)).html())
    return tag("div", *parts) if parts else None
