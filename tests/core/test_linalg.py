"""Dense kernels against numpy."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedmoments.core.linalg import (
    BLOCK_ROWS,
    add_gram,
    add_packed,
    blocks,
    gcv_ridge,
    low_rank_factor,
    new_gram,
    pack_symmetric,
    packed_diagonal,
    packed_size,
    packed_trace,
    solve_positive,
    solve_rows_plus_ridge,
    symmetrize_upper,
    unpack_symmetric,
    unpacked_dim,
)
from fedmoments.errors import InputError

Array = npt.NDArray[Any]
seeds = st.integers(0, 2**32)


def symmetric(seed: int, dim: int) -> Array:
    matrix = np.random.default_rng(seed).normal(size=(dim, dim))
    return matrix + matrix.T


@settings(deadline=None)
@given(seeds, st.integers(1, 12))
def test_packing_is_undone_and_ordered_by_column(seed: int, dim: int) -> None:
    matrix = symmetric(seed, dim)
    packed = pack_symmetric(matrix)
    assert len(packed) == packed_size(dim) == dim * (dim + 1) // 2
    assert unpacked_dim(len(packed)) == dim
    assert np.array_equal(unpack_symmetric(packed), matrix)
    assert packed.tolist() == [matrix[i, j] for j in range(dim) for i in range(j + 1)]
    assert np.array_equal(packed_diagonal(packed), np.diag(matrix))
    assert np.isclose(packed_trace(packed), np.trace(matrix))
    assert np.array_equal(pack_symmetric(np.triu(matrix)), packed)  # the lower triangle is not read
    total = new_gram(dim)
    add_packed(total, packed, weight=-2.0)
    assert np.array_equal(symmetrize_upper(total), -2 * matrix)


def test_large_matrices_are_packed_in_blocks_alike() -> None:
    matrix = symmetric(0, 600)
    assert np.array_equal(unpack_symmetric(pack_symmetric(matrix)), matrix)
    assert np.array_equal(symmetrize_upper(np.triu(matrix)), matrix)
    many = np.stack([pack_symmetric(symmetric(seed, 4)) for seed in range(3)])
    assert np.array_equal(packed_diagonal(many), [np.diag(symmetric(seed, 4)) for seed in range(3)])


@pytest.mark.parametrize("size", [2, 4, 5, 11])
def test_no_packed_matrix_has_that_many_numbers(size: int) -> None:
    with pytest.raises(InputError, match=f"but {size} arrived"):
        unpacked_dim(size)


@pytest.mark.parametrize("dim", [1, 2, 1280, 20_000, 100_000])
def test_the_dimension_of_large_packed_matrices_is_exact(dim: int) -> None:
    assert unpacked_dim(packed_size(dim)) == dim


@pytest.mark.parametrize("n", [0, 1, BLOCK_ROWS, BLOCK_ROWS + 1, 2 * BLOCK_ROWS + 3])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_gram_products_accumulate_in_place(n: int, dtype: Any) -> None:
    X = np.random.default_rng(n).normal(size=(n, 5)).astype(dtype)
    gram = new_gram(5)
    add_gram(gram, X)
    add_gram(gram, X[::-1], weight=0.5)
    wide = X.astype(np.float64)
    np.testing.assert_allclose(symmetrize_upper(gram), 1.5 * wide.T @ wide, rtol=1e-12, atol=1e-10)


def test_gram_products_refuse_a_matrix_that_would_be_copied() -> None:
    wrongs: list[Array] = [np.zeros((3, 3)), np.zeros((3, 3), np.float32, order="F")]
    for wrong in wrongs:
        with pytest.raises(InputError, match="new_gram"):
            add_gram(wrong, np.ones((2, 3)))


@given(st.integers(0, 50), st.integers(1, 9))
def test_blocks_cover_all_rows_once(n: int, size: int) -> None:
    rows = [row for block in blocks(n, size) for row in range(n)[block]]
    assert rows == list(range(n))
    assert all(block.stop - block.start <= size for block in blocks(n, size))


@settings(deadline=None)
@given(seeds, st.integers(1, 10), st.integers(1, 4), st.booleans())
def test_positive_systems_are_solved(seed: int, dim: int, columns: int, overwrite: bool) -> None:
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(2 * dim + 2, dim))
    matrix, right = root.T @ root + 0.1 * np.eye(dim), rng.normal(size=(dim, columns))
    given_matrix, given_right = np.array(matrix, order="F"), np.array(right, order="F")
    solution = solve_positive(given_matrix, given_right, overwrite=overwrite)
    np.testing.assert_allclose(matrix @ solution, right, rtol=1e-8, atol=1e-8)
    if not overwrite:
        assert np.array_equal(given_matrix, matrix)
        assert np.array_equal(given_right, right)


@settings(deadline=None)
@given(seeds, st.integers(2, 8), st.integers(1, 7), st.booleans(), st.sampled_from([1e-6, 1.0, 1e6]))
def test_singular_systems_have_the_minimum_norm_solution(
    seed: int, dim: int, rank: int, overwrite: bool, scale: float
) -> None:
    rng = np.random.default_rng(seed)
    # An orthonormal basis: the non-zero eigenvalues are well away from rounding.
    basis = np.linalg.qr(rng.normal(size=(dim, dim)))[0][:, : min(rank, dim - 1)]
    matrix = scale * (basis * rng.uniform(1, 2, basis.shape[1])) @ basis.T
    matrix = (matrix + matrix.T) / 2
    right = matrix @ rng.normal(size=(dim, 2))
    expected = np.linalg.pinv(matrix, rcond=1e-10, hermitian=True) @ right
    ours = solve_positive(np.array(matrix, order="F"), np.array(right, order="F"), overwrite=overwrite)
    np.testing.assert_allclose(ours, expected, rtol=1e-6, atol=1e-6)


def test_singular_systems_are_recognised_where_no_pivot_vanishes() -> None:
    rng = np.random.default_rng(0)
    for _ in range(400):
        dim = int(rng.integers(2, 12))
        root = rng.normal(size=(int(rng.integers(1, dim)), dim))
        right = root.T @ rng.normal(size=(len(root), 2))
        ours = solve_positive(root.T @ root, right)
        off_span = ours - np.linalg.pinv(root) @ (root @ ours)
        assert np.linalg.norm(off_span) < 1e-5 * np.linalg.norm(ours)


def test_features_of_very_different_scale_are_not_taken_for_singular() -> None:
    rng = np.random.default_rng(0)
    scales = 10.0 ** np.array([-8, 0, 8, 3])
    root = rng.normal(size=(30, 4)) * scales
    right = rng.normal(size=(4, 2)) * scales[:, None]
    ours = solve_positive(root.T @ root, right)
    unscaled = root / scales
    expected = np.linalg.solve(unscaled.T @ unscaled, right / scales[:, None]) / scales[:, None]
    np.testing.assert_allclose(ours, expected, rtol=1e-8)


def test_a_system_of_no_unknowns_is_solved() -> None:
    assert solve_positive(np.zeros((0, 0)), np.zeros((0, 3))).shape == (0, 3)


def test_a_zero_system_has_the_zero_solution() -> None:
    assert np.array_equal(solve_positive(np.zeros((3, 3)), np.ones((3, 2))), np.zeros((3, 2)))


@settings(deadline=None)
@given(seeds, st.integers(0, 8), st.integers(1, 12), st.floats(1e-3, 1e3))
def test_the_dual_solve_is_the_primal_one(seed: int, rows: int, dim: int, ridge: float) -> None:
    rng = np.random.default_rng(seed)
    R, right = rng.normal(size=(rows, dim)), rng.normal(size=(dim, 3))
    expected = np.linalg.solve(R.T @ R + ridge * np.eye(dim), right)
    np.testing.assert_allclose(solve_rows_plus_ridge(R, ridge, right), expected, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("ridge", [0.0, -1.0, float("nan")])
def test_the_dual_solve_needs_a_positive_ridge(ridge: float) -> None:
    with pytest.raises(InputError, match="must be positive"):
        solve_rows_plus_ridge(np.ones((1, 2)), ridge, np.ones((2, 1)))


@settings(deadline=None)
@given(seeds, st.integers(1, 8), st.integers(0, 8))
def test_a_low_rank_factor_has_the_rank_and_the_product(seed: int, dim: int, rank: int) -> None:
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(rank, dim))
    matrix = root.T @ root
    factor = low_rank_factor(matrix)
    np.testing.assert_allclose(factor.T @ factor, matrix, rtol=0, atol=1e-10 * max(1.0, float(np.trace(matrix))))
    assert len(factor) == min(rank, dim)


def test_gcv_finds_the_ridge_of_a_grid_search() -> None:
    rng = np.random.default_rng(0)
    n, d = 60, 20
    X = rng.normal(size=(n, d))
    Y = X @ rng.normal(size=(d, 2)) + 8 * rng.normal(size=(n, 2))

    def score(ridge: float) -> float:
        hat = X @ np.linalg.solve(X.T @ X + ridge * np.eye(d), X.T)
        residual = Y - hat @ Y
        return float((residual**2).sum() / n / (1 - np.trace(hat) / n) ** 2)

    ours = gcv_ridge(X.T @ X, X.T @ Y, energy=float((Y**2).sum()), n_samples=n)
    grid = 10.0 ** np.linspace(-4, 5, 400)
    best = min(map(score, grid))
    assert score(ours) < 1.02 * best
    assert score(ours) < min(score(ours / 30), score(ours * 30))


@settings(deadline=None)
@given(seeds, st.integers(-12, 12))
def test_gcv_scales_with_the_squared_features(seed: int, exponent: int) -> None:
    rng = np.random.default_rng(seed)
    X, Y = rng.normal(size=(40, 6)), np.eye(3)[rng.integers(0, 3, 40)]
    factor = 2.0**exponent
    plain = gcv_ridge(X.T @ X, X.T @ Y, energy=40.0, n_samples=40)
    scaled = gcv_ridge(factor**2 * X.T @ X, factor * X.T @ Y, energy=40.0, n_samples=40)
    assert np.isclose(scaled, factor**2 * plain, rtol=1e-6)


def test_gcv_of_degenerate_data_is_finite() -> None:
    assert gcv_ridge(np.zeros((3, 3)), np.zeros((3, 2)), energy=5.0, n_samples=5) == 0.0
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(5, 40)), np.eye(5)  # more dimensions than samples
    ridge = gcv_ridge(X.T @ X, X.T @ Y, energy=5.0, n_samples=5)
    assert np.isfinite(ridge)
    assert ridge > 0
