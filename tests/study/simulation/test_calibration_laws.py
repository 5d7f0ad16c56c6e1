"""Laws of calibration: sums add up over test sets, true probabilities are calibrated, and a naive error agrees."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from fedmoments.core.classifier import LinearClassifier
from fedmoments.study.simulation.fit import N_BINS, Calibration, calibrate


def softmax_of_features(n_classes: int) -> LinearClassifier:
    """A classifier whose probabilities are softmax(x / temperature)."""
    return LinearClassifier(
        weights=np.eye(n_classes), bias=np.zeros(n_classes), present=np.ones(n_classes, dtype=np.bool_)
    )


def draw(n: int, n_classes: int, seed: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return log-probabilities (n, C), and labels drawn from them."""
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(np.full(n_classes, 0.7), size=n)
    y = (rng.random((n, 1)) > shares.cumsum(axis=1)).sum(axis=1)
    return np.log(np.maximum(shares, 1e-300)), np.minimum(y, n_classes - 1).astype(np.int64)


def naive_error(X: NDArray[Any], y: NDArray[Any], temperature: float, n_bins: int) -> float:
    """Σ_bins (n_bin / n) |accuracy of the bin − mean confidence of the bin| (Guo et al., 2017), sample by sample."""
    bins: dict[int, list[tuple[float, bool]]] = {}
    for x, label in zip(X, y, strict=True):
        powers = np.exp((x - x.max()) / temperature)
        shares = powers / powers.sum()
        confidence = float(shares.max())
        bins.setdefault(min(int(confidence * n_bins), n_bins - 1), []).append((confidence, shares.argmax() == label))
    gaps = (
        len(held) * abs(np.mean([c for c, _ in held]) - np.mean([hit for _, hit in held])) for held in bins.values()
    )
    return float(sum(gaps) / len(y))


@given(st.integers(0, 2**32), st.integers(1, 200), st.integers(2, 6), st.floats(0.3, 5), st.integers(1, 20))
def test_the_error_is_that_of_the_naive_formula(
    seed: int, n: int, n_classes: int, temperature: float, n_bins: int
) -> None:
    X, y = draw(n, n_classes, seed)
    found = calibrate(softmax_of_features(n_classes), X, y, temperature=temperature, n_bins=n_bins)
    assert found.expected_error == pytest.approx(naive_error(X, y, temperature, n_bins), abs=1e-9)
    assert found.counts.sum() == n


@given(st.integers(0, 2**32), st.integers(0, 300))
def test_calibration_of_a_union_is_the_sum(seed: int, cut: int) -> None:
    X, y = draw(300, 4, seed)
    classifier = softmax_of_features(4)
    whole = calibrate(classifier, X, y)
    parts = [calibrate(classifier, X[:cut], y[:cut]), calibrate(classifier, X[cut:], y[cut:])]
    for name in ("counts", "confidences", "hits"):
        np.testing.assert_allclose(sum(getattr(part, name) for part in parts), getattr(whole, name), rtol=1e-12)


def test_half_of_a_test_set_is_not_all_of_it() -> None:
    X, y = draw(300, 4, 0)
    classifier = softmax_of_features(4)
    assert (calibrate(classifier, X[:150], y[:150]).counts != calibrate(classifier, X, y).counts).any()


def test_blocks_do_not_show() -> None:
    """More samples than one block holds give what they give in order."""
    X, y = draw(200, 3, 1)
    many = calibrate(softmax_of_features(3), np.tile(X, (60, 1)), np.tile(y, 60))
    once = calibrate(softmax_of_features(3), X, y)
    np.testing.assert_array_equal(many.counts, 60 * once.counts)
    np.testing.assert_array_equal(many.hits, 60 * once.hits)
    np.testing.assert_allclose(many.confidences, 60 * once.confidences)


def test_true_probabilities_are_calibrated_and_others_are_not() -> None:
    X, y = draw(60_000, 5, 2)
    classifier = softmax_of_features(5)
    assert calibrate(classifier, X, y).expected_error < 0.01
    sharper, flatter = (calibrate(classifier, X, y, temperature=t) for t in (0.4, 2.5))
    assert sharper.expected_error > 0.05
    assert flatter.expected_error > 0.05
    filled = sharper.counts > 100
    assert (sharper.confidences[filled] >= sharper.hits[filled]).mean() > 0.8
    assert flatter.confidences.sum() < flatter.hits.sum()


def test_bounds_certainty_and_ignorance() -> None:
    X = np.array([[800.0, 0.0], [0.0, 800.0]])
    classifier = softmax_of_features(2)
    right, wrong = calibrate(classifier, X, np.array([0, 1])), calibrate(classifier, X, np.array([1, 0]))
    assert (right.expected_error, wrong.expected_error) == (0.0, 1.0)
    assert right.counts[-1] == 2
    blind = calibrate(softmax_of_features(2), np.zeros((4, 2)), np.array([0, 1, 0, 1]))
    assert blind.expected_error == 0.0
    assert Calibration(np.zeros(3, int), np.zeros(3), np.zeros(3, int), 1.0).expected_error == 0.0


def test_the_diagram_has_bins_from_0_to_1_and_empty_ones_are_empty() -> None:
    X, y = draw(50, 2, 3)
    found = calibrate(softmax_of_features(2), X, y, temperature=2.0).reliability()
    bins = found.bins
    assert (len(bins), found.temperature) == (N_BINS, 2.0)
    assert (bins[0].low, bins[-1].high) == (0.0, 1.0)
    for before, after in pairwise(bins):
        assert before.high == after.low
    for each in bins:
        if each.count:
            assert each.confidence is not None
            assert each.accuracy is not None
            assert each.low - 1e-12 <= each.confidence <= each.high + 1e-12
            assert 0 <= each.accuracy <= 1
        else:
            assert each.confidence is each.accuracy is None
    assert sum(each.count for each in bins) == 50
