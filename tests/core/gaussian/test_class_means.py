"""Class means moved towards the mean of all by as much as noise has put them apart."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedmoments as fm
from fedmoments.core.gaussian import ClassGaussians
from fedmoments.core.gaussian.class_means import believed_means, trust_in_means
from fedmoments.core.statistics import SketchPlan, Statistics, StatisticsSpec
from fedmoments.errors import InputError

SPEC = StatisticsSpec.of("client_means", "scatter_sketch", sketch=SketchPlan(None, rank=3, code="float64"))


def long_tail(seed: int, n_classes: int = 40, dim: int = 30, most: int = 60) -> tuple[np.ndarray, ...]:
    """Return training samples of classes of 1 to ``most`` samples, and as many test samples of every class."""
    rng = np.random.default_rng(seed)
    centres = 0.8 * rng.normal(size=(n_classes, dim))
    sizes = np.maximum(most / np.arange(1, n_classes + 1) ** 1.2, 1.0).astype(int)
    y, y_test = np.repeat(np.arange(n_classes), sizes), np.repeat(np.arange(n_classes), 20)
    return centres[y] + rng.normal(size=(len(y), dim)), y, centres[y_test] + rng.normal(size=(len(y_test), dim)), y_test


@given(st.integers(0, 2**32 - 1), st.floats(1e-3, 1e3))
def test_law_trust_is_a_share_that_grows_with_samples_and_forgets_units(seed: int, noise: float) -> None:
    rng = np.random.default_rng(seed)
    counts = np.sort(rng.integers(1, 500, size=8))
    distances = rng.exponential(size=8) * noise
    shares = trust_in_means(distances, noise, counts)
    assert ((shares > 0.0) & (shares <= 1.0)).all()
    assert (np.diff(shares) >= -1e-12).all()
    np.testing.assert_allclose(trust_in_means(1024.0 * distances, 1024.0 * noise, counts), shares, rtol=1e-6)


def test_law_many_samples_are_believed_and_classes_of_one_size_alike() -> None:
    counts = np.full(5, 10**7)
    np.testing.assert_allclose(trust_in_means(np.array([1.0, 3.0, 2.0, 5.0, 4.0]), 50.0, counts), 1.0, atol=1e-5)
    shares = trust_in_means(np.array([60.0, 50.0, 70.0, 40.0]), 50.0, np.full(4, 3))
    assert len(set(shares.tolist())) == 1
    assert shares[0] < 0.9
    np.testing.assert_array_equal(trust_in_means(np.array([9.0, 9.0]), 5.0, np.array([7, 0])), 1.0)


def test_the_trusted_distance_is_the_one_that_classes_were_drawn_with() -> None:
    rng, dim, size = np.random.default_rng(0), 40, 60.0
    counts = rng.integers(1, 30, size=3000)
    true = np.sqrt(size / dim) * rng.normal(size=(3000, dim))
    seen = true + rng.normal(size=true.shape) / np.sqrt(counts)[:, None]
    shares = trust_in_means(np.square(seen).sum(axis=1), float(dim), counts)
    expected = size / (size + dim / counts)
    np.testing.assert_allclose(shares, expected, rtol=0.02)
    error, plain = np.square(shares[:, None] * seen - true).sum(), np.square(seen - true).sum()
    assert error < 0.9 * plain


def test_shrunk_means_are_those_of_the_formula() -> None:
    X, y, _, _ = long_tail(0)
    gaussians = ClassGaussians(Statistics.of(X, y, StatisticsSpec.of("gram"), n_classes=40))
    shrunk, raw = gaussians.pooled_covariance(), gaussians.raw_covariance()
    inverse = np.linalg.inv(shrunk)
    away = gaussians.centred_means
    shares = trust_in_means(
        np.einsum("cd,de,ce->c", away, inverse, away), float(np.trace(inverse @ raw)), gaussians.counts
    )
    np.testing.assert_allclose(believed_means(gaussians, "shrunk"), shares[:, None] * away, rtol=1e-9)
    np.testing.assert_array_equal(believed_means(gaussians), away)


def test_in_a_long_tail_auto_gains_on_small_classes_and_is_not_below_fedcof() -> None:
    found = []
    for seed in range(6):
        X, y, X_test, y_test = long_tail(seed, most=120)
        parties = {k: (X[k::5], y[k::5]) for k in range(5)}
        heads = [fm.fit(head, parties, n_classes=40) for head in ("auto", "qda-sketch", "fedcof")]
        found.append([(head.predict(X_test) == y_test).mean() for head in heads])
    auto, plain, fedcof = np.mean(found, axis=0)
    assert auto > plain + 0.04
    assert auto > fedcof + 0.02


def test_features_times_a_constant_change_no_prediction_of_shrunk_means() -> None:
    X, y, X_test, _ = long_tail(1)
    one, other = (
        fm.make_head("lda-sketch", means="shrunk").fit(Statistics.of(scale * X, y, SPEC, n_classes=40))
        for scale in (1.0, 1000.0)
    )
    np.testing.assert_array_equal(one.predict(X_test), other.predict(1000.0 * X_test))


def test_where_samples_do_not_differ_every_mean_is_believed() -> None:
    stats = Statistics.of([[0.0], [0.0], [3.0], [3.0]], [0, 0, 1, 1], StatisticsSpec.of("gram"), n_classes=2)
    gaussians = ClassGaussians(stats)
    np.testing.assert_array_equal(believed_means(gaussians, "shrunk"), gaussians.centred_means)


def test_an_unknown_word_is_refused_with_what_is_allowed() -> None:
    with pytest.raises(InputError, match="means is measured or shrunk; 'robust' arrived"):
        fm.make_head("lda-sketch", means="robust")
