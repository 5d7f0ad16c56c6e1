"""Which tensors a contribution has, and how statistics are turned into them and back.

Everything is int64: labels, counts, and moments in fixed point. Only rows of client means may travel as half-precision
*means*, if that was agreed; they become fixed-point sums round(mean · count · 2^bits) again, the same on every machine.
"""

from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from fedmoments.errors import InputError, RefusedError
from fedmoments.statistics import MOMENTS, FixedPoint, Layout, Statistics
from fedmoments.statistics.fixed_point import SLACK
from fedmoments.wire.agreement import Agreement
from fedmoments.wire.body import FLOATS, Refuse, Tensor, head_of, read_tensors
from fedmoments.wire.checks import Index, check_index, check_moments
from fedmoments.wire.reason import Reason

__all__ = ["Withheld", "read_body", "write_body"]

Ints = NDArray[np.int64]

#: Name of a type in an agreement -> its name in safetensors.
DTYPES = {"int64": "I64", "float16": "F16", "bfloat16": "BF16"}
_INDEX = ("classes", "class_counts", "row_labels", "row_counts")
_COUNTS = ("class_counts", "row_counts")
_MOMENT = "moment."
_MOST_WITHHELD = 2**63 - 1


@dataclass(frozen=True)
class Withheld:
    """How much a client's own policy kept back; travels signed, so that what is missing is known to be missing.

    Parameters
    ----------
    classes, samples
        How many classes and samples it holds but did not measure.

    Examples
    --------
    >>> Withheld(classes=1, samples=4)
    Withheld(classes=1, samples=4)
    """

    classes: int = 0
    samples: int = 0

    def __post_init__(self) -> None:
        for name in ("classes", "samples"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MOST_WITHHELD:
                raise InputError(f"the number of {name} withheld must be a whole number of 0 or more, not {value!r}")


def write_body(stats: Statistics, agreement: Agreement, withheld: Withheld) -> list[bytes | memoryview]:
    """Return the pieces of a body in order, the statistics' own bytes among them, not copied."""
    index: dict[str, NDArray[Any]] = {"classes": stats.classes, "class_counts": stats.class_counts}
    if agreement.spec.keeps_clients_apart:
        index |= {"row_labels": stats.row_labels, "row_counts": stats.row_counts}
    tensors = {name: ("I64", np.ascontiguousarray(array, "<i8")) for name, array in index.items()}
    for name in agreement.spec.sent:
        tensors[_MOMENT + name] = _stored(name, stats, agreement)
    order = sorted(tensors, key=lambda name: (-tensors[name][1].itemsize, name))
    metadata = {"withheld_classes": str(withheld.classes), "withheld_samples": str(withheld.samples)}
    head = head_of(((name, tensors[name][0], tensors[name][1].shape) for name in order), metadata)
    arrays = [tensors[name][1] for name in order]
    return [head, *(array.data.cast("B") for array in arrays if array.size)]


def _stored(name: str, stats: Statistics, agreement: Agreement) -> tuple[str, NDArray[Any]]:
    """Return a moment's type and numbers as they travel."""
    numbers = stats.arrays[name]
    if MOMENTS[name].layout is not Layout.ROWS or agreement.rows == "int64":
        return "I64", np.ascontiguousarray(numbers, "<i8")
    form = agreement.fixed_point
    means = form.dequantize(numbers, MOMENTS[name].degree) / stats.row_counts[:, None]
    return DTYPES[agreement.rows], _halves(means, agreement.rows, form.norm_bound)


def _halves(means: NDArray[np.float64], dtype: str, bound: float) -> NDArray[Any]:
    """Round means to half precision, to nearest but never beyond the bound; bfloat16 as its bits."""
    with np.errstate(over="ignore"):
        if dtype == "float16":
            halves: NDArray[Any] = np.ascontiguousarray(means, "<f2")
            values = halves.astype(np.float64)
        else:
            single = np.ascontiguousarray(means, np.float32).view(np.uint32)
            halves = ((single + 0x7FFF + ((single >> 16) & 1)) >> 16).astype("<u2")
            values = (halves.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    beyond = (np.abs(values) > bound * (1 + SLACK)) & np.isfinite(values)
    bits = halves.view("<u2")
    bits[beyond] -= 1  # the next number towards zero
    return halves


def read_body(body: memoryview, agreement: Agreement, client: str) -> tuple[Statistics, Withheld]:
    """Return the statistics and what was withheld, once everything in a body was checked.

    Raises
    ------
    RefusedError
        With the reason; the sentence names the client.
    """

    def refuse(reason: Reason, sentence: str) -> NoReturn:
        raise RefusedError(reason, f"the contribution of client '{client}' cannot be taken in: {sentence}", client)

    tensors, metadata = read_tensors(body, refuse)
    names = _INDEX if agreement.spec.keeps_clients_apart else _INDEX[:2]
    expected = {*names, *(_MOMENT + name for name in agreement.spec.sent)}
    if set(tensors) != expected:
        missing, extra = sorted(expected - set(tensors)), sorted(set(tensors) - expected)
        refuse(Reason.BODY, f"its body must hold {agreement.spec}; it lacks {missing} and adds {str(extra)[:400]}")
    withheld = _withheld(metadata, agreement, refuse)
    arrays = {name: _whole(name, tensors[name], refuse) for name in names}
    index = Index(**dict.fromkeys(_INDEX, np.zeros(0, np.int64)) | arrays)
    check_index(index, agreement, refuse)
    moments = {name: _moment(name, tensors[_MOMENT + name], index, agreement, refuse) for name in agreement.spec.sent}
    statistics = Statistics(
        agreement.spec,
        agreement.n_classes,
        agreement.dim,
        index.classes,
        index.class_counts,
        moments,
        index.row_labels,
        index.row_counts,
        agreement.fixed_point,
    )
    check_moments(statistics, agreement, refuse)
    return statistics, withheld


def _withheld(metadata: dict[str, str], agreement: Agreement, refuse: Refuse) -> Withheld:
    """Read two whole numbers that are written in one way each."""
    if set(metadata) != {"withheld_classes", "withheld_samples"}:
        refuse(
            Reason.BODY,
            f"its metadata must say what was withheld and nothing else, but has {str(sorted(metadata))[:400]}",
        )
    numbers = []
    for name, most in (("withheld_classes", agreement.n_classes), ("withheld_samples", _MOST_WITHHELD)):
        text = metadata[name]
        number = int(text) if text.isascii() and text.isdigit() and len(text) <= 19 else -1
        if not 0 <= number <= most or str(number) != text:
            refuse(Reason.BODY, f"{name} must be a whole number from 0 to {most}, but is {text[:80]!r}")
        numbers.append(number)
    return Withheld(*numbers)


def _whole(name: str, tensor: Tensor, refuse: Refuse) -> Ints:
    """Return labels or counts."""
    if tensor.dtype in FLOATS and name in _COUNTS:
        refuse(Reason.FRACTIONAL_COUNT, f"'{name}' must be whole numbers of type int64, but {tensor.dtype} arrived")
    if tensor.dtype != "I64":
        refuse(Reason.DTYPE, f"'{name}' must be int64, but {tensor.dtype} arrived")
    if len(tensor.shape) != 1:
        refuse(Reason.SHAPE, f"'{name}' must have one dimension, but has the shape {tensor.shape}")
    return tensor.array("<i8")


def _moment(name: str, tensor: Tensor, index: Index, agreement: Agreement, refuse: Refuse) -> Ints:
    """Return a moment in fixed point, of the agreed type and shape."""
    kind, dim = MOMENTS[name], agreement.dim
    agreed = DTYPES[agreement.rows] if kind.layout is Layout.ROWS else "I64"
    if tensor.dtype in FLOATS and not np.isfinite(tensor.floats()).all():
        refuse(
            Reason.NOT_FINITE,
            f"its moment '{name}' holds NaN or infinity, where only numbers were allowed; "
            f"means too large for {tensor.dtype} need rows of int64",
        )
    if tensor.dtype != agreed:
        refuse(Reason.DTYPE, f"its moment '{name}' must be {agreed}, but {tensor.dtype} arrived")
    rows = {Layout.CLASS: index.classes.shape, Layout.ROWS: index.row_labels.shape}.get(kind.layout, ())
    shape = (*rows, kind.width(dim))
    if tensor.shape != shape:
        if tensor.shape == (*rows, dim, dim) and kind.unpacked_width(dim) == dim * dim:
            _refuse_asymmetric(name, tensor, refuse)
        refuse(Reason.SHAPE, f"its moment '{name}' must have the shape {shape}, but {tensor.shape} arrived")
    if agreed == "I64":
        return tensor.array("<i8")
    return _sums(tensor, index.row_counts, agreement.fixed_point, kind.degree)


def _sums(tensor: Tensor, counts: Ints, form: FixedPoint, degree: int) -> Ints:
    """Turn half-precision means into fixed-point sums; what would not fit int64 is cut off there and refused later."""
    sums = tensor.floats().astype(np.float64)
    sums *= counts[:, None]
    np.ldexp(sums, form.bits(degree), out=sums)
    np.rint(sums, out=sums)
    np.clip(sums, -(2.0**63), 2.0**63 - 1024, out=sums)
    return sums.astype(np.int64)


def _refuse_asymmetric(name: str, tensor: Tensor, refuse: Refuse) -> None:
    matrices = tensor.array("<i8")
    if not np.array_equal(matrices, np.swapaxes(matrices, -1, -2)):
        refuse(
            Reason.ASYMMETRIC,
            f"its moment '{name}' arrived as a full matrix that is not symmetric; send its upper triangle, packed",
        )
