"""Accuracy after each round, when clients took part a few at a time, until every client was seen."""

from collections.abc import Mapping
from statistics import fmean
from typing import Any

from fedmoments.report.axes import Axis, both, linear_axis
from fedmoments.report.formats import count, percent, split_words
from fedmoments.report.lines import Line, Point, line_chart
from fedmoments.report.markup import Html, join, tag
from fedmoments.report.plain import as_number, items, mapping
from fedmoments.report.reading import Results

__all__ = ["rounds_section"]

#: Small charts, points of a line, and heads of the figure.
MOST_CHARTS, MOST_POINTS, MOST_HEADS = 8, 60, 14

Curve = dict[int, tuple[float, float]]  # round -> accuracy, clients seen


def rounds_section(results: Results) -> Html | None:
    """Return the section, or None when there were no rounds."""
    groups: dict[tuple[Any, ...], dict[str, list[Curve]]] = {}
    for run in map(mapping, items(results.raw.get("rounds"))):
        curve = _curve(run)
        if curve:
            key = tuple(run.get(part) for part in ("clients", "split", "per_round", "replacement"))
            groups.setdefault(key, {}).setdefault(str(run.get("head", "?")), []).append(curve)
    if not groups:
        return None
    heads = list(dict.fromkeys(head for group in groups.values() for head in group))
    several = len(groups) > 1
    places = len({key[:2] for key in groups}) > 1
    charts = [
        tag("div", _group(key, curves, heads, several=several, placed=places), class_="facet")
        for key, curves in list(groups.items())[:MOST_CHARTS]
    ]
    return join(
        [
            tag(
                "p",
                "When only some clients take part in a round, the server solves again with all that it has seen. "
                "Once every client was seen, the head is the one-shot head: later rounds change nothing.",
                class_="lead",
            ),
            tag("div", *charts, class_="facets" if several else None),
            tag("p", "Lines: mean over seeds; bars: lowest and highest seed.", class_="note"),
        ]
    )


def _curve(run: Mapping[str, Any]) -> Curve:
    found: Curve = {}
    for point in map(mapping, items(run.get("points"))):
        number, accuracy = as_number(point.get("round")), as_number(point.get("accuracy"))
        if number is not None and accuracy is not None:
            found[int(number)] = accuracy, as_number(point.get("seen")) or 0.0
    return dict(sorted(found.items()))


def _group(
    key: tuple[Any, ...], curves: Mapping[str, list[Curve]], heads: list[str], *, several: bool, placed: bool
) -> Html:
    clients, split, per_round, replacement = key
    words = f"{count(as_number(per_round), 'client')} a round" if per_round else "Rounds"
    words += {True: ", with replacement", False: ", without replacement"}.get(replacement, "")
    where = f"{count(as_number(clients), 'client')}" if clients else ""
    where += f" ({split_words(split)})" if split else ""
    shown = list(curves)[:MOST_HEADS]
    lines = [Line(head, heads.index(head), _mean(head, curves[head])) for head in shown]
    last = max(number for curve in curves.values() for each in curve for number in each)
    title = f"Accuracy after each round, {words}: " + "; ".join(
        f"{line.name} ends at {percent(line.points[-1].y)}" for line in lines
    )

    def x(start: float, end: float) -> Axis:
        axis = linear_axis([1, last], start, end, lambda v: f"{v:g}", bounds=(1, max(last, 2)))
        whole = tuple(tick for tick in ((1.0, "1"), *axis.ticks) if tick[0] == int(tick[0]))
        return Axis(axis.low, axis.high, tuple(dict.fromkeys(whole)), start, end)

    def draw(width: float) -> Html:
        size = (420.0 if several and width > 500 else width, 300.0 if several else 360.0)
        return line_chart(lines, x, "round", title, size=size)

    return join(
        [
            tag("h3", words, tag("small", f" {where}") if where and placed else None),
            tag("figure", both(draw)),
            tag(
                "p", _coverage([curve for each in curves.values() for curve in each], as_number(clients)), class_="note"
            ),
        ]
    )


def _mean(head: str, curves: list[Curve]) -> tuple[Point, ...]:
    """Return the mean over seeds at every round; a seed that has seen every client keeps its last value."""
    rounds = sorted({number for curve in curves for number in curve})
    if len(rounds) > MOST_POINTS:
        rounds = sorted({rounds[round(i * (len(rounds) - 1) / (MOST_POINTS - 1))] for i in range(MOST_POINTS)})
    points = []
    for number in rounds:
        now = [curve[max(past)] for curve in curves if (past := [r for r in curve if r <= number])]
        accuracies, seen = [accuracy for accuracy, _ in now], fmean(seen for _, seen in now)
        told = f"{head}, round {number}: {percent(fmean(accuracies))}"
        told += f", {count(seen, 'client')} seen" if seen else ""
        points.append(Point(float(number), fmean(accuracies), min(accuracies), max(accuracies), told))
    return tuple(points)


def _coverage(curves: list[Curve], clients: float | None) -> str | None:
    """Return when every client was seen."""
    if not clients:
        return None
    whole = [[number for number, (_, seen) in curve.items() if seen >= clients] for curve in curves]
    if not all(whole):
        most = max(seen for curve in curves for _, seen in curve.values())
        return f"At most {count(most)} of {count(clients, 'client')} were seen."
    ends = [min(numbers) for numbers in whole]
    low, high = min(ends), max(ends)
    return f"Every client was seen after {count(low, 'round') if low == high else f'{low} to {high} rounds'}."
