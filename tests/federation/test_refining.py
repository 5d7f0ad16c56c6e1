"""What clients' sums change of a classifier: a temperature that is earned, and prediction sets that hold."""

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import fedmoments as fm
from fedmoments.core.classifier.ranks import N_RANKS
from fedmoments.federation.evaluation import LocalEvaluation
from fedmoments.federation.evaluation.coarse import coarse_ranks
from fedmoments.federation.evaluation.refining import refined, refined_temperature


def samples(n: int, seed: int) -> tuple[NDArray[Any], NDArray[Any]]:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 6, n)
    return 1.6 * np.eye(6)[y] + rng.normal(size=(n, 6)), y


def sums_of(temperature: float, *, minimum: int = 1, n: int = 3000) -> tuple[fm.Classifier, LocalEvaluation]:
    """Return a classifier, and the sum of what 30 clients tell of it."""
    classifier = fm.fit("gh-lda", {"a": samples(400, 0)}).tempered(temperature)
    X, y = samples(n, 1)
    parts = [
        LocalEvaluation.of(classifier, X[site::30], y[site::30], temperature).coarse(minimum) for site in range(30)
    ]
    return classifier, sum(parts, LocalEvaluation.zero(6))


@pytest.mark.parametrize("temperature", [0.2, 1.0, 8.0])
@pytest.mark.parametrize("minimum", [1, 5])
def test_confidence_is_earned_after_the_sums(temperature: float, minimum: int) -> None:
    classifier, sums = sums_of(temperature, minimum=minimum)
    new = refined(classifier, sums)
    X, y = samples(4000, 2)
    before = LocalEvaluation.of(classifier, X, y, temperature).expected_error
    after = LocalEvaluation.of(new, X, y, new.temperature).expected_error
    assert after < 0.04
    assert after <= before + 0.01
    np.testing.assert_array_equal(new.predict(X), classifier.predict(X))
    assert new.digest() == classifier.digest()


@pytest.mark.parametrize("minimum", [1, 5, 20])
def test_sets_of_coarse_sums_hold_the_true_class(minimum: int) -> None:
    classifier, sums = sums_of(1.0, minimum=minimum)
    X, y = samples(4000, 3)
    sets = refined(classifier, sums).prediction_sets(X, 0.9)
    assert sets[np.arange(4000), y].mean() >= 0.89


def test_masked_sums_are_the_same() -> None:
    classifier, sums = sums_of(1.0, minimum=5)
    again = LocalEvaluation.from_vector(sums.to_vector(), 6)
    assert refined(classifier, again).temperature == refined(classifier, sums).temperature
    np.testing.assert_array_equal(again.ranks, sums.ranks)


def test_noise_and_few_samples_change_nothing() -> None:
    classifier, sums = sums_of(1.0)
    assert refined(classifier, sums.noised(3.0)) is classifier
    _, few = sums_of(1.0, n=99, minimum=5)  # three or four samples at each client: nothing is told of confidences
    assert refined_temperature(few, 1.0) == 1.0
    assert refined(classifier, LocalEvaluation.zero(6)) is classifier


@settings(max_examples=80, deadline=None)
@given(st.lists(st.integers(0, 8), min_size=N_RANKS, max_size=N_RANKS), st.integers(2, 12), st.integers(0, 2**32))
def test_law_coarse_ranks_have_no_small_count_and_are_near(counts: list[int], minimum: int, seed: int) -> None:
    exact = np.array(counts, np.int64)
    told = coarse_ranks(exact, minimum, random.Random(seed).random)
    assert ((told == 0) | (told >= minimum)).all()
    assert told.sum() == (exact.sum() if exact.sum() >= minimum else 0)
    if told.any():
        assert (np.abs(np.cumsum(told) - np.cumsum(exact)) < 2 * minimum).all()


def test_coarse_ranks_are_right_on_average_or_low() -> None:
    rng = np.random.default_rng(0)
    exact = rng.multinomial(61, rng.dirichlet(np.full(N_RANKS, 0.2)))
    told = np.mean([np.cumsum(coarse_ranks(exact, 5, random.Random(seed).random)) for seed in range(4000)], axis=0)
    off = (told - np.cumsum(exact))[:-1]
    assert off.max() < 0.8  # of 61
    assert off.min() > -5.0


@pytest.mark.parametrize(("clients", "each"), [(4, 125), (50, 40), (150, 12)])
def test_sets_of_small_federations_hold_and_are_of_use(clients: int, each: int) -> None:
    """They held all classes: each client's rounding had moved a few samples to the least probable bin."""
    classifier = fm.fit("gh-lda", {"a": samples(400, 0)})
    X, y = samples(4000, 3)
    held, sizes = [], []
    for seed in range(10):
        sums = LocalEvaluation.zero(6)
        for site in range(clients):
            own = samples(each, 100 * seed + site + 1000)
            sums += LocalEvaluation.of(classifier, *own, classifier.temperature).coarse(5)
        sets = refined(classifier, sums).prediction_sets(X, 0.9)
        held.append(sets[np.arange(4000), y].mean())
        sizes.append(sets.sum(axis=1).mean())
    assert np.mean(held) >= 0.9
    assert np.mean(sizes) < (3.6 if each > 20 else 6.1)  # of 6; exact ranks give 2.5


def test_a_result_that_weighs_less_ranks_what_it_lost_as_improbable() -> None:
    _, sums = sums_of(1.0)
    lighter = sums.bounded(1000)
    assert lighter.ranks.sum() == 1000
    assert (np.cumsum(lighter.ranks) <= np.cumsum(sums.ranks) / 3 + 1).all()


@pytest.mark.parametrize(("few", "many", "clients", "within"), [(3, 9, 100, 0.06), (4, 4, 60, 1e-9)])
def test_many_small_coarse_results_make_little_worse(few: int, many: int, clients: int, within: float) -> None:
    """Clients below the minimum counted without their confidences, and rounding was taken for truth: 0.18 worse."""
    classifier = fm.fit("gh-lda", {"a": samples(400, 0)})
    X, y = samples(4000, 2)
    errors = []
    for seed in range(12):
        sums = LocalEvaluation.zero(6)
        for site in range(clients):
            own = samples((few, many)[site % 2], 1000 * seed + site)
            sums += LocalEvaluation.of(classifier, *own, classifier.temperature).coarse(5)
        chosen = refined_temperature(sums, classifier.temperature)
        errors.append(LocalEvaluation.of(classifier, X, y, chosen).expected_error)
    closed = LocalEvaluation.of(classifier, X, y, classifier.temperature).expected_error
    assert np.mean(errors) < closed + within


def test_few_samples_move_the_closed_form_a_little_and_many_as_far_as_they_must() -> None:
    moves = [abs(np.log2(refined_temperature(sums_of(4.0, n=n)[1], 4.0) / 4.0)) for n in (30, 30_000)]
    assert moves[0] < moves[1]
    assert moves[1] > 1.8  # four times too warm
