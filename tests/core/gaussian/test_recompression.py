"""Sketches of many clients in few rows: trace, order, bounded memory, and how near the scatter stays."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import fedmoments as fm
from fedmoments.core.gaussian import ClassGaussians, SketchReservoir, recompress
from fedmoments.core.gaussian.recompression import leading_rows
from fedmoments.core.gaussian.sketch_scatter import SketchScatter, between_scatter
from fedmoments.core.linalg import new_gram, symmetrize_upper
from fedmoments.core.statistics import Ledger, Statistics, StatisticsSpec
from fedmoments.core.statistics.coding import CODES
from fedmoments.core.statistics.sketch_plan import SketchPlan
from fedmoments.core.statistics.sketches import Sketches
from fedmoments.errors import InputError, MissingMomentError

Array = npt.NDArray[Any]
DIM, CLASSES = 12, 3


def draw(seed: int, n: int = 1500, clients: int = 30) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, CLASSES, n)
    spectrum = 3.0 * 0.7 ** np.arange(DIM)
    turn = np.linalg.qr(rng.normal(size=(DIM, DIM)))[0]
    X = (rng.normal(size=(n, DIM)) * spectrum) @ turn + rng.normal(size=(CLASSES, DIM))[y]
    return X, y, rng.integers(0, clients, n)


def measured(seed: int, rank: int = 3, code: str = "float64", share: float = 0.5) -> Statistics:
    X, y, holders = draw(seed)
    plan = SketchPlan(None, rank=rank, code=code, share=share)
    spec = StatisticsSpec.of("scatter_sketch", sketch=plan)
    return Ledger.of(X, y, holders, spec, n_classes=CLASSES).statistics()


def scatter_of(stats: Statistics, source: str = "sketch") -> Array:
    matrix = new_gram(stats.dim)
    ClassGaussians(stats, source).scatter.add_to(matrix, 1.0)
    return symmetrize_upper(matrix)


def within(seed: int) -> Array:
    X, y, _ = draw(seed)
    means = np.stack([X[y == c].mean(axis=0) for c in range(CLASSES)])
    return np.asarray((X - means[y]).T @ (X - means[y]))


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("rows", [1, 2, 5, DIM, 40])
def test_law_the_trace_is_exact_after_recompression(code: str, rows: int) -> None:
    stats = measured(0, code=code)
    few = recompress(stats, rows)
    assert len(few.sketches.rows) <= rows < len(stats.sketches.rows)
    assert np.isclose(few.sketches.trace, stats.sketches.trace, rtol=1e-12)
    scatter, wanted = scatter_of(few), float(np.trace(within(0)))
    assert abs(np.trace(scatter) - wanted) < 1e-9 * wanted
    assert np.linalg.eigvalsh(scatter)[0] > -1e-12 * wanted


def test_the_two_blocks_are_the_formula() -> None:
    stats = measured(1)
    few = recompress(stats, 8).sketches
    values, vectors = np.linalg.eigh(stats.sketches.rows.T @ stats.sketches.rows)
    values, vectors = values[::-1], vectors[:, ::-1]
    mean_rank = round(float(stats.sketch_sizes @ stats.sketch_residuals / stats.sketch_residuals.sum()))
    kept = 8 - mean_rank
    assert few.sizes.tolist() == [kept, mean_rank]
    assert few.owners.tolist() == [-1, -1]
    np.testing.assert_allclose(few.residuals, [values[kept:].sum(), stats.sketch_residuals.sum()], rtol=1e-10)
    wanted = (vectors[:, :kept] * values[:kept]) @ vectors[:, :kept].T
    np.testing.assert_allclose(few.rows.T @ few.rows, wanted, rtol=1e-9, atol=1e-9 * values[0])
    first, second = few.rows[:kept], few.rows[kept:]
    np.testing.assert_allclose(second @ second.T, np.diag(values[:mean_rank]) / 2, atol=1e-9 * values[0])
    np.testing.assert_allclose(first[:mean_rank], second)


def test_law_a_full_rank_sketch_in_d_rows_is_still_the_oracle() -> None:
    stats = measured(2, rank=DIM, share=1.0)
    few = recompress(stats)
    assert len(few.sketches.rows) <= DIM
    wanted = within(2)
    np.testing.assert_allclose(scatter_of(few), wanted, rtol=1e-8, atol=1e-8 * np.abs(wanted).max())


def test_few_rows_are_left_as_they_are() -> None:
    stats = measured(3)
    assert recompress(stats, len(stats.sketches.rows)) is stats


@pytest.mark.parametrize("rows", [2 * DIM, DIM, DIM // 2])
def test_it_stays_nearer_to_the_scatter_than_one_block_or_none(rows: int) -> None:
    """One block spans all directions, so that its residual has nowhere to go; no block forgets what was kept."""
    stats, wanted = measured(4), within(4)
    energy, cut = leading_rows(stats.sketches.rows, rows)
    left = float(stats.sketch_residuals.sum())

    def error(blocks: list[tuple[Array, float]]) -> float:
        sketches = Sketches(
            np.concatenate([block for block, _ in blocks]),
            np.array([len(block) for block, _ in blocks]),
            np.array([rest for _, rest in blocks]),
            np.full(len(blocks), -1),
        )
        rebuilt = SketchScatter(between, dof, sketches, weight=1.0)
        return float(np.linalg.norm(rebuilt.matrix - wanted))

    means = ClassGaussians(stats).means
    between = between_scatter(stats.rows, means)
    dof = float(len(stats.rows) - CLASSES)
    ours = float(np.linalg.norm(scatter_of(recompress(stats, rows)) - wanted))
    assert ours < error([(energy, left + cut)])
    assert ours < error([(energy, cut), (energy[:0], left)])
    assert ours < 2.5 * float(np.linalg.norm(scatter_of(stats) - wanted))


def test_heads_hardly_change() -> None:
    X, _, _ = draw(5)
    stats = measured(5)
    for head in ("sketch", "lda-sketch"):
        full, few = (fm.make_head(head).fit(each).predict(X) for each in (stats, recompress(stats, DIM // 2)))
        assert np.mean(full == few) > 0.95


def test_law_the_order_of_the_clients_does_not_matter() -> None:
    X, y, holders = draw(6)
    spec = StatisticsSpec.of("scatter_sketch", sketch=SketchPlan(None, rank=3))
    parts = [Statistics.of(X[holders == k], y[holders == k], spec, n_classes=CLASSES) for k in range(30)]
    one, other = (recompress(Statistics.merge(order), 8) for order in (parts, parts[::-1]))
    np.testing.assert_array_equal(one.sketches.rows, other.sketches.rows)
    np.testing.assert_array_equal(one.sketch_residuals, other.sketch_residuals)


def test_a_reservoir_never_holds_more_than_twice_its_rows() -> None:
    stats = measured(7, rank=5)
    reservoir = SketchReservoir(DIM, 8)
    for block, residual, _ in stats.sketches.blocks():
        reservoir.add(block, residual)
    reservoir.add(np.zeros((50, DIM)), 0.0)  # one block that is larger than the room
    few = reservoir.sketches()
    assert reservoir.most_held == reservoir.room == 16
    assert reservoir.n_blocks == len(stats.sketches) + 1
    assert len(few.rows) <= 8
    assert np.isclose(few.trace, stats.sketches.trace, rtol=1e-12)
    assert np.isclose(reservoir.trace, few.trace, rtol=1e-12)


def test_a_reservoir_that_forgets_stays_near_one_that_has_room_for_all() -> None:
    stats = measured(8, rank=5)
    blocks = list(stats.sketches.blocks())

    def gram(room: int | None, order: int) -> Array:
        reservoir = SketchReservoir(DIM, 10, room)
        for block, residual, _ in blocks[::order]:
            reservoir.add(block, residual)
        rows = reservoir.sketches().rows
        return np.asarray(rows.T @ rows)

    full, scale = gram(1000, 1), float(np.linalg.norm(stats.sketches.rows, 2)) ** 2
    np.testing.assert_allclose(gram(1000, -1), full, atol=1e-10 * scale)
    for order in (1, -1):
        assert np.linalg.norm(gram(None, order) - full, 2) < 0.05 * scale


def test_recompressed_statistics_can_be_joined_by_others_and_recompressed_again() -> None:
    stats, new = recompress(measured(9), 10), measured(10)
    both = stats + new
    again = recompress(both, 10)
    assert (both.sketch_owners == -1).tolist() == [True, True] + [False] * len(new.sketches)
    assert again.sketch_owners.tolist() == [-1, -1]
    assert np.isclose(again.sketches.trace, stats.sketches.trace + new.sketches.trace, rtol=1e-12)
    assert len(again.sketches.rows) == 10
    assert np.array_equal(again.counts, both.counts)
    assert np.array_equal(again.sums, both.sums)


def test_blocks_without_rows_or_residual() -> None:
    empty = SketchReservoir(3, 2)
    nothing = empty.sketches()
    assert nothing.rows.shape == (0, 3)
    assert nothing.trace == 0.0
    empty.add(np.zeros((0, 3)), 2.0)
    assert empty.sketches().residuals.tolist() == [0.0, 2.0]
    assert empty.sketches().sizes.tolist() == [0, 0]
    full = SketchReservoir(3, 2)
    full.add(np.diag([3.0, 2.0, 1.0]), 0.0)
    assert full.sketches().sizes.tolist() == [2, 0]
    np.testing.assert_allclose(full.sketches().residuals, [1.0, 0.0], atol=1e-12)


@pytest.mark.parametrize("rows", [0, -3, True])
def test_no_rows_at_all_are_refused(rows: int) -> None:
    with pytest.raises(InputError, match="1 row or more"):
        recompress(measured(11), rows)


def test_blocks_of_another_dimension_or_with_a_negative_residual_are_refused() -> None:
    reservoir = SketchReservoir(3, 2)
    with pytest.raises(InputError, match=r"shape \(r, 3\)"):
        reservoir.add(np.zeros((2, 4)), 0.0)
    with pytest.raises(InputError, match="residual trace of 0 or more"):
        reservoir.add(np.zeros((2, 3)), -1.0)
    assert reservoir.n_blocks == 0


def test_statistics_without_sketches_are_refused() -> None:
    plain = Statistics.of(np.eye(3), [0, 0, 0], StatisticsSpec.of("client_means"), n_classes=1)
    with pytest.raises(MissingMomentError, match="scatter_sketch"):
        recompress(plain)
