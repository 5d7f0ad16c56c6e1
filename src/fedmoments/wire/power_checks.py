"""Whether sums of powers of one coordinate over a class are those of n numbers from −R to R.

Of n, m₁ = Σx, m₂ = Σx², m₃ = Σx³ and m₄ = Σx⁴ those that were sent are known up to rounding; each is a *range*, and
those that were not sent have the widest one. Conditions that data fulfil narrow the ranges; if one becomes empty, no
data have these sums. With the largest size of a number ϱ² ≤ min(R², m₂), and s_k the sums of (x − m₁/n)^k:

- **Hankel**: [[n, m₁, m₂], [m₁, m₂, m₃], [m₂, m₃, m₄]] ⪰ 0, that is m₂ ≥ m₁²/n, s₄ ≥ s₂²/n and s₃² ≤ s₂(s₄ − s₂²/n);
  for groups of samples that were added up apart, m₂ ≥ Σ A²/n and m₄ ≥ Σ A⁴/n³ over the groups;
- **within −ϱ and ϱ**: [[ϱ²n − m₂, ϱ²m₁ − m₃], [·, ϱ²m₂ − m₄]] ⪰ 0 and [[ϱn ± m₁, ϱm₁ ± m₂], [·, ϱm₂ ± m₃]] ⪰ 0, so
  |m₃| ≤ ϱm₂ and m₄ ≤ ϱ²m₂. With the Hankel conditions this is all that four moments of a *measure* have to fulfil;
- **n numbers, not a measure**: s₄ ≤ s₂², |s₃| ≤ s₂^{3/2}; for three or fewer s₄ = s₂²/2, for two s₃ = 0 (Newton); where
  every sample is known by itself, all sums follow.

Ranges have half a resolution, what the code of means and the norm bound leave (:mod:`fedmoments.wire.checks`), and 4γ
of the sum of absolute values for float64; centred sums 16·2⁻⁵² of the sizes of their terms besides.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.linalg import blocks
from fedmoments.core.statistics.moments import cell_sums
from fedmoments.wire.body import Refuse
from fedmoments.wire.evidence import MATRICES, UNIT, Evidence, Sums, relative_error
from fedmoments.wire.reason import Reason

__all__ = ["check_powers"]

Floats = NDArray[np.float64]

POWERS = {"class_squares": 2, "class_grams": 2, "class_thirds": 3, "class_fourths": 4}
#: So many numbers of each power are compared at once.
BLOCK_NUMBERS = 2**13


@dataclass
class Ranges:
    """Least and largest value of m₁ … m₄, (p, w) each, for counts n (p, 1) and numbers from −ϱ to ϱ."""

    n: Floats
    low: dict[int, Floats]
    high: dict[int, Floats]
    refuse: Refuse
    where: str

    def narrow(self, degree: int, low: Floats, high: Floats, law: str) -> None:
        """Keep of a moment what a condition leaves; refuse if that is nothing."""
        self.low[degree] = np.maximum(self.low[degree], low)
        self.high[degree] = np.minimum(self.high[degree], high)
        if (self.low[degree] > self.high[degree]).any():
            self.refuse(
                Reason.INCONSISTENT,
                f"its sums of powers {self.where} are such as no data have: {law}",
            )

    def middle(self, degree: int) -> tuple[Floats, Floats]:
        """Return a moment, and how far it may be off."""
        low, high = self.low[degree], self.high[degree]
        return (low + high) / 2, (high - low) / 2


def check_powers(evidence: Evidence, refuse: Refuse) -> None:
    """Check sums of powers of every class, and of all classes where only a gram has the second ones."""
    stats = evidence.stats
    if not any(name in stats.arrays for name in (*POWERS, "class_norms")):
        return
    known = evidence.known[:, None]
    width = max(1, min(stats.dim, BLOCK_NUMBERS))
    for rows in blocks(len(stats.classes), max(1, BLOCK_NUMBERS // width)):
        for columns in blocks(stats.dim, width):
            _check_block(evidence, known[rows], rows, columns, refuse)
    if "gram" in stats.arrays and "class_squares" not in stats.arrays and len(stats.classes):
        for columns in blocks(stats.dim, width):
            _check_union(evidence, columns, refuse)
    if "class_norms" in stats.arrays:
        _check_norms(evidence, refuse)


def _check_block(evidence: Evidence, known: Any, rows: slice, columns: slice, refuse: Refuse) -> None:
    """Check some classes in some coordinates."""
    stats, form, bound = evidence.stats, evidence.form, evidence.bound
    sums = evidence.classes[rows]
    ranges = _widest(Sums(sums.values[:, columns], _columns(sums.errors, columns), sums.counts), evidence, refuse)
    for name, degree in POWERS.items():
        if name in stats.arrays and name not in MATRICES:
            _take(ranges, degree, form.dequantize(stats.arrays[name][rows, columns], degree), evidence, bound)
    if "class_grams" in stats.arrays:
        _take(ranges, 2, evidence.second("class_grams")[rows, columns], evidence, bound)
    _groups(ranges, evidence, known, rows, columns)
    if "class_norms" in stats.arrays:
        norms = form.dequantize(stats.arrays["class_norms"][rows], 2)
        room = form.resolution(2) + 4 * relative_error(sums.counts, stats.dim) * norms
        ranges.narrow(2, ranges.low[2], norms + room, "Σx² is more than its 'class_norms' allow")
    if "gram" in stats.arrays:
        most = evidence.second("gram")[columns]
        room = form.resolution(2) + 4 * relative_error(stats.n_samples, stats.dim) * most
        ranges.narrow(2, ranges.low[2], np.broadcast_to(most + room, ranges.high[2].shape), "Σx² is more than a gram's")
    _conditions(ranges, bound)


def _check_union(evidence: Evidence, columns: slice, refuse: Refuse) -> None:
    """Check sums over all classes against the diagonal of a gram."""
    stats, form, bound = evidence.stats, evidence.form, evidence.bound
    n = np.array([[float(stats.n_samples)]])
    values = evidence.classes.values[:, columns].sum(axis=0, keepdims=True)
    errors = _columns(evidence.classes.errors, columns).sum(axis=0, keepdims=True)
    ranges = _widest(Sums(values, errors, n), evidence, refuse)
    ranges.where = f"{ranges.where} over all its classes, with the diagonal of its gram,"
    _take(ranges, 2, evidence.second("gram")[None, columns], evidence, bound)
    for name in ("class_thirds", "class_fourths"):
        if name in stats.arrays:
            total = stats.arrays[name][:, columns].sum(axis=0, keepdims=True, dtype=np.float64)
            degree = POWERS[name]
            room = len(stats.classes) * form.resolution(degree)
            _take(ranges, degree, np.ldexp(total, -form.bits(degree)), evidence, bound, room=room)
    _conditions(ranges, bound)


def _widest(sums: Sums, evidence: Evidence, refuse: Refuse) -> Ranges:
    """Return ranges that hold for any data of these sums."""
    n, values, bound = sums.counts, sums.values, evidence.bound
    errors = sums.errors + 4 * relative_error(n, evidence.stats.dim) * n * bound
    high = {1: values + errors, **{degree: np.broadcast_to(n * bound**degree, values.shape) for degree in (2, 3, 4)}}
    low = {1: values - errors, 2: np.zeros_like(values), 3: -high[3], 4: np.zeros_like(values)}
    return Ranges(n, low, high, refuse, "(n, Σx, Σx², Σx³, Σx⁴)")


def _take(ranges: Ranges, degree: int, values: Floats, evidence: Evidence, bound: float, *, room: float = 0.0) -> None:
    """Narrow a moment to what was sent, up to rounding."""
    share = 4 * relative_error(ranges.n, evidence.stats.dim)
    sizes = np.abs(values) if degree != 3 else bound * ranges.high[2]
    error = evidence.form.resolution(degree) / 2 + room + share * sizes
    ranges.narrow(degree, values - error, values + error, f"Σx^{degree} is beyond its count times R^{degree}")


def _groups(ranges: Ranges, evidence: Evidence, known: Any, rows: slice, columns: slice) -> None:
    """Narrow moments by the sums of groups: from below, and to what is known where every sample stands alone."""
    some = np.flatnonzero((evidence.places >= rows.start) & (evidence.places < rows.stop))
    groups, places, p = evidence.groups[some], evidence.places[some] - rows.start, len(ranges.n)
    sizes, errors = groups.values[:, columns], _columns(groups.errors, columns)
    errors = errors + 4 * relative_error(groups.counts, evidence.stats.dim) * groups.counts * evidence.bound
    shortest = np.maximum(np.abs(sizes) - errors, 0.0)
    for degree in (2, 3, 4):
        room = 1 - 64 * UNIT
        if degree != 3:
            least = cell_sums(shortest**degree / groups.counts ** (degree - 1), places, p) * room
            ranges.narrow(degree, least, ranges.high[degree], f"Σx^{degree} is less than its class sums allow")
        powers = sizes**degree
        spread = (np.abs(sizes) + errors) ** degree - np.abs(powers) + 64 * UNIT * np.abs(powers)
        exact, off = cell_sums(powers, places, p), cell_sums(spread, places, p)
        low = np.where(known, exact - off, ranges.low[degree])
        high = np.where(known, exact + off, ranges.high[degree])
        ranges.narrow(degree, low, high, f"Σx^{degree} is not that of its samples, each of which stands alone")


def _conditions(ranges: Ranges, bound: float) -> None:
    """Narrow the ranges by everything that n numbers of at most ``bound`` fulfil."""
    n = ranges.n
    first = np.maximum(np.maximum(ranges.low[1], -ranges.high[1]), 0.0)
    ranges.narrow(2, first**2 / n * (1 - 64 * UNIT), ranges.high[2], "n·Σx² < (Σx)²")
    ranges.narrow(2, ranges.low[2], np.sqrt(n * ranges.high[4]) * (1 + 64 * UNIT), "n·Σx⁴ < (Σx²)²")
    ranges.narrow(4, ranges.low[2] ** 2 / n * (1 - 64 * UNIT), ranges.high[4], "n·Σx⁴ < (Σx²)²")
    largest = np.minimum(bound**2, ranges.high[2])
    root = np.sqrt(largest)
    most = ranges.high[2] * (1 + 64 * UNIT)
    ranges.narrow(3, -root * most, root * most, "|Σx³| > R·Σx²")
    ranges.narrow(4, ranges.low[4], largest * most, "Σx⁴ > R²·Σx²")
    _within(ranges, largest, root)
    _centred(ranges)


def _within(ranges: Ranges, largest: Floats, root: Floats) -> None:
    """Narrow the third moments by what numbers from −ϱ to ϱ fulfil."""
    n, (first, off) = ranges.n, ranges.middle(1)
    low, high = ranges.low, ranges.high
    for sign in (-1.0, 1.0):  # (ϱm₁ ± m₂)² ≤ (ϱn ± m₁)(ϱm₂ ± m₃)
        second, second_off = ranges.middle(2)
        rounding = 64 * UNIT * root * n
        least = np.maximum(np.abs(root * first + sign * second) - root * off - second_off - root * rounding, 0.0)
        space = np.maximum(root * n + sign * first, 0.0) + off + rounding
        taken = np.divide(least**2, space, out=np.zeros_like(least), where=least > 0)
        edge = root * high[2] - taken + largest * rounding  # at least −±m₃
        least_third, most_third = (-edge, high[3]) if sign > 0 else (low[3], edge)
        ranges.narrow(3, least_third, most_third, "Σx³ is such as no numbers from −R to R have")
    spread = np.maximum(largest * n - low[2], 0.0) * np.maximum(largest * high[2] - low[4], 0.0)
    radius = np.sqrt(spread) * (1 + 64 * UNIT) + largest * off + 256 * UNIT * largest * root * n
    ranges.narrow(3, largest * first - radius, largest * first + radius, "Σx³ and Σx⁴ leave the range −R to R")


def _centred(ranges: Ranges) -> None:
    """Narrow the third and fourth moments by what sums round the mean fulfil."""
    n, (first, off) = ranges.n, ranges.middle(1)
    mean = first / n
    size = np.abs(mean)
    second, second_off = ranges.middle(2)
    s2_off = second_off + 2 * size * off + 16 * UNIT * (second + size * np.abs(first))
    s2 = second - mean * first
    s2_high, s2_low = np.maximum(s2 + s2_off, 0.0), np.maximum(s2 - s2_off, 0.0)
    even = 3 * mean * second - 2 * mean**2 * first  # Σx³ of numbers without skewness, as any two are
    room = 1.5 * off * s2_high + 0.5 * off**3 + 3 * size * second_off + 3 * size**2 * off
    room += 16 * UNIT * (3 * size * second + 2 * size**3 * n)
    low, high = np.where(n == 2, even - room, ranges.low[3]), np.where(n == 2, even + room, ranges.high[3])
    ranges.narrow(3, low, high, "two numbers have no skewness")
    third, third_off = ranges.middle(3)
    s3 = third - 3 * mean * second + 2 * mean**2 * first
    s3_off = third_off + 3 * size * second_off + 3 * size**2 * off
    s3_off += 16 * UNIT * (np.abs(third) + 3 * size * second + 2 * size**3 * n)
    fourth, fourth_off = ranges.middle(4)
    s4 = fourth - 4 * mean * third + 6 * mean**2 * second - 3 * mean**3 * first
    s4_off = fourth_off + 4 * size * third_off + 6 * size**2 * second_off + 4 * size**3 * off
    s4_off += 16 * UNIT * (fourth + 4 * size * np.abs(third) + 6 * size**2 * second + 3 * size**4 * n)
    s4_high = s4 + s4_off
    least = s2_low**2 / n * (1 - 64 * UNIT)
    _empty(ranges, s4_high < least, "n·s₄ < s₂²")
    radius = np.sqrt(s2_high * np.maximum(s4_high - least, 0.0)) * (1 + 64 * UNIT) + off * s2_high / n
    _empty(ranges, np.abs(s3) > s3_off + radius, "the Hankel determinant of its first four moments is negative")
    _empty(ranges, np.abs(s3) - s3_off > s2_high**1.5 * (1 + 64 * UNIT), "its skewness is more than n numbers can have")
    _empty(ranges, s4 - s4_off > s2_high**2 * (1 + 64 * UNIT), "its kurtosis is more than n numbers can have")
    room = s4_off + (4 / 3) * off * s2_high**1.5 + off**2 * s2_high + off**4 / 6 + (s2_high**2 - s2_low**2) / 4
    _empty(
        ranges,
        (n <= 3) & (np.abs(s4 - (s2_high**2 + s2_low**2) / 4) > room * (1 + 64 * UNIT) + 64 * UNIT * s2_high**2),
        "three numbers or fewer have the fourth moment that their first three have",
    )


def _empty(ranges: Ranges, wrong: NDArray[np.bool_], law: str) -> None:
    """Refuse if there is a contradiction anywhere."""
    if wrong.any():
        ranges.refuse(Reason.INCONSISTENT, f"its sums of powers {ranges.where} are such as no data have: {law}")


def _check_norms(evidence: Evidence, refuse: Refuse) -> None:
    """Check Σ‖x‖² of every class against the sums of its groups and the powers of its coordinates."""
    stats, form, n = evidence.stats, evidence.form, evidence.classes.counts
    rounding = 16 * relative_error(n, stats.dim)
    norms, half = form.dequantize(stats.arrays["class_norms"], 2), form.resolution(2) / 2
    groups = evidence.groups
    shortest = np.square(np.maximum(np.abs(groups.values) - groups.errors, 0.0)).sum(axis=1, keepdims=True)
    least = evidence.per_class(shortest / groups.counts)
    if (least > (norms + half) * (1 + rounding)).any():
        refuse(Reason.INCONSISTENT, "its 'class_norms' are smaller than its counts and class sums allow")
    longest = np.square(np.abs(groups.values) + groups.errors).sum(axis=1, keepdims=True)
    most = np.where(evidence.known[:, None], evidence.per_class(longest), np.inf)
    if ((norms - half) * (1 - rounding) > most).any():
        refuse(Reason.INCONSISTENT, "its 'class_norms' are not those of samples that stand alone in their class")
    for name, degree in (("class_thirds", 3), ("class_fourths", 4)):
        if name in stats.arrays:
            numbers = np.abs(form.dequantize(stats.arrays[name], degree))
            total, room = numbers.sum(axis=1, keepdims=True), stats.dim * form.resolution(degree) / 2
            if (total - room > evidence.bound ** (degree - 2) * (norms + half) * (1 + rounding)).any():
                refuse(Reason.INCONSISTENT, f"its '{name}' are larger than its 'class_norms' and the norm bound allow")
            if (
                degree == 4
                and (np.maximum(norms - half, 0.0) ** 2 * (1 - rounding) > n * stats.dim * (total + room)).any()
            ):
                refuse(Reason.INCONSISTENT, "its 'class_fourths' are smaller than its 'class_norms' allow")


def _columns(errors: Floats, columns: slice) -> Floats:
    """Return errors (g, d) of some coordinates; those that are the same in all (g, 1) as they are."""
    return errors if errors.shape[1] == 1 else errors[:, columns]
