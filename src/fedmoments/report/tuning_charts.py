"""Charts of tuning: accuracy against rounds, bytes or FLOPs, one line a start, with one-shot heads as rings.

A line is the mean over seeds, the band about it reaches from the lowest seed to the highest. A start has the same
colour in all charts; the random one, which others are compared with, is grey. A random start begins near chance: the
vertical axis begins where the other lines are, and the grey one enters from below.
"""

from collections.abc import Sequence
from itertools import pairwise

from fedmoments.report.axes import Axis, Box, frame, linear_axis, svg
from fedmoments.report.formats import THIN, bytes_, flops_, percent, shorten
from fedmoments.report.labels import Label, Mark, Segment, place_labels, spread, text_width
from fedmoments.report.lines import MOST_LABELS, STYLES, Line, Place, Point, marker, path_above
from fedmoments.report.markup import Html, Node, join, tag
from fedmoments.report.tuning_axes import Against, horizontal, optimiser_name
from fedmoments.report.tuning_reading import RANDOM, OneShot, Run, Tuning

__all__ = ["accuracy_range", "curve_chart"]

#: Pixels between points that tell what they are, and between those that have a marker.
TELL, SHOW = 18.0, 64.0
#: Pixels between corners of a line, and of a band.
PATH, BAND = 1.5, 6.0
#: Share of the vertical axis below the lowest line of a start that is not random.
ROOM_BELOW = 0.3


def accuracy_range(tuning: Tuning) -> tuple[float, float] | None:
    """Return the lowest and highest accuracy that charts show, or None when none is known.

    All of every line is shown, but of random starts only the upper part.
    """
    known: list[float] = []
    tops: list[float] = []
    for run in tuning.runs:
        figures = [figure for _, figure in run.trail if figure]
        tops += [max(figure.high for figure in figures)] if figures else []
        if run.start == RANDOM:
            known += [figures[-1].low] if figures else []
            known += [run.end.low] if run.end else []
        else:
            known += [figure.low for figure in figures]
    tops += [head.accuracy.high for head in tuning.heads]
    known += [head.accuracy.low for head in tuning.heads]
    if not tops:
        return None
    low, high = min([*known, *tops]), max(tops)
    if any(run.start == RANDOM for run in tuning.runs):
        low -= ROOM_BELOW * (high - low)
    return max(low, 0.0), min(high, 1.0)


def curve_chart(
    tuning: Tuning,
    optimiser: str,
    against: Against,
    *,
    size: tuple[float, float],
    bounds: tuple[float, float],
) -> Html | None:
    """Return one chart, or None when no run has anything on its horizontal axis.

    Parameters
    ----------
    tuning
        All runs: a start has the same colour whatever is drawn.
    optimiser
        Whose runs are drawn.
    against
        The horizontal axis.
    size
        Width and height in pixels.
    bounds
        Lowest and highest accuracy, so that neighbouring charts share the vertical axis.
    """
    runs = tuning.under(optimiser)
    lines = [line for run in runs if (line := _line(tuning, run, against)).points]
    heads = [(head, at) for head in tuning.heads if (at := against.head(head)) is not None]
    if not lines:
        return None
    width, height = size
    room = min(max(text_width(line.name) for line in lines) + 18, width * 0.36)
    box = Box(36.0, 28.0, width - room, height - 46)
    y = linear_axis(bounds, box.bottom, box.top + 6, lambda v: f"{v * 100:g}", ticks=9, bounds=(0.0, 1.0))
    places = [point.x for line in lines for point in line.points] + [at for _, at in heads]
    x = horizontal(against, places, box.left + 6, box.right - 6)
    drawn: list[Node] = [frame(box, x, y, against.axis_title, f"accuracy,{THIN}%")]
    target = tuning.target(optimiser)
    level = y(target) if target is not None and y.low <= target <= y.high else None
    if level is not None:
        drawn.append(tag("line", x1=box.left, x2=box.right, y1=level, y2=level, class_="target"))
    drawn += [_drawn(line, x, y) for line in lines]
    drawn += _names(lines, x, y, box, width)
    avoided = [(box.left, level, box.right, level)] if level is not None else []
    drawn += _heads(tuning, heads, (x, y), box, avoided + _segments(lines, x, y))
    return svg(width, height, _spoken(runs, optimiser, against), *drawn, role="group")


def _spoken(runs: Sequence[Run], optimiser: str, against: Against) -> str:
    """Return the chart for those who cannot see it."""
    ends = [f"from {run.start} to {percent(run.end.mean)}" for run in runs if run.end]
    return f"Accuracy against {against.title.lower()}, {optimiser_name(optimiser)}: {'; '.join(ends)}"


# ---------------------------------------------------------------------------------------------- lines


def _line(tuning: Tuning, run: Run, against: Against) -> Line:
    points = []
    for spot, figure in run.trail:
        x = against.spot(spot)
        if figure is None or x is None:
            continue
        told = f"{run.start}, round {spot.round}: {percent(figure.mean)}"
        if figure.seeds > 1:
            told += f" ({figure.low * 100:.1f} to {figure.high * 100:.1f} over {figure.seeds} seeds)"
        costs = [bytes_(spot.bytes) if spot.bytes else "", flops_(spot.flops) if spot.flops else ""]
        told += "".join(f", {cost}" for cost in costs if cost)
        points.append(Point(x, figure.mean, figure.low, figure.high, told))
    return Line(run.start, _number(tuning, run.start), tuple(points), baseline=run.start == RANDOM)


def _number(tuning: Tuning, start: str) -> int:
    """Return a start's number among those that are not random: its colour in all charts."""
    others = [each for each in tuning.starts if each != RANDOM]
    return others.index(start) if start in others else 0


def _drawn(line: Line, x: Axis, y: Axis) -> Html:
    """Return band, line and markers of a start; what lies below the vertical axis is cut off."""
    places = [(x(point.x), y(point.y)) for point in line.points]
    floor = y.start
    drawn: list[Node] = []
    if any(point.high - point.low > 1e-9 for point in line.points):
        kept = [(places[i][0], line.points[i]) for i in _apart(places, BAND)]
        upper = [(a, min(y(point.high), floor)) for a, point in kept]
        lower = [(a, min(y(point.low), floor)) for a, point in kept]
        corners = " ".join(f"{a:.1f},{b:.1f}" for a, b in [*upper, *reversed(lower)])
        drawn.append(tag("polygon", points=corners, class_="band"))
    drawn.append(tag("path", d=path_above([places[i] for i in _apart(places, PATH)], floor), class_="line"))
    style = 1 if line.baseline else line.number % STYLES
    told, shown = _chosen(places, floor, TELL), _chosen(places, floor, SHOW)
    for i in sorted(told | shown):
        a, b = places[i]
        drawn.append(
            tag(
                "g",
                tag("title", line.points[i].told),
                tag("circle", cx=a, cy=b, r=9.0, class_="hit"),
                marker(style, a, b) if i in shown else None,
                class_="point",
            )
        )
    return tag("g", *drawn, class_=f"series {line.style}", data_head=line.name)


def _apart(places: Sequence[Place], gap: float) -> list[int]:
    """Return the first place, the last, and those between them that lie a gap to the right of the one before."""
    found = [0]
    for i in range(1, len(places) - 1):
        if places[i][0] - places[found[-1]][0] >= gap:
            found.append(i)
    return sorted({*found, len(places) - 1})


def _chosen(places: Sequence[Place], floor: float, gap: float) -> set[int]:
    """Return which places above the floor are far enough from the one before, and the first and the last of them."""
    seen = [i for i, (_, b) in enumerate(places) if b <= floor]
    found: list[int] = []
    for i in seen:
        last = places[found[-1]] if found else None
        if last is None or abs(places[i][0] - last[0]) + abs(places[i][1] - last[1]) >= gap:
            found.append(i)
    if len(found) > 1 and found[-1] != seen[-1]:
        found.pop()  # the last of all has its place instead
    return {*found, *seen[-1:]}


def _names(lines: Sequence[Line], x: Axis, y: Axis, box: Box, width: float) -> list[Node]:
    """Return the names of starts, beside the ends of their lines."""
    ends = lines[:MOST_LABELS]
    wished = [min(y(line.points[-1].y), box.bottom) for line in ends]
    drawn: list[Node] = []
    for line, place, wish in zip(ends, spread(wished, box.top, box.bottom, gap=15.0), wished, strict=True):
        start = box.right + 8
        drawn.append(tag("line", x1=x(line.points[-1].x) + 5, y1=wish, x2=start - 2, y2=place, class_="leader"))
        look = "quiet" if line.baseline else f"t{line.number % STYLES}"
        name = shorten(line.name.rpartition("/")[2], int((width - start) / 7.2))
        drawn.append(tag("text", name, x=start, y=place, dy="0.34em", class_=f"label {look}"))
    return drawn


# ---------------------------------------------------------------------------------------------- one-shot heads


def _segments(lines: Sequence[Line], x: Axis, y: Axis) -> list[Segment]:
    """Return what lines cover, about."""
    found: list[Segment] = []
    for line in lines:
        places = [(x(point.x), y(point.y)) for point in line.points]
        kept = [places[i] for i in sorted(_chosen(places, y.start, TELL))]
        found += [(*a, *b) for a, b in pairwise(kept)]
    return found


def _heads(
    tuning: Tuning,
    heads: Sequence[tuple[OneShot, float]],
    axes: tuple[Axis, Axis],
    box: Box,
    covered: Sequence[Segment],
) -> list[Node]:
    """Return a ring for every one-shot head, in the colour of the start that it is, or else with its name."""
    x, y = axes
    inside = [(head, place) for head, place in heads if y.low <= head.accuracy.mean <= y.high]
    own = [(head, place) for head, place in inside if head.name not in tuning.starts]
    marks = [Mark(x(place), y(head.accuracy.mean), head.name, head.accuracy.mean) for head, place in own]
    labels = place_labels(marks, (box.left, box.top, box.right, box.bottom - 2), covered)
    named = {head.name: label for (head, _), label in zip(own, labels, strict=True)}
    return [_ring(tuning, head, (x(place), y(head.accuracy.mean)), named.get(head.name)) for head, place in inside]


def _ring(tuning: Tuning, head: OneShot, place: Place, label: Label | None) -> Html:
    told = f"{head.name}, one shot: {percent(head.accuracy.mean)}"
    costs = [bytes_(head.bytes) if head.bytes else "", flops_(head.flops) if head.flops else ""]
    told += "".join(f", {cost}" for cost in costs if cost)
    colour = f" s{_number(tuning, head.name) % STYLES}" if head.name in tuning.starts else ""
    words: list[Node] = []
    if label:
        end = label.x - 2 if label.right else label.x + label.width + 2
        words = [tag("line", x1=place[0], y1=place[1], x2=end, y2=label.y, class_="leader")] if label.led else []
        at = label.x + (0 if label.right else label.width)
        anchor = "start" if label.right else "end"
        words.append(tag("text", head.name, x=at, y=label.y, dy="0.34em", text_anchor=anchor, class_="label quiet"))
    return tag(
        "g",
        tag("title", told),
        tag("circle", cx=place[0], cy=place[1], r=10.0, class_="hit"),
        join(words),
        tag("circle", cx=place[0], cy=place[1], r=6.0, class_="dot"),
        class_=f"point shot{colour}",
        data_head=head.name,
        tabindex="0",
        role="img",
    )
