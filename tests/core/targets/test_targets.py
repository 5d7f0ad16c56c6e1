"""Laws of heads for targets: federated is pooled, whatever the partition; R², thresholds, leaving, noise-free sums."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedmoments as fm
from fedmoments.core.classifier import MultiLabel, Regression
from fedmoments.core.maps import RandomProjection
from fedmoments.core.statistics import FixedPoint
from fedmoments.core.targets import joint, with_targets
from fedmoments.errors import InputError

Array = npt.NDArray[Any]


def draw(seed: int, n: int = 90, d: int = 5, m: int = 2) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) @ rng.normal(size=(d, d)) + 3.0
    return X, X @ rng.normal(size=(d, m)) + rng.normal(size=(n, m)) + 10.0


def parties(X: Array, T: Array, holders: Array) -> dict[int, tuple[Array, Array]]:
    return {int(k): (X[holders == k], T[holders == k]) for k in np.unique(holders)}


def pooled_ridge(X: Array, T: Array, ridge: float) -> tuple[Array, Array]:
    """Ridge regression with a free constant as least squares on stacked rows: no normal equations."""
    d = X.shape[1]
    centre, middle = X.mean(axis=0), T.mean(axis=0)
    rows = np.vstack([X - centre, np.sqrt(ridge) * np.eye(d)])
    weights = np.linalg.lstsq(rows, np.vstack([T - middle, np.zeros((d, T.shape[1]))]), rcond=None)[0]
    return np.asarray(weights), np.asarray(middle - centre @ weights)


@given(seed=st.integers(0, 999), n_clients=st.integers(1, 12), ridge=st.floats(1e-3, 1e3))
@settings(max_examples=30, deadline=None)
def test_federated_ridge_is_pooled_ridge(seed: int, n_clients: int, ridge: float) -> None:
    X, T = draw(seed)
    holders = np.random.default_rng(seed + 1).integers(0, n_clients, len(X))
    model = fm.fit("ridge-regression", parties(X, T, holders), ridge=ridge)
    weights, constant = pooled_ridge(X, T, ridge)
    wanted = X @ weights + constant
    assert np.linalg.norm(model.predict(X) - wanted) < 1e-10 * np.linalg.norm(wanted)


def test_r_squared_of_the_sums_is_that_of_the_samples() -> None:
    X, T = draw(3)
    model = fm.fit("ridge-regression", {"a": (X[:40], T[:40]), "b": (X[40:], T[40:])}, class_names=["rent", "price"])
    assert isinstance(model, Regression)
    left = np.square(T - model.predict(X)).sum(axis=0)
    assert np.allclose(model.info["r_squared"], 1 - left / np.square(T - T.mean(axis=0)).sum(axis=0), rtol=1e-10)
    assert np.allclose(model.r_squared(X, T), model.info["r_squared"])
    assert model.score(X, T) == pytest.approx(np.mean(model.info["r_squared"]))


def test_units_of_targets_decide_nothing() -> None:
    X, T = draw(4)
    units = np.array([1e-6, 1e6])
    one, other = (fm.fit("ridge-regression", {"a": (X, targets)}) for targets in (T, T * units))
    assert one.info["ridge"] == other.info["ridge"]
    assert np.allclose(one.predict(X) * units, other.predict(X), rtol=1e-9)


def test_a_client_leaves_as_if_it_had_never_been_there() -> None:
    X, T = draw(5)
    holders = np.arange(len(X)) % 4
    ledger = fm.measure(
        with_targets(parties(X, T, holders)), fm.spec_for("ridge-regression"), fixed_point=FixedPoint(512.0)
    )
    ledger.leave(2)
    rest = {k: pair for k, pair in parties(X, T, holders).items() if k != 2}
    again = fm.measure(with_targets(rest), fm.spec_for("ridge-regression"), fixed_point=FixedPoint(512.0))
    assert ledger.statistics().digest() == again.statistics().digest()
    one, other = (fm.fit("ridge-regression", source, targets=2) for source in (ledger, again))
    assert one.digest() == other.digest()


def test_a_public_map_is_applied_to_features_alone() -> None:
    X, T = draw(6)
    public = RandomProjection(5, 4, seed=1)
    model = fm.fit("ridge-regression", {"a": (X, T)}, feature_map=public, ridge=1.0)
    weights, constant = pooled_ridge(public(X), T, 1.0)
    assert np.allclose(model.predict(X), public(X) @ weights + constant)


def test_models_are_the_same_from_their_files(tmp_path: Path) -> None:
    X, T = draw(7)
    for name, targets in (("ridge-regression", T), ("multi-label", T > 10.0)):
        model = fm.fit(name, {"a": (X, targets)}, class_names=["one", "two"])
        model.save(tmp_path / "model")
        again = fm.load(tmp_path / "model")
        assert again.digest() == model.digest()
        assert again.class_names == ("one", "two")
        assert np.array_equal(again.predict(X), model.predict(X))


def naive_thresholds(scores: Array, marks: Array, *, errors: bool) -> Array:
    """The same thresholds from the scores of all samples, label by label."""
    found = []
    for score, mark in zip(scores.T, marks.T, strict=True):
        ones, zeros = score[mark], score[~mark]
        middle = (ones.mean() + zeros.mean()) / 2
        share = mark.mean()
        variance = (ones.var() * len(ones) + zeros.var() * len(zeros)) / len(score)
        found.append(middle + errors * variance / (ones.mean() - zeros.mean()) * np.log((1 - share) / share))
    return np.array(found)


@pytest.mark.parametrize("threshold", ["errors", "midpoint"])
def test_thresholds_of_the_sums_are_those_of_the_scores(threshold: str) -> None:
    X, T = draw(8, n=300, m=3)
    marks = np.array([8.0, 10.0, 13.0]) < T
    clients = {k: (X[k::6], marks[k::6]) for k in range(6)}
    model = fm.fit("multi-label", clients, threshold=threshold)
    assert isinstance(model, MultiLabel)
    assert np.allclose(model.thresholds, naive_thresholds(model.values(X), marks, errors=threshold == "errors"))
    assert np.array_equal(model.predict(X), model.values(X) > model.thresholds)


def test_labels_that_nobody_or_everybody_has_are_said_so() -> None:
    X, T = draw(9)
    marks = np.stack([np.zeros(len(X)), np.ones(len(X)), T[:, 0] > T[:, 0].mean()], axis=1)
    said = fm.fit("multi-label", {"a": (X, marks)}).predict(X)
    assert not said[:, 0].any()
    assert said[:, 1].all()
    assert 0 < said[:, 2].sum() < len(X)


def test_values_have_no_probabilities() -> None:
    X, T = draw(10)
    with pytest.raises(InputError, match="has values"):
        fm.fit("ridge-regression", {"a": (X, T)}).predict_proba(X)


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        (np.full(90, np.nan), "those of sample 0"),
        (np.array(["a"] * 90), "text"),
        (np.ones((90, 2, 2)), "shape"),
        (np.ones(3), "as many rows"),
    ],
)
def test_targets_that_are_none_are_refused_with_whose_they_are(targets: Array, message: str) -> None:
    with pytest.raises(InputError, match=message):
        fm.fit("ridge-regression", {"clinic": (draw(0)[0], targets)})


def test_clients_with_other_targets_are_refused() -> None:
    X, T = draw(0)
    with pytest.raises(InputError, match="'a' has 2 and 'b' has 1"):
        fm.fit("ridge-regression", {"a": (X, T), "b": (X, T[:, 0])})


def test_statistics_of_classes_are_refused() -> None:
    X, _ = draw(0)
    ledger = fm.measure({"a": (X, np.arange(90) % 3)}, fm.spec_for("gh-lda"))
    with pytest.raises(InputError, match="hold 3 classes"):
        fm.fit("ridge-regression", ledger)


def test_joint_counts_everybody_in_one_class() -> None:
    Z, labels = joint([[1.0, 2.0], [3.0, 4.0]], [True, False])
    assert Z.tolist() == [[1.0, 2.0, 1.0], [3.0, 4.0, 0.0]]
    assert labels.tolist() == [0, 0]
