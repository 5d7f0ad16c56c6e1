"""Measuring all clients of a partition at once, for :meth:`fedmoments.Ledger.of`.

Samples are visited in the order of their (client, class) cell, a block at a time, so that every block adds to a short
run of cells while it is in cache. Additive moments of a folding float64 ledger need no cells: the sum over clients is
the moment of all samples together.
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedmoments.errors import InputError
from fedmoments.linalg import blocks
from fedmoments.statistics.accumulator import (
    Accumulator,
    check_labels,
    check_shape,
    first_bad_row,
    running_positions,
    whole_or_shares,
)
from fedmoments.statistics.fixed_point import FixedPoint
from fedmoments.statistics.ledger import Ledger
from fedmoments.statistics.moments import Layout, moment
from fedmoments.statistics.shares import deal_shares
from fedmoments.statistics.spec import StatisticsSpec
from fedmoments.statistics.statistics import Statistics

__all__ = ["measure_partition"]

Ints = NDArray[np.int64]

#: Samples in a block: small enough that a block of 1280 float64 dimensions stays in cache while cells are summed.
BLOCK = 256


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
) -> Ledger:
    """Return the ledger of all clients of a partition; see :meth:`fedmoments.Ledger.of`."""
    samples = _sorted_samples(X, y, clients, n_classes)
    n_clients = int(samples.holders.max(initial=-1)) + 1
    ids: list[Hashable] = list(range(n_clients) if names is None else names)
    if n_clients > len(ids):
        raise InputError(f"there are {len(ids)} client names, but a sample belongs to client number {n_clients - 1}")
    ledger = Ledger(spec, n_classes=n_classes, dim=samples.dim, fixed_point=fixed_point, fold=fold)
    layouts = {moment(name).layout for name in spec.sent}
    folds = fold and layouts != {Layout.ROWS}
    if (folds and fixed_point) or (Layout.GLOBAL in layouts and not fold):
        _join_one_by_one(ledger, samples, ids, seed)
        return ledger
    cells = _Cells(samples, n_classes)
    class_moments = [] if folds else [n for n in spec.sent if moment(n).layout is Layout.CLASS]
    row_moments = [n for n in spec.sent if moment(n).layout is Layout.ROWS]
    shares = cells.deal(samples, spec.means_per_client, seed)
    work = _sum_cells(samples, cells, shares, class_moments, row_moments)
    rows: dict[str, NDArray[Any]] = {}
    for name in row_moments:
        rows = cells.row_columns(name, work[name], shares, fixed_point)
    total = _fold_all(spec, samples, n_classes) if folds else {}
    ledger.adopt(ids, cells.class_columns(class_moments, work, fixed_point), rows, total)
    return ledger


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

    def __init__(self, samples: _Samples, n_classes: int) -> None:
        keys = samples.holders[samples.order] * n_classes + samples.labels[samples.order]
        cells, inverse, self.counts = np.unique(keys, return_inverse=True, return_counts=True)
        self.of_sample: Ints = inverse.astype(np.int64)
        self.clients, self.labels = np.divmod(cells, n_classes)

    def __len__(self) -> int:
        return len(self.counts)

    def deal(self, samples: _Samples, n_shares: int, seed: int) -> Ints:
        """Return the row, cell · n_shares + share, that every sorted sample falls into, as (samples,)."""
        if n_shares == 1:
            return self.of_sample
        positions = running_positions(self.of_sample, np.zeros(len(self), np.int64))
        return self.of_sample * n_shares + deal_shares(samples.labels[samples.order], positions, n_shares, seed)

    def class_columns(
        self, moments: list[str], work: dict[str, NDArray[Any]], form: FixedPoint | None
    ) -> dict[str, NDArray[Any]]:
        """Return the ledger's columns of class moments."""
        wide = {name: _rounded(moment(name).finish(work[name]), name, self.counts, form) for name in moments}
        return {"client": self.clients, "label": self.labels, "count": self.counts, **wide}

    def row_columns(
        self, name: str, work: NDArray[Any], rows: Ints, form: FixedPoint | None
    ) -> dict[str, NDArray[Any]]:
        """Return the ledger's columns of mean rows."""
        counts = np.bincount(rows, minlength=len(work)).reshape(len(self), -1)
        if counts.shape[1] == 1:
            cells, kept, values = np.arange(len(self)), self.counts, work
        else:
            cells, kept, values = whole_or_shares(np.arange(len(self)), counts, work)
        wide = {name: _rounded(values, name, kept, form)}
        return {"client": self.clients[cells], "label": self.labels[cells], "count": kept, **wide}


def _rounded(values: NDArray[Any], name: str, counts: Ints, form: FixedPoint | None) -> NDArray[Any]:
    return form.quantize(values, moment(name).degree, counts[:, None], name) if form else values


def _sum_cells(
    samples: _Samples, cells: _Cells, rows: Ints, class_moments: list[str], row_moments: list[str]
) -> dict[str, NDArray[Any]]:
    """Return the workspaces of every class moment by cell, and of every row moment by row."""
    n_shares = max(1, (int(rows.max(initial=0)) + len(cells)) // max(len(cells), 1))
    work = {name: moment(name).workspace(len(cells), samples.dim) for name in class_moments}
    work |= {name: moment(name).workspace(len(cells) * n_shares, samples.dim) for name in row_moments}
    for block in blocks(len(samples), BLOCK) if work else ():
        X = samples.features[samples.order[block]].astype(np.float64)
        if not np.isfinite(X.sum()):
            raise first_bad_row(samples.features)
        first, last = cells.of_sample[block.start], cells.of_sample[block.stop - 1] + 1
        for name in class_moments:
            moment(name).add(work[name][first:last], X, cells.of_sample[block] - first)
        for name in row_moments:
            moment(name).add(work[name][first * n_shares : last * n_shares], X, rows[block] - first * n_shares)
    return work


def _fold_all(spec: StatisticsSpec, samples: _Samples, n_classes: int) -> dict[str, NDArray[Any]]:
    """Return the additive moments of all samples that somebody holds, dense over classes."""
    sent = [name for name in spec.sent if moment(name).layout is not Layout.ROWS]
    accumulator = Accumulator(StatisticsSpec.of(*sent), n_classes=n_classes, dim=samples.dim)
    if len(samples) == len(samples.features):
        accumulator.update(samples.features, samples.labels)
    else:
        for block in blocks(len(samples)):
            chosen = samples.order[block]
            accumulator.update(samples.features[chosen], samples.labels[chosen])
    everything = accumulator.statistics()
    total: dict[str, NDArray[Any]] = {}
    for name in sent:
        array = everything.raw(name)
        if moment(name).layout is Layout.CLASS:
            total[name] = np.zeros((n_classes, array.shape[1]))
            total[name][everything.classes] = array
        else:
            total[name] = array.copy()
    return total


def _join_one_by_one(ledger: Ledger, samples: _Samples, ids: list[Hashable], seed: int) -> None:
    """Measure and join client after client: for what must be rounded or kept per client."""
    bounds = np.searchsorted(samples.holders[samples.order], np.arange(len(ids) + 1))
    for number, client in enumerate(ids):
        mine = np.sort(samples.order[bounds[number] : bounds[number + 1]])
        X, y = samples.features[mine], samples.labels[mine]
        ledger.join(client, Statistics.of(X, y, ledger.spec, n_classes=ledger.n_classes, seed=seed))
