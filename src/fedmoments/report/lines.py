"""A line chart of several heads: one line a head, named at its end, told apart by colour, dash and marker.

Seven colours, each with a dash and a marker of its own; the next seven lines have the same colours with other dashes
and hollow markers, and so on. Baselines are grey with hollow squares, and differ in their dashes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from fedmoments.report.axes import Axis, Box, frame, linear_axis, svg
from fedmoments.report.formats import THIN
from fedmoments.report.labels import spread, text_width
from fedmoments.report.markup import Html, Node, tag

__all__ = ["Line", "Place", "Point", "line_chart", "marker", "path_above"]

#: Colours and dashes in the style sheet, markers here: a line has one of each.
STYLES = 7
#: Dashes in the style sheet besides those of the colours.
DASHES = 3
#: Lines that can still be told apart in one chart; more get no label.
MOST_LABELS = 16
#: A place in pixels.
Place = tuple[float, float]


@dataclass(frozen=True)
class Point:
    """A place on a line, the interval about it, and what is told of it."""

    x: float
    y: float
    low: float
    high: float
    told: str
    joined: bool = True  # with the point before it


@dataclass(frozen=True)
class Line:
    """A head's points, in order, and its number among all heads (or all baselines): the same style in all charts."""

    name: str
    number: int
    points: tuple[Point, ...]
    baseline: bool = False

    @property
    def style(self) -> str:
        """Return the classes of its look, which are no other line's.

        Examples
        --------
        >>> Line("fedcof", 1, ()).style, Line("ridge", 8, ()).style, Line("fedpft", 0, (), baseline=True).style
        ('s1', 's1 d1', 's0 baseline')
        """
        if self.baseline:
            number = self.number % (STYLES + DASHES)
            return f"s{number} baseline" if number < STYLES else f"s0 d{number - STYLES + 1} baseline"
        again = self.number // STYLES % (DASHES + 1)
        return f"s{self.number % STYLES} d{again}" if again else f"s{self.number % STYLES}"


def line_chart(
    lines: Sequence[Line],
    make_x: Callable[[float, float], Axis],
    x_title: str,
    title: str,
    *,
    size: tuple[float, float],
    y_values: Sequence[float] = (),
    y_title: str = f"accuracy,{THIN}%",
) -> Html:
    """Return the chart.

    Parameters
    ----------
    lines
        What to draw.
    make_x
        Given the pixels where it starts and ends, the horizontal axis.
    x_title, title
        Under the axis, and read to those who cannot see the chart.
    size
        Width and height.
    y_values
        More values that the vertical axis must hold, so that neighbouring charts share it.
    y_title
        Above the vertical axis, which shows shares of one in percent.
    """
    width, height = size
    names = [line.name for line in lines]
    room = min(max((text_width(name) for name in names), default=0) + 18, width * 0.36)
    box = Box(36.0, 28.0, width - room, height - 46)
    known = [value for line in lines for point in line.points for value in (point.low, point.high)]
    y = linear_axis([*known, *y_values], box.bottom, box.top + 6, lambda v: f"{v * 100:g}", bounds=(0.0, 1.0))
    x = make_x(box.left + 6, box.right - 6)
    drawn: list[Node] = [frame(box, x, y, x_title, y_title)]
    drawn += [_line(line, x, y) for line in lines]
    ends = [line for line in lines if line.points][:MOST_LABELS]
    wished = [y(line.points[-1].y) for line in ends]
    for line, place, wish in zip(ends, spread(wished, box.top, box.bottom, gap=15.0), wished, strict=True):
        last = x(line.points[-1].x)
        start = box.right + 8
        drawn.append(tag("line", x1=last + 5, y1=wish, x2=start - 2, y2=place, class_="leader"))
        look = "quiet" if line.baseline else f"t{line.number % STYLES}"
        drawn.append(tag("text", line.name, x=start, y=place, dy="0.34em", class_=f"label {look}"))
    return svg(width, height, title, *drawn)


def _line(line: Line, x: Axis, y: Axis) -> Html:
    style = 1 if line.baseline else line.number % STYLES
    places = [(x(point.x), y(point.y)) for point in line.points]
    joins = [bool(i) and point.joined for i, point in enumerate(line.points)]
    path = "".join(f"{'L' if joined else 'M'}{a:.1f},{b:.1f}" for joined, (a, b) in zip(joins, places, strict=True))
    drawn: list[Node] = [tag("path", d=path, class_="line")]
    for point, (a, b) in zip(line.points, places, strict=True):
        low, high = y(point.low), y(point.high)
        if low - high > 2:
            drawn.append(tag("line", x1=a, x2=a, y1=low, y2=high, class_="error"))
        drawn.append(
            tag(
                "g",
                tag("title", point.told),
                tag("circle", cx=a, cy=b, r=9.0, class_="hit"),
                marker(style, a, b),
                class_="point",
            )
        )
    return tag("g", *drawn, class_=f"series {line.style}", data_head=line.name)


def marker(style: int, x: float, y: float) -> Html:
    """Return a circle, square, diamond or triangle, by style."""
    shapes = {
        1: [(-3.2, -3.2), (3.2, -3.2), (3.2, 3.2), (-3.2, 3.2)],
        2: [(0, -4.4), (4.4, 0), (0, 4.4), (-4.4, 0)],
        3: [(0, -4.2), (4.2, 3.4), (-4.2, 3.4)],
        4: [(0, 4.2), (4.2, -3.4), (-4.2, -3.4)],
    }
    if style not in shapes:
        return tag("circle", cx=x, cy=y, r=3.2, class_="marker")
    corners = " ".join(f"{x + a:.1f},{y + b:.1f}" for a, b in shapes[style])
    return tag("polygon", points=corners, class_="marker")


def path_above(places: Sequence[Place], floor: float) -> str:
    """Return the commands of a path through places (pixels, y downwards), without what lies below the floor.

    Examples
    --------
    >>> path_above([(0.0, 30.0), (10.0, 10.0), (20.0, 5.0)], floor=20.0)
    'M5.0,20.0L10.0,10.0L20.0,5.0'
    """
    first = places[0]
    found = [f"M{first[0]:.1f},{first[1]:.1f}"] if first[1] <= floor else []
    for (x1, y1), (x2, y2) in pairwise(places):
        if y1 > floor and y2 > floor:
            continue
        end = x2, y2
        if y1 > floor or y2 > floor:
            cut = x1 + (floor - y1) / (y2 - y1) * (x2 - x1)
            if y1 > floor:
                found.append(f"M{cut:.1f},{floor:.1f}")
            else:
                end = cut, floor
        found.append(f"L{end[0]:.1f},{end[1]:.1f}")
    return "".join(found)
