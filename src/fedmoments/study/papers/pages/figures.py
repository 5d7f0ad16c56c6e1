"""Figures in the paper's form: for the page in two widths, and as SVG files of their own."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fedmoments.pages.chart import Chart, Point, Scale, Series, share_scale
from fedmoments.pages.figure import WIDE, facets, figure, figure_file
from fedmoments.pages.markup import Html, join, tag
from fedmoments.pages.plain import items, mapping
from fedmoments.study.papers.pages.series import Drawing, Panel, read_drawing
from fedmoments.study.papers.pages.words import number_words

__all__ = ["drawings", "figure_files", "figure_html", "panel_chart"]

#: A line of more points is drawn without markers.
MOST_MARKERS = 14
#: Distance between series at one word, where words are 1 apart: spreads at one place would hide one another.
DODGE = 0.05
#: Share of the distance between words that a group of bars fills, and share of its place that a bar fills.
GROUP, BAR = 0.8, 0.9
#: Values that are further apart than this factor have a logarithmic scale, where they are no shares.
FACTOR = 300.0
#: Values across that are ticks themselves, and the digits that they have at most; of more, round numbers are.
MOST_TICKS, MOST_DIGITS = 10, 3


def drawings(document: Mapping[str, Any]) -> list[Drawing]:
    """Return the figures of a document of which anything was measured."""
    figures = items(mapping(document.get("experiment")).get("figures"))
    measurements = [mapping(table) for table in items(document.get("measurements"))]
    readable = [read_drawing(mapping(table), measurements) for table in figures]
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
        named=len(panel.series) > 1,
        heading=panel.title,
    )


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
    ends += [0.0] if drawing.form == "bars" else []
    if drawing.share:  # noise may reach beyond what a share can be
        return share_scale(drawing.y_title, values=tuple(min(max(end, 0.0), 1.0) for end in ends))
    return _of_quantity(drawing.y_title, [point.y for point in points], ends)


def _of_quantity(title: str, means: list[float], ends: list[float]) -> Scale:
    """Return the scale of a quantity that is no share, logarithmic where it ranges far."""
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
