"""Per-class accuracy, worst first, and the confusion pairs that hurt most."""

from dataclasses import replace
from itertools import pairwise
from math import isfinite

import numpy as np

from fedmoments.core.observations import Report
from fedmoments.pages.answer import first_panel
from fedmoments.pages.blocks import fold, note
from fedmoments.pages.chart import Chart, Point, Scale, Series, share_scale
from fedmoments.pages.figure import draw_alone
from fedmoments.pages.formats import count, percent
from fedmoments.pages.markup import Html, breakable, join, tag
from fedmoments.pages.reading import Panel, chooser, panels, panels_of
from fedmoments.pages.shell import section
from fedmoments.pages.table import Cell, Column, Row, Table, bar_cell, name_cell, number_cell

__all__ = ["classes_section"]

#: Classes and pairs in view, classes in the list that unfolds, and classes that a whole matrix is shown for.
MOST_WORST, MOST_PAIRS, MOST_LISTED, MOST_MATRIX = 10, 10, 120, 12
#: Classes from which on their accuracies have a histogram, and its bars.
LEAST_STRIP, BINS = 12, 20


@section("classes", "Classes and confusions", place=130)
def classes_section(report: Report) -> Html | None:
    """Return the section, or None when no head has a confusion table."""
    shown = [panel for panel in panels_of(report) if panel.detail.confusion is not None]
    if not shown:
        return None
    chosen = first_panel(report, shown)
    options = [(panel.key, panel.words) for panel in shown]
    return join(
        [
            chooser("head", "Head", options, chosen),
            panels("head", [(panel.key, _panel(report, panel)) for panel in shown], chosen),
        ]
    )


def _panel(report: Report, panel: Panel) -> Html:
    known = np.flatnonzero(~np.isnan(panel.detail.accuracies))
    order = known[np.argsort(panel.detail.accuracies[known], kind="stable")].tolist()
    pairs = panel.detail.confusions(MOST_PAIRS)
    wrong = int(panel.detail.tested.sum() - panel.detail.found.sum())
    shown = order[: min(MOST_WORST, len(order))]
    return join(
        [
            tag("p", _summary(panel, order, wrong), class_="lead"),
            _means(panel),
            _strip(panel, order),
            tag(
                "div",
                tag(
                    "div",
                    tag("h3", "Worst classes" if len(order) > len(shown) else "Classes, worst first"),
                    _class_list(report, panel, shown),
                ),
                tag("div", tag("h3", "Confusions that hurt most"), _pair_list(report, panel, pairs, wrong)),
                class_="columns",
            ),
            _matrix(report, panel),
            _all(report, panel, order) if len(order) > len(shown) else None,
        ]
    )


def _summary(panel: Panel, order: list[int], wrong: int) -> Html:
    total = int(panel.detail.tested.sum())
    seed = f" (seed {panel.detail.seed})" if panel.detail.seed is not None else ""
    if not order:
        return join([tag("b", panel.detail.head), ": no class was tested."])
    perfect = int((panel.detail.accuracies[order] == 1).sum())
    worst, best = (percent(float(panel.detail.accuracies[order[end]])) for end in (0, -1))
    words = (
        f"{seed} gets {count(wrong)} of {count(total, 'test sample')} wrong; classes range from {worst} to {best}, "
        f"half of them at {percent(float(np.median(panel.detail.accuracies[order])))} or better"
    )
    return join([tag("b", panel.detail.head), words, f", and {count(perfect)} without an error." if perfect else "."])


def _strip(panel: Panel, order: list[int]) -> Html | None:
    """Return all classes at a glance: a histogram of their accuracies."""
    if len(order) < LEAST_STRIP:
        return None
    heights, edges = np.histogram(panel.detail.accuracies[order], bins=BINS, range=(0.0, 1.0))
    bars = [
        Point(
            0.0,
            float(number),
            tip=f"{count(number, 'class', 'classes')} between {percent(left, 0)} and {percent(right, 0)}",
            label=str(number) if number else "",
            span=(left, right),
        )
        for number, (left, right) in zip(heights.tolist(), pairwise(edges.tolist()), strict=True)
    ]
    x = replace(share_scale("classes by accuracy, %", values=(0.0, 1.0), about=5), exact=True)
    title = f"How many classes have which accuracy, {panel.words}"
    chart = Chart(title, x, Scale(ticks=()), (Series("", tuple(bars)),), height=52.0)
    return tag("figure", draw_alone(chart), class_="strip")


def _class_list(report: Report, panel: Panel, labels: list[int]) -> Html:
    rows, figures = [], panel.detail.figures
    for label in labels:
        accuracy, tested = float(panel.detail.accuracies[label]), int(panel.detail.tested[label])
        cells = [bar_cell(accuracy), number_cell(accuracy, percent(accuracy, 0))]
        if figures is not None:
            spared, area = float(figures.specificities[label]), float(figures.areas[label])
            cells.append(number_cell(spared, percent(spared, 1) if isfinite(spared) else "–"))
            cells.append(number_cell(area, f"{area:.3f}" if isfinite(area) else "–"))
        cells.append(Cell(count(tested), kind="number minor"))
        rows.append(Row(name_cell(breakable(report.data.class_name(label))), tuple(cells)))
    known = ("found", "spared", "AUC") if figures is not None else ("found",)
    return _list(f"Accuracy of classes, {panel.words}", ("class", "", *known, "tested"), rows)


def _means(panel: Panel) -> Html | None:
    """Return the means over classes, and what the columns of classes are."""
    figures = panel.detail.figures
    if figures is None:
        return None
    means = (
        ("macro-F1", figures.macro_f1),
        ("macro-AUC", figures.macro_auc),
        ("AUC of all classes", figures.micro_auc),
    )
    told = ", ".join(f"{name} {value:.3f}" for name, value in means if value is not None)
    columns = "found is the sensitivity of a class, spared its specificity (others not taken for it)"
    if figures.rounding:
        columns += "; clients round right answers of a class by chance, right on average"
        if np.isnan(figures.areas).any():
            columns += "; a dash is an AUC that would be mostly this rounding"
    return note(f"{told}; {columns}." if told else f"{columns[0].upper()}{columns[1:]}.")


def _list(caption: str, titles: tuple[str, ...], rows: list[Row]) -> Html:
    columns = tuple(Column(title, number=place > 0) for place, title in enumerate(titles))
    return Table(caption, columns, tuple(rows), scrolls=False).html()


def _pair_list(report: Report, panel: Panel, pairs: list[tuple[int, int, int]], wrong: int) -> Html | None:
    if not pairs:
        untold = "Clients do not tell which classes few samples were taken for."
        return note(untold if wrong > 0 else "Every test sample was classified correctly.")
    rows = [_pair(report, panel, *pair) for pair in pairs]
    share = sum(number for _, _, number in pairs) / max(wrong, 1)
    return join(
        [
            _list(f"Confusions, {panel.words}", ("pair", "samples", "of its class"), rows),
            note(f"Together {percent(share, 0)} of all errors."),
        ]
    )


def _pair(report: Report, panel: Panel, true: int, predicted: int, number: int) -> Row:
    names = [tag("span", breakable(report.data.class_name(label)), dir="auto") for label in (true, predicted)]
    words = join([names[0], " ", tag("span", "taken for ", class_="minor nowrap"), names[1]])
    share = percent(number / max(int(panel.detail.tested[true]), 1), 0)
    cells = (Cell(tag("b", count(number)), kind="number"), Cell(share, kind="number minor"))
    return Row(Cell(words, kind="name"), cells)


def _matrix(report: Report, panel: Panel) -> Html | None:
    """Return the whole confusion matrix when it is small."""
    if panel.detail.confusion is None or len(panel.detail.confusion) > MOST_MATRIX:
        return None
    names = [report.data.class_name(label) for label in range(len(panel.detail.confusion))]
    columns = (Column("true ↓ predicted →", kind="minor"), *(Column(tag("span", name)) for name in names))
    rows = [
        Row(Cell(names[label], dir="auto"), _shares(counts, label, max(int(panel.detail.tested[label]), 1)))
        for label, counts in enumerate(panel.detail.confusion.tolist())
    ]
    table = Table(f"Confusion matrix, {panel.words}", columns, tuple(rows), "matrix")
    return tag("div", tag("h3", "Confusion matrix"), table.html(), class_="below")


def _shares(counts: list[int], label: int, tested: int) -> tuple[Cell, ...]:
    """Return a row of the matrix: the stronger its colour, the more samples of the class; errors count three times."""
    cells = []
    for predicted, number in enumerate(counts):
        share = number / tested if predicted == label else min(3 * number / tested, 1.0)
        shade = f"--share:{share:.3f}"
        cells.append(
            Cell(count(number) if number else "·", kind="right" if predicted == label else "wrong", style=shade)
        )
    return tuple(cells)


def _all(report: Report, panel: Panel, order: list[int]) -> Html:
    listed = order[:MOST_LISTED]
    words = f"All {count(len(order))} classes" if len(listed) == len(order) else f"The {len(listed)} worst classes"
    return fold(words, tag("div", _class_list(report, panel, listed), class_="flow"))
