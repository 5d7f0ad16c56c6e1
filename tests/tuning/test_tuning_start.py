"""Starts: every head of the registry scores as itself at first, and what tuning returns scores as what was trained."""

from functools import cache
from typing import Any

import numpy as np
import pytest
from tests.tuning.probing_workshop import PRESENT, clients, start

import fedmoments as fm
from fedmoments.core.classifier import Classifier, EnsembleClassifier, LinearClassifier
from fedmoments.core.heads import head_names
from fedmoments.core.maps import Normalize
from fedmoments.errors import InputError
from fedmoments.settings.plan import TuningPlan
from fedmoments.tuning.probing import FeatureEngine
from fedmoments.tuning.start import BIAS, WEIGHTS, Start, default_temperature, random_start, start_from

CLASSES = len(PRESENT)
PARTS = {
    name: (X + 3.0, y) for name, (X, y) in clients(6, {"a": 60, "b": 50, "c": 70, "d": 30, "e": 45, "f": 35}).items()
}
X = clients(6, {"test": 300})["test"][0] + 3.0

#: Its classifier has several sets of weights a class: there is no one to go on from.
REFUSED = {"mixture-sketch"}
#: Every other preset, with numbers that suit small data, and variants whose classifiers are of another kind.
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {}) for name in head_names() if name not in REFUSED},
    "fed3r-rf": ("fed3r-rf", {"n_features": 32}),
    "fed3r with intercept": ("fed3r", {"intercept": True}),
    "fedncm by distance": ("fedncm", {"metric": "euclidean"}),
    "gh-nb in the Fisher subspace": ("gh-nb", {"subspace": "fisher"}),
    "proto-hyper on naive Bayes": ("proto-hyper", {"base": "nb"}),
    "proto-hyper on qda": ("proto-hyper", {"base": "qda"}),
}
SAMPLED = ("fishermix", "proto-hyper")


@cache
def fitted(case: str) -> Classifier:
    name, hyper = CASES[case]
    more: dict[str, Any] = {"samples": 100} if name.startswith(SAMPLED) else {}
    return fm.fit(name, PARTS, n_classes=CLASSES, **hyper, **more)


@pytest.mark.parametrize("name", REFUSED)
def test_a_mixture_is_refused_with_the_reason(name: str) -> None:
    moved = {client: (X + 9.0 * place, y) for place, (client, (X, y)) in enumerate(PARTS.items())}
    head = fm.fit(name, moved, n_classes=CLASSES)
    with pytest.raises(InputError, match="is of kind 'mixture', which has no single set of weights to continue from"):
        start_from(head, name)


@pytest.mark.parametrize("case", CASES)
def test_law_a_start_scores_as_its_head(case: str) -> None:
    head = fitted(case)
    begun = start_from(head, case)
    assert list(begun.present) == list(PRESENT)
    arrays = begun.arrays(np.float64)
    np.testing.assert_allclose(begun.scores(arrays, X), head.scores(X), rtol=1e-12)
    np.testing.assert_array_equal(begun.tuned(arrays).predict(X), head.predict(X))
    narrow = X.astype(np.float32)
    np.testing.assert_array_equal(begun.scores(begun.arrays(), narrow), head.scores(narrow))
    assert begun.inputs(X).shape == (len(X), begun.width) == (len(X), begun.arrays()[WEIGHTS].shape[0])


@pytest.mark.parametrize("case", CASES)
def test_law_a_tuned_classifier_scores_what_was_trained(case: str) -> None:
    head = fitted(case)
    begun = start_from(head, case)
    plan = TuningPlan(lr=0.05 * begun.temperature, batch_size=16, epochs=2)
    engine = FeatureEngine(plan, begun, PARTS, None, dtype=np.float64)
    arrays = engine.train(1, begun.arrays(np.float64), None, ["c"])[0].arrays
    made = begun.tuned(arrays, rounds=1)
    assert type(made) is type(head)
    assert made.class_names == head.class_names
    assert made.info["start"] == case
    assert (made.temperature, made.info["rounds"]) == (begun.temperature, 1)
    scores, before = begun.scores(arrays, X), head.scores(X)[:, PRESENT]
    spread = float(np.ptp(before))
    assert np.abs(scores[:, PRESENT] - before).max() > 1e-6 * spread
    np.testing.assert_allclose(made.scores(X), scores, rtol=1e-9, atol=1e-9 * spread)
    np.testing.assert_array_equal(made.predict(X), scores.argmax(axis=1))


@pytest.mark.parametrize("name", ["fedcof", "gh-nb", "gh-dlr-qda"])
def test_a_feature_map_stands_before_what_is_trained(name: str) -> None:
    head = fm.fit(name, PARTS, n_classes=CLASSES, feature_map=Normalize())
    begun = start_from(head, name)
    arrays = {key: array + 0.1 for key, array in begun.arrays(np.float64).items()}
    np.testing.assert_allclose(begun.tuned(arrays).scores(X), begun.scores(arrays, X), rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(begun.scores(arrays, 5.0 * X), begun.scores(arrays, X), rtol=1e-8)


@pytest.mark.parametrize("kind", ["diagonal", "quadratic", "low-rank"])
def test_frozen_scores_are_less_the_highest_of_their_row(kind: str) -> None:
    begun = start(kind)
    frozen, scores = begun.base(X, np.float64), begun.classifier.scores(X)
    assert frozen is not None
    assert not frozen[:, ~PRESENT].any()
    assert not frozen[:, PRESENT].max(axis=1).any()
    np.testing.assert_allclose(np.ptp(scores[:, PRESENT], axis=1), -frozen[:, PRESENT].min(axis=1), rtol=1e-10)
    assert start("linear").base(X) is None


def test_frozen_scores_keep_their_digits_in_float32() -> None:
    head = start("diagonal").classifier
    far = Start("far", type(head)(**{**dict(head.arrays()), "bias": head.bias - 1e9}, present=PRESENT))  # type: ignore[attr-defined]
    near, narrow = start("diagonal").base(X, np.float64), far.base(X, np.float32)
    assert near is not None
    assert narrow is not None
    np.testing.assert_allclose(narrow, near, rtol=1e-6, atol=1e-6)


# -------------------------------------------------------------------------------------------------- temperature, random


@pytest.mark.parametrize(
    ("name", "temperature"), [("fedncm", 0.1), ("fed3r", 0.1), ("fedcof", 0.1), ("gh-lda", 1.0), ("gh-nb", 1.0)]
)
def test_heads_with_columns_of_unit_length_have_a_temperature_of_a_tenth(name: str, temperature: float) -> None:
    assert default_temperature(fitted(name)) == temperature
    assert start_from(fitted(name), name).temperature == temperature
    assert start_from(fitted(name), name, 0.25).temperature == 0.25


@pytest.mark.parametrize("temperature", [0.0, -1.0, np.nan, np.inf])
def test_a_temperature_is_a_number_above_0(temperature: float) -> None:
    with pytest.raises(InputError, match="the temperature of the start 'fedncm' must be a number above 0"):
        start_from(fitted("fedncm"), "fedncm", temperature)


def test_a_random_start_depends_on_its_seed_alone() -> None:
    first, again, other = (random_start(9, PRESENT, seed=seed) for seed in (1, 1, 2))
    weights = first.arrays(np.float64)[WEIGHTS]
    np.testing.assert_array_equal(weights, again.arrays(np.float64)[WEIGHTS])
    assert not np.isclose(weights, other.arrays(np.float64)[WEIGHTS]).any()
    assert np.abs(weights).max() <= 1 / 3
    assert np.abs(weights).max() > 0.3
    assert np.abs(first.arrays()[BIAS]).max() <= 1 / 3
    assert list(first.present) == list(PRESENT)


def test_an_ensemble_is_no_start() -> None:
    ensemble = EnsembleClassifier(
        weights=np.ones((2, 2)),
        bias=np.zeros(2),
        labels=np.array([0, 1]),
        starts=np.array([0]),
        mixing=np.ones(1),
        present=np.array([True, True]),
    )
    with pytest.raises(InputError, match="'mine' is of kind 'ensemble', which has no single set of weights"):
        start_from(ensemble, "mine")


@pytest.mark.parametrize("shape", [(3, 5), (4,), (2, 4, 1)])
def test_features_of_another_shape_are_refused(shape: tuple[int, ...]) -> None:
    made = LinearClassifier(weights=np.ones((4, CLASSES)), bias=np.zeros(CLASSES), present=PRESENT)
    with pytest.raises(InputError, match=r"features must be a matrix|scores features of 4 dimensions, but 5 arrived"):
        Start("mine", made).inputs(np.zeros(shape))
