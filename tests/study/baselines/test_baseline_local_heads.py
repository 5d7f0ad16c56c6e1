"""Local heads: all C outputs solved in the columns of the classes held, their average and their ensemble."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.optimize import minimize

from fedmoments.core.classifier import LinearClassifier
from fedmoments.study.baselines import Upload, make_baseline
from fedmoments.study.baselines.local_head import EVALUATIONS, TOLERANCE, fit_local_head
from fedmoments.study.baselines.sent_heads import average_head, client_shares, ensemble_of, read_heads

Array = npt.NDArray[Any]
C, D = 9, 4


def draw(labels: list[int], n: int = 60, seed: int = 0) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    y = np.array(labels)[np.arange(n) % len(labels)]
    return 3 + 2 * rng.normal(size=(n, D)) + 3 * rng.normal(size=(C, D))[y], y


def referee(X: Array, y: Array, decay: float, tolerance: float = TOLERANCE) -> tuple[Array, Array]:
    """Return weights (d, C) and bias (C,) of the whole problem with all C columns, in plain features."""
    centre = X.mean(axis=0)
    scale = np.sqrt(np.square(X - centre).sum() / len(X))
    Z = np.column_stack([(X - centre) / scale, np.ones(len(X))])

    def loss(flat: Array) -> tuple[float, Array]:
        columns = flat.reshape(-1, C)
        scores = Z @ columns
        logs = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
        slope = np.exp(logs) - np.eye(C)[y]
        value = -logs[np.arange(len(y)), y].mean() + 0.5 * decay * float(flat @ flat)
        return value, (Z.T @ slope / len(Z) + decay * columns).ravel()

    options = {"maxfun": EVALUATIONS, "maxiter": EVALUATIONS, "gtol": tolerance, "ftol": 0.0, "maxcor": 10}
    found = minimize(loss, np.zeros((D + 1) * C), jac=True, method="L-BFGS-B", options=options).x.reshape(-1, C)
    weights = found[:-1] / scale
    return weights, found[-1] - centre @ weights


@pytest.mark.parametrize("decay", [1e-3, 1e-1])
@pytest.mark.parametrize("labels", [[2, 5, 6], [0, 8], list(range(C)), [7]])
def test_law_the_short_problem_equals_the_one_with_all_outputs(labels: list[int], decay: float) -> None:
    X, y = draw(labels)
    weights, bias = fit_local_head(X, y, n_classes=C, decay=decay).expand()
    all_weights, all_bias = referee(X, y, decay)
    np.testing.assert_allclose(X @ weights + bias, X @ all_weights + all_bias, atol=1e-3 * np.abs(all_weights).max())


def test_the_head_is_the_minimum() -> None:
    """Whatever the solver: at twice its precision the referee, which starts anew, has the same scores."""
    X, y = draw([1, 4, 5])
    weights, bias = fit_local_head(X, y, n_classes=C, decay=0.03).expand()
    exact_weights, exact_bias = referee(X, y, 0.03, tolerance=1e-9)
    np.testing.assert_allclose(X @ weights + bias, X @ exact_weights + exact_bias, atol=5e-3)


def test_absent_classes_share_a_column_below_all_others_where_the_client_has_samples() -> None:
    X, y = draw([2, 5, 6])
    weights, bias = fit_local_head(X, y, n_classes=C).expand()
    absent = np.setdiff1d(np.arange(C), [2, 5, 6])
    assert (weights[:, absent] == weights[:, absent[:1]]).all()
    scores = X @ weights + bias
    assert (scores[:, absent].max(axis=1) < scores[np.arange(len(y)), y]).all()
    np.testing.assert_allclose(weights.sum(axis=1), 0, atol=1e-9)
    assert abs(bias.sum()) < 1e-9


@pytest.mark.parametrize("n", [1, 2, 40])
def test_a_client_with_one_class_is_a_constant(n: int) -> None:
    X, y = draw([3], n)
    weights, bias = fit_local_head(X, y, n_classes=C).expand()
    assert np.abs(weights).max() < 1e-9
    shares = np.exp(bias) / np.exp(bias).sum()
    assert bias.argmax() == 3
    assert 0.99 < shares[3] < 1  # finite: the bias has a penalty too


def test_a_federation_of_one_class_has_heads_too() -> None:
    head = fit_local_head(np.arange(6.0).reshape(3, 2), np.zeros(3, int), n_classes=1)
    assert head.n_absent == 0
    assert head.expand()[0].shape == (2, 1)


@pytest.mark.parametrize(("factor", "shift"), [(1e-6, 0.0), (1e4, 0.0), (1.0, 100.0)])
def test_scores_do_not_change_with_scale_and_origin(factor: float, shift: float) -> None:
    X, y = draw([0, 2, 3])
    moved = factor * X + shift
    (W, b), (V, c) = (fit_local_head(x, y, n_classes=C, decay=1e-2).expand() for x in (X, moved))
    np.testing.assert_allclose(moved @ V + c, X @ W + b, atol=1e-6)


def uploads_of(parts: list[tuple[Array, Array]], name: str = "ensemble") -> list[Upload]:
    method = make_baseline(name)
    return [method.local(X, y, n_classes=C, seed=k) for k, (X, y) in enumerate(parts)]


def test_a_head_travels_as_the_columns_of_the_classes_held() -> None:
    labels = [1, 4, 5]
    sent = uploads_of([draw(labels)])[0]
    assert sent.n_floats == len(labels) * (D + 1)
    assert sent.n_counts == len(labels)
    X, y = draw(labels)
    here, there = fit_local_head(X, y, n_classes=C).expand(), read_heads([sent])[0].expand()
    for mine, theirs in zip(here, there, strict=True):
        assert np.array_equal(mine, theirs)


def test_law_averaging_identical_heads_gives_that_head() -> None:
    X, y = draw([0, 3, 4])
    weights, bias = fit_local_head(X, y, n_classes=C).expand()
    for weighting in ("samples", "uniform"):
        averaged = average_head(uploads_of([(X, y)] * 5), weighting)
        np.testing.assert_allclose(averaged.weights, weights, rtol=1e-12)
        np.testing.assert_allclose(averaged.bias, bias, rtol=1e-12)


def test_averages_weigh_clients_by_their_samples() -> None:
    parts = [draw([0, 3], 30, seed=1), draw([1, 2, 3], 90, seed=2)]
    heads = [fit_local_head(X, y, n_classes=C).expand() for X, y in parts]
    by_samples = make_baseline("head-average").combine(uploads_of(parts), dim=D, seed=0)
    assert isinstance(by_samples, LinearClassifier)
    np.testing.assert_allclose(by_samples.weights, 0.25 * heads[0][0] + 0.75 * heads[1][0], rtol=1e-12)
    alike = make_baseline("head-average", weighting="uniform").combine(uploads_of(parts), dim=D, seed=0)
    assert isinstance(alike, LinearClassifier)
    np.testing.assert_allclose(alike.bias, 0.5 * (heads[0][1] + heads[1][1]), rtol=1e-12)
    np.testing.assert_allclose(client_shares(np.array([[1, 2], [0, 1]]), "uniform"), 0.5)


def test_law_an_ensemble_of_one_client_is_its_local_head() -> None:
    X, y = draw([0, 3, 4])
    weights, bias = fit_local_head(X, y, n_classes=C).expand()
    present = np.isin(np.arange(C), [0, 3, 4])
    own = LinearClassifier(weights=weights, bias=bias, present=present)
    both = [make_baseline(name).combine(uploads_of([(X, y)]), dim=D, seed=0) for name in ("ensemble", "head-average")]
    for classifier in both:
        np.testing.assert_allclose(classifier.predict_proba(X), own.predict_proba(X), rtol=1e-9, atol=1e-12)
        assert np.array_equal(classifier.predict(5 * X), own.predict(5 * X))


def test_an_ensemble_mixes_the_probabilities_of_all_outputs() -> None:
    parts = [draw([0, 3], 30, seed=1), draw([1, 2, 3], 90, seed=2)]
    points = np.random.default_rng(3).normal(size=(20, D))
    expected = np.zeros((20, C))
    for X, y in parts:
        weights, bias = fit_local_head(X, y, n_classes=C).expand()
        raised = np.exp(points @ weights + bias)
        expected += 0.5 * raised / raised.sum(axis=1, keepdims=True)
    scores = ensemble_of(uploads_of(parts), np.full(2, 0.5)).scores(points)
    np.testing.assert_allclose(np.exp(scores[:, :4]), expected[:, :4], rtol=1e-9)
