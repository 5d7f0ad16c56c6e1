"""Whether numbers that arrived are such as labelled features within the norm bound R can have.

Sound numbers are never refused, so every inequality is tested with the slack that a sound client needs:

- **fixed point**: every number was rounded to the resolution ρ of its degree, an error of at most ρ/2; a class sum that
  is added up from r rows errs by r·ρ/2.
- **coded means**: a mean that travelled as float16, bfloat16, float32 or int8 errs as
  :mod:`fedmoments.wire.mean_rows` says: at most a unit in its last place, or half a step of its row.
- **float64**: a sum of n terms errs by at most γ = (n + d + 64)·2⁻⁵² of the sum of their absolute values, in whatever
  order they were added.
- **the norm bound**: features are often normalised in float32, so norms up to R·(1 + 10⁻⁵) count as within R, and
  single entries up to n·R^degree·(1 + 10⁻⁵), as in ``FixedPoint``: no sum in a ledger can overflow.

Indefinite second moments are found in :mod:`fedmoments.wire.definite`, scatter sketches of a trace that no data have
in :mod:`fedmoments.wire.sketch_checks`.
"""

import math
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.linalg import blocks, packed_diagonal
from fedmoments.core.statistics import MOMENTS, FixedPoint, Layout, Statistics
from fedmoments.core.statistics.fixed_point import SLACK
from fedmoments.core.statistics.moments import cell_sums
from fedmoments.wire.agreement import Agreement
from fedmoments.wire.body import Refuse
from fedmoments.wire.definite import check_definite
from fedmoments.wire.mean_rows import error_norms, mean_errors
from fedmoments.wire.reason import Reason
from fedmoments.wire.sketch_checks import check_sketch

__all__ = ["Index", "check_index", "check_moments"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

UNIT = 2.0**-52
#: Moments that are sums of even powers; packed matrices; power sums with their degree, from matrices their diagonal.
EVEN = ("class_norms", "class_squares", "class_fourths")
MATRICES = ("gram", "class_grams")
POWERS = {"class_squares": 2, "class_grams": 2, "class_thirds": 3, "class_fourths": 4}
#: So many numbers of each power are compared at once.
BLOCK_NUMBERS = 2**15


@dataclass(frozen=True)
class Index:
    """Labels and counts of classes, (p,) each, and of rows kept apart, (r,) each."""

    classes: Ints
    class_counts: Ints
    row_labels: Ints
    row_counts: Ints

    @property
    def n_samples(self) -> int:
        """How many samples its classes have together."""
        return int(self.class_counts.sum())


def check_index(index: Index, agreement: Agreement, refuse: Refuse) -> None:
    """Check labels and counts."""
    classes, counts, row_labels, row_counts = index.classes, index.class_counts, index.row_labels, index.row_counts
    if counts.shape != classes.shape or row_counts.shape != row_labels.shape:
        refuse(
            Reason.SHAPE,
            f"labels and counts must be as many, but {len(classes)} classes have {len(counts)} counts and "
            f"{len(row_labels)} rows have {len(row_counts)}",
        )
    n_classes = agreement.n_classes
    if len(classes) and (classes[0] < 0 or classes[-1] >= n_classes or (classes[1:] <= classes[:-1]).any()):
        refuse(
            Reason.LABELS,
            f"labels must ascend from 0 to {n_classes - 1} without repetition, but {_some(classes)} arrived",
        )
    _check_counts(index, agreement.fixed_point.max_samples, refuse)
    if agreement.spec.keeps_clients_apart:
        _check_rows(index, agreement.spec.means_per_client, refuse)


def _check_counts(index: Index, most: int, refuse: Refuse) -> None:
    """Check that counts are from 1 to ``most``, alone and together."""
    for name, numbers in (("class_counts", index.class_counts), ("row_counts", index.row_counts)):
        if len(numbers) and (numbers.min() < 1 or numbers.max() > most):
            refuse(Reason.NEGATIVE_COUNT, f"'{name}' must be from 1 to {most}, but {_some(numbers)} arrived")
    total = sum(index.class_counts.tolist())
    if total > most:
        refuse(
            Reason.NEGATIVE_COUNT, f"it holds {total} samples, but max_samples={most} was agreed on for all together"
        )


def _check_rows(index: Index, most: int, refuse: Refuse) -> None:
    """Check that rows belong to classes, ascend, are few enough, and add up."""
    classes, counts, row_labels, row_counts = index.classes, index.class_counts, index.row_labels, index.row_counts
    if np.array_equal(row_labels, classes):
        sums = row_counts
    elif len(row_labels) > len(classes) * most:
        refuse(
            Reason.LABELS,
            f"a class may have {most} rows of means, but {len(row_labels)} of {len(classes)} classes arrived",
        )
    else:
        places = np.searchsorted(classes, row_labels)
        known = places < len(classes)
        if not known.all() or not np.array_equal(classes[places], row_labels) or (np.diff(row_labels) < 0).any():
            refuse(
                Reason.LABELS,
                f"rows must be of the classes {_some(classes)}, ascending, but {_some(row_labels)} arrived",
            )
        if len(row_labels) and np.bincount(places).max() > most:
            refuse(Reason.LABELS, f"a class may have {most} rows of means, but {_some(row_labels)} arrived")
        sums = np.zeros_like(counts)
        np.add.at(sums, places, row_counts)
    if sum(row_counts.tolist()) != sum(counts.tolist()) or not np.array_equal(sums, counts):
        refuse(
            Reason.INCONSISTENT,
            f"the counts of its rows must add up to those of its classes, {_some(counts)}, but {_some(sums)} arrived",
        )


@dataclass(frozen=True)
class Sums:
    """Class sums (p, d) in float64, how far each may be off ((p, d) or (p, 1)), and their counts (p, 1)."""

    values: Floats
    errors: Floats
    counts: Floats


def check_moments(stats: Statistics, agreement: Agreement, refuse: Refuse) -> None:
    """Check the numbers of fixed-point statistics whose shapes, types, labels and counts are right already."""
    form = agreement.fixed_point
    _check_entries(stats, form, refuse)
    sums = _class_sums(stats, agreement, refuse)
    _check_lengths(stats, form, refuse)
    check_definite(stats, sums.values, sums.errors, form, refuse)
    check_sketch(stats, sums.values, sums.errors, form, refuse)
    _check_powers(stats, sums, form, refuse)
    _check_totals(stats, form, refuse)


def _check_entries(stats: Statistics, form: FixedPoint, refuse: Refuse) -> None:
    """Refuse single numbers that no data have, from the extremes of every array, so that nothing is copied."""
    for name, array in stats.arrays.items():
        kind = MOMENTS[name]
        if not array.size or kind.layout is Layout.SKETCH:
            continue
        bits = form.bits(kind.degree)
        allowed = _counts(stats, kind.layout) * (form.norm_bound**kind.degree * (1 + SLACK))
        most = np.floor(np.ldexp(allowed, bits) + 0.5)
        low, high = array.min(axis=-1), array.max(axis=-1)
        if (high > most).any() or (low < -most).any():
            worst = math.ldexp(max(int(high.max()), -int(low.min())), -bits)
            refuse(
                Reason.OUT_OF_RANGE,
                f"its moment '{name}' holds {worst:.6g} in size, more than its count times norm_bound**{kind.degree} "
                f"allows (norm_bound={form.norm_bound:g}); clip features to the bound",
            )
        if name in EVEN and (low < 0).any():
            refuse(
                Reason.INCONSISTENT,
                f"its moment '{name}', a sum of even powers, must be 0 or more, but holds "
                f"{math.ldexp(int(low.min()), -bits):.6g}",
            )


def _counts(stats: Statistics, layout: Layout) -> Floats:
    """Return over how many samples the numbers of a layout sum, (p,), (r,) or ()."""
    counts = {Layout.CLASS: stats.class_counts, Layout.ROWS: stats.row_counts}
    return counts.get(layout, np.asarray(stats.n_samples)).astype(np.float64)


def _class_sums(stats: Statistics, agreement: Agreement, refuse: Refuse) -> Sums:
    """Return the class sums, sent or added up from rows, once no norm is beyond what its count allows."""
    form = agreement.fixed_point
    counts = stats.class_counts[:, None].astype(np.float64)
    name = "sums" if "sums" in stats.arrays else "client_means"
    chosen = agreement.choice(stats.n_samples, len(counts)).means or "int64"
    stored = stats.arrays[name]
    values = form.dequantize(stored, degree=1)
    samples = _counts(stats, MOMENTS[name].layout)
    errors = form.resolution(1) / 2 + mean_errors(values, samples, "int64" if name == "sums" else chosen)
    norms = np.sqrt(np.einsum("ij,ij->i", values, values))
    allowed = samples * form.norm_bound * (1 + SLACK) + error_norms(errors, stats.dim)
    if (norms > allowed).any():
        worst = int(np.argmax(norms / allowed))
        refuse(
            Reason.OUT_OF_RANGE,
            f"'{name}' holds a sum of {samples[worst]:.0f} features whose norm is {norms[worst]:.6g}, but norm_bound="
            f"{form.norm_bound:g} allows {allowed[worst]:.6g}; clip features to the bound",
        )
    if name == "sums" or len(stored) == len(counts):  # one row a class
        return Sums(values, errors, counts)
    cells, p = np.searchsorted(stats.classes, stats.row_labels), len(counts)
    return Sums(form.dequantize(cell_sums(stored, cells, p), degree=1), cell_sums(errors, cells, p), counts)


def _check_lengths(stats: Statistics, form: FixedPoint, refuse: Refuse) -> None:
    """Check Σ|x_i|^g ≤ ‖x‖^g ≤ R^g for the moments of degree g ≥ 2: of a matrix, its trace."""
    for name, array in stats.arrays.items():
        kind = MOMENTS[name]
        if kind.degree < 2 or not array.size:
            continue
        numbers = packed_diagonal(array) if name in MATRICES else np.abs(array)
        lengths = np.ldexp(numbers.sum(axis=-1, dtype=np.float64), -form.bits(kind.degree))
        allowed = _counts(stats, kind.layout) * (form.norm_bound * (1 + SLACK)) ** kind.degree
        allowed = allowed + numbers.shape[-1] * form.resolution(kind.degree) / 2
        if (lengths > allowed).any():
            refuse(
                Reason.OUT_OF_RANGE,
                f"the numbers of its moment '{name}' add up to {lengths.max():.6g}, but its counts and norm_bound="
                f"{form.norm_bound:g} allow {allowed.max():.6g}; clip features to the bound",
            )


def _check_powers(stats: Statistics, sums: Sums, form: FixedPoint, refuse: Refuse) -> None:
    """Check Lyapunov's inequality m_b^(c−a) ≤ m_a^(c−b)·m_c^(b−a) of power sums, coordinate by coordinate.

    It holds for all degrees a < b < c where a and c are even; for (0, 1, 2) it is Cauchy and Schwarz's, n·Σx² ≥ (Σx)².
    """
    for some in blocks(len(stats.classes), max(1, BLOCK_NUMBERS // stats.dim)):
        counts, values, errors = sums.counts[some], sums.values[some], sums.errors[some]
        rounding = 1 + 16 * _gamma(counts, stats.dim)
        known = {0: (counts, 0.0), 1: (values, errors), **_power_sums(stats, some, form)}
        for a, b, c in combinations(sorted(known), 3):
            if a % 2 == 0 and c % 2 == 0:
                least = _lower(known[b]) ** (c - a)
                if (least > _upper(known[a]) ** (c - b) * _upper(known[c]) ** (b - a) * rounding).any():
                    refuse(Reason.INCONSISTENT, f"its sums of powers {a}, {b} and {c} are such as no data have")
        if "class_norms" in stats.arrays:
            norms = form.dequantize(stats.arrays["class_norms"][some], 2) + form.resolution(2) / 2
            least = np.square(_lower((values, errors))).sum(axis=1, keepdims=True)
            if (least > counts * norms * rounding).any():
                refuse(Reason.INCONSISTENT, "its 'class_norms' are smaller than its counts and class sums allow")


def _power_sums(stats: Statistics, some: slice, form: FixedPoint) -> dict[int, tuple[Floats, Any]]:
    """Return sums of powers of some classes by degree, and how far they may be off."""
    sums: dict[int, tuple[Floats, Any]] = {}
    for name, degree in POWERS.items():
        if name in stats.arrays:
            array = stats.arrays[name][some]
            numbers = form.dequantize(packed_diagonal(array) if name in MATRICES else array, degree)
            sums[degree] = (numbers, form.resolution(degree) / 2)
    return sums


def _check_totals(stats: Statistics, form: FixedPoint, refuse: Refuse) -> None:
    """Check that the diagonal of a gram is what squares or norms of all classes add up to."""
    if "gram" not in stats.arrays:
        return
    unit, p = form.resolution(2), len(stats.classes)
    diagonal = form.dequantize(packed_diagonal(stats.arrays["gram"]), 2)
    for name in ("class_squares", "class_norms"):
        if name in stats.arrays:
            total = form.dequantize(stats.arrays[name], 2).sum(axis=0)
            own = diagonal if name == "class_squares" else diagonal.sum(keepdims=True)
            roundings = (p + 1 if name == "class_squares" else p + stats.dim) / 2
            allowed = roundings * unit + 2 * _gamma(stats.n_samples, stats.dim) * np.abs(own)
            if (np.abs(own - total) > allowed).any():
                refuse(Reason.INCONSISTENT, f"the diagonal of its 'gram' is not what its '{name}' add up to")


def _gamma(counts: Any, dim: int) -> Any:
    """Return the relative error of float64 sums over ``counts`` samples."""
    return UNIT * (counts + (dim + 64))


def _lower(known: tuple[Floats, Any]) -> Floats:
    return np.asarray(np.maximum(np.abs(known[0]) - known[1], 0.0))


def _upper(known: tuple[Floats, Any]) -> Floats:
    return np.asarray(np.maximum(known[0], 0.0) + known[1])


def _some(numbers: Ints) -> str:
    shown = ", ".join(str(number) for number in numbers[:8].tolist())
    return f"[{shown}{', …' if len(numbers) > 8 else ''}]"
