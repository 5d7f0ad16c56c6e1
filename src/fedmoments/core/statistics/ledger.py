"""Ledger: who contributed what. Clients join, leave and are replaced; heads are fitted from what is there.

Inside it is columnar: one table of (client, label, count, class moments) and one of (client, label, count, mean rows).
With ``fold=True`` additive moments are not kept per client but added to one running total, so that memory is that of
the total however many clients join; leaving then takes the client's contribution once more and, in fixed point, undoes
it exactly.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedmoments.core.notebook import html_table
from fedmoments.core.statistics.checks import check_sizes
from fedmoments.core.statistics.fixed_point import FixedPoint
from fedmoments.core.statistics.moments import Layout, cell_sums, moment
from fedmoments.core.statistics.relabelling import relabelled
from fedmoments.core.statistics.sketches import Sketches
from fedmoments.core.statistics.spec import StatisticsSpec, told_apart
from fedmoments.core.statistics.statistics import Statistics
from fedmoments.core.statistics.table import Table
from fedmoments.errors import ClientsPooledError, InputError, LedgerError, MergeError

__all__ = ["Ledger"]

Ints = NDArray[np.int64]
#: From this many numbers a class on, classes are added to a total one by one.
WIDE = 4096


class Ledger:
    """Contributions of many clients, kept apart by client id.

    Parameters
    ----------
    spec
        What every contribution holds (a finer contribution is restricted to it). Scatter sketches without a plan are by
        that of the first contribution.
    n_classes, dim
        C, and the dimension d of the features.
    fixed_point
        Keep everything in this fixed-point form: sums independent of order, leaving exact.
    fold
        Add additive moments to one running total instead of keeping them per client.

    Examples
    --------
    >>> spec = StatisticsSpec.of("client_means")
    >>> ledger = Ledger(spec, n_classes=2, dim=1)
    >>> ledger.join("clinic", Statistics.of([[1.0], [3.0]], [0, 1], spec, n_classes=2))
    >>> ledger.join("lab", Statistics.of([[5.0]], [0], spec, n_classes=2))
    >>> ledger.pool().sums.ravel()
    array([6., 3.])
    >>> ledger.leave("lab")
    >>> ledger.clients, ledger.pool().counts
    (('clinic',), array([1, 1]))
    """

    def __init__(
        self,
        spec: StatisticsSpec,
        *,
        n_classes: int,
        dim: int,
        fixed_point: FixedPoint | None = None,
        fold: bool = False,
    ) -> None:
        n_classes, dim = check_sizes(n_classes, dim)
        self.spec = spec.with_plan(spec.sketch and spec.sketch.settled(n_classes))
        self.n_classes, self.dim = n_classes, dim
        self.fixed_point, self.fold = fixed_point, fold
        dtype = np.int64 if fixed_point else np.float64
        by_layout: dict[Layout, list[str]] = defaultdict(list)
        for name in spec.sent:
            by_layout[moment(name).layout].append(name)
        self._row_moments = by_layout[Layout.ROWS]
        self._folded = [*by_layout[Layout.CLASS], *by_layout[Layout.GLOBAL]] if fold else []
        self._class_moments = [] if fold else by_layout[Layout.CLASS]
        self._global_moments = [] if fold else by_layout[Layout.GLOBAL]
        self._cells = self._table(self._class_moments, dtype)
        self._rows = self._table(self._row_moments, dtype)
        self._globals: dict[int, dict[str, NDArray[Any]]] = {}
        self._sketches: dict[int, Sketches] = {}
        self._rounded: dict[int, bool] = {}
        rows = {Layout.CLASS: (n_classes,), Layout.GLOBAL: ()}
        self._total: dict[str, NDArray[Any]] = {
            name: np.zeros((*rows[moment(name).layout], moment(name).width(dim)), dtype) for name in self._folded
        }
        self._slots: dict[Hashable, int] = {}
        self._digests: dict[int, str] = {}
        self._next_slot = 0
        self._merged: Statistics | None = None
        self._former: list[int] = []  # numbers of classes before some were added

    def _table(self, moments: list[str], dtype: Any) -> Table:
        wide = {name: ((moment(name).width(self.dim),), dtype) for name in moments}
        return Table({**dict.fromkeys(("client", "label", "count"), ((), np.int64)), **wide})

    # ---------------------------------------------------------------------------------------------- who is there

    @property
    def clients(self) -> tuple[Hashable, ...]:
        """Ids of the clients that are in, in the order in which they joined."""
        return tuple(self._slots)

    def __len__(self) -> int:
        return len(self._slots)

    def __repr__(self) -> str:
        return f"Ledger({self.spec}, {len(self)} clients, {self.n_classes} classes, d={self.dim})"

    def _repr_html_(self) -> str:
        owners, _, counts = self.cells()
        samples = np.bincount(owners, weights=counts, minlength=len(self))
        classes = np.bincount(owners, minlength=len(self))
        rows = [(client, f"{held:,.0f}", of) for client, held, of in zip(self.clients, samples, classes, strict=True)]
        return html_table(f"Ledger: {self.spec}, d = {self.dim}", ["client", "samples", "classes"], rows)

    def __contains__(self, client: Hashable) -> bool:
        return client in self._slots

    def cells(self) -> tuple[Ints, Ints, Ints]:
        """Return who holds what: (client position in :attr:`clients`, label, count), each (cells,)."""
        slots = np.fromiter(self._slots.values(), np.int64, len(self._slots))
        order = np.argsort(slots)
        position = order[np.searchsorted(slots[order], self._cells["client"])]
        return position, self._cells["label"], self._cells["count"]

    # ---------------------------------------------------------------------------------------------- changes

    def join(self, client: Hashable, contribution: Statistics, *, leaving: bool = True) -> None:
        """Take in a client's contribution; a refused one leaves the ledger as it was.

        Parameters
        ----------
        client, contribution
            Its id, and what it measured.
        leaving
            Whether the client may leave a folded ledger later: keeps a digest of what it contributed.
        """
        if client in self._slots:
            raise LedgerError(
                f"client {client!r} is already in the ledger: use replace to change its contribution, or leave first"
            )
        part = self._accepted(client, contribution)
        self.spec = self.spec.with_plan(part.spec.plan)  # of the first contribution, where none was agreed on
        slot = self._next_slot
        self._cells.append(
            client=np.full(len(part.classes), slot),
            label=part.classes,
            count=part.class_counts,
            **{name: part.arrays[name] for name in self._class_moments},
        )
        if self._row_moments:
            rows = {name: part.arrays[name] for name in self._row_moments}
            self._rows.append(
                client=np.full(len(part.row_labels), slot), label=part.row_labels, count=part.row_counts, **rows
            )
        if self.spec.has_sketch:
            self._sketches[slot] = part.sketches
            self._rounded[slot] = part.rounded
        if self._global_moments:
            self._globals[slot] = {name: part.arrays[name] for name in self._global_moments}
        if self._folded:
            self._fold_in(part, sign=1)
            if leaving:
                self._digests[slot] = part.digest()
        self._slots[client] = slot
        self._next_slot += 1
        self._merged = None

    def leave(self, client: Hashable, contribution: Statistics | None = None) -> None:
        """Take a client out, as if it had never joined.

        Parameters
        ----------
        client
            Its id.
        contribution
            What it had contributed: needed by a folded ledger, which did not keep it, and checked against its digest.
        """
        slot = self._slot(client)
        if self._folded:
            self._fold_in(self._proven(client, slot, contribution), sign=-1)
        self._cells.keep(self._cells["client"] != slot)
        if self._row_moments:
            self._rows.keep(self._rows["client"] != slot)
        self._globals.pop(slot, None)
        self._sketches.pop(slot, None)
        self._rounded.pop(slot, None)
        self._digests.pop(slot, None)
        del self._slots[client]
        self._merged = None

    def replace(self, client: Hashable, contribution: Statistics, *, former: Statistics | None = None) -> None:
        """Put a new contribution in the place of a client's former one (``former``: see :meth:`leave`)."""
        self._slot(client)
        self._accepted(client, contribution, leaving=self._count_of(client))
        self.leave(client, former)
        self.join(client, contribution)

    def extend(self, classes: int) -> None:
        """Let there be more classes from now on, behind those that are there; nobody holds a sample of them yet.

        What was contributed before stays as it is, and clients may still join and leave with statistics of fewer
        classes. The ledger is the one that had all classes from the start.

        Parameters
        ----------
        classes
            C, how many there are then.

        Examples
        --------
        >>> spec = StatisticsSpec.of("client_means")
        >>> ledger = Ledger(spec, n_classes=1, dim=1)
        >>> ledger.join("clinic", Statistics.of([[1.0]], [0], spec, n_classes=1))
        >>> ledger.extend(2)
        >>> ledger.join("lab", Statistics.of([[5.0]], [1], spec, n_classes=2))
        >>> ledger.statistics().sums.ravel()
        array([1., 5.])
        """
        if classes < self.n_classes:
            raise InputError(f"a ledger of {self.n_classes} classes cannot have {classes}: classes are only added")
        if classes == self.n_classes:
            return
        more = classes - self.n_classes
        for name in self._folded:
            if moment(name).layout is Layout.CLASS:
                self._total[name] = np.pad(self._total[name], ((0, more), (0, 0)))
        self._former.append(self.n_classes)
        self.n_classes, self._merged = classes, None

    def reserve(self, counts: Ints) -> None:
        """Make room for classes of clients with so many samples each, so that tables do not grow by doubling."""
        self._cells.reserve(len(counts))
        if self._row_moments:
            several = self.spec.means_per_client
            self._rows.reserve(int(np.where(counts >= 2 * several, several, 1).sum()))

    # ---------------------------------------------------------------------------------------------- reading

    def statistics(self, wanted: StatisticsSpec | None = None) -> Statistics:
        """Return all contributions merged, rows kept apart: what every head is fitted from.

        Mean rows are a view of the ledger's own matrix, not a copy.

        Parameters
        ----------
        wanted
            Where it names client means, and these were not measured but each client's class sums are here, they are
            the clients' means.

        Examples
        --------
        >>> ledger = Ledger(StatisticsSpec(), n_classes=1, dim=1)
        >>> for client, value in (("clinic", 1.0), ("lab", 5.0)):
        ...     ledger.join(client, Statistics.of([[value]], [0], StatisticsSpec(), n_classes=1))
        >>> ledger.statistics(StatisticsSpec.of("client_means")).rows.block_means().ravel()
        array([1., 5.])
        """
        if self._merged is None:
            self._merged = self._merge()
        apart = wanted is not None and "client_means" in wanted.moments and "client_means" not in self.spec.moments
        return self._with_means(self._merged) if apart and "sums" in self._class_moments else self._merged

    def _with_means(self, merged: Statistics) -> Statistics:
        """Return statistics with what every client added up of a class as the rows of client means."""
        spec = self.spec | StatisticsSpec.of("client_means")
        labels, counts, owners = (self._cells[name] for name in ("label", "count", "client"))
        arrays = {name: array for name, array in merged.arrays.items() if name in spec.sent}
        return replace(
            merged,
            spec=spec,
            arrays=arrays | {"client_means": self._cells["sums"]},
            row_labels=labels,
            row_counts=counts,
            row_owners=owners,
        )

    def pool(self, spec: StatisticsSpec | None = None) -> Statistics:
        """Return the additive moments of all clients together.

        Parameters
        ----------
        spec
            What is wanted; all additive moments by default. Moments that keep clients apart are refused: adding up
            client means would leave counts and sums, from which every free covariance is zero.
        """
        wanted = self.spec.additive if spec is None else spec
        if wanted.keeps_clients_apart:
            raise ClientsPooledError(
                f"pooling would destroy what {wanted} needs: client means must be kept apart, because added up they "
                "leave a zero covariance. Fit from the ledger itself, or from ledger.statistics()."
            )
        return self.statistics().restricted(wanted)

    def client(self, client: Hashable) -> Statistics:
        """Return one client's contribution as it was joined (not from a folded ledger, which did not keep it)."""
        slot = self._slot(client)
        if self._folded:
            raise LedgerError(
                f"this ledger folds contributions into a total and did not keep that of client {client!r}"
            )
        cells, rows = self._cells["client"] == slot, self._rows["client"] == slot
        arrays: dict[str, NDArray[Any]] = {name: self._cells[name][cells] for name in self._class_moments}
        arrays |= {name: self._rows[name][rows] for name in self._row_moments}
        arrays |= self._globals.get(slot, {})
        return self._statistics(self._cells["label"][cells], self._cells["count"][cells], arrays, slot)

    # ---------------------------------------------------------------------------------------------- measuring many

    @staticmethod
    def of(
        X: ArrayLike,
        y: ArrayLike,
        clients: ArrayLike,
        spec: StatisticsSpec,
        *,
        n_classes: int,
        names: Iterable[Hashable] | None = None,
        seed: int = 0,
        fixed_point: FixedPoint | None = None,
        fold: bool = False,
        leaving: bool = True,
    ) -> Ledger:
        """Measure all clients of a partition at once: the same as joining them one by one.

        In float64 it is faster, and the same up to rounding; in fixed point it is the same bit for bit.

        Parameters
        ----------
        X, y
            (n, d) features and (n,) labels of everybody.
        clients
            (n,) number of the client that holds each sample, from 0; −1 for a sample that nobody holds.
        spec
            What to measure.
        n_classes
            C.
        names
            Client ids by number; the numbers themselves by default. Clients without a sample join with nothing.
        seed, fixed_point, fold
            As in :meth:`Statistics.of` and :class:`Ledger`.
        leaving
            Whether clients may leave a folded ledger later. Without, it keeps no digests of what they contributed,
            which take a third of the time.

        Examples
        --------
        >>> X, y = np.arange(8.0).reshape(4, 2), [0, 1, 0, 1]
        >>> ledger = Ledger.of(X, y, [0, 0, 1, 1], StatisticsSpec.of("client_means"), n_classes=2)
        >>> ledger.statistics().rows.block_means()
        array([[0., 1.], [2., 3.], [4., 5.], [6., 7.]])
        """
        from fedmoments.core.statistics.partition import measure_partition

        return measure_partition(
            X,
            y,
            clients,
            spec,
            n_classes=n_classes,
            names=names,
            seed=seed,
            fixed_point=fixed_point,
            fold=fold,
            leaving=leaving,
        )

    # ---------------------------------------------------------------------------------------------- inside

    def _slot(self, client: Hashable) -> int:
        if client not in self._slots:
            raise LedgerError(
                f"client {client!r} is not in the ledger, which holds {len(self)} clients: has it joined?"
            )
        return self._slots[client]

    def _count_of(self, client: Hashable) -> int:
        return int(self._cells["count"][self._cells["client"] == self._slots[client]].sum())

    def _accepted(self, client: Hashable, contribution: Statistics, *, leaving: int = 0) -> Statistics:
        """Return the contribution in the ledger's own form, or say why it cannot join."""
        if contribution.n_classes in self._former:
            contribution = relabelled(contribution, range(contribution.n_classes), self.n_classes)
        for name in ("n_classes", "dim"):
            ours, theirs = getattr(self, name), getattr(contribution, name)
            if ours != theirs:
                raise MergeError(
                    f"client {client!r} contributed statistics with {name}={theirs}, but this ledger has "
                    f"{name}={ours}: all parties need the same encoder and class list"
                )
        if not self.spec <= contribution.spec:
            theirs, ours = told_apart(contribution.spec, self.spec)
            raise MergeError(
                f"client {client!r} contributed {theirs}, but this ledger needs {ours}: "
                "let it measure again with the ledger's spec"
            )
        part = contribution.restricted(self.spec)
        if self.fixed_point is None:
            return part.to_float()
        part = part.quantized(self.fixed_point)
        self.fixed_point.check_total(int(self._cells["count"].sum()) - leaving + part.n_samples)
        return part

    def _proven(self, client: Hashable, slot: int, contribution: Statistics | None) -> Statistics:
        """Return the contribution that a folded client is to take back, once it is certain that it is the same."""
        if self.fixed_point is None:
            raise LedgerError(
                f"client {client!r} cannot leave a folded ledger in float64, because subtraction would leave rounding "
                "behind: make the ledger with a fixed_point, or with fold=False"
            )
        if contribution is None:
            raise LedgerError(
                f"this ledger folds contributions into a total and did not keep that of client {client!r}: "
                "give leave() the contribution that it had joined with"
            )
        if slot not in self._digests:
            raise LedgerError(f"client {client!r} joined permanently, as requested, so it cannot leave")
        part = self._accepted(client, contribution, leaving=self._count_of(client))
        # what joined before classes were added has the digest of fewer
        sizes = (n for n in (*self._former, self.n_classes) if part.classes.max(initial=-1) < n)
        known = {replace(part, n_classes=n).digest() for n in sizes}
        if self._digests[slot] not in known:
            raise LedgerError(f"client {client!r} joined with another contribution than the one given to leave()")
        return part

    def _fold_in(self, part: Statistics, *, sign: int) -> None:
        for name in self._folded:
            change = np.add if sign > 0 else np.subtract
            total, array = self._total[name], part.arrays[name]
            if moment(name).layout is Layout.GLOBAL:
                change(total, array, out=total)
            elif array.shape[1] < WIDE:
                total[part.classes] = change(total[part.classes], array)
            else:  # class by class: no copy of what is there
                for label, row in zip(part.classes.tolist(), array, strict=True):
                    change(total[label], row, out=total[label])

    def _merge(self) -> Statistics:
        labels, counts = self._cells["label"], self._cells["count"]
        classes, places = np.unique(labels, return_inverse=True)
        class_counts = cell_sums(counts[:, None], places.astype(np.int64), len(classes))[:, 0]
        arrays: dict[str, NDArray[Any]] = {}
        for name in self._class_moments:
            arrays[name] = cell_sums(self._cells[name], places.astype(np.int64), len(classes))
        for name in self._global_moments:
            arrays[name] = np.zeros(moment(name).width(self.dim), np.int64 if self.fixed_point else np.float64)
            for kept in self._globals.values():
                arrays[name] += kept[name]
        for name in self._folded:
            total = self._total[name]
            arrays[name] = total[classes] if moment(name).layout is Layout.CLASS else total.copy()
        for name in self._row_moments:
            arrays[name] = self._rows[name]
        return self._statistics(classes, class_counts, arrays)

    def _statistics(
        self, classes: Ints, counts: Ints, arrays: dict[str, NDArray[Any]], slot: int | None = None
    ) -> Statistics:
        """Return statistics with the rows and sketches of all clients, or of one alone."""
        rows = slice(None) if slot is None else self._rows["client"] == slot
        owners = self._rows["client"][rows]
        apart: dict[str, Any] = {"row_owners": owners if slot is None else np.zeros_like(owners)}
        if self.spec.has_sketch:
            slots = [s for s in self._sketches if slot in (None, s)]
            blocks = Sketches.of([self._sketches[s] for s in slots], slots if slot is None else [0], self.dim)
            arrays["scatter_sketch"] = blocks.rows
            apart |= blocks.index
            apart["rounded"] = bool(slots) and all(self._rounded.get(s, False) for s in slots)
        labels, row_counts = self._rows["label"][rows], self._rows["count"][rows]
        spec, form = self.spec.settled(self.n_classes), self.fixed_point
        return Statistics(spec, self.n_classes, self.dim, classes, counts, arrays, labels, row_counts, form, **apart)

    def adopt(
        self,
        names: list[Hashable],
        cells: dict[str, NDArray[Any]],
        rows: dict[str, NDArray[Any]],
        total: dict[str, NDArray[Any]],
        sketches: dict[int, Sketches],
    ) -> None:
        """Fill an empty float64 ledger with clients 0 … len(names) − 1 that were measured together (see :meth:`of`)."""
        if len(self) or len(set(names)) != len(names):
            raise InputError("client names must be unique, and a partition is measured into an empty ledger")
        self._cells.adopt(**cells)
        if self._row_moments:
            self._rows.adopt(**rows)
        self._total |= total
        self._sketches = sketches
        self._slots = {name: slot for slot, name in enumerate(names)}
        self._next_slot = len(names)
