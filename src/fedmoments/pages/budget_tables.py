"""Tables of a budget curve: every head under every budget, every point, and accuracy after re-compression."""

from collections.abc import Iterable, Mapping, Sequence

from fedmoments.core.observations.budget import BudgetCurve, BudgetCurves, BudgetPoint, Recompressed
from fedmoments.pages.blocks import fold, lead, note
from fedmoments.pages.formats import THIN, bytes_, count, percent, sentences
from fedmoments.pages.markup import Html, Node, join, tag
from fedmoments.pages.table import Cell, Column, Row, Table, number_cell, share_cell, sortable

__all__ = ["curve_table", "points_table", "recompressed_table"]

EMPTY = Cell("", kind="number")


def curve_table(curves: BudgetCurves) -> Html:
    """Return accuracies, a row a head and a column a budget; the highest of a column is bold."""
    by_budget = [_column(curves, budget) for budget in curves.budgets]
    published = _column(curves, None)
    titles = [join([budget, tag("br"), _allowed(curves, budget)]) for budget in curves.budgets]
    titles += [join(["as published"])] if published else []
    columns = (Column("Head"), *(Column(title, number=True) for title in titles))
    rows = []
    for curve in [*curves.sketches, *curves.others]:
        cells = [_cell(column, curve) for column in by_budget]
        cells += [_own_cell(published.get(curve))] if published else []
        rows.append(_row(curve, curve.head, cells, "nowrap"))
    caption = "Accuracy in percent of every head under every budget"
    said = sentences(
        f"Accuracy,{THIN}%. Above a column: a client’s budget, and what it allows the mean client.",
        "Bold: the highest of a column.",
        "○ As published." if _rings(curves) else "",
    )
    return join([Table(caption, columns, tuple(rows), "grid-table").html(), note(said)])


def _rings(curves: BudgetCurves) -> bool:
    """Return whether a method as published is under a budget."""
    return any(point.own and point.budget for point in curves.points)


def _allowed(curves: BudgetCurves, budget: str) -> Html:
    return tag("span", bytes_(curves.allowed(budget)), class_="minor")


def _row(curve: BudgetCurve, name: Node, cells: Iterable[Cell], kind: str = "") -> Row:
    return Row(Cell(name, kind=kind), tuple(cells), curve.head, "best" if curve.sketch else "")


def _column(curves: BudgetCurves, budget: str | None) -> dict[BudgetCurve, BudgetPoint]:
    """Return the highest point of every curve under a budget, or of those under none that are as published."""
    column: dict[BudgetCurve, BudgetPoint] = {}
    for curve in curves.curves:
        mine = [point for point in curve.points if point.budget == budget and (budget or point.own)]
        if mine:
            column[curve] = max(mine, key=lambda point: point.accuracy)
    return column


def _cell(column: Mapping[BudgetCurve, BudgetPoint], curve: BudgetCurve) -> Cell:
    point = column.get(curve)
    if point is None:
        return EMPTY
    number = f"{point.accuracy * 100:.1f}"
    ring = tag("span", "○", class_="mark", title="as published", aria_label="as published", role="img")
    bold = number == f"{max(other.accuracy for other in column.values()) * 100:.1f}"
    return Cell(join([ring if point.own else None, tag("b", number) if bold else number]), kind="number")


def _own_cell(point: BudgetPoint | None) -> Cell:
    """Return the cell of a method as it is published, with its bytes, which are its own."""
    if point is None:
        return EMPTY
    size = tag("span", f" · {bytes_(point.bytes)}", class_="minor")
    return Cell(join([f"{point.accuracy * 100:.1f}", size]), kind="number")


def points_table(curves: BudgetCurves) -> Html:
    """Return every point with all its figures, in a table that opens when it is asked for."""
    titles = ("Budget", f"Accuracy{THIN}", "Bytes a client", "Dimensions", "Rank", "Seeds")
    columns = [Column("Head"), *(Column(title, number=True) for title in titles)]
    every = [(curve, point) for curve in curves.curves for point in curve.points]
    rows = [_point(*pair) for pair in sorted(every, key=lambda pair: pair[1].accuracy, reverse=True)]
    table = sortable("Every point of the budget curve", columns, rows, sorted_by=2)
    return fold(f"All {count(len(rows), 'point')}, with dimensions and ranks", table)


def _point(curve: BudgetCurve, point: BudgetPoint) -> Row:
    published = tag("span", " as published", class_="minor") if point.own else None
    cells = (
        number_cell(point.bytes, point.budget or "–"),
        share_cell(point.accuracy, point.std),
        number_cell(point.bytes, bytes_(point.bytes)),
        number_cell(point.dimensions, "full" if point.dimensions is None else count(point.dimensions)),
        number_cell(point.rank, "–" if point.rank is None else f"{point.rank:.1f}"),
        number_cell(len(point.accuracies), count(len(point.accuracies))),
    )
    return _row(curve, join([curve.head, published]), cells)


def recompressed_table(recompressed: Sequence[Recompressed]) -> Html:
    """Return accuracy with a bound on the rows that a server keeps, against that without one."""
    titles = ("Rows", "Blocks", "Accuracy", "No bound", "Change")
    columns = (Column("Head"), *(Column(title, number=True) for title in titles))
    table = Table("Accuracy after re-compression of sketches", columns, tuple(map(_bounded, recompressed)))
    return join(
        [tag("h3", "With a bound on the server’s memory", class_="below"), lead(_sentence(recompressed)), table.html()]
    )


def _bounded(bounded: Recompressed) -> Row:
    words = [
        count(bounded.rows),
        count(bounded.blocks),
        tag("b", percent(bounded.accuracy)),
        percent(bounded.unbounded),
    ]
    cells = tuple(Cell(word, kind="number") for word in (*words, _change(bounded)))
    return Row(Cell(bounded.head, kind="nowrap"), cells, bounded.head)


def _change(bounded: Recompressed) -> str:
    points = round((bounded.accuracy - bounded.unbounded) * 100, 1)
    return f"{points:+.1f}".replace("-", "−") if points else "0.0"


def _sentence(recompressed: Sequence[Recompressed]) -> str:
    """Return the first of them in words."""
    first = recompressed[0]
    return (
        "A server may compress the sketches that it holds into fewer rows whenever they are too many. Memory bounded "
        f"to {count(first.rows, 'row')}: {first.head} reaches {percent(first.accuracy)} against "
        f"{percent(first.unbounded)}."
    )
