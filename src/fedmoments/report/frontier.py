"""Accuracy against bytes sent per client: every head, its spread over seeds, and the frontier of what bytes buy."""

from collections.abc import Sequence

from fedmoments.report.answer import cheapest, frontier
from fedmoments.report.axes import Box, both, frame, linear_axis, log_axis, svg
from fedmoments.report.choosing import chooser, panels
from fedmoments.report.formats import THIN, bytes_, count, percent
from fedmoments.report.labels import LINE, Label, Mark, Segment, place_labels
from fedmoments.report.markup import Html, Node, join, tag
from fedmoments.report.reading import Results, Row, Setting, methods_of

__all__ = ["frontier_section"]

#: Settings of a sweep that get a chart of their own.
MOST_SETTINGS = 24


def frontier_section(results: Results) -> Html | None:
    """Return the section, or None when no head has both an accuracy and a size, or all share one upload."""
    if results.is_federation:
        return None
    settings = [s for s, rows in results.groups.items() if any(row.drawn for row in rows)]
    if not settings:
        return None
    shown = settings[:MOST_SETTINGS]
    wanted = results.group_of(results.main_setting)
    main = wanted if wanted in shown else shown[0]
    keys = {setting: f"s{i}" for i, setting in enumerate(shown)}
    options = [(key, results.group_words(setting)) for setting, key in keys.items()]
    spread = f"Bars: one standard deviation over {count(results.seeds, 'seed')}. " if results.seeds > 1 else ""
    left_out = (
        f" The first {MOST_SETTINGS} of {len(settings)} settings are drawn." if len(settings) > len(shown) else ""
    )
    compared = (
        " Baselines (grey squares) are compared with, and are not part of the line."
        if any(row.baseline for row in results.rows)
        else ""
    )
    return join(
        [
            tag(
                "p",
                "Every dot is a head. The line joins those that no other head beats for as few bytes; "
                f"to its lower right, bytes are wasted.{compared}",
                class_="lead",
            ),
            chooser("setting", "Setting", options, keys[main]),
            panels("setting", [(keys[s], _figure(results, s)) for s in shown], keys[main]),
            tag(
                "p",
                f"{spread}Filled: on the frontier; hollow: not. The horizontal axis is logarithmic."
                f"{_more(results)}{left_out}",
                class_="note",
            ),
        ]
    )


def _more(results: Results) -> str:
    """Return what else there is in the figures of these results."""
    told = " A number behind a head is the dimension of a random projection." if "projection" in results.swept else ""
    return told + (" A word behind a head is a client’s budget of bytes." if "budget" in results.swept else "")


def _figure(results: Results, setting: Setting) -> Html:
    rows = _once(tuple(row for row in results.groups[setting] if row.drawn))
    names = [results.label(row) for row in rows]
    return tag("figure", both(lambda width: _chart(rows, names, width)))


def _once(rows: tuple[Row, ...]) -> tuple[Row, ...]:
    """Return rows without those that a budget did not change: the same head, again with the same figures."""
    kept: dict[tuple[object, ...], Row] = {}
    for row in rows:
        kept.setdefault((row.head, row.baseline, row.setting.projection, row.place, row.deviation), row)
    return tuple(kept.values())


def _chart(rows: tuple[Row, ...], names: list[str], width: float) -> Html:
    narrow = width < 500
    height = 430.0
    box = Box(44.0, 30.0, width - 8, height - 46)
    ends = [row.place[1] + sign * (row.deviation or 0) for row in rows for sign in (-1, 1)]
    y = linear_axis(ends, box.bottom, box.top + 8, lambda v: f"{v * 100:g}", bounds=(0.0, 1.0))
    x = log_axis([row.place[0] for row in rows], box.left, box.right, lambda v: bytes_(v).replace(f".0{THIN}", THIN))
    best = frontier(rows)
    first = next(iter(cheapest(tuple(r for r in rows if r.setting.projection == rows[0].setting.projection))), None)
    places = [(x(row.place[0]), y(row.place[1])) for row in best]
    steps = _steps(places, box.right)
    marks = [
        Mark(
            x(row.place[0]),
            y(row.place[1]),
            name,
            priority=(2.0 if row in best else 1.0) + row.place[1],
            reach=abs(y(row.place[1]) - y(min(1.0, row.place[1] + (row.deviation or 0)))),
        )
        for row, name in zip(rows, names, strict=True)
    ]
    labels = place_labels(marks, (box.left - (40 if narrow else 0), box.top, box.right, box.bottom - 2), steps)
    drawn: list[Node] = [frame(box, x, y, "bytes sent per client", f"accuracy,{THIN}%")]
    if steps:
        path = "M" + "L".join(f"{x1:.1f},{y1:.1f}" for x1, y1 in [steps[0][:2], *(step[2:] for step in steps)])
        drawn.append(tag("path", d=path, class_="frontier"))
    drawn += [_leader(mark, label) for mark, label in zip(marks, labels, strict=True) if label]
    for row, mark, label in sorted(zip(rows, marks, labels, strict=True), key=lambda each: each[0] in best):
        drawn.append(_point(row, mark, label, on_frontier=row in best, first=row is first))
    named = {id(row): name for row, name in zip(rows, names, strict=True)}
    title = f"Accuracy against bytes sent per client, {methods_of(rows)}. On the frontier: " + "; ".join(
        f"{named[id(row)]} {percent(row.accuracy)} with {bytes_(row.bytes_per_client)}" for row in best
    )
    return svg(width, height, title, *drawn, role="group")


def _steps(places: Sequence[tuple[float, float]], right: float) -> list[Segment]:
    """Return the frontier as level and upright segments: between two heads, more bytes buy nothing."""
    found: list[Segment] = []
    if not places:
        return found
    for (x1, y1), (x2, y2) in zip(places, [*places[1:], (right, places[-1][1])], strict=True):
        found.append((x1, y1, x2, y1))
        if y1 != y2:
            found.append((x2, y1, x2, y2))
    return found


def _leader(mark: Mark, label: Label) -> Html | None:
    if not label.led:
        return None
    end = label.x - 2 if label.right else label.x + label.width + 2
    return tag("line", x1=mark.x, y1=mark.y, x2=end, y2=label.y, class_="leader")


def _point(row: Row, mark: Mark, label: Label | None, *, on_frontier: bool, first: bool) -> Html:
    spread = f" ± {(row.deviation or 0) * 100:.1f}" if row.deviation is not None else ""
    told = (
        f"{mark.text}: {(row.accuracy or 0) * 100:.1f}{spread}{THIN}%, {bytes_(row.bytes_per_client)} a client"
        + (f", sends {row.sends}" if row.sends else "")
        + (", on the frontier" if on_frontier else "")
        + (", a baseline" if row.baseline else "")
    )
    bar: list[Node] = []
    if mark.reach > 0.5:
        ends = (mark.y - mark.reach, mark.y + mark.reach)
        bar = [tag("line", x1=mark.x, x2=mark.x, y1=ends[0], y2=ends[1], class_="error")]
        bar += [tag("line", x1=mark.x - 4, x2=mark.x + 4, y1=end, y2=end, class_="error") for end in ends]
    words = None
    if label:
        words = tag(
            "text",
            mark.text,
            x=label.x + (0 if label.right else label.width),
            y=label.y,
            dy="0.34em",
            text_anchor="start" if label.right else "end",
            class_="label quiet" if row.baseline else "label",
        )
    size = 6.0 if first else 5.0
    dot = tag("circle", cx=mark.x, cy=mark.y, r=size, class_="dot")
    if row.baseline:
        dot = tag("rect", x=mark.x - 4, y=mark.y - 4, width=8.0, height=8.0, class_="dot")
    return tag(
        "g",
        tag("title", told),
        tag("circle", cx=mark.x, cy=mark.y, r=LINE - 3, class_="hit"),
        *bar,
        dot,
        words,
        class_="point" + (" best" if on_frontier else "") + (" first" if first else ""),
        data_head=row.head,
        tabindex="0",
        role="img",
    )
