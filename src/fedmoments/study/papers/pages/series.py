"""What a figure draws: panels of series of points, taken from measurements; and where points lie across."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedmoments.core.observations import ACCURACY, Observation, is_share, matching, sorted_values
from fedmoments.pages.chart import Point, Scale, Series, Style, Tick
from fedmoments.pages.plain import items, mapping
from fedmoments.study.papers.pages.words import (
    key_words,
    number_words,
    place_words,
    value_words,
    varying_keys,
)

__all__ = ["Drawing", "Panel", "read_drawing"]


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
    """

    title: str
    form: str
    across: Scale
    y_title: str
    share: bool
    panels: tuple[Panel, ...]

    @property
    def places(self) -> tuple[Tick, ...]:
        """Where points lie across, with their words."""
        return self.across.ticks or ()


def read_drawing(figure: Mapping[str, Any], measurements: Sequence[Mapping[str, Any]]) -> Drawing | None:
    """Return what a figure draws, or None when nothing of it was measured.

    Parameters
    ----------
    figure
        A :class:`~fedmoments.study.papers.experiment.Figure`, as documents have it.
    measurements
        Of the document. Where several stand at one place, the first is drawn.

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
    y_title = str(figure.get("y_title") or (quantity if not share else "accuracy"))
    y_title += ", %" if share and "%" not in y_title and "per cent" not in y_title else ""
    title, form = str(figure.get("title") or ""), str(figure.get("form") or "lines")
    return Drawing(title, form, across, y_title, share, _panels(figure, observations, _Reader(x, quantity, across)))


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
