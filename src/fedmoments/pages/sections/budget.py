"""What a budget of bytes buys: the curve, its figures, and what a bound on the server's memory costs.

Tables of a budget curve: every head under every budget, every point, and accuracy after re-compression.
"""

from collections.abc import Iterable, Mapping, Sequence

from fedmoments.core.observations import Report
from fedmoments.core.observations.budget import BudgetCurve, BudgetCurves, BudgetPoint, Recompressed
from fedmoments.pages.answer import noise_words
from fedmoments.pages.blocks import fold, lead, note
from fedmoments.pages.budget_chart import Look, accuracy_scale, budget_chart
from fedmoments.pages.figure import figure
from fedmoments.pages.formats import THIN, bytes_, clients_words, count, list_of, percent, points, sentences
from fedmoments.pages.markup import Html, Node, join, tag
from fedmoments.pages.scales import vertical
from fedmoments.pages.shell import Opening, section
from fedmoments.pages.table import Cell, Column, Row, Table, number_cell, share_cell, sortable

__all__ = [
    "budget_answer",
    "budget_question",
    "budget_section",
    "curve_table",
    "points_table",
    "recompressed_table",
]


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
    """Return every point with all its figures, in a table that opens when it is requested."""
    titles = ("Budget", f"Accuracy{THIN}", "Bytes per client", "Dimensions", "Rank", "Seeds")
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


def budget_question(_: Report, curves: BudgetCurves) -> Html:
    """Return the question that a page of budget curves answers."""
    return join([f"With {_clients(curves)}, what does a budget of bytes buy?"])


def budget_answer(report: Report, curves: BudgetCurves) -> Html:
    """Return the answer: the first head on sketches against the best of all others, for no more bytes."""
    return _compared(report, curves) or join(["No accuracy was measured under any budget."])


#: What a page of this section alone says.
ALONE = Opening(budget_question, budget_answer, "what one upload teaches")


@section("budget", "What a budget buys", place=20, of="budget_curve", opens=ALONE)
def budget_section(report: Report, curves: BudgetCurves) -> Html | None:
    """Return the section, or None when there is neither a curve nor an accuracy after re-compression."""
    if not (curves.curves or curves.recompressed):
        return None
    parts: list[Node] = []
    if curves.curves:
        parts += [
            tag("p", _lead(curves), class_="lead"),
            tag("p", said, class_="lead") if report.rows and (said := _compared(report, curves)) else None,
            figure(budget_chart(curves.charted, Look.of(curves.curves))),
            tag("p", _note(curves), class_="note"),
            curve_table(curves),
            points_table(curves),
        ]
    if curves.recompressed:
        parts.append(recompressed_table(curves.recompressed))
    return join(parts)


def _clients(curves: BudgetCurves) -> str:
    return clients_words(curves.clients, curves.split)


def _lead(curves: BudgetCurves) -> str:
    """Return how to read the chart."""
    ours = list_of([curve.head for curve in curves.sketches])
    rings = any(point.own for curve in curves.others for point in curve.points)
    thin = "Thin: every other head behind a random projection whose float32 statistics fit the budget."
    return sentences(
        f"Accuracy against what one of {_clients(curves)} sends.",
        f"Heavy: {ours}, on scatter sketches that fill the budget." if ours else "",
        thin if curves.others else "",
        "A ring is the method as published, in all dimensions." if rings else "",
    )


def _note(curves: BudgetCurves) -> str:
    spread = any(point.std for point in curves.points)
    return sentences(
        f"Band and bars: one standard deviation over {count(curves.seeds, 'seed')}." if spread else "",
        "Upright lines: float32 payloads as published, the mean over clients." if curves.means or curves.gram else "",
        _below(curves.charted),
        _beyond(curves),
    )


def _below(curves: BudgetCurves) -> str:
    """Return how many lines come from below the chart."""
    floor = vertical(accuracy_scale(curves), (), 1.0, 0.0).low
    below = [curve.points[0].accuracy for curve in curves.others if curve.points[0].accuracy < floor]
    if not below:
        return ""
    come, lowest = ("comes", "") if len(below) == 1 else ("come", "the lowest ")
    return f"{count(len(below), 'thin line')} {come} from below the axis, {lowest}from {percent(min(below))}."


def _beyond(curves: BudgetCurves) -> str:
    """Return the points that are not in the chart."""
    if not curves.beyond or curves.charted is curves:
        return ""
    far = [f"{curve.head} {percent(point.accuracy)} with {bytes_(point.bytes)}" for curve, point in curves.beyond]
    return f"Beyond the chart: {list_of(far)}."


# ---------------------------------------------------------------------------------------------- in words


def _compared(report: Report, curves: BudgetCurves) -> Html | None:
    """Return what the first head on sketches reaches at FedNCM's payload and at half of it, against all others."""
    if not curves.sketches or curves.means is None:
        return None
    ours = curves.sketches[0]
    whole, half = ours.best(curves.means), ours.best(curves.means / 2)
    if whole is None:
        return None
    said: list[Node] = ["At FedCOF’s payload, ", _bytes(curves.means), ", ", _name(ours), " reaches ", _share(whole)]
    said += _beside_others(report, curves, whole)
    if half is not None and half is not whole:
        said += ["; at half of it, ", _share(half)]
    return join([*said, "."])


def _beside_others(report: Report, curves: BudgetCurves, ours: BudgetPoint) -> list[Node]:
    """Return how far a point is from the best that other heads reach with no more bytes than FedNCM's means."""
    reached = [(curve, curve.best(curves.means or 0.0)) for curve in curves.others]
    rivals = [(curve, point) for curve, point in reached if point is not None]
    if not rivals:
        return []
    rival, best = max(rivals, key=lambda rival: rival[1].accuracy)
    noise = _noise(report, ours, best)
    said: list[Node] = [", ", _distance(ours, best), " the best of all others, ", _name(rival), " (", _share(best), ")"]
    return [*said, f", {noise}" if noise else None]


def _distance(one: BudgetPoint, other: BudgetPoint) -> Html:
    """Return how far a point is above or below another."""
    gain = one.accuracy - other.accuracy
    if round(gain, 3) == 0:
        return join(["as much as"])
    return tag("strong", f"{points(gain)} {'above' if gain > 0 else 'below'}")


def _noise(report: Report, one: BudgetPoint, other: BudgetPoint) -> str:
    """Return words when the test samples do not tell two points apart that are not the same."""
    if round(one.accuracy - other.accuracy, 3) == 0:
        return ""
    deviation = max(one.std or 0.0, other.std or 0.0)
    return noise_words(report, (one.accuracy, other.accuracy), deviation, len(one.accuracies))


def _name(curve: BudgetCurve) -> Html:
    return tag("span", curve.head, class_="head")


def _share(point: BudgetPoint) -> Html:
    return tag("strong", percent(point.accuracy), class_="nowrap")


def _bytes(size: float) -> Html:
    return tag("span", f"{bytes_(size)} per client", class_="nowrap")
