"""The shape of what sketches leave out: a naive referee with a (d, d) matrix a client, laws, and degenerate cases."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from fedmoments.core.gaussian.residual import CHUNK_ROWS, check_share, residual_scatter, residual_shape
from fedmoments.errors import InputError

Array = npt.NDArray[Any]


def referee(rows: Array, sizes: Array, residuals: Array, shape: Array) -> Array:
    """Return Σ_k ρ_k S_k/tr S_k, S_k = F − F V_kᵀ (V_k F V_kᵀ)⁺ V_k F, by loops."""
    total, start = np.zeros_like(shape), 0
    for size, residual in zip(sizes, residuals, strict=True):
        block = rows[start : start + size]
        start += size
        inner = np.linalg.pinv(block @ shape @ block.T, rcond=1e-11, hermitian=True)
        left = shape - shape @ block.T @ inner @ block @ shape
        if np.trace(left) < 1e-9 * np.trace(shape):
            left = shape
        total += residual * left / np.trace(left)
    return total


def positive(rng: np.random.Generator, dim: int, rank: int | None = None) -> Array:
    root = rng.normal(size=(rank or 2 * dim, dim))
    matrix = root.T @ root
    return np.asarray(matrix / np.trace(matrix))


def federation(rng: np.random.Generator, dim: int, sizes: list[int]) -> tuple[Array, Array, Array]:
    rows = [np.linalg.qr(rng.normal(size=(dim, size)))[0].T * rng.uniform(0.5, 3, (size, 1)) for size in sizes]
    return np.concatenate([np.zeros((0, dim)), *rows]), np.array(sizes), rng.uniform(0.0, 5.0, len(sizes))


def check_laws(scatter: Array, residuals: Array) -> None:
    assert abs(np.trace(scatter) - residuals.sum()) <= 1e-12 * residuals.sum()
    assert np.linalg.eigvalsh(scatter)[0] >= -1e-12 * max(float(residuals.sum()), 1e-300)
    np.testing.assert_array_equal(scatter, scatter.T)


@pytest.mark.parametrize("seed", range(4))
def test_it_equals_the_explicit_conditional_covariances(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows, sizes, residuals = federation(rng, 7, [0, 1, 3, 1, 2, 0, 3, 6, 4, 1])
    shape = positive(rng, 7)
    scatter = residual_scatter(rows, sizes, residuals, shape)
    np.testing.assert_allclose(scatter, referee(rows, sizes, residuals, shape), rtol=1e-9, atol=1e-10)
    check_laws(scatter, residuals)


def test_the_shape_is_the_formula() -> None:
    rng = np.random.default_rng(0)
    between, kept, share, residual, eye = 3 * positive(rng, 5), 2 * positive(rng, 5), 0.3, 4.0, np.eye(5) / 5
    first = 0.7 * between / 3 + 0.3 * eye
    known = between + kept + residual * first
    np.testing.assert_allclose(
        residual_shape(between, kept, residual, share), 0.7 * known / np.trace(known) + 0.3 * eye, rtol=1e-12
    )


def test_law_a_single_client_has_nothing_left_in_the_directions_of_its_rows() -> None:
    rng = np.random.default_rng(1)
    rows, sizes, residuals = federation(rng, 6, [3])
    scatter = residual_scatter(rows, sizes, residuals, positive(rng, 6))
    assert np.abs(scatter @ rows.T).max() < 1e-12 * residuals[0] * np.abs(rows).max()
    check_laws(scatter, residuals)


def test_law_the_order_of_the_clients_does_not_matter() -> None:
    rng = np.random.default_rng(2)
    rows, sizes, residuals = federation(rng, 6, [2, 0, 3, 1, 2, 4])
    shape, parts = positive(rng, 6), np.split(rows, np.cumsum([2, 0, 3, 1, 2]))
    order = [4, 2, 0, 5, 1, 3]
    other = residual_scatter(np.concatenate([parts[i] for i in order]), sizes[order], residuals[order], shape)
    np.testing.assert_allclose(other, residual_scatter(rows, sizes, residuals, shape), rtol=1e-10, atol=1e-12)


def test_law_rows_in_another_basis_or_scale_of_their_span_say_the_same() -> None:
    rng = np.random.default_rng(3)
    rows, sizes, residuals = federation(rng, 6, [3])
    shape = positive(rng, 6)
    mixed = rng.normal(size=(3, 3)) @ rows * 1e-6
    np.testing.assert_allclose(
        residual_scatter(mixed, sizes, residuals, shape),
        residual_scatter(rows, sizes, residuals, shape),
        rtol=1e-9,
        atol=1e-11,
    )


@pytest.mark.parametrize("size", [4, 24])  # blocks of few rows are solved together, of many one by one
@pytest.mark.parametrize("apart", [1.0, 1e-2, 1e-4, 1e-6, 0.0])
def test_rows_that_nearly_depend_on_each_other_leave_nothing_in_their_directions(size: int, apart: float) -> None:
    rng = np.random.default_rng(6)
    shape, own = positive(rng, 40), [rng.normal(size=(size, 40)) for _ in range(3)]
    own[1][-1] = own[1][0] + apart * own[1][-1]
    rows, sizes, residuals = np.concatenate(own), np.full(3, size), np.array([1.0, 2.0, 3.0])
    for k, mine in enumerate(own):
        alone = residual_scatter(mine, sizes[:1], residuals[k : k + 1], shape)
        assert np.abs(alone @ mine.T).max() < 1e-10 * np.abs(mine).max()
        check_laws(alone, residuals[k : k + 1])
    together = sum(residual_scatter(m, sizes[:1], residuals[k : k + 1], shape) for k, m in enumerate(own))
    np.testing.assert_allclose(residual_scatter(rows, sizes, residuals, shape), together, rtol=1e-7, atol=1e-9)


def test_nothing_left_out_is_exactly_zero() -> None:
    rng = np.random.default_rng(4)
    rows, sizes, _ = federation(rng, 4, [4, 2])
    assert not residual_scatter(rows, sizes, np.zeros(2), positive(rng, 4)).any()


def test_a_client_without_residual_takes_no_part() -> None:
    rng = np.random.default_rng(5)
    rows, sizes, residuals = federation(rng, 5, [2, 3])
    residuals[0] = 0.0
    shape = positive(rng, 5)
    alone = residual_scatter(rows[2:], sizes[1:], residuals[1:], shape)
    np.testing.assert_allclose(residual_scatter(rows, sizes, residuals, shape), alone, rtol=1e-12)


@pytest.mark.parametrize(
    "repeat", [lambda v: v[[0, 0, 1]], lambda v: np.vstack([v, np.zeros(5)]), lambda v: v[[0] * 8]]
)
def test_dependent_and_zero_rows_span_no_more_than_they_do(repeat: Any) -> None:
    rng = np.random.default_rng(6)
    rows = rng.normal(size=(2, 5))
    block, shape, residuals = repeat(rows), positive(rng, 5), np.array([2.0])
    scatter = residual_scatter(block, np.array([len(block)]), residuals, shape)
    np.testing.assert_allclose(scatter, referee(block, np.array([len(block)]), residuals, shape), rtol=1e-8, atol=1e-10)
    check_laws(scatter, residuals)


def test_more_rows_than_dimensions_leave_the_residual_in_the_plain_shape() -> None:
    rng = np.random.default_rng(7)
    shape, residuals = positive(rng, 3), np.array([2.0])
    scatter = residual_scatter(rng.normal(size=(5, 3)), np.array([5]), residuals, shape)
    np.testing.assert_allclose(scatter, 2.0 * shape, rtol=1e-9)
    check_laws(scatter, residuals)


def test_a_singular_shape_is_conditioned_within_its_range() -> None:
    rng = np.random.default_rng(8)
    rows, sizes, residuals = federation(rng, 6, [1, 2, 0, 5])
    shape = positive(rng, 6, rank=3)
    scatter = residual_scatter(rows, sizes, residuals, shape)
    np.testing.assert_allclose(scatter, referee(rows, sizes, residuals, shape), rtol=1e-7, atol=1e-9)
    assert np.linalg.matrix_rank(scatter, tol=1e-9) <= 3
    check_laws(scatter, residuals)


def test_one_dimension() -> None:
    scatter = residual_scatter(np.array([[2.0]]), np.array([1, 0]), np.array([3.0, 1.0]), np.ones((1, 1)))
    np.testing.assert_allclose(scatter, [[4.0]])


def test_without_any_spread_of_client_means_the_shape_is_flat_plus_what_was_kept() -> None:
    nothing = np.zeros((4, 4))
    np.testing.assert_allclose(residual_shape(nothing, nothing, 2.0, 0.0), np.eye(4) / 4)
    np.testing.assert_allclose(residual_shape(nothing, nothing, 0.0, 0.0), np.eye(4) / 4)
    kept = np.diag([1.0, 0.0, 0.0, 0.0])
    np.testing.assert_allclose(residual_shape(nothing, kept, 4.0, 0.0), np.diag([2.0, 1.0, 1.0, 1.0]) / 5)


def test_a_share_of_one_is_isotropic_outside_the_kept_rows() -> None:
    rng = np.random.default_rng(9)
    rows, sizes, _ = federation(rng, 5, [2])
    basis = np.linalg.qr(rows.T)[0]
    shape = residual_shape(5 * positive(rng, 5), rows.T @ rows, 6.0, 1.0)
    scatter = residual_scatter(rows, sizes, np.array([6.0]), shape)
    np.testing.assert_allclose(scatter, 2.0 * (np.eye(5) - basis @ basis.T), atol=1e-12)


def test_many_small_clients_go_through_in_chunks() -> None:
    rng = np.random.default_rng(10)
    sizes = rng.integers(0, 3, 2 * CHUNK_ROWS)
    rows = rng.normal(size=(int(sizes.sum()), 4))
    residuals, shape = rng.uniform(size=len(sizes)), positive(rng, 4)
    assert int((sizes == 2).sum()) * 2 > CHUNK_ROWS
    scatter = residual_scatter(rows, sizes, residuals, shape)
    np.testing.assert_allclose(scatter, referee(rows, sizes, residuals, shape), rtol=1e-9)
    check_laws(scatter, residuals)


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_a_share_outside_0_and_1_is_refused(share: float) -> None:
    with pytest.raises(InputError, match="from 0 to 1"):
        check_share(share)
