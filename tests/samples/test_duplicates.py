"""Test samples that are trained on, too: the same content, or nearly the same features."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedmoments.samples.duplicates import NEAR, find_duplicates, near_rows
from fedmoments.samples.samples import Samples


def naive(train: np.ndarray, test: np.ndarray, share: float) -> list[bool]:
    return [
        any(np.linalg.norm(row - other) <= share * np.linalg.norm(row) for other in train.astype(float))
        for row in test.astype(float)
    ]


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([np.float32, np.float64]), st.sampled_from([0.0, 3.0, 100.0]))
def test_near_rows_are_those_that_a_comparison_of_all_pairs_finds(seed: int, dtype: type, offset: float) -> None:
    rng = np.random.default_rng(seed)
    train: Any = (rng.normal(size=(60, 6)) + offset).astype(dtype)
    noise = rng.choice([0.0, 0.002, 0.02, 1.0], size=(30, 1)) * rng.normal(size=(30, 6))
    test: Any = (train[rng.integers(0, 60, 30)] * (1 + noise)).astype(dtype)
    sizes = [
        min(np.linalg.norm(row - other) for other in train.astype(float)) / np.linalg.norm(row)
        for row in test.astype(float)
    ]
    clear = np.abs(np.array(sizes) - NEAR) > 1e-4  # at the very bound rounding decides
    assert (near_rows(train, test)[clear] == np.array(naive(train, test, NEAR))[clear]).all()


def test_rows_that_are_all_equal_are_all_near() -> None:
    assert near_rows(np.ones((5, 3)), np.ones((2, 3))).all()
    assert not near_rows(np.zeros((0, 3)), np.ones((2, 3))).any()


def test_content_is_compared_first_and_nothing_counts_twice() -> None:
    train = Samples(["a", "b"], np.zeros(2, int), ("x",), "text")
    test = Samples(["b", "c", "d"], np.zeros(3, int), ("x",), "text")
    rows = np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([[0.0, 1.0], [1.0, 0.001], [-1.0, 0.0]])
    found = find_duplicates(train, test, rows)
    assert found.exact.tolist() == [True, False, False]
    assert found.near.tolist() == [False, True, False]
    assert found.any_kind.tolist() == [True, True, False]
    assert "2 of 3 test samples" in found.sentence(dropped=False)
    assert found.sentence(dropped=True).endswith("they were left out")
    assert not find_duplicates(train, test.take(np.array([2]))).sentence(dropped=False)


@pytest.mark.parametrize("kind", ["warn", "drop", "keep"])
def test_a_study_says_drops_or_keeps_them(kind: str, tmp_path: object) -> None:
    from fedmoments.settings.study import StudySettings
    from fedmoments.study.jobs.encoding import encode_data

    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30, 3)), np.arange(30) % 2
    path = f"{tmp_path}/f.npz"
    np.savez(path, x_train=X, y_train=y, x_test=np.concatenate([X[:4], X[:6] + 1.0]), y_test=y[:10])
    encoded = encode_data(StudySettings(data=f"npz:{path}", duplicates=kind))
    assert len(encoded.features.test) == (6 if kind == "drop" else 10)
    assert len(encoded.kept[1]) == len(encoded.features.test)
    assert any("4 of 10 test samples" in note for note in encoded.describe().notes) == (kind != "keep")


def test_a_study_refuses_other_words_and_tests_of_nothing_else(tmp_path: object) -> None:
    from fedmoments.errors import InputError
    from fedmoments.settings.study import StudySettings
    from fedmoments.study.jobs.encoding import encode_data

    path = f"{tmp_path}/f.npz"
    np.savez(path, x_train=np.eye(4), y_train=[0, 1, 0, 1], x_test=np.eye(4), y_test=[0, 1, 0, 1])
    with pytest.raises(InputError, match="one of warn, drop, keep"):
        encode_data(StudySettings(data=f"npz:{path}", duplicates="often"))
    with pytest.raises(InputError, match="nothing is left to test on"):
        encode_data(StudySettings(data=f"npz:{path}", duplicates="drop"))
