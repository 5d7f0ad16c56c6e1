"""Series of a chart as SVG: bands, lines, bars, symbols with their intervals, and what they cover."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

from fedmoments.pages.chart import Point, Series, Symbol
from fedmoments.pages.labels import Label, Segment, text_width
from fedmoments.pages.markup import Html, Node, join, tag
from fedmoments.pages.scales import Axis

__all__ = ["covered", "draw_series", "line_path", "place_of", "swatch", "visible"]

Axes = tuple[Axis, Axis]
Place = tuple[float, float]
#: A line of more points is dense: it has a band, and some of its points have a marker.
MOST_MARKERS = 14
#: On dense lines: pixels between points that tell what they are, and between those that have a marker.
TELL, SHOW = 18.0, 64.0
#: Pixels between corners of a line, of a band, and of the pieces of lines that labels keep away from.
LINE, BAND, PIECE = 1.5, 6.0, 10.0
#: What makes a point reachable by the keyboard.
FOCUSED = {"tabindex": "0", "role": "img"}
#: Corners of shapes about their middle, in units of their size.
SHAPES = {
    "square": ((-1.0, -1.0), (1.0, -1.0), (1.0, 1.0), (-1.0, 1.0)),
    "diamond": ((0.0, -1.4), (1.4, 0.0), (0.0, 1.4), (-1.4, 0.0)),
    "up": ((0.0, -1.3), (1.3, 1.05), (-1.3, 1.05)),
    "down": ((0.0, 1.3), (1.3, -1.05), (-1.3, -1.05)),
}


def place_of(point: Point, axes: Axes) -> Place:
    """Return where a point lies, in pixels."""
    return axes[0](point.x), axes[1](point.y)


def visible(point: Point, axes: Axes) -> bool:
    """Return whether a point is not below the plot: lines may come from there."""
    return axes[1](point.y) <= axes[1].start


def draw_series(series: Series, axes: Axes, labels: Mapping[int, Label]) -> Html:
    """Return a series.

    Parameters
    ----------
    series
        What to draw.
    axes
        Horizontal and vertical.
    labels
        Where labels of points stand, by the identity of the point.
    """
    drawn: list[Node] = []
    if _has_band(series):
        drawn.append(tag("polygon", points=_band(series.points, axes), class_="band"))
    if series.line and series.points and not series.has_bars:
        drawn.append(tag("path", d=_line(series.points, axes), class_="line"))
    drawn += (
        [_bar(series, point, axes) for point in series.points] if series.has_bars else _points(series, axes, labels)
    )
    if series.style is None:
        return join(drawn)
    return tag("g", *drawn, class_=f"series {series.style.classes}", data_head=series.name or None)


def _points(series: Series, axes: Axes, labels: Mapping[int, Label]) -> list[Node]:
    pointed_at, shown = _chosen(series.points, axes, dense=_is_dense(series))
    marked = {id(point) for point in shown} if series.markers else set()
    tips = [point for point in pointed_at if point.tip]
    dust = _dust([point for point in pointed_at if not point.tip], axes)
    return [dust, *(_point(series, point, axes, labels.get(id(point)), shown=id(point) in marked) for point in tips)]


def swatch(series: Series, left: float, middle: float) -> Html:
    """Return a sample of a series for the legend, 26 pixels wide."""
    if series.has_bars:
        return tag("rect", x=left + 8, y=middle - 6, width=12, height=12, class_="marker")
    stroke = tag("path", d=f"M{left:.1f},{middle:.1f}L{left + 26:.1f},{middle:.1f}", class_="line")
    symbol = series.style.symbol if series.style and series.markers else None
    return join([stroke if series.line else None, _symbol(symbol, (left + 13, middle)) if symbol else None])


def covered(series: Series, axes: Axes) -> list[Segment]:
    """Return what a series covers: pieces of its line so short that their boxes hug them, bars of its spread, dots."""
    segments = _pieces(series, axes) if series.line else _boxes(series, axes)
    return segments if _has_band(series) else segments + _intervals(series, axes)


def _pieces(series: Series, axes: Axes) -> list[Segment]:
    segments: list[Segment] = []
    for (x1, y1), (x2, y2) in pairwise(_apart([place_of(point, axes) for point in series.points], PIECE)):
        pieces = max(int(max(abs(x2 - x1), abs(y2 - y1)) / PIECE), 1)
        steps = [(x1 + (x2 - x1) * i / pieces, y1 + (y2 - y1) * i / pieces) for i in range(pieces + 1)]
        segments += [(*a, *b) for a, b in pairwise(steps) if min(a[1], b[1]) <= axes[1].start]
    return segments


def _boxes(series: Series, axes: Axes) -> list[Segment]:
    places = [place_of(point, axes) for point in series.points if not point.label]
    return [(a - 4, b - 4, a + 4, b + 4) for a, b in places]


def _intervals(series: Series, axes: Axes) -> list[Segment]:
    ends = [(axes[0](point.x), *_ends(point, axes[1])) for point in series.points]
    return [(a, high, a, low) for a, low, high in ends if low > high]


# ---------------------------------------------------------------------------------------------- lines and bands


def _is_dense(series: Series) -> bool:
    return series.line and len(series.points) > MOST_MARKERS


def _has_band(series: Series) -> bool:
    wished = series.spread == "band" or (series.spread == "auto" and _is_dense(series))
    return wished and any((point.high or 0.0) - (point.low or 0.0) > 1e-9 for point in series.points)


def _ends(point: Point, y: Axis) -> Place:
    """Return the pixels of the lower and the upper end of a point's interval, inside the axis."""
    low, high = (point.y if end is None else end for end in (point.low, point.high))
    low, high = max(low, y.low), min(high, y.high)
    return (y(low), y(high)) if low <= high else (min(y(point.y), y.start),) * 2


def _band(points: Sequence[Point], axes: Axes) -> str:
    ends = {axes[0](point.x): _ends(point, axes[1]) for point in points}
    kept = [a for a, _ in _apart([(a, 0.0) for a in ends], BAND)]
    corners = [(a, ends[a][1]) for a in kept] + [(a, ends[a][0]) for a in reversed(kept)]
    return " ".join(f"{a:.1f},{b:.1f}" for a, b in corners)


def _line(points: Sequence[Point], axes: Axes) -> str:
    """Return the path of a line: runs of points that are joined."""
    runs: list[list[Place]] = []
    for point in points:
        if not runs or not point.joined:
            runs.append([])
        runs[-1].append(place_of(point, axes))
    return "".join(line_path(_apart(run, LINE), axes[1].start) for run in runs)


def line_path(places: Sequence[Place], floor: float) -> str:
    """Return the commands of a path through places (pixels, y downwards), without what lies below the floor.

    Examples
    --------
    >>> line_path([(0.0, 30.0), (10.0, 10.0), (20.0, 5.0)], floor=20.0)
    'M5.0,20.0L10.0,10.0L20.0,5.0'
    """
    first = places[0]
    pieces = [f"M{first[0]:.1f},{first[1]:.1f}"] if first[1] <= floor else []
    for (x1, y1), (x2, y2) in pairwise(places):
        if y1 > floor and y2 > floor:
            continue
        cut = x1 + (floor - y1) / (y2 - y1) * (x2 - x1) if max(y1, y2) > floor else x2
        if y1 > floor:
            pieces.append(f"M{cut:.1f},{floor:.1f}")
        pieces.append(f"L{cut:.1f},{floor:.1f}" if y2 > floor else f"L{x2:.1f},{y2:.1f}")
    return "".join(pieces)


def _apart(places: Sequence[Place], gap: float) -> list[Place]:
    """Return the first place, the last, and those between them that lie a gap to the right of the one before."""
    kept = list(places[:1])
    for place in places[1:-1]:
        if place[0] - kept[-1][0] >= gap:
            kept.append(place)
    return kept + list(places[1:][-1:])


def _chosen(points: Sequence[Point], axes: Axes, *, dense: bool) -> tuple[list[Point], list[Point]]:
    """Return the points that tell what they are, and those that have a marker: on a dense line, some of them."""
    seen = [point for point in points if visible(point, axes)]
    if not dense:
        return seen, seen
    shown = _spaced(seen, axes, SHOW)
    pointed_at = {id(point) for point in (*_spaced(seen, axes, TELL), *shown)}
    return [point for point in seen if id(point) in pointed_at], shown


def _spaced(points: Sequence[Point], axes: Axes, gap: float) -> list[Point]:
    """Return points that are far enough from the one before, and the first and the last of all."""
    kept = list(points[:1])
    for point in points[1:-1]:
        if _distance(point, kept[-1], axes) >= gap:
            kept.append(point)
    if len(kept) > 1 and _distance(points[-1], kept[-1], axes) < gap:
        kept.pop()  # the last of all has its place instead
    return kept + list(points[1:][-1:])


def _distance(one: Point, other: Point, axes: Axes) -> float:
    (a, b), (c, d) = place_of(one, axes), place_of(other, axes)
    return abs(a - c) + abs(b - d)


# ---------------------------------------------------------------------------------------------- points


def _point(series: Series, point: Point, axes: Axes, label: Label | None, *, shown: bool) -> Html:
    place = place_of(point, axes)
    symbol = point.symbol or (series.style.symbol if series.style else Symbol(size=5.0, dot=True))
    barred = series.spread != "none" and not _has_band(series)
    radius = max(6.0 if _is_dense(series) else 9.0, symbol.size + 4)
    return tag(
        "g",
        tag("title", point.tip),
        tag("circle", cx=place[0], cy=place[1], r=radius, class_="hit"),
        _error(point, axes, caps=not series.line) if barred else None,
        _symbol(symbol, place) if shown else None,
        *(_label(point, place, label) if label and point.label else ()),
        class_=f"point {point.kind}".rstrip(),
        data_head=point.head,
        **FOCUSED if point.focus else {},
    )


def _error(point: Point, axes: Axes, *, caps: bool) -> Html | None:
    low, high = _ends(point, axes[1])
    if low - high <= 2:
        return None
    a = axes[0](point.x)
    if not caps:
        return tag("line", x1=a, x2=a, y1=low, y2=high, class_="error")
    return tag("path", d=f"M{a - 4:.1f},{low:.1f}h8m-4,0V{high:.1f}m-4,0h8", class_="error")


def _symbol(symbol: Symbol, place: Place) -> Html:
    kind = "dot" if symbol.dot else "marker"
    if symbol.shape == "circle":
        return tag("circle", cx=place[0], cy=place[1], r=symbol.size, class_=kind)
    corners = SHAPES[symbol.shape]
    places = " ".join(f"{place[0] + symbol.size * a:.1f},{place[1] + symbol.size * b:.1f}" for a, b in corners)
    return tag("polygon", points=places, class_=kind)


def _label(point: Point, place: Place, label: Label) -> list[Node]:
    words = tag(
        "text",
        point.label,
        x=label.anchor,
        y=label.y,
        dy="0.34em",
        text_anchor=None if label.right else "end",
        class_="label quiet" if "quiet" in point.kind else "label",
    )
    return [label.leader(place), words]


def _dust(points: Sequence[Point], axes: Axes) -> Html | None:
    """Return the many points that tell nothing, as one path."""
    path = "".join(f"M{axes[0](point.x):.1f},{axes[1](point.y):.1f}h0" for point in points)
    return tag("path", d=path, class_="dust") if path else None


def _bar(series: Series, point: Point, axes: Axes) -> Html:
    x, y = axes
    left, right = (x(end) for end in point.span or (point.x, point.x))
    foot = y.start if y.log else y(max(y.low, 0.0))
    top = y(point.y)
    width = max(right - left - 1, 0.7)
    place = {"x": left + 0.5, "width": width, "y": min(top, foot), "height": abs(foot - top)}
    above = min(top, _ends(point, y)[1]) - 4
    fits = point.label and text_width(point.label, 10) <= width + 4
    words = {"x": (left + right) / 2, "y": above, "text_anchor": "middle", "class_": "tiny"}
    return tag(
        "g",
        tag("title", point.tip),
        tag("rect", x=left, y=y.end, width=right - left, height=y.start - y.end, class_="hit"),
        tag("rect", **place, class_="marker" if series.style else "margin"),
        _error(point, axes, caps=False),
        tag("text", point.label, **words) if fits else None,
        class_=f"point {point.kind}".rstrip(),
    )
