"""Accuracy against bytes sent per client: every head, its spread over seeds, and the frontier of what bytes buy."""

import math
from collections.abc import Sequence
from itertools import pairwise

from fedmoments.core.observations import Report, Row, Setting
from fedmoments.pages.answer import cheapest, frontier
from fedmoments.pages.blocks import lead, note
from fedmoments.pages.chart import Chart, Point, Series, Symbol, Trace, bytes_scale, share_scale
from fedmoments.pages.figure import figure
from fedmoments.pages.formats import THIN, bytes_, count, percent, sentences
from fedmoments.pages.markup import Html, join
from fedmoments.pages.reading import chooser, group_words, is_drawn, label_of, methods_of, panels, place_of
from fedmoments.pages.shell import section

__all__ = ["frontier_chart", "frontier_section"]

#: Settings of a sweep that get a chart of their own.
MOST_SETTINGS = 24


@section("bytes", "Accuracy for bytes", place=10)
def frontier_section(report: Report) -> Html | None:
    """Return the section, or None when no head has both an accuracy and a size, or all share one upload."""
    if report.federation is not None:
        return None
    settings = _drawn_settings(report)
    if not settings:
        return None
    shown = settings[:MOST_SETTINGS]
    wanted = report.group_of(report.main_setting)
    main = wanted if wanted in shown else shown[0]
    keys = {setting: f"s{i}" for i, setting in enumerate(shown)}
    options = [(key, group_words(report, setting)) for setting, key in keys.items()]
    left_out = f"The first {MOST_SETTINGS} of {len(settings)} settings are drawn."
    return join(
        [
            lead(_lead(report)),
            chooser("setting", "Setting", options, keys[main]),
            panels("setting", [(keys[s], _figure(report, s)) for s in shown], keys[main]),
            note(sentences(*_notes(report), left_out if len(settings) > len(shown) else "")),
        ]
    )


def _drawn_settings(report: Report) -> list[Setting]:
    """Return the settings in which a head has both coordinates."""
    return [setting for setting, rows in report.groups.items() if any(is_drawn(row) for row in rows)]


def _lead(report: Report) -> str:
    compared = "Grey squares are baselines, for comparison; they are not part of the line."
    return sentences(
        "Each dot is a head. The line joins the heads that no other head beats at the same bytes or fewer; heads "
        "below it cost more bytes for no more accuracy.",
        compared if any(row.baseline for row in report.rows) else "",
    )


def _notes(report: Report) -> list[str]:
    """Return how to read the figures of these report."""
    swept = {
        "projection": "A number after a head is the dimension of a random projection.",
        "budget": "A word after a head is the client’s budget of bytes.",
    }
    return [
        f"Bars: one standard deviation over {count(report.seeds, 'seed')}." if report.seeds > 1 else "",
        "Filled: on the frontier; hollow: not. The horizontal axis is logarithmic.",
        *(words for key, words in swept.items() if key in report.swept),
    ]


def _figure(report: Report, setting: Setting) -> Html:
    return figure(frontier_chart(report, _once(tuple(row for row in report.groups[setting] if is_drawn(row)))))


def _once(rows: tuple[Row, ...]) -> tuple[Row, ...]:
    """Return rows without those that a budget did not change: the same head, again with the same figures."""
    kept: dict[tuple[object, ...], Row] = {}
    for row in rows:
        kept.setdefault((row.head, row.baseline, row.setting.projection, place_of(row), row.accuracy_std), row)
    return tuple(kept.values())


def frontier_chart(report: Report, rows: tuple[Row, ...]) -> Chart:
    """Return accuracy against bytes: a point a row, and the line of those that no other beats for as few bytes."""
    best = frontier(rows)
    first = next(iter(cheapest(tuple(r for r in rows if r.setting.projection == rows[0].setting.projection))), None)
    points = [_point(row, label_of(report, row), on_frontier=row in best, first=row is first) for row in rows]
    reached = "; ".join(
        f"{label_of(report, row)} {percent(row.accuracy)} with {bytes_(row.up_bytes_per_client)}" for row in best
    )
    return Chart(
        f"Accuracy against bytes sent per client, {methods_of(rows)}. On the frontier: {reached}",
        bytes_scale("bytes sent per client"),
        share_scale(),
        (Series("", tuple(sorted(points, key=lambda point: point.weight)), line=False),),
        traces=(Trace(_steps([place_of(row) for row in best]), "frontier"),) if best else (),
        height=350.0,
    )


def _steps(places: Sequence[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    """Return the frontier as level and upright steps: between two heads, more bytes buy nothing."""
    corners = list(places[:1])
    for (_, y1), (x2, y2) in pairwise(places):
        corners += [(x2, y1), (x2, y2)]
    return (*corners, (math.inf, places[-1][1]))


def _point(row: Row, name: str, *, on_frontier: bool, first: bool) -> Point:
    size, accuracy = place_of(row)
    spread = row.accuracy_std or 0.0
    kinds = {"best": on_frontier, "first": first, "quiet": row.baseline}
    return Point(
        size,
        accuracy,
        max(accuracy - spread, 0.0),
        min(accuracy + spread, 1.0),
        _tip(row, name, on_frontier=on_frontier),
        label=name,
        weight=(2.0 if on_frontier else 1.0) + accuracy,
        symbol=Symbol("square", 4.0, dot=True) if row.baseline else Symbol(size=6.0 if first else 5.0, dot=True),
        kind=" ".join(kind for kind, holds in kinds.items() if holds),
        head=row.head,
        focus=True,
    )


def _tip(row: Row, name: str, *, on_frontier: bool) -> str:
    spread = f" ± {row.accuracy_std * 100:.1f}" if row.accuracy_std is not None else ""
    said = [f"{name}: {place_of(row)[1] * 100:.1f}{spread}{THIN}%", f"{bytes_(row.up_bytes_per_client)} per client"]
    said += [f"sends {row.sends}"] if row.sends else []
    said += ["on the frontier"] if on_frontier else []
    return ", ".join(said + (["a baseline"] if row.baseline else []))
