"""Direct labels that overlap nothing: each is put where it disturbs least, or left out when there is no room."""

from collections.abc import Sequence
from dataclasses import dataclass

from fedmoments.pages.markup import Html, tag

__all__ = ["Bounds", "Label", "Mark", "Segment", "place_labels", "spread", "text_width"]

#: Font size of labels, and the height that a line of them takes.
SIZE, LINE = 12.5, 15.0
#: Pixels that a label may be away from its mark, upwards and downwards; and how often all places are looked at again.
REACH, ROUNDS = 160, 6
_NARROW, _BROAD = set("iljtfrI.,:;'|!()[]-1 "), set("mwMW@%ABCDEFGHJKLNOPQRSTUVXYZ_…")


@dataclass(frozen=True)
class Mark:
    """A point with the text to put beside it; higher priorities keep their label."""

    x: float
    y: float
    text: str
    priority: float = 0.0


@dataclass(frozen=True)
class Label:
    """Where a label stands: its box, and whether a line must lead to its mark."""

    x: float
    y: float
    width: float
    led: bool
    right: bool = True

    @property
    def anchor(self) -> float:
        """Where its words start, or end when they stand left of the mark."""
        return self.x if self.right else self.x + self.width

    def leader(self, place: tuple[float, float]) -> Html | None:
        """Return the line that leads to it from its mark, where it needs one."""
        end = self.anchor + (-2 if self.right else 2)
        return tag("line", x1=place[0], y1=place[1], x2=end, y2=self.y, class_="leader") if self.led else None

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


def place_labels(marks: Sequence[Mark], bounds: Bounds, lines: Sequence[Segment] = ()) -> list[Label | None]:
    """Return a place for the label of every mark, or None: no two boxes overlap.

    Parameters
    ----------
    marks
        Points to label.
    bounds
        Left, top, right and bottom that no label leaves.
    lines
        Segments (x1, y1, x2, y2), level or upright or short, that labels should not cover.

    Examples
    --------
    >>> a, b = place_labels([Mark(50, 50, "one"), Mark(52, 51, "two")], (0, 0, 200, 100))
    >>> a.overlap(b)
    0.0
    """
    candidates = [_candidates(mark, bounds) for mark in marks]
    boxes = [(min(x1, x2), min(y1, y2), max(x1, x2), max(y1, y2)) for x1, y1, x2, y2 in lines]
    fixed = [_fixed_costs(candidate, mark, marks, boxes) for candidate, mark in zip(candidates, marks, strict=True)]
    chosen: list[Label | None] = [None] * len(marks)
    order = sorted(range(len(marks)), key=lambda i: -marks[i].priority)
    for _ in range(ROUNDS):
        for i in order:
            others = [label for j, label in enumerate(chosen) if label and j != i]
            chosen[i] = _cheapest(candidates[i], fixed[i], others)
    return _kept(chosen, order)


def _cheapest(candidates: Sequence[Label], fixed: Sequence[float], others: Sequence[Label]) -> Label | None:
    """Return the place that costs least beside other labels."""
    costs = [
        cost + 60 * sum(label.overlap(other) for other in others) for label, cost in zip(candidates, fixed, strict=True)
    ]
    return candidates[costs.index(min(costs))] if costs else None


def _kept(chosen: Sequence[Label | None], order: Sequence[int]) -> list[Label | None]:
    """Return labels without those that overlap one of a higher priority."""
    kept: list[Label | None] = [None] * len(chosen)
    for i in order:
        label = chosen[i]
        if label and not any(other and label.overlap(other) > 0 for other in kept):
            kept[i] = label
    return kept


def _candidates(mark: Mark, bounds: Bounds) -> list[Label]:
    width = text_width(mark.text)
    places = [(share, dy) for dy in (-15.0, 15.0, -19.0, 19.0) for share in (0.5, 0.2, 0.8)]
    labels = [Label(mark.x - share * width, mark.y + dy, width, led=False) for share, dy in places]
    for offset in range(0, REACH + 1, 4):
        gap = 9 if offset <= 8 else 16
        for dy in {offset, -offset}:
            labels.append(Label(mark.x + gap, mark.y + dy, width, offset > 8, right=True))
            labels.append(Label(mark.x - gap - width, mark.y + dy, width, offset > 8, right=False))
    return [label for label in labels if _inside(label, bounds)]


def _inside(label: Label, bounds: Bounds) -> bool:
    left, top, right, bottom = bounds
    return left <= label.x <= right - label.width and top + LINE / 2 <= label.y <= bottom - LINE / 2


def _fixed_costs(labels: Sequence[Label], mark: Mark, marks: Sequence[Mark], lines: Sequence[Segment]) -> list[float]:
    """Return what every place of a label costs; only lines that one of them can cover are looked at."""
    if not labels:
        return []
    xs, ys = [label.x for label in labels], [label.y for label in labels]
    reached = (min(xs), min(ys) - LINE, max(xs) + labels[0].width, max(ys) + LINE)  # all labels are as wide
    near = [line for line in lines if _meet(line, reached)]
    others = [other for other in marks if other is not mark]
    return [_fixed_cost(label, mark, others, near) for label in labels]


def _fixed_cost(label: Label, mark: Mark, others: Sequence[Mark], lines: Sequence[Segment]) -> float:
    """Return what a place costs whatever the other labels do: distance, and what it covers."""
    cost = abs(label.y - mark.y) * 1.5 + (0 if label.right else 3)
    box = (label.x, label.y - LINE / 2, label.x + label.width, label.y + LINE / 2)
    cost += 900 * sum(_meet(box, (other.x - 6, other.y - 6, other.x + 6, other.y + 6)) for other in others)
    cost += 45 * sum(_meet(box, line) for line in lines)
    if label.led:
        near = label.anchor
        lead = (min(mark.x, near), min(mark.y, label.y), max(mark.x, near), max(mark.y, label.y))
        cost += 25 + 40 * sum(lead[0] < other.x < lead[2] and lead[1] - 3 < other.y < lead[3] + 3 for other in others)
    return cost


def _meet(one: Segment, other: Segment) -> bool:
    """Return whether two boxes meet: left, top, right and bottom."""
    return one[0] <= other[2] and other[0] <= one[2] and one[1] <= other[3] and other[1] <= one[3]


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
    spread_places = [0.0] * len(places)
    for rank, i in enumerate(order):
        spread_places[i] = max(min(starts[rank], max(top, low)), low) + rank * gap
    return spread_places
