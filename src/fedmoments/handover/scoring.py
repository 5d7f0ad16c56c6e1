"""What a classifier computes, written once for every format that it is exported to.

Each feature map and each kind of classifier is a few steps on tensors. The steps are asked of a :class:`Tensors`: one
implementation writes nodes of an ONNX graph, another calls torch. So a new format needs no formula, and a new kind of
classifier or map is one function here.

Maps compute in float64, as ours do. Scores are computed in float64 too, but for full quadratic classifiers, whose
(C, k, k) factors would double in size: these compute in float32, as ours do for float32 features.
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.classifier import Classifier
from fedmoments.core.classifier.familiar import FREEDOM, Familiar
from fedmoments.core.maps import (
    Categories,
    Chain,
    Clip,
    Directions,
    FeatureMap,
    Identity,
    Normalize,
    Offset,
    Power,
    RandomFourier,
    RandomProjection,
    ReluBeside,
    ReluResidual,
    TableMap,
)
from fedmoments.core.maps.cells import MISSING
from fedmoments.errors import InputError

__all__ = ["KINDS", "MAPS", "Tensors", "familiarity", "probabilities", "scores", "taken"]

#: A score that no sum of exponentials notices, and no difference turns into NaN.
NOTHING = -1e30

Tensor = Any
Arrays = Mapping[str, NDArray[Any]]


class Tensors(Protocol):
    """The steps that scoring is made of; shapes broadcast as in numpy."""

    def constant(self, array: NDArray[Any]) -> Tensor:
        """Return an array as a tensor that is stored with the model."""

    def cast(self, x: Tensor, dtype: Literal["float32", "float64"]) -> Tensor:
        """Return x in another type."""

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        """Return x + y."""

    def subtract(self, x: Tensor, y: Tensor) -> Tensor:
        """Return x − y."""

    def multiply(self, x: Tensor, y: Tensor) -> Tensor:
        """Return x · y, element by element."""

    def divide(self, x: Tensor, y: Tensor) -> Tensor:
        """Return x / y, element by element."""

    def minimum(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the smaller of x and y, element by element."""

    def matmul(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the matrix product, batched over leading axes."""

    def cos(self, x: Tensor) -> Tensor:
        """Return the cosine of radians."""

    def exp(self, x: Tensor) -> Tensor:
        """Return e to the power of x."""

    def sqrt(self, x: Tensor) -> Tensor:
        """Return the square root."""

    def sum(self, x: Tensor, axis: int, *, keep: bool) -> Tensor:
        """Return the sum over an axis, which stays with length 1 where it is kept."""

    def least(self, x: Tensor, axis: int) -> Tensor:
        """Return the smallest of an axis, which goes."""

    def logsumexp(self, x: Tensor, axis: int) -> Tensor:
        """Return log Σ exp x over an axis, which goes."""

    def log_softmax(self, x: Tensor) -> Tensor:
        """Return x − log Σ exp x over the last axis."""

    def softmax(self, x: Tensor) -> Tensor:
        """Return exp x / Σ exp x over the last axis."""

    def ones_for_zeros(self, x: Tensor) -> Tensor:
        """Return x with 1 in place of 0."""

    def reshape(self, x: Tensor, shape: tuple[int, ...]) -> Tensor:
        """Return x in another shape; −1 is what remains."""

    def transpose(self, x: Tensor) -> Tensor:
        """Return a matrix with its two axes exchanged."""


# ---------------------------------------------------------------------------------------------- feature maps


def _lengths(ops: Tensors, x: Tensor) -> Tensor:
    return ops.ones_for_zeros(ops.sqrt(ops.sum(ops.multiply(x, x), 1, keep=True)))


def _clip(ops: Tensors, x: Tensor, given: Clip) -> Tensor:
    shorter = ops.divide(ops.constant(np.array([given.norm])), _lengths(ops, x))
    return ops.multiply(x, ops.minimum(shorter, ops.constant(np.ones(1))))


def _power(ops: Tensors, x: Tensor, given: Power) -> Tensor:
    if given.exponent != 0.5:
        raise InputError(f"of powers, the square root alone has a rule for export; this one is {given.exponent:g}")
    size = ops.sqrt(ops.multiply(x, x))
    return ops.multiply(ops.divide(x, ops.ones_for_zeros(size)), ops.sqrt(size))


def _fourier(ops: Tensors, x: Tensor, given: RandomFourier) -> Tensor:
    angles = ops.add(ops.matmul(x, ops.constant(given.frequencies)), ops.constant(given.phases))
    return ops.multiply(ops.cos(angles), ops.constant(np.array([np.sqrt(2.0 / given.n_features)])))


def _table(ops: Tensors, x: Tensor, given: TableMap) -> Tensor:
    """Return the columns of a raw table's codes; two numbers are equal where their difference is replaced by one."""
    width = len(given.outputs)
    picks, counts = np.zeros((len(given.names), width)), np.zeros((width, width))
    compared, center, scale, constant, value = (np.full(width, start) for start in (MISSING, 0.0, 1.0, 0.0, 0.0))
    start = 0
    for row, column in enumerate(given.columns):
        places = np.arange(start, start + len(column.outputs))
        start += len(places)
        picks[row, places] = 1.0
        counts[places, places] = 1.0
        if isinstance(column, Categories):
            known = len(column.categories)
            compared[places[:known]] = column.codes
            if column.other:  # one, less what it is among those that are known, and less one where it is missing
                counts[places[: known + 1], places[known]] = -1.0
                constant[places[known]] = 1.0
        elif column.scale is not None:
            counts[places[0], places[0]] = 0.0
            center[places[0]], scale[places[0]], value[places[0]] = column.center, column.scale, 1.0
    cells = ops.matmul(x, ops.constant(picks))
    away = ops.subtract(cells, ops.constant(compared))
    equal = ops.subtract(ops.ones_for_zeros(away), away)
    there = ops.multiply(ops.subtract(ops.constant(np.ones(1)), equal), ops.constant(value))
    numbers = ops.divide(ops.subtract(cells, ops.constant(center)), ops.constant(scale))
    counted = ops.add(ops.matmul(equal, ops.constant(counts)), ops.constant(constant))
    return ops.add(counted, ops.multiply(numbers, there))


def _hidden(ops: Tensors, x: Tensor, given: ReluBeside) -> Tensor:
    """Return max(xB, 0)."""
    inner = ops.matmul(x, ops.constant(-given.matrix))
    return ops.multiply(ops.minimum(inner, ops.constant(np.zeros(1))), ops.constant(np.full(1, -1.0)))


def _relu_beside(ops: Tensors, x: Tensor, given: ReluBeside) -> Tensor:
    d, w = given.input_dim, given.n_features
    first, then = ops.constant(np.eye(d, d + w)), ops.constant(np.eye(w, d + w, d))
    return ops.add(ops.matmul(x, first), ops.matmul(_hidden(ops, x, given), then))


def _relu_residual(ops: Tensors, x: Tensor, given: ReluResidual) -> Tensor:
    return ops.add(x, ops.matmul(_hidden(ops, x, given.layer), ops.constant(given.weights)))


def _chain(ops: Tensors, x: Tensor, given: Chain) -> Tensor:
    for stage in given.maps:
        x = _mapped(ops, x, stage)
    return x


#: The steps of every feature map, by its class.
MAPS: dict[type[FeatureMap], Callable[[Tensors, Tensor, Any], Tensor]] = {
    Identity: lambda _ops, x, _given: x,
    Chain: _chain,
    Normalize: lambda ops, x, _given: ops.divide(x, _lengths(ops, x)),
    Clip: _clip,
    Power: _power,
    Offset: lambda ops, x, given: ops.subtract(x, ops.constant(given.array)),
    RandomProjection: lambda ops, x, given: ops.matmul(x, ops.constant(given.matrix)),
    RandomFourier: _fourier,
    TableMap: _table,
    Directions: lambda ops, x, given: ops.matmul(x, ops.constant(given.matrix)),
    ReluBeside: _relu_beside,
    ReluResidual: _relu_residual,
}


def _mapped(ops: Tensors, x: Tensor, given: FeatureMap) -> Tensor:
    if type(given) not in MAPS:
        known = ", ".join(sorted(kind.kind for kind in MAPS))
        raise InputError(
            f"the feature map '{given.kind}' has no rule for export; those of {known} have. A map of your own is "
            "exported after fedmoments.handover.scoring.MAPS has its steps"
        )
    return MAPS[type(given)](ops, x, given)


# ---------------------------------------------------------------------------------------------- classifiers


def _linear(ops: Tensors, x: Tensor, arrays: Arrays) -> Tensor:
    if "offset" in arrays:
        x = ops.subtract(x, ops.constant(arrays["offset"]))
    return ops.add(ops.matmul(x, ops.constant(arrays["weights"])), ops.constant(arrays["bias"]))


def _centred(ops: Tensors, x: Tensor, arrays: Arrays) -> Tensor:
    centred = ops.subtract(x, ops.constant(arrays["offset"]))
    return ops.matmul(centred, ops.constant(arrays["basis"])) if "basis" in arrays else centred


def _diagonal(ops: Tensors, x: Tensor, arrays: Arrays) -> Tensor:
    return _diagonal_scores(ops, _centred(ops, x, arrays), arrays)


def _diagonal_scores(ops: Tensors, centred: Tensor, arrays: Arrays) -> Tensor:
    means, precisions = arrays["means"], arrays["precisions"]
    weighted = means * precisions
    constant = arrays["bias"] - 0.5 * np.einsum("cd,cd->c", means, weighted)
    crossed = ops.matmul(centred, ops.constant(weighted.T))
    squared = ops.matmul(ops.multiply(centred, centred), ops.constant(0.5 * precisions.T))
    return ops.add(ops.subtract(crossed, squared), ops.constant(constant))


def _quadratic(ops: Tensors, x: Tensor, arrays: Arrays) -> Tensor:
    whiteners = np.ascontiguousarray(arrays["whiteners"].transpose(0, 2, 1), np.float32)  # (C, k, k): x·Tᵀ
    shift = np.einsum("cij,cj->ci", arrays["whiteners"], arrays["means"])[:, None, :].astype(np.float32)
    centred = ops.cast(_centred(ops, x, arrays), "float32")
    white = ops.subtract(ops.matmul(centred, ops.constant(whiteners)), ops.constant(shift))  # (C, n, k)
    lengths = ops.transpose(ops.sum(ops.multiply(white, white), 2, keep=False))
    halves = ops.multiply(ops.cast(lengths, "float64"), ops.constant(np.array([0.5])))
    return ops.subtract(ops.constant(arrays["bias"]), halves)


def _low_rank(ops: Tensors, x: Tensor, arrays: Arrays) -> Tensor:
    projections = arrays["projections"]
    n_classes, rank, dim = projections.shape
    centred = _centred(ops, x, arrays)
    inside = ops.matmul(centred, ops.constant(np.ascontiguousarray(projections.reshape(-1, dim).T)))
    shift = np.einsum("crd,cd->cr", projections, arrays["means"])[None]
    inside = ops.subtract(ops.reshape(inside, (-1, n_classes, rank)), ops.constant(shift))
    explained = ops.sum(ops.multiply(inside, inside), 2, keep=False)
    diagonal = _diagonal_scores(ops, centred, arrays)
    return ops.add(diagonal, ops.multiply(explained, ops.constant(np.array([0.5]))))


def _ensemble(ops: Tensors, x: Tensor, arrays: Arrays) -> Tensor:
    labels, starts = arrays["labels"].astype(np.int64), arrays["starts"].astype(np.int64)
    n_classes = len(arrays["present"])
    columns = np.empty((len(starts), n_classes), np.int64)  # the column that gives a class its score in a member
    for member, own in enumerate(np.split(np.arange(len(labels)), starts[1:])):
        shared = own[labels[own] < 0]
        columns[member] = shared[0] if len(shared) else own[0]
        columns[member, labels[own][labels[own] >= 0]] = own[labels[own] >= 0]
    weights, bias = arrays["weights"][:, columns.ravel()], arrays["bias"][columns.ravel()]
    given = ops.add(ops.matmul(x, ops.constant(weights)), ops.constant(bias))
    shares = ops.log_softmax(ops.reshape(given, (-1, *columns.shape)))
    with np.errstate(divide="ignore"):  # a member that weighs nothing has log 0
        mixing = np.log(arrays["mixing"])[None, :, None]
    return ops.logsumexp(ops.add(shares, ops.constant(mixing)), 1)


def _mixture(ops: Tensors, x: Tensor, arrays: Arrays) -> Tensor:
    labels, n_classes = arrays["labels"].astype(np.int64), len(arrays["present"])
    counts = np.bincount(labels, minlength=n_classes)
    # Every class has as many columns as the one with most modes; those beyond its own add nothing to a sum.
    columns = np.cumsum(counts) - counts
    columns = np.minimum(columns[:, None] + np.arange(counts.max()), len(labels) - 1)
    bias = np.where(np.arange(counts.max()) < counts[:, None], arrays["bias"][columns], NOTHING)
    centred = ops.subtract(x, ops.constant(arrays["offset"]))
    modes = ops.add(
        ops.matmul(centred, ops.constant(arrays["weights"][:, columns.ravel()])), ops.constant(bias.ravel())
    )
    return ops.logsumexp(ops.reshape(modes, (-1, *columns.shape)), 2)


#: The steps of every kind of classifier.
KINDS: dict[str, Callable[[Tensors, Tensor, Arrays], Tensor]] = {
    "linear": _linear,
    "diagonal": _diagonal,
    "quadratic": _quadratic,
    "low-rank": _low_rank,
    "ensemble": _ensemble,
    "mixture": _mixture,
}


def taken(ops: Tensors, features: Tensor, classifier: Classifier) -> Tensor:
    """Return features (n, d) behind the feature map, float64."""
    x = ops.cast(features, "float64")
    return x if classifier.feature_map is None else _mapped(ops, x, classifier.feature_map)


def scores(ops: Tensors, x: Tensor, classifier: Classifier) -> Tensor:
    """Return the scores (n, C), float64, of mapped features (n, d).

    A class without a training sample has the score −∞, as in :meth:`fedmoments.Classifier.scores`.
    """
    if classifier.kind not in KINDS:
        raise InputError(f"a classifier of kind '{classifier.kind}' has no rule for export; known: {', '.join(KINDS)}")
    # NaN stands in absent classes alone.
    arrays = {"present": classifier.present, **{name: np.nan_to_num(array) for name, array in classifier.arrays()}}
    given = KINDS[classifier.kind](ops, x, arrays)
    if classifier.present.all():
        return given
    return ops.add(given, ops.constant(np.where(classifier.present, 0.0, -np.inf)))


def probabilities(ops: Tensors, given: Tensor, classifier: Classifier) -> Tensor:
    """Return softmax(scores / temperature), (n, C), at the classifier's own temperature."""
    return ops.softmax(ops.divide(given, ops.constant(np.array([classifier.temperature]))))


def familiarity(ops: Tensors, x: Tensor, seen: Familiar) -> Tensor:
    """Return :meth:`fedmoments.Classifier.familiarity` (n,), float64, of mapped features (n, d)."""
    mean, total = seen.total
    scale = np.sqrt(seen.variances)
    centres = (seen.means[seen.shares > 0] - mean) / scale
    around = ops.subtract(x, ops.constant(mean))
    away = ops.divide(around, ops.constant(scale))
    crossed = ops.matmul(away, ops.constant(-2.0 * centres.T))
    nearest = ops.least(ops.add(crossed, ops.constant(np.einsum("cd,cd->c", centres, centres))), 1)
    nearest = ops.add(nearest, ops.sum(ops.multiply(away, away), 1, keep=False))
    half = ops.multiply(nearest, ops.constant(np.array([0.5 * FREEDOM / len(mean)])))
    falling = ops.exp(ops.subtract(ops.constant(np.zeros(1)), half))
    share = ops.multiply(ops.add(half, ops.constant(np.ones(1))), falling)
    if seen.has_relative:
        spread = ops.sum(ops.divide(ops.multiply(around, around), ops.constant(total)), 1, keep=False)
        relative = ops.multiply(ops.subtract(spread, nearest), ops.constant(np.array([1.0 / seen.tail])))
        share = ops.minimum(share, ops.exp(ops.minimum(relative, ops.constant(np.zeros(1)))))
    if seen.level is not None:
        slope, start = seen.downwards
        upwards = ops.subtract(ops.constant(np.array([[-start]])), ops.matmul(x, ops.constant(slope[:, None])))
        below = ops.minimum(ops.sum(upwards, 1, keep=False), ops.constant(np.zeros(1)))
        falling = ops.exp(ops.multiply(ops.multiply(below, below), ops.constant(np.array([-0.5]))))
        share = ops.minimum(share, ops.multiply(falling, ops.constant(np.array([0.5]))))
    return ops.minimum(ops.multiply(share, ops.constant(np.full(1, float(seen.n_distances)))), ops.constant(np.ones(1)))
