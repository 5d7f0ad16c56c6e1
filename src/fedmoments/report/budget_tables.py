"""Tables of a budget curve: every head under every budget, every point, and accuracy after re-compression."""

from collections.abc import Sequence

from fedmoments.report.budget_reading import BudgetCurve, BudgetCurves, BudgetPoint, Recompressed
from fedmoments.report.formats import THIN, bytes_, count, percent
from fedmoments.report.markup import Html, Node, join, tag
from fedmoments.report.table import accuracy_cell, sortable

__all__ = ["curve_table", "points_table", "recompressed_table"]


def curve_table(curves: BudgetCurves) -> Html:
    """Return accuracies, a row a head and a column a budget; the highest of a column is bold."""
    columns = [(budget, _column(curves, budget)) for budget in curves.budgets]
    published = _column(curves, "")
    heads: list[Node] = [tag("th", "Head", scope="col")]
    for budget in curves.budgets:
        most = bytes_(curves.allowed(budget))
        heads.append(tag("th", budget, tag("br"), tag("span", most, class_="minor"), scope="col", class_="number"))
    if published:
        heads.append(tag("th", "as published", scope="col", class_="number"))
    rows = []
    for curve in [*curves.sketches, *curves.others]:
        cells: list[Node] = [tag("th", curve.head, scope="row", class_="nowrap")]
        cells += [_cell(found.get(curve), max(p.accuracy for p in found.values())) for _, found in columns]
        if published:
            cells.append(_own_cell(published.get(curve)))
        rows.append(tag("tr", *cells, data_head=curve.head, class_="best" if curve.sketch else None))
    caption = "Accuracy in percent of every head under every budget"
    made = tag(
        "table",
        tag("caption", caption, class_="unseen"),
        tag("thead", tag("tr", *heads)),
        tag("tbody", *rows),
        class_="grid-table",
    )
    note = (
        f"Accuracy,{THIN}%. Above a column: a client’s budget, and what it allows the mean client. Bold: the highest "
    )
    note += "of a column." + (" ○ As published." if any(p.own and p.budget for p in curves.points) else "")
    return join(
        [
            tag("div", made, class_="scroll", tabindex="0", role="region", aria_label=caption),
            tag("p", note, class_="note"),
        ]
    )


def _column(curves: BudgetCurves, budget: str) -> dict[BudgetCurve, BudgetPoint]:
    """Return the highest point of every curve under a budget, or of those under none that are as published."""
    found: dict[BudgetCurve, BudgetPoint] = {}
    for curve in curves.curves:
        mine = [point for point in curve.points if point.budget == budget and (budget or point.own)]
        if mine:
            found[curve] = max(mine, key=lambda point: point.accuracy)
    return found


def _cell(point: BudgetPoint | None, top: float) -> Html:
    if point is None:
        return tag("td", "", class_="number")
    number = f"{point.accuracy * 100:.1f}"
    ring = tag("span", "○", class_="mark", title="as published", aria_label="as published", role="img")
    bold = number == f"{top * 100:.1f}"
    return tag("td", ring if point.own else None, tag("b", number) if bold else number, class_="number")


def _own_cell(point: BudgetPoint | None) -> Html:
    """Return the cell of a method as it is published, with its bytes, which are its own."""
    if point is None:
        return tag("td", "", class_="number")
    size = tag("span", f" · {bytes_(point.bytes)}", class_="minor")
    return tag("td", f"{point.accuracy * 100:.1f}", size, class_="number")


def points_table(curves: BudgetCurves) -> Html:
    """Return every point with all its figures, in a table that opens when it is asked for."""
    columns = [("Head", False), ("Budget", True), (f"Accuracy{THIN}", True), ("Bytes a client", True)]
    columns += [("Dimensions", True), ("Rank", True), ("Seeds", True)]
    ordered = sorted(
        ((curve, point) for curve in curves.curves for point in curve.points),
        key=lambda each: each[1].accuracy,
        reverse=True,
    )
    rows = [_point(curve, point) for curve, point in ordered]
    table = sortable("Every point of the budget curve", columns, rows, sorted_by=2)
    return tag("details", tag("summary", f"All {count(len(rows), 'point')}, with dimensions and ranks"), table)


def _point(curve: BudgetCurve, point: BudgetPoint) -> Html:
    published = tag("span", " as published", class_="minor") if point.own else None
    return tag(
        "tr",
        tag("th", curve.head, published, scope="row"),
        tag("td", point.budget or "–", data_value=f"{point.bytes:.9g}", class_="number"),
        accuracy_cell(point.accuracy, point.deviation),
        tag("td", bytes_(point.bytes), data_value=f"{point.bytes:.9g}", class_="number"),
        tag("td", "full" if point.dimensions is None else count(point.dimensions), **_value(point.dimensions)),
        tag("td", "–" if point.rank is None else f"{point.rank:.1f}", **_value(point.rank)),
        tag("td", count(point.seeds), **_value(point.seeds)),
        data_head=curve.head,
        class_="best" if curve.sketch else None,
    )


def _value(number: float | None) -> dict[str, str]:
    return {"data_value": "" if number is None else f"{number:.9g}", "class_": "number"}


def recompressed_table(found: Sequence[Recompressed]) -> Html:
    """Return accuracy with a bound on the rows that a server keeps, against that without one."""
    heads = [("Head", None), ("Rows", "number"), ("Blocks", "number"), ("Accuracy", "number")]
    heads += [("No bound", "number"), ("Change", "number")]
    rows = [
        tag(
            "tr",
            tag("th", each.head, scope="row", class_="nowrap"),
            tag("td", count(each.rows), class_="number"),
            tag("td", count(each.blocks), class_="number"),
            tag("td", tag("b", percent(each.accuracy)), class_="number"),
            tag("td", percent(each.unbounded), class_="number"),
            tag("td", _change(each), class_="number"),
            data_head=each.head,
        )
        for each in found
    ]
    caption = "Accuracy after re-compression of sketches"
    table = tag(
        "table",
        tag("caption", caption, class_="unseen"),
        tag("thead", tag("tr", *(tag("th", title, scope="col", class_=kind) for title, kind in heads))),
        tag("tbody", *rows),
        class_="list",
    )
    return join(
        [
            tag("h3", "With a bound on the server’s memory", class_="below"),
            tag("p", _sentence(found), class_="lead"),
            tag("div", table, class_="scroll", tabindex="0", role="region", aria_label=caption),
        ]
    )


def _change(each: Recompressed) -> str:
    if each.unbounded is None:
        return "–"
    points = round((each.accuracy - each.unbounded) * 100, 1)
    return f"{points:+.1f}".replace("-", "−") if points else "0.0"


def _sentence(found: Sequence[Recompressed]) -> str:
    """Return the first of them in words."""
    said = "A server may compress the sketches that it holds into fewer rows whenever they are too many."
    first = found[0]
    if first.rows is None or first.unbounded is None:
        return said
    return (
        f"{said} Memory bounded to {count(first.rows, 'row')}: {first.head} reaches {percent(first.accuracy)} "
        f"against {percent(first.unbounded)}."
    )
