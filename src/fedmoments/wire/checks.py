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

Second moments that are indefinite or of too high a rank are found in :mod:`fedmoments.wire.evidence`, sums of powers
that exclude each other in :mod:`fedmoments.wire.power_checks`, scatter sketches that no data have in
:mod:`fedmoments.wire.sketch_block`.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.linalg import packed_diagonal
from fedmoments.core.statistics import MOMENTS, FixedPoint, Layout, Statistics
from fedmoments.core.statistics.fixed_point import SLACK
from fedmoments.wire.agreement import Agreement
from fedmoments.wire.body import Refuse
from fedmoments.wire.evidence import MATRICES, Evidence, check_definite, counts_of, read_evidence, relative_error
from fedmoments.wire.power_checks import check_powers
from fedmoments.wire.reason import Reason
from fedmoments.wire.sketch_block import check_sketch

__all__ = ["Index", "check_index", "check_moments"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Moments that are sums of even powers.
EVEN = ("class_norms", "class_squares", "class_fourths")


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


def check_moments(stats: Statistics, agreement: Agreement, refuse: Refuse) -> None:
    """Check the numbers of fixed-point statistics whose shapes, types, labels and counts are right already."""
    _check_entries(stats, agreement.fixed_point, refuse)
    evidence = read_evidence(stats, agreement, refuse)
    _check_lengths(stats, agreement.fixed_point, refuse)
    for check in (check_definite, check_sketch, check_powers, _check_totals):
        check(evidence, refuse)


def _check_entries(stats: Statistics, form: FixedPoint, refuse: Refuse) -> None:
    """Refuse single numbers that no data have, from the extremes of every array, so that nothing is copied."""
    for name, array in stats.arrays.items():
        kind = MOMENTS[name]
        if not array.size or kind.layout is Layout.SKETCH:
            continue
        bits = form.bits(kind.degree)
        allowed = counts_of(stats, kind.layout) * (form.norm_bound**kind.degree * (1 + SLACK))
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


def _check_lengths(stats: Statistics, form: FixedPoint, refuse: Refuse) -> None:
    """Check Σ|x_i|^g ≤ ‖x‖^g ≤ R^g for the moments of degree g ≥ 2: of a matrix, its trace."""
    for name, array in stats.arrays.items():
        kind = MOMENTS[name]
        if kind.degree < 2 or not array.size:
            continue
        numbers = packed_diagonal(array) if name in MATRICES else np.abs(array)
        lengths = np.ldexp(numbers.sum(axis=-1, dtype=np.float64), -form.bits(kind.degree))
        allowed = counts_of(stats, kind.layout) * (form.norm_bound * (1 + SLACK)) ** kind.degree
        allowed = allowed + numbers.shape[-1] * form.resolution(kind.degree) / 2
        if (lengths > allowed).any():
            refuse(
                Reason.OUT_OF_RANGE,
                f"the numbers of its moment '{name}' add up to {lengths.max():.6g}, but its counts and norm_bound="
                f"{form.norm_bound:g} allow {allowed.max():.6g}; clip features to the bound",
            )


def _check_totals(evidence: Evidence, refuse: Refuse) -> None:
    """Check that the diagonal of a gram is what squares or norms of all classes add up to."""
    stats, form = evidence.stats, evidence.form
    if "gram" not in stats.arrays:
        return
    unit, p = form.resolution(2), len(stats.classes)
    diagonal = form.dequantize(packed_diagonal(stats.arrays["gram"]), 2)
    for name in ("class_squares", "class_norms"):
        if name in stats.arrays:
            total = form.dequantize(stats.arrays[name], 2).sum(axis=0)
            own = diagonal if name == "class_squares" else diagonal.sum(keepdims=True)
            roundings = (p + 1 if name == "class_squares" else p + stats.dim) / 2
            allowed = roundings * unit + 2 * relative_error(stats.n_samples, stats.dim) * np.abs(own)
            if (np.abs(own - total) > allowed).any():
                refuse(Reason.INCONSISTENT, f"the diagonal of its 'gram' is not what its '{name}' add up to")


def _some(numbers: Ints) -> str:
    shown = ", ".join(str(number) for number in numbers[:8].tolist())
    return f"[{shown}{', …' if len(numbers) > 8 else ''}]"
