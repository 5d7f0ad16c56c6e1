"""Measuring a stream of any length in memory that does not grow with it.

An :class:`Accumulator` belongs to one client. Batches update it in place; the result does not depend on how the
stream was cut (up to float64 rounding), and a client's class has one row of client means however many batches it came
in. To add up *different* clients, add their :class:`~fedmoments.Statistics`.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedmoments.core.linalg import blocks
from fedmoments.core.statistics.coding import FACTORS_LEAST, MEANS_LEAST, MEANS_MOST, coded_factor
from fedmoments.core.statistics.moments import Layout, cell_sums, moment
from fedmoments.core.statistics.scatter_stream import ScatterStream
from fedmoments.core.statistics.shares import deal_shares
from fedmoments.core.statistics.sketch_plan import Choice, SketchPlan
from fedmoments.core.statistics.sketches import Sketches
from fedmoments.core.statistics.spec import StatisticsSpec
from fedmoments.core.statistics.statistics import Statistics
from fedmoments.errors import InputError

__all__ = [
    "Accumulator",
    "check_features",
    "check_labels",
    "check_shape",
    "first_bad_row",
    "running_positions",
    "sketch_of",
    "stream_of",
    "whole_or_shares",
]

Ints = NDArray[np.int64]

#: Features of so many steps of a code are the least that travel in it.
LEAST_STEPS = 256.0


def check_shape(X: ArrayLike, dim: int | None = None) -> NDArray[np.floating]:
    """Return X as a float matrix (n, d), or say in one sentence what is wrong with its shape or type."""
    try:
        array = np.asarray(X)
    except ValueError as error:  # numpy refuses lists of unequal lengths
        raise InputError(f"features must be a matrix (samples, dimensions): {error}") from error
    if array.ndim != 2 or array.shape[1] == 0:
        raise InputError(f"features must be a matrix (samples, dimensions); an array of shape {array.shape} arrived")
    if dim is not None and array.shape[1] != dim:
        raise InputError(
            f"features must have {dim} dimensions, but {array.shape[1]} arrived: was another encoder used?"
        )
    if array.dtype.kind not in "fiub":
        raise InputError(f"features must be numbers; an array of type {array.dtype} arrived")
    return array if array.dtype.kind == "f" else array.astype(np.float64)


def first_bad_row(X: NDArray[np.floating], rows: Ints | None = None) -> InputError:
    """Return the error that names the first sample with NaN or infinity, among ``rows`` (ascending) if given."""
    rows = np.arange(len(X)) if rows is None else rows
    for block in blocks(len(rows)):
        finite = np.isfinite(X[rows[block]]).all(axis=1)
        if not finite.all():
            row = int(rows[block][np.argmin(finite)])
            return InputError(
                f"features must be finite, but sample {row} holds NaN or infinity: repair or drop it first"
            )
    return InputError("features are so large that their sums overflow float64: scale them down first")


def check_features(X: ArrayLike, dim: int | None = None) -> NDArray[np.floating]:
    """Return X as a finite float matrix (n, d), or say in one sentence what is wrong with it."""
    array = check_shape(X, dim)
    with np.errstate(over="ignore", invalid="ignore"):
        finite = all(np.isfinite(array[block].sum(dtype=np.float64)) for block in blocks(len(array), 256))
    if not finite:
        raise first_bad_row(array)
    return array


def check_labels(y: ArrayLike, n_samples: int, n_classes: int, *, whose: str = "labels") -> Ints:
    """Return y as int64 (n,), or say in one sentence what is wrong with it."""
    array = np.asarray(y)
    if array.shape != (n_samples,):
        raise InputError(f"{whose} must be one a sample, ({n_samples},); an array of shape {array.shape} arrived")
    if array.dtype.kind not in "iu":
        whole = array.dtype.kind in "fb" and np.array_equal(array, np.rint(array.astype(np.float64)))
        if n_samples and not whole:
            raise InputError(
                f"{whose} must be whole numbers from 0 to {n_classes - 1}; values of type {array.dtype} arrived"
            )
    wrong = (array < 0) | (array >= n_classes)  # before the cast, which would wrap what int64 cannot hold
    if wrong.any():
        index = int(np.argmax(wrong))
        raise InputError(f"{whose} must be from 0 to {n_classes - 1}, but sample {index} has {array[index]}")
    return array.astype(np.int64)


def running_positions(cells: Ints, seen: Ints) -> Ints:
    """Return how many samples of the same cell came before each, counting on from ``seen`` (n_cells,).

    Examples
    --------
    >>> running_positions(np.array([0, 1, 0, 0]), np.array([5, 0]))
    array([5, 0, 6, 7])
    """
    order = np.argsort(cells, kind="stable")
    ranked = cells[order]
    starts = np.searchsorted(ranked, ranked)
    positions = np.empty(len(cells), np.int64)
    positions[order] = np.arange(len(cells)) - starts + seen[ranked]
    return positions


class Accumulator:
    """Measures one client's stream of batches.

    Parameters
    ----------
    spec
        What to measure.
    n_classes, dim
        C, and the dimension d of the features.
    seed
        Deals samples to shares when ``spec.means_per_client`` > 1.

    Examples
    --------
    >>> stream = [(np.ones((2, 3)), [0, 1]), (np.ones((1, 3)), [0])]
    >>> accumulator = Accumulator(StatisticsSpec.of("client_means"), n_classes=2, dim=3)
    >>> for X, y in stream:
    ...     _ = accumulator.update(X, y)
    >>> accumulator.statistics().rows.counts
    array([2, 1])
    """

    def __init__(self, spec: StatisticsSpec, *, n_classes: int, dim: int, seed: int = 0) -> None:
        if n_classes < 1:
            raise InputError(f"n_classes must be 1 or more, not {n_classes}")
        self.spec, self.n_classes, self.dim, self.seed = spec.settled(n_classes), n_classes, dim, seed
        self._scatter = stream_of(self.spec.plan, n_classes, dim) if self.spec.plan else None
        self._classes = np.zeros(0, np.int64)
        self._counts = np.zeros(0, np.int64)
        self._shares = spec.means_per_client
        self._share_counts = np.zeros((0, self._shares), np.int64)
        added = [name for name in spec.sent if moment(name).layout is not Layout.SKETCH]
        self._work = {name: moment(name).workspace(0, dim) for name in added}

    def update(self, X: ArrayLike, y: ArrayLike) -> "Accumulator":
        """Add a batch, X (n, d) and y (n,); a batch that is refused leaves the accumulator as it was."""
        features = check_features(X, self.dim)
        labels = check_labels(y, len(features), self.n_classes)
        self._make_room(np.unique(labels))
        for block in blocks(len(features)):
            self._add(np.ascontiguousarray(features[block], dtype=np.float64), labels[block])
        return self

    def _make_room(self, labels: Ints) -> None:
        """Give every new class a cell, keeping cells ascending by label."""
        union = np.union1d(self._classes, labels)
        if len(union) == len(self._classes):
            return
        old = np.searchsorted(union, self._classes)
        self._counts = _moved(self._counts, old, np.zeros(len(union), np.int64))
        self._share_counts = _moved(self._share_counts, old, np.zeros((len(union), self._shares), np.int64))
        for name, work in self._work.items():
            layout = moment(name).layout
            if layout is Layout.CLASS:
                self._work[name] = _moved(work, old, moment(name).workspace(len(union), self.dim))
            elif layout is Layout.ROWS:
                cells = (old[:, None] * self._shares + np.arange(self._shares)).ravel()
                fresh = moment(name).workspace(len(union) * self._shares, self.dim)
                self._work[name] = _moved(work, cells, fresh)
        self._classes = union

    def _add(self, X: NDArray[np.float64], labels: Ints) -> None:
        cells = np.searchsorted(self._classes, labels)
        shares = np.zeros(len(cells), np.int64)
        if self._shares > 1:
            shares = deal_shares(labels, running_positions(cells, self._counts), self._shares, self.seed)
        rows = cells * self._shares + shares
        for name, work in self._work.items():
            moment(name).add(work, X, rows if moment(name).layout is Layout.ROWS else cells)
        if self._scatter:
            self._scatter.update(X, labels)
        self._counts += np.bincount(cells, minlength=len(self._classes))
        self._share_counts += np.bincount(rows, minlength=self._share_counts.size).reshape(self._share_counts.shape)

    def statistics(self) -> Statistics:
        """Return what was measured so far; the accumulator can go on."""
        arrays: dict[str, NDArray[Any]] = {}
        labels = counts = np.zeros(0, np.int64)
        for name, work in self._work.items():
            if moment(name).layout is Layout.ROWS:
                labels, counts, arrays[name] = whole_or_shares(self._classes, self._share_counts, work)
            else:
                finished = moment(name).finish(work)
                arrays[name] = finished.copy() if np.may_share_memory(finished, work) else finished
        apart: dict[str, Any] = {}
        if self._scatter and self.spec.plan:
            sketch = sketch_of(self._scatter, self.spec.plan)
            arrays["scatter_sketch"] = sketch.rows
            apart = sketch.index
        index = (self._classes.copy(), self._counts.copy())
        return Statistics(self.spec, self.n_classes, self.dim, *index, arrays, labels, counts.copy(), **apart)


def stream_of(plan: SketchPlan, n_classes: int, dim: int) -> ScatterStream:
    """Return the stream that a client's sketch by a settled plan is made from.

    Its capacity is as if all classes came: what is compressed must not depend on when a class is seen first.

    Examples
    --------
    >>> stream_of(SketchPlan("means", rows="class"), n_classes=3, dim=64).capacity
    11
    """
    return ScatterStream(dim, plan.capacity(n_classes, dim), by_class=plan.by_class)


def sketch_of(scatter: ScatterStream, plan: SketchPlan) -> Sketches:
    """Return the blocks of one client: leading rows as they travel, and the trace of all that each leaves out.

    A client without a sample has none.

    Examples
    --------
    >>> plan = SketchPlan(None, rank=1, code="float16", rows="pooled")
    >>> scatter = stream_of(plan, 1, 2)
    >>> scatter.update(np.array([[0.0, 1.0], [4.0, 1.0], [2.0, 0.0], [2.0, 2.0], [2.0, 1.0]]), [0, 0, 0, 0, 0])
    >>> sketch = sketch_of(scatter, plan)
    >>> sketch.rows.round(2), sketch.residuals.round(2), sketch.labels
    (array([[2.83, 0.  ]]), array([2.]), array([-1]))
    """
    choice = plan.choose(scatter.n_samples, len(scatter.classes), scatter.dim)
    most = plan.class_ranks(scatter.counts) if plan.by_class else None
    blocks = scatter.blocks(choice.rank, most)
    _check_size(scatter, choice, sum(trace for _, _, trace in blocks))
    coded = [coded_factor(rows, trace, choice.code) for _, rows, trace in blocks]
    return Sketches(
        np.concatenate([np.zeros((0, scatter.dim)), *(factor.values() for factor, _ in coded)]),
        np.array([len(rows) for _, rows, _ in blocks], np.int64),
        np.array([residual for _, residual in coded], np.float64),
        np.zeros(len(blocks), np.int64),
        np.array([label for label, _, _ in blocks], np.int64),
    )


def _check_size(scatter: ScatterStream, choice: Choice, trace: float) -> None:
    """Refuse features that are too large or too small for the codes that means and rows travel in."""
    size = max(scatter.size, math.sqrt(trace / max(scatter.n_samples, 1)))
    if choice.means in MEANS_MOST and size > MEANS_MOST[choice.means]:
        raise InputError(
            f"features of size {size:.2g} are so large that their means do not fit {choice.means}: divide them by a "
            "constant, or let sketches travel in float64 (a rank instead of a budget)"
        )
    for code, least in ((choice.means or "float64", MEANS_LEAST), (choice.code, FACTORS_LEAST)):
        if 0.0 < size < LEAST_STEPS * least.get(code, 0.0):
            raise InputError(
                f"features of size {size:.2g} are so small that {code} keeps too little of their means and sketches: "
                "multiply them by a constant, or let sketches travel in float64 (a rank instead of a budget)"
            )


def whole_or_shares(labels: Ints, share_counts: Ints, sums: NDArray[Any]) -> tuple[Ints, Ints, NDArray[Any]]:
    """Return rows (labels, counts, sums), joining the shares of a class again where it has too few samples.

    Parameters
    ----------
    labels
        (p,) class of every cell.
    share_counts
        (p, s) samples in every share.
    sums
        (p·s, d) sums of every share.
    """
    p, s = share_counts.shape
    if s == 1:
        return labels.copy(), share_counts[:, 0], np.array(sums)
    split = share_counts.sum(axis=1) >= 2 * s
    keep = np.arange(p * s).reshape(p, s)
    target = np.where(split[:, None], keep, keep[:, :1]).ravel()
    used, rows = np.unique(target, return_inverse=True)
    joined = cell_sums(sums, rows.astype(np.int64), len(used))
    counts = np.bincount(rows, weights=share_counts.ravel(), minlength=len(used)).astype(np.int64)
    return labels[used // s], counts, joined


def _moved(old: NDArray[Any], places: Ints, fresh: NDArray[Any]) -> NDArray[Any]:
    """Return ``fresh`` with the rows of ``old`` at ``places``."""
    fresh[places] = old
    return fresh
