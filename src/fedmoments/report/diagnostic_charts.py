"""Figures of the diagnostics: what Fisher directions keep, how coordinates are shaped, how many means a class has."""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from fedmoments.report.axes import Axis, Box, both, frame, linear_axis, log_axis, svg
from fedmoments.report.formats import THIN, count, percent
from fedmoments.report.labels import spread, text_width
from fedmoments.report.lines import Line, Point, line_chart
from fedmoments.report.markup import Html, Node, join, tag
from fedmoments.report.plain import as_number, items, mapping

__all__ = ["fisher_figures", "holders_figure", "tail_figure"]

#: Size of a chart beside another one.
SIDE, HEIGHT = 420.0, 300.0
#: Up to so many numbers of means have a bar each.
MOST_BARS = 40
#: Up to so many have a tick each.
FEW_BARS = 10
#: Styles of the sources' lines.
NUMBERS = {"exact": 0, "free": 1}


def _beside(draw: Callable[[float], Html]) -> Html:
    """Return a chart that stands beside another one, and alone on a phone."""
    return tag("figure", both(lambda width: draw(min(width, SIDE))))


# ---------------------------------------------------------------------------------------------- Fisher directions


def fisher_figures(curves: Mapping[str, Any]) -> list[Html]:
    """Return LDA's accuracy (with test samples) and the Fisher energy against the number of directions."""
    found = []
    for key, title, y_title in (
        ("accuracy", "Accuracy of LDA", f"accuracy,{THIN}%"),
        ("energy", "Fisher energy", f"share of the energy,{THIN}%"),
    ):
        lines = [
            Line(name, NUMBERS.get(name, 2 + place), points)
            for place, (name, curve) in enumerate(curves.items())
            if (points := _points(name, mapping(curve), key))
        ]
        if lines:
            found.append(_lines(lines, title, y_title))
    return found


def _points(name: str, curve: Mapping[str, Any], key: str) -> tuple[Point, ...]:
    found = []
    for size, value in zip(items(curve.get("directions")), items(curve.get(key)), strict=False):
        k, share = as_number(size), as_number(value)
        if k and k > 0 and share is not None:
            told = f"{name} covariance, {count(k, 'direction')}: {percent(share)}"
            found.append(Point(k, share, share, share, told))
    return tuple(found)


def _lines(lines: list[Line], title: str, y_title: str) -> Html:
    sizes = sorted({point.x for line in lines for point in line.points})

    def x(start: float, end: float) -> Axis:
        axis = log_axis(sizes, start, end, "{:g}".format)
        shown = [(size, f"{size:g}") for size in sizes]
        # The last number is the one that matters: the one before it gives way.
        while len(shown) > 2 and axis(shown[-1][0]) - axis(shown[-2][0]) < 24:
            del shown[-2]
        apart = all(axis(b) - axis(a) >= 20 for (a, _), (b, _) in pairwise(shown))
        return Axis(axis.low, axis.high, tuple(shown) if apart else axis.ticks, start, end, log=True)

    ends = "; ".join(f"{line.name} covariance ends at {percent(line.points[-1].y)}" for line in lines)
    words = f"{title} against the number of Fisher directions: {ends}"

    def draw(width: float) -> Html:
        return line_chart(lines, x, "Fisher directions k (logarithmic)", words, size=(width, HEIGHT), y_title=y_title)

    return join([tag("h3", title, tag("small", " in the first k Fisher directions")), _beside(draw)])


# ---------------------------------------------------------------------------------------------- histograms


def tail_figure(tail: Mapping[str, Any], title: str) -> Html | None:
    """Return the histogram of the absolute values of a shape, with its median and what chance alone would show."""
    histogram = mapping(tail.get("histogram"))
    edges = [as_number(edge) for edge in items(histogram.get("edges"))]
    counts = [as_number(number) for number in items(histogram.get("counts"))]
    known = [edge for edge in edges if edge is not None]
    if len(counts) < 1 or len(known) != len(counts) + 1 or any(b <= a for a, b in pairwise(known)):
        return None
    numbers = [number or 0.0 for number in counts]
    marks = [(as_number(tail.get(key)), words) for key, words in (("median", "median"), ("p90", f"90{THIN}% ≤"))]
    shown = [(value, words) for value, words in marks if value is not None]
    chance = as_number(tail.get("by_chance"))
    beyond = as_number(histogram.get("beyond"))

    def told(place: int) -> str:
        return f"{count(numbers[place], 'coordinate')} between {known[place]:.4g} and {known[place + 1]:.4g}"

    def draw(width: float) -> Html:
        titles = f"{title} of a coordinate", "coordinates"
        return _bars(width, (known, numbers), titles, told, marks=shown, chance=chance)

    note = f"{count(beyond)} more are beyond the right end. " if beyond else ""
    note += f"Orange: about what the mean, {_short(as_number(tail.get('mean')))}, would be of a Gaussian with as many "
    note += f"samples, {_short(chance)}." if chance is not None else ""
    return join([tag("h3", title), _beside(draw), tag("p", note, class_="note") if chance is not None else None])


def holders_figure(held_by: Sequence[Any]) -> Html | None:
    """Return how many classes have how many client means."""
    known = [int(number) for each in held_by if (number := as_number(each)) is not None and number > 0]
    if not known:
        return None
    low, high = min(known), max(known)
    step = 1 if high - low < MOST_BARS else -(-(high - low + 1) // MOST_BARS)
    starts = list(range(low, high + 1, step))
    numbers, _ = np.histogram(known, bins=[*starts, starts[-1] + step])
    edges = [start - 0.5 for start in starts] + [starts[-1] + step - 0.5]

    def told(place: int) -> str:
        last = starts[place] + step - 1
        means = f"{starts[place]:,}" if step == 1 else f"{starts[place]:,} to {last:,}"
        return f"{count(float(numbers[place]), 'class', 'classes')} with {means} client means"

    def draw(width: float) -> Html:
        titles = "client means of a class, K_c", "classes"
        return _bars(width, (edges, numbers.tolist()), titles, told, whole=True)

    return join([tag("h3", "Means per class"), _beside(draw)])


def _bars(
    width: float,
    bars: tuple[Sequence[float], Sequence[float]],
    titles: tuple[str, str],
    told: Callable[[int], str],
    *,
    marks: Sequence[tuple[float, str]] = (),
    chance: float | None = None,
    whole: bool = False,
) -> Html:
    """Return a histogram, with upright lines at marks, and at what chance shows."""
    edges, numbers = bars
    x_title, y_title = titles
    box = Box(44.0, 30.0, width - 8, HEIGHT - 46)
    y = linear_axis([0.0, *numbers], box.bottom, box.top + 6, "{:,g}".format, ticks=5)
    y = Axis(y.low, y.high, tuple(tick for tick in y.ticks if tick[0] == int(tick[0])), y.start, y.end)
    x = _whole_axis(edges, box) if whole else _plain_axis(edges, box)
    drawn: list[Node] = [frame(box, x, y, x_title, y_title)]
    for place, number in enumerate(numbers):
        left, right = x(edges[place]), x(edges[place + 1])
        top = y(number)
        drawn.append(
            tag(
                "g",
                tag("title", told(place)),
                tag("rect", x=left, y=box.top, width=right - left, height=box.bottom - box.top, class_="hit"),
                tag(
                    "rect",
                    x=left + 0.5,
                    y=top,
                    width=max(right - left - 1, 0.7),
                    height=max(box.bottom - top, 0.0),
                    class_="margin",
                ),
                class_="point",
            )
        )
    if chance is not None and edges[0] <= chance <= edges[-1]:
        drawn.append(tag("line", x1=x(chance), x2=x(chance), y1=box.top, y2=box.bottom, class_="expected"))
    inside = [(value, words) for value, words in marks if edges[0] <= value <= edges[-1]]
    drawn += _marks(inside, x, box)
    return svg(width, HEIGHT, f"Histogram of {x_title}: {count(sum(numbers))} {y_title}", *drawn)


def _marks(marks: Sequence[tuple[float, str]], x: Axis, box: Box) -> list[Node]:
    """Return upright dashed lines, each with its words at the top, on the side where there is room, below the last."""
    drawn: list[Node] = []
    heights = spread([box.top + 10 + 16 * place for place in range(len(marks))], box.top + 8, box.bottom)
    for (value, words), height in zip(marks, heights, strict=True):
        place, written = x(value), f"{words} {_short(value)}"
        fits = place + 8 + text_width(written) <= box.right
        drawn.append(tag("line", x1=place, x2=place, y1=height - 7, y2=box.bottom, class_="diagonal"))
        drawn.append(
            tag(
                "text",
                written,
                x=place + (6 if fits else -6),
                y=height,
                dy="0.34em",
                text_anchor="start" if fits else "end",
                class_="label quiet",
            )
        )
    return drawn


def _plain_axis(edges: Sequence[float], box: Box) -> Axis:
    axis = linear_axis([edges[0], edges[-1]], box.left, box.right, "{:g}".format, ticks=5)
    kept = tuple(tick for tick in axis.ticks if tick[0] <= edges[-1] * (1 + 1e-9))
    return Axis(edges[0], edges[-1], kept, box.left, box.right)


def _whole_axis(edges: Sequence[float], box: Box) -> Axis:
    """Return an axis of whole numbers: bars of one number stay narrow."""
    low, high = edges[0], edges[-1]
    if high - low < 8:
        middle = (low + high) / 2
        low, high = middle - 4, middle + 4
    bars = [(edge + 0.5, f"{edge + 0.5:,g}") for edge in edges[:-1]]
    if len(bars) <= FEW_BARS and all(b - a == 1 for a, b in pairwise(edges)):
        return Axis(low, high, tuple(bars), box.left, box.right)
    ticks = linear_axis([max(low + 0.5, 0.0), high - 0.5], box.left, box.right, "{:,g}".format, ticks=6).ticks
    kept = tuple(tick for tick in ticks if tick[0] == int(tick[0]) and low <= tick[0] <= high)
    return Axis(low, high, kept, box.left, box.right)


def _short(value: float | None) -> str:
    """Return a figure with three digits."""
    return "–" if value is None else f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
