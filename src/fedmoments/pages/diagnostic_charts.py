"""Figures of the diagnostics: what Fisher directions keep, how coordinates are shaped, how many means a class has."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isfinite

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.diagnostics import FisherCurve, Tail
from fedmoments.pages.chart import ACCURACY, Chart, Point, Rule, Scale, Series, Style, share_scale
from fedmoments.pages.figure import figure
from fedmoments.pages.formats import THIN, count, percent, three_digits
from fedmoments.pages.markup import Html, join, tag

__all__ = ["fisher_figures", "holders_figure", "tail_figure"]

#: Height of a plot.
HEIGHT = 226.0
#: Up to so many numbers of means have a bar each, and up to so many a tick each.
MOST_BARS, FEW_BARS = 40, 10
#: Numbers of means that a histogram spans at least: bars of one number stay narrow.
LEAST_SPAN = 8
#: Styles of the sources' lines.
NUMBERS = {"exact": 0, "free": 1}


# ---------------------------------------------------------------------------------------------- Fisher directions


def fisher_figures(curves: Mapping[str, FisherCurve]) -> list[Html]:
    """Return LDA's accuracy (with test samples) and the Fisher energy against the number of directions."""
    accuracy = {name: curve.accuracy or () for name, curve in curves.items()}
    energy = {name: curve.energy for name, curve in curves.items()}
    wanted = ((accuracy, "Accuracy of LDA", ACCURACY), (energy, "Fisher energy", f"share of the energy,{THIN}%"))
    figures = []
    for shares, title, y_title in wanted:
        series = [
            Series(name, _points(name, curve, shares[name]), Style.numbered(NUMBERS.get(name, 2 + place)))
            for place, (name, curve) in enumerate(curves.items())
            if shares[name]
        ]
        if series:
            figures.append(_directions(tuple(series), title, y_title))
    return figures


def _points(name: str, curve: FisherCurve, shares: Sequence[float]) -> tuple[Point, ...]:
    return tuple(
        Point(k, share, tip=f"{name} covariance, {count(k, 'direction')}: {percent(share)}")
        for k, share in zip(curve.directions, shares, strict=True)
    )


def _directions(series: tuple[Series, ...], title: str, y_title: str) -> Html:
    sizes = sorted({point.x for line in series for point in line.points})
    ends = "; ".join(f"{line.name} covariance ends at {percent(line.points[-1].y)}" for line in series)
    chart = Chart(
        f"{title} against the number of Fisher directions: {ends}",
        Scale(
            "Fisher directions k (logarithmic)",
            "log",
            "{:g}".format,
            ticks=tuple((size, f"{size:g}") for size in sizes),
        ),
        share_scale(y_title),
        series,
        height=HEIGHT,
    )
    return join([tag("h3", title, tag("small", " in the first k Fisher directions")), figure(chart, beside=True)])


# ---------------------------------------------------------------------------------------------- histograms


@dataclass(frozen=True)
class _Bins:
    """A histogram: the edges of its bars, one more than bars, and how high they are."""

    edges: tuple[float, ...]
    heights: tuple[float, ...]

    def chart(self, x: Scale, y_title: str, tip: Callable[[int], str], rules: Sequence[Rule] = ()) -> Chart:
        """Return its chart; rules outside it are left out."""
        points = [
            Point((left + right) / 2, height, tip=tip(place), span=(left, right))
            for place, ((left, right), height) in enumerate(zip(pairwise(self.edges), self.heights, strict=True))
        ]
        inside = tuple(rule for rule in rules if self.edges[0] <= rule.x <= self.edges[-1])
        title = f"Histogram of {x.title}: {count(sum(self.heights))} {y_title}"
        y = Scale(y_title, about=5, whole=True)
        return Chart(title, x, y, (Series("", tuple(points)),), inside, height=HEIGHT)


def tail_figure(tail: Tail, title: str) -> Html | None:
    """Return the histogram of the absolute values of a shape, with its median and what chance alone would show."""
    if not len(tail.counts) or len(tail.edges) != len(tail.counts) + 1 or not (np.diff(tail.edges) > 0).all():
        return None
    bins = _Bins(tuple(tail.edges.tolist()), tuple(map(float, tail.counts.tolist())))
    marks = ((tail.median, "median"), (tail.p90, f"90{THIN}% ≤"))
    rules = [Rule(value, (f"{words} {three_digits(value)}",), "diagonal") for value, words in marks if isfinite(value)]
    chance = tail.by_chance if isfinite(tail.by_chance) else None
    rules += [Rule(chance, style="expected")] if chance is not None else []

    def tip(place: int) -> str:
        between = f"between {bins.edges[place]:.4g} and {bins.edges[place + 1]:.4g}"
        return f"{count(bins.heights[place], 'coordinate')} {between}"

    x = Scale(f"{title} of a coordinate", words="{:g}".format, about=5, exact=True)
    return join(
        [
            tag("h3", title),
            figure(bins.chart(x, "coordinates", tip, rules), beside=True),
            tag("p", _tail_note(tail, chance), class_="note") if chance is not None else None,
        ]
    )


def _tail_note(tail: Tail, chance: float) -> str:
    beyond = f"{count(tail.beyond)} more are beyond the right end. " if tail.beyond else ""
    mean = three_digits(tail.mean)
    return (
        f"{beyond}Orange: about what the mean, {mean}, would be of a Gaussian with as many samples, "
        f"{three_digits(chance)}."
    )


def holders_figure(held_by: NDArray[np.int64]) -> Html | None:
    """Return how many classes have how many client means."""
    known = [number for number in held_by.tolist() if number > 0]
    if not known:
        return None
    low, high = min(known), max(known)
    step = 1 if high - low < MOST_BARS else -(-(high - low + 1) // MOST_BARS)
    starts = list(range(low, high + 1, step))
    heights, _ = np.histogram(known, bins=[*starts, starts[-1] + step])
    bins = _Bins(tuple(start - 0.5 for start in [*starts, starts[-1] + step]), tuple(heights.tolist()))

    def tip(place: int) -> str:
        last = starts[place] + step - 1
        means = f"{starts[place]:,}" if step == 1 else f"{starts[place]:,} to {last:,}"
        return f"{count(float(heights[place]), 'class', 'classes')} with {means} client means"

    few = step == 1 and len(starts) <= FEW_BARS
    middle, span = (bins.edges[0] + bins.edges[-1]) / 2, max(bins.edges[-1] - bins.edges[0], LEAST_SPAN)
    x = Scale(
        "client means of a class, K_c",
        values=(middle - span / 2, middle + span / 2),
        ticks=tuple((float(start), f"{start:,}") for start in starts) if few else None,
        whole=True,
        exact=True,
    )
    return join([tag("h3", "Means per class"), figure(bins.chart(x, "classes", tip), beside=True)])
