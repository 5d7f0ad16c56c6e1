"""Measuring all clients of a partition at once, for :meth:`fedmoments.Ledger.of`.

Samples are visited in the order of their (client, class) cell, a block at a time, so that every block adds to a short
run of cells while it is in cache. Additive moments of a folding float64 ledger need no cells: the sum over clients is
the moment of all samples together. Both add in another order than a client does, which float64 shows in its last digit
and rounding to fixed point now and then in a whole unit: fixed point is measured client by client, bit for bit.
Scatter sketches are measured client by client, too.
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedmoments.core.linalg import blocks
from fedmoments.core.statistics.accumulator import Accumulator, whole_or_shares
from fedmoments.core.statistics.checks import check_labels, check_shape, first_bad_row, running_positions
from fedmoments.core.statistics.fixed_point import FixedPoint
from fedmoments.core.statistics.ledger import Ledger
from fedmoments.core.statistics.moments import ClassSums, ClientMeans, Layout, moment
from fedmoments.core.statistics.shares import deal_shares
from fedmoments.core.statistics.sketch_plan import SketchPlan
from fedmoments.core.statistics.sketches import Sketches
from fedmoments.core.statistics.sketching import sketch_of, stream_of
from fedmoments.core.statistics.spec import StatisticsSpec
from fedmoments.core.statistics.statistics import Statistics
from fedmoments.errors import InputError

__all__ = ["ClientCells", "measure_partition"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Samples or cells in a block: small enough that one of 1280 float64 dimensions stays in cache while cells are summed.
BLOCK = 256
#: The same in numbers, where a sample has few.
NUMBERS = 1 << 18
#: From this many samples on, a (client, class) cell is summed on its own, not along with the others of its block.
LONG_RUN = 64


@dataclass(frozen=True)
class _Samples:
    """Everybody's samples, and the order that sorts those that somebody holds by client and class."""

    features: NDArray[np.floating]
    labels: Ints
    holders: Ints
    order: Ints

    def __len__(self) -> int:
        return len(self.order)

    @property
    def dim(self) -> int:
        return int(self.features.shape[1])

    def first_bad_row(self) -> InputError:
        """Return the error that names the first sample that somebody holds and that is not finite."""
        return first_bad_row(self.features, np.sort(self.order))


def measure_partition(
    X: ArrayLike,
    y: ArrayLike,
    clients: ArrayLike,
    spec: StatisticsSpec,
    *,
    n_classes: int,
    names: Iterable[Hashable] | None,
    seed: int,
    fixed_point: FixedPoint | None,
    fold: bool,
    leaving: bool,
) -> Ledger:
    """Return the ledger of all clients of a partition; see :meth:`fedmoments.Ledger.of`."""
    samples = _sorted_samples(X, y, clients, n_classes)
    n_clients = int(samples.holders.max(initial=-1)) + 1
    ids = _client_ids(n_clients, names)
    ledger = Ledger(spec, n_classes=n_classes, dim=samples.dim, fixed_point=fixed_point, fold=fold)
    layouts = {moment(name).layout for name in spec.sent}
    if fixed_point or (Layout.GLOBAL in layouts and not fold):
        _join_one_by_one(ledger, samples, ids, seed, leaving=leaving)
        return ledger
    folds = fold and not all(layout.apart for layout in layouts)
    _adopt_cells(ledger, samples, ids, seed, folds=folds)
    return ledger


def _client_ids(n_clients: int, names: Iterable[Hashable] | None) -> list[Hashable]:
    """Return the names of all clients, numbers by default."""
    ids: list[Hashable] = list(range(n_clients) if names is None else names)
    if len(set(ids)) != len(ids):
        raise InputError("client names must be unique")
    if n_clients > len(ids):
        raise InputError(f"there are {len(ids)} client names, but a sample belongs to client number {n_clients - 1}")
    return ids


def _adopt_cells(ledger: Ledger, samples: _Samples, ids: list[Hashable], seed: int, *, folds: bool) -> None:
    """Measure all clients at once, cell by cell, and put them into an empty ledger; class moments are folded or not."""
    spec, n_classes = ledger.spec, ledger.n_classes
    cells = _Cells(samples, n_classes, spec.means_per_client)
    class_moments = [] if folds else [n for n in spec.sent if moment(n).layout is Layout.CLASS]
    row_moments = [n for n in spec.sent if moment(n).layout is Layout.ROWS]
    shares = cells.deal(samples, seed)
    work = _sum_cells(samples, cells, shares, class_moments, row_moments)
    rows: dict[str, NDArray[Any]] = {}
    for name in row_moments:
        rows = cells.row_columns(name, work[name], shares)
    total = _fold_all(spec, samples, n_classes) if folds else {}
    sketches = _sketch_all(spec.plan, samples, n_classes, len(ids)) if spec.plan else {}
    ledger.adopt(ids, cells.class_columns(class_moments, work), rows, total, sketches)


def _sketch_all(plan: SketchPlan, samples: _Samples, n_classes: int, n_clients: int) -> dict[int, Sketches]:
    """Return every client's scatter sketch."""
    holders = samples.holders[samples.order]
    bounds = np.searchsorted(holders, np.arange(n_clients + 1))
    sketches: dict[int, Sketches] = {}
    for client in range(n_clients):
        mine = np.sort(samples.order[bounds[client] : bounds[client + 1]])
        scatter = stream_of(plan, n_classes, samples.dim)
        for block in blocks(len(mine)):
            scatter.update(samples.features[mine[block]].astype(np.float64), samples.labels[mine[block]])
        sketches[client] = sketch_of(scatter, plan)
    return sketches


def _sorted_samples(X: ArrayLike, y: ArrayLike, clients: ArrayLike, n_classes: int) -> _Samples:
    features = check_shape(X)
    labels = check_labels(y, len(features), n_classes)
    holders = np.asarray(clients)
    if holders.shape != labels.shape or holders.dtype.kind not in "iu":
        raise InputError(
            f"clients must be one whole number a sample, ({len(labels)},); "
            f"{holders.dtype} of shape {holders.shape} arrived"
        )
    holders = holders.astype(np.int64)
    order = np.argsort(holders * n_classes + labels, kind="stable")
    order = order[np.searchsorted(holders[order], 0) :]  # nobody's samples have a negative client and come first
    return _Samples(features, labels, holders, order)


class _Cells:
    """The non-empty (client, class) cells, ascending, of sorted samples."""

    def __init__(self, samples: _Samples, n_classes: int, n_shares: int) -> None:
        self.n_shares = n_shares
        keys = samples.holders[samples.order] * n_classes + samples.labels[samples.order]
        starts = np.flatnonzero(np.diff(keys, prepend=-1))  # keys ascend from 0: a cell is a run of equal ones
        self.counts: Ints = np.diff(starts, append=len(keys))
        self.of_sample: Ints = np.repeat(np.arange(len(starts)), self.counts)
        self.clients, self.labels = np.divmod(keys[starts], n_classes)

    def __len__(self) -> int:
        return len(self.counts)

    def deal(self, samples: _Samples, seed: int) -> Ints:
        """Return the row, cell · n_shares + share, that every sorted sample falls into, as (samples,)."""
        if self.n_shares == 1:
            return self.of_sample
        positions = running_positions(self.of_sample, np.zeros(len(self), np.int64))
        shares = deal_shares(samples.labels[samples.order], positions, self.n_shares, seed)
        return self.of_sample * self.n_shares + shares

    def class_columns(self, moments: list[str], work: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Return the ledger's columns of class moments."""
        wide = {name: moment(name).finish(work[name]) for name in moments}
        return {"client": self.clients, "label": self.labels, "count": self.counts, **wide}

    def row_columns(self, name: str, work: NDArray[Any], rows: Ints) -> dict[str, NDArray[Any]]:
        """Return the ledger's columns of mean rows."""
        counts = np.bincount(rows, minlength=len(work)).reshape(len(self), self.n_shares)
        if self.n_shares == 1:
            cells, kept, values = np.arange(len(self)), self.counts, work
        else:
            cells, kept, values = whole_or_shares(np.arange(len(self)), counts, work)
        return {"client": self.clients[cells], "label": self.labels[cells], "count": kept, name: values}


class ClientCells:
    """All clients' samples by (client, class) cell: sums of a block of cells at a time, and moments of all samples.

    It keeps the order of the samples and the size of each cell, and nothing of them: sums are made when they are asked
    for, and every time anew.

    Parameters
    ----------
    X, y, clients, n_classes
        As for :meth:`fedmoments.Ledger.of`.

    Examples
    --------
    >>> cells = ClientCells(np.arange(8.0).reshape(4, 2), [0, 1, 0, 0], [0, 0, 1, 1], n_classes=2)
    >>> cells.labels, cells.counts
    (array([0, 1, 0]), array([1, 1, 2]))
    >>> cells[1:3]
    array([[ 2.,  3.],
           [10., 12.]])
    """

    def __init__(self, X: ArrayLike, y: ArrayLike, clients: ArrayLike, *, n_classes: int) -> None:
        self._samples, self.n_classes = _sorted_samples(X, y, clients, n_classes), n_classes
        cells = _Cells(self._samples, n_classes, 1)
        self.labels: Ints = cells.labels
        self.counts: Ints = cells.counts
        self._bounds = np.append(0, np.cumsum(cells.counts))

    def __len__(self) -> int:
        return len(self.counts)

    def __getitem__(self, block: slice) -> Floats:
        """Return the sums (cells in block, d) of consecutive cells."""
        mine = slice(*block.indices(len(self))[:2])
        order = self._samples.order[self._bounds[mine.start] : self._bounds[max(mine.stop, mine.start)]]
        return _sum_sorted(self._samples, order, self.counts[mine])

    def added(self, spec: StatisticsSpec) -> Statistics:
        """Return additive moments of all samples that somebody holds."""
        return _of_all(spec, self._samples, self.n_classes)


def _sum_cells(
    samples: _Samples, cells: _Cells, rows: Ints, class_moments: list[str], row_moments: list[str]
) -> dict[str, NDArray[Any]]:
    """Return the workspaces of every class moment by cell, and of every row moment by row."""
    places = {name: (cells.of_sample, len(cells)) for name in class_moments}
    places |= {name: (rows, len(cells) * cells.n_shares) for name in row_moments}
    sums = {name for name in places if isinstance(moment(name), ClassSums | ClientMeans)}
    work = {name: _sum_runs(samples, *places[name]) for name in sums}
    others = {name: moment(name).workspace(places[name][1], samples.dim) for name in places if name not in sums}
    if others:
        _add_blocks(others, samples, {name: inside for name, (inside, _) in places.items()})
    return work | others


def _add_blocks(work: dict[str, NDArray[Any]], samples: _Samples, places: dict[str, Ints]) -> None:
    """Add the sorted samples, block by block, to the workspaces of moments at their places (samples,)."""
    for block in blocks(len(samples), BLOCK):
        X = samples.features[samples.order[block]].astype(np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            finite = np.isfinite(X.sum())
        if not finite:
            raise samples.first_bad_row()
        for name, array in work.items():
            inside = places[name][block]
            first, last = int(inside.min()), int(inside.max()) + 1
            moment(name).add(array[first:last], X, inside - first)


def _sum_runs(samples: _Samples, places: Ints, n_places: int) -> Floats:
    """Add up the sorted samples that fall into the same of ``n_places`` ``places`` (samples,), as (n_places, d)."""
    order = samples.order if np.all(places[1:] >= places[:-1]) else samples.order[np.argsort(places, kind="stable")]
    return _sum_sorted(samples, order, np.bincount(places, minlength=n_places))


@np.errstate(over="ignore", invalid="ignore")  # ∞ − ∞ is found out below, by name
def _sum_sorted(samples: _Samples, order: Ints, counts: Ints) -> Floats:
    """Add up the first ``counts[0]`` samples of an order, then the next ``counts[1]``, …, as (len(counts), d).

    A block of places is visited at a time, those with most samples first. Then the p-th samples of all places that
    have so many are one gather and one addition to the head of a buffer in cache: no product, and neither the samples
    nor the sums pass through memory twice. Few samples a place make few such rounds; long runs are added on their own.
    """
    n_places, size = len(counts), max(BLOCK, NUMBERS // samples.dim)
    starts = np.cumsum(counts) - counts
    sums = np.empty((n_places, samples.dim))
    wide = np.empty((min(n_places, size), samples.dim))
    for block in blocks(n_places, size):
        by_count = np.argsort(-counts[block], kind="stable")
        lengths, at = counts[block][by_count], starts[block][by_count]
        n_long = int(np.searchsorted(-lengths, -LONG_RUN))
        _add_long_runs(wide[:n_long], samples.features, order, at[:n_long], lengths[:n_long])
        _add_short_runs(wide[n_long:], samples.features, order, at[n_long:], lengths[n_long:])
        if not np.isfinite(np.einsum("ij->", wide[: len(lengths)])):
            raise samples.first_bad_row()
        # Rows back in their own order, by one sequential write ("clip" spares take() a buffer of its own).
        wide.take(np.argsort(by_count), axis=0, out=sums[block], mode="clip")
    return sums


def _add_long_runs(out: Floats, features: NDArray[np.floating], order: Ints, at: Ints, lengths: Ints) -> None:
    """Put the sum of samples order[at[i] : at[i] + lengths[i]] into out[i], run after run."""
    out[:] = 0.0
    for i, (start, length) in enumerate(zip(at.tolist(), lengths.tolist(), strict=True)):
        for part in blocks(length, BLOCK):
            out[i] += features[order[start + part.start : start + part.stop]].sum(axis=0, dtype=np.float64)


def _add_short_runs(out: Floats, features: NDArray[np.floating], order: Ints, at: Ints, lengths: Ints) -> None:
    """Do the same for runs of falling length, position after position: what reaches it is a head of ``out``."""
    heads = np.searchsorted(-lengths, -np.arange(int(lengths.max(initial=1)))).tolist()
    out[heads[0] : len(lengths)] = 0.0
    gathered = np.empty((heads[0], features.shape[1]), features.dtype)
    for position, n in enumerate(heads):
        # "clip" changes no valid index; it spares take() a buffer of its own.
        features.take(order[at[:n] + position], axis=0, out=gathered[:n], mode="clip")
        if position == 0:
            out[:n] = gathered
        else:
            out[:n] += gathered[:n]


def _of_all(spec: StatisticsSpec, samples: _Samples, n_classes: int) -> Statistics:
    """Return additive moments of all samples that somebody holds."""
    accumulator = Accumulator(spec, n_classes=n_classes, dim=samples.dim)
    if len(samples) == len(samples.features):
        return accumulator.update(samples.features, samples.labels).statistics()
    for block in blocks(len(samples)):
        chosen = samples.order[block]
        try:
            accumulator.update(samples.features[chosen], samples.labels[chosen])
        except InputError as error:
            raise samples.first_bad_row() from error
    return accumulator.statistics()


def _fold_all(spec: StatisticsSpec, samples: _Samples, n_classes: int) -> dict[str, NDArray[Any]]:
    """Return the additive moments of all samples that somebody holds, dense over classes."""
    sent = [name for name in spec.sent if not moment(name).layout.apart]
    everything = _of_all(StatisticsSpec.of(*sent), samples, n_classes)
    total: dict[str, NDArray[Any]] = {}
    for name in sent:
        array = everything.raw(name)
        if moment(name).layout is Layout.CLASS:
            total[name] = np.zeros((n_classes, array.shape[1]))
            total[name][everything.classes] = array
        else:
            total[name] = array.copy()
    return total


def _join_one_by_one(ledger: Ledger, samples: _Samples, ids: list[Hashable], seed: int, *, leaving: bool) -> None:
    """Measure and join client after client: for what must be rounded or kept per client."""
    bounds = np.searchsorted(samples.holders[samples.order], np.arange(len(ids) + 1))
    ledger.reserve(_Cells(samples, ledger.n_classes, 1).counts)
    for number, client in enumerate(ids):
        mine = np.sort(samples.order[bounds[number] : bounds[number + 1]])
        X, y = samples.features[mine], samples.labels[mine]
        try:
            part = Statistics.of(X, y, ledger.spec, n_classes=ledger.n_classes, seed=seed)
        except InputError as error:
            raise samples.first_bad_row() from error
        ledger.join(client, part, leaving=leaving)
