"""Laws of masking to one's own labels (OLL)."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedmoments as fm
from fedmoments.core.classifier import Classifier, LinearClassifier
from fedmoments.errors import InputError, NotEnoughDataError
from fedmoments.tuning.personal import mask_to_labels

NAMES = ("a", "b", "c", "d", "e")


def samples(seed: int = 0, n: int = 150) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    y = np.arange(n) % len(NAMES)
    return rng.normal(size=(n, 6)) + 2 * np.eye(6)[y], y


def fitted(head: str) -> Classifier:
    X, y = samples()
    return fm.fit(head, {k: (X[k::3], y[k::3]) for k in range(3)}, class_names=NAMES)


MADE = {head: fitted(head) for head in ("fedncm", "fed3r", "gh-lda", "gh-qda", "gh-nb")}
LABELS = st.lists(st.integers(0, len(NAMES) - 1), min_size=1)


@pytest.mark.parametrize("head", MADE)
@settings(max_examples=40, deadline=None)
@given(LABELS)
def test_masking_changes_no_ordering_among_kept_labels(head: str, labels: list[int]) -> None:
    made, X = MADE[head], samples(1)[0]
    masked = mask_to_labels(made, labels)
    kept = np.unique(labels)
    before, after = made.scores(X), masked.scores(X)
    assert np.array_equal(after[:, kept], before[:, kept])
    assert np.isneginf(np.delete(after, kept, axis=1)).all()
    assert set(masked.predict(X)) <= set(labels)


@settings(max_examples=40, deadline=None)
@given(LABELS, LABELS)
def test_masking_twice_is_masking_to_what_both_have(first: list[int], second: list[int]) -> None:
    made = MADE["fedncm"]
    both = sorted(set(first) & set(second))
    if both:
        assert mask_to_labels(mask_to_labels(made, first), second).digest() == mask_to_labels(made, both).digest()


def test_a_client_with_all_labels_keeps_the_global_head() -> None:
    made = MADE["gh-lda"]
    assert mask_to_labels(made, range(5)).digest() == made.digest()


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 4), min_size=1), st.integers(0, 100))
def test_masking_to_the_labels_of_all_samples_never_makes_one_wrong(labels: list[int], seed: int) -> None:
    made = MADE["fedncm"]
    X, y = samples(seed)
    mine = np.isin(y, labels)
    before, after = (each.predict(X[mine]) == y[mine] for each in (made, mask_to_labels(made, labels)))
    assert not (before & ~after).any()


def test_names_and_notes_stay_and_the_kept_labels_are_noted(tmp_path: Path) -> None:
    made = MADE["fedncm"].noting(data="toy")
    mask_to_labels(made, [3, 0, 3]).save(tmp_path / "mine")
    read = fm.load(tmp_path / "mine")
    assert read.class_names == NAMES
    assert read.info["own_labels"] == ["a", "d"]
    assert (read.info["data"], read.info["head"]) == ("toy", "fedncm")


def test_a_class_that_nobody_contributed_stays_unpredictable() -> None:
    made = LinearClassifier(weights=np.eye(3), bias=np.zeros(3), present=np.array([True, False, True]))
    assert mask_to_labels(made, [0, 1]).present.tolist() == [True, False, False]


@pytest.mark.parametrize(
    ("labels", "error", "sentence"),
    [
        ([], NotEnoughDataError, "0 labels, none of which"),
        ([1], NotEnoughDataError, "none of which the classifier can predict"),
        ([3], InputError, "from 0 to 2"),
        ([-1, 0], InputError, "-1 to 0 arrived"),
        ([0.5], InputError, "whole numbers"),
    ],
)
def test_masks_that_leave_nothing_or_name_no_class_are_refused(
    labels: list[Any], error: type[Exception], sentence: str
) -> None:
    made = LinearClassifier(weights=np.eye(3), bias=np.zeros(3), present=np.array([True, False, True]))
    with pytest.raises(error, match=sentence):
        mask_to_labels(made, labels)
