"""One chart of a figure: lines with spreads or groups of bars, over numbers or words, with a scale of its own."""

import math
from dataclasses import dataclass, replace
from itertools import pairwise

from fedmoments.report.axes import Axis, Box, frame, linear_axis, log_axis, ordinal_axis, sparse
from fedmoments.report.formats import shorten
from fedmoments.report.labels import Mark, place_labels, spread, text_width
from fedmoments.report.lines import STYLES, Line, marker
from fedmoments.report.markup import Html, Node, join, tag
from fedmoments.reproduction.pages.series import Across, Dot, Drawing, Panel, Series
from fedmoments.reproduction.pages.words import number_words

__all__ = ["panel_height", "panel_inner"]

#: A line of more points is drawn without markers, and its spread as a band.
MOST_MARKERS = 14
#: Points of a line that tell their numbers.
MOST_TOLD = 60
#: Pixels between series at one word.
DODGE = 4.0
#: Series that are named at the ends of their lines; more have a legend.
MOST_ENDS = 8
#: Values that are further apart than this factor have a logarithmic scale, where they are no shares.
FACTOR = 300.0
#: Values across that are ticks themselves; of more, round numbers are.
MOST_TICKS = 10
#: Pixels from the right, beyond which a point that no line leads on from is named beside itself.
FAR = 60.0
#: Heights of the plot, and of a line of the legend.
PLOT, ENTRY = 270.0, 20.0
#: Pixels of words that lean, from the axis down.
LEANING = 74.0
#: Bars that are narrower than this have no number above them.
LABELLED = 24.0


@dataclass(frozen=True)
class _Plan:
    """Where things lie: the box, the legend's lines above it, whether lines are named at their ends."""

    box: Box
    legend: tuple[tuple[Series, ...], ...]
    ends: bool
    lean: bool
    height: float


def panel_height(drawing: Drawing, panel: Panel, width: float) -> float:
    """Return how high a chart of a width is."""
    return _plan(drawing, panel, width).height


def panel_inner(drawing: Drawing, panel: Panel, width: float) -> Html:
    """Return the elements of a chart, without the drawing about them.

    Parameters
    ----------
    drawing
        The figure; its scales are shared by all panels.
    panel
        What to draw.
    width
        In pixels.
    """
    plan = _plan(drawing, panel, width)
    box = plan.box
    x = _horizontal(drawing.across, box, bars=drawing.form == "bars", lean=plan.lean)
    y = _vertical(drawing, box)
    shown = replace(x, ticks=tuple((place, "") for place, _ in x.ticks)) if plan.lean else x
    x_title = "" if plan.lean else drawing.across.title
    y_title = f"{drawing.y_title} (logarithmic)" if y.log else drawing.y_title
    drawn: list[Node] = [frame(box, shown, y, x_title, y_title)]
    if plan.lean:
        drawn.append(_leaning(x, box, drawing.across.title))
    if drawing.form == "bars":
        drawn += _bars(drawing, panel, x, y, box)
    else:
        apart = DODGE if drawing.across.scale == "words" else 0.0
        middle = (len(panel.series) - 1) / 2
        places = [apart * (rank - middle) for rank in range(len(panel.series))]
        drawn += [
            _line(each, x, y, aside, dense=_dense(panel)) for each, aside in zip(panel.series, places, strict=True)
        ]
    drawn.append(_legend(plan, drawing.form, dense=_dense(panel)) if plan.legend else None)
    drawn += _ends(panel, x, y, box) if plan.ends else []
    return join(drawn)


def _plan(drawing: Drawing, panel: Panel, width: float) -> _Plan:
    names = [series.name for series in panel.series]
    longest = max((text_width(name) for name in names), default=0.0)
    ends = drawing.form == "lines" and 1 < len(names) <= MOST_ENDS and longest + 18 <= 0.3 * width
    lines: list[list[Series]] = []
    if len(names) > 1 and not ends:
        room = 0.0
        for series in panel.series:
            needed = text_width(_entry_name(series.name, width)) + 44
            if not lines or room + needed > width:
                lines.append([])
                room = 0.0
            lines[-1].append(series)
            room += needed
    left = max((text_width(words, 12) for _, words in _vertical(drawing, Box(0, 0, 1, 200)).ticks), default=20) + 12
    top = 28.0 + ENTRY * len(lines) + (6 if lines else 0)
    right = width - (longest + 18 if ends else 8)
    words = [word for _, word in drawing.across.places]
    each = (right - left) / max(len(words), 1)
    lean = drawing.across.scale == "words" and any(text_width(word, 12) > each - 4 for word in words)
    bottom = top + PLOT
    height = bottom + (LEANING + 22 if lean else 46)
    return _Plan(Box(left, top, right, bottom), tuple(map(tuple, lines)), ends, lean, height)


def _entry_name(name: str, width: float) -> str:
    return shorten(name, max(int((width - 44) / 7.6), 8))


def _horizontal(across: Across, box: Box, *, bars: bool, lean: bool) -> Axis:
    start, end = box.left + 6, box.right - 6
    if across.scale == "words" or bars:
        words = [shorten(word, 14) if lean else word for _, word in across.places]
        return ordinal_axis(words, box.left, box.right) if bars else ordinal_axis(words, start, end)
    places = [place for place, _ in across.places]
    if across.scale == "log":
        axis = log_axis(places, start, end, number_words)
    else:
        axis = linear_axis(places, start, end, number_words, bounds=(min(places), max(places)))
        if axis.high - axis.low < 1e-12:
            axis = linear_axis(places, start, end, number_words)
    named = replace(axis, ticks=across.places)
    apart = all(
        axis(b) - axis(a) > 0.5 * (text_width(one, 12) + text_width(other, 12)) + 6
        for (a, one), (b, other) in pairwise(across.places)
    )
    short = all(sum(c.isdigit() for c in words.strip("0.")) <= 3 for _, words in across.places)
    return named if apart and short and len(places) <= MOST_TICKS else sparse(axis)


def _vertical(drawing: Drawing, box: Box) -> Axis:
    """Return the vertical axis, which all panels share."""
    dots = [dot for panel in drawing.panels for series in panel.series for dot in series.dots]
    known = [value for dot in dots for value in (dot.y, dot.low, dot.high)]
    top = box.top + 6
    if drawing.share:
        # noise may reach beyond what a share can be; bars have their foot at zero
        values = [min(max(value, 0.0), 1.0) for value in known] + ([0.0] if drawing.form == "bars" else [])
        return linear_axis(values, box.bottom, top, lambda v: f"{v * 100:g}", bounds=(0.0, 1.0))
    means = [dot.y for dot in dots]
    if min(means) >= 0:  # what is never negative has no spread below zero
        known = [max(value, 0.0) for value in known]
    if min(means) > 0 and max(means) / min(means) > FACTOR:
        axis = log_axis([value for value in known if value > min(means) / 10], box.bottom, top, number_words)
        return replace(axis, ticks=_thinned(axis))
    values = known + ([0.0] if drawing.form == "bars" else [])
    return linear_axis(values, box.bottom, top, number_words)


def _thinned(axis: Axis) -> tuple[tuple[float, str], ...]:
    """Return at most seven ticks of a logarithmic axis."""
    every = max(math.ceil(len(axis.ticks) / 7), 1)
    return axis.ticks[::every]


def _leaning(x: Axis, box: Box, title: str) -> Html:
    words = [
        tag(
            "text",
            word,
            x=x(place),
            y=box.bottom + 16,
            text_anchor="end",
            class_="tick",
            transform=f"rotate(-38 {x(place):.1f} {box.bottom + 12:.1f})",
        )
        for place, word in x.ticks
    ]
    under = tag("text", title, x=box.right, y=box.bottom + LEANING + 14, text_anchor="end", class_="axis-title")
    return tag("g", *words, under, aria_hidden="true")


def _dense(panel: Panel) -> bool:
    return max((len(series.dots) for series in panel.series), default=0) > MOST_MARKERS


def _line(series: Series, x: Axis, y: Axis, aside: float, *, dense: bool) -> Html:
    """Return a line, so many pixels aside: spreads at one place would hide one another."""
    places = [(x(dot.x) + aside, y(dot.y), *_reach(dot, y)) for dot in series.dots]
    path = "".join(f"{'L' if i else 'M'}{a:.1f},{b:.1f}" for i, (a, b, *_) in enumerate(places))
    drawn: list[Node] = []
    dense = dense and len(places) > 1
    if dense and any(low - high > 1 for *_, low, high in places):
        edge = [f"{a:.1f},{high:.1f}" for a, _, _, high in places]
        edge += [f"{a:.1f},{low:.1f}" for a, _, low, _ in reversed(places)]
        drawn.append(tag("polygon", points=" ".join(edge), class_="band"))
    drawn.append(tag("path", d=path, class_="line"))
    every = math.ceil(len(places) / MOST_TOLD)
    told = list(zip(series.dots, places, strict=True))
    for dot, (a, b, low, high) in [*told[:-1:every], *told[-1:]]:
        if not dense and low - high > 2:
            drawn.append(tag("line", x1=a, x2=a, y1=low, y2=high, class_="error"))
        seen = None if dense else marker(_shape(series), a, b)
        radius = 9.0 if not dense else 5.0
        hit = tag("circle", cx=a, cy=b, r=radius, class_="hit")
        drawn.append(tag("g", tag("title", dot.told), hit, seen, class_="point"))
    return tag("g", *drawn, class_=f"series {_style(series)}", data_series=series.name)


def _reach(dot: Dot, y: Axis) -> tuple[float, float]:
    """Return the pixels of the spread's ends, inside the axis."""
    low, high = max(dot.low, y.low), min(dot.high, y.high)
    return (y(low), y(high)) if low <= high else (y(dot.y), y(dot.y))


def _shape(series: Series) -> int:
    """Return the marker of a series: another one than that of the series before it with the same colour."""
    return (series.number + series.number // STYLES) % STYLES


def _style(series: Series) -> str:
    return Line(series.name, series.number, ()).style


def _bars(drawing: Drawing, panel: Panel, x: Axis, y: Axis, box: Box) -> list[Node]:
    """Return groups of bars, in the order of the legend; a number stands above a bar that is broad enough."""
    step = (box.right - box.left) / max(len(drawing.across.places), 1)
    broad = 0.8 * step / max(len(panel.series), 1)
    order = {place: i for i, (place, _) in enumerate(drawing.across.places)}
    foot = y(max(y.low, 0.0)) if not y.log else box.bottom
    drawn: list[Node] = []
    for rank, series in enumerate(panel.series):
        parts: list[Node] = []
        for dot in series.dots:
            middle = x(order[dot.x]) + (rank - (len(panel.series) - 1) / 2) * broad
            top = y(dot.y)
            size = {"x": middle - 0.44 * broad, "width": 0.88 * broad, "y": min(top, foot), "height": abs(foot - top)}
            low, high = _reach(dot, y)
            error = tag("line", x1=middle, x2=middle, y1=low, y2=high, class_="error") if low - high > 2 else None
            words = number_words(100 * dot.y, 1) if drawing.share else number_words(dot.y)
            fits = broad >= LABELLED and text_width(words, 10) <= broad + 4
            above = min(top, high) - 4
            label = tag("text", words, x=middle, y=above, text_anchor="middle", class_="tiny") if fits else None
            bar = tag("rect", **size, class_="marker")
            parts.append(tag("g", tag("title", dot.told), bar, error, label, class_="point"))
        drawn.append(tag("g", *parts, class_=f"series {_style(series)}", data_series=series.name))
    return drawn


def _legend(plan: _Plan, form: str, *, dense: bool) -> Html:
    drawn: list[Node] = []
    width = plan.box.right + 8
    for row, several in enumerate(plan.legend):
        left, middle = 0.0, 30.0 + row * ENTRY
        for series in several:
            name = _entry_name(series.name, width)
            if form == "bars":
                swatch = tag("rect", x=left + 8, y=middle - 6, width=12, height=12, class_="marker")
            else:
                stroke = tag("path", d=f"M{left:.1f},{middle:.1f}L{left + 26:.1f},{middle:.1f}", class_="line")
                swatch = stroke if dense else join([stroke, marker(_shape(series), left + 13, middle)])
            words = tag("text", name, x=left + 32, y=middle, dy="0.34em", class_="label")
            drawn.append(tag("g", swatch, words, class_=f"series {_style(series)}"))
            left += text_width(name) + 44
    return tag("g", *drawn, class_="legend")


def _ends(panel: Panel, x: Axis, y: Axis, box: Box) -> list[Node]:
    """Return the names of lines: right of the plot, or beside a point that is alone and far from there."""
    series = [each for each in panel.series if each.dots]
    last = {each.number: (x(each.dots[-1].x), y(each.dots[-1].y)) for each in series}
    near = [each for each in series if box.right - last[each.number][0] <= FAR or len(each.dots) > 2]
    far = [each for each in series if each not in near]
    wished = [last[each.number][1] for each in near]
    start = box.right + 8
    drawn: list[Node] = []
    for each, place in zip(near, spread(wished, box.top, box.bottom, gap=15.0), strict=True):
        a, b = last[each.number]
        drawn.append(tag("line", x1=a + 5, y1=b, x2=start - 2, y2=place, class_="leader"))
        drawn.append(_name(each, start, place))
    marks = [Mark(*last[each.number], each.name) for each in far]
    for each, label in zip(far, place_labels(marks, (box.left, box.top, box.right, box.bottom)), strict=True):
        drawn.append(_name(each, label.x, label.y) if label else None)
    return drawn


def _name(series: Series, x: float, y: float) -> Html:
    return tag("text", series.name, x=x, y=y, dy="0.34em", class_=f"label t{series.number % STYLES}")
