"""Axes: scales of a length in pixels, with round ticks whose words do not touch."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import pairwise

from fedmoments.pages.chart import Scale, Tick
from fedmoments.pages.labels import text_width

__all__ = ["Axis", "horizontal", "linear_axis", "log_axis", "vertical"]

#: Pixels between the words of two ticks, and their font size.
APART, SIZE = 6.0, 12.0
#: Most ticks of an upright logarithmic axis.
MOST_UPRIGHT = 7


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
    ticks: tuple[Tick, ...]
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high = self.low, self.high
        if math.isinf(value):
            return self.end if value > 0 else self.start
        if self.log:
            value, low, high = math.log10(value), math.log10(low), math.log10(high)
        return self.start + (value - low) / (high - low) * (self.end - self.start)


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


def horizontal(scale: Scale, values: Iterable[float], start: float, end: float) -> Axis:
    """Return the axis of a scale over values from left to right; words of its ticks do not touch.

    Examples
    --------
    >>> scale = Scale(kind="log", words="{:g}".format)
    >>> [words for _, words in horizontal(scale, [300, 60_000], 0, 100).ticks]
    ['300', '3000']
    """
    axis = _axis(scale, values, start, end)
    if scale.kind == "words":
        return axis
    kept = _preferred(axis, scale.ticks) if scale.ticks is not None else None
    return replace(axis, ticks=_sparse(axis, axis.ticks) if kept is None else kept)


def vertical(scale: Scale, values: Iterable[float], start: float, end: float) -> Axis:
    """Return the axis of a scale over values from the bottom up."""
    axis = _axis(scale, values, start, end)
    if scale.ticks is not None:
        return replace(axis, ticks=scale.ticks)
    every = max(math.ceil(len(axis.ticks) / MOST_UPRIGHT), 1) if axis.log else 1
    return replace(axis, ticks=axis.ticks[::every])


def _axis(scale: Scale, values: Iterable[float], start: float, end: float) -> Axis:
    known = [*values, *scale.values]
    if scale.kind == "words":
        ticks = scale.ticks or ()
        return Axis(-0.4, len(ticks) - 0.6, ticks, start, end)
    if scale.kind == "log":
        return log_axis(known, start, end, scale.words, beyond=scale.beyond)
    axis = linear_axis(known, start, end, scale.words, ticks=scale.about, bounds=scale.bounds)
    if axis.high - axis.low < 1e-12:  # bounds that are one value
        axis = linear_axis(known, start, end, scale.words, ticks=scale.about)
    if scale.exact:
        inside = tuple(tick for tick in axis.ticks if min(known) <= tick[0] <= max(known) * (1 + 1e-9))
        axis = Axis(min(known), max(known), inside, start, end)
    return _whole(axis, scale) if scale.whole else axis


def _whole(axis: Axis, scale: Scale) -> Axis:
    """Return an axis with ticks at whole numbers alone, its lowest value among them where that is a bound."""
    first = [(axis.low, scale.words(axis.low))] if scale.bounds and axis.low == scale.bounds[0] else []
    ticks = [tick for tick in (*first, *axis.ticks) if tick[0] == int(tick[0])]
    return replace(axis, ticks=tuple(dict.fromkeys(ticks)))


def _room(one: Tick, other: Tick) -> float:
    """Return the pixels that two ticks need between them."""
    return 0.5 * (text_width(one[1], SIZE) + text_width(other[1], SIZE)) + APART


def _sparse(axis: Axis, ticks: Iterable[Tick]) -> tuple[Tick, ...]:
    """Return ticks without those whose words would touch the ones before."""
    kept: list[Tick] = []
    for tick in ticks:
        if not kept or axis(tick[0]) - axis(kept[-1][0]) >= _room(kept[-1], tick):
            kept.append(tick)
    return tuple(kept)


def _preferred(axis: Axis, ticks: tuple[Tick, ...]) -> tuple[Tick, ...] | None:
    """Return ticks if their words do not touch, or most of them: the last one matters, those before it give way."""
    kept = list(ticks)
    while len(kept) > 2 and axis(kept[-1][0]) - axis(kept[-2][0]) < _room(kept[-2], kept[-1]):
        del kept[-2]
    apart = all(axis(b[0]) - axis(a[0]) >= _room(a, b) for a, b in pairwise(kept))
    return tuple(kept) if apart and 2 * len(kept) >= len(ticks) else None
