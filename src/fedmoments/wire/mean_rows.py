"""Rows of client means as they travel, and back to fixed-point sums.

========  ======================  ==============================================================================
type      tensor                  a mean errs by at most
========  ======================  ==============================================================================
int64     I64, fixed-point sums   nothing beyond the fixed point
float32   F32, means              2⁻²⁰ of itself (rounding, and the cut at the norm bound)
float16   F16, means              2⁻¹⁰ of itself, and 2⁻²⁴
bfloat16  BF16, means             2⁻⁷ of itself, and 2⁻¹³³
int8      U8, low + u·step        half a step (max − min)/255 of its row, 2⁻²⁰ of the row's largest, and 2⁻¹²⁶
========  ======================  ==============================================================================

int8 has a tensor of F32 beside it, (r, 2): ``low`` and ``step`` of every row. Means become sums
round(mean · count · 2^bits) again, the same on every machine. No mean is ever rounded beyond the norm bound.

**Law (one encoding)**: writing what was read gives the same bytes. A code may be finer than the fixed point or coarser,
so sums are coded and read back until they stay as they are: the lowest and highest sum of a row do after one pass, the
others after the next.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.statistics import FixedPoint
from fedmoments.core.statistics.coding import CodedRows, code_means
from fedmoments.core.statistics.fixed_point import SLACK
from fedmoments.core.statistics.rounding import MOST_PASSES
from fedmoments.wire.body import Refuse, Tensor
from fedmoments.wire.reason import Reason

__all__ = ["DTYPES", "MEAN_SCALES", "error_norms", "mean_errors", "read_means", "write_means"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Name of a type in an agreement -> its name in safetensors.
DTYPES = {"int64": "I64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "int8": "U8"}
#: The tensor of lows and steps, (r, 2).
MEAN_SCALES = "mean_scales"
#: Relative and absolute error of a mean: one unit in its last place, or what is cut off at the norm bound.
ERRORS = {
    "int64": (0.0, 0.0),
    "float32": (2.0**-20, 2.0**-126),
    "float16": (2.0**-10, 2.0**-24),
    "bfloat16": (2.0**-7, 2.0**-133),
    "int8": (2.0**-20, 2.0**-126),
}
#: Half of a step of int8, in spreads (max − min) of a row, and a little for the rounding of the step.
HALF_STEP = 0.5 / 255 * (1 + 2.0**-10)
#: Means in float32 and int8 are cut here, in norm bounds: their rounding does not lead beyond 1 + SLACK.
CUT = (1 + SLACK) * (1 - 2.0**-21)


def mean_errors(values: Floats, counts: Floats, code: str) -> Floats:
    """Return how far sums may be off because their means travelled in a code, (r, 1) or (r, d).

    Parameters
    ----------
    values
        (r, d) sums as they were decoded.
    counts
        (r,) samples of each.
    code
        One of :data:`DTYPES`.

    Examples
    --------
    >>> mean_errors(np.array([[0.0, 5.1]]), np.array([2.0]), "int8").round(4)
    array([[0.01]])
    """
    share, least = ERRORS[code]
    floor = counts[:, None] * least
    if not share:
        return floor
    if code != "int8":
        return np.asarray(floor + share * np.abs(values))
    low, high = values.min(axis=1, keepdims=True), values.max(axis=1, keepdims=True)
    return np.asarray(floor + HALF_STEP * (high - low) + share * np.maximum(-low, high))


def error_norms(errors: Floats, dim: int) -> Floats:
    """Return (r,) norms of errors (r, d), or (r, 1) for the same in all d coordinates.

    Examples
    --------
    >>> error_norms(np.array([[0.5]]), 4), error_norms(np.array([[3.0, 4.0]]), 2)
    (array([1.]), array([5.]))
    """
    wide = np.broadcast_to(errors, (len(errors), dim))
    return np.asarray(np.sqrt(np.einsum("ij,ij->i", wide, wide)))


def write_means(sums: Ints, counts: Ints, code: str, form: FixedPoint) -> tuple[str, NDArray[Any], NDArray[Any] | None]:
    """Return the type and the numbers in which rows travel, and their lows and steps where the code has them.

    Parameters
    ----------
    sums
        (r, d) fixed-point sums.
    counts
        (r,) samples of each.
    code, form
        The code, and the fixed point of ``sums``.
    """
    dtype = DTYPES[code]
    if code == "int64":
        return dtype, np.ascontiguousarray(sums, "<i8"), None
    for _ in range(MOST_PASSES):
        numbers, scales = _coded(sums, counts, code, form)
        again = _sums(_values(numbers, scales, code), counts, form)
        if np.array_equal(again, sums):
            break
        sums = again
    return dtype, numbers, scales


def _coded(sums: Ints, counts: Ints, code: str, form: FixedPoint) -> tuple[NDArray[Any], NDArray[Any] | None]:
    """Return the means of sums in a code, without negative zeros."""
    means = form.dequantize(sums, degree=1) / counts[:, None] + 0.0
    if code in ("float16", "bfloat16"):
        return _halves(means, code, form.norm_bound), None
    most = form.norm_bound * CUT
    coded = code_means(np.clip(means, -most, most), code)
    if coded.scales is None or coded.lows is None:
        return np.ascontiguousarray(coded.numbers + np.float32(0.0), "<f4"), None
    scales = np.stack([coded.lows, coded.scales], 1) + np.float32(0.0)
    return np.ascontiguousarray(coded.numbers), np.ascontiguousarray(scales, "<f4")


def _values(numbers: NDArray[Any], scales: NDArray[Any] | None, code: str) -> Floats:
    """Return coded means in float64."""
    if scales is not None:
        return CodedRows("int8", numbers, scales[:, 1].copy(), scales[:, 0].copy()).values()
    if code == "bfloat16":
        return (numbers.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return numbers.astype(np.float64)


def _sums(values: Floats, counts: Ints, form: FixedPoint) -> Ints:
    """Return means as fixed-point sums; what would not fit int64 is cut off there and refused later."""
    values *= counts[:, None]
    np.ldexp(values, form.bits(1), out=values)
    np.rint(values, out=values)
    np.nan_to_num(values, copy=False, nan=0.0)
    np.clip(values, -(2.0**63), 2.0**63 - 1024, out=values)
    return values.astype(np.int64)


def _halves(means: Floats, code: str, bound: float) -> NDArray[Any]:
    """Round means to half precision, to nearest but never beyond the bound; bfloat16 as its bits."""
    with np.errstate(over="ignore"):
        if code == "float16":
            halves: NDArray[Any] = np.ascontiguousarray(means, "<f2")
        else:
            single = np.ascontiguousarray(means, np.float32).view(np.uint32)
            halves = ((single + 0x7FFF + ((single >> 16) & 1)) >> 16).astype("<u2")
        values = _values(halves, None, code)
    beyond = (np.abs(values) > bound * (1 + SLACK)) & np.isfinite(values)
    bits = halves.view("<u2")
    bits[beyond] -= 1  # the next number towards zero
    bits[bits == 0x8000] = 0  # there is one zero
    return halves


def read_means(rows: Tensor, scales: Tensor | None, counts: Ints, form: FixedPoint, refuse: Refuse) -> Ints:
    """Return fixed-point sums; what would not fit int64 is cut off there and refused later.

    Parameters
    ----------
    rows
        Of the agreed type and shape (r, d), finite.
    scales
        Lows and steps, where the code has them; everything about them is checked here.
    counts
        (r,) samples of each.
    form
        The fixed point of the result.
    refuse
        Called with the reason.
    """
    if rows.dtype == "I64":
        return rows.array("<i8")
    if scales is None:
        values = rows.floats().astype(np.float64)
    else:
        lows, steps = _lows_and_steps(scales, len(counts), refuse)
        values = CodedRows("int8", rows.array("u1"), steps, lows).values()
    return _sums(values, counts, form)


def _lows_and_steps(scales: Tensor, rows: int, refuse: Refuse) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    if scales.dtype != "F32":
        refuse(Reason.DTYPE, f"'{MEAN_SCALES}' must be F32, but {scales.dtype} arrived")
    if scales.shape != (rows, 2):
        refuse(Reason.SHAPE, f"'{MEAN_SCALES}' must have the shape {(rows, 2)}, but {scales.shape} arrived")
    numbers = scales.array("<f4")
    if not np.isfinite(numbers).all():
        refuse(Reason.NOT_FINITE, f"'{MEAN_SCALES}' holds NaN or infinity, where only numbers were allowed")
    if (numbers[:, 1] < 0).any():
        refuse(
            Reason.INCONSISTENT, f"steps in '{MEAN_SCALES}' must be 0 or more, but {numbers[:, 1].min():.6g} arrived"
        )
    return numbers[:, 0].copy(), numbers[:, 1].copy()
