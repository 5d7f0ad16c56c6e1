"""Random projection."""

import numpy as np
import pytest

from fedmoments.core.maps import RandomProjection


def test_sketch_then_aggregate_is_aggregate_then_sketch() -> None:
    rng = np.random.default_rng(0)
    d, k, classes = 40, 12, 5
    clients = [(rng.normal(size=(n, d)) + 3, rng.integers(0, classes, size=n)) for n in (1, 17, 60)]
    projection = RandomProjection(d, k, seed=4)
    R = projection.matrix
    X, y = np.vstack([X for X, _ in clients]), np.concatenate([y for _, y in clients])
    for c in range(classes):
        sketches = [projection(X_k)[y_k == c] for X_k, y_k in clients]
        A_z = sum(Z.sum(axis=0) for Z in sketches)
        S_z = sum(Z.T @ Z for Z in sketches)
        D_z = sum((Z**2).sum(axis=0) for Z in sketches)
        S_c = X[y == c].T @ X[y == c]
        np.testing.assert_allclose(A_z, X[y == c].sum(axis=0) @ R, rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(S_z, R.T @ S_c @ R, rtol=1e-10, atol=1e-9)
        np.testing.assert_allclose(D_z, np.diag(R.T @ S_c @ R), rtol=1e-10)
    B_z = sum(projection(X_k).T @ projection(X_k) for X_k, _ in clients)
    np.testing.assert_allclose(B_z, R.T @ (X.T @ X) @ R, rtol=1e-10, atol=1e-9)


@pytest.mark.parametrize("k", [4, 64])
def test_norms_are_preserved_in_expectation(k: int) -> None:
    x = np.random.default_rng(0).normal(size=(1, 30))
    draws = 2_000
    ratios = [float((RandomProjection(30, k, seed)(x) ** 2).sum() / (x**2).sum()) for seed in range(draws)]
    # ‖xR‖²/‖x‖² is chi-squared with k degrees of freedom, over k: mean 1, variance 2/k.
    assert abs(np.mean(ratios) - 1) < 4 * np.sqrt(2 / k / draws)
    assert np.var(ratios) == pytest.approx(2 / k, rel=0.2)


def test_entries_have_variance_one_over_k() -> None:
    matrix = RandomProjection(300, 50, seed=0).matrix
    assert matrix.shape == (300, 50)
    assert matrix.var() == pytest.approx(1 / 50, rel=4 * np.sqrt(2 / matrix.size))
