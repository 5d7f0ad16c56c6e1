"""Prediction sets: their guarantee holds on exchangeable samples, and counts that move down only widen them."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import fedmoments as fm
from fedmoments.core.classifier import Classifier, load_bytes
from fedmoments.core.classifier.ranks import N_RANKS, Ranks, rank_counts
from fedmoments.errors import InputError, MergeError


def samples(n: int, seed: int) -> tuple[NDArray[Any], NDArray[Any]]:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 5, n)
    return 1.1 * np.eye(5)[y] + rng.standard_t(4, size=(n, 5)), y


@pytest.fixture(scope="module")
def classifier() -> Classifier:
    return fm.fit("gh-lda", {"a": samples(300, 0)})


@pytest.mark.parametrize("coverage", [0.5, 0.8, 0.9, 0.95])
@pytest.mark.parametrize("n", [19, 200])
def test_law_sets_hold_the_true_class_with_the_coverage(classifier: Classifier, coverage: float, n: int) -> None:
    """Over 300 draws of the tested samples and of new ones; four standard errors below would be chance."""
    held = []
    for seed in range(300):
        X, y = samples(n + 20, 1000 + seed)
        sets = classifier.ranked(Ranks.of(classifier, X[:n], y[:n])).prediction_sets(X[n:], coverage)
        held.append(sets[np.arange(20), y[n:]].mean())
    assert np.mean(held) >= coverage - 4 * np.std(held) / np.sqrt(len(held))


def test_sets_are_no_larger_than_they_must_be(classifier: Classifier) -> None:
    X, y = samples(4000, 1)
    measured = classifier.ranked(Ranks.of(classifier, X[:2000], y[:2000]))
    for coverage in (0.7, 0.9):
        sets = measured.prediction_sets(X[2000:], coverage)
        assert sets[np.arange(2000), y[2000:]].mean() < coverage + 0.12
        assert sets.any(axis=1).all()
        assert sets.sum(axis=1).mean() < 5


def test_few_samples_give_all_classes(classifier: Classifier) -> None:
    X, y = samples(8, 2)
    assert classifier.ranked(Ranks.of(classifier, X, y)).prediction_sets(X, 0.95).all()


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 9), min_size=N_RANKS, max_size=N_RANKS), st.integers(0, N_RANKS - 2), st.floats(0.05, 0.99)
)
def test_law_counts_that_move_down_only_widen_sets(counts: list[int], place: int, coverage: float) -> None:
    lower = counts.copy()
    lower[place + 1], lower[place] = lower[place + 1] + lower[place], 0
    assert Ranks(np.array(lower), 1.0).threshold(coverage) <= Ranks(np.array(counts), 1.0).threshold(coverage)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=60), st.floats(0.05, 0.95))
def test_law_the_threshold_is_at_most_the_exact_quantile(shares: list[float], coverage: float) -> None:
    exact = sorted(shares, reverse=True)
    wanted = int(np.ceil((len(shares) + 1) * coverage))
    found = Ranks(rank_counts(np.array(shares)), 1.0).threshold(coverage)
    assert found <= (exact[wanted - 1] if wanted <= len(shares) else 0.0)


def test_ranks_add_up_and_travel_in_the_file(classifier: Classifier) -> None:
    X, y = samples(100, 3)
    both = Ranks.of(classifier, X[:40], y[:40]) + Ranks.of(classifier, X[40:], y[40:])
    np.testing.assert_array_equal(both.counts, Ranks.of(classifier, X, y).counts)
    with pytest.raises(MergeError, match="temperatures"):
        _ = both + Ranks(both.counts, 9.0)
    measured = classifier.ranked(both)
    back = load_bytes(measured.to_bytes())
    np.testing.assert_array_equal(back.prediction_sets(X, 0.8), measured.prediction_sets(X, 0.8))
    # another temperature later on changes probabilities, and no set
    cold = measured.tempered(9.0)
    np.testing.assert_array_equal(cold.prediction_sets(X, 0.8), measured.prediction_sets(X, 0.8))


def test_an_untested_classifier_and_nonsense_are_refused(classifier: Classifier) -> None:
    with pytest.raises(InputError, match="not tested"):
        classifier.prediction_sets(np.zeros((1, 5)), 0.9)
    for wrong in ({}, {"temperature": 0.0, "counts": [0] * N_RANKS}, {"temperature": 1.0, "counts": [-1] * N_RANKS}):
        with pytest.raises(InputError):
            Ranks.from_dict(wrong)
    with pytest.raises(InputError, match="between 0 and 1"):
        Ranks(np.zeros(N_RANKS, np.int64), 1.0).threshold(1.0)
