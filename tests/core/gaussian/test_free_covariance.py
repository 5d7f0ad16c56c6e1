"""FedCOF's free covariance: unbiased with K_c, exact with one sample a client, and what it cannot do."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from fedmoments.core.gaussian import ClassGaussians, covariance_bias, expected_bias
from fedmoments.core.linalg import new_gram, symmetrize_upper
from fedmoments.core.statistics import FixedPoint, Ledger, MeanRows, Statistics, StatisticsSpec
from fedmoments.errors import ClientsPooledError

Array = npt.NDArray[Any]
SPEC = StatisticsSpec.of("client_means")


def free_referee(X: Array, y: Array, holders: Array, label: int) -> Array:
    """Return 1/(K_c−1) Σ_k n_kc (μ_kc−μ_c)(μ_kc−μ_c)ᵀ by loops."""
    mine, d = y == label, X.shape[1]
    mean, total, held_by = X[mine].mean(axis=0), np.zeros((d, d)), 0
    for k in np.unique(holders[mine]):
        part = X[mine & (holders == k)]
        total += len(part) * np.outer(part.mean(axis=0) - mean, part.mean(axis=0) - mean)
        held_by += 1
    return total / (held_by - 1) if held_by > 1 else total


def free_of(stats: Statistics) -> dict[int, Array]:
    return {label: matrix for label, matrix, _ in ClassGaussians(stats, "free").class_covariances()}


def draw(seed: int, n: int = 120) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 4)) * [1, 2, 3, 4], rng.integers(0, 3, n), rng.integers(0, 9, n)


@pytest.mark.parametrize("form", [None, FixedPoint(norm_bound=64.0, max_samples=1000)])
def test_free_class_covariances_equal_the_loop(form: FixedPoint | None) -> None:
    X, y, holders = draw(0)
    holders[y == 1] %= 4  # K_c differs from K
    stats = Ledger.of(X, y, holders, SPEC, n_classes=4, fixed_point=form).statistics()
    ours = free_of(stats)
    assert sorted(ours) == [0, 1, 2]
    tolerance = 1e-10 if form is None else 1e-6
    for label, matrix in ours.items():
        np.testing.assert_allclose(matrix, free_referee(X, y, holders, label), rtol=tolerance, atol=tolerance)
    variances, dof = ClassGaussians(stats, "free").class_variances()
    assert dof.tolist() == [8.0, 3.0, 8.0, 0.0]
    for label, matrix in ours.items():
        np.testing.assert_allclose(variances[label] / dof[label], np.diag(matrix), rtol=tolerance, atol=tolerance)


def test_pooled_free_covariance_divides_by_the_degrees_of_freedom_of_estimable_classes() -> None:
    X, y, holders = draw(1)
    holders[y == 2] = 5  # class 2 is held by one client: no free covariance, no weight
    stats = Ledger.of(X, y, holders, SPEC, n_classes=3).statistics()
    counts = np.bincount(y)
    scatter = sum((counts[c] - 1) * free_referee(X, y, holders, c) for c in (0, 1))
    gaussians = ClassGaussians(stats, "free")
    pooled = gaussians.pooled_covariance("none")
    np.testing.assert_allclose(pooled, scatter / (counts[0] + counts[1] - 2), rtol=1e-10, atol=1e-12)
    assert not np.allclose(pooled, scatter / (len(y) - 3), rtol=1e-3)
    assert gaussians.scatter.weight == counts[0] + counts[1] - 2
    assert gaussians.scatter.dof == 8 + 8


def test_free_scatter_is_one_weighted_gram_product_over_rows() -> None:
    X, y, holders = draw(2)
    stats = Ledger.of(X, y, holders, SPEC, n_classes=3).statistics()
    scatter = ClassGaussians(stats, "free").scatter
    matrix = new_gram(4)
    scatter.add_to(matrix, 1.0)
    rows = scatter.factor()
    assert scatter.n_rows == len(rows) == len(stats.rows)
    np.testing.assert_allclose(rows.T @ rows, symmetrize_upper(matrix), rtol=1e-12, atol=1e-12)
    rows_spread = sum(free_referee(X, y, holders, c) * (len(np.unique(holders[y == c])) - 1) for c in range(3))
    assert np.isclose(scatter.trace, np.trace(rows_spread) / scatter.dof)


def test_one_sample_per_client_gives_the_sample_covariance_exactly() -> None:
    rng = np.random.default_rng(3)
    X, y = rng.integers(-64, 65, size=(64, 3)) / 8, np.repeat([0, 1], 32)  # exact means: N_c is a power of two
    stats = Ledger.of(X, y, np.arange(64), SPEC, n_classes=2).statistics()
    exact = ClassGaussians(Statistics.of(X, y, StatisticsSpec.of("class_grams"), n_classes=2), "exact")
    for ours, theirs in zip(ClassGaussians(stats, "free").class_covariances(), exact.class_covariances(), strict=True):
        np.testing.assert_allclose(ours[1], theirs[1], rtol=1e-14, atol=1e-14)
        np.testing.assert_allclose(ours[1], np.cov(X[y == ours[0]], rowvar=False), rtol=1e-13, atol=1e-13)
        assert ours[2] == theirs[2] == 31
    free_pooled = ClassGaussians(stats, "free").pooled_covariance("automatic")
    np.testing.assert_allclose(free_pooled, exact.pooled_covariance("automatic"), rtol=1e-13, atol=1e-13)


def test_a_class_held_by_one_client_has_no_free_covariance_and_no_nan() -> None:
    X, y, holders = draw(4)
    holders[y == 0] = 2
    stats = Ledger.of(X, y, holders, SPEC, n_classes=3).statistics()
    labels = {label: (matrix, dof) for label, matrix, dof in ClassGaussians(stats, "free").class_covariances()}
    assert labels[0][1] == 0
    np.testing.assert_allclose(labels[0][0], 0.0, atol=1e-12)
    assert np.isfinite(ClassGaussians(stats, "free").pooled_covariance()).all()


def test_pooled_clients_would_have_a_zero_covariance_and_are_refused() -> None:
    X, y, holders = draw(5)
    ledger = Ledger.of(X, y, holders, SPEC, n_classes=3)
    pooled = ledger.pool()
    # Counts and sums alone, taken as the rows of one party: every free covariance would be zero …
    rows = MeanRows(pooled.classes, pooled.class_counts, pooled.raw("sums"))
    as_one = Statistics(
        SPEC, 3, 4, pooled.classes, pooled.class_counts, {"client_means": pooled.raw("sums")}, rows.labels, rows.counts
    )
    garbage = ClassGaussians(as_one, "free")
    np.testing.assert_allclose(garbage.pooled_covariance("none"), 0.0, atol=1e-12)
    assert not np.allclose(ClassGaussians(ledger.statistics(), "free").pooled_covariance("none"), 0.0, atol=0.1)
    # … so that nothing is computed from them.
    with pytest.raises(ClientsPooledError, match=r"pooled, every client mean is lost.*zero"):
        ClassGaussians(pooled, "free").pooled_covariance("none")
    with pytest.raises(ClientsPooledError, match="destroy"):
        ledger.pool(SPEC)


# -------------------------------------------------------------------------------------------------- Monte Carlo


def class_at_clients(rng: np.random.Generator, sizes: list[int], means: Array, root: Array) -> tuple[Array, Array]:
    holders = np.repeat(np.arange(len(sizes)), sizes)
    return rng.normal(size=(len(holders), len(root))) @ root.T + means[holders], holders


def test_free_covariance_is_unbiased_with_the_clients_that_hold_the_class() -> None:
    rng = np.random.default_rng(0)
    root = np.array([[1.0, 0.0], [0.7, 0.5]])
    truth = root @ root.T
    sizes, n_clients = [1, 0, 6, 3, 0, 11, 2, 0], 8  # three clients lack the class
    held_by = sum(size > 0 for size in sizes)
    total, repeats = np.zeros((2, 2)), 2000
    for _ in range(repeats):
        X, holders = class_at_clients(rng, sizes, np.zeros((8, 2)), root)
        stats = Ledger.of(X, np.zeros(len(X), int), holders, SPEC, n_classes=1, names=range(8)).statistics()
        total += free_of(stats)[0]
    estimate = total / repeats
    error = 4 * np.sqrt(2 / (held_by - 1) / repeats) * np.trace(truth)
    np.testing.assert_allclose(estimate, truth, rtol=0, atol=error)
    # with K − 1, as FedCOF's Eq. 7 prints, it would be too small by (K_c − 1)/(K − 1)
    with_all_clients = estimate * (held_by - 1) / (n_clients - 1)
    np.testing.assert_allclose(with_all_clients, truth * (held_by - 1) / (n_clients - 1), rtol=0, atol=error)
    assert np.trace(truth) - np.trace(with_all_clients) > 5 * error


def test_several_means_per_client_stay_unbiased() -> None:
    rng = np.random.default_rng(1)
    spec = StatisticsSpec.of("client_means", means_per_client=3)
    root = np.diag([1.0, 2.0])
    total, repeats = np.zeros((2, 2)), 1500
    for repeat in range(repeats):
        X, holders = class_at_clients(rng, [7, 8, 2], np.zeros((3, 2)), root)
        ledger = Ledger.of(X, np.zeros(len(X), int), holders, spec, n_classes=1, seed=repeat)
        assert len(ledger.statistics().rows) == 3 + 3 + 1
        total += free_of(ledger.statistics())[0]
    np.testing.assert_allclose(total / repeats, root @ root.T, rtol=0, atol=4 * 5 * np.sqrt(2 / 6 / repeats))


def test_equation_24_gives_the_bias_when_client_means_differ() -> None:
    rng = np.random.default_rng(2)
    root = np.array([[1.0, 0.0], [0.3, 0.8]])
    sizes = np.array([2, 6, 3, 5])
    means = np.array([[1.0, 0.0], [-1.0, 0.5], [0.0, -1.0], [0.0, 0.5]])
    scales = np.array([1.0, 0.5, 1.5, 1.0])
    client_covariances = np.stack([s**2 * root @ root.T for s in scales])
    # The class's own mean and covariance: those of its clients, weighted by their samples.
    mean = np.average(means, axis=0, weights=sizes)
    truth = np.average(client_covariances, axis=0, weights=sizes)
    draws, holders = [], np.repeat(np.arange(4), sizes)
    for _ in range(3000):
        X = (rng.normal(size=(16, 2)) @ root.T) * scales[holders, None] + means[holders]
        draws.append(free_of(Ledger.of(X, np.zeros(16, int), holders, SPEC, n_classes=1).statistics())[0])
    bias = expected_bias(sizes, means, client_covariances, mean, truth)
    error = 4 * np.std(draws, axis=0) / np.sqrt(len(draws))
    assert (np.abs(np.mean(draws, axis=0) - truth - bias) < error).all()
    assert (error < 0.25 * np.abs(bias)).all()  # sharp enough to tell
    naught = expected_bias(sizes, np.tile(mean, (4, 1)), np.tile(truth, (4, 1, 1)), mean, truth)
    np.testing.assert_allclose(naught, 0.0)


def test_equation_24_equals_its_formula_and_needs_two_clients() -> None:
    counts, means = np.array([2, 3]), np.array([[1.0], [-1.0]])
    covariances, mean, covariance = np.array([[[2.0]], [[4.0]]]), np.array([0.5]), np.array([[1.0]])
    by_hand = ((2 - 1) + (4 - 1) + 2 * 0.25 + 3 * 2.25) / 1
    np.testing.assert_allclose(expected_bias(counts, means, covariances, mean, covariance), [[by_hand]])
    with pytest.raises(ValueError, match="two clients or more, not 1"):
        expected_bias(counts[:1], means[:1], covariances[:1], mean, covariance)


def test_bias_is_about_zero_without_feature_shift_and_large_with_it() -> None:
    rng = np.random.default_rng(3)
    spec = StatisticsSpec.of("client_means", "class_norms")
    y, holders = rng.integers(0, 5, 6000), rng.integers(0, 60, 6000)
    X = rng.normal(size=(6000, 10)) + rng.normal(size=(5, 10))[y]
    plain = covariance_bias(Ledger.of(X, y, holders, spec, n_classes=6).statistics())
    assert abs(plain.overall) < 0.1
    assert np.isnan(plain.relative[5])
    assert (np.abs(plain.relative[:5]) < 0.35).all()
    assert plain.held_by.tolist() == [60] * 5 + [0]
    shifted = X + rng.normal(size=(60, 10))[holders]
    moved = covariance_bias(Ledger.of(shifted, y, holders, spec, n_classes=6).statistics())
    assert moved.overall > 3
    assert (moved.relative[:5] > 1).all()


def test_bias_of_classes_that_cannot_be_compared_is_nan() -> None:
    spec = StatisticsSpec.of("client_means", "class_norms")
    X, y = [[0.0], [1.0], [5.0]], [0, 0, 1]
    bias = covariance_bias(Ledger.of(X, y, [0, 0, 1], spec, n_classes=3).statistics())
    assert np.isnan(bias.relative).all()
    assert np.isnan(bias.overall)
    with pytest.raises(ClientsPooledError, match="bias of the free covariance"):
        covariance_bias(Statistics.of(X, y, StatisticsSpec.of("class_norms"), n_classes=3))
