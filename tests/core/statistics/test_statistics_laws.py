"""Laws of METHODS 1: statistics of a union are the sum of statistics, whatever the partition, order and batching."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedmoments.core.statistics import MOMENTS, Accumulator, FixedPoint, Statistics, StatisticsSpec
from fedmoments.errors import MergeError

Array = npt.NDArray[Any]

ADDITIVE = ("class_norms", "class_squares", "class_thirds", "class_fourths", "gram", "class_grams")
EVERYTHING = StatisticsSpec.of(*MOMENTS)
FORM = FixedPoint(norm_bound=64.0, max_samples=4096)


@dataclass(frozen=True)
class Federation:
    X: Array
    y: Array
    holders: Array
    n_classes: int
    n_clients: int

    def of(self, client: int, spec: StatisticsSpec, form: FixedPoint | None = None) -> Statistics:
        mine = self.holders == client
        return Statistics.of(self.X[mine], self.y[mine], spec, n_classes=self.n_classes, fixed_point=form)

    def parts(self, spec: StatisticsSpec, form: FixedPoint | None = None) -> list[Statistics]:
        return [self.of(client, spec, form) for client in range(self.n_clients)]

    def together(self, spec: StatisticsSpec, form: FixedPoint | None = None) -> Statistics:
        return Statistics.of(self.X, self.y, spec, n_classes=self.n_classes, fixed_point=form)


def make_federation(seed: int, n: int, dim: int, n_classes: int, n_clients: int, *, grid: bool) -> Federation:
    """Return random data; on a grid of eighths every float64 sum is exact, so that laws hold bit for bit."""
    rng = np.random.default_rng(seed)
    X = rng.integers(-32, 33, size=(n, dim)) / 8 if grid else rng.normal(size=(n, dim))
    y, holders = rng.integers(0, n_classes, n), rng.integers(0, n_clients, n)
    return Federation(X, y, holders, n_classes, n_clients)


def federations(*, grid: bool) -> st.SearchStrategy[Federation]:
    return st.builds(
        make_federation,
        st.integers(0, 2**32),
        st.integers(0, 40),
        st.integers(1, 5),
        st.integers(1, 4),
        st.integers(1, 5),
        grid=st.just(grid),
    )


specs = st.builds(
    lambda names: StatisticsSpec(frozenset(names)),
    st.sets(st.sampled_from(sorted(MOMENTS))),
)
additive_specs = st.builds(lambda names: StatisticsSpec(frozenset(names)), st.sets(st.sampled_from(ADDITIVE)))


def assert_close(ours: Statistics, theirs: Statistics, rtol: float = 1e-12) -> None:
    assert ours.spec == theirs.spec
    assert np.array_equal(ours.classes, theirs.classes)
    assert np.array_equal(ours.class_counts, theirs.class_counts)
    for name in ours.arrays:
        if name == "client_means":
            continue
        scale = max(1.0, float(np.abs(theirs.arrays[name]).max(initial=0.0)))
        np.testing.assert_allclose(ours.arrays[name], theirs.arrays[name], rtol=0, atol=rtol * scale)


def row_multiset(stats: Statistics) -> list[tuple[Any, ...]]:
    rows = stats.rows
    return sorted(
        (int(label), int(count), *total)
        for label, count, total in zip(rows.labels, rows.counts, rows.block_sums().tolist(), strict=True)
    )


@settings(max_examples=40, deadline=None)
@given(federations(grid=True), additive_specs)
def test_statistics_of_a_union_are_the_sum_of_statistics(federation: Federation, spec: StatisticsSpec) -> None:
    parts, whole = federation.parts(spec), federation.together(spec)
    assert Statistics.merge(parts) == whole  # exact on the grid
    assert_close(Statistics.merge(parts), whole)


@settings(max_examples=25, deadline=None)
@given(federations(grid=False), additive_specs)
def test_sums_of_float64_statistics_agree_to_1e_12(federation: Federation, spec: StatisticsSpec) -> None:
    assert_close(Statistics.merge(federation.parts(spec)), federation.together(spec))


def test_half_of_the_data_does_not_match_the_whole() -> None:
    federation = make_federation(0, 40, 3, 3, 4, grid=True)
    parts, whole = federation.parts(EVERYTHING), federation.together(EVERYTHING)
    half = Statistics.merge(parts[:2])
    for name in EVERYTHING.additive.sent:
        assert not np.array_equal(half.raw(name), whole.raw(name)), name
    assert half.n_samples < whole.n_samples
    assert half != whole


@settings(max_examples=30, deadline=None)
@given(federations(grid=True), specs, st.randoms(use_true_random=False))
def test_a_sum_does_not_depend_on_the_order_of_the_summands(
    federation: Federation, spec: StatisticsSpec, rnd: Any
) -> None:
    parts = federation.parts(spec)
    first = Statistics.merge(parts)
    rnd.shuffle(parts)
    again = parts[0]
    for part in parts[1:]:
        again = again + part
    assert again == first


@settings(max_examples=30, deadline=None)
@given(federations(grid=False), specs, st.randoms(use_true_random=False))
def test_sums_in_fixed_point_are_independent_of_order_bit_for_bit(
    federation: Federation, spec: StatisticsSpec, rnd: Any
) -> None:
    parts = federation.parts(spec, FORM)
    digests = {Statistics.merge(parts).digest()}
    for _ in range(4):
        rnd.shuffle(parts)
        digests.add(Statistics.merge(parts).digest())
    left, right = Statistics.merge(parts[: len(parts) // 2 + 1]), parts[len(parts) // 2 + 1 :]
    digests.add(Statistics.merge([*right, left]).digest())
    assert len(digests) == 1


def test_many_clients_in_many_orders_have_one_digest_in_fixed_point_and_many_in_float64() -> None:
    federation = make_federation(1, 600, 4, 5, 100, grid=False)
    rng = np.random.default_rng(0)
    spec = StatisticsSpec.of("gram", "class_squares", "client_means")
    exact, rounded = federation.parts(spec, FORM), federation.parts(spec)
    orders = [rng.permutation(len(exact)) for _ in range(25)]
    assert len({Statistics.merge(exact[i] for i in order).digest() for order in orders}) == 1
    assert len({Statistics.merge(rounded[i] for i in order).digest() for order in orders}) > 1


@settings(max_examples=30, deadline=None)
@given(federations(grid=True), specs)
def test_client_means_of_a_sum_are_the_multiset_of_all_rows(federation: Federation, spec: StatisticsSpec) -> None:
    parts = federation.parts(spec | StatisticsSpec.of("client_means"))
    merged = Statistics.merge(parts)
    assert row_multiset(merged) == sorted(row for part in parts for row in row_multiset(part))
    labels = {(int(c), int(k)) for c, k in zip(federation.y, federation.holders, strict=True)}
    assert len(merged.rows) == len(labels)  # one row a client and class: clients stay apart


@settings(max_examples=30, deadline=None)
@given(federations(grid=False), specs, st.booleans())
def test_zero_is_neutral(federation: Federation, spec: StatisticsSpec, fixed: bool) -> None:
    form = FORM if fixed else None
    stats = federation.together(spec, form)
    zero = Statistics.zero(spec, n_classes=stats.n_classes, dim=stats.dim, fixed_point=form)
    assert zero + stats == stats
    assert stats + zero == stats
    assert stats - zero == stats
    assert stats - stats == zero
    assert zero + zero == zero
    assert zero.n_samples == 0
    empty = Statistics.of(np.zeros((0, stats.dim)), [], spec, n_classes=stats.n_classes, fixed_point=form)
    assert empty == zero


@settings(max_examples=40, deadline=None)
@given(federations(grid=False), federations(grid=False), specs)
def test_merged_then_subtracted_is_never_there_bit_for_bit_in_fixed_point(
    one: Federation, other: Federation, spec: StatisticsSpec
) -> None:
    dim, n_classes = one.X.shape[1], one.n_classes
    a = one.together(spec, FORM)
    X = np.resize(other.X, (len(other.X), dim)) if len(other.X) else np.zeros((0, dim))
    b = Statistics.of(X, other.y % n_classes, spec, n_classes=n_classes, fixed_point=FORM)
    assert ((a + b) - b).digest() == a.digest()
    assert ((b + a) - b).digest() == a.digest()
    if b.n_samples:
        assert (a + b).digest() != a.digest()


@settings(max_examples=20, deadline=None)
@given(federations(grid=False), additive_specs)
def test_merged_then_subtracted_agrees_to_1e_12_in_float64(federation: Federation, spec: StatisticsSpec) -> None:
    parts = federation.parts(spec)
    rest = Statistics.merge([Statistics.zero(spec, n_classes=parts[0].n_classes, dim=parts[0].dim), *parts[1:]])
    assert_close(Statistics.merge(parts) - parts[0], rest)


@settings(max_examples=40, deadline=None)
@given(federations(grid=True), st.integers(1, 3), st.lists(st.integers(0, 40), max_size=4), st.integers(0, 5))
def test_statistics_do_not_depend_on_batching(federation: Federation, shares: int, cuts: list[int], seed: int) -> None:
    spec = EVERYTHING | StatisticsSpec.of("client_means", means_per_client=shares)
    X, y = federation.X, federation.y
    whole = Statistics.of(X, y, spec, n_classes=federation.n_classes, seed=seed)
    stream = Accumulator(spec, n_classes=federation.n_classes, dim=X.shape[1], seed=seed)
    for X_batch, y_batch in zip(np.split(X, sorted(cuts)), np.split(y, sorted(cuts)), strict=True):
        stream.update(X_batch, y_batch)
    assert stream.statistics() == whole


def test_an_accumulator_can_go_on_after_its_statistics_were_read() -> None:
    federation = make_federation(3, 30, 2, 3, 1, grid=True)
    stream = Accumulator(EVERYTHING, n_classes=3, dim=2)
    stream.update(federation.X[:10], federation.y[:10])
    early = stream.statistics()
    digest = early.digest()
    stream.update(federation.X[10:], federation.y[10:])
    assert early.digest() == digest
    assert stream.statistics() == federation.together(EVERYTHING)


def test_a_refused_batch_leaves_the_accumulator_as_it_was() -> None:
    stream = Accumulator(EVERYTHING, n_classes=2, dim=2).update([[1.0, 2.0]], [0])
    digest = stream.statistics().digest()
    for X, y in [([[1.0, np.nan]], [1]), ([[1.0, 2.0]], [2]), ([[1.0]], [1]), ([[1.0, 2.0]], [0, 1])]:
        with pytest.raises(ValueError, match=r"features|labels"):
            stream.update(X, y)
    assert stream.statistics().digest() == digest


def test_a_long_stream_is_measured_in_bounded_memory() -> None:
    import tracemalloc

    rng = np.random.default_rng(0)
    stream = Accumulator(StatisticsSpec.of("gram", "client_means"), n_classes=3, dim=20)
    batch = rng.normal(size=(500, 20)), rng.integers(0, 3, 500)
    for _ in range(3):
        stream.update(*batch)
    tracemalloc.start()
    try:
        stream.update(*batch)
        once = tracemalloc.get_traced_memory()[1]
        for _ in range(60):
            stream.update(*batch)
        many = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert stream.statistics().n_samples == 64 * 500
    assert many < 1.5 * once + 50_000


@settings(max_examples=30, deadline=None)
@given(
    hnp.arrays(np.float64, hnp.array_shapes(min_dims=2, max_dims=2, max_side=8), elements=st.floats(-1e6, 1e6)),
    st.integers(0, 2**16),
)
def test_features_up_to_a_million_merge_to_1e_12(X: Array, seed: int) -> None:
    rng = np.random.default_rng(seed)
    y, holders = rng.integers(0, 3, len(X)), rng.integers(0, 2, len(X))
    federation = Federation(X, y, holders, 3, 2)
    spec = StatisticsSpec.of(*ADDITIVE)
    merged, whole = Statistics.merge(federation.parts(spec)), federation.together(spec)
    assert np.array_equal(merged.counts, whole.counts)
    peak = max(1.0, float(np.abs(X).max()))
    for name in spec.sent:
        bound = 1e-12 * peak ** MOMENTS[name].degree * X.size
        np.testing.assert_allclose(merged.raw(name), whole.raw(name), rtol=0, atol=bound)


# -------------------------------------------------------------------------------------------------- refusals


def small(spec: StatisticsSpec = EVERYTHING, label: int = 0, value: float = 1.0, **options: Any) -> Statistics:
    return Statistics.of([[value, 2.0]], [label], spec, n_classes=options.pop("n_classes", 3), **options)


def test_subtracting_a_class_that_was_never_added_is_refused() -> None:
    with pytest.raises(MergeError, match="never added"):
        small() - small(label=1)
    with pytest.raises(MergeError, match="never added"):
        small(label=0) - small(label=2)


def test_subtracting_more_samples_than_were_added_is_refused() -> None:
    with pytest.raises(MergeError, match="more samples of class 0"):
        small() - (small() + small())


def test_subtracting_a_row_of_client_means_that_was_never_added_is_refused() -> None:
    with pytest.raises(MergeError, match="row of client means"):
        (small(value=1.0) + small(value=2.0)) - small(value=3.0)
    both = small(value=1.0) + small(value=1.0)
    assert both - small(value=1.0) == small(value=1.0)  # of two equal rows one is taken


@pytest.mark.parametrize(
    ("other", "what"),
    [
        (small(StatisticsSpec.of("gram")), "spec"),
        (small(n_classes=4), "n_classes"),
        (Statistics.of([[1.0]], [0], EVERYTHING, n_classes=3), "dim"),
        (small(fixed_point=FORM), "fixed_point"),
    ],
)
def test_statistics_of_different_kind_are_not_merged(other: Statistics, what: str) -> None:
    message = f"only be merged if their {what} is the same"
    with pytest.raises(MergeError, match=message):
        small() + other
    with pytest.raises(MergeError, match=message):
        small() - other
    with pytest.raises(MergeError, match=message):
        Statistics.merge([small(), other])


def test_shares_must_agree_to_be_merged() -> None:
    two = small(StatisticsSpec.of("client_means", means_per_client=2))
    with pytest.raises(MergeError, match=r"spec.*× 2"):
        small(StatisticsSpec.of("client_means")) + two


def test_merging_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match=r"Statistics\.zero"):
        Statistics.merge([])


def test_statistics_cannot_be_written_to() -> None:
    stats = small()
    for array in (stats.class_counts, stats.classes, *stats.arrays.values()):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0


def test_equal_statistics_have_equal_hashes_and_a_readable_repr() -> None:
    assert hash(small()) == hash(small())
    assert small() != small(value=5.0)
    assert small() != "something else"
    assert repr(small()).startswith("Statistics(counts")
