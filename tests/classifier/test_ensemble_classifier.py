"""An ensemble of linear heads scores the log of mixed probabilities, in bounded memory, and survives its file."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from fedmoments.classifier import EnsembleClassifier, LinearClassifier, ensemble, load
from fedmoments.errors import FileFormatError, InputError
from fedmoments.files import read_tensors, write_tensors
from fedmoments.maps import Normalize

Array = npt.NDArray[Any]
K, D, C = 5, 3, 4
PRESENT = np.array([True, True, False, True])
X = np.random.default_rng(1).normal(size=(50, D))


def make(**options: Any) -> EnsembleClassifier:
    rng = np.random.default_rng(0)
    arrays: dict[str, Any] = {
        "weights": rng.normal(size=(K, D, C)),
        "bias": rng.normal(size=(K, C)),
        "mixing": rng.dirichlet(np.ones(K)),
        "present": PRESENT,
    }
    return EnsembleClassifier(**{**arrays, **options})


def referee(classifier: EnsembleClassifier, x: Array) -> Array:
    """Return the mixed probabilities of one sample, one member at a time."""
    mixed = np.zeros(C)
    for weights, bias, share in zip(classifier.weights, classifier.bias, classifier.mixing, strict=True):
        raised = np.exp(x @ weights + bias)
        mixed += share * raised / raised.sum()
    return mixed


def test_scores_are_the_log_of_mixed_probabilities() -> None:
    classifier = make()
    scores = classifier.scores(X)
    for x, score in zip(X, scores, strict=True):
        np.testing.assert_allclose(np.exp(score[PRESENT]), referee(classifier, x)[PRESENT], rtol=1e-12)
    assert np.isneginf(scores[:, ~PRESENT]).all()
    assert not np.isin(classifier.predict(1e3 * X), [2]).any()


def test_probabilities_are_those_mixed_when_every_class_is_present() -> None:
    classifier = make(present=np.ones(C, bool))
    expected = [referee(classifier, x) for x in X]
    np.testing.assert_allclose(classifier.predict_proba(X), expected, rtol=1e-12)


def test_an_ensemble_of_one_is_its_linear_head() -> None:
    one = make(weights=make().weights[:1], bias=make().bias[:1], mixing=np.ones(1), present=np.ones(C, bool))
    linear = LinearClassifier(weights=one.weights[0], bias=one.bias[0], present=one.present)
    np.testing.assert_allclose(one.predict_proba(X), linear.predict_proba(X), rtol=1e-12)
    assert np.array_equal(one.predict(X), linear.predict(X))


def test_members_in_another_order_mix_to_the_same() -> None:
    here, order = make(), [3, 0, 4, 2, 1]
    there = make(weights=here.weights[order], bias=here.bias[order], mixing=here.mixing[order])
    np.testing.assert_allclose(there.scores(X), here.scores(X), rtol=1e-12)


def test_a_member_that_weighs_nothing_says_nothing() -> None:
    here = make()
    mixing = np.array([0.5, 0.0, 0.25, 0.25, 0.0])
    kept = mixing > 0
    fewer = make(weights=here.weights[kept], bias=here.bias[kept], mixing=mixing[kept])
    np.testing.assert_allclose(make(mixing=mixing).scores(X), fewer.scores(X), rtol=1e-12)


@pytest.mark.parametrize("numbers", [1, 7 * K * C, 10**9])
def test_blocks_of_samples_do_not_change_scores(numbers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = make().scores(X)
    monkeypatch.setattr(ensemble, "BLOCK_NUMBERS", numbers)
    np.testing.assert_allclose(make().scores(X), expected, rtol=1e-14)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_far_from_all_data_scores_stay_finite(dtype: type) -> None:
    scores = make().scores((1e6 * X).astype(dtype))
    assert scores.dtype == dtype
    assert np.isfinite(scores[:, PRESENT]).all()


def test_float32_is_scored_in_float32() -> None:
    narrow = make().scores(X.astype(np.float32))
    assert narrow.dtype == np.float32
    np.testing.assert_allclose(narrow, make().scores(X), rtol=1e-4, atol=1e-4)


def test_features_that_are_not_finite_are_refused() -> None:
    for wrong in (np.nan, np.inf):
        with pytest.raises(InputError, match="sample 1 holds NaN or infinity"):
            make().predict([[0.0, 0.0, 0.0], [0.0, wrong, 0.0]])


def test_an_ensemble_comes_back_from_its_file(tmp_path: Path) -> None:
    classifier = make(feature_map=Normalize()).named(["a", "b", "c", "d"]).noting(head="ensemble")
    classifier.save(tmp_path / "file")
    again = load(tmp_path / "file")
    assert isinstance(again, EnsembleClassifier)
    assert again.digest() == classifier.digest()
    assert again.class_names == ("a", "b", "c", "d")
    assert np.array_equal(again.scores(X), classifier.scores(X))


def test_the_digest_knows_every_parameter() -> None:
    here = make()
    changed = [
        make(weights=here.weights + 1e-9),
        make(bias=here.bias + 1e-9),
        make(mixing=here.mixing[::-1].copy()),
        make(present=np.ones(C, bool)),
    ]
    assert len({each.digest() for each in [here, *changed]}) == 5
    assert make().digest() == here.digest()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weights": np.zeros((K, D))}, r"weights must have the shape \(K, d, C\), not \(5, 3\)"),
        ({"weights": np.zeros((0, D, C))}, "one member or more"),
        ({"weights": np.zeros((K, D, C + 1))}, r"weights must have the shape \(5, 3, 4\)"),
        ({"bias": np.zeros((K, C + 1))}, "bias must have the shape"),
        ({"mixing": np.ones(K + 1)}, "mixing must have the shape"),
        ({"mixing": np.ones(K)}, "must sum to 1, not to 5"),
        ({"mixing": np.array([2.0, -1.0, 0.0, 0.0, 0.0])}, "must not be negative"),
    ],
)
def test_what_is_no_ensemble_is_refused(change: dict[str, Array], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        make(**change)
    make().save(tmp_path / "file")
    tensors, header = read_tensors(tmp_path / "file", "classifier")
    write_tensors(tmp_path / "file", "classifier", {**tensors, **change}, header)
    with pytest.raises(FileFormatError, match="valid classifier of kind 'ensemble'"):
        load(tmp_path / "file")
