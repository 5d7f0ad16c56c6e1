"""Gaussian mixtures by EM, and matrices of low rank in their fewest numbers."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import multivariate_normal

from fedmoments.core.linalg import packed_size
from fedmoments.errors import InputError
from fedmoments.study.baselines.mixture import (
    COVARIANCES,
    Mixture,
    centred_rows,
    fit_mixture,
    pack_factor,
    trapezoid_size,
    unpack_factor,
)

Array = npt.NDArray[Any]
D = 5
FLOOR = 1e-3


def draw(n: int, seed: int = 0) -> Array:
    """Return samples of two overlapping, tilted clusters, far from zero."""
    rng = np.random.default_rng(seed)
    shape = rng.normal(size=(2, D, D))
    which = rng.integers(2, size=n)
    tilted = np.einsum("nij,nj->ni", shape[which], rng.normal(size=(n, D)))
    return np.asarray(20 + tilted + 2 * rng.normal(size=(2, D))[which])


def fit(X: Array, components: int, covariance: str, seed: int = 0, **options: Any) -> Mixture:
    rng = np.random.default_rng(seed)
    return fit_mixture(X, components, covariance=covariance, floor=FLOOR, rng=rng, **options)


def covariance_of(mixture: Mixture, g: int) -> Array:
    diagonal = np.diag(np.broadcast_to(mixture.variances[g], D).astype(float))
    return diagonal + (mixture.factors[g].T @ mixture.factors[g] if mixture.factors else 0.0)


@pytest.mark.parametrize("n", [1, 3, 40])
@pytest.mark.parametrize("covariance", COVARIANCES)
def test_densities_are_those_of_gaussians(covariance: str, n: int) -> None:
    mixture = fit(draw(n), 3, covariance)
    points = draw(20, seed=1)
    logs = mixture.log_densities(points)
    for g, (weight, mean) in enumerate(zip(mixture.weights, mixture.means, strict=True)):
        expected = np.log(weight) + multivariate_normal(mean, covariance_of(mixture, g)).logpdf(points)
        np.testing.assert_allclose(logs[:, g], expected, rtol=1e-7)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("components", [2, 5])
@pytest.mark.parametrize("covariance", COVARIANCES)
def test_law_em_likelihood_never_falls(covariance: str, components: int, seed: int) -> None:
    for n in (components, components + 2, 80):
        history = fit(draw(n, seed), components, covariance, seed, tolerance=0.0).log_likelihoods
        assert len(history) > 1
        assert (np.diff(history) >= -1e-9 * np.abs(history[-1])).all()
    assert history[-1] > history[0]


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_em_finds_clusters_that_stand_apart(covariance: str) -> None:
    rng = np.random.default_rng(0)
    centres = 50 * rng.normal(size=(4, D))
    which = np.arange(400) % 4
    mixture = fit(centres[which] + rng.normal(size=(400, D)), 4, covariance, seed=2)
    order = [int(np.square(mixture.means - centre).sum(axis=1).argmin()) for centre in centres]
    assert sorted(order) == [0, 1, 2, 3]
    np.testing.assert_allclose(mixture.means[order], centres, atol=0.5)
    np.testing.assert_allclose(mixture.weights, 0.25, atol=1e-6)
    for g in order:
        np.testing.assert_allclose(covariance_of(mixture, g), np.eye(D), atol=0.5)


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_one_component_has_the_moments_of_its_samples(covariance: str) -> None:
    X = draw(50)
    mixture = fit(X, 1, covariance)
    np.testing.assert_allclose(mixture.means[0], X.mean(axis=0), rtol=1e-12)
    exact = np.cov(X.T, bias=True)
    kept = {"full": exact, "diagonal": np.diag(np.diag(exact)), "spherical": np.trace(exact) / D * np.eye(D)}
    np.testing.assert_allclose(covariance_of(mixture, 0), kept[covariance], atol=1e-9)


@pytest.mark.parametrize("covariance", COVARIANCES)
@pytest.mark.parametrize("n", [1, 2, 3])
def test_fewer_samples_than_components_make_one_component_a_sample(covariance: str, n: int) -> None:
    X = draw(n)
    mixture = fit(X, 10, covariance)
    assert len(mixture.weights) == n
    np.testing.assert_allclose(np.sort(mixture.means, axis=0), np.sort(X, axis=0), rtol=1e-9)
    np.testing.assert_allclose(mixture.weights, 1 / n)


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_copies_of_one_sample_are_held_at_the_floor(covariance: str) -> None:
    mixture = fit(np.tile(draw(1), (6, 1)), 3, covariance)
    assert np.isfinite(mixture.means).all()
    np.testing.assert_allclose(mixture.weights.sum(), 1.0)
    held = mixture.weights > 0
    np.testing.assert_allclose(mixture.means[held], draw(1), rtol=1e-12)
    for g in np.flatnonzero(held):
        np.testing.assert_allclose(covariance_of(mixture, int(g)), FLOOR * np.eye(D), atol=1e-12)


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_no_variance_is_below_the_floor(covariance: str) -> None:
    X = draw(30)
    X[:, 2] = 7.0
    mixture = fit(X, 3, covariance)
    for g in range(3):
        assert np.linalg.eigvalsh(covariance_of(mixture, g)).min() >= FLOOR * (1 - 1e-9)


def test_a_seed_gives_a_mixture() -> None:
    X = draw(60)
    first, again, other = (fit(X, 4, "diagonal", seed) for seed in (0, 0, 1))
    assert np.array_equal(first.means, again.means)
    assert not np.array_equal(first.means, other.means)


def test_an_unknown_covariance_is_refused() -> None:
    with pytest.raises(InputError, match="covariance must be one of spherical, diagonal, full, not 'round'"):
        fit(draw(3), 1, "round")


# ------------------------------------------------------------------------------------------------------ trapezoids


@pytest.mark.parametrize("n", [0, 1, 3, 5, 9])
def test_a_factor_travels_in_as_many_numbers_as_its_matrix_has_freedom(n: int) -> None:
    rows = np.random.default_rng(0).normal(size=(n, D))
    packed = pack_factor(rows, n)
    assert packed.shape == (trapezoid_size(n, D),)
    assert packed.size <= packed_size(D)
    again = unpack_factor(packed, n, D)
    assert again.shape == (min(n, D), D)
    np.testing.assert_allclose(again.T @ again, rows.T @ rows, atol=1e-12)


def test_fewer_rows_than_the_rank_leave_zeros() -> None:
    rows = np.random.default_rng(0).normal(size=(2, D))
    again = unpack_factor(pack_factor(rows, 4), 4, D)
    np.testing.assert_allclose(again.T @ again, rows.T @ rows, atol=1e-12)


def test_a_trapezoid_of_full_rank_is_a_packed_matrix() -> None:
    for dim in (1, 2, 7):
        assert trapezoid_size(dim, dim) == trapezoid_size(dim + 3, dim) == packed_size(dim)
        assert trapezoid_size(1, dim) == dim


@pytest.mark.parametrize("n", [1, 2, 3, 20])
def test_contrasts_have_the_centred_scatter(n: int) -> None:
    X = draw(n) + 1e6
    rows, centred = centred_rows(X), X - X.mean(axis=0)
    assert rows.shape == (n - 1, D)
    np.testing.assert_allclose(rows.T @ rows, centred.T @ centred, atol=1e-6)
