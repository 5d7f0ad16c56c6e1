"""Measuring a stream of any length in memory that does not grow with it, in as many shards as one likes.

An :class:`Accumulator` belongs to one client. Batches update it in place; the result does not depend on how the
stream was cut (up to float64 rounding), and a client's class has one row of client means however many batches it came
in. A client's data may lie in shards, on several machines: each is measured by an accumulator of its own, and
:meth:`Accumulator.merge` joins them. To add up *different* clients, add their :class:`~fedmoments.Statistics`.

**Law.** With a fixed-point form, any partition of a client's samples into shards, in any order, merged in any tree,
gives the statistics of measuring them at once, **bit for bit**: each sample is rounded by itself, and its share of
several means of a class is dealt by its features instead of its place. In float64 the same holds up to rounding, but
for several means: there shares are dealt by place in each shard, and the shards' shares are joined. Scatter sketches
are merged by the same α-Frequent Directions that compress them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedmoments.core.floats import is_single
from fedmoments.core.linalg import blocks
from fedmoments.core.statistics.cell_sums import CellSums, ExactSums, sample_keys
from fedmoments.core.statistics.checks import check_features, check_labels, check_sizes, running_positions
from fedmoments.core.statistics.fixed_point import SLACK, FixedPoint
from fedmoments.core.statistics.moments import Layout, Moment, cell_sums, moment
from fedmoments.core.statistics.shares import deal_shares
from fedmoments.core.statistics.sketching import sketch_of, stream_of
from fedmoments.core.statistics.spec import StatisticsSpec, told_apart
from fedmoments.core.statistics.statistics import Statistics
from fedmoments.errors import FixedPointOverflowError, InputError, MergeError

__all__ = ["Accumulator", "FloatSums", "whole_or_shares"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class FloatSums:
    """Sums in float64, as the moments themselves make them: quick, and in the last digits as samples are ordered.

    Examples
    --------
    >>> sums, norms = FloatSums(), moment("class_norms")
    >>> work = sums.workspace(norms, 1, 2)
    >>> sums.add(norms, work, np.array([[3.0, 4.0]]), np.array([0]))
    >>> sums.finish(norms, work)
    array([[25.]])
    """

    def workspace(self, moment: Moment, n_cells: int, dim: int) -> NDArray[Any]:
        """Return the moment's own workspace."""
        return moment.workspace(n_cells, dim)

    def add(self, moment: Moment, work: NDArray[Any], X: Floats, cells: Ints) -> None:
        """Let the moment accumulate."""
        moment.add(work, X, cells)

    def finish(self, moment: Moment, work: NDArray[Any]) -> NDArray[Any]:
        """Return the moment's array in float64."""
        finished = moment.finish(work)
        return finished.copy() if np.may_share_memory(finished, work) else finished


class Accumulator:
    """Measures one client's stream of batches, or a shard of it.

    Parameters
    ----------
    spec
        What to measure.
    n_classes, dim
        C, and the dimension d of the features.
    seed
        Deals samples to shares when ``spec.means_per_client`` > 1.
    fixed_point
        Measure exactly, in whole numbers of this form: shards then merge bit for bit.
    client
        Whose stream it is: shards of different clients are not merged, nor statistics of one client twice.
    before
        (C,) samples of each class in earlier shards: in float64, too, several means then have the very samples that
        they have when the shards are measured at once. Of a shard that goes on from bytes it is not known.

    Examples
    --------
    >>> stream = [(np.ones((2, 3)), [0, 1]), (np.ones((1, 3)), [0])]
    >>> accumulator = Accumulator(StatisticsSpec.of("client_means"), n_classes=2, dim=3)
    >>> for X, y in stream:
    ...     _ = accumulator.update(X, y)
    >>> accumulator.statistics().rows.counts
    array([2, 1])
    """

    def __init__(
        self,
        spec: StatisticsSpec,
        *,
        n_classes: int,
        dim: int,
        seed: int = 0,
        fixed_point: FixedPoint | None = None,
        client: str | None = None,
        before: ArrayLike | None = None,
    ) -> None:
        n_classes, dim = check_sizes(n_classes, dim)
        self.spec, self.n_classes, self.dim, self.seed = spec.settled(n_classes), n_classes, dim, seed
        self.fixed_point, self.client = fixed_point, client
        self._sums: CellSums = ExactSums(fixed_point) if fixed_point else FloatSums()
        self._scatter = stream_of(self.spec.plan, n_classes, dim) if self.spec.plan else None
        self._classes = np.zeros(0, np.int64)
        self._counts = np.zeros(0, np.int64)
        self._shares = spec.means_per_client
        self._before = None if before is None else np.asarray(before, np.int64)
        self._share_counts = np.zeros((0, self._shares), np.int64)
        added = [name for name in spec.sent if moment(name).layout is not Layout.SKETCH]
        self._work = {name: self._sums.workspace(moment(name), 0, dim) for name in added}

    @property
    def n_samples(self) -> int:
        """Samples measured so far."""
        return int(self._counts.sum())

    def update(self, X: ArrayLike, y: ArrayLike) -> Accumulator:
        """Add a batch, X (n, d) and y (n,); a batch that is refused leaves the accumulator as it was."""
        features = check_features(X, self.dim)
        labels = check_labels(y, len(features), self.n_classes)
        self._check_range(features)
        self._make_room(np.unique(labels))
        for block in blocks(len(features)):
            self._add(np.ascontiguousarray(features[block]), labels[block])
        return self

    def _check_range(self, features: NDArray[np.floating]) -> None:
        """Refuse samples that the fixed-point form has no room for, before anything is added."""
        if self.fixed_point is None:
            return
        self.fixed_point.check_total(self.n_samples + len(features))
        degree = max(1, *(moment(name).degree for name in self._work))
        most = self.fixed_point.norm_bound * (1 + SLACK) ** (1 / degree)
        for block in blocks(len(features)):
            norms = np.linalg.norm(features[block].astype(np.float64), axis=1)
            if (norms > most).any():
                raise FixedPointOverflowError(
                    f"sample {block.start + int(np.argmax(norms > most))} has a norm of {norms.max():.6g}, more than "
                    f"norm_bound={self.fixed_point.norm_bound:g}: agree on a larger norm_bound, or clip features to it"
                )

    def merge(self, other: Accumulator) -> Accumulator:
        """Add what another shard of the same client measured; the other one is left as it is.

        Examples
        --------
        >>> X, y = np.arange(12.0).reshape(6, 2), [0, 1, 0, 1, 0, 1]
        >>> form = FixedPoint(norm_bound=64.0, max_samples=1000)
        >>> def shard(rows):
        ...     made = Accumulator(StatisticsSpec.of("client_means", "gram"), n_classes=2, dim=2, fixed_point=form)
        ...     return made.update(X[rows], np.array(y)[rows])
        >>> both = shard(slice(0, 1)).merge(shard(slice(1, 6))).statistics()
        >>> both == shard(slice(0, 6)).statistics(), len(both.rows)
        (True, 2)
        """
        self._require_same_stream(other)
        if self.fixed_point is not None:
            self.fixed_point.check_total(self.n_samples + other.n_samples)
        self._make_room(other._classes)
        cells = np.searchsorted(self._classes, other._classes)
        rows = self._rows_of(cells)
        for name, work in other._work.items():
            layout = moment(name).layout
            if layout is Layout.GLOBAL:
                self._work[name] += work
            else:
                self._work[name][rows if layout is Layout.ROWS else cells] += work
        self._counts[cells] += other._counts
        self._share_counts[cells] += other._share_counts
        if self._scatter and other._scatter:
            self._scatter.merge(other._scatter)
        return self

    def _require_same_stream(self, other: Accumulator) -> None:
        """Refuse a shard that measures something else, or somebody else."""
        if other is self:
            raise MergeError("a shard cannot be merged with itself: its samples would count twice")
        names = ("spec", "n_classes", "dim", "fixed_point", "client", *(["seed"] if self._shares > 1 else []))
        for name in names:
            ours, theirs = getattr(self, name), getattr(other, name)
            if ours != theirs:
                one, another = told_apart(ours, theirs)
                advice = ": add the statistics of different clients, not their shards" if name == "client" else ""
                raise MergeError(
                    f"shards of one client have the same {name}, but one has {one} and the other {another}{advice}"
                )

    def state(self) -> dict[str, NDArray[Any]]:
        """Return all that is held, as arrays by name."""
        held = {"classes": self._classes, "counts": self._counts, "share_counts": self._share_counts}
        held |= {f"moment.{name}": work for name, work in self._work.items()}
        return held | ({f"scatter.{name}": a for name, a in self._scatter.state().items()} if self._scatter else {})

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take over what :meth:`state` returned of an accumulator like this one, which is empty; checked."""
        classes = check_labels(state["classes"], len(state["classes"]), self.n_classes)
        if (np.diff(classes) < 1).any():
            raise InputError("the classes of a shard must ascend")
        self._make_room(classes)
        mine = {"counts": self._counts, "share_counts": self._share_counts}
        mine |= {f"moment.{name}": work for name, work in self._work.items()}
        for name, own in mine.items():
            _take_over(own, state[name], f"'{name}' of a shard")
        if (self._share_counts < 0).any() or not np.array_equal(self._share_counts.sum(axis=1), self._counts):
            raise InputError("the shares of a shard do not add up to its counts")
        if self._scatter:
            self._scatter.restore({name[8:]: array for name, array in state.items() if name.startswith("scatter.")})

    def to_bytes(self) -> bytes:
        """Return this shard as bytes, for :meth:`from_bytes` on another machine of the same client.

        Bytes of a scatter sketch hold rows close to samples: they are for the client's own machines.

        Examples
        --------
        >>> shard = Accumulator(StatisticsSpec.of("gram"), n_classes=1, dim=2).update([[1.0, 2.0]], [0])
        >>> Accumulator.from_bytes(shard.to_bytes()).statistics() == shard.statistics()
        True
        """
        from fedmoments.core.statistics.shards import pack_shard

        return pack_shard(self)

    @staticmethod
    def from_bytes(data: bytes) -> Accumulator:
        """Return the shard that :meth:`to_bytes` wrote, checked; it can go on."""
        from fedmoments.core.statistics.shards import unpack_shard

        return unpack_shard(data)

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
                self._work[name] = _moved(work, old, self._sums.workspace(moment(name), len(union), self.dim))
            elif layout is Layout.ROWS:
                fresh = self._sums.workspace(moment(name), len(union) * self._shares, self.dim)
                self._work[name] = _moved(work, self._rows_of(old), fresh)
        self._classes = union

    def _rows_of(self, cells: Ints) -> Ints:
        """Return the rows of all shares of some cells."""
        return np.asarray((cells[:, None] * self._shares + np.arange(self._shares)).ravel())

    def _add(self, given: NDArray[np.floating], labels: Ints) -> None:
        X = given.astype(np.float64, copy=False)
        single = is_single() and given.dtype == np.float32 and self.fixed_point is None
        cells = np.searchsorted(self._classes, labels)
        rows = cells * self._shares + self._dealt(X, labels, cells) if self._shares > 1 else cells
        for name, work in self._work.items():
            own = moment(name)
            chosen: Any = given if single and not own.wide else X
            self._sums.add(own, work, chosen, rows if own.layout is Layout.ROWS else cells)
        if self._scatter:
            self._scatter.update(X, labels)
        self._counts += np.bincount(cells, minlength=len(self._classes))
        self._share_counts += np.bincount(rows, minlength=self._share_counts.size).reshape(self._share_counts.shape)

    def _dealt(self, X: Floats, labels: Ints, cells: Ints) -> Ints:
        """Return the share of its class that each sample of a block is dealt to."""
        earlier = self._counts if self._before is None else self._counts + self._before[self._classes]
        places = sample_keys(X) if self.fixed_point else running_positions(cells, earlier)
        return deal_shares(labels, places, self._shares, self.seed)

    def statistics(self) -> Statistics:
        """Return what was measured so far; the accumulator can go on."""
        arrays: dict[str, NDArray[Any]] = {}
        labels = counts = np.zeros(0, np.int64)
        for name, work in self._work.items():
            finished = self._sums.finish(moment(name), work)
            if moment(name).layout is Layout.ROWS:
                labels, counts, finished = whole_or_shares(self._classes, self._share_counts, finished)
            arrays[name] = finished
        apart: dict[str, Any] = {}
        if self._scatter and self.spec.plan:
            sketch = sketch_of(self._scatter, self.spec.plan)
            arrays["scatter_sketch"] = sketch.rows
            apart = sketch.index
        index = (self._classes.copy(), self._counts.copy())
        apart["clients"] = frozenset([self.client] if self.client is not None else [])
        return Statistics(
            self.spec, self.n_classes, self.dim, *index, arrays, labels, counts.copy(), self.fixed_point, **apart
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
    held = counts > 0  # shares that were dealt by what samples hold may be empty
    return labels[used // s][held], counts[held], joined[held]


def _moved(old: NDArray[Any], places: Ints, fresh: NDArray[Any]) -> NDArray[Any]:
    """Return ``fresh`` with the rows of ``old`` at ``places``."""
    fresh[places] = old
    return fresh


def _take_over(own: NDArray[Any], arrived: NDArray[Any], whose: str) -> None:
    """Copy what arrived into an array of the same type and shape."""
    if arrived.shape != own.shape or arrived.dtype != own.dtype:
        raise InputError(f"{whose} must be {own.dtype} of shape {own.shape}, but is {arrived.dtype} of {arrived.shape}")
    if not np.isfinite(arrived).all():
        raise InputError(f"{whose} holds NaN or infinity")
    own[:] = arrived
