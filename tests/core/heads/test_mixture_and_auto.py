"""The mixture of client modes, the shift statistic that asks for it, and ``auto``, which decides by it."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.datasets import load_digits, load_iris

import fedmoments as fm
from fedmoments.core.classifier import LinearClassifier, load_bytes
from fedmoments.core.classifier.mixture import MixtureClassifier
from fedmoments.core.gaussian import ClassGaussians
from fedmoments.core.gaussian.shift import MOST_MODES, Shift
from fedmoments.core.statistics import Statistics, StatisticsSpec
from fedmoments.errors import InputError
from fedmoments.samples import parse_split

Floats = NDArray[np.float64]
SPEC = StatisticsSpec.of("client_means", "scatter_sketch")
C, D = 3, 8


def federation(shift: float, n_clients: int = 8, seed: int = 0, n: int = 960) -> list[Statistics]:
    """Return clients that hold classes unevenly, each moved by so much in a direction of its own."""
    X, y, holders = samples(shift, n_clients, seed, n)
    return [Statistics.of(X[holders == k], y[holders == k], SPEC, n_classes=C) for k in np.unique(holders)]


def samples(shift: float, n_clients: int, seed: int, n: int) -> tuple[Floats, Any, Any]:
    rng = np.random.default_rng(seed)
    y = np.arange(n) % C
    holders = np.asarray(parse_split("dirichlet:0.5").apply(y, n_clients=n_clients, seed=1).clients)
    moves = np.random.default_rng(7).normal(size=(n_clients, D))
    means = 0.7 * np.random.default_rng(3).normal(size=(C, D))
    return means[y] + rng.normal(size=(n, D)) + shift * moves[holders], y, holders


def shift_of(parts: list[Statistics]) -> float:
    stats = Statistics.merge(parts)
    return Shift.of(stats, ClassGaussians(stats, "sketch").means).ratio


def test_law_the_shift_statistic_is_one_under_label_skew_whatever_the_split() -> None:
    ratios = [shift_of(federation(0.0, seed=seed)) for seed in range(30)]
    assert np.mean(ratios) == pytest.approx(1.0, abs=0.05)
    assert shift_of(federation(3.0)) > 10


def test_law_the_shift_statistic_is_a_ratio_of_mean_squares() -> None:
    X, y, holders = samples(1.0, 8, 0, 960)
    between = within = between_dof = within_dof = 0.0
    for c in range(C):
        mean, held = X[y == c].mean(axis=0), 0
        for k in np.unique(holders):
            own = X[(y == c) & (holders == k)]
            if len(own):
                held += 1
                between += len(own) * float(np.square(own.mean(axis=0) - mean).sum())
                within += float(np.square(own - own.mean(axis=0)).sum())
                within_dof += len(own) - 1
        between_dof += held - 1
    expected = (between / between_dof) / (within / within_dof)
    assert shift_of(federation(1.0)) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("shift", [0.0, 1.0])
def test_diagnostics_say_the_same_shift_from_means_and_norms(shift: float) -> None:
    X, y, holders = samples(shift, 8, 0, 960)
    spec = StatisticsSpec.of("client_means", "class_norms")
    parts = [Statistics.of(X[holders == k], y[holders == k], spec, n_classes=C) for k in np.unique(holders)]
    bias = fm.covariance_bias(Statistics.merge(parts))
    assert bias.shift == pytest.approx(shift_of(federation(shift)), rel=1e-9)


def test_law_without_shift_the_mixture_is_lda_bit_for_bit() -> None:
    parts = next(parts for seed in range(30) if shift_of(parts := federation(0.0, seed=seed)) <= 1.0)
    stats = Statistics.merge(parts)
    mixture, lda = fm.make_head("mixture-sketch").fit(stats), fm.make_head("lda-sketch").fit(stats)
    assert isinstance(mixture, LinearClassifier)
    assert mixture.digest() == lda.digest()
    assert mixture.temperature == lda.temperature


def test_law_one_mode_a_class_is_linear() -> None:
    stats = Statistics.merge(federation(2.0))
    one = fm.make_head("mixture-sketch", modes=1).fit(stats)
    assert isinstance(one, MixtureClassifier)
    X = np.random.default_rng(0).normal(size=(50, D))
    linear = (X - one.offset) @ one.weights + one.bias
    np.testing.assert_allclose(one.scores(X), linear, rtol=1e-12)


def naive_scores(classifier: MixtureClassifier, X: Floats) -> Floats:
    scores = np.full((len(X), C), -np.inf)
    for row, x in enumerate(X):
        for c in range(C):
            modes = [(x - classifier.offset) @ w + b for w, b, label in _modes(classifier) if label == c]
            scores[row, c] = np.logaddexp.reduce(modes)
    return scores


def _modes(classifier: MixtureClassifier) -> Any:
    return zip(classifier.weights.T, classifier.bias, classifier.labels, strict=True)


def test_scores_are_those_of_a_naive_sum_over_modes() -> None:
    classifier = fm.make_head("mixture-sketch").fit(Statistics.merge(federation(3.0)))
    assert isinstance(classifier, MixtureClassifier)
    X = 3.0 * np.random.default_rng(1).normal(size=(20, D))
    np.testing.assert_allclose(classifier.scores(X), naive_scores(classifier, X), rtol=1e-10)
    np.testing.assert_allclose(load_bytes(classifier.to_bytes()).scores(X), classifier.scores(X))
    far = classifier.scores(1e6 * X)
    assert np.isfinite(far).all()


@pytest.mark.parametrize("shift", [3.0, 6.0])
def test_the_mixture_beats_lda_where_clients_differ_in_more_than_labels(shift: float) -> None:
    stats = Statistics.merge(federation(shift))
    X, y, _ = samples(shift, 8, 11, 3000)
    mixture, lda, auto = (fm.make_head(name).fit(stats) for name in ("mixture-sketch", "lda-sketch", "auto"))
    assert (mixture.predict(X) == y).mean() > (lda.predict(X) == y).mean() + 0.02
    assert auto.info["chosen"] == "mixture-sketch"
    assert auto.digest() == fm.make_head("mixture-sketch", means="shrunk").fit(stats).digest()


def test_law_the_order_of_clients_and_the_unit_of_features_change_no_prediction() -> None:
    parts = federation(3.0)
    X, _, _ = samples(3.0, 8, 5, 300)
    one = fm.make_head("auto").fit(Statistics.merge(parts))
    other = fm.make_head("auto").fit(Statistics.merge(parts[::-1]))
    np.testing.assert_allclose(one.scores(X), other.scores(X), rtol=1e-8, atol=1e-8)
    Z, y, holders = samples(3.0, 8, 0, 960)
    scaled = {k: (1000.0 * Z[holders == k], y[holders == k]) for k in np.unique(holders)}
    np.testing.assert_array_equal(fm.fit("auto", scaled, n_classes=C).predict(1000.0 * X), one.predict(X))


def test_law_ten_thousand_clients_leave_a_small_mixture() -> None:
    parts = federation(4.0, n_clients=1000, n=6000)
    classifier = fm.make_head("mixture-sketch").fit(Statistics.merge(parts))
    assert isinstance(classifier, MixtureClassifier)
    assert len(classifier.labels) == C * MOST_MODES
    X, y, _ = samples(4.0, 1000, 0, 6000)
    assert (classifier.predict(X) == y).mean() > 0.6


def test_auto_explains_its_choice_and_agrees_with_lda_under_label_skew() -> None:
    stats = Statistics.merge(federation(0.0)).as_sent()
    auto, lda = fm.make_head("auto").fit(stats), fm.make_head("lda-sketch", means="shrunk").fit(stats)
    assert auto.info["chosen"] == "lda-sketch"
    assert auto.digest() == lda.digest()
    assert "labels alone" in auto.info["criterion"]
    assert auto.info["shift"] == Shift.of(stats, ClassGaussians(stats, "sketch").means).ratio


def test_law_the_shift_statistic_varies_by_its_chance() -> None:
    rng, ratios, chances = np.random.default_rng(0), [], []
    for _ in range(200):
        y = np.repeat(np.arange(C), 30)
        X = rng.normal(size=(90, 4)) * [4.0, 1.0, 0.5, 0.1]
        stats = Statistics.merge([Statistics.of(X[k::4], y[k::4], SPEC, n_classes=C) for k in range(4)])
        gaussians = ClassGaussians(stats, "sketch")
        shift = Shift.of(stats, gaussians.means, gaussians.raw_covariance())
        ratios.append(shift.ratio)
        chances.append(shift.chance)
    assert np.std(ratios) == pytest.approx(np.mean(chances), rel=0.25)


def test_few_clients_in_few_dimensions_are_not_taken_for_shift() -> None:
    """F of the 90 samples of iris at ten clients is 1.7, of which chance alone explains most."""
    X, y = load_iris(return_X_y=True)
    train = np.arange(150) % 5 < 3
    for seed in range(8):
        split = parse_split("dirichlet-class:0.1").apply(y[train], n_clients=10, seed=seed)
        holders = np.asarray(split.clients)
        parties = {k: (X[train][holders == k], y[train][holders == k]) for k in np.unique(holders)}
        assert fm.fit("auto", parties, n_classes=3).info["chosen"] == "lda-sketch"


def test_auto_without_a_covariance_is_the_nearest_mean() -> None:
    stats = Statistics.merge([Statistics.of(np.eye(C, D), np.arange(C), SPEC, n_classes=C)])
    assert fm.make_head("auto").fit(stats).info["chosen"] == "fedncm"


@pytest.mark.parametrize("alpha", [0.05, 0.1, 0.5])
@pytest.mark.parametrize("n_clients", [10, 50])
def test_auto_on_digits_is_never_below_fedcof(alpha: float, n_clients: int) -> None:
    digits = load_digits()
    X, y = digits.data, digits.target
    test = np.arange(len(y)) % 10 < 3
    holders = np.asarray(parse_split(f"dirichlet-class:{alpha}").apply(y[~test], n_clients=n_clients, seed=0).clients)
    parties = {k: (X[~test][holders == k], y[~test][holders == k]) for k in np.unique(holders)}
    auto, fedcof = fm.fit("auto", parties, budget="means"), fm.fit("fedcof", parties)
    assert auto.feature_map is None, "pixels are non-negative, but not skewed"
    assert (auto.predict(X[test]) == y[test]).mean() >= (fedcof.predict(X[test]) == y[test]).mean() - 0.002


@pytest.mark.parametrize(
    "changed",
    [
        {"labels": np.array([1, 0, 2])},
        {"labels": np.array([0, 1, 1])},
        {"bias": np.zeros(2)},
        {"weights": np.zeros((D, 2))},
        {"offset": np.zeros(D + 1)},
    ],
)
def test_a_mixture_that_does_not_fit_together_is_refused(changed: dict[str, Any]) -> None:
    sound: dict[str, Any] = {
        "weights": np.zeros((D, 3)), "bias": np.zeros(3), "labels": np.arange(3), "offset": np.zeros(D),
        "present": np.ones(3, bool),
    }  # fmt: skip
    MixtureClassifier(**sound)
    with pytest.raises(InputError, match="a mixture"):
        MixtureClassifier(**{**sound, **changed})


def test_modes_are_one_or_more() -> None:
    with pytest.raises(InputError, match="1 mode or more"):
        fm.make_head("mixture-sketch", modes=0)
