"""What clients' sums change of a classifier: a temperature that is earned, and prediction sets that hold."""

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import fedmoments as fm
from fedmoments.core.classifier.ranks import N_RANKS, Ranks
from fedmoments.federation.evaluation import LocalEvaluation
from fedmoments.federation.evaluation.coarse import coarse_ranks
from fedmoments.federation.evaluation.refining import LEAST_SAMPLES, refined, refined_temperature


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
    _, few = sums_of(1.0, n=LEAST_SAMPLES - 1)
    assert refined_temperature(few, 1.0) == 1.0
    assert refined(classifier, LocalEvaluation.zero(6)) is classifier


@settings(max_examples=80, deadline=None)
@given(st.lists(st.integers(0, 8), min_size=N_RANKS, max_size=N_RANKS), st.integers(2, 12), st.floats(0.05, 0.95))
def test_law_coarse_ranks_have_no_small_count_and_only_widen_sets(
    counts: list[int], minimum: int, coverage: float
) -> None:
    exact = np.array(counts, np.int64)
    told = coarse_ranks(exact, minimum, random.Random(sum(counts)).random)
    assert not (told[:-1] % minimum).any()
    assert ((told == 0) | (told >= minimum)).all()
    assert told.sum() == (exact.sum() if exact.sum() >= minimum else 0)
    assert (np.cumsum(told) <= np.cumsum(exact)).all()
    if told.any():
        assert Ranks(told, 1.0).threshold(coverage) <= Ranks(exact, 1.0).threshold(coverage)


def test_a_result_that_weighs_less_ranks_what_it_lost_as_improbable() -> None:
    _, sums = sums_of(1.0)
    lighter = sums.bounded(1000)
    assert lighter.ranks.sum() == 1000
    assert (np.cumsum(lighter.ranks) <= np.cumsum(sums.ranks) / 3 + 1).all()
