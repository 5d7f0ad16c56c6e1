"""Whether a scatter sketch is one that data within the norm bound R can have.

With n_c samples, class sums A_c and a sketch of rows V and residual trace ρ, the trace T = ‖V‖² + ρ is that of the
class-centred scatter M = Σ_c (Σ x xᵀ − A_c A_cᵀ/n_c). Where a class was added up in groups (rows of client means) of
n_g samples and sums A_g, the scatter between its groups is a part of M, and a group of one sample is known:

    Σ_g ‖A_g‖²/n_g − Σ_c ‖A_c‖²/n_c  ≤  T  ≤  Σ_{g: n_g ≥ 2} n_g·R² + Σ_{g: n_g = 1} ‖A_g‖² − Σ_c ‖A_c‖²/n_c.

So a client all of whose classes have one sample has T = 0. Where second moments are sent as well, Σ‖x‖² is known and T
must be what they leave; no coordinate of V has more energy than their diagonal leaves, and VᵀV ⪯ M where they are
matrices. As many rows as there are degrees of freedom, n − |C|, leave no residual trace (asked of float64 rows alone).
Where rows belong to classes, the upper bound and the last sentence hold in each, with n_c − 1 degrees of freedom.

Slack is as in :mod:`fedmoments.wire.checks`: class sums err by e_c, which moves ‖A_c‖²/n_c by at most
(2‖A_c‖‖e_c‖ + ‖e_c‖²)/n_c, second moments by half a resolution ρ₂ a number, float64 sums by 16·(n + d + 64)·2⁻⁵² of
n·R²; and a row that was coded errs by E, half a step of its code a number, which moves VᵀV by 2‖V‖‖E‖ + ‖E‖².
"""

import math

import numpy as np
from numpy.typing import NDArray

from fedmoments.wire.body import Refuse
from fedmoments.wire.definite import is_definite, slack_of, slack_of_sums
from fedmoments.wire.evidence import MATRICES, Evidence
from fedmoments.wire.reason import Reason

__all__ = ["check_sketch"]

Floats = NDArray[np.float64]
#: Second moments that tell the trace of the scatter.
SECOND = ("class_norms", "class_squares", "gram", "class_grams")
#: Half a step of a code, in the largest number of a row.
HALF_STEPS = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "int8": 0.5 / 127}
#: What eigenvalues that count as rounding leave of a trace in float64 rows.
LEFT_BY_ROUNDING = 1e-8


def check_sketch(evidence: Evidence, refuse: Refuse) -> None:
    """Check the trace and the rows of a client's scatter sketch, if it has one.

    Parameters
    ----------
    evidence
        A contribution.
    refuse
        Called with the reason.
    """
    stats, classes = evidence.stats, evidence.classes
    if not stats.spec.has_sketch or not len(classes):
        return
    with np.errstate(over="ignore"):
        trace = stats.sketches.trace
    if (stats.sketch_residuals < 0).any():
        refuse(
            Reason.INCONSISTENT,
            f"the residual trace of its scatter sketch must be 0 or more, but is {stats.sketch_residuals.min():.6g}",
        )
    single = classes.counts[:, 0] == 1
    with np.errstate(over="ignore"):
        nothing = stats.sketches.traces[single if stats.sketches.by_class else single.all(keepdims=True)]
    if nothing.any():
        whose = "a class" if stats.sketches.by_class else "every class"
        refuse(
            Reason.INCONSISTENT,
            f"{whose} has one sample, so that there is no scatter, but its scatter sketch has the trace "
            f"{nothing.max():.6g}: its counts are not those of its sketch",
        )
    rounding = 16 * 2.0**-52 * (stats.n_samples + stats.dim + 64) * stats.n_samples * evidence.bound**2
    _check_most(evidence, rounding, refuse)
    _check_least(evidence, trace, rounding, refuse)
    _check_residual(evidence, trace, refuse)
    _check_second_moments(evidence, trace, slack_of_sums(classes) + rounding, refuse)
    _check_rows(evidence, slack_of_sums(classes) + rounding, refuse)


def _check_most(evidence: Evidence, rounding: float, refuse: Refuse) -> None:
    """Check the trace, or that of every class, against counts, sums and the norm bound."""
    classes, groups = evidence.classes, evidence.groups
    shortest = np.square(np.maximum(np.abs(classes.values) - classes.errors, 0.0)).sum(axis=1) / classes.counts[:, 0]
    longest = np.square(np.abs(groups.values) + groups.errors).sum(axis=1)
    squares = np.where(groups.counts[:, 0] > 1, groups.counts[:, 0] * evidence.bound**2, longest)
    most = np.maximum(evidence.per_class(squares[:, None])[:, 0] - shortest, 0.0) * (classes.counts[:, 0] > 1)
    sketches = evidence.stats.sketches
    allowed = (most if sketches.by_class else most.sum(keepdims=True)) + rounding
    with np.errstate(over="ignore"):
        traces = sketches.traces
    for place in np.flatnonzero(~(traces <= allowed)).tolist():  # infinity is refused too
        where = f" in class {sketches.labels[place]}" if sketches.by_class else ""
        refuse(
            Reason.OUT_OF_RANGE,
            f"its scatter sketch has the trace {traces[place]:.6g}{where}, but its counts, its means and norm_bound="
            f"{evidence.form.norm_bound:g} allow {allowed[place]:.6g}; clip features to the bound",
        )


def _check_least(evidence: Evidence, trace: float, rounding: float, refuse: Refuse) -> None:
    """Check that the trace is no less than what the rows of means of a class spread by."""
    classes, groups = evidence.classes, evidence.groups
    between = float((np.square(groups.values) / groups.counts).sum())
    between -= float((np.square(classes.values) / classes.counts).sum())
    if trace < between - slack_of_sums(groups) - slack_of_sums(classes) - rounding:
        refuse(
            Reason.INCONSISTENT,
            f"its scatter sketch has the trace {trace:.6g}, but the rows of means of its classes spread by "
            f"{between:.6g} alone: measure both from the same samples",
        )


def _check_residual(evidence: Evidence, trace: float, refuse: Refuse) -> None:
    """Check that rows which span all that samples can span leave nothing."""
    stats, sketches = evidence.stats, evidence.stats.sketches
    counts = evidence.classes.counts[:, 0]
    spare = counts - 1 if sketches.by_class else (counts - 1).sum(keepdims=True)
    spanned = (sketches.sizes >= np.minimum(spare, stats.dim)) & (spare > 0)
    left = float(sketches.residuals[spanned].sum())
    if evidence.code == "float64" and left > LEFT_BY_ROUNDING * trace:
        refuse(
            Reason.INCONSISTENT,
            f"its scatter sketch has {int(sketches.sizes[spanned].sum())} rows, all that {stats.n_samples} samples of "
            f"{len(evidence.classes)} classes can span, and yet a residual trace of {left:.6g}",
        )


def _check_second_moments(evidence: Evidence, trace: float, slack: float, refuse: Refuse) -> None:
    """Check that a sketch has the trace that every second moment less the class sums leaves."""
    classes = evidence.classes
    explained = float((np.square(classes.values) / classes.counts).sum())
    for name in SECOND:
        if name not in evidence.stats.arrays:
            continue
        numbers = evidence.second(name)
        total = float(numbers.sum())
        if abs(total - explained - trace) > slack + numbers.size * evidence.form.resolution(2) / 2:
            refuse(
                Reason.INCONSISTENT,
                f"the trace of its scatter sketch, {trace:.6g}, is not what its '{name}' less its class sums leave, "
                f"{total - explained:.6g}: measure both from the same samples",
            )


def _check_rows(evidence: Evidence, slack: float, refuse: Refuse) -> None:
    """Check that no direction of the rows has more energy than second moments less the class sums leave."""
    stats, classes, form = evidence.stats, evidence.classes, evidence.form
    rows = stats.sketches.rows
    peaks = np.abs(rows).max(axis=1, initial=0.0)
    off = math.sqrt(stats.dim) * HALF_STEPS[evidence.code] * float(np.sqrt(np.square(peaks).sum()))
    slack += (2 * math.sqrt(float(np.square(rows).sum())) + off) * off
    explained = (np.square(classes.values) / classes.counts).sum(axis=0)
    energy = np.square(rows).sum(axis=0)
    for name in ("class_squares", *MATRICES):
        if name not in stats.arrays:
            continue
        total = np.atleast_2d(evidence.second(name)).sum(axis=0)
        if (energy - (total - explained) > slack + len(classes) * form.resolution(2) / 2).any():
            refuse(
                Reason.INCONSISTENT,
                f"the rows of its scatter sketch have more energy in a coordinate than its '{name}' leave it",
            )
    if len(rows) and (packed := _packed_gram(evidence)) is not None:
        beside = np.concatenate([classes.values / np.sqrt(classes.counts), rows])
        if not is_definite(packed, beside, slack + len(classes) * slack_of(packed, classes, form), form):
            refuse(
                Reason.INCONSISTENT,
                "the rows of its scatter sketch have more energy in a direction than its second moments leave it",
            )


def _packed_gram(evidence: Evidence) -> NDArray[np.int64] | None:
    """Return the gram of all samples, if second moments tell it."""
    arrays = evidence.stats.arrays
    if "gram" in arrays:
        return arrays["gram"]
    return arrays["class_grams"].sum(axis=0) if "class_grams" in arrays else None
