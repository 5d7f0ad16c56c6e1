"""Accuracy after each round, when clients took part a few at a time, until every client was seen."""

from collections.abc import Mapping, Sequence
from statistics import fmean

from fedmoments.core.observations import Report
from fedmoments.core.observations.parts import RoundCurve
from fedmoments.pages.chart import Chart, Point, Scale, Series, Style, share_scale
from fedmoments.pages.figure import facets, figure
from fedmoments.pages.formats import clients_words, count, percent
from fedmoments.pages.markup import Html, join, tag
from fedmoments.pages.shell import section

__all__ = ["rounds_section"]

#: Small charts, points of a line, and heads of the figure.
MOST_CHARTS, MOST_POINTS, MOST_HEADS = 8, 60, 14

Curve = dict[int, tuple[float, float]]  # round -> accuracy, clients seen
Kind = tuple[int, str | None, int, bool]  # clients, split, clients a round, replacement


@section("rounds", "Accuracy per round", place=70, of="rounds")
def rounds_section(_: Report, rounds: tuple[RoundCurve, ...]) -> Html | None:
    """Return the section, or None when no accuracy of a round is known."""
    groups = _groups(rounds)
    if not groups:
        return None
    heads = dict.fromkeys(head for group in groups.values() for head in group)
    styles = {head: Style.numbered(number) for number, head in enumerate(heads)}
    several = len({kind[:2] for kind in groups}) > 1
    charts = [
        _group(kind, curves, styles, beside=len(groups) > 1, placed=several)
        for kind, curves in list(groups.items())[:MOST_CHARTS]
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


def _groups(rounds: Sequence[RoundCurve]) -> dict[Kind, dict[str, list[Curve]]]:
    """Return the curves of every chart, by how clients take part, and by head."""
    most: dict[tuple[str | None, int, bool], int] = {}
    for run in rounds:
        how = run.split, run.per_round, run.replacement
        most[how] = max(most.get(how, 0), run.clients)
    groups: dict[Kind, dict[str, list[Curve]]] = {}
    for run in rounds:
        curve = {point.round: (point.accuracy, float(point.seen)) for point in run.points if point.accuracy is not None}
        if curve:
            kind = (most[run.split, run.per_round, run.replacement], run.split, run.per_round, run.replacement)
            groups.setdefault(kind, {}).setdefault(run.head, []).append(dict(sorted(curve.items())))
    return groups


def _group(
    kind: Kind, curves: Mapping[str, list[Curve]], styles: Mapping[str, Style], *, beside: bool, placed: bool
) -> Html:
    clients, split, per_round, replacement = kind
    words = f"{count(per_round, 'client')} a round, {'with' if replacement else 'without'} replacement"
    every = [curve for several in curves.values() for curve in several]
    return join(
        [
            tag("h3", words, tag("small", f" {clients_words(clients, split)}") if placed else None),
            figure(_chart(curves, styles, words, height=226.0 if beside else 286.0), beside=beside),
            tag("p", _coverage(every, clients), class_="note"),
        ]
    )


def _chart(curves: Mapping[str, list[Curve]], styles: Mapping[str, Style], words: str, *, height: float) -> Chart:
    series = tuple(Series(head, _mean(head, curves[head]), styles[head]) for head in list(curves)[:MOST_HEADS])
    last = max(number for several in curves.values() for curve in several for number in curve)
    ends = "; ".join(f"{line.name} ends at {percent(line.points[-1].y)}" for line in series)
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
    tip = f"{head}, round {number}: {percent(fmean(accuracies))}, {count(seen, 'client')} seen"
    return Point(float(number), fmean(accuracies), min(accuracies), max(accuracies), tip)


def _coverage(curves: list[Curve], clients: int) -> str:
    """Return when every client was seen."""
    whole = [[number for number, (_, seen) in curve.items() if seen >= clients] for curve in curves]
    if not all(whole):
        most = max(seen for curve in curves for _, seen in curve.values())
        return f"At most {count(most)} of {count(clients, 'client')} were seen."
    ends = [min(numbers) for numbers in whole]
    low, high = min(ends), max(ends)
    return f"Every client was seen after {count(low, 'round') if low == high else f'{low} to {high} rounds'}."
