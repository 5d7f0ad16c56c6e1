"""Names in a chart: labels of points where they disturb least, and names of lines beside their ends."""

from collections.abc import Mapping, Sequence

from fedmoments.pages.chart import Point, Series
from fedmoments.pages.labels import Bounds, Label, Mark, Segment, place_labels, spread
from fedmoments.pages.marks import place_of, visible
from fedmoments.pages.markup import Node, tag
from fedmoments.pages.scales import Axis

__all__ = ["label_points", "name_ends"]

Axes = tuple[Axis, Axis]
#: Pixels from the right within which a line that ends is named in the margin; others are named where they end.
NEAR = 60.0
#: Pixels between names in the margin.
GAP = 15.0


def label_points(
    series: Sequence[Series], named: Sequence[Series], axes: Axes, bounds: Bounds, obstacles: Sequence[Segment]
) -> Mapping[int, Label]:
    """Return where labels of points stand, and names of lines that end far from the margin; by identity of the point.

    Parameters
    ----------
    series
        All of the chart.
    named
        Those that have a name beside their end.
    axes, bounds
        Of the plot.
    obstacles
        What labels should not cover.
    """
    shown = [candidate for candidate in _wanted(series, named, axes, bounds) if visible(candidate[0], axes)]
    marks = [Mark(*place_of(point, axes), words, point.weight) for point, words in shown]
    left, top, right, bottom = bounds
    labels = place_labels(marks, (left, top, right, bottom - 2), obstacles)
    return {id(point): label for (point, _), label in zip(shown, labels, strict=True) if label}


def _wanted(series: Sequence[Series], named: Sequence[Series], axes: Axes, bounds: Bounds) -> list[tuple[Point, str]]:
    points = [point for line in series if not line.has_bars for point in line.points]
    ends = [(line.points[-1], line.name) for line in named if not _near(line, axes, bounds)]
    return [(point, point.label) for point in points if point.label] + ends


def _near(series: Series, axes: Axes, bounds: Bounds) -> bool:
    return bounds[2] - axes[0](series.points[-1].x) <= NEAR


def name_ends(named: Sequence[Series], labels: Mapping[int, Label], axes: Axes, bounds: Bounds) -> list[Node]:
    """Return the names of lines: where their end has a label, or else in the right margin."""
    drawn: list[Node] = []
    margin: list[tuple[Series, Point]] = []
    for series in named:
        last = series.points[-1]
        label = labels.get(id(last))
        if label and not _near(series, axes, bounds):
            drawn += [label.leader(place_of(last, axes)), _name(series, label.anchor, label.y, right=label.right)]
        else:
            margin.append((series, last))
    _, top, right, bottom = bounds
    wished = [min(axes[1](last.y), bottom) for _, last in margin]
    for (series, last), wish, y in zip(margin, wished, spread(wished, top, bottom, gap=GAP), strict=True):
        drawn.append(tag("line", x1=axes[0](last.x) + 5, y1=wish, x2=right + 6, y2=y, class_="leader"))
        drawn.append(_name(series, right + 8, y))
    return drawn


def _name(series: Series, x: float, y: float, *, right: bool = True) -> Node:
    classes = series.style.label if series.style else "label"
    return tag("text", series.name, x=x, y=y, dy="0.34em", text_anchor=None if right else "end", class_=classes)
