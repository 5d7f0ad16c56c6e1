"""Direct labels that overlap nothing: each is put where it disturbs least, or left out when there is no room."""

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Label", "Mark", "place_labels", "spread", "text_width"]

#: Font size of labels, and the height that a line of them takes.
SIZE, LINE = 12.5, 15.0
_NARROW, _BROAD = set("iljtfrI.,:;'|!()[]-1 "), set("mwMW@%ABCDEFGHJKLNOPQRSTUVXYZ_…")


@dataclass(frozen=True)
class Mark:
    """A point with the text to put beside it; higher priorities keep their label."""

    x: float
    y: float
    text: str
    priority: float = 0.0
    reach: float = 0.0  # half the length of its error bar


@dataclass(frozen=True)
class Label:
    """Where a label stands: its box, and whether a line must lead to its mark."""

    x: float
    y: float
    width: float
    led: bool
    right: bool = True

    def overlap(self, other: "Label") -> float:
        """Return the area that two boxes share."""
        across = min(self.x + self.width, other.x + other.width) - max(self.x, other.x)
        down = LINE - abs(self.y - other.y)
        return across * down if across > 0 and down > 0 else 0.0


def text_width(text: str, size: float = SIZE) -> float:
    """Return about how wide text is: browsers know exactly, we must not be much too low.

    Examples
    --------
    >>> 40 < text_width("fedcof") < 50
    True
    """
    units = sum(0.34 if c in _NARROW else 0.78 if c in _BROAD else 0.61 for c in text)
    return units * size + 2


Bounds = tuple[float, float, float, float]
Segment = tuple[float, float, float, float]


def place_labels(
    marks: Sequence[Mark], bounds: Bounds, lines: Sequence[Segment] = (), *, reach: int = 72, above: bool = False
) -> list[Label | None]:
    """Return a place for the label of every mark, or None: no two boxes overlap.

    Parameters
    ----------
    marks
        Points to label.
    bounds
        Left, top, right and bottom that no label leaves.
    lines
        Segments (x1, y1, x2, y2), level or upright, that labels should not cover.
    reach
        Pixels that a label may be away from its mark, upwards and downwards.
    above
        Whether a label may also stand above or below its mark rather than beside it.

    Examples
    --------
    >>> a, b = place_labels([Mark(50, 50, "one"), Mark(52, 51, "two")], (0, 0, 200, 100))
    >>> a.overlap(b)
    0.0
    """
    candidates = [_candidates(mark, bounds, reach, above=above) for mark in marks]
    boxes = [(min(x1, x2), min(y1, y2), max(x1, x2), max(y1, y2)) for x1, y1, x2, y2 in lines]
    fixed = [_fixed_costs(found, mark, marks, boxes) for found, mark in zip(candidates, marks, strict=True)]
    chosen: list[Label | None] = [None] * len(marks)
    order = sorted(range(len(marks)), key=lambda i: -marks[i].priority)
    for _ in range(6):
        for i in order:
            others = [label for j, label in enumerate(chosen) if label and j != i]
            costs = [
                cost + 60 * sum(label.overlap(other) for other in others)
                for label, cost in zip(candidates[i], fixed[i], strict=True)
            ]
            chosen[i] = candidates[i][costs.index(min(costs))] if costs else None
    kept: list[Label] = []
    for i in order:
        label = chosen[i]
        if label and any(label.overlap(other) > 0 for other in kept):
            chosen[i] = None
        elif label:
            kept.append(label)
    return chosen


def _candidates(mark: Mark, bounds: Bounds, reach: int, *, above: bool) -> list[Label]:
    width = text_width(mark.text)
    found = []
    if above:
        places = [(share, dy) for dy in (-15.0, 15.0, -19.0, 19.0) for share in (0.5, 0.2, 0.8)]
        found += [Label(mark.x - share * width, mark.y + dy, width, led=False) for share, dy in places]
    for offset in range(0, reach + 1, 4):
        for dy in {offset, -offset}:
            gap = 9 if offset <= 8 else 16
            found.append(Label(mark.x + gap, mark.y + dy, width, offset > 8, right=True))
            found.append(Label(mark.x - gap - width, mark.y + dy, width, offset > 8, right=False))
    left, top, right, bottom = bounds
    return [
        label
        for label in found
        if left <= label.x and label.x + width <= right and top <= label.y - LINE / 2 and label.y + LINE / 2 <= bottom
    ]


def _fixed_costs(labels: Sequence[Label], mark: Mark, marks: Sequence[Mark], lines: Sequence[Segment]) -> list[float]:
    """Return what every place of a label costs; only lines that one of them can cover are looked at."""
    if not labels:
        return []
    left, right = min(label.x for label in labels), max(label.x + label.width for label in labels)
    top, bottom = min(label.y for label in labels) - LINE, max(label.y for label in labels) + LINE
    near = [line for line in lines if line[0] <= right and left <= line[2] and line[1] <= bottom and top <= line[3]]
    return [_fixed_cost(label, mark, marks, near) for label in labels]


def _fixed_cost(label: Label, mark: Mark, marks: Sequence[Mark], lines: Sequence[Segment]) -> float:
    """Return what a place costs whatever the other labels do: distance, and what it covers."""
    cost = abs(label.y - mark.y) * 1.5 + (0 if label.right else 3)
    for other in marks:
        if other is not mark:
            cost += 900 * _covers(label, (other.x - 6, other.y - 6, other.x + 6, other.y + 6))
            cost += 60 * _covers(label, (other.x, other.y - other.reach, other.x, other.y + other.reach))
    cost += sum(45 for line in lines if _covers(label, line))
    if label.led:
        lead = (min(mark.x, _near(label)), min(mark.y, label.y), max(mark.x, _near(label)), max(mark.y, label.y))
        cost += 25 + sum(
            40 for m in marks if m is not mark and lead[0] < m.x < lead[2] and lead[1] - 3 < m.y < lead[3] + 3
        )
    return cost


def _near(label: Label) -> float:
    return label.x if label.right else label.x + label.width


def _covers(label: Label, area: Segment) -> bool:
    """Return whether a label's box meets another one: left, top, right and bottom."""
    x1, y1, x2, y2 = area
    half = LINE / 2
    return label.x <= x2 and x1 <= label.x + label.width and label.y - half <= y2 and y1 <= label.y + half


def spread(places: Sequence[float], low: float, high: float, gap: float = LINE) -> list[float]:
    """Return places as near as possible to the given ones that keep a gap and lie between low and high.

    Examples
    --------
    >>> spread([10, 11, 50], 0, 100, gap=10)
    [5.5, 15.5, 50.0]
    """
    order = sorted(range(len(places)), key=lambda i: places[i])
    groups: list[list[float]] = []  # [sum of wished starts, members]
    for rank, i in enumerate(order):
        groups.append([places[i] - rank * gap, 1])
        while len(groups) > 1 and groups[-2][0] / groups[-2][1] > groups[-1][0] / groups[-1][1]:
            total, members = groups.pop()
            groups[-1] = [groups[-1][0] + total, groups[-1][1] + members]
    starts = [total / members for total, members in groups for _ in range(int(members))]
    top = high - (len(places) - 1) * gap
    found = [0.0] * len(places)
    for rank, i in enumerate(order):
        found[i] = max(min(starts[rank], max(top, low)), low) + rank * gap
    return found
