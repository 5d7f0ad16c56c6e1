"""What a figure draws: panels of series of points, taken from measurements; and where points lie across."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedmoments.report.plain import items, mapping
from fedmoments.reproduction.measurement import ACCURACY, Measurement, is_share, matching, sorted_values
from fedmoments.reproduction.pages.words import (
    key_words,
    number_words,
    place_words,
    value_words,
    varying_keys,
)

__all__ = ["Across", "Dot", "Drawing", "Panel", "Series", "read_drawing"]


@dataclass(frozen=True)
class Dot:
    """A place of a series: across, up, the spread about it, and what is told of it."""

    x: float
    y: float
    low: float
    high: float
    told: str


@dataclass(frozen=True)
class Series:
    """Points of one look, whose number is the same in all panels."""

    name: str
    number: int
    dots: tuple[Dot, ...]


@dataclass(frozen=True)
class Panel:
    """One chart of a figure."""

    title: str
    series: tuple[Series, ...]


@dataclass(frozen=True)
class Across:
    """The horizontal axis: its scale (``linear``, ``log``, ``words``), and the places with their words."""

    scale: str
    places: tuple[tuple[float, str], ...]
    title: str


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
        The horizontal axis.
    y_title
        Over the vertical axis.
    share
        Whether values are shares, shown in percent.
    panels
        At least one.
    """

    title: str
    form: str
    across: Across
    y_title: str
    share: bool
    panels: tuple[Panel, ...]

    @property
    def names(self) -> list[str]:
        """Names of the series, by number."""
        found = {series.number: series.name for panel in self.panels for series in panel.series}
        return [found[number] for number in sorted(found)]


def read_drawing(figure: Mapping[str, Any], measurements: Sequence[Mapping[str, Any]]) -> Drawing | None:
    """Return what a figure draws, or None when nothing of it was measured.

    Parameters
    ----------
    figure
        A :class:`~fedmoments.reproduction.experiment.Figure`, as documents have it.
    measurements
        Of the document. Where several stand at one place, the first is drawn.

    Examples
    --------
    >>> where = {"head": "fedcof", "clients": 10}
    >>> rows = [{"where": where, "quantity": "accuracy", "values": [0.8], "seeds": [0], "reason": None}]
    >>> drawing = read_drawing({"title": "Clients", "x": "clients", "series": ["head"], "scale": "log"}, rows)
    >>> drawing.panels[0].series[0].name, drawing.across.places
    ('FedCOF', ((10.0, '10'),))
    """
    quantity = str(figure.get("quantity") or ACCURACY)
    x, keys, split = str(figure.get("x")), [str(key) for key in items(figure.get("series"))], figure.get("panel")
    every = [Measurement.from_dict(each) for each in measurements]
    found = matching(every, {**mapping(figure.get("where")), "quantity": quantity})
    found = [each for each in found if x in each.where and each.mean is not None]
    if not found:
        return None
    across = _across(figure, x, found)
    kinds = list(dict.fromkeys(tuple(each.where.get(key) for key in keys) for each in found))
    names = _names(keys, kinds)
    values = sorted_values(found, str(split)) if split else [None]
    panels = []
    for value in values:
        here = [each for each in found if split is None or each.where.get(str(split)) == value]
        series = []
        for number, kind in enumerate(kinds):
            mine = [each for each in here if tuple(each.where.get(key) for key in keys) == kind]
            if mine:
                dots = _dots(mine, x, across, names[number], quantity)
                series.append(Series(names[number], number, dots))
        panels.append(Panel(value_words(str(split), value) if len(values) > 1 else "", tuple(series)))
    share = is_share({"quantity": quantity})
    y_title = str(figure.get("y_title") or (quantity if not share else "accuracy"))
    y_title += ", %" if share and "%" not in y_title and "per cent" not in y_title else ""
    title, form = str(figure.get("title") or ""), str(figure.get("form") or "lines")
    return Drawing(title, form, across, y_title, share, tuple(panels))


def _names(keys: Sequence[str], kinds: Sequence[tuple[Any, ...]]) -> list[str]:
    """Return the names of series: keys that tell them apart, or all keys when there is one series."""
    places = [dict(zip(keys, kind, strict=True)) for kind in kinds]
    chosen = varying_keys(places) if len(places) > 1 else None
    return [place_words(place, chosen) or "ours" for place in places]


def _across(figure: Mapping[str, Any], x: str, found: Sequence[Measurement]) -> Across:
    values = sorted_values(found, x)
    numbers = [_number(value) for value in values]
    title = str(figure.get("x_title") or key_words(x))
    scale = str(figure.get("scale") or "linear")
    known = [number for number in numbers if number is not None]
    if scale == "words" or len(known) < len(values):
        words = [_word(x, value) for value in values]
        return Across("words", tuple((float(i), word) for i, word in enumerate(words)), title)
    if scale == "log" and any(number > 0 for number in known):
        least = min(number for number in known if number > 0)
        # What is not positive has no place on this scale: it stands left of the least one.
        places = sorted((number if number > 0 else least / 3, number_words(number)) for number in known)
        return Across("log", tuple(places), f"{title} (logarithmic)")
    return Across("linear", tuple(sorted((number, number_words(number)) for number in known)), title)


def _word(key: str, value: Any) -> str:
    words = value_words(key, value)
    return words.removeprefix(f"{key_words(key)} ") if not isinstance(value, bool) else words


def _number(value: Any) -> float | None:
    """Return a number, also one at the end of a word such as ``dirichlet:0.1``."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float(value) if math.isfinite(value) else None
    match = re.fullmatch(r"(?:[A-Za-z-]+:)?([0-9.]+(?:e-?[0-9]+)?)", str(value))
    return float(match.group(1)) if match and match.group(1).count(".") < 2 else None


def _dots(mine: Sequence[Measurement], x: str, across: Across, name: str, quantity: str) -> tuple[Dot, ...]:
    """Return the points of a series from left to right, one at each place."""
    places = {_place(each, x, across): each for each in reversed(mine)}
    words = dict(across.places)
    dots = []
    for place in sorted(places):
        each = places[place]
        mean, spread = each.mean or 0.0, each.spread or 0.0
        share = is_share({"quantity": quantity})
        times, unit, decimals = (100.0, " %", 1) if share else (1.0, f" {quantity}", None)
        told = f"{name}, {across.title.removesuffix(' (logarithmic)')} {words[place]}: "
        told += number_words(times * mean, decimals)
        told += f" ± {number_words(times * spread, decimals)}" if each.spread is not None else ""
        dots.append(Dot(place, mean, mean - spread, mean + spread, told + unit))
    return tuple(dots)


def _place(each: Measurement, x: str, across: Across) -> float:
    value = each.where[x]
    if across.scale == "words":
        word = _word(x, value)
        return next(place for place, words in across.places if words == word)
    number = _number(value) or 0.0
    return number if across.scale != "log" or number > 0 else across.places[0][0]
