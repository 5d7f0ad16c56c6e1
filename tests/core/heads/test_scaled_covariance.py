"""Class covariances from the gram and class squares, and heads that take the richest that statistics hold."""

from typing import Any

import numpy as np
import pytest

import fedmoments as fm
from fedmoments.core.gaussian import ClassGaussians, FisherSubspace, covariance_source
from fedmoments.core.gaussian.projected import projected_class_covariances
from fedmoments.core.heads.fishermix import FisherMix
from fedmoments.core.heads.naive_bayes import NaiveBayes
from fedmoments.core.statistics import Statistics, StatisticsSpec
from fedmoments.errors import MissingMomentError

CHEAP = StatisticsSpec.of("gram", "class_squares")


def world(seed: int = 0, classes: int = 4, dim: int = 6) -> tuple[np.ndarray, np.ndarray]:
    """Return correlated samples whose classes differ by a scaling of each dimension."""
    rng = np.random.default_rng(seed)
    mix = rng.normal(size=(dim, dim))
    scales = rng.uniform(0.5, 2.0, size=(classes, dim))
    means = 3.0 * rng.normal(size=(classes, dim))
    y = np.repeat(np.arange(classes), 400)
    return means[y] + (rng.normal(size=(len(y), dim)) @ mix) * scales[y], y


def cheap(X: np.ndarray, y: np.ndarray) -> Statistics:
    return Statistics.of(X, y, CHEAP, n_classes=int(y.max()) + 1)


def test_the_diagonal_of_a_scaled_covariance_is_that_of_the_class() -> None:
    X, y = world()
    for label, covariance, dof in ClassGaussians(cheap(X, y), "scaled").class_covariances():
        np.testing.assert_allclose(np.diagonal(covariance), X[y == label].var(axis=0, ddof=1), rtol=1e-10)
        assert dof == np.count_nonzero(y == label) - 1


def test_classes_whose_covariances_differ_by_one_factor_have_their_very_own() -> None:
    X, y = world(1)
    one = X[y == 0] - X[y == 0].mean(axis=0)
    stats = cheap(np.vstack([one, 2.0 * one + 1.0]), np.repeat([0, 1], len(one)))
    found = {label: own for label, own, _ in ClassGaussians(stats, "scaled").class_covariances()}
    base = np.cov(one, rowvar=False)
    np.testing.assert_allclose(found[0], base, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(found[1], 4.0 * base, rtol=1e-9, atol=1e-10)


def test_projected_scaled_covariances_are_the_full_ones_projected() -> None:
    gaussians = ClassGaussians(cheap(*world(3)), "scaled")
    basis = FisherSubspace.of(gaussians).basis
    inside = {label: own for label, own, _ in projected_class_covariances(gaussians, basis)}
    for label, own, _ in gaussians.class_covariances():
        np.testing.assert_allclose(inside[label], basis.T @ own @ basis, rtol=1e-9, atol=1e-12)


def test_a_class_of_one_sample_has_the_pooled_covariance() -> None:
    X, y = world(4)
    keep = (y != 3) | (np.arange(len(y)) == np.flatnonzero(y == 3)[0])
    classifier = fm.fit("fishermix-scaled", cheap(X[keep], y[keep]), samples=200)
    assert np.isfinite(classifier.scores(X)).all()


@pytest.mark.parametrize("name", ["fishermix-scaled", "proto-hyper-scaled", "gh-nb-fisher"])
def test_the_cheap_heads_ask_for_gram_and_squares_and_learn(name: str) -> None:
    X, y = world(5)
    assert fm.spec_for(name) == CHEAP
    classifier = fm.fit(name, {site: (X[site::3], y[site::3]) for site in range(3)})
    assert (classifier.predict(X) == y).mean() > 0.9


def test_naive_bayes_in_all_fisher_directions_with_pooled_variances_is_lda() -> None:
    X, y = world(6)
    stats = cheap(X, y)
    bayes = NaiveBayes("scaled", pooling="blend:1", subspace="fisher", shrinkage="automatic", directions="all")
    np.testing.assert_array_equal(bayes.fit(stats).predict(X), fm.fit("gh-lda", stats).predict(X))


@pytest.mark.parametrize("name", ["fishermix", "proto-hyper"])
@pytest.mark.parametrize(
    ("moments", "source", "spread"),
    [
        (("class_grams",), "exact", "class"),
        (("gram", "class_squares"), "scaled", "class"),
        (("gram", "client_means"), "exact", "pooled"),
        (("client_means",), "free", "class"),
        (("class_squares",), "diagonal", "class"),
    ],
)
def test_a_head_takes_the_richest_covariance_that_statistics_hold(
    name: str, moments: tuple[str, ...], source: str, spread: str
) -> None:
    X, y = world(7)
    ledger = fm.measure({site: (X[site::9], y[site::9]) for site in range(9)}, StatisticsSpec.of(*moments))
    hyper: dict[str, Any] = {"samples": 200} | ({"teacher": "lda"} if name == "proto-hyper" else {})
    chosen = fm.fit(name, ledger, **hyper)
    told = fm.fit(name, ledger, covariance=source, spread=spread, **hyper)
    np.testing.assert_array_equal(chosen.scores(X), told.scores(X))
    noted = "richest" if moments == ("class_grams",) else source
    assert (chosen.info["settings"]["covariance"], chosen.info["settings"]["spread"]) == (noted, spread)


def test_a_covariance_asked_for_by_name_is_not_replaced() -> None:
    X, y = world(8)
    with pytest.raises(MissingMomentError, match="class_grams"):
        FisherMix(covariance="exact").fit(cheap(X, y))


def test_drawing_by_diagonals_drops_correlations_inside_the_subspace() -> None:
    from fedmoments.core.gaussian import FisherClasses

    gaussians = ClassGaussians(cheap(*world(9)), "scaled")
    whole, cut = FisherClasses.of(gaussians), FisherClasses.of(gaussians, spread="diagonal")
    for own, diagonal in zip(whole.covariances, cut.covariances, strict=True):
        np.testing.assert_array_equal(np.diag(np.diagonal(own)), diagonal)
        assert np.abs(own - diagonal).max() > 1e-3
    assert covariance_source("scaled").class_needs == CHEAP
