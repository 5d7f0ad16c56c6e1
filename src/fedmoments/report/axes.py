"""Scales with round ticks, and the frame of a chart: grid, tick labels and axis titles."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from fedmoments.report.formats import THIN, bytes_
from fedmoments.report.labels import text_width
from fedmoments.report.markup import Html, Node, join, tag

__all__ = [
    "NARROW",
    "WIDE",
    "Axis",
    "Box",
    "both",
    "bytes_axis",
    "frame",
    "linear_axis",
    "log_axis",
    "ordinal_axis",
    "sparse",
    "svg",
]

#: Widths that charts are drawn in, for laptops and paper, and for phones: text keeps its size in both.
WIDE, NARROW = 860, 348
#: Pixels between the words of two ticks.
TICK = 6.0


@dataclass(frozen=True)
class Axis:
    """Maps values to pixels from start to end.

    Examples
    --------
    >>> Axis(0.0, 10.0, (), 100.0, 200.0)(5.0)
    150.0
    """

    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high = self.low, self.high
        if self.log:
            value, low, high = math.log10(value), math.log10(low), math.log10(high)
        return self.start + (value - low) / (high - low) * (self.end - self.start)


@dataclass(frozen=True)
class Box:
    """The plot's rectangle inside a chart."""

    left: float
    top: float
    right: float
    bottom: float


def linear_axis(
    values: Iterable[float],
    start: float,
    end: float,
    words: Callable[[float], str],
    *,
    ticks: int = 6,
    bounds: tuple[float, float] | None = None,
) -> Axis:
    """Return an axis that holds all values, with about so many round ticks; bounds are never left.

    Examples
    --------
    >>> axis = linear_axis([0.849, 0.94], 300, 0, "{:.0%}".format, bounds=(0, 1))
    >>> axis.low, [words for _, words in axis.ticks]
    (0.84, ['84%', '86%', '88%', '90%', '92%', '94%'])
    """
    known = list(values) or [0.0]
    low, high = min(known), max(known)
    if high - low < 1e-9:
        low, high = low - 0.05 * max(abs(low), 0.2), high + 0.05 * max(abs(high), 0.2)
    step = _step((high - low) / ticks)
    low, high = math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step
    if bounds:
        low, high = max(low, bounds[0]), min(high, bounds[1])
    first = math.ceil(low / step - 1e-9)
    places = [round(i * step, 10) for i in range(first, math.floor(high / step + 1e-9) + 1)]
    return Axis(round(low, 10), round(high, 10), tuple((place, words(place)) for place in places), start, end)


def _step(rough: float) -> float:
    size = 10.0 ** math.floor(math.log10(rough))
    return float(next(factor * size for factor in (1, 2, 5, 10) if factor * size >= rough * 0.999))


def log_axis(
    values: Iterable[float],
    start: float,
    end: float,
    words: Callable[[float], str],
    *,
    beyond: tuple[float, float] = (0.7, 1.45),
) -> Axis:
    """Return a logarithmic axis over positive values, with more ticks between powers of ten the shorter it is.

    It reaches beyond the lowest and the highest value by these factors.

    Examples
    --------
    >>> [words for _, words in log_axis([300, 60_000], 0, 100, "{:g}".format).ticks]
    ['300', '1000', '3000', '10000', '30000']
    """
    known = list(values) or [1.0]
    low, high = min(known), max(known)
    low, high = low * beyond[0], high * beyond[1]
    if high / low < 4:
        middle = math.sqrt(low * high)
        low, high = middle / 2.2, middle * 2.2
    factors = (1,) if high / low > 2000 else (1, 3) if high / low > 12 else (1, 2, 5)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    places = [factor * 10.0**power for power in powers for factor in factors]
    ticks = tuple((place, words(place)) for place in places if low <= place <= high)
    return Axis(low, high, ticks, start, end, log=True)


def sparse(axis: Axis) -> Axis:
    """Return an axis without those ticks whose words would touch the ones before.

    Examples
    --------
    >>> [words for _, words in sparse(log_axis([300, 60_000], 0, 100, "{:g}".format)).ticks]
    ['300', '3000']
    """
    kept: list[tuple[float, str]] = []
    for tick in axis.ticks:
        room = 0.5 * (text_width(tick[1]) + text_width(kept[-1][1])) + TICK if kept else 0.0
        if not kept or axis(tick[0]) - axis(kept[-1][0]) >= room:
            kept.append(tick)
    return replace(axis, ticks=tuple(kept))


def bytes_axis(values: Iterable[float], start: float, end: float, *, beyond: tuple[float, float] = (0.7, 1.45)) -> Axis:
    """Return a logarithmic axis of bytes, whose words do not touch; arguments as of :func:`log_axis`.

    Examples
    --------
    >>> [words.replace(THIN, " ") for _, words in bytes_axis([300, 60_000], 0, 300).ticks]
    ['300 B', '1 kB', '3 kB', '10 kB', '30 kB']
    """
    return sparse(log_axis(values, start, end, lambda v: bytes_(v).replace(f".0{THIN}", THIN), beyond=beyond))


def ordinal_axis(words: list[str], start: float, end: float) -> Axis:
    """Return an axis with one place, 0, 1, …, for every word."""
    return Axis(-0.4, len(words) - 0.6, tuple((float(i), word) for i, word in enumerate(words)), start, end)


def svg(width: float, height: float, title: str, *children: Node, role: str = "img", class_: str = "chart") -> Html:
    """Return a drawing; its title is read to those who cannot see it."""
    return tag(
        "svg",
        tag("title", title),
        *children,
        viewBox=f"0 0 {width:g} {height:g}",
        width=f"{width:g}",
        height=f"{height:g}",
        role=role,
        class_=class_,
        xmlns="http://www.w3.org/2000/svg",
    )


def both(draw: Callable[[float], Html]) -> Html:
    """Return a chart drawn twice; the style sheet shows the one that fits."""
    return join([tag("div", draw(WIDE), class_="wide"), tag("div", draw(NARROW), class_="narrow")])


def frame(box: Box, x: Axis, y: Axis, x_title: str, y_title: str, *, title_at: float = 12.0) -> Html:
    """Return grid lines, tick labels and axis titles: the vertical one lies above its axis, where it reads easily."""
    lines = [
        tag("line", x1=box.left, x2=box.right, y1=y(place), y2=y(place), class_="grid") for place, _ in y.ticks
    ] + [tag("line", x1=x(place), x2=x(place), y1=box.bottom, y2=box.bottom + 5, class_="axis") for place, _ in x.ticks]
    words = [
        tag("text", word, x=box.left - 8, y=y(place), dy="0.35em", text_anchor="end", class_="tick")
        for place, word in y.ticks
    ] + [
        tag("text", word, x=x(place), y=box.bottom + 19, text_anchor="middle", class_="tick") for place, word in x.ticks
    ]
    return tag(
        "g",
        *lines,
        tag("line", x1=box.left, x2=box.right, y1=box.bottom, y2=box.bottom, class_="axis"),
        *words,
        tag("text", y_title, x=0.0, y=title_at, class_="axis-title"),
        tag("text", x_title, x=box.right, y=box.bottom + 38, text_anchor="end", class_="axis-title"),
        aria_hidden="true",
    )
