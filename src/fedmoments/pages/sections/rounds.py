"""Accuracy after each round, when clients took part a few at a time, until every client was seen."""

from collections.abc import Mapping
from statistics import fmean
from typing import Any

from fedmoments.pages.chart import Chart, Point, Scale, Series, Style, share_scale
from fedmoments.pages.figure import facets, figure
from fedmoments.pages.formats import count, percent, split_words
from fedmoments.pages.markup import Html, join, tag
from fedmoments.pages.plain import as_number, items, mapping
from fedmoments.pages.reading import Results
from fedmoments.pages.shell import section

__all__ = ["rounds_section"]

#: Small charts, points of a line, and heads of the figure.
MOST_CHARTS, MOST_POINTS, MOST_HEADS = 8, 60, 14

Curve = dict[int, tuple[float, float]]  # round -> accuracy, clients seen


@section("rounds", "Accuracy per round", place=70)
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
    heads = dict.fromkeys(head for group in groups.values() for head in group)
    styles = {head: Style.numbered(number) for number, head in enumerate(heads)}
    places = len({key[:2] for key in groups}) > 1
    charts = [
        _group(key, curves, styles, several=len(groups) > 1, placed=places)
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
            facets(charts),
            tag("p", "Lines: mean over seeds; bars and bands: lowest and highest seed.", class_="note"),
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
    key: tuple[Any, ...],
    curves: Mapping[str, list[Curve]],
    styles: Mapping[str, Style],
    *,
    several: bool,
    placed: bool,
) -> Html:
    clients, split, per_round, replacement = key
    words = f"{count(as_number(per_round), 'client')} a round" if per_round else "Rounds"
    words += {True: ", with replacement", False: ", without replacement"}.get(replacement, "")
    where = f"{count(as_number(clients), 'client')}" if clients else ""
    where += f" ({split_words(split)})" if split else ""
    every = [curve for each in curves.values() for curve in each]
    return join(
        [
            tag("h3", words, tag("small", f" {where}") if where and placed else None),
            figure(_chart(curves, styles, words, height=226.0 if several else 286.0), beside=several),
            tag("p", _coverage(every, as_number(clients)), class_="note"),
        ]
    )


def _chart(curves: Mapping[str, list[Curve]], styles: Mapping[str, Style], words: str, *, height: float) -> Chart:
    series = tuple(Series(head, _mean(head, curves[head]), styles[head]) for head in list(curves)[:MOST_HEADS])
    last = max(number for several in curves.values() for curve in several for number in curve)
    ends = "; ".join(f"{each.name} ends at {percent(each.points[-1].y)}" for each in series)
    x = Scale("round", values=(1.0, float(last)), bounds=(1.0, float(max(last, 2))), whole=True)
    return Chart(f"Accuracy after each round, {words}: {ends}", x, share_scale(), series, height=height)


def _mean(head: str, curves: list[Curve]) -> tuple[Point, ...]:
    """Return the mean over seeds at every round; a seed that has seen every client keeps its last value."""
    rounds = sorted({number for curve in curves for number in curve})
    if len(rounds) > MOST_POINTS:
        rounds = sorted({rounds[round(i * (len(rounds) - 1) / (MOST_POINTS - 1))] for i in range(MOST_POINTS)})
    return tuple(_mean_point(head, curves, number) for number in rounds)


def _mean_point(head: str, curves: list[Curve], number: int) -> Point:
    now = [curve[max(past)] for curve in curves if (past := [r for r in curve if r <= number])]
    accuracies, seen = [accuracy for accuracy, _ in now], fmean(seen for _, seen in now)
    told = f"{head}, round {number}: {percent(fmean(accuracies))}"
    told += f", {count(seen, 'client')} seen" if seen else ""
    return Point(float(number), fmean(accuracies), min(accuracies), max(accuracies), told)


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
