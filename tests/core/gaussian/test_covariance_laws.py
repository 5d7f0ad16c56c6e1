"""Laws of METHODS 3 and 4 about scatters: exact, diagonal, spherical, and Prop. 3 of FedCOF."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedmoments.core.gaussian import ClassGaussians, require
from fedmoments.core.linalg import new_gram, symmetrize_upper
from fedmoments.core.statistics import Ledger, Statistics, StatisticsSpec
from fedmoments.errors import ClientsPooledError, MissingMomentError, NotEnoughDataError, UnknownNameError

Array = npt.NDArray[Any]
FULL = StatisticsSpec.of("class_grams", "client_means")


def draw(seed: int, n: int, dim: int, n_classes: int, n_clients: int) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(seed)
    y, holders = rng.integers(0, n_classes, n), rng.integers(0, n_clients, n)
    shape = rng.normal(size=(n_classes, dim, dim))
    X = np.einsum("nij,nj->ni", shape[y], rng.normal(size=(n, dim))) + rng.normal(size=(n_classes, dim))[y] * 3
    return X, y, holders


def measured(X: Array, y: Array, holders: Array, n_classes: int, spec: StatisticsSpec = FULL) -> Statistics:
    return Ledger.of(X, y, holders, spec, n_classes=n_classes).statistics()


def scatter_of(stats: Statistics, source: str) -> Array:
    matrix = new_gram(stats.dim)
    ClassGaussians(stats, source).scatter.add_to(matrix, 1.0)
    return symmetrize_upper(matrix)


def naive_within(X: Array, y: Array) -> Array:
    total = np.zeros((X.shape[1], X.shape[1]))
    for c in np.unique(y):
        mean = X[y == c].mean(axis=0)
        for x in X[y == c]:
            total += np.outer(x - mean, x - mean)
    return total


federations = st.tuples(
    st.integers(0, 2**32), st.integers(2, 60), st.integers(1, 6), st.integers(1, 4), st.integers(1, 5)
)


@settings(max_examples=40, deadline=None)
@given(federations)
def test_weighted_class_covariances_add_up_to_gram_less_mean_products(size: tuple[int, int, int, int, int]) -> None:
    X, y, holders = draw(*size)
    stats = measured(X, y, holders, size[3])
    gaussians = ClassGaussians(stats, "exact")
    by_class = sum(
        (dof * covariance for _, covariance, dof in gaussians.class_covariances()), np.zeros((stats.dim, stats.dim))
    )
    direct = stats.gram - sum(
        n * np.outer(mean, mean) for n, mean in zip(gaussians.counts, gaussians.means, strict=True)
    )
    scale = 1e-10 * max(1.0, float(np.trace(stats.gram)))
    np.testing.assert_allclose(by_class, direct, rtol=0, atol=scale)
    np.testing.assert_allclose(scatter_of(stats, "exact"), direct, rtol=0, atol=scale)
    np.testing.assert_allclose(scatter_of(stats, "exact"), naive_within(X, y), rtol=0, atol=scale)
    # from Fed3R's payload alone: no covariance of a class has to travel
    payload = measured(X, y, holders, size[3], StatisticsSpec.of("gram"))
    np.testing.assert_allclose(scatter_of(payload, "exact"), direct, rtol=0, atol=scale)


def equation_25(X: Array, y: Array, holders: Array) -> Array:
    """FedCOF Eq. 25: (N_c−1)Σ_c from per-client class covariances, counts and means, summed over classes."""
    d = X.shape[1]
    total = np.zeros((d, d))
    for c in np.unique(y):
        mean = X[y == c].mean(axis=0)
        for k in np.unique(holders):
            mine = X[(y == c) & (holders == k)]
            if len(mine) == 0:
                continue
            if len(mine) > 1:
                total += (len(mine) - 1) * np.cov(mine, rowvar=False, ddof=1).reshape(d, d)
            total += len(mine) * np.outer(mine.mean(axis=0), mine.mean(axis=0))
        total -= (y == c).sum() * np.outer(mean, mean)
    return total


@settings(max_examples=25, deadline=None)
@given(federations)
def test_equation_25_of_fedcof_gives_the_same_matrix(size: tuple[int, int, int, int, int]) -> None:
    X, y, holders = draw(*size)
    stats = measured(X, y, holders, size[3])
    scale = 1e-10 * max(1.0, float(np.trace(stats.gram)))
    np.testing.assert_allclose(scatter_of(stats, "exact"), equation_25(X, y, holders), rtol=0, atol=scale)
    if len(X) > 2 * size[3] + 2:
        half = slice(len(X) // 2)
        assert not np.allclose(scatter_of(stats, "exact"), equation_25(X[half], y[half], holders[half]), atol=scale)


@settings(max_examples=40, deadline=None)
@given(federations)
def test_gram_is_within_plus_between_plus_mean_scatter(size: tuple[int, int, int, int, int]) -> None:
    X, y, holders = draw(*size)
    stats = measured(X, y, holders, size[3])
    gaussians = ClassGaussians(stats, "exact")
    centred = gaussians.means - gaussians.global_mean
    between = (gaussians.counts[:, None] * centred).T @ centred
    mean_part = stats.n_samples * np.outer(gaussians.global_mean, gaussians.global_mean)
    together = scatter_of(stats, "exact") + between + mean_part
    np.testing.assert_allclose(stats.gram, together, rtol=0, atol=1e-10 * max(1.0, float(np.trace(stats.gram))))


def test_exact_covariances_equal_numpy() -> None:
    X, y, holders = draw(1, 200, 4, 3, 5)
    gaussians = ClassGaussians(measured(X, y, holders, 5), "exact")
    labels = []
    for label, covariance, dof in gaussians.class_covariances():
        labels.append(label)
        assert dof == (y == label).sum() - 1
        np.testing.assert_allclose(covariance, np.cov(X[y == label], rowvar=False), rtol=1e-10, atol=1e-10)
    assert labels == [0, 1, 2]  # the empty classes 3 and 4 have none
    pooled = gaussians.pooled_covariance("none")
    np.testing.assert_allclose(pooled, naive_within(X, y) / (200 - 3), rtol=1e-10, atol=1e-10)  # not N − 5
    np.testing.assert_allclose(gaussians.total_covariance(), np.cov(X, rowvar=False), rtol=1e-10)
    assert gaussians.present.tolist() == [True, True, True, False, False]
    assert gaussians.log_priors[3] == -np.inf
    assert np.isclose(np.exp(gaussians.log_priors).sum(), 1.0)
    assert np.isfinite(gaussians.means).all()


def test_diagonal_and_spherical_are_the_diagonal_and_the_trace_of_exact() -> None:
    X, y, holders = draw(2, 150, 5, 4, 6)
    stats = measured(X, y, holders, 4)
    squares = measured(X, y, holders, 4, StatisticsSpec.of("class_squares"))
    norms = measured(X, y, holders, 4, StatisticsSpec.of("class_norms"))
    exact = ClassGaussians(stats, "exact")
    for payload in (stats, squares):
        diagonal = ClassGaussians(payload, "diagonal")
        wanted = np.diag(np.diag(exact.pooled_covariance("none")))
        np.testing.assert_allclose(diagonal.pooled_covariance("none"), wanted, rtol=1e-10, atol=1e-12)
        for ours, theirs in zip(diagonal.class_covariances(), exact.class_covariances(), strict=True):
            np.testing.assert_allclose(ours[1], np.diag(np.diag(theirs[1])), rtol=1e-10, atol=1e-12)
            assert (ours[0], ours[2]) == (theirs[0], theirs[2])
    for payload in (stats, squares, norms):
        spherical = ClassGaussians(payload, "spherical")
        wanted = np.eye(5) * np.trace(exact.pooled_covariance("none")) / 5
        np.testing.assert_allclose(spherical.pooled_covariance("none"), wanted, rtol=1e-10, atol=1e-12)
        for ours, theirs in zip(spherical.class_covariances(), exact.class_covariances(), strict=True):
            np.testing.assert_allclose(ours[1], np.eye(5) * np.trace(theirs[1]) / 5, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("source", ["exact", "diagonal", "spherical"])
def test_variances_are_never_negative_far_from_the_origin(source: str) -> None:
    rng = np.random.default_rng(0)
    X = np.concatenate([np.full((20, 1), 12345.678), 1e6 + rng.normal(size=(20, 1))], axis=1)
    stats = measured(X, rng.integers(0, 2, 20), rng.integers(0, 3, 20), 2)
    scatter, dof = ClassGaussians(stats, source).class_variances()
    assert (scatter >= 0).all()
    assert dof.sum() == 18
    assert (np.linalg.eigvalsh(ClassGaussians(stats, source).pooled_covariance("automatic")) > 0).all()


def test_every_source_says_what_it_lacks() -> None:
    X, y, holders = draw(3, 40, 3, 2, 4)
    least = measured(X, y, holders, 2, StatisticsSpec())
    with pytest.raises(MissingMomentError, match=r"pooled covariance of source 'exact' needs .*gram"):
        ClassGaussians(least, "exact").pooled_covariance()
    with pytest.raises(MissingMomentError, match="class covariances of source 'exact'"):
        list(ClassGaussians(measured(X, y, holders, 2, StatisticsSpec.of("gram")), "exact").class_covariances())
    with pytest.raises(MissingMomentError, match="class_squares"):
        ClassGaussians(least, "diagonal").class_variances()
    with pytest.raises(MissingMomentError, match="class_norms"):
        ClassGaussians(least, "spherical").pooled_covariance()
    with pytest.raises(MissingMomentError, match="gram"):
        ClassGaussians(least).total_covariance()
    with pytest.raises(ClientsPooledError, match="kept apart"):
        ClassGaussians(least, "free").pooled_covariance()
    with pytest.raises(UnknownNameError, match="covariance source"):
        ClassGaussians(least, "guessed")


def test_no_sample_at_all_is_not_enough_data() -> None:
    zero = Statistics.zero(StatisticsSpec.of("gram"), n_classes=2, dim=2)
    with pytest.raises(NotEnoughDataError, match="no sample at all"):
        require(zero, StatisticsSpec(), "a head")
    with pytest.raises(NotEnoughDataError):
        ClassGaussians(zero).pooled_covariance()
