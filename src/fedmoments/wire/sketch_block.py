"""A client's scatter sketch as it travels, and back.

Three tensors: the rows in the plan's code, (s, d); one float32 a row, what a number of it is worth (but in float64);
and the residual trace, one float64. A client without samples has no sketch: no row, and no residual trace.

**Law**: rows that were measured by the agreed plan arrive bit for bit, because coding what was decoded gives the same
codes and scales. Rows that were measured otherwise are brought to the agreed form, the trace ‖V‖² + ρ unchanged: those
beyond the rank that the counts allow are added to the residual trace, the others are coded anew.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.statistics import Sketches
from fedmoments.core.statistics.coding import CodedRows, code_factors, coded_factor
from fedmoments.core.statistics.sketch_plan import Choice
from fedmoments.errors import InputError
from fedmoments.wire.body import FLOATS, Refuse, Tensor
from fedmoments.wire.reason import Reason

__all__ = ["RESIDUAL", "ROWS", "SCALES", "read_sketch", "write_sketch"]

Floats = NDArray[np.float64]

ROWS, SCALES, RESIDUAL = "moment.scatter_sketch", "sketch_scales", "sketch_residual"
#: Code of sketch rows -> its type in safetensors, and in numpy.
_DTYPES = {"float64": ("F64", "<f8"), "float32": ("F32", "<f4"), "float16": ("F16", "<f2"), "int8": ("I8", "i1")}


def write_sketch(sketches: Sketches, choice: Choice) -> dict[str, tuple[str, NDArray[Any]]]:
    """Return the tensors of a client's sketch: name -> (type, numbers).

    Parameters
    ----------
    sketches
        One block, or none of a client without samples.
    choice
        The agreed code, and the most rows.

    Examples
    --------
    >>> one = Sketches(np.array([[127.0, 1.0], [2.0, 0.0]]), np.array([2]), np.array([0.5]), np.array([0]))
    >>> tensors = write_sketch(one, Choice("int8", "int8", rank=1))
    >>> tensors["moment.scatter_sketch"][1], tensors["sketch_scales"][1], tensors["sketch_residual"][1]
    (array([[127,   1]], dtype=int8), array([1.], dtype=float32), array([4.5]))
    """
    if len(sketches) > 1:
        raise InputError(
            f"a contribution has the scatter sketch of one client, but these statistics hold {len(sketches)} of them: "
            "send what each client measured, not their sum"
        )
    coded, residuals = _coded(sketches, choice)
    dtype, kind = _DTYPES[choice.code]
    tensors: dict[str, tuple[str, NDArray[Any]]] = {
        ROWS: (dtype, np.ascontiguousarray(coded.numbers + coded.numbers.dtype.type(0), kind)),  # there is one zero
        RESIDUAL: ("F64", np.ascontiguousarray(residuals + 0.0, "<f8")),
    }
    if coded.scales is not None:
        tensors[SCALES] = ("F32", np.ascontiguousarray(coded.scales, "<f4"))
    return tensors


def _coded(sketches: Sketches, choice: Choice) -> tuple[CodedRows, Floats]:
    """Return rows in the agreed form, and the residual trace (b,)."""
    rows = sketches.rows[: choice.rank]
    coded = code_factors(rows, choice.code)
    if len(rows) == len(sketches.rows) and np.array_equal(coded.values(), rows):
        return coded, sketches.residuals
    coded, residual = coded_factor(rows, sketches.trace, choice.code)
    return coded, np.array([residual])


def read_sketch(tensors: dict[str, Tensor], samples: int, dim: int, choice: Choice, refuse: Refuse) -> Sketches:
    """Return a client's sketch; types, shapes and single numbers are checked here, what they say of data elsewhere.

    Parameters
    ----------
    tensors
        With :data:`ROWS`, :data:`RESIDUAL` and, where the code has them, :data:`SCALES`.
    samples, dim
        How many the client has, and d.
    choice
        The agreed code, and the most rows.
    refuse
        Called with the reason.
    """
    blocks = min(samples, 1)
    numbers = _numbers(tensors[ROWS], dim, choice, refuse)
    scales = None
    if SCALES in tensors:
        scales = _floats(SCALES, tensors[SCALES], "F32", len(numbers), refuse).astype(np.float32)
    residuals = _floats(RESIDUAL, tensors[RESIDUAL], "F64", blocks, refuse).astype(np.float64)
    values = CodedRows(choice.code, numbers, scales).values()
    return Sketches(values, np.full(blocks, len(values), np.int64), residuals, np.zeros(blocks, np.int64))


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
    if len(tensor.shape) != 2 or tensor.shape[1] != dim:
        refuse(
            Reason.SHAPE,
            f"the rows of its scatter sketch must have the shape (rows, {dim}), but {tensor.shape} arrived",
        )
    if tensor.shape[0] > choice.rank:
        refuse(
            Reason.SHAPE,
            f"its scatter sketch may have {choice.rank} rows, by the agreed plan and its counts, but "
            f"{tensor.shape[0]} arrived",
        )
    numbers = tensor.array(kind)
    if choice.code == "int8" and (numbers == -128).any():
        refuse(Reason.OUT_OF_RANGE, "the rows of its scatter sketch are of -127 to 127, but hold -128")
    return numbers


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
