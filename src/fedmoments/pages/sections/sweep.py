"""Accuracy against a swept setting: one line a head; other swept settings give one small chart for each value."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedmoments.core.observations import SWEPT, Report, Row, Setting
from fedmoments.pages.blocks import lead, note
from fedmoments.pages.chart import Chart, Point, Scale, Series, Style, bytes_scale, share_scale
from fedmoments.pages.figure import facets, figure
from fedmoments.pages.formats import bytes_, percent, sentences
from fedmoments.pages.markup import Html, join, tag
from fedmoments.pages.reading import PAYLOAD, is_drawn, methods_of
from fedmoments.pages.shell import section
from fedmoments.settings.setting import spelled

__all__ = ["sweep_section"]

#: Small charts of one figure.
MOST_CHARTS = 12
#: Numbers that are nearer to each other than this factor are words.
LEAST_FACTOR = 1.5


@section("sweep", "What the settings change", place=60, of="swept")
def sweep_section(report: Report, swept: tuple[str, ...]) -> Html | None:
    """Return the section, or None without a fitted head."""
    rows = [row for row in report.rows if row.accuracy is not None]
    if not rows:
        return None
    along = _along(report)
    others = [key for key in swept if key != along]
    groups = _groups(rows, others)
    sweep = _sweep(report, rows, along)
    charts = [_facet(sweep, dict(fixed), here, len(groups)) for fixed, here in list(groups.items())[:MOST_CHARTS]]
    every = f", for every {' and '.join(map(_subject, others))}" if others else ""
    return join(
        [lead(f"How accuracy changes with the {_subject(along)}{every}."), facets(charts), note(_note(len(groups)))]
    )


def _subject(key: str) -> str:
    """Return what is swept, in a sentence."""
    return SWEPT[key].subject or SWEPT[key].name


def _groups(rows: Sequence[Row], keys: Sequence[str]) -> dict[tuple[tuple[str, Any], ...], list[Row]]:
    """Return the rows of every chart, by what is fixed in it."""
    groups: dict[tuple[tuple[str, Any], ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple((key, getattr(row.setting, key)) for key in keys), []).append(row)
    return groups


def _note(charts: int) -> str:
    return sentences(
        "All charts share the vertical axis." if charts > 1 else "",
        f"The first {MOST_CHARTS} of {charts} combinations are drawn." if charts > MOST_CHARTS else "",
    )


@dataclass(frozen=True)
class _Sweep:
    """What all charts share: what is swept, both scales, where a row lies across, and the style of every head."""

    along: str
    x: Scale
    y: Scale
    where: Callable[[Row], float]
    styles: Mapping[tuple[str, bool], Style]


def _along(report: Report) -> str:
    """Return what the horizontal axis shows: the swept part with most values, a number rather than a word."""

    def rank(key: str) -> tuple[int, bool]:
        values = [getattr(setting, key) for setting in report.settings]
        number = _sized(report.rows) if key == "budget" else _numbers(key, values, report.data.dim) is not None
        return len(set(values)), number

    return max(report.swept, key=rank)


def _sized(rows: Sequence[Row]) -> bool:
    """Return whether all rows with an accuracy say how many bytes they sent, which budgets are drawn against."""
    return all(is_drawn(row) for row in rows if row.accuracy is not None)


def _numbers(key: str, values: Sequence[Any], dim: float | None) -> dict[Any, float] | None:
    """Return the number that each value stands for, or None when one stands for none; ``dim`` without a projection."""
    words = [str(dim if (key, value) == ("projection", None) else value) for value in values]
    schemes, numbers = zip(*(word.rpartition(":")[::2] for word in words), strict=True)
    words = list(numbers) if key == "split" and len(set(schemes)) == 1 else words
    if not all(map(_is_number, words)):
        return None
    found = dict(zip(values, map(float, words), strict=True))
    least, most = min(found.values()), max(found.values())
    return found if least > 0 and most / least >= LEAST_FACTOR else None


def _sweep(report: Report, rows: Sequence[Row], along: str) -> _Sweep:
    reach = tuple((row.accuracy or 0) + sign * (row.accuracy_std or 0) for row in rows for sign in (-1, 1))
    styles = {
        (head, baseline): Style.numbered(number, baseline=baseline)
        for baseline in (False, True)
        for number, head in enumerate(dict.fromkeys(row.head for row in rows if row.baseline == baseline))
    }
    scale, where = _across(report, rows, along)
    return _Sweep(along, scale, share_scale(values=reach), where, styles)


def _across(report: Report, rows: Sequence[Row], along: str) -> tuple[Scale, Callable[[Row], float]]:
    """Return the horizontal scale, of bytes, numbers or words, and where a row lies on it."""
    title = f"{_axis(along)} (logarithmic)"
    if along == "budget" and _sized(rows):
        return bytes_scale(title, values=tuple(map(_sent, rows))), _sent
    values = list(dict.fromkeys(getattr(row.setting, along) for row in rows))
    numbers = None if along == "budget" else _numbers(along, values, report.data.dim)
    places = numbers or {value: float(place) for place, value in enumerate(values)}
    ticks = tuple(sorted((places[value], _tick(along, value, numbers)) for value in values))
    if numbers:
        scale = Scale(title, "log", "{:g}".format, tuple(places.values()), ticks=ticks)
    else:
        scale = Scale(SWEPT[along].name if along == "budget" else _axis(along), "words", ticks=ticks)
    return scale, lambda row: places[getattr(row.setting, along)]


def _sent(row: Row) -> float:
    return row.up_bytes_per_client


def _axis(along: str) -> str:
    return SWEPT[along].axis or SWEPT[along].name


def _tick(along: str, value: Any, numbers: Mapping[Any, float] | None) -> str:
    return f"{numbers[value]:,g}" if numbers and value else Setting(**{along: value}).word(along)


def _facet(sweep: _Sweep, fixed: Mapping[str, Any], rows: Sequence[Row], charts: int) -> Html:
    """Return one chart, under what is fixed in it."""
    words = ", ".join(spelled(key, value) for key, value in fixed.items())
    series = []
    for (head, baseline), style in sweep.styles.items():
        mine = sorted((row for row in rows if (row.head, row.baseline) == (head, baseline)), key=sweep.where)
        if mine:
            series.append(Series(head, _points(mine, sweep), style))
    title = f"Accuracy against {SWEPT[sweep.along].name}{f', {words}' if words else ''}: {methods_of(rows)}."
    chart = Chart(title, sweep.x, sweep.y, tuple(series), height=306.0 if charts == 1 else 226.0)
    return join([tag("h3", words) if words else None, figure(chart, beside=charts > 1)])


def _points(rows: Sequence[Row], sweep: _Sweep) -> tuple[Point, ...]:
    """Return the points of a head; a line joins numbers only: between words there is nothing."""
    points: list[Point] = []
    before = False
    for row in rows:
        accuracy, deviation = row.accuracy or 0.0, row.accuracy_std or 0.0
        number = sweep.along in PAYLOAD or _is_number(str(getattr(row.setting, sweep.along)).rpartition(":")[2])
        ends = accuracy - deviation, accuracy + deviation
        points.append(Point(sweep.where(row), accuracy, *ends, _tip(row, sweep.along), joined=number and before))
        before = number
    return tuple(points)


def _tip(row: Row, along: str) -> str:
    tip = f"{row.head}, {row.setting.spelled([along])}: {percent(row.accuracy)}"
    tip += f" ± {row.accuracy_std * 100:.1f}" if row.accuracy_std is not None else ""
    tip += f", {bytes_(row.up_bytes_per_client)} per client" if along in PAYLOAD else ""
    return tip + (", a baseline" if row.baseline else "")


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True
