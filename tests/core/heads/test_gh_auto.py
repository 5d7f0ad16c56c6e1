"""gh-auto: LDA where covariances are equal as far as one can tell, QDA where they differ, and it says so."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import fedmoments as fm
from fedmoments.core.classifier import LinearClassifier, QuadraticClassifier, load_bytes
from fedmoments.core.heads.auto import Auto
from fedmoments.core.heads.lda import Lda
from fedmoments.core.heads.qda import Qda
from fedmoments.core.statistics import Ledger, Statistics, StatisticsSpec
from fedmoments.errors import InputError, NotEnoughDataError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SPEC = StatisticsSpec.of("class_grams", "client_means")


def draw(seed: int, kind: str, *, n_classes: int = 4, dim: int = 8, n: int = 400) -> tuple[Floats, Ints]:
    """Return Gaussian classes with equal or unequal covariances, or of one mean and unequal covariances."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % n_classes
    shared = rng.normal(size=(dim, dim)) / 3 + np.eye(dim)
    factors = np.ones((n_classes, dim)) if kind == "equal" else np.exp(0.5 * rng.normal(size=(n_classes, dim)))
    means = 0.0 if kind == "same mean" else rng.normal(size=(n_classes, dim))[y]
    return (rng.normal(size=(n, dim)) * factors[y]) @ shared + means, y


def measure(X: Floats, y: Ints, *, n_classes: int = 4) -> Statistics:
    return Ledger.of(X, y, np.arange(len(y)) // 3 % 40, SPEC, n_classes=n_classes).statistics()


@pytest.mark.parametrize("source", ["exact", "free"])
@pytest.mark.parametrize("seed", range(6))
def test_lda_is_chosen_where_covariances_are_equal(seed: int, source: str) -> None:
    stats = measure(*draw(seed, "equal"))
    classifier = Auto(source).fit(stats)
    assert classifier.info["chosen"] == "lda"
    assert isinstance(classifier, LinearClassifier)
    assert classifier.digest() == Lda(source).fit(stats).digest()


@pytest.mark.parametrize("source", ["exact", "free"])
@pytest.mark.parametrize("seed", range(6))
def test_qda_is_chosen_where_covariances_differ(seed: int, source: str) -> None:
    stats = measure(*draw(seed, "unequal", n=1200))
    classifier = Auto(source).fit(stats)
    assert classifier.info["chosen"] == "qda"
    assert isinstance(classifier, QuadraticClassifier)
    assert classifier.digest() == Qda(source).fit(stats).digest()


@pytest.mark.parametrize("seed", range(4))
def test_classes_of_unequal_size_do_not_look_different(seed: int) -> None:
    """A free covariance of a class has K_c − 1 degrees of freedom, however many samples it has."""
    rng = np.random.default_rng(seed)
    y = np.repeat([0, 1], [4000, 200])
    X = rng.normal(size=(4200, 50)) + 0.5 * y[:, None]
    stats = Ledger.of(X, y, np.arange(4200) % 20, SPEC, n_classes=2).statistics()
    assert [Auto(source).fit(stats).info["chosen"] for source in ("exact", "free")] == ["lda", "lda"]


@pytest.mark.parametrize("source", ["diagonal", "spherical", "total"])
def test_other_covariances_are_refused(source: str) -> None:
    with pytest.raises(InputError, match=f"exact or free for gh-auto; '{source}' arrived"):
        Auto(source)


def test_covariances_that_differ_where_means_do_not_are_seen_too() -> None:
    X, y = draw(0, "same mean", n_classes=2, n=4400)
    stats = measure(X[:400], y[:400], n_classes=2)
    lda, auto = (head.fit(stats) for head in (Lda(), Auto()))
    assert auto.info["chosen"] == "qda"
    assert (auto.predict(X[400:]) == y[400:]).mean() > (lda.predict(X[400:]) == y[400:]).mean() + 0.1


def test_it_is_as_good_as_the_better_of_lda_and_qda_on_gaussian_classes() -> None:
    for kind in ("equal", "unequal"):
        X, y = draw(3, kind, n=8400)
        stats = measure(X[:400], y[:400])
        lda, qda, auto = ((h.fit(stats).predict(X[400:]) == y[400:]).mean() for h in (Lda(), Qda(), Auto()))
        assert auto >= max(lda, qda) - 0.002


@pytest.mark.parametrize("few", [3, 6])
def test_few_samples_of_equal_covariances_do_not_look_different(few: int) -> None:
    # More dimensions than samples a class: every class covariance is singular, and far from the pooled one.
    chosen = [Auto().fit(measure(*draw(seed, "equal", dim=30, n=4 * few))).info["chosen"] for seed in range(10)]
    assert chosen == ["lda"] * 10


def test_the_choice_does_not_depend_on_the_order_of_clients_or_how_samples_are_dealt() -> None:
    X, y = draw(1, "unequal")
    criteria = set()
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(len(y))
        stats = Ledger.of(X[order], y[order], np.arange(len(y)) % 7, SPEC, n_classes=4).statistics()
        criteria.add(Auto().fit(stats).info["criterion"])
    assert len(criteria) == 1


@pytest.mark.parametrize("kind", ["equal", "unequal"])
@pytest.mark.parametrize("factor", [1e-3, 1e3])
def test_the_choice_does_not_depend_on_the_unit_or_origin_of_features(kind: str, factor: float) -> None:
    X, y = draw(2, kind)
    plain, scaled = Auto().fit(measure(X, y)), Auto().fit(measure(factor * X + 5 * factor, y))
    assert plain.info["chosen"] == scaled.info["chosen"]
    assert plain.info["criterion"] == scaled.info["criterion"]
    assert np.array_equal(plain.predict(X), scaled.predict(factor * X + 5 * factor))


def test_notes_say_what_was_chosen_and_why_and_stay_in_the_file() -> None:
    X, y = draw(0, "unequal")
    classifier = fm.fit("gh-auto", {"a": (X[::2], y[::2]), "b": (X[1::2], y[1::2])})
    notes = load_bytes(classifier.to_bytes()).info
    assert notes["head"] == "gh-auto"
    assert notes["chosen"] == "qda"
    assert "times as much as by chance in the Fisher subspace (p = " in notes["criterion"]
    assert notes["criterion"].endswith("QDA where p < 0.001")


def test_chance_moves_the_border() -> None:
    unequal, equal = measure(*draw(0, "unequal")), measure(*draw(0, "equal"))
    assert Auto(chance=0.0).fit(unequal).info["chosen"] == "lda"
    assert Auto(chance=1.0).fit(equal).info["chosen"] == "qda"


def test_empty_classes_and_classes_of_one_sample_do_no_harm() -> None:
    for kind in ("equal", "unequal"):
        X, y = draw(0, kind)
        X, y = np.vstack([X, [[20.0] * 8]]), np.append(y, 5)
        classifier = Auto().fit(measure(X, y, n_classes=7))
        scores = classifier.scores(X)
        assert np.isneginf(scores[:, [4, 6]]).all()
        assert np.isfinite(np.delete(scores, [4, 6], axis=1)).all()
        assert classifier.predict(X[-1:]).tolist() == [5]


def test_one_class_is_lda() -> None:
    X, _ = draw(0, "equal")
    classifier = Auto().fit(Statistics.of(X, [0] * len(X), StatisticsSpec.of("class_grams"), n_classes=1))
    assert classifier.info["chosen"] == "lda"


@pytest.mark.parametrize("make", [lambda: Auto(chance=1.5), lambda: Auto(chance=float("nan")), lambda: Auto("guess")])
def test_wrong_hyper_parameters_are_refused(make: Any) -> None:
    with pytest.raises(InputError):
        make()


def test_nothing_to_measure_a_spread_from_is_refused() -> None:
    stats = Statistics.of(np.eye(3), [0, 1, 2], StatisticsSpec.of("class_grams"), n_classes=3)
    with pytest.raises(NotEnoughDataError, match="no class has two samples"):
        Auto().fit(stats)
    assert Auto(shrinkage=1.0).fit(stats).predict(np.eye(3)).tolist() == [0, 1, 2]
