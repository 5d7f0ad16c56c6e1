"""An ensemble of linear heads scores the log of mixed probabilities, in bounded memory, and survives its file."""

import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.special import logsumexp

from fedmoments.core.classifier import EnsembleClassifier, LinearClassifier, ensemble, load
from fedmoments.core.maps import Normalize
from fedmoments.errors import FileFormatError, InputError
from fedmoments.files import read_tensors, write_tensors

Array = npt.NDArray[Any]
K, D, C = 5, 3, 4
#: Columns of the ensemble below.
M = 14
PRESENT = np.array([True, True, False, True])
X = np.random.default_rng(1).normal(size=(50, D))


#: Classes that members hold: some, one, none but the shared column, all.
HELD = [[0, 2], [3], [], [0, 1, 2, 3], [3, 0, 1]]


def make(**options: Any) -> EnsembleClassifier:
    rng = np.random.default_rng(0)
    labels = [each + [-1] * (len(each) < C) for each in HELD]
    columns = sum(map(len, labels))
    arrays: dict[str, Any] = {
        "weights": rng.normal(size=(D, columns)),
        "bias": rng.normal(size=columns),
        "labels": np.concatenate(labels),
        "starts": np.cumsum([0, *map(len, labels[:-1])]),
        "mixing": rng.dirichlet(np.ones(K)),
        "present": PRESENT,
    }
    return EnsembleClassifier(**{**arrays, **options})


def members(classifier: EnsembleClassifier) -> list[Array]:
    """Return the columns of every member."""
    return np.split(np.arange(len(classifier.labels)), classifier.starts[1:])


def chosen(classifier: EnsembleClassifier, order: list[int], mixing: Array) -> EnsembleClassifier:
    """Return some members of an ensemble, in some order."""
    own = [members(classifier)[k] for k in order]
    columns = np.concatenate(own)
    return replace(
        classifier,
        weights=classifier.weights[:, columns],
        bias=classifier.bias[columns],
        labels=classifier.labels[columns],
        starts=np.cumsum([0, *map(len, own[:-1])]),
        mixing=mixing,
    )


def dense(classifier: EnsembleClassifier) -> tuple[Array, Array]:
    """Return weights (K, d, C) and bias (K, C) of all members and classes, a column at a time."""
    n_classes = classifier.n_classes
    weights = np.zeros((len(classifier.mixing), classifier.dim, n_classes))
    bias = np.zeros((len(classifier.mixing), n_classes))
    for k, own in enumerate(members(classifier)):
        labels = classifier.labels[own].tolist()
        for c in range(n_classes):
            column = own[labels.index(c if c in labels else -1)]
            weights[k, :, c], bias[k, c] = classifier.weights[:, column], classifier.bias[column]
    return weights, bias


def referee(classifier: EnsembleClassifier, x: Array) -> Array:
    """Return the mixed probabilities of one sample, one member at a time."""
    mixed = np.zeros(C)
    for weights, bias, share in zip(*dense(classifier), classifier.mixing, strict=True):
        raised = np.exp(x @ weights + bias)
        mixed += share * raised / raised.sum()
    return mixed


def dense_scores(classifier: EnsembleClassifier, X: Array) -> Array:
    """Return log Σ_k π_k softmax(x·W_k + b_k) by (K, n, C) logs in float64, which never underflow."""
    weights, bias = dense(classifier)
    scores = np.einsum("nd,kdc->knc", X.astype(np.float64), weights) + bias[:, None]
    scores -= logsumexp(scores, axis=2, keepdims=True)
    return np.asarray(logsumexp(scores + np.log(classifier.mixing)[:, None, None], axis=0))


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


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("far", [1.0, 30.0, 1e3, 1e6])
def test_scores_are_those_of_the_dense_formula_near_and_far(far: float, dtype: type) -> None:
    rng = np.random.default_rng(3)
    held = [sorted(rng.choice(12, rng.integers(1, 13), replace=False).tolist()) for _ in range(20)]
    labels = [each + [-1] * (len(each) < 12) for each in held]
    columns = sum(map(len, labels))
    classifier = EnsembleClassifier(
        weights=rng.normal(size=(D, columns)),
        bias=rng.normal(size=columns),
        labels=np.concatenate(labels),
        starts=np.cumsum([0, *map(len, labels[:-1])]),
        mixing=rng.dirichlet(np.ones(20)),
        present=np.ones(12, bool),
    )
    features: Array = (far * X).astype(dtype)
    exact = 1e-11 if dtype is np.float64 else 2e-5
    found = classifier.scores(features)
    np.testing.assert_allclose(found, dense_scores(classifier, features), rtol=exact, atol=exact * far)


def test_an_ensemble_of_one_is_its_linear_head() -> None:
    one = replace(chosen(make(), [4], np.ones(1)), present=np.ones(C, bool))
    weights, bias = dense(one)
    linear = LinearClassifier(weights=weights[0], bias=bias[0], present=one.present)
    np.testing.assert_allclose(one.predict_proba(X), linear.predict_proba(X), rtol=1e-12)
    assert np.array_equal(one.predict(X), linear.predict(X))


def test_members_in_another_order_mix_to_the_same() -> None:
    here, order = make(), [3, 0, 4, 2, 1]
    there = chosen(here, order, here.mixing[order])
    np.testing.assert_allclose(there.scores(X), here.scores(X), rtol=1e-12)


def test_a_member_that_weighs_nothing_says_nothing() -> None:
    mixing = np.array([0.5, 0.0, 0.25, 0.25, 0.0])
    fewer = chosen(make(), [0, 2, 3], mixing[mixing > 0])
    for far in (1.0, 1e6):
        np.testing.assert_allclose(make(mixing=mixing).scores(far * X), fewer.scores(far * X), rtol=1e-12)


def test_many_members_of_few_classes_take_little_room() -> None:
    n_classes, n_members, dim = 400, 300, 16
    starts = np.arange(0, 3 * n_members, 3)
    labels = np.column_stack([np.arange(n_members), np.arange(n_members) + 100, np.full(n_members, -1)]).ravel()
    rng = np.random.default_rng(0)
    tracemalloc.start()
    classifier = EnsembleClassifier(
        weights=rng.normal(size=(dim, 3 * n_members)),
        bias=rng.normal(size=3 * n_members),
        labels=labels,
        starts=starts,
        mixing=np.full(n_members, 1 / n_members),
        present=np.ones(n_classes, bool),
    )
    scores = classifier.scores(rng.normal(size=(20, dim)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert np.isfinite(scores).all()
    assert peak < 8 * n_members * n_classes * dim / 4  # that of all columns of all members


@pytest.mark.parametrize("numbers", [1, 7 * (M + C), 10**9])
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
        make(labels=np.concatenate([here.labels[1::-1], here.labels[2:]])),
        make(present=np.ones(C, bool)),
    ]
    assert len({each.digest() for each in [here, *changed]}) == 6
    assert make().digest() == here.digest()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weights": np.zeros(D)}, r"weights must have the shape \(d, columns\), not \(3,\)"),
        ({"starts": np.zeros(0, int), "mixing": np.zeros(0)}, "one member or more"),
        ({"weights": np.zeros((D, M + 1))}, rf"bias must have the shape \({M + 1},\)"),
        ({"bias": np.zeros(M + 1)}, "bias must have the shape"),
        ({"labels": np.zeros(M + 1, int)}, "labels must have the shape"),
        ({"labels": np.zeros(M)}, "labels must be whole numbers, not float64"),
        ({"labels": np.full(M, C)}, r"labels must be from -1 to 3 \(4 classes\), but they go from 4 to 4"),
        ({"labels": np.zeros(M, int)}, r"member 0 .* has columns labelled \[0, 0, 0\]"),
        ({"starts": np.array([0, 3, 5, 5, 10])}, "starts must ascend from 0 to below 14"),
        ({"starts": np.array([0, 2, 5, 6, 10])}, r"member 0 .* has columns labelled \[0, 2\]"),
        ({"mixing": np.ones(K + 1)}, "starts must have the shape"),
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
