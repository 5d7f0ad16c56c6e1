"""Laws of own label shares, and a naive referee of the temperature that they choose."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedmoments as fm
from fedmoments.core.classifier import EnsembleClassifier, LinearClassifier
from fedmoments.core.heads import make_head
from fedmoments.core.statistics import Statistics, StatisticsSpec
from fedmoments.errors import InputError, NotEnoughDataError
from fedmoments.tuning.personal import STEPS, mask_to_labels, own_shares, weigh_by_shares

C, D = 4, 5
SEEDS = st.integers(0, 2**32)


def drawn(seed: int, counts: Any) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(C), counts)
    return rng.normal(size=(len(y), D)) + np.eye(C, D)[y], y


EVERYBODY = drawn(0, [50] * C)
GLOBAL = {head: fm.fit(head, {"all": EVERYBODY}) for head in ("fedncm", "fed3r", "gh-lda", "gh-qda", "gh-nb")}


@pytest.mark.parametrize("head", GLOBAL)
def test_equal_shares_are_own_labels(head: str) -> None:
    X, y = drawn(1, [8, 8, 0, 8])
    points = drawn(2, [30] * C)[0]
    masked = mask_to_labels(GLOBAL[head], y.tolist())
    assert np.array_equal(weigh_by_shares(GLOBAL[head], X, y).predict(points), masked.predict(points))


@pytest.mark.parametrize("head", GLOBAL)
@pytest.mark.parametrize("seed", range(5))
def test_own_samples_are_right_at_least_as_often_as_by_own_labels(head: str, seed: int) -> None:
    X, y = drawn(seed, [20, 3, 0, 6])
    made = GLOBAL[head]
    labels, shares = (each.predict(X) for each in (mask_to_labels(made, y.tolist()), weigh_by_shares(made, X, y)))
    assert (shares == y).sum() >= (labels == y).sum()
    assert set(shares) <= set(y)


@pytest.mark.parametrize("head", GLOBAL)
def test_clients_that_meet_some_labels_more_often_do_better(head: str) -> None:
    X, y = drawn(3, [160, 10, 20, 10])
    unseen, truth = drawn(4, [1600, 100, 200, 100])
    made = GLOBAL[head]
    labels, shares = (each.predict(unseen) == truth for each in (made, weigh_by_shares(made, X, y)))
    assert shares.mean() > labels.mean() + 0.1


@settings(max_examples=40, deadline=None)
@given(SEEDS)
def test_the_temperature_is_the_best_that_trying_each_finds(seed: int) -> None:
    X, y = drawn(seed, [9, 2, 0, 4])
    made = GLOBAL["fedncm"]
    held = [0, 1, 3]
    scores = made.scores(X)[:, held]
    spread = float(np.sqrt(np.mean([row.var() for row in scores])))
    places = np.searchsorted(held, y)
    ranked = []
    for step in STEPS:
        wrong, loss = 0, 0.0
        for row, own in zip(scores, places, strict=True):
            weights = np.exp((row - row.max()) / (step * spread)) * np.array([9, 2, 4]) / 15
            wrong += int(weights.argmax() != own)
            loss -= float(np.log(weights[own] / weights.sum())) if weights[own] > 0 else -1e9
        ranked.append((wrong, loss, step))
    found = own_shares(made.scores(X), y)
    chosen = min(ranked, key=lambda each: abs(each[2] * spread - found.temperature))
    best = min(ranked)
    assert chosen[0] == best[0]
    assert chosen[1] == pytest.approx(best[1], rel=1e-6, abs=1e-6)
    np.testing.assert_allclose(found.shift[held], found.temperature * np.log(np.array([9, 2, 4]) / 15))
    assert np.isneginf(found.shift[2])


@settings(max_examples=40, deadline=None)
@given(SEEDS, st.sampled_from([2.0**power for power in (-8, -1, 3, 10)]))
def test_scores_that_are_scaled_scale_what_is_added(seed: int, scale: float) -> None:
    X, y = drawn(seed, [9, 2, 3, 4])
    scores = GLOBAL["fed3r"].scores(X)
    first, second = own_shares(scores, y), own_shares(scale * scores, y)
    np.testing.assert_allclose(second.shift, scale * first.shift, rtol=1e-12)


def test_shares_that_scores_hold_already_are_taken_off() -> None:
    counts = [200, 20, 60, 20]
    stats = Statistics.of(*drawn(5, counts), StatisticsSpec.of("gram"), n_classes=C)
    X, y = drawn(6, [5, 40, 5, 10])
    points = drawn(7, [50] * C)[0]
    data, balanced = (make_head("gh-lda", priors=priors).fit(stats) for priors in ("data", "balanced"))
    first, second = weigh_by_shares(data, X, y, totals=counts), weigh_by_shares(balanced, X, y)
    assert first.temperature == pytest.approx(second.temperature)
    assert np.array_equal(first.predict(points), second.predict(points))


def test_probabilities_are_those_of_bayes_rule() -> None:
    X, y = drawn(8, [30, 10, 0, 10])
    made = GLOBAL["gh-lda"]
    weighed = weigh_by_shares(made, X, y)
    T = weighed.temperature
    expected = made.predict_proba(X, temperature=T) * np.array([0.6, 0.2, 0.0, 0.2])
    np.testing.assert_allclose(
        weighed.predict_proba(X, temperature=T), expected / expected.sum(axis=1, keepdims=True), atol=1e-12
    )


def test_a_client_of_one_label_predicts_it() -> None:
    X, y = drawn(9, [0, 5, 0, 0])
    weighed = weigh_by_shares(GLOBAL["fed3r"], X, y)
    assert set(weighed.predict(EVERYBODY[0])) == {1}
    assert weighed.temperature == 1.0
    assert weighed.info["own_labels"] == ["1"]


def test_labels_that_the_classifier_cannot_predict_count_for_nothing() -> None:
    half = fm.fit("fedncm", {"all": drawn(10, [9, 9, 0, 0])}, n_classes=C)
    X, y = drawn(11, [8, 2, 30, 0])
    few = y < 2
    first, second = weigh_by_shares(half, X, y), weigh_by_shares(half, X[few], y[few])
    assert first.digest() == second.digest()
    with pytest.raises(NotEnoughDataError, match="nothing would be left"):
        weigh_by_shares(half, X[~few], y[~few])


@pytest.mark.parametrize(
    ("y", "sentence"),
    [([0], "one a sample"), ([0, -1], "sample 1 has -1"), ([0, 2], "from 0 to 1, but sample 1 has 2")],
)
def test_labels_that_do_not_belong_to_scores_are_refused(y: list[int], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        own_shares([[1.0, 0.0], [0.0, 1.0]], y)


def test_scores_that_are_all_equal_choose_nothing() -> None:
    flat = LinearClassifier(weights=np.zeros((D, C)), bias=np.zeros(C), present=np.ones(C, bool))
    X, y = drawn(12, [3, 1, 0, 0])
    assert set(weigh_by_shares(flat, X, y).predict(X)) == {0}


def test_a_classifier_without_one_constant_a_class_is_refused() -> None:
    two = EnsembleClassifier(
        weights=np.zeros((D, 4)),
        bias=np.zeros(4),
        labels=np.array([0, 1, 0, -1]),
        starts=np.array([0, 2]),
        mixing=np.array([0.5, 0.5]),
        present=np.array([True, True]),
    )
    with pytest.raises(InputError, match="kind 'ensemble' has no constant a class"):
        weigh_by_shares(two, np.zeros((2, D)), [0, 1])
