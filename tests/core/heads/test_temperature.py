"""The temperature in closed form: its laws, and that probabilities can be believed with it."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import fedmoments as fm
from fedmoments.core.classifier import LinearClassifier, load_bytes
from fedmoments.core.heads.temperature import FEW_DIMENSIONS, MOST_ODDS, TOGETHER
from fedmoments.core.statistics import Statistics, StatisticsSpec
from fedmoments.errors import FileFormatError, InputError

HEADS = ["fedncm", "fed3r", "fedcof", "lda-free", "gh-lda", "gh-nb", "gh-qda", "gh-dlr-qda", "sketch", "lda-sketch"]
C, D = 4, 12


def samples(n: int = 600, separation: float = 1.0, seed: int = 0) -> tuple[NDArray[Any], NDArray[Any]]:
    rng = np.random.default_rng(seed)
    y = np.arange(n) % C
    # t-distributed with three degrees of freedom: heavier tails than any Gaussian head believes in
    X = separation * np.random.default_rng(1).normal(size=(C, D))[y] + 0.6 * rng.standard_t(3, size=(n, D))
    return X, y


def parties(X: NDArray[Any], y: NDArray[Any], k: int = 20) -> dict[int, tuple[NDArray[Any], NDArray[Any]]]:
    return {site: (X[site::k], y[site::k]) for site in range(k)}


def calibration_error(shares: NDArray[Any], y: NDArray[Any]) -> float:
    sure, right = shares.max(axis=1), shares.argmax(axis=1) == y
    bins = np.minimum((15 * sure).astype(int), 14)
    return sum(abs(float((sure - right)[bins == b].sum())) for b in range(15)) / len(y)


@pytest.mark.parametrize("name", HEADS)
def test_law_features_times_a_constant_change_no_probability(name: str) -> None:
    X, y = samples()
    one = fm.fit(name, parties(X, y))
    for factor in (1e-3, 7.0, 2.0**90):
        other = fm.fit(name, parties(factor * X, y))
        np.testing.assert_allclose(other.predict_proba(factor * X), one.predict_proba(X), rtol=2e-4, atol=1e-6)


def test_law_lda_has_the_spread_of_its_margins() -> None:
    """Of LDA, the variance of a margin is Δwᵀ(μ_c − μ_r): the referee needs no covariance."""
    X, y = samples()
    stats = Statistics.of(X, y, StatisticsSpec.of("gram"), n_classes=C)
    classifier = fm.make_head("gh-lda", shrinkage="none").fit(stats)
    assert isinstance(classifier, LinearClassifier)
    means = stats.sums / stats.counts[:, None]
    spreads, gaps = [], []
    for c in range(C):
        scores = classifier.scores(means[c : c + 1])[0]
        rival = max((r for r in range(C) if r != c), key=lambda r: scores[r])
        slope = classifier.weights[:, c] - classifier.weights[:, rival]
        spreads.append(np.sqrt(slope @ (means[c] - means[rival])))
        gaps.append(scores[c] - scores[rival])
    sigma, gap = np.mean(spreads), np.mean(gaps)
    expected = max(sigma**2 / (2 * gap), D / (D + FEW_DIMENSIONS) * (sigma**2 / gap + gap / MOST_ODDS))
    assert classifier.temperature == pytest.approx(expected, rel=1e-9)


def test_law_nearest_means_spread_as_class_means_are_long() -> None:
    """Of FedNCM, whose counts and sums hold no spread; the referee walks over classes and dimensions."""
    X, y = samples(separation=0.3)
    classifier = fm.fit("fedncm", parties(X, y))
    means = np.array([X[y == c].mean(axis=0) for c in range(C)])
    variance = float((means**2).sum(axis=1).mean()) / D
    logs = []
    for c in range(C):
        scores = classifier.scores(means[c : c + 1])[0]
        rival = max((r for r in range(C) if r != c), key=lambda r: scores[r])
        away = means[c] / np.linalg.norm(means[c]) - means[rival] / np.linalg.norm(means[rival])
        logs.append(0.5 * np.log(sum(variance * slope**2 for slope in away) * (1 + D / TOGETHER)))
    assert classifier.temperature == pytest.approx(0.5 * np.exp(np.mean(logs)), rel=1e-9)


@pytest.mark.parametrize("name", HEADS)
def test_gradients_are_those_of_finite_differences(name: str) -> None:
    X, y = samples()
    classifier = fm.fit(name, parties(X, y))
    points, labels = X[:5], y[:5]
    gradients = classifier.gradients(points, labels)
    step = 1e-5
    for j in range(D):
        moved = np.eye(D)[j] * step
        rise = classifier.scores(points + moved) - classifier.scores(points - moved)
        np.testing.assert_allclose(gradients[:, j], rise[np.arange(5), labels] / (2 * step), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["fed3r", "fedcof", "gh-lda", "gh-qda", "sketch", "lda-sketch", "lda-free"])
def test_probabilities_can_be_believed(name: str) -> None:
    X, y = samples()
    unseen, labels = samples(4000, seed=5)
    classifier = fm.fit(name, parties(X, y))
    assert calibration_error(classifier.predict_proba(unseen), labels) < 0.07
    raw = calibration_error(classifier.predict_proba(unseen, temperature=0.1), labels)
    assert calibration_error(classifier.predict_proba(unseen), labels) <= raw


def test_the_temperature_travels_in_the_file() -> None:
    X, y = samples()
    classifier = fm.fit("fedcof", parties(X, y))
    again = load_bytes(classifier.to_bytes())
    assert again.temperature == classifier.temperature != 1.0
    np.testing.assert_array_equal(again.predict_proba(X), classifier.predict_proba(X))


@pytest.mark.parametrize("wrong", [0.0, -1.0, float("inf"), float("nan"), "hot", True, None])
def test_no_file_makes_a_classifier_divide_by_nonsense(wrong: Any) -> None:
    X, y = samples()
    classifier = fm.fit("fedncm", parties(X, y))
    with pytest.raises(InputError, match="temperature must be positive"):
        classifier.tempered(wrong)
    object.__setattr__(classifier, "temperature", wrong)
    with pytest.raises((FileFormatError, ValueError)):
        load_bytes(classifier.to_bytes())


def test_one_class_and_classes_without_spread_have_a_temperature() -> None:
    equal = {k: (np.eye(3), np.arange(3)) for k in range(3)}
    for name in ("gh-lda", "fedcof", "lda-sketch", "fedncm"):
        with pytest.warns(fm.errors.FitWarning) if name != "fedncm" else _nothing():
            assert 0.0 < fm.fit(name, equal).temperature < np.inf
    alone = {0: (np.arange(4.0)[:, None], np.zeros(4, int))}
    assert fm.fit("gh-lda", alone).temperature == 1.0


def _nothing() -> Any:
    from contextlib import nullcontext

    return nullcontext()
