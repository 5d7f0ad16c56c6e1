"""Scores, labels, probabilities and names of classifiers."""

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from fedmoments.core.classifier import (
    Classifier,
    DiagonalClassifier,
    LinearClassifier,
    LowRankClassifier,
    QuadraticClassifier,
    load_bytes,
)
from fedmoments.core.heads import make_head
from fedmoments.core.maps import Normalize
from fedmoments.core.statistics import Statistics, StatisticsSpec
from fedmoments.errors import InputError

Array = npt.NDArray[Any]
C, D, R = 4, 3, 2
PRESENT = np.array([True, True, False, True])


def make(kind: str, **options: Any) -> Classifier:
    rng = np.random.default_rng(0)
    offset, means, bias = rng.normal(size=D), rng.normal(size=(C, D)), rng.normal(size=C)
    options = {"present": PRESENT, **options}
    if kind == "linear":
        return LinearClassifier(weights=rng.normal(size=(D, C)), bias=bias, offset=offset, **options)
    if kind == "diagonal":
        return DiagonalClassifier(offset=offset, means=means, precisions=1 + rng.random((C, D)), bias=bias, **options)
    if kind == "quadratic":
        whiteners = np.tril(rng.normal(size=(C, D, D)))
        return QuadraticClassifier(offset=offset, whiteners=whiteners, means=means, bias=bias, **options)
    precisions, projections = 3 + rng.random((C, D)), 0.3 * rng.normal(size=(C, R, D))
    return LowRankClassifier(
        offset=offset, means=means, precisions=precisions, projections=projections, bias=bias, **options
    )


KINDS = ["linear", "diagonal", "quadratic", "low-rank"]
X = np.random.default_rng(1).normal(size=(50, D))


def referee(classifier: Any, x: Array, c: int) -> float:
    """Return the score of one sample and class, from the formula in the class's docstring."""
    z = x - classifier.offset
    if isinstance(classifier, LinearClassifier):
        return float(z @ classifier.weights[:, c] + classifier.bias[c])
    centred = z - classifier.means[c]
    if isinstance(classifier, QuadraticClassifier):
        return float(classifier.bias[c] - 0.5 * np.sum((classifier.whiteners[c] @ centred) ** 2))
    score = float(classifier.bias[c] - 0.5 * np.sum(centred**2 * classifier.precisions[c]))
    if isinstance(classifier, LowRankClassifier):
        score += 0.5 * float(np.sum((classifier.projections[c] @ centred) ** 2))
    return score


@pytest.mark.parametrize("kind", KINDS)
def test_scores_equal_the_formula_one_sample_and_class_at_a_time(kind: str) -> None:
    classifier = make(kind)
    scores = classifier.scores(X)
    for i, x in enumerate(X):
        for c in np.flatnonzero(PRESENT):
            assert np.isclose(scores[i, c], referee(classifier, x, int(c)), rtol=1e-10)
    assert np.isneginf(scores[:, 2]).all()


@pytest.mark.parametrize("kind", KINDS)
def test_labels_have_the_highest_score_and_never_an_absent_class(kind: str) -> None:
    classifier = make(kind)
    far = np.concatenate([X, 1e6 * X, np.zeros((1, D))])
    labels = classifier.predict(far)
    assert labels.dtype == np.int64
    assert np.array_equal(labels, classifier.scores(far).argmax(axis=1))
    assert 2 not in labels


@pytest.mark.parametrize("temperature", [1e-3, 0.1, 1.0, 50.0])
@pytest.mark.parametrize("kind", KINDS)
def test_probabilities_are_a_softmax_with_a_temperature(kind: str, temperature: float) -> None:
    classifier = make(kind)
    far = np.concatenate([X, 1e4 * X])
    shares = classifier.predict_proba(far, temperature=temperature)
    np.testing.assert_allclose(shares.sum(axis=1), 1.0, rtol=1e-12)
    assert (shares >= 0).all()
    assert (shares[:, 2] == 0).all()
    logits = classifier.scores(X)[:, PRESENT] / temperature
    expected = np.exp(logits - logits.max(axis=1, keepdims=True))
    np.testing.assert_allclose(shares[:50][:, PRESENT], expected / expected.sum(axis=1, keepdims=True), rtol=1e-12)


def test_a_high_temperature_is_undecided_and_a_low_one_certain() -> None:
    classifier = make("linear")
    np.testing.assert_allclose(classifier.predict_proba(X, temperature=1e9)[:, PRESENT], 1 / 3, atol=1e-6)
    np.testing.assert_allclose(classifier.predict_proba(X, temperature=1e-6).max(axis=1), 1.0)
    for wrong in (0.0, -1.0, float("nan")):
        with pytest.raises(InputError, match="temperature must be positive"):
            classifier.predict_proba(X, temperature=wrong)


@pytest.mark.parametrize("kind", KINDS)
def test_float32_is_scored_in_float32(kind: str) -> None:
    classifier = make(kind)
    narrow, wide = classifier.scores(X.astype(np.float32)), classifier.scores(X)
    assert narrow.dtype == np.float32
    np.testing.assert_allclose(narrow, wide, rtol=1e-4, atol=1e-4)
    assert classifier.scores(X.astype(np.float16)).dtype == np.float64
    assert classifier.scores(np.ones((2, D), int)).dtype == np.float64
    assert classifier.predict_proba(X.astype(np.float32)).dtype == np.float32


@pytest.mark.parametrize("kind", KINDS)
def test_wrong_features_are_refused(kind: str) -> None:
    classifier = make(kind)
    with pytest.raises(InputError, match=r"features of 3 dimensions, but 4 arrived.*another encoder"):
        classifier.predict(np.ones((2, 4)))
    with pytest.raises(InputError, match=r"matrix \(samples, dimensions\).*shape \(3,\)"):
        classifier.predict(np.ones(3))
    with pytest.raises(InputError, match="must be numbers"):
        classifier.predict([["a", "b", "c"]])


def test_class_names_are_numbers_unless_given() -> None:
    classifier = make("linear")
    assert classifier.class_names == ("0", "1", "2", "3")
    named = classifier.named(["ant", "bee", "cat", "dog"])
    assert named.predict_names(X) == [named.class_names[label] for label in classifier.predict(X)]
    assert classifier.class_names[0] == "0"  # values do not change
    with pytest.raises(InputError, match="4 classes needs as many names, not 2"):
        classifier.named(["ant", "bee"])


def test_a_feature_map_stands_before_the_scores() -> None:
    mapped = make("linear").mapped(Normalize())
    np.testing.assert_allclose(mapped.scores(5 * X), make("linear").scores(Normalize()(X)), rtol=1e-12)
    assert mapped.digest() != make("linear").digest()
    assert mapped.mapped(None).digest() == make("linear").digest()


@pytest.mark.parametrize("kind", KINDS)
def test_digest_tells_parameters_apart_and_ignores_names_and_notes(kind: str) -> None:
    classifier = make(kind)
    assert classifier.digest() == make(kind).digest()
    assert classifier.digest() == classifier.named(list("abcd")).noting(head="x").digest()
    digests = {classifier.digest(), make(kind, present=np.array([True] * 4)).digest()}
    for name, array in classifier.arrays():
        changed = array.copy()
        changed.flat[0] += 1e-12
        values: dict[str, Any] = {**dict(classifier.arrays()), name: changed}
        digests.add(type(classifier)(present=PRESENT, **values).digest())
    assert len(digests) == 2 + len(dict(classifier.arrays()))


def test_notes_add_up() -> None:
    classifier = make("linear").noting(head="fedcof").noting(clients=5)
    assert classifier.info == {"head": "fedcof", "clients": 5}


def test_scoring_changes_neither_features_nor_classifier() -> None:
    for kind in KINDS:
        classifier, points = make(kind), X.copy()
        digest = classifier.digest()
        classifier.predict_proba(points)
        classifier.scores(points.astype(np.float32))
        assert np.array_equal(points, X)
        assert classifier.digest() == digest


@pytest.mark.parametrize("kind", ["diagonal", "quadratic", "low-rank"])
def test_a_classifier_in_a_subspace_scores_projected_features(kind: str) -> None:
    rng = np.random.default_rng(2)
    basis, offset = rng.normal(size=(7, D)), rng.normal(size=7)
    made: Any = make(kind)
    inside = replace(made, offset=np.zeros(D))
    outside = replace(inside, offset=offset, basis=basis)
    wide = rng.normal(size=(20, 7))
    assert outside.dim == 7
    np.testing.assert_allclose(outside.scores(wide), inside.scores((wide - offset) @ basis), rtol=1e-12)
    assert outside.digest() != inside.digest()
    np.testing.assert_array_equal(load_bytes(outside.to_bytes()).scores(wide), outside.scores(wide))


@pytest.mark.parametrize("kind", ["diagonal", "quadratic", "low-rank"])
@pytest.mark.parametrize("subspace", [False, True])
def test_a_linear_term_moves_into_means_and_bias(kind: str, *, subspace: bool) -> None:
    rng = np.random.default_rng(3)
    base: Any = make(kind)
    if subspace:
        base = replace(base, basis=rng.normal(size=(D, D)))
    weights = rng.normal(size=(D, C))
    z = X - base.offset
    z = z @ base.basis if subspace else z
    expected = base.scores(X)[:, PRESENT] + (z @ weights)[:, PRESENT]
    moved = base.plus_linear(weights)
    assert type(moved) is type(base)
    np.testing.assert_allclose(moved.scores(X)[:, PRESENT], expected, rtol=1e-9, atol=1e-9)


def test_a_linear_term_moves_into_a_low_rank_classifier_with_a_condition_of_1e8() -> None:
    rng = np.random.default_rng(5)
    variances, factor = 10.0 ** rng.uniform(-4, 0, size=D), 1e2 * rng.normal(size=(D, 2))
    inner = np.linalg.inv(np.linalg.cholesky(np.eye(2) + factor.T @ (factor / variances[:, None])))
    base = LowRankClassifier(
        offset=np.zeros(D),
        means=rng.normal(size=(C, D)),
        precisions=np.tile(1 / variances, (C, 1)),
        projections=np.tile(inner @ factor.T / variances, (C, 1, 1)),
        bias=np.zeros(C),
        present=PRESENT,
    )
    weights = rng.normal(size=(D, C))
    expected = (base.scores(X) + X @ weights)[:, PRESENT]
    np.testing.assert_allclose(base.plus_linear(weights).scores(X)[:, PRESENT], expected, rtol=1e-5, atol=1e-6)


def test_a_low_rank_classifier_keeps_its_digits_in_float32() -> None:
    rng = np.random.default_rng(0)
    y, wide = np.arange(2000) % 2, 10.0 ** np.linspace(-4, 0, 16)
    samples = (rng.normal(size=(2000, 16)) * wide + 0.5 * wide * y[:, None]) @ np.linalg.qr(rng.normal(size=(16, 16)))[
        0
    ]
    stats = Statistics.of(samples, y, StatisticsSpec.of("class_grams"), n_classes=2)
    head = make_head("gh-dlr-qda", rank=16, pooling="none", shrinkage="none").fit(stats)
    narrow = samples.astype(np.float32)
    assert head.scores(narrow).dtype == np.float32
    np.testing.assert_array_equal(head.predict(narrow), head.predict(narrow.astype(np.float64)))
