"""Statistics: what one client, or many merged, measured. Immutable, with ``+``, ``-`` and a zero.

Laws
----
- Statistics of a union are the sum of statistics, for any partition, order and batching.
- ``zero + s == s`` and ``zero + zero == zero``.
- In fixed point, sums are bit-for-bit independent of order, and ``(a + b) - b == a``.

Classes without a sample are absent from every array, so a client that holds 6 of 1203 classes stores 6 rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedmoments.core.linalg import unpack_symmetric
from fedmoments.core.notebook import html_table
from fedmoments.core.statistics.arithmetic import (
    add_up,
    digest_of,
    require_different_clients,
    require_mergeable,
    subtract,
)
from fedmoments.core.statistics.fixed_point import FixedPoint
from fedmoments.core.statistics.mean_rows import MeanRows
from fedmoments.core.statistics.moments import Layout, cell_sums, moment
from fedmoments.core.statistics.rounding import round_to_budget, whole_classes
from fedmoments.core.statistics.sketches import ALL_CLASSES, SKETCH_INDEX, Sketches
from fedmoments.core.statistics.spec import StatisticsSpec, told_apart
from fedmoments.errors import InputError, MergeError, MissingMomentError

__all__ = ["Statistics"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Made = TypeVar("Made")


@dataclass(frozen=True, eq=False)
class Statistics:
    """Moments of labelled features; see the module for its laws.

    Build one with :meth:`of` (from arrays), :class:`fedmoments.Accumulator` (from a stream), :meth:`zero` or
    :meth:`merge`; the constructor is for code that already holds valid arrays.

    Parameters
    ----------
    spec
        Which moments are held.
    n_classes, dim
        C, and the dimension d of the features.
    classes
        (p,) ascending labels that have a sample.
    class_counts
        (p,) samples of each.
    arrays
        Moment name -> CLASS (p, width), GLOBAL (width,), ROWS (r, width) or SKETCH (s, width) array; float64, or int64
        in fixed point, but for SKETCH, which is always float64.
    row_labels, row_counts
        (r,) of the rows kept apart.
    fixed_point
        The fixed-point form of ``arrays``, or None for float64.
    row_owners
        (r,) anonymous number of the contribution that a row came with: all 0 for one client, numbered anew by every
        merge, and no part of equality. Nothing is all 0.
    sketch_sizes, sketch_residuals, sketch_owners, sketch_labels
        (b,) of the scatter sketches: see :class:`~fedmoments.core.statistics.sketches.Sketches`.
    rounded
        Whether client means are such as a budget let travel (:meth:`as_sent`); no part of equality.
    clients
        Names of the clients whose samples these are, as far as they were given; no part of equality. Statistics of
        one client are not merged twice.

    Examples
    --------
    >>> X, y = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), np.array([0, 0, 2])
    >>> stats = Statistics.of(X, y, StatisticsSpec.of("gram"), n_classes=3)
    >>> stats.counts
    array([2, 0, 1])
    >>> stats.sums
    array([[4., 6.],
           [0., 0.],
           [5., 6.]])
    >>> first = Statistics.of(X[:1], y[:1], stats.spec, n_classes=3)
    >>> rest = Statistics.of(X[1:], y[1:], stats.spec, n_classes=3)
    >>> np.array_equal((first + rest).gram, stats.gram)
    True
    """

    spec: StatisticsSpec
    n_classes: int
    dim: int
    classes: Ints
    class_counts: Ints
    arrays: Mapping[str, NDArray[Any]]
    row_labels: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    row_counts: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    fixed_point: FixedPoint | None = None
    row_owners: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    sketch_sizes: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    sketch_residuals: Floats = field(default_factory=lambda: np.zeros(0))
    sketch_owners: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    rounded: bool = False
    sketch_labels: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    clients: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if not len(self.row_owners):
            object.__setattr__(self, "row_owners", np.zeros(len(self.row_labels), np.int64))
        if not len(self.sketch_labels):
            object.__setattr__(self, "sketch_labels", np.full(len(self.sketch_sizes), ALL_CLASSES, np.int64))
        for array in (self.classes, self.class_counts, *self._apart().values(), *self.arrays.values()):
            array.flags.writeable = False

    def _apart(self) -> dict[str, Any]:
        """Return the index of what is kept apart, by field."""
        names = ("row_labels", "row_counts", "row_owners", *SKETCH_INDEX)
        return {name: getattr(self, name) for name in names}

    # ---------------------------------------------------------------------------------------------- making one

    @staticmethod
    def of(
        X: ArrayLike,
        y: ArrayLike,
        spec: StatisticsSpec,
        *,
        n_classes: int,
        seed: int = 0,
        fixed_point: FixedPoint | None = None,
        client: str | None = None,
    ) -> Statistics:
        """Measure one client's features.

        Parameters
        ----------
        X
            (n, d) features, finite; accumulated in float64 a block at a time.
        y
            (n,) integer labels from 0 to n_classes − 1.
        spec
            What to measure.
        n_classes
            C, the same at every client.
        seed
            Deals samples to shares when ``spec.means_per_client`` > 1.
        fixed_point
            Round the result to this fixed-point form.
        client
            Whose samples they are, so that they are not merged twice; nobody's by default.
        """
        from fedmoments.core.statistics.accumulator import Accumulator
        from fedmoments.core.statistics.checks import check_shape

        features = check_shape(X)
        # The accumulator has no name here, so that its unpacked matrices are gone before anything is rounded.
        measured = (
            Accumulator(spec, n_classes=n_classes, dim=features.shape[1], seed=seed, client=client)
            .update(features, y)
            .statistics()
        )
        return measured.quantized(fixed_point) if fixed_point else measured

    @staticmethod
    def zero(spec: StatisticsSpec, *, n_classes: int, dim: int, fixed_point: FixedPoint | None = None) -> Statistics:
        """Return the statistics of no data: the neutral element of ``+``."""
        shapes = {n: (0,) if moment(n).layout is not Layout.GLOBAL else () for n in spec.sent}
        dtypes = {n: np.int64 if fixed_point and moment(n).layout is not Layout.SKETCH else np.float64 for n in shapes}
        arrays = {n: np.zeros((*rows, moment(n).width(dim)), dtypes[n]) for n, rows in shapes.items()}
        none = np.zeros(0, np.int64)
        planned = spec.settled(n_classes)
        return Statistics(planned, n_classes, dim, none, none.copy(), arrays, fixed_point=fixed_point)

    @staticmethod
    def merge(parts: Iterable[Statistics], *, two_clients: bool = False) -> Statistics:
        """Return the sum of one or more statistics; rows kept apart are concatenated in the order given.

        Takes memory for the sum and one part at a time beyond the parts themselves.

        Parameters
        ----------
        parts
            Statistics of different clients. Shards of one client are joined by :meth:`fedmoments.Accumulator.merge`.
        two_clients
            Count statistics of the same client (:attr:`clients`), or the same statistics given twice, as those of two.

        Examples
        --------
        >>> part = Statistics.of([[1.0]], [0], StatisticsSpec.of("client_means"), n_classes=1, client="clinic")
        >>> Statistics.merge([part, part])
        Traceback (most recent call last):
        fedmoments.errors.MergeError: the client 'clinic' is in two of the statistics to merge: ...
        >>> len(Statistics.merge([part, part], two_clients=True).rows)
        2
        """
        items = list(parts)
        if not items:
            raise InputError("merge needs at least one statistic; for the sum of nothing use Statistics.zero")
        for other in items[1:]:
            require_mergeable(items[0], other)
        if not two_clients:
            require_different_clients(items)
            if len({id(item) for item in items if len(item.row_labels)}) < sum(1 for i in items if len(i.row_labels)):
                raise MergeError(
                    "the same statistics are given twice, and would count as those of two clients: give them once, or "
                    "say two_clients=True"
                )
        return add_up(items)

    # ---------------------------------------------------------------------------------------------- reading it

    @property
    def n_samples(self) -> int:
        """N, how many samples were measured."""
        return int(self.class_counts.sum())

    @cached_property
    def counts(self) -> Ints:
        """(C,) samples of every class."""
        return self._dense(self.class_counts)

    @cached_property
    def sums(self) -> Floats:
        """(C, d) sums of every class's features."""
        return self._dense(self.class_array("sums"))

    @property
    def gram(self) -> Floats:
        """(d, d) second moment Σ x xᵀ over all samples."""
        return unpack_symmetric(self.global_array("gram"))

    @property
    def class_grams(self) -> Iterator[tuple[int, Floats]]:
        """Pairs (label, (d, d) second moment) of the classes present, one matrix in memory at a time."""
        packed = self.class_array("class_grams")
        return ((int(label), unpack_symmetric(row)) for label, row in zip(self.classes, packed, strict=True))

    @property
    def rows(self) -> MeanRows:
        """The class means that are kept apart."""
        return self.shared(
            "mean rows",
            None,
            lambda: MeanRows(self.row_labels, self.row_counts, self.raw("client_means"), self.fixed_point),
        )

    @property
    def sketches(self) -> Sketches:
        """The scatter sketches, one block a client, or one a class of each."""
        return Sketches(self.raw("scatter_sketch"), *(getattr(self, name) for name in SKETCH_INDEX))

    def class_array(self, name: str) -> Floats:
        """Return a CLASS moment of the classes present, (p, width), derived from a finer one if need be."""
        return self._values(name)

    def global_array(self, name: str) -> Floats:
        """Return a GLOBAL moment, (width,), derived from a finer one if need be."""
        return self._values(name)

    def raw(self, name: str) -> NDArray[Any]:
        """Return a moment's array as it is stored (int64 in fixed point), derived from a finer one if need be."""
        if name in self.arrays:
            return self.arrays[name]
        if name == "sums" and "client_means" in self.arrays:
            cells = np.searchsorted(self.classes, self.row_labels)
            return cell_sums(self.arrays["client_means"], cells, len(self.classes))
        for finer in self.spec.moments:
            derive = moment(finer).implies.get(name)
            if derive is not None:
                return derive(self.raw(finer))
        raise MissingMomentError(
            f"the moment '{name}' was not measured: these statistics hold {self.spec}. "
            f"Measure again with a spec that includes '{name}'."
        )

    def _values(self, name: str) -> Floats:
        array = self.raw(name)
        if self.fixed_point is None or moment(name).layout is Layout.SKETCH:
            return array
        return self.fixed_point.dequantize(array, moment(name).degree)

    def shared(self, kind: str, key: Any, make: Callable[[], Made]) -> Made:
        """Return what ``make`` makes of these statistics, kept for whoever asks for the same key next.

        Heads with equal needs are fitted from one object, and begin alike. One value of a kind is kept, the last one:
        nobody may change it, and it must not refer to these statistics.
        """
        if kind not in self._kept or self._kept[kind][0] != key:
            self._kept[kind] = (key, make())
        made: Made = self._kept[kind][1]
        return made

    @cached_property
    def _kept(self) -> dict[str, tuple[Any, Any]]:
        return {}

    def __getstate__(self) -> dict[str, Any]:
        # What was made of these statistics can be made again, and may hold what no pickle can (weak references).
        return {name: value for name, value in vars(self).items() if name != "_kept"}

    def _dense(self, compact: NDArray[Any]) -> NDArray[Any]:
        dense = np.zeros((self.n_classes, *compact.shape[1:]), compact.dtype)
        dense[self.classes] = compact
        return dense

    # ---------------------------------------------------------------------------------------------- changing form

    def restricted(self, spec: StatisticsSpec) -> Statistics:
        """Return only what ``spec`` asks for; it must follow from what is held.

        Examples
        --------
        >>> fine = Statistics.of([[1.0, 2.0]], [0], StatisticsSpec.of("class_grams"), n_classes=1)
        >>> fine.restricted(StatisticsSpec.of("class_squares")).class_array("class_squares")
        array([[1., 4.]])
        """
        if not spec <= self.spec:
            asked, held = told_apart(spec, self.spec)
            raise MissingMomentError(
                f"statistics of {asked} were requested, but these hold {held}: measure again with "
                f"a spec that includes what is missing"
            )
        spec = spec.with_plan(self.spec.sketch)
        if spec == self.spec:
            return self
        arrays = {name: self.raw(name) for name in spec.sent}
        dropped: tuple[str, ...] = () if spec.has_sketch else SKETCH_INDEX
        if not spec.keeps_clients_apart:
            dropped = (*dropped, "row_labels", "row_counts", "row_owners")
        return replace(self, spec=spec, arrays=arrays, **{name: self._apart()[name][:0] for name in dropped})

    def to_bytes(self) -> bytes:
        """Return the statistics as bytes, for a message or a column of a table: checksummed, never pickle.

        Examples
        --------
        >>> stats = Statistics.of([[1.0, 2.0]], [0], StatisticsSpec.of("gram"), n_classes=2)
        >>> Statistics.from_bytes(stats.to_bytes()) == stats
        True
        """
        from fedmoments.core.statistics.files import pack_statistics

        return pack_statistics(self)

    @staticmethod
    def from_bytes(data: bytes) -> Statistics:
        """Read what :meth:`to_bytes` returned, whoever sent it; cap the size of what arrives before.

        Raises
        ------
        FileFormatError
            When the bytes are damaged, are something else, or hold numbers that no data could have.
        """
        from fedmoments.core.statistics.files import unpack_statistics

        return unpack_statistics(data, "the statistics")

    def quantized(self, fixed_point: FixedPoint) -> Statistics:
        """Return these statistics in fixed point, every number rounded to the agreed resolution.

        Scatter sketches stay as they are: their rows are never added up, and were coded when they were measured.

        Examples
        --------
        >>> form = FixedPoint(norm_bound=4.0, max_samples=1000)
        >>> stats = Statistics.of([[0.1, 0.2]], [0], StatisticsSpec(), n_classes=1, fixed_point=form)
        >>> stats.raw("sums").dtype, np.allclose(stats.sums, [[0.1, 0.2]])
        (dtype('int64'), True)
        """
        if self.fixed_point == fixed_point:
            return self
        if self.fixed_point is not None:
            raise MergeError(
                f"these statistics are in {self.fixed_point}; rounding them again to {fixed_point} would lose"
            )
        fixed_point.check_total(self.n_samples)
        counts = {Layout.CLASS: self.class_counts[:, None], Layout.ROWS: self.row_counts[:, None]}
        total = np.asarray(self.n_samples)
        arrays = {
            name: array
            if moment(name).layout is Layout.SKETCH
            else fixed_point.quantize(array, moment(name).degree, counts.get(moment(name).layout, total), name)
            for name, array in self.arrays.items()
        }
        return replace(self, arrays=arrays, fixed_point=fixed_point)

    def to_float(self) -> Statistics:
        """Return these statistics in float64."""
        if self.fixed_point is None:
            return self
        return replace(self, arrays={name: self._values(name) for name in self.arrays}, fixed_point=None)

    def whole_classes(self) -> Statistics:
        """Return these statistics with one mean for every class of a contribution, where it was sent in shares.

        Examples
        --------
        >>> spec = StatisticsSpec.of("client_means", means_per_client=2)
        >>> stats = Statistics.of(np.arange(8.0).reshape(8, 1), [0] * 8, spec, n_classes=1)
        >>> len(stats.rows), stats.whole_classes().rows.block_means()
        (2, array([[3.5]]))
        """
        if self.spec.means_per_client == 1 and not self.spec.has_sketch:
            return self
        # Asked of the rows: restricting to a spec of one mean leaves shares as they were measured.
        places, first = whole_classes(self.row_labels, self.row_owners)
        if self.spec.means_per_client == 1 and len(first) == len(self.row_labels):
            return self
        arrays = {**self.arrays, "client_means": cell_sums(self.raw("client_means"), places, len(first))}
        return replace(
            self,
            spec=replace(self.spec, means_per_client=1),
            arrays=arrays,
            row_labels=self.row_labels[first],
            row_counts=cell_sums(self.row_counts[:, None], places, len(first))[:, 0],
            row_owners=self.row_owners[first],
        )

    def as_sent(self) -> Statistics:
        """Return what a server holds of these statistics when a scatter sketch travels within a budget.

        Client means are one a class, rounded to the code that each contribution's budget allows
        (:meth:`SketchPlan.choose`); without a budget they are not rounded. Sketch rows were coded when they were
        measured; the rest stays as it is. Statistics without a scatter sketch are returned unchanged.

        Examples
        --------
        >>> X, y = np.random.default_rng(0).normal(size=(40, 64)), [0, 1] * 20
        >>> stats = Statistics.of(X, y, StatisticsSpec.of("scatter_sketch"), n_classes=2)
        >>> off = np.abs(stats.as_sent().rows.block_means() - stats.rows.block_means()).max()
        >>> bool(0 < off < 0.01)
        True
        """
        plan = self.spec.plan
        if plan is None or self.rounded or not len(self.row_labels):
            return self
        whole = self.whole_classes()
        if plan.budget is None:
            return whole
        means = round_to_budget(whole.raw("client_means"), whole.row_counts, whole.row_owners, plan, self.fixed_point)
        return replace(whole, arrays={**whole.arrays, "client_means": means}, rounded=True)

    def digest(self) -> str:
        """Return the SHA-256 of the canonical bytes; rows kept apart count as a multiset, in no order.

        Examples
        --------
        >>> a = Statistics.of([[1.0]], [0], StatisticsSpec(), n_classes=2)
        >>> b = Statistics.of([[2.0]], [1], StatisticsSpec(), n_classes=2)
        >>> (a + b).digest() == (b + a).digest()
        True
        """
        return digest_of(self)

    # ---------------------------------------------------------------------------------------------- arithmetic

    def __add__(self, other: Statistics) -> Statistics:
        require_mergeable(self, other)
        require_different_clients([self, other])
        return add_up([self, other])

    def __sub__(self, other: Statistics) -> Statistics:
        require_mergeable(self, other)
        return subtract(self, other)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Statistics) and self.digest() == other.digest()

    def __hash__(self) -> int:
        return hash(self.digest())

    def _repr_html_(self) -> str:
        rows = [(label, f"{self.counts[label]:,}") for label in self.classes]
        caption = f"Statistics: {self.spec}, {self.n_samples:,} samples, d = {self.dim}"
        return html_table(caption, ["class", "samples"], rows)

    def __repr__(self) -> str:
        form = "fixed point" if self.fixed_point else "float64"
        rows = f", {len(self.row_labels)} rows" if self.spec.keeps_clients_apart else ""
        return (
            f"Statistics({self.spec}; {self.n_samples} samples of {len(self.classes)} of {self.n_classes} classes, "
            f"d={self.dim}{rows}, {form})"
        )
