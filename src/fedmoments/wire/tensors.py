"""Which tensors a contribution has, and how statistics are turned into them and back.

Everything is int64: labels, counts, and moments in fixed point. Only rows of client means may travel as *means* in
fewer bytes (:mod:`fedmoments.wire.mean_rows`), if that was agreed, and scatter sketches, which are never added up, in
their code (:mod:`fedmoments.wire.sketch_block`). Which code both are in follows from the counts that were sent.
"""

from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.statistics import MOMENTS, Layout, Statistics, StatisticsSpec
from fedmoments.core.statistics.sketch_plan import Choice
from fedmoments.errors import InputError, RefusedError
from fedmoments.wire.agreement import Agreement
from fedmoments.wire.body import FLOATS, Refuse, Tensor, head_of, read_tensors
from fedmoments.wire.checks import Index, check_index, check_moments
from fedmoments.wire.mean_rows import DTYPES, MEAN_SCALES, read_means, write_means
from fedmoments.wire.reason import Reason
from fedmoments.wire.sketch_block import RESIDUAL, SCALES, SIZES, read_sketch, write_sketch

__all__ = ["Withheld", "read_body", "write_body"]

Ints = NDArray[np.int64]

_INDEX = ("classes", "class_counts", "row_labels", "row_counts")
_COUNTS = ("class_counts", "row_counts")
_MOMENT = "moment."
_SKETCH = "scatter_sketch"
#: Tensors that some codes have and others not.
_BESIDE = {MEAN_SCALES, SCALES}
_MOST_WITHHELD = 2**63 - 1


@dataclass(frozen=True)
class Withheld:
    """How much a client's own policy withheld; travels signed, so that what is missing is known to be missing.

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
    rows = {"row_labels": stats.row_labels, "row_counts": stats.row_counts}
    alike = all(map(np.array_equal, rows.values(), index.values()))
    if _lists_rows(agreement.spec):
        index |= rows
    tensors = {name: ("I64", np.ascontiguousarray(array, "<i8")) for name, array in index.items()}
    choice = agreement.choice(stats.n_samples, len(stats.classes))
    for name in agreement.spec.sent:
        tensors |= _stored(name, stats, agreement, choice)
    if agreement.spec.keeps_clients_apart and not (_lists_rows(agreement.spec) or alike):
        raise InputError(
            "within a budget, means travel one a class, in the order of classes, but these statistics hold "
            f"{len(stats.row_labels)} rows of {len(stats.classes)} classes: send what as_sent() returns"
        )
    order = sorted(tensors, key=lambda name: (-tensors[name][1].itemsize, name))
    metadata = {"withheld_classes": str(withheld.classes), "withheld_samples": str(withheld.samples)}
    head = head_of(((name, tensors[name][0], tensors[name][1].shape) for name in order), metadata)
    arrays = [tensors[name][1] for name in order]
    return [head, *(array.data.cast("B") for array in arrays if array.size)]


def _lists_rows(spec: StatisticsSpec) -> bool:
    """Return whether rows of means say whose they are: within a budget there is one a class, in their order."""
    return spec.keeps_clients_apart and (spec.plan is None or spec.plan.budget is None)


def _stored(name: str, stats: Statistics, agreement: Agreement, choice: Choice) -> dict[str, tuple[str, NDArray[Any]]]:
    """Return a moment's tensors as they travel: name -> (type, numbers)."""
    layout = MOMENTS[name].layout
    if layout is Layout.SKETCH:
        return write_sketch(stats.sketches, stats.class_counts, agreement.plan, choice)
    if layout is not Layout.ROWS:
        return {_MOMENT + name: ("I64", np.ascontiguousarray(stats.arrays[name], "<i8"))}
    code = choice.means or "int64"
    dtype, numbers, scales = write_means(stats.arrays[name], stats.row_counts, code, agreement.fixed_point)
    return {_MOMENT + name: (dtype, numbers)} | ({} if scales is None else {MEAN_SCALES: ("F32", scales)})


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
    spec = agreement.spec
    names = _INDEX if _lists_rows(spec) else _INDEX[:2]
    expected = {*names, *(_MOMENT + name for name in spec.sent), *_sketch_index(spec)}
    _check_names(set(tensors) - _BESIDE, expected, agreement, refuse)
    withheld = _withheld(metadata, agreement, refuse)
    arrays = {name: _whole(name, tensors[name], refuse) for name in names}
    if spec.keeps_clients_apart and not _lists_rows(spec):
        arrays |= {"row_labels": arrays["classes"], "row_counts": arrays["class_counts"]}
    index = Index(**dict.fromkeys(_INDEX, np.zeros(0, np.int64)) | arrays)
    check_index(index, agreement, refuse)
    choice = agreement.choice(index.n_samples, len(index.classes))
    _check_names(set(tensors), expected | _beside(choice, spec), agreement, refuse)
    moments: dict[str, NDArray[Any]] = {
        name: _moment(name, tensors, index, agreement, refuse) for name in spec.sent if name != _SKETCH
    }
    apart: dict[str, Any] = {}
    if spec.plan:
        sketch = read_sketch(tensors, index.classes, index.class_counts, agreement, refuse)
        moments[_SKETCH], apart = sketch.rows, sketch.index
    statistics = Statistics(
        spec,
        agreement.n_classes,
        agreement.dim,
        index.classes,
        index.class_counts,
        moments,
        index.row_labels,
        index.row_counts,
        agreement.fixed_point,
        **apart,
    )
    check_moments(statistics, agreement, refuse)
    _check_encoding(tensors, statistics, agreement, refuse)
    return statistics, withheld


def _check_encoding(tensors: dict[str, Tensor], statistics: Statistics, agreement: Agreement, refuse: Refuse) -> None:
    """Check that rows in a code are written as these statistics are: one content has one encoding."""
    choice = agreement.choice(statistics.n_samples, len(statistics.classes))
    for moment in agreement.spec.sent:
        if not MOMENTS[moment].layout.apart:
            continue
        for name, (_, numbers) in _stored(moment, statistics, agreement, choice).items():
            if numbers.tobytes() != tensors[name].data:
                refuse(
                    Reason.BODY,
                    f"its tensor '{name}' stands for numbers that have another encoding, the only one that counts: "
                    "write contributions with fedmoments.wire.encode",
                )


def _check_names(arrived: set[str], expected: set[str], agreement: Agreement, refuse: Refuse) -> None:
    if arrived != expected:
        missing, extra = sorted(expected - arrived), sorted(arrived - expected)
        refuse(Reason.BODY, f"its body must hold {agreement.spec}; it lacks {missing} and adds {str(extra)[:400]}")


def _sketch_index(spec: StatisticsSpec) -> set[str]:
    """Return which tensors say what rows of a sketch are, and what they leave out."""
    if spec.plan is None:
        return set()
    return {RESIDUAL, SIZES} if spec.plan.by_class else {RESIDUAL}


def _beside(choice: Choice, spec: StatisticsSpec) -> set[str]:
    """Return which tensors of scales the codes have that the counts lead to."""
    means = {MEAN_SCALES} if spec.keeps_clients_apart and choice.means == "int8" else set()
    return means | ({SCALES} if spec.has_sketch and choice.code != "float64" else set())


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


def _moment(name: str, tensors: dict[str, Tensor], index: Index, agreement: Agreement, refuse: Refuse) -> Ints:
    """Return a moment in fixed point, of the agreed type and shape."""
    kind, dim, tensor = MOMENTS[name], agreement.dim, tensors[_MOMENT + name]
    chosen = agreement.choice(index.n_samples, len(index.classes))
    agreed = DTYPES[chosen.means or "int64"] if kind.layout is Layout.ROWS else "I64"
    if tensor.dtype in FLOATS:
        _check_finite(name, tensor, agreement, refuse)
    if tensor.dtype != agreed:
        refuse(Reason.DTYPE, f"its moment '{name}' must be {agreed}, but {tensor.dtype} arrived")
    rows = {Layout.CLASS: index.classes.shape, Layout.ROWS: index.row_labels.shape}.get(kind.layout, ())
    shape = (*rows, kind.width(dim))
    if tensor.shape != shape:
        if tensor.shape == (*rows, dim, dim) and kind.unpacked_width(dim) == dim * dim:
            _refuse_asymmetric(name, tensor, refuse)
        refuse(Reason.SHAPE, f"its moment '{name}' must have the shape {shape}, but {tensor.shape} arrived")
    if kind.layout is not Layout.ROWS:
        return tensor.array("<i8")
    return read_means(tensor, tensors.get(MEAN_SCALES), index.row_counts, agreement.fixed_point, refuse)


def _check_finite(name: str, tensor: Tensor, agreement: Agreement, refuse: Refuse) -> None:
    if not np.isfinite(tensor.floats()).all():
        remedy = "features divided by a constant" if agreement.rows == "budget" else "rows of int64"
        refuse(
            Reason.NOT_FINITE,
            f"its moment '{name}' holds NaN or infinity, where only numbers were allowed; "
            f"means too large for {tensor.dtype} need {remedy}",
        )


def _refuse_asymmetric(name: str, tensor: Tensor, refuse: Refuse) -> None:
    matrices = tensor.array("<i8")
    if not np.array_equal(matrices, np.swapaxes(matrices, -1, -2)):
        refuse(
            Reason.ASYMMETRIC,
            f"its moment '{name}' arrived as a full matrix that is not symmetric; send its upper triangle, packed",
        )
