"""Laws of the feature-quality probe, and of the closed-form refit after tuning."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedmoments as fm
from fedmoments.errors import InputError
from fedmoments.samples import Split, parse_split
from fedmoments.samples.features import Features, Samples
from fedmoments.study.probing import probe, refit
from fedmoments.study.simulation import evaluate

C, D = 5, 8
NAMES = tuple("abcde")
ADDITIVE = ["fed3r", "gh-lda", "fedncm", "fedcof-oracle"]


def toy(noise: float = 1.0, seed: int = 0, n: int = 240) -> Features:
    rng = np.random.default_rng(seed)
    y = rng.integers(C, size=2 * n)
    X = np.eye(C, D)[y] * 2 + noise * rng.normal(size=(2 * n, D))
    return Features("toy", C, Samples(X[:n], y[:n]), Samples(X[n:], y[n:]), class_names=NAMES)


def mapped(features: Features, matrix: Any) -> Features:
    train, test = (Samples(part.X @ matrix, part.y) for part in (features.train, features.test))
    return Features(features.name, C, train, test, class_names=NAMES)


SPLITS = [parse_split(scheme).apply(toy().train.y, n_clients=9, seed=1) for scheme in ("iid", "dirichlet:0.1")]


def test_an_encoder_that_was_not_tuned_is_as_good_as_before() -> None:
    features = toy()
    again = mapped(features, np.eye(D))
    for after in (features, again):
        rows = probe(features, after, ["fed3r", "gh-lda", "fedcof"], split=SPLITS[0]).rows
        assert [(row.after, row.gain) for row in rows] == [(row.before, 0.0) for row in rows]
        assert None not in {row.before for row in rows}


@pytest.mark.parametrize("head", ADDITIVE)
@pytest.mark.parametrize("split", SPLITS, ids=lambda split: split.scheme)
def test_the_refit_of_a_head_from_sums_does_not_depend_on_the_split(head: str, split: Split) -> None:
    features = toy()
    alone, dealt = (refit(features, each, [head])[head] for each in (None, split))
    assert alone.classifier is not None
    assert dealt.classifier is not None
    np.testing.assert_allclose(dealt.classifier.weights, alone.classifier.weights, rtol=1e-8, atol=1e-10)  # type: ignore[attr-defined]
    assert dealt.accuracy == alone.accuracy


def test_the_refit_of_a_head_from_client_means_does_depend_on_it() -> None:
    first, second = (refit(toy(), split, ["fedcof"])["fedcof"].classifier for split in SPLITS)
    assert first is not None
    assert second is not None
    assert first.digest() != second.digest()


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 1000))
def test_rotated_features_are_as_good_as_before(seed: int) -> None:
    rotation = np.linalg.qr(np.random.default_rng(seed).normal(size=(D, D)))[0]
    row = probe(toy(), mapped(toy(), rotation)).rows[0]
    assert row.gain == 0.0


def test_clearer_features_are_better_and_fewer_may_be_worse() -> None:
    clear, vague = toy(0.3), toy(1.5)
    assert (probe(vague, clear).rows[0].gain or 0.0) > 0.1
    assert (probe(clear, mapped(clear, np.eye(D, 2))).rows[0].gain or 0.0) < -0.1


@pytest.mark.parametrize("head", [*ADDITIVE, "fedcof"])
def test_a_refit_is_what_fit_gives(head: str) -> None:
    features, split = toy(), SPLITS[0]
    parties = {k: (features.train.X[mine], features.train.y[mine]) for k, mine in enumerate(split)}
    expected = fm.fit(head, parties)
    found = refit(features, split, [head])[head]
    assert found.classifier is not None
    np.testing.assert_allclose(found.classifier.scores(features.test.X), expected.scores(features.test.X), atol=1e-8)
    assert found.accuracy == evaluate(expected, features.test).accuracy
    assert found.classifier.class_names == NAMES
    assert found.classifier.info["head"] == head
    assert found.classifier.info["refit"] is True


def test_hyper_parameters_reach_the_heads() -> None:
    made = refit(toy(), None, ["fed3r"], hyper={"fed3r": {"ridge": 3.0}})["fed3r"].classifier
    assert made is not None
    assert made.info["settings"]["ridge"] == 3.0


def test_the_trained_head_is_tested_on_the_tuned_features() -> None:
    before, after = toy(2.0), toy(0.5)
    trained = fm.fit("fedncm", {"all": (after.train.X, after.train.y)}, class_names=NAMES)
    found = probe(before, after, softmax=trained)
    assert found.softmax == evaluate(trained, after.test).accuracy != evaluate(trained, before.test).accuracy
    assert found.to_dict()["softmax"] == found.softmax
    assert probe(before, after).softmax is None


def test_heads_that_cannot_be_fitted_say_why_and_the_others_go_on() -> None:
    found = probe(toy(), toy(), ["fedcof", "fed3r"])
    assert found.rows[0].reason
    assert (found.rows[0].before, found.rows[0].gain) == (None, None)
    assert found.rows[1].reason is None
    assert set(found.refits) == {"fed3r"}


def test_features_without_test_samples_are_refitted_but_not_tested() -> None:
    features = toy()
    found = refit(Features("toy", C, features.train))["fed3r"]
    assert found.classifier is not None
    assert found.accuracy is None


def test_what_does_not_belong_together_is_refused() -> None:
    features = toy()
    with pytest.raises(InputError, match="of the same samples, but the labels of their train parts differ"):
        probe(features, toy(seed=1))
    with pytest.raises(InputError, match="deals out 3 samples, but there are 240"):
        refit(features, Split(np.zeros(3, np.int64), n_clients=1, scheme="by hand"))
    other = fm.fit("fedncm", {"all": (features.train.X, features.train.y)}, n_classes=9)
    with pytest.raises(InputError, match="9 classes, but the data have 5"):
        probe(features, features, softmax=other)
    renamed = fm.fit("fedncm", {"all": (features.train.X, features.train.y)}, class_names=NAMES[::-1])
    with pytest.raises(InputError, match="different class names"):
        probe(features, features, softmax=renamed)
