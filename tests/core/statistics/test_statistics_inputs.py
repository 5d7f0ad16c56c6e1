"""What is measured is checked: every refusal says what was wrong and what was allowed."""

from typing import Any

import numpy as np
import pytest

from fedmoments.core.statistics import Accumulator, Ledger, Statistics, StatisticsSpec
from fedmoments.errors import InputError

SPEC = StatisticsSpec.of("gram", "client_means")


def measure(X: Any, y: Any, n_classes: int = 3) -> Statistics:
    return Statistics.of(X, y, SPEC, n_classes=n_classes)


@pytest.mark.parametrize(
    ("X", "words"),
    [
        ([1.0, 2.0], r"matrix \(samples, dimensions\).*shape \(2,\)"),
        (5.0, r"matrix.*shape \(\)"),
        (np.zeros((2, 2, 2)), r"matrix.*shape \(2, 2, 2\)"),
        (np.zeros((2, 0)), r"matrix.*shape \(2, 0\)"),
        ([[1.0], [2.0, 3.0]], r"matrix"),
        ([["a"], ["b"]], r"must be numbers; sample 0 holds .a. \(str\)"),
        ([[1j], [2j]], r"must be numbers.*complex"),
        ([[None], [2.0]], r"must be numbers; sample 0 holds None"),
        ([[1.0], [np.nan]], r"must be finite, but sample 1 holds NaN"),
        ([[1.0], [-np.inf]], r"must be finite, but sample 1 holds NaN or infinity"),
        ([[np.inf], [-np.inf]], r"must be finite, but sample 0"),
        ([[1e308], [1e308]], r"so large that their sums overflow"),
    ],
)
def test_wrong_features_are_refused(X: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        measure(X, [0, 1])


@pytest.mark.parametrize("bad", [0, 3000, 5999])
def test_the_first_bad_sample_of_many_is_named(bad: int) -> None:
    X = np.ones((6000, 2), np.float32)
    X[bad, 1] = np.nan
    X[5999, 0] = np.inf
    with pytest.raises(InputError, match=f"sample {bad} holds NaN"):
        measure(X, np.zeros(6000, int))


@pytest.mark.parametrize(
    ("y", "words"),
    [
        ([0, -1], r"from 0 to 2, but sample 1 has -1"),
        ([3, 0], r"from 0 to 2, but sample 0 has 3"),
        ([0.0, 0.5], r"whole numbers, but sample 1 has 0.5"),
        ([0.0, np.nan], r"whole numbers"),
        ([0.0, np.inf], r"from 0 to 2, but sample 1 has inf"),
        ([1e30, 0.0], r"from 0 to 2, but sample 0 has 1e\+30"),
        (["a", "b"], r"whole numbers.*<U1"),
        ([0], r"one a sample, \(2,\).*shape \(1,\)"),
        ([[0, 1]], r"one a sample.*shape \(1, 2\)"),
        (np.array([0, 2**64 - 1], np.uint64), r"from 0 to 2, but sample 1 has 18446744073709551615"),
        (np.array([0, 200], np.uint8), r"sample 1 has 200"),
    ],
)
def test_wrong_labels_are_refused(y: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        measure([[1.0], [2.0]], y)


@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", ">i4"])
def test_labels_of_any_whole_type_are_taken(dtype: str) -> None:
    y = np.array([0, 2, 2]).astype(dtype)
    assert measure(np.ones((3, 2)), y).counts.tolist() == [1, 0, 2]


def test_boolean_labels_are_taken() -> None:
    assert measure(np.ones((3, 1)), [True, False, True]).counts.tolist() == [1, 2, 0]


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", ">f8", "i1", "u2", "i8", "?"])
def test_features_of_any_real_type_are_measured_in_float64(dtype: str) -> None:
    X = np.array([[0, 1], [1, 1], [1, 0]]).astype(dtype)
    stats = measure(X, [0, 1, 1])
    assert stats.sums.tolist() == [[0.0, 1.0], [2.0, 1.0], [0.0, 0.0]]
    assert stats.gram.tolist() == [[2.0, 1.0], [1.0, 2.0]]
    assert stats.sums.dtype == np.float64


def test_small_types_do_not_overflow() -> None:
    X = np.full((3000, 1), 60000.0, np.float16)
    assert measure(X, np.zeros(3000, int)).gram[0, 0] == 3000 * float(X[0, 0]) ** 2
    bytes_ = np.full((300, 1), 127, np.int8)
    assert measure(bytes_, np.zeros(300, int)).gram[0, 0] == 300 * 127**2


def test_any_memory_layout_is_measured_alike() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.integers(-8, 9, size=(20, 6)) / 8, rng.integers(0, 3, 20)
    plain = measure(X[:, ::2].copy(), y)
    assert measure(np.asfortranarray(X[:, ::2]), y) == plain
    assert measure(X[:, ::2], y) == plain
    assert measure(X[::-1, ::2], y[::-1]) == plain


def test_no_sample_is_the_zero() -> None:
    assert measure(np.zeros((0, 4)), []) == Statistics.zero(SPEC, n_classes=3, dim=4)
    with pytest.raises(InputError, match=r"shape \(0,\)"):
        measure([], [])


def test_dimension_of_a_batch_must_be_that_of_the_stream() -> None:
    with pytest.raises(InputError, match=r"3 dimensions, but 2 arrived.*another encoder"):
        Accumulator(SPEC, n_classes=2, dim=3).update(np.ones((1, 2)), [0])


def test_there_must_be_a_class() -> None:
    for make in (lambda: measure([[1.0]], [0], 0), lambda: Ledger(SPEC, n_classes=0, dim=1)):
        with pytest.raises(InputError, match="n_classes"):
            make()


def test_the_arguments_are_not_changed() -> None:
    X, y = np.arange(6.0).reshape(3, 2), np.array([0, 1, 1])
    X_before, y_before = X.copy(), y.copy()
    measure(X, y)
    Ledger.of(X, y, [0, 0, 1], SPEC, n_classes=2)
    assert np.array_equal(X, X_before)
    assert np.array_equal(y, y_before)
    assert X.flags.writeable
    assert y.flags.writeable
