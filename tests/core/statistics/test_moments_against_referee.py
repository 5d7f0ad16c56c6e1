"""Each moment against a loop over samples that a reader can check by eye; shares of client means."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from fedmoments.core.statistics import MOMENTS, FixedPoint, Statistics, StatisticsSpec
from fedmoments.core.statistics.moments import DENSE_PAIRS, cell_sums, moment
from fedmoments.core.statistics.shares import deal_shares
from fedmoments.errors import MissingMomentError, UnknownNameError

Array = npt.NDArray[Any]


def naive(X: Array, y: Array, n_classes: int) -> dict[str, Array]:
    """Return all moments by one loop over samples."""
    d = X.shape[1]
    out: dict[str, Array] = {
        "counts": np.zeros(n_classes, int),
        "sums": np.zeros((n_classes, d)),
        "class_norms": np.zeros((n_classes, 1)),
        "class_squares": np.zeros((n_classes, d)),
        "class_thirds": np.zeros((n_classes, d)),
        "class_fourths": np.zeros((n_classes, d)),
        "gram": np.zeros((d, d)),
        "class_grams": np.zeros((n_classes, d, d)),
    }
    for x, c in zip(X, y, strict=True):
        out["counts"][c] += 1
        out["gram"] += np.outer(x, x)
        out["class_grams"][c] += np.outer(x, x)
        for j in range(d):
            out["sums"][c, j] += x[j]
            out["class_norms"][c, 0] += x[j] * x[j]
            out["class_squares"][c, j] += x[j] * x[j]
            out["class_thirds"][c, j] += x[j] * x[j] * x[j]
            out["class_fourths"][c, j] += x[j] * x[j] * x[j] * x[j]
    return out


# (samples, dimensions, classes): small clients take the dense path, large ones the sparse path, over several blocks.
SIZES = [(1, 3, 2), (17, 4, 5), (5000, 3, 4)]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_every_moment_equals_the_loop_over_samples(size: tuple[int, int, int], dtype: Any) -> None:
    n, d, C = size
    rng = np.random.default_rng(n)
    X, y = rng.normal(size=(n, d)).astype(dtype), rng.integers(0, C, n)
    referee = naive(X.astype(np.float64), y, C)
    for name in MOMENTS:
        if MOMENTS[name].layout.apart:  # tests of their own: test_client_means, test_scatter_stream
            continue
        stats = Statistics.of(X, y, StatisticsSpec.of(name), n_classes=C)
        assert np.array_equal(stats.counts, referee["counts"])
        np.testing.assert_allclose(stats.sums, referee["sums"], rtol=1e-12, atol=1e-11)
        if name == "gram":
            np.testing.assert_allclose(stats.gram, referee["gram"], rtol=1e-12, atol=1e-11)
        elif name == "class_grams":
            for label, matrix in stats.class_grams:
                np.testing.assert_allclose(matrix, referee["class_grams"][label], rtol=1e-12, atol=1e-11)
        else:
            expected = referee[name][stats.classes]
            np.testing.assert_allclose(stats.class_array(name), expected, rtol=1e-12, atol=1e-11)
    with pytest.raises(AssertionError):  # the referee can tell: one sample more changes every moment
        np.testing.assert_allclose(
            Statistics.of(X, y, StatisticsSpec.of("gram"), n_classes=C).gram,
            naive(np.vstack([X, X[:1] + 1]).astype(np.float64), np.append(y, 0), C)["gram"],
            rtol=1e-12,
        )


def test_finer_moments_yield_all_coarser_ones() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(50, 3)), rng.integers(0, 3, 50)
    referee = naive(X, y, 4)
    fine = Statistics.of(X, y, StatisticsSpec.of("class_grams"), n_classes=4)
    np.testing.assert_allclose(fine.gram, referee["gram"], rtol=1e-12)
    np.testing.assert_allclose(fine.class_array("class_squares"), referee["class_squares"][:3], rtol=1e-12)
    np.testing.assert_allclose(fine.class_array("class_norms"), referee["class_norms"][:3], rtol=1e-12)
    with pytest.raises(MissingMomentError, match="'class_thirds' was not measured"):
        fine.class_array("class_thirds")


def test_absent_classes_take_no_row() -> None:
    spec = StatisticsSpec.of("class_grams", "client_means")
    stats = Statistics.of(np.ones((3, 2)), [7, 7, 900], spec, n_classes=1203)
    assert stats.classes.tolist() == [7, 900]
    assert stats.raw("class_grams").shape == (2, 3)
    assert stats.counts.shape == (1203,)
    assert stats.counts.sum() == 3


def test_client_means_are_one_row_a_class_of_the_client() -> None:
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(30, 4)), rng.integers(0, 3, 30)
    rows = Statistics.of(X, y, StatisticsSpec.of("client_means"), n_classes=3).rows
    assert rows.labels.tolist() == [0, 1, 2]
    for label, count, mean in zip(rows.labels, rows.counts, rows.block_means(), strict=True):
        assert count == (y == label).sum()
        np.testing.assert_allclose(mean, X[y == label].mean(axis=0), rtol=1e-13)


def test_adding_up_cells_is_the_same_dense_and_sparse() -> None:
    rng = np.random.default_rng(2)
    n_cells = 16
    n = DENSE_PAIRS // n_cells
    values = rng.integers(-9, 9, size=(n + 1, 3))
    cells = rng.integers(0, n_cells, n + 1)
    dense = cell_sums(values[:n], cells[:n], n_cells)
    sparse = cell_sums(values, cells, n_cells)
    last = np.zeros((n_cells, 3), int)
    last[cells[n]] = values[n]
    assert np.array_equal(dense + last, sparse)
    assert dense.dtype == sparse.dtype == values.dtype


def test_unknown_moment_is_named_with_a_suggestion() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'gram'"):
        moment("grem")


# -------------------------------------------------------------------------------------------------- shares


@pytest.mark.parametrize("shares", [2, 3, 5])
@pytest.mark.parametrize("n", [1, 3, 4, 6, 9, 10, 23])
def test_shares_are_disjoint_complete_and_differ_by_at_most_one(shares: int, n: int) -> None:
    # Powers of two: the sum of a share says exactly which samples are in it.
    X = 2.0 ** np.arange(n)[:, None]
    spec = StatisticsSpec.of("client_means", means_per_client=shares)
    stats = Statistics.of(X, np.zeros(n, int), spec, n_classes=1, seed=3)
    rows = stats.rows
    members = [{i for i in range(n) if int(total) >> i & 1} for total in rows.block_sums()[:, 0]]
    assert [len(m) for m in members] == rows.counts.tolist()
    assert set().union(*members) == set(range(n))
    assert sum(len(m) for m in members) == n
    if n < 2 * shares:
        assert len(members) == 1
    else:
        assert len(members) == shares
        assert max(rows.counts) - min(rows.counts) <= 1
    assert stats.counts.tolist() == [n]
    assert stats.sums.ravel().tolist() == [X.sum()]


def test_shares_do_not_follow_the_order_of_the_samples() -> None:
    labels, positions = np.zeros(400, np.int64), np.arange(400)
    dealt = deal_shares(labels, positions, 2, seed=0)
    assert not np.array_equal(dealt, positions % 2)
    assert 60 < int((dealt[::2] == 0).sum()) < 140  # 200 fair coins, one a block of two


def test_shares_depend_on_seed_and_class() -> None:
    positions = np.arange(60)
    dealt = {
        (seed, label): tuple(deal_shares(np.full(60, label), positions, 3, seed).tolist())
        for seed in range(4)
        for label in range(4)
    }
    assert len(set(dealt.values())) == len(dealt)


def test_shares_of_a_seed_are_frozen() -> None:
    labels, positions = np.repeat([0, 7], 8), np.tile(np.arange(8), 2)
    assert deal_shares(labels, positions, 2, seed=42).tolist() == FROZEN[42]
    assert deal_shares(labels, positions, 2, seed=-1).tolist() == FROZEN[-1]


FROZEN = {
    42: [0, 1, 1, 0, 0, 1, 0, 1, 1, 0, 1, 0, 1, 0, 1, 0],
    -1: [0, 1, 0, 1, 0, 1, 1, 0, 1, 0, 1, 0, 0, 1, 1, 0],
}


def test_shares_in_fixed_point_add_up_to_the_class() -> None:
    rng = np.random.default_rng(5)
    form = FixedPoint(norm_bound=16.0, max_samples=1000)
    X, y = rng.normal(size=(40, 3)), rng.integers(0, 2, 40)
    spec = StatisticsSpec.of("client_means", means_per_client=4)
    stats = Statistics.of(X, y, spec, n_classes=2, fixed_point=form)
    assert len(stats.rows) == 8
    for label in range(2):
        mine = stats.row_labels == label
        assert np.array_equal(stats.arrays["client_means"][mine].sum(axis=0), stats.raw("sums")[label])
