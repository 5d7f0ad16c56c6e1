"""Figures in the paper's form: for the page in two widths, and as SVG files of their own.

What a figure draws: panels of series of points, taken from measurements; and where points lie across.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fedmoments.core.observations import ACCURACY, Observation, is_share, matching, sorted_values
from fedmoments.core.observations.interval import ERRORS, standard_error
from fedmoments.pages.chart import Band, Chart, Point, Scale, Series, Style, Tick, share_scale
from fedmoments.pages.figure import WIDE, facets, figure, figure_file
from fedmoments.pages.formats import count
from fedmoments.pages.markup import Html, join, tag
from fedmoments.pages.plain import items, mapping
from fedmoments.study.papers.pages.words import key_words, number_words, place_words, value_words, varying_keys

__all__ = ["Drawing", "Panel", "drawings", "figure_files", "figure_html", "panel_chart", "read_drawing"]


@dataclass(frozen=True)
class Panel:
    """One chart of a figure."""

    title: str
    series: tuple[Series, ...]


@dataclass(frozen=True)
class Drawing:
    """A figure, ready to be drawn.

    Parameters
    ----------
    title
        Under it.
    form
        ``lines`` or ``bars``.
    across
        The horizontal scale, whose ticks are all places with their words.
    y_title
        Over the vertical axis.
    share
        Whether values are shares, shown in percent.
    panels
        At least one.
    noise
        Half the width of the band in which accuracies are not told apart, and in words what makes it; None where the
        number of test samples is not known, and where values are not accuracies.
    """

    title: str
    form: str
    across: Scale
    y_title: str
    share: bool
    panels: tuple[Panel, ...]
    noise: tuple[float, str] | None = None

    @property
    def places(self) -> tuple[Tick, ...]:
        """Where points lie across, with their words."""
        return self.across.ticks or ()


def read_drawing(
    figure: Mapping[str, Any], measurements: Sequence[Mapping[str, Any]], tested: int | None = None
) -> Drawing | None:
    """Return what a figure draws, or None when nothing of it was measured.

    Parameters
    ----------
    figure
        A :class:`~fedmoments.study.papers.experiment.Figure`, as documents have it.
    measurements
        Of the document. Where several stand at one place, the first is drawn.
    tested
        Test samples behind an accuracy, where that is known.

    Examples
    --------
    >>> where = {"head": "fedcof", "clients": 10}
    >>> rows = [{"where": where, "quantity": "accuracy", "values": [0.8], "seeds": [0], "reason": None}]
    >>> drawing = read_drawing({"title": "Clients", "x": "clients", "series": ["head"], "scale": "log"}, rows)
    >>> drawing.panels[0].series[0].name, drawing.places
    ('FedCOF', ((10.0, '10'),))
    """
    x, quantity, observations = _measured(figure, measurements)
    if not observations:
        return None
    across = _across(figure, x, observations)
    share = is_share({"quantity": quantity})
    y_title = _y_title(str(figure.get("y_title") or (quantity if not share else "accuracy")), share=share)
    title, form = str(figure.get("title") or ""), str(figure.get("form") or "lines")
    noise = _noise(observations, tested) if quantity == ACCURACY and tested else None
    panels = _panels(figure, observations, _Reader(x, quantity, across))
    return Drawing(title, form, across, y_title, share, panels, noise)


def _y_title(title: str, *, share: bool) -> str:
    return f"{title}, %" if share and "%" not in title and "per cent" not in title else title


def _noise(observations: Sequence[Observation], tested: int) -> tuple[float, str]:
    """Return half the width of the noise of accuracies, that of the noisiest one, and its words."""
    errors = [
        standard_error(observation.mean or 0.0, tested, observation.spread or 0.0, len(observation.known))
        for observation in observations
    ]
    seeds = max(len(observation.known) for observation in observations)
    half = ERRORS * max(errors)
    words = f"noise of {count(tested, 'test sample')}, {count(seeds, 'seed')}: ±{100 * half:.2g} points"
    return half, words


def _measured(
    figure: Mapping[str, Any], measurements: Sequence[Mapping[str, Any]]
) -> tuple[str, str, list[Observation]]:
    """Return the key across, the quantity, and what was measured of it."""
    quantity, x = str(figure.get("quantity") or ACCURACY), str(figure.get("x"))
    observations = [Observation.from_dict(table) for table in measurements]
    matches = matching(observations, {**mapping(figure.get("where")), "quantity": quantity})
    return x, quantity, [table for table in matches if x in table.where and table.mean is not None]


def _panels(figure: Mapping[str, Any], observations: Sequence[Observation], reader: "_Reader") -> tuple[Panel, ...]:
    keys, split = [str(key) for key in items(figure.get("series"))], str(figure.get("panel") or "")
    kinds = list(dict.fromkeys(_kind(observation, keys) for observation in observations))
    names = dict(zip(kinds, _names(keys, kinds), strict=True))
    values = sorted_values(observations, split) if split else [None]

    def panel(value: Any) -> Panel:
        here = [one for one in observations if one.where.get(split) == value]
        series = (
            Series(name, reader.points(_matching(here, keys, kind), name), Style.numbered(number))
            for number, (kind, name) in enumerate(names.items())
        )
        title = value_words(split, value) if len(values) > 1 else ""
        return Panel(title, tuple(line for line in series if line.points))

    return tuple(map(panel, values))


def _matching(observations: Sequence[Observation], keys: Sequence[str], kind: tuple[Any, ...]) -> list[Observation]:
    return [observation for observation in observations if _kind(observation, keys) == kind]


def _kind(observation: Observation, keys: Sequence[str]) -> tuple[Any, ...]:
    """Return the series that an observation belongs to."""
    return tuple(observation.where.get(key) for key in keys)


def _names(keys: Sequence[str], kinds: Sequence[tuple[Any, ...]]) -> list[str]:
    """Return the names of series: keys that tell them apart, or all keys when there is one series."""
    places = [dict(zip(keys, kind, strict=True)) for kind in kinds]
    chosen = varying_keys(places) if len(places) > 1 else None
    return [place_words(place, chosen) or "ours" for place in places]


def _across(figure: Mapping[str, Any], x: str, observations: Sequence[Observation]) -> Scale:
    values = sorted_values(observations, x)
    numbers = [_number(value) for value in values]
    title, kind = str(figure.get("x_title") or key_words(x)), figure.get("scale")
    if kind == "words" or None in numbers:
        return Scale(title, "words", ticks=tuple((float(i), _word(x, value)) for i, value in enumerate(values)))
    ticks = tuple(sorted((number, number_words(number)) for number in numbers if number is not None))
    if kind == "log" and ticks[-1][0] > 0:
        return Scale(f"{title} (logarithmic)", "log", number_words, ticks=_positive(ticks))
    return Scale(title, words=number_words, ticks=ticks)


def _positive(ticks: Sequence[Tick]) -> tuple[Tick, ...]:
    """Return places on a logarithmic scale: what is not positive has none, and stands left of the least one."""
    least = min(number for number, _ in ticks if number > 0)
    return tuple((number if number > 0 else least / 3, label) for number, label in ticks)


def _word(key: str, value: Any) -> str:
    text = value_words(key, value)
    return text.removeprefix(f"{key_words(key)} ") if not isinstance(value, bool) else text


def _number(value: Any) -> float | None:
    """Return a number, also one at the end of a word such as ``dirichlet:0.1``."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float(value) if math.isfinite(value) else None
    match = re.fullmatch(r"(?:[A-Za-z-]+:)?([0-9.]+(?:e-?[0-9]+)?)", str(value))
    return float(match.group(1)) if match and match.group(1).count(".") < 2 else None


@dataclass(frozen=True)
class _Reader:
    """Makes points of observations: the key across, the quantity, and the horizontal scale."""

    x: str
    quantity: str
    across: Scale

    def points(self, mine: Sequence[Observation], name: str) -> tuple[Point, ...]:
        """Return the points of a series from left to right, one at each place."""
        places = {self._place(observation): observation for observation in reversed(mine)}
        return tuple(self._point(place, places[place], name) for place in sorted(places))

    def _point(self, place: float, observation: Observation, name: str) -> Point:
        mean, spread = observation.mean or 0.0, observation.spread or 0.0
        share = is_share({"quantity": self.quantity})
        times, unit, decimals = (100.0, " %", 1) if share else (1.0, f" {self.quantity}", None)
        tip = f"{name}, {self.across.title.removesuffix(' (logarithmic)')} {dict(self.across.ticks or ())[place]}: "
        tip += number_words(times * mean, decimals)
        tip += f" ± {number_words(times * spread, decimals)}" if observation.spread is not None else ""
        return Point(place, mean, mean - spread, mean + spread, tip + unit)

    def _place(self, observation: Observation) -> float:
        value, ticks = observation.where[self.x], self.across.ticks or ()
        if self.across.kind == "words":
            label = _word(self.x, value)
            return next(place for place, tick in ticks if tick == label)
        number = _number(value) or 0.0
        return number if self.across.kind != "log" or number > 0 else ticks[0][0]


#: A line of more points is drawn without markers.
MOST_MARKERS = 14
#: Distance between series at one word, where words are 1 apart: spreads at one place would hide one another.
DODGE = 0.05
#: Share of the distance between words that a group of bars fills, and share of its place that a bar fills.
GROUP, BAR = 0.8, 0.9
#: Values that are further apart than this factor have a logarithmic scale, where they are not shares.
FACTOR = 300.0
#: Values across that are ticks themselves, and the digits that they have at most; of more, round numbers are.
MOST_TICKS, MOST_DIGITS = 10, 3


def drawings(document: Mapping[str, Any]) -> list[Drawing]:
    """Return the figures of a document of which anything was measured."""
    figures = items(mapping(document.get("experiment")).get("figures"))
    measurements = [mapping(table) for table in items(document.get("measurements"))]
    tested = mapping(document.get("data")).get("test")
    known = tested if isinstance(tested, int) and tested > 0 else None
    readable = [read_drawing(mapping(table), measurements, known) for table in figures]
    return [table for table in readable if table is not None]


def figure_html(drawing: Drawing, number: int) -> Html:
    """Return a figure for the page.

    Parameters
    ----------
    drawing
        What to draw.
    number
        Its number on the page, from 1.
    """
    several = len(drawing.panels) > 1
    shown = [
        join([tag("h3", panel.title) if panel.title else None, figure(panel_chart(drawing, panel), beside=several)])
        for panel in drawing.panels
    ]
    caption = tag("figcaption", tag("b", f"Figure {number}. "), drawing.title)
    return tag("figure", facets(shown), caption, class_="reproduced")


def figure_files(document: Mapping[str, Any]) -> list[str]:
    """Return the figures of a document as SVG files that need nothing else.

    Examples
    --------
    >>> row = {"where": {"head": "fedcof", "clients": 10}, "quantity": "accuracy", "values": [0.8], "seeds": [0],
    ...        "reason": None}
    >>> figure = {"title": "Accuracy", "x": "clients", "series": ["head"]}
    >>> files = figure_files({"experiment": {"figures": [figure]}, "measurements": [row]})
    >>> len(files), files[0][:4]
    (1, '<svg')
    """
    return [
        figure_file(
            [panel_chart(drawing, panel) for panel in drawing.panels], spoken=drawing.title, width=WIDE, columns=2
        )
        for drawing in drawings(document)
    ]


def panel_chart(drawing: Drawing, panel: Panel) -> Chart:
    """Return one panel of a figure as a chart; all panels share their scales."""
    bars = drawing.form == "bars"
    series = [_bars(drawing, panel, rank) if bars else _line(drawing, panel, rank) for rank in range(len(panel.series))]
    return Chart(
        ", ".join(title for title in (drawing.title, panel.title) if title),
        _horizontal(drawing),
        _vertical(drawing),
        tuple(series),
        bands=() if bars else _bands(drawing, panel),
        named=len(panel.series) > 1,
        heading=panel.title,
    )


def _bands(drawing: Drawing, panel: Panel) -> tuple[Band, ...]:
    """Return a band of noise about every group of a panel's values that noise alone could set apart.

    Groups are further apart than a band is high, so bands never touch.
    """
    if drawing.noise is None:
        return ()
    half, words = drawing.noise
    groups = _groups((point.y for series in panel.series for point in series.points), 2 * half)
    middles = (0.5 * (group[0] + group[-1]) for group in groups if len(group) > 1 and group[-1] - group[0] <= 2 * half)
    bands = [Band(max(middle - half, 0.0), min(middle + half, 1.0)) for middle in middles]
    return (replace(bands[0], words=words), *bands[1:]) if bands else ()


def _groups(values: Iterable[float], gap: float) -> list[list[float]]:
    """Return values in ascending groups that are further apart than a gap."""
    groups: list[list[float]] = []
    for value in sorted(values):
        if groups and value - groups[-1][-1] <= gap:
            groups[-1].append(value)
        else:
            groups.append([value])
    return groups


def _horizontal(drawing: Drawing) -> Scale:
    """Return the scale across; its ticks are the places themselves where those are few and short."""
    labels = [label for _, label in drawing.places]
    if drawing.form == "bars":
        return Scale(drawing.across.title, "words", ticks=tuple((float(i), label) for i, label in enumerate(labels)))
    if drawing.across.kind == "words":
        return drawing.across
    values = tuple(place for place, _ in drawing.places)
    short = all(sum(letter.isdigit() for letter in label.strip("0.")) <= MOST_DIGITS for label in labels)
    ticks = drawing.places if short and len(labels) <= MOST_TICKS else None
    return replace(drawing.across, values=values, bounds=(min(values), max(values)), ticks=ticks)


def _vertical(drawing: Drawing) -> Scale:
    points = [point for panel in drawing.panels for series in panel.series for point in series.points]
    ends = [end for point in points for end in point.ends]
    ends += [0.0] if drawing.form == "bars" else _ends_of_bands(drawing)
    if drawing.share:  # noise may reach beyond what a share can be
        return share_scale(drawing.y_title, values=tuple(min(max(end, 0.0), 1.0) for end in ends))
    return _of_quantity(drawing.y_title, [point.y for point in points], ends)


def _ends_of_bands(drawing: Drawing) -> list[float]:
    return [end for panel in drawing.panels for band in _bands(drawing, panel) for end in (band.low, band.high)]


def _of_quantity(title: str, means: list[float], ends: list[float]) -> Scale:
    """Return the scale of a quantity that is not a share, logarithmic where it ranges far."""
    least, most = min(means), max(means)
    if least >= 0:  # what is never negative has no spread below zero
        ends = [max(end, 0.0) for end in ends]
    if least > 0 and most / least > FACTOR:
        return Scale(title, "log", number_words, tuple(end for end in ends if end > least / 10))
    return Scale(title, words=number_words, values=tuple(ends))


def _line(drawing: Drawing, panel: Panel, rank: int) -> Series:
    series = panel.series[rank]
    aside = DODGE * (rank - (len(panel.series) - 1) / 2) if drawing.across.kind == "words" else 0.0
    points = tuple(replace(point, x=point.x + aside) for point in series.points)
    dense = max(len(series_of_panel.points) for series_of_panel in panel.series) > MOST_MARKERS
    return replace(series, points=points, markers=not dense)


def _bars(drawing: Drawing, panel: Panel, rank: int) -> Series:
    """Return bars side by side with those of other series; a number stands above a bar that is broad enough."""
    order = {place: number for number, (place, _) in enumerate(drawing.places)}
    broad = GROUP / len(panel.series)
    times, decimals = (100.0, 1) if drawing.share else (1.0, None)

    def bar(point: Point) -> Point:
        middle = order[point.x] + (rank - (len(panel.series) - 1) / 2) * broad
        span = middle - BAR * broad / 2, middle + BAR * broad / 2
        return replace(point, x=middle, span=span, label=number_words(times * point.y, decimals))

    series = panel.series[rank]
    return replace(series, points=tuple(map(bar, series.points)))
