"""Accuracy against a swept setting: one line a head; other swept settings give one small chart for each value."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from fedmoments.report.axes import Axis, both, bytes_axis, log_axis, ordinal_axis
from fedmoments.report.formats import bytes_, percent
from fedmoments.report.lines import Line, Point, line_chart
from fedmoments.report.markup import Html, join, tag
from fedmoments.report.reading import PAYLOAD, SWEPT, Results, Row, Setting, methods_of

__all__ = ["sweep_section"]

#: Where a row lies on the horizontal axis.
Where = Callable[[Row], float]
#: Small charts of one figure.
MOST_CHARTS = 12
#: What is swept, in a sentence.
NAMES = SWEPT | {
    "clients": "number of clients",
    "means_per_client": "number of means per client",
    "projection": "dimension of a random projection",
    "budget": "bytes that a client may send",
    "epsilon": "budget ε of differential privacy",
}
#: What a horizontal axis shows.
TITLES = SWEPT | {
    "projection": "dimensions measured",
    "budget": "bytes sent per client",
    "epsilon": "ε, the more the less private",
}


def sweep_section(results: Results) -> Html | None:
    """Return the section, or None without a sweep or a fitted head."""
    rows = [row for row in results.rows if row.accuracy is not None]
    if not results.swept or not rows:
        return None
    along = _along(results)
    others = [key for key in results.swept if key != along]
    facets = list(dict.fromkeys(tuple(getattr(row.setting, key) for key in others) for row in rows))
    charts = [
        tag("div", _facet(results, rows, along, others, facet, alone=len(facets) == 1), class_="facet")
        for facet in facets[:MOST_CHARTS]
    ]
    cut = f" The first {MOST_CHARTS} of {len(facets)} combinations are drawn." if len(facets) > MOST_CHARTS else ""
    lead = f"How accuracy changes with the {NAMES[along]}"
    lead += f", for every {' and '.join(NAMES[key] for key in others)}." if others else "."
    return join(
        [
            tag("p", lead, class_="lead"),
            tag("div", *charts, class_="facets" if len(facets) > 1 else None),
            tag("p", f"All charts share the vertical axis.{cut}", class_="note") if len(facets) > 1 else None,
        ]
    )


def _along(results: Results) -> str:
    """Return what the horizontal axis shows: the swept part with most values, a number rather than a word."""

    def rank(key: str) -> tuple[int, bool]:
        values = [getattr(setting, key) for setting in results.settings]
        number = _sized(results.rows) if key == "budget" else _numbers(key, values, results.dim) is not None
        return len(set(values)), number

    return max(results.swept, key=rank)


def _sized(rows: Sequence[Row]) -> bool:
    """Return whether all rows with an accuracy say how many bytes they sent, which budgets are drawn against."""
    return all(row.drawn for row in rows if row.accuracy is not None)


def _numbers(key: str, values: Sequence[Any], dim: float | None) -> dict[Any, float] | None:
    """Return the number that each value stands for, or None when one stands for none; ``dim`` without a projection."""
    known = [dim if key == "projection" and value is None else value for value in values]
    words = [str(value) for value in known if value is not None]
    if key == "split" and len({word.partition(":")[0] for word in words}) == 1:
        words = [word.partition(":")[2] for word in words]
    try:
        found = [float(word) for word in words]
    except ValueError:
        return None
    if len(found) < len(values) or min(found) <= 0 or max(found) / min(found) < 1.5:
        return None
    return dict(zip(values, found, strict=True))


def _facet(
    results: Results, rows: list[Row], along: str, others: list[str], facet: tuple[Any, ...], *, alone: bool
) -> Html:
    here = [row for row in rows if tuple(getattr(row.setting, key) for key in others) == facet]
    values = list(dict.fromkeys(getattr(row.setting, along) for row in rows))
    sizes = [row.place[0] for row in rows] if along == "budget" and _sized(rows) else []
    numbers = None if along == "budget" else _numbers(along, values, results.dim)
    place = numbers or {value: float(i) for i, value in enumerate(values)}
    where: Where = lambda row: row.place[0] if sizes else place[getattr(row.setting, along)]  # noqa: E731
    lines = []
    for baseline in (False, True):
        heads = dict.fromkeys(row.head for row in rows if row.baseline == baseline)
        for number, head in enumerate(heads):
            mine = sorted((row for row in here if row.head == head), key=where)
            if points := _points(mine, where, along):
                lines.append(Line(head, number, points, baseline=baseline))
    reach = [(row.accuracy or 0) + sign * (row.deviation or 0) for row in rows for sign in (-1, 1)]
    x_title = TITLES[along] if sizes or along != "budget" else SWEPT[along]
    x_title += " (logarithmic)" if numbers or sizes else ""
    words = ", ".join(Setting(**{key: value}).spelled(key) for key, value in zip(others, facet, strict=True))
    title = f"Accuracy against {SWEPT[along]}{f', {words}' if words else ''}: {methods_of(here)}."
    height = 380.0 if alone else 300.0

    def draw(width: float) -> Html:
        wide = width if alone else min(width, 420.0)
        axis = (lambda start, end: bytes_axis(sizes, start, end)) if sizes else _axis(values, numbers, along)
        return line_chart(lines, axis, x_title, title, size=(wide, height), y_values=reach)

    return join([tag("h3", words) if words else None, tag("figure", both(draw))])


def _axis(values: list[Any], numbers: dict[Any, float] | None, along: str) -> Callable[[float, float], Axis]:
    words = {value: Setting(**{along: value}).word(along) for value in values}

    def make(start: float, end: float) -> Axis:
        if not numbers:
            return ordinal_axis([_fit(words[value], (end - start) / len(values)) for value in values], start, end)
        axis = log_axis(numbers.values(), start, end, "{:g}".format)
        named = sorted((number, f"{number:,g}" if value else words[value]) for value, number in numbers.items())
        apart = all(axis(b) - axis(a) > 30 for (a, _), (b, _) in pairwise(named))
        return Axis(axis.low, axis.high, tuple(named) if apart else axis.ticks, start, end, log=True)

    return make


def _fit(word: str, room: float) -> str:
    most = max(int(room / 6.5), 3)
    return word if len(word) <= most else word[: most - 1] + "…"


def _points(rows: list[Row], where: Where, along: str) -> tuple[Point, ...]:
    """Return the points of a head; a line joins numbers only: between words there is nothing."""
    points: list[Point] = []
    before = False
    for row in rows:
        accuracy, deviation = row.accuracy or 0.0, row.deviation or 0.0
        told = f"{row.head}, {row.setting.spelled(along)}: {percent(accuracy)}"
        told += f" ± {deviation * 100:.1f}" if row.deviation is not None else ""
        told += f", {bytes_(row.bytes_per_client)} a client" if along in PAYLOAD else ""
        told += ", a baseline" if row.baseline else ""
        number = along in PAYLOAD or _is_number(getattr(row.setting, along))
        points.append(
            Point(where(row), accuracy, accuracy - deviation, accuracy + deviation, told, joined=number and before)
        )
        before = number
    return tuple(points)


def _is_number(value: Any) -> bool:
    try:
        float(str(value).partition(":")[2] or str(value))
    except ValueError:
        return False
    return True
