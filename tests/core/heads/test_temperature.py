"""The temperature in closed form: its laws, and that probabilities can be believed with it."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import fedmoments as fm
from fedmoments.core.classifier import LinearClassifier, load_bytes
from fedmoments.core.heads.temperature import (
    BARE_ODDS,
    BARE_SPREAD,
    FAR,
    FEW_DIMENSIONS,
    MOST_ODDS,
    OWN_COVARIANCES,
    PLAIN_ODDS,
    PLAIN_WARMTH,
    TOGETHER,
    WRONG_MEANS,
)
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


class Referee:
    """Margins class by class, of class means and shares that are given; no matrix, no shared code."""

    def __init__(self, classifier: Any, means: NDArray[Any], shares: NDArray[Any]) -> None:
        self.gaps, self.far, self.spreads, self.pairs = [], 0.0, [], []
        scores = [classifier.scores(mean[None])[0] for mean in means]
        for c, share in enumerate(shares):
            rival = max((r for r in range(len(means)) if r != c), key=lambda r: scores[c][r])
            self.pairs.append((c, rival))
            self.gaps.append(scores[c][c] - scores[c][rival])
            self.far += share * (scores[c][c] - sum(shares[r] * scores[c][r] for r in range(len(means))))
            others = [i for i in range(len(means)) if i not in (c, rival)]
            whole = sum(shares[i] for i in others)
            middle = sum(shares[i] / whole * (scores[i][c] - scores[i][rival]) for i in others)
            square = sum(shares[i] / whole * (scores[i][c] - scores[i][rival] - middle) ** 2 for i in others)
            self.spreads.append(np.sqrt(square))
        self.gap = sum(share * max(gap, 0.0) for share, gap in zip(shares, self.gaps, strict=True))
        self.wrong = sum(share for share, gap in zip(shares, self.gaps, strict=True) if gap <= 0)
        self.between = float(shares @ np.array(self.spreads))


def of_classes(X: NDArray[Any], y: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return class means, shares and pooled variances inside classes."""
    means = np.array([X[y == c].mean(axis=0) for c in range(C)])
    shares = np.bincount(y, minlength=C) / len(y)
    return means, shares, ((X - means[y]) ** 2).sum(axis=0) / (len(y) - C)


@pytest.mark.parametrize("separation", [0.3, 1.0, 4.0])
def test_law_lda_has_the_spread_of_its_margins(separation: float) -> None:
    """Of LDA, the variance of a margin is Δwᵀ(μ_c − μ_r): the referee needs no covariance."""
    X, y = samples(separation=separation)
    stats = Statistics.of(X, y, StatisticsSpec.of("gram"), n_classes=C)
    classifier = fm.make_head("gh-lda", shrinkage="none").fit(stats)
    assert isinstance(classifier, LinearClassifier)
    means, shares, _ = of_classes(X, y)
    seen = Referee(classifier, means, shares)
    slopes = [classifier.weights[:, c] - classifier.weights[:, r] for c, r in seen.pairs]
    spreads = [np.sqrt(slope @ (means[c] - means[r])) for slope, (c, r) in zip(slopes, seen.pairs, strict=True)]
    least = float(shares @ np.array(spreads)) ** 2 / (2 * seen.gap)
    crowd = np.sqrt(FAR * seen.far / seen.gap)
    expected = max(1.0, least, D / (D + FEW_DIMENSIONS) * (2 * least + seen.gap / MOST_ODDS) * crowd)
    assert classifier.temperature == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("separation", [0.6, 4.0])
def test_law_qda_has_the_slopes_of_its_margins_and_is_cooler(separation: float) -> None:
    """The slopes of the referee are differences of scores, its covariance is that of all samples around their means."""
    X, y = samples(separation=separation)
    classifier = fm.make_head("gh-qda", shrinkage="none").fit(
        Statistics.of(X, y, StatisticsSpec.of("class_grams"), n_classes=C)
    )
    means, shares, _ = of_classes(X, y)
    seen = Referee(classifier, means, shares)
    pooled = (X - means[y]).T @ (X - means[y]) / (len(y) - C)
    spreads = []
    for c, r in seen.pairs:
        ahead, behind = (classifier.scores(means[c] + step * np.eye(D)) for step in (1e-4, -1e-4))
        slope = ((ahead - behind)[:, c] - (ahead - behind)[:, r]) / 2e-4
        spreads.append(np.sqrt(slope @ pooled @ slope))
    least = float(shares @ np.array(spreads)) ** 2 / (2 * seen.gap)
    crowd = np.sqrt(FAR * seen.far / seen.gap)
    full = max(least, D / (D + FEW_DIMENSIONS) * (2 * least + seen.gap / MOST_ODDS) * crowd)
    assert classifier.temperature == pytest.approx(max(1.0, OWN_COVARIANCES * full), rel=1e-5)
    assert (classifier.temperature > 1.0) == (separation > 1.0)


def test_law_nearest_means_are_measured_by_their_margins_at_other_means() -> None:
    """Of FedNCM, whose counts and sums hold no spread."""
    X, y = samples(separation=0.3)
    classifier = fm.fit("fedncm", Statistics.of(X, y, fm.spec_for("fedncm"), n_classes=C))
    means, shares, _ = of_classes(X, y)
    seen = Referee(classifier, means, shares)
    expected = seen.gap / BARE_ODDS + BARE_SPREAD * seen.between**2 / seen.gap
    assert classifier.temperature == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("name", ["fedcof-spherical", "fedcof-diagonal"])
def test_law_features_that_vary_together_are_seen_in_other_means(name: str) -> None:
    X, y = samples(separation=0.5)
    classifier = fm.fit(name, Statistics.of(X, y, fm.spec_for(name), n_classes=C))
    assert isinstance(classifier, LinearClassifier)
    means, shares, variances = of_classes(X, y)
    if name == "fedcof-spherical":
        variances = np.full(D, variances.mean())
    seen = Referee(classifier, means, shares)
    slopes = np.array([classifier.weights[:, c] - classifier.weights[:, r] for c, r in seen.pairs])
    alone = float(shares @ np.sqrt([(slope**2 * variances).sum() for slope in slopes]))
    away = sum(share * ((mean - shares @ means) ** 2).sum() for share, mean in zip(shares, means, strict=True))
    square = (1 - TOGETHER) * alone**2 + TOGETHER * variances.sum() / away * seen.between**2
    expected = PLAIN_WARMTH * (square / seen.gap + seen.gap / PLAIN_ODDS)
    assert classifier.temperature == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("separation", [0.05, 1.0])
def test_law_naive_bayes_is_warmer_where_it_takes_means_for_other_classes(separation: float) -> None:
    X, y = samples(separation=separation)
    X[y == 0] *= 3.0  # the widest class: at small separations, means of others score best as one of small spread
    classifier = fm.fit("gh-nb", parties(X, y))
    means, shares, _ = of_classes(X, y)
    seen = Referee(classifier, means, shares)
    assert (seen.wrong > 0) == (separation < 0.1)
    expected = max(1.0, seen.gap / BARE_ODDS * np.exp(WRONG_MEANS * seen.wrong))
    assert classifier.temperature == pytest.approx(expected, rel=1e-9)


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
