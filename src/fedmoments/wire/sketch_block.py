"""A client's scatter sketch as it travels, and back.

Three tensors: the rows in the plan's code, (s, d), or (s, ⌈d/2⌉) in int4, two numbers a byte; one float32 a row, what a
number of it is worth (but in float64); and the residual trace, one float64. A client without samples has no sketch: no
row, and no residual trace. Where rows belong to classes, they come class by class as labels ascend, and each of its
classes has a residual trace and, in a fourth tensor, how many of the rows are its own.

**Law**: rows that were measured by the agreed plan arrive bit for bit, because coding what was decoded gives the same
codes and scales. Rows that were measured otherwise are brought to the agreed form, the trace ‖V‖² + ρ of each block
unchanged: those beyond the rank that the counts allow are added to the residual trace, the others are coded anew.

Whether a scatter sketch is one that data within the norm bound R can have.

With n_c samples, class sums A_c and a sketch of rows V and residual trace ρ, the trace T = ‖V‖² + ρ is that of the
class-centred scatter M = Σ_c (Σ x xᵀ − A_c A_cᵀ/n_c). Where a class was added up in groups (rows of client means) of
n_g samples and sums A_g, the scatter between its groups is a part of M, and a group of one sample is known:

    Σ_g ‖A_g‖²/n_g − Σ_c ‖A_c‖²/n_c  ≤  T  ≤  Σ_{g: n_g ≥ 2} n_g·R² + Σ_{g: n_g = 1} ‖A_g‖² − Σ_c ‖A_c‖²/n_c.

So a client all of whose classes have one sample has T = 0. Where second moments are sent as well, Σ‖x‖² is known and T
must be what they leave; no coordinate of V has more energy than their diagonal leaves, and VᵀV ⪯ M where they are
matrices. As many rows as there are degrees of freedom, n − |C|, leave no residual trace but what coding them costs.
Where rows belong to classes, all of it holds in each, with n_c − 1 degrees of freedom
(:mod:`fedmoments.wire.class_sketches`).

Slack is as in :mod:`fedmoments.wire.checks`: class sums err by e_c, which moves ‖A_c‖²/n_c by at most
(2‖A_c‖‖e_c‖ + ‖e_c‖²)/n_c, second moments by half a resolution ρ₂ a number, float64 sums by 16·(n + d + 64)·2⁻⁵² of
n·R²; and a row that was coded errs by E, half a step of its code a number, which moves VᵀV by 2‖V‖‖E‖ + ‖E‖².
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.statistics import Sketches, SketchPlan
from fedmoments.core.statistics.coding import (
    CodedRows,
    code_factors,
    coded_factor,
    pack_nibbles,
    unpack_nibbles,
)
from fedmoments.core.statistics.scatter_stream import buffer_rows
from fedmoments.core.statistics.sketch_plan import Choice
from fedmoments.core.statistics.sketches import ALL_CLASSES
from fedmoments.errors import InputError
from fedmoments.wire.agreement import Agreement
from fedmoments.wire.body import FLOATS, Refuse, Tensor
from fedmoments.wire.class_sketches import check_class_sketches, off_by_coding
from fedmoments.wire.evidence import MATRICES, Evidence, is_definite, slack_of, slack_of_sums
from fedmoments.wire.reason import Reason

__all__ = ["RESIDUAL", "ROWS", "SCALES", "SIZES", "check_sketch", "read_sketch", "write_sketch"]


Floats = NDArray[np.float64]
#: Second moments that tell the trace of the scatter.
SECOND = ("class_norms", "class_squares", "gram", "class_grams")
#: What eigenvalues that count as rounding leave of a trace in float64 rows.
LEFT_BY_ROUNDING = 1e-8
#: Half steps by which rows in floats may be shorter than they were, so that they have no more energy than their trace:
#: one of rounding, one back, and up to four times that, for the margin grows fourfold until it suffices.
SHORTENED = 8


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
    if stats.sketches.by_class:
        check_class_sketches(evidence, rounding, refuse)


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
    """Check that rows which span all that samples can span leave nothing.

    A stream of many samples that keeps classes apart may have dropped rows of a class before others came that span it.
    """
    stats, sketches = evidence.stats, evidence.stats.sketches
    counts = evidence.classes.counts[:, 0]
    if sketches.by_class and (counts - 1).sum() > buffer_rows(0):
        return
    spare = counts - 1 if sketches.by_class else (counts - 1).sum(keepdims=True)
    spanned = (sketches.sizes >= np.minimum(spare, stats.dim)) & (spare > 0)
    steps = SHORTENED if evidence.code.startswith("float") else 1
    left, off = sketches.residuals[spanned], steps * off_by_coding(evidence)[spanned]
    size = np.sqrt(np.maximum(sketches.traces[spanned] - left, 0.0))
    if (left > LEFT_BY_ROUNDING * trace + (2 * size + off) * off).any():
        refuse(
            Reason.INCONSISTENT,
            f"its scatter sketch has {int(sketches.sizes[spanned].sum())} rows, all that {stats.n_samples} samples of "
            f"{len(evidence.classes)} classes can span, and yet a residual trace of {left.sum():.6g}",
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
    off = float(np.linalg.norm(off_by_coding(evidence)))
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


Ints = NDArray[np.int64]

ROWS, SCALES, RESIDUAL, SIZES = "moment.scatter_sketch", "sketch_scales", "sketch_residual", "sketch_sizes"
#: Code of sketch rows -> its type in safetensors, and in numpy.
_DTYPES = {
    "float64": ("F64", "<f8"), "float32": ("F32", "<f4"), "float16": ("F16", "<f2"), "int8": ("I8", "i1"),
    "int4": ("U8", "u1"),
}  # fmt: skip


def write_sketch(
    sketches: Sketches, counts: Ints, plan: SketchPlan, choice: Choice
) -> dict[str, tuple[str, NDArray[Any]]]:
    """Return the tensors of a client's sketch: name -> (type, numbers).

    Parameters
    ----------
    sketches
        One block, or one a class; none of a client without samples.
    counts
        (p,) samples of every class.
    plan, choice
        The agreed plan, and what it comes to for these counts: the code, and the most rows.

    Examples
    --------
    >>> one = Sketches(np.array([[127.0, 1.0], [2.0, 0.0]]), np.array([2]), np.array([0.5]), np.array([0]))
    >>> tensors = write_sketch(one, np.array([9]), SketchPlan(), Choice("int8", "int8", rank=1))
    >>> tensors["moment.scatter_sketch"][1], tensors["sketch_scales"][1], tensors["sketch_residual"][1]
    (array([[127,   1]], dtype=int8), array([1.], dtype=float32), array([4.5]))
    """
    _require_one_client(sketches, len(counts), choice)
    limits = _most_rows(sketches, counts, plan, choice)
    parts, residuals = [code_factors(sketches.rows[:0], choice.code)], []
    for (rows, rest, _), most in zip(sketches.blocks(), limits, strict=True):
        block, residual = _coded(rows, rest, most, choice.code)
        parts.append(block)
        residuals.append(residual)
    dtype, kind = _DTYPES[choice.code]
    scales = [part.scales for part in parts if part.scales is not None]
    numbers = np.concatenate([part.numbers for part in parts])
    numbers = pack_nibbles(numbers) if choice.code == "int4" else numbers
    tensors: dict[str, tuple[str, NDArray[Any]]] = {
        ROWS: (dtype, np.ascontiguousarray(numbers + numbers.dtype.type(0), kind)),  # there is one zero
        RESIDUAL: ("F64", np.array(residuals, "<f8") + 0.0),
    }
    if scales:
        tensors[SCALES] = ("F32", np.ascontiguousarray(np.concatenate(scales), "<f4"))
    if choice.by_class:
        tensors[SIZES] = ("I64", np.array([len(part.numbers) for part in parts[1:]], "<i8"))
    return tensors


def _require_one_client(sketches: Sketches, present: int, choice: Choice) -> None:
    expected = present if choice.by_class else min(present, 1)
    if len(sketches) != expected or (expected and sketches.by_class != choice.by_class):
        raise InputError(
            f"a contribution has the scatter sketch of one client, but these statistics hold {len(sketches)} blocks, "
            f"where the agreed plan makes {expected}: send what each client measured by it, not their sum"
        )


def _most_rows(sketches: Sketches, counts: Ints, plan: SketchPlan, choice: Choice) -> list[int]:
    """Return how many rows of every block may leave: those of most energy, within the cap of each class."""
    if not choice.by_class:
        return [choice.rank] * len(sketches)
    caps = plan.class_ranks(counts)
    energies = np.square(sketches.rows).sum(axis=1)
    block = np.repeat(np.arange(len(sketches)), sketches.sizes)
    within = np.arange(len(block)) - sketches.starts[block] < caps[block]
    order = np.flatnonzero(within)[np.argsort(-energies[within], kind="stable")]
    return [int(rows) for rows in np.bincount(block[order[: choice.rank]], minlength=len(sketches))]


def _coded(rows: Floats, residual: float, most: int, code: str) -> tuple[CodedRows, float]:
    """Return the rows of a block in the agreed form, and its residual trace."""
    kept = rows[:most]
    coded = code_factors(kept, code)
    if len(kept) == len(rows) and np.array_equal(coded.values(), rows):
        return coded, residual
    return coded_factor(kept, float(np.square(rows).sum()) + residual, code)


def read_sketch(
    tensors: dict[str, Tensor], classes: Ints, counts: Ints, agreement: Agreement, refuse: Refuse
) -> Sketches:
    """Return a client's sketch; types, shapes and single numbers are checked here, what they say of data elsewhere.

    Parameters
    ----------
    tensors
        With :data:`ROWS`, :data:`RESIDUAL` and, where there are any, :data:`SCALES` and :data:`SIZES`.
    classes, counts
        (p,) labels of the client and samples of each.
    agreement
        With the plan, and so the code and the most rows for these counts.
    refuse
        Called with the reason.
    """
    choice = agreement.choice(int(counts.sum()), len(classes))
    labels = classes if choice.by_class else np.full(min(len(classes), 1), ALL_CLASSES, np.int64)
    numbers = _numbers(tensors[ROWS], agreement.dim, choice, refuse)
    scales = None
    if SCALES in tensors:
        scales = _floats(SCALES, tensors[SCALES], "F32", len(numbers), refuse).astype(np.float32)
    residuals = _floats(RESIDUAL, tensors[RESIDUAL], "F64", len(labels), refuse).astype(np.float64)
    sizes = np.full(len(labels), len(numbers), np.int64)
    if choice.by_class:
        sizes = _sizes(tensors[SIZES], len(numbers), agreement.plan.class_ranks(counts), refuse)
    values = CodedRows(choice.code, numbers, scales).values()
    return Sketches(values, sizes, residuals, np.zeros(len(labels), np.int64), labels)


def _sizes(tensor: Tensor, rows: int, most: Ints, refuse: Refuse) -> Ints:
    """Return how many rows every class has, (p,), all of them together ``rows``."""
    if tensor.dtype != "I64":
        refuse(Reason.DTYPE, f"'{SIZES}' must be int64, but {tensor.dtype} arrived")
    if tensor.shape != most.shape:
        refuse(Reason.SHAPE, f"'{SIZES}' must have the shape {most.shape}, but {tensor.shape} arrived")
    sizes = tensor.array("<i8")
    if ((sizes < 0) | (sizes > most)).any():
        place = int(np.argmax((sizes < 0) | (sizes > most)))
        refuse(
            Reason.INCONSISTENT,
            f"class number {place} of its scatter sketch may have 0 to {most[place]} rows, by the agreed share of its "
            f"samples, but {sizes[place]} arrived",
        )
    if int(sizes.sum()) != rows:
        refuse(
            Reason.INCONSISTENT,
            f"the classes of its scatter sketch have {int(sizes.sum())} rows together, but {rows} arrived",
        )
    return sizes


def _numbers(tensor: Tensor, dim: int, choice: Choice, refuse: Refuse) -> NDArray[Any]:
    """Return sketch rows as they travelled, (s, d)."""
    dtype, kind = _DTYPES[choice.code]
    if tensor.dtype in FLOATS and not np.isfinite(tensor.floats()).all():
        refuse(Reason.NOT_FINITE, "its scatter sketch holds NaN or infinity, where only numbers were allowed")
    if tensor.dtype != dtype:
        refuse(
            Reason.DTYPE,
            f"the rows of its scatter sketch must be {dtype}, by what its counts leave of the budget, but "
            f"{tensor.dtype} arrived",
        )
    _require_room(tensor.shape, dim, choice, refuse)
    numbers = tensor.array(kind)
    if choice.code == "int8" and (numbers == -128).any():
        refuse(Reason.OUT_OF_RANGE, "the rows of its scatter sketch are of -127 to 127, but hold -128")
    return _halves(numbers, dim, refuse) if choice.code == "int4" else numbers


def _require_room(shape: tuple[int, ...], dim: int, choice: Choice, refuse: Refuse) -> None:
    """Refuse rows of another width, or more of them than agreed."""
    width = (dim + 1) // 2 if choice.code == "int4" else dim
    if len(shape) != 2 or shape[1] != width:
        refuse(
            Reason.SHAPE,
            f"the rows of its scatter sketch must have the shape (rows, {width}), but {shape} arrived",
        )
    if shape[0] > choice.rank:
        refuse(
            Reason.SHAPE,
            f"its scatter sketch may have {choice.rank} rows, by the agreed plan and its counts, but "
            f"{shape[0]} arrived",
        )


def _halves(packed: NDArray[np.uint8], dim: int, refuse: Refuse) -> NDArray[np.int8]:
    """Return the numbers (s, d) that bytes (s, ⌈d/2⌉) hold; half a byte that is left over must be 0."""
    numbers = unpack_nibbles(packed)
    if (numbers == -8).any():
        refuse(Reason.OUT_OF_RANGE, "the rows of its scatter sketch are of -7 to 7, but hold -8")
    if numbers[:, dim:].any():
        refuse(Reason.OUT_OF_RANGE, f"half a byte behind the {dim} numbers of a sketch row must be 0")
    return numbers[:, :dim]


def _floats(name: str, tensor: Tensor, dtype: str, length: int, refuse: Refuse) -> NDArray[np.floating[Any]]:
    """Return finite numbers of 0 or more."""
    if tensor.dtype != dtype:
        refuse(Reason.DTYPE, f"'{name}' must be {dtype}, but {tensor.dtype} arrived")
    if tensor.shape != (length,):
        refuse(Reason.SHAPE, f"'{name}' must have the shape {(length,)}, but {tensor.shape} arrived")
    numbers = tensor.floats()
    if not np.isfinite(numbers).all():
        refuse(Reason.NOT_FINITE, f"'{name}' holds NaN or infinity, where only numbers were allowed")
    if numbers.min(initial=math.inf) < 0:
        refuse(Reason.INCONSISTENT, f"'{name}' must be 0 or more, but {numbers.min():.6g} arrived")
    return numbers
