"""Sensitivity, specificity, macro-F1 and AUC from sums, against naive referees; and heads of one's own samples."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.metrics import f1_score, roc_auc_score

import fedmoments as fm
from fedmoments.core.observations.interval import wilson
from fedmoments.core.observations.parts import Reliability
from fedmoments.federation.evaluation import LocalEvaluation
from fedmoments.federation.evaluation.alone import fitted_alone
from fedmoments.federation.evaluation.refining import confidence_at
from fedmoments.federation.evaluation.separation import areas, odds_counts

Floats = NDArray[np.float64]


def samples(n: int, seed: int, spread: float = 1.0) -> tuple[Floats, NDArray[np.int64]]:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 4, n)
    return 1.5 * np.eye(4)[y] + spread * rng.normal(size=(n, 4)), y


def fitted() -> fm.Classifier:
    return fm.fit("gh-lda", {"a": samples(400, 0)})


@pytest.mark.parametrize("spread", [0.5, 1.0, 2.0])
def test_figures_are_those_of_scikit_learn(spread: float) -> None:
    classifier, (X, y) = fitted(), samples(3000, 1, spread)
    found = LocalEvaluation.of(classifier, X, y, classifier.temperature).evaluation()
    shares, answers = classifier.predict_proba(X), classifier.predict(X)
    assert found.macro_f1 == pytest.approx(f1_score(y, answers, average="macro"), abs=1e-12)
    assert found.macro_area == pytest.approx(roc_auc_score(y, shares, multi_class="ovr", average="macro"), abs=0.003)
    marks = np.eye(4)[y]
    assert found.micro_area == pytest.approx(roc_auc_score(marks.ravel(), shares.ravel()), abs=0.003)
    for label in range(4):
        assert found.class_accuracies[label] == (answers[y == label] == label).mean()
        assert found.class_specificities[label] == pytest.approx((answers[y != label] != label).mean(), abs=1e-12)
        assert found.class_areas[label] == pytest.approx(roc_auc_score(y == label, shares[:, label]), abs=0.003)


def test_one_other_class_of_each_sample_tells_nearly_the_same() -> None:
    classifier, (X, y) = fitted(), samples(6000, 2)
    whole, drawn = (LocalEvaluation.of(classifier, X, y, 1.0, drawn=way) for way in (False, True))
    assert whole.odds.sum(axis=2)[1, :-1].tolist() == (6000 - np.bincount(y)).tolist()
    assert drawn.odds.sum(axis=2)[1, :-1].sum() == drawn.odds[1, -1].sum() == 6000
    np.testing.assert_allclose(drawn.evaluation().class_areas, whole.evaluation().class_areas, atol=0.02)


@given(st.integers(0, 2**32), st.integers(2, 60))
def test_law_areas_count_pairs(seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    shares, labels = rng.dirichlet(np.full(3, 0.3), n), rng.integers(0, 3, n)
    found = areas(odds_counts(shares, labels, np.arange(n), drawn=False))
    sure = np.clip(shares, 1e-300, 1 - 1e-16)
    bins = np.clip(np.floor(12 + 3.75 * np.arcsinh(np.log(sure) - np.log1p(-sure))), 0, 23)
    for label in range(3):
        own, other = bins[labels == label, label], bins[labels != label, label]
        if not len(own) or not len(other):
            assert np.isnan(found[label])
            continue
        order = np.sign(own[:, None] - other)
        assert found[label] == pytest.approx(((order + 1) / 2).mean(), abs=1e-12)


def test_coarse_sums_of_clients_tell_figures_near_the_exact_ones() -> None:
    classifier, (X, y) = fitted(), samples(6000, 3)
    parts = [LocalEvaluation.of(classifier, X[k::10], y[k::10], 1.0, drawn=True) for k in range(10)]
    exact = LocalEvaluation.of(classifier, X, y, 1.0).evaluation()
    coarse = sum((part.coarse(5) for part in parts), LocalEvaluation.zero(4))
    masked = LocalEvaluation.from_vector(coarse.to_vector(), 4)
    for told in (coarse.evaluation(), masked.evaluation()):
        np.testing.assert_allclose(told.class_accuracies, exact.class_accuracies, atol=0.02)
        assert told.macro_f1 == pytest.approx(exact.macro_f1, abs=0.01)
        assert told.macro_area == pytest.approx(exact.macro_area, abs=0.01)
        np.testing.assert_allclose(told.class_specificities, exact.class_specificities, atol=0.01)


def test_few_samples_of_a_class_are_in_no_histogram_that_leaves() -> None:
    classifier, (X, y) = fitted(), samples(40, 4)
    told = LocalEvaluation.of(classifier, X, y, 1.0, drawn=True).coarse(12)
    assert not (told.odds % 12).any()
    assert not (told.wrongly % 12).any()
    assert not told.odds[0, :-1][np.bincount(y, minlength=4) < 12].any()


def test_a_party_alone_is_compared_on_the_same_samples() -> None:
    clients = {site: samples(30, 20 + site) for site in range(8)}
    shared = fm.fit("fedcof", clients)
    X, y = samples(500, 5)
    own = fitted_alone(shared, *clients[0])
    assert own is not None
    found = LocalEvaluation.of(shared, X, y, 1.0, alone=own)
    assert found.alone.tolist() == [500, int((own.predict(X) == y).sum())]
    assert found.accuracy_alone == own.score(X, y) < shared.score(X, y)
    assert own.digest() == fm.fit(fm.make_head("fedcof", covariance="exact"), {"own": clients[0]}, n_classes=4).digest()
    assert LocalEvaluation.of(shared, X, y, 1.0).accuracy_alone is None


@pytest.mark.parametrize("head", ["", "gh-qda", "no such head", 7])
def test_what_a_server_names_is_fitted_only_where_it_is_known_and_fast(head: object) -> None:
    shared = fm.fit("gh-lda", {"a": samples(40, 0)}).noting(head=head)
    assert fitted_alone(shared, *samples(40, 1)) is None


def test_auto_alone_is_lda_on_all_that_a_party_has() -> None:
    X, y = samples(200, 6)
    own = fitted_alone(fm.fit("auto", {"a": (X, y)}), X, y)
    assert own is not None
    assert own.digest() == fm.fit("gh-lda", {"own": (X, y)}).digest()


def test_classes_with_few_errors_do_not_pass_for_perfect() -> None:
    """The table leaves out rows of one to four errors: of those it told, sensitivity was 1 and macro-F1, too."""
    X, y = samples(2000, 7, 0.5)
    classifier = fitted()
    exact = LocalEvaluation.of(classifier, X, y, 1.0).evaluation()
    found = []
    for _ in range(8):
        parts = [LocalEvaluation.of(classifier, X[k::20], y[k::20], 1.0, drawn=True).coarse(5) for k in range(20)]
        found.append(sum(parts, LocalEvaluation.zero(4)).evaluation())
    assert exact.balanced_accuracy < 0.97
    assert np.mean([told.balanced_accuracy for told in found]) == pytest.approx(exact.balanced_accuracy, abs=0.01)
    assert np.mean([told.macro_f1 for told in found]) == pytest.approx(exact.macro_f1, abs=0.01)
    for told in found:
        assert told.class_counts.sum() == 2000


def test_reliability_is_not_told_where_it_would_be_rounding() -> None:
    """Of four sites with 125 samples each it said 14.6 points, where there were 3."""
    X, y = samples(500, 8)
    classifier = fitted()
    parts = [LocalEvaluation.of(classifier, X[k::4], y[k::4], 1.0) for k in range(4)]
    coarse = sum((part.coarse(5) for part in parts), LocalEvaluation.zero(4))
    assert coarse.calibration(1.0).reliability() == Reliability(temperature=1.0)
    exact = sum(parts, LocalEvaluation.zero(4))
    assert exact.calibration(1.0).reliability().ece == exact.expected_error
    near = confidence_at(coarse, 1.0)
    assert near is not None
    assert near == pytest.approx(classifier.predict_proba(X, temperature=1.0).max(axis=1).mean(), abs=0.01)
    X, y = samples(40_000, 9)
    one = LocalEvaluation.of(classifier, X, y, 1.0)
    assert one.coarse(5).calibration(1.0).reliability().ece == pytest.approx(one.expected_error, abs=0.01)


def test_areas_are_not_told_where_they_would_be_rounding() -> None:
    """Of four sites with 12 samples of a class each, AUC came out as 0.87 where it was 1."""
    X, y = samples(500, 10, 0.5)
    classifier = fitted()
    exact = LocalEvaluation.of(classifier, X, y, 1.0).evaluation()
    parts = [LocalEvaluation.of(classifier, X[k::4], y[k::4], 1.0, drawn=True).coarse(5) for k in range(4)]
    told = sum(parts, LocalEvaluation.zero(4)).evaluation()
    assert np.isnan(told.class_areas).all()
    assert told.by_class.macro_auc is None
    assert told.micro_area == pytest.approx(exact.micro_area, abs=0.02)


def test_intervals_hold_rounded_shares() -> None:
    X, y = samples(500, 11, 0.6)
    classifier = fitted()
    exact = LocalEvaluation.of(classifier, X, y, 1.0).evaluation()
    missed = 0
    for _ in range(30):
        parts = [LocalEvaluation.of(classifier, X[k::4], y[k::4], 1.0, drawn=True).coarse(5) for k in range(4)]
        told = sum(parts, LocalEvaluation.zero(4)).evaluation().by_class
        for label, truth in enumerate(exact.class_accuracies):
            low, high = wilson(int(told.found[label]), int(told.tested[label]), told.rounding)
            missed += not low <= truth <= high
    assert missed <= 6  # of 120, of which one in twenty may
