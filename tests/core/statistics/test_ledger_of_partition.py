"""Measuring all clients of a partition at once is joining them one by one."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedmoments.core.statistics import MOMENTS, FixedPoint, Ledger, Statistics, StatisticsSpec
from fedmoments.core.statistics.partition import BLOCK
from fedmoments.errors import FixedPointOverflowError, InputError

Array = npt.NDArray[Any]
FORM = FixedPoint(norm_bound=64.0, max_samples=10_000)


def one_by_one(
    X: Array, y: Array, holders: Array, spec: StatisticsSpec, n_classes: int, n_clients: int, **options: Any
) -> Ledger:
    seed = options.pop("seed", 0)
    ledger = Ledger(spec, n_classes=n_classes, dim=X.shape[1], **options)
    for client in range(n_clients):
        mine = holders == client
        ledger.join(client, Statistics.of(X[mine], y[mine], spec, n_classes=n_classes, seed=seed))
    return ledger


def make_spec(names: set[str], shares: int) -> StatisticsSpec:
    return StatisticsSpec(frozenset(names), shares if "client_means" in names else 1)


@settings(max_examples=300, deadline=None)
@given(
    spec=st.builds(make_spec, st.sets(st.sampled_from(sorted(MOMENTS))), st.integers(1, 5)),
    n=st.integers(0, 60),
    n_classes=st.integers(1, 4),
    n_clients=st.integers(1, 5),
    fixed=st.booleans(),
    fold=st.booleans(),
    seed=st.integers(0, 2**20),
)
def test_a_partition_measured_at_once_equals_joining_one_by_one(
    spec: StatisticsSpec, n: int, n_classes: int, n_clients: int, fixed: bool, fold: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    X = rng.integers(-16, 17, size=(n, 3)) / 8  # sums are exact: equality is bit for bit
    y, holders = rng.integers(0, n_classes, n), rng.integers(-1, n_clients, n)  # −1: nobody's
    options: dict[str, Any] = {"fixed_point": FORM if fixed else None, "fold": fold, "seed": seed}
    ours = Ledger.of(X, y, holders, spec, n_classes=n_classes, names=range(n_clients), **options)
    theirs = one_by_one(X, y, holders, spec, n_classes, n_clients, **options)
    assert ours.clients == theirs.clients
    assert ours.statistics() == theirs.statistics()
    assert ours.statistics().n_samples == int((holders >= 0).sum())
    for mine, other in zip(ours.cells(), theirs.cells(), strict=True):
        assert np.array_equal(mine, other)
    if not fold:
        for client in range(n_clients):
            assert ours.client(client) == theirs.client(client)
    newcomer = Statistics.of(X, y, spec, n_classes=n_classes)
    ours.join("new", newcomer)
    theirs.join("new", newcomer)
    assert ours.statistics() == theirs.statistics()


@pytest.mark.parametrize("fold", [False, True])
@pytest.mark.parametrize("shares", [1, 3])
def test_a_large_partition_in_float64_agrees_to_1e_12(fold: bool, shares: int) -> None:
    rng = np.random.default_rng(0)
    n = 8 * BLOCK + 17
    X, y, holders = rng.normal(size=(n, 5)), rng.integers(0, 7, n), rng.integers(-1, 30, n)
    spec = StatisticsSpec.of("class_squares", "client_means", means_per_client=shares)
    ours = Ledger.of(X, y, holders, spec, n_classes=8, fold=fold).statistics()
    theirs = one_by_one(X, y, holders, spec, 8, 30, fold=fold).statistics()
    assert np.array_equal(ours.counts, theirs.counts)
    assert np.array_equal(ours.row_labels, theirs.row_labels)
    assert np.array_equal(ours.row_counts, theirs.row_counts)
    for name in ours.arrays:
        np.testing.assert_allclose(ours.arrays[name], theirs.arrays[name], rtol=1e-12, atol=1e-11)
    half = Ledger.of(X[::2], y[::2], holders[::2], spec, n_classes=8, fold=fold).statistics()
    assert not np.array_equal(half.counts, ours.counts)


@pytest.mark.parametrize("fold", [False, True])
@pytest.mark.parametrize("names", [["client_means"], ["sums"], ["class_squares", "client_means"], ["gram"]])
def test_a_partition_in_fixed_point_is_bit_for_bit_what_clients_measure(names: list[str], fold: bool) -> None:
    rng = np.random.default_rng(1)
    n = 20 * BLOCK
    X = rng.normal(size=(n, 40))  # their sums are rounded, and not alike in every order
    y, holders = rng.integers(0, 2, n), rng.integers(-1, 5, n)
    spec, form = StatisticsSpec.of(*names), FixedPoint(norm_bound=32.0, max_samples=2 * n)
    ours = Ledger.of(X, y, holders, spec, n_classes=2, fixed_point=form, fold=fold).statistics()
    theirs = [Statistics.of(X[holders == k], y[holders == k], spec, n_classes=2, fixed_point=form) for k in range(5)]
    merged = Statistics.merge(theirs)
    assert ours == merged
    for name, array in merged.arrays.items():
        assert np.array_equal(ours.arrays[name], array)  # rows in the order of the clients, too


def test_shares_of_few_cells_do_not_mix_classes() -> None:
    # With fewer cells than shares and a last cell of one sample, rows of one class once fell into the other.
    X, y = np.arange(9.0)[:, None], np.array([0] * 8 + [1])
    spec = StatisticsSpec.of("client_means", means_per_client=4)
    for seed in range(8):
        ledger = Ledger.of(X, y, np.zeros(9, int), spec, n_classes=2, seed=seed)
        assert ledger.statistics() == Statistics.of(X, y, spec, n_classes=2, seed=seed)
        assert ledger.statistics().row_counts.tolist() == [2, 2, 2, 2, 1]


@pytest.mark.parametrize("name", ["sums", "gram", "class_grams", "client_means"])
@pytest.mark.parametrize("fold", [False, True])
def test_clients_without_a_sample_join_with_nothing(name: str, fold: bool) -> None:
    spec = StatisticsSpec.of(name)
    ledger = Ledger.of([[1.0], [2.0]], [0, 1], [3, -1], spec, n_classes=2, names=["a", "b", "c", "d", "e"], fold=fold)
    assert ledger.clients == ("a", "b", "c", "d", "e")
    assert ledger.statistics().counts.tolist() == [1, 0]
    nobody = Ledger.of(np.zeros((0, 2)), [], np.zeros(0, int), spec, n_classes=2, names=["a"], fold=fold)
    assert nobody.statistics() == Statistics.zero(spec, n_classes=2, dim=2)
    dropped = Ledger.of(np.ones((3, 2)), [0, 0, 1], [-1, -1, -1], spec, n_classes=2, fold=fold)
    assert len(dropped) == 0
    assert dropped.statistics() == Statistics.zero(spec, n_classes=2, dim=2)


@pytest.mark.parametrize("fold", [False, True])
@pytest.mark.parametrize("name", ["sums", "gram", "client_means"])
def test_the_bad_sample_is_named_by_its_number_in_the_whole(name: str, fold: bool) -> None:
    X = np.ones((10, 2))
    X[0] = np.nan  # nobody's: does not matter
    holders = np.array([-1, 1, 0, 1, 0, 1, 0, 1, 0, 1])
    spec = StatisticsSpec.of(name)
    assert Ledger.of(X, np.zeros(10, int), holders, spec, n_classes=1, fold=fold).statistics().n_samples == 9
    X[7, 1], X[8, 0], X[9, 1] = np.inf, -np.inf, -np.inf
    with pytest.raises(InputError, match="sample 7 holds NaN or infinity"):
        Ledger.of(X, np.zeros(10, int), holders, spec, n_classes=1, fold=fold)


def test_wrong_partitions_are_refused() -> None:
    X, y, spec = np.ones((2, 1)), [0, 0], StatisticsSpec()
    with pytest.raises(InputError, match=r"clients must be one whole number a sample, \(2,\)"):
        Ledger.of(X, y, [0], spec, n_classes=1)
    with pytest.raises(InputError, match=r"whole number.*float64"):
        Ledger.of(X, y, [0.0, 1.0], spec, n_classes=1)
    with pytest.raises(InputError, match="there are 1 client names, but a sample belongs to client number 5"):
        Ledger.of(X, y, [0, 5], spec, n_classes=1, names=["a"])
    for name in ("sums", "gram"):
        with pytest.raises(InputError, match="unique"):
            Ledger.of(X, y, [0, 1], StatisticsSpec.of(name), n_classes=1, names=["a", "a"])
    with pytest.raises(InputError, match="from 0 to 0, but sample 1 has 1"):
        Ledger.of(X, [0, 1], [0, 1], spec, n_classes=1)


@pytest.mark.parametrize("name", ["sums", "gram", "client_means"])
def test_features_beyond_the_norm_bound_are_refused_at_once_too(name: str) -> None:
    with pytest.raises(FixedPointOverflowError, match="norm_bound"):
        Ledger.of([[100.0]], [0], [0], StatisticsSpec.of(name), n_classes=1, fixed_point=FORM)
