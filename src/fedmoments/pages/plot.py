"""Charts as SVG: the plan of where things lie, the frame, and all that stands inside it."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from fedmoments.pages.chart import Chart, Series, Trace
from fedmoments.pages.formats import shorten
from fedmoments.pages.labels import Segment, text_width
from fedmoments.pages.marks import covered, draw_series, swatch
from fedmoments.pages.markup import Html, Node, join, tag
from fedmoments.pages.names import label_points, name_ends
from fedmoments.pages.scales import Axis, horizontal, vertical

__all__ = ["Drawing", "draw", "fitted", "svg"]

#: Pixels above and below the plot: the axis titles and the ticks.
ABOVE, BELOW = 28.0, 46.0
#: Pixels of a line of the legend, and of words above a rule.
ENTRY, RULE = 20.0, 13.0
#: Pixels of words that lean, from the axis down, and the letters that they have.
LEANING, LEAN_LETTERS = 74.0, 14
#: Share of the width that names at the ends of lines take at most, and the pixels that each of them needs.
ENDS, NAME = 0.34, 15.0
#: Pixels of a legend's entry besides its words.
SWATCH = 44.0


@dataclass(frozen=True)
class Drawing:
    """A chart of a width: its elements, from the upper left corner, and its size in pixels."""

    inner: Html
    width: float
    height: float


@dataclass(frozen=True)
class _Plan:
    """Where things lie: the axes span the plot."""

    x: Axis
    y: Axis
    left: float
    right: float
    top: float
    bottom: float
    legend: tuple[tuple[Series, ...], ...]
    ends: bool
    lean: bool
    width: float

    @property
    def height(self) -> float:
        """Of the whole drawing."""
        return self.bottom + (LEANING + 22 if self.lean else BELOW)


def svg(width: float, height: float, title: str, *children: Node, role: str = "img") -> Html:
    """Return a drawing; its title is read to those who cannot see it."""
    return tag(
        "svg",
        tag("title", title),
        *children,
        viewBox=f"0 0 {width:g} {height:g}",
        width=f"{width:g}",
        height=f"{height:g}",
        role=role,
        class_="chart",
        xmlns="http://www.w3.org/2000/svg",
    )


def draw(chart: Chart, width: float) -> Drawing:
    """Return a chart as it is in a width of so many pixels.

    Examples
    --------
    >>> from fedmoments.pages.chart import Point, Scale, Style
    >>> line = Series("fedcof", (Point(1, 0.5, tip="one"), Point(2, 0.75, tip="two")), Style.numbered(0))
    >>> drawing = draw(Chart("A line", Scale("x"), Scale("y"), (line,)), 400)
    >>> drawing.height, drawing.inner.count('class="point"')
    (344.0, 2)
    """
    plan = _plan(chart, width)
    axes, bounds = (plan.x, plan.y), (plan.left, plan.top, plan.right, plan.bottom)
    named = [series for series in chart.series if series.name and series.points] if plan.ends else []
    labels = label_points(chart.series, named, axes, bounds, _obstacles(chart, plan))
    drawn = [draw_series(series, axes, labels) for series in chart.series]
    compared = [
        *_rules(chart, plan),
        *(tag("path", d=_path(trace, axes), class_=trace.style) for trace in chart.traces),
    ]
    inner = [
        *_bands(chart, plan),
        _frame(plan, chart),
        # Bars would hide what they are compared with.
        *([*drawn, *compared] if chart.has_bars else [*compared, *drawn]),
        *name_ends(named, labels, axes, bounds),
        _legend(plan) if plan.legend else None,
    ]
    return Drawing(join(inner), width, plan.height)


def _obstacles(chart: Chart, plan: _Plan) -> list[Segment]:
    """Return what labels should not cover."""
    x, y = plan.x, plan.y
    obstacles = [(x(rule.x), plan.top, x(rule.x), plan.bottom) for rule in chart.rules]
    for trace in chart.traces:
        obstacles += [(x(a), y(b), x(c), y(d)) for (a, b), (c, d) in pairwise(trace.places)]
    return obstacles + [segment for series in chart.series for segment in covered(series, (x, y))]


def fitted(chart: Chart, width: float, height: float) -> Chart:
    """Return a chart whose drawing of a width is so many pixels high."""
    return replace(chart, height=chart.height + height - _plan(chart, width).height)


# ---------------------------------------------------------------------------------------------- where things lie


def _plan(chart: Chart, width: float) -> _Plan:
    names = [series for series in chart.series if series.name] if chart.named else []
    ends = _fit_ends(chart, names, width)
    legend = () if ends else _rows(names, width)
    top = ABOVE + RULE * max((len(rule.words) for rule in chart.rules), default=0)
    top += (ENTRY * len(legend) + 6) * bool(legend) + ENTRY * _explained(chart)
    bottom = top + chart.height
    y = vertical(chart.y, _heights(chart), bottom, top + 6)
    left = _widest(words for _, words in y.ticks) + 12
    right = width - (_widest(series.name for series in names) + 18 if ends else 8)
    pad = 0.0 if chart.has_bars else 6.0
    x = horizontal(chart.x, _places(chart), left + pad, right - pad)
    return _Plan(x, y, left, right, top, bottom, legend, ends, _leans(chart, x), width)


def _widest(words: Iterable[str]) -> float:
    return max(map(text_width, words), default=2.0)


def _fit_ends(chart: Chart, names: Sequence[Series], width: float) -> bool:
    """Return whether names fit beside the ends of lines."""
    if not names or not all(series.line for series in names) or len(names) * NAME > chart.height:
        return False
    return _widest(series.name for series in names) + 18 <= ENDS * width


def _rows(names: Sequence[Series], width: float) -> tuple[tuple[Series, ...], ...]:
    """Return the entries of the legend, line by line."""
    lines: list[list[Series]] = []
    used = 0.0
    for series in names:
        needed = text_width(_entry(series, width)) + SWATCH
        if not lines or used + needed > width:
            lines.append([])
            used = 0.0
        lines[-1].append(series)
        used += needed
    return tuple(map(tuple, lines))


def _entry(series: Series, width: float) -> str:
    return shorten(series.name, max(int((width - SWATCH) / 7.6), 8))


def _heights(chart: Chart) -> list[float]:
    """Return what the vertical axis must hold; with values of its own, points may lie outside it."""
    if chart.y.values:
        return []
    ends = [end for point in chart.points for end in point.ends]
    ends += [end for band in chart.bands for end in (band.low, band.high)]
    return ends + ([0.0] if chart.y.kind == "linear" and chart.has_bars else [])


def _places(chart: Chart) -> list[float]:
    spans = [end for point in chart.points for end in point.span or ()]
    return spans or [point.x for point in chart.points]


def _leans(chart: Chart, x: Axis) -> bool:
    """Return whether words of the horizontal axis must lean to have room."""
    room = (x.end - x.start) / max(len(x.ticks), 1)
    return chart.x.kind == "words" and any(text_width(words, 12) > room - 4 for _, words in x.ticks)


# ---------------------------------------------------------------------------------------------- the frame


def _frame(plan: _Plan, chart: Chart) -> Html:
    """Return grid lines, ticks and axis titles: the vertical one lies above its axis, where it reads easily."""
    x, y = plan.x, plan.y
    y_title = f"{chart.y.title} (logarithmic)" if y.log else chart.y.title
    under = plan.height - 8
    return tag(
        "g",
        *(tag("line", x1=plan.left, x2=plan.right, y1=y(at), y2=y(at), class_="grid") for at, _ in y.ticks),
        *(tag("line", x1=x(at), x2=x(at), y1=plan.bottom, y2=plan.bottom + 5, class_="axis") for at, _ in x.ticks),
        tag("line", x1=plan.left, x2=plan.right, y1=plan.bottom, y2=plan.bottom, class_="axis"),
        *(
            tag("text", words, x=plan.left - 8, y=y(at), dy="0.35em", text_anchor="end", class_="tick")
            for at, words in y.ticks
        ),
        *(_tick(plan, x(at), words) for at, words in x.ticks),
        tag("text", y_title, x=0.0, y=12.0, class_="axis-title") if y_title else None,
        tag("text", chart.x.title, x=plan.right, y=under, text_anchor="end", class_="axis-title")
        if chart.x.title
        else None,
        aria_hidden="true",
    )


def _tick(plan: _Plan, x: float, words: str) -> Html:
    if not plan.lean:
        return tag("text", words, x=x, y=plan.bottom + 19, text_anchor="middle", class_="tick")
    turn = f"rotate(-38 {x:.1f} {plan.bottom + 12:.1f})"
    short = shorten(words, LEAN_LETTERS)
    return tag("text", short, x=x, y=plan.bottom + 16, text_anchor="end", class_="tick", transform=turn)


def _legend(plan: _Plan) -> Html:
    drawn: list[Node] = []
    for row, several in enumerate(plan.legend):
        left, middle = 0.0, ABOVE + 2 + row * ENTRY
        for series in several:
            name = _entry(series, plan.width)
            words = tag("text", name, x=left + 32, y=middle, dy="0.34em", class_="label")
            classes = series.style.classes if series.style else ""
            drawn.append(tag("g", swatch(series, left, middle), words, class_=f"series {classes}"))
            left += text_width(name) + SWATCH
    return tag("g", *drawn, class_="legend")


# ---------------------------------------------------------------------------------------------- rules and traces


def _rules(chart: Chart, plan: _Plan) -> list[Node]:
    """Return upright lines, each with words above it that touch no others; those outside the plot are left out."""
    drawn: list[Node] = []
    taken = -math.inf
    for rule in sorted(chart.rules, key=lambda each: each.x):
        place = plan.x(rule.x)
        if not plan.left <= place <= plan.right:
            continue
        drawn.append(tag("line", x1=place, x2=place, y1=plan.top - 6, y2=plan.bottom, class_=rule.style))
        if not rule.words:
            continue
        half = 0.5 * max(text_width(line, 12.0) for line in rule.words)
        middle = max(min(place, plan.width - half), plan.left + half, taken + half)
        taken = middle + half + 8
        first = plan.top - 11 - RULE * (len(rule.words) - 1)
        drawn += [
            tag("text", line, x=middle, y=first + RULE * i, text_anchor="middle", class_="rule-words")
            for i, line in enumerate(rule.words)
        ]
    return drawn


def _explained(chart: Chart) -> int:
    """Return how many bands have words."""
    return sum(bool(band.words) for band in chart.bands)


def _bands(chart: Chart, plan: _Plan) -> list[Node]:
    """Return grey stretches of the plot, and above the plot what they mean, each beside a grey field."""
    drawn: list[Node] = []
    line = ABOVE + 2 + ENTRY * len(plan.legend)
    for band in chart.bands:
        high, low = plan.y(min(band.high, plan.y.high)), plan.y(max(band.low, plan.y.low))
        width = plan.right - plan.left
        drawn.append(tag("rect", x=plan.left, y=high, width=width, height=max(low - high, 0.0), class_="noise"))
        if not band.words:
            continue
        drawn.append(tag("rect", x=0.0, y=line - 6, width=26, height=12, class_="noise"))
        drawn.append(tag("text", band.words, x=32.0, y=line, dy="0.34em", class_="rule-words"))
        line += ENTRY
    return drawn


def _path(trace: Trace, axes: tuple[Axis, Axis]) -> str:
    return "M" + "L".join(f"{axes[0](x):.1f},{axes[1](y):.1f}" for x, y in trace.places)
