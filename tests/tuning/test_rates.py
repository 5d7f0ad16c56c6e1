"""Rates that follow from the features, and rates that are chosen on a validation share."""

import warnings
from typing import Any

import numpy as np
import pytest

from fedmoments.errors import FitWarning, InputError
from fedmoments.settings.plan import TuningPlan
from fedmoments.tuning import tune
from fedmoments.tuning.rates import STABLE, candidates, spread_of
from fedmoments.tuning.start import random_start

C, D = 4, 6
Part = tuple[np.ndarray, np.ndarray]


def draw(n: int, seed: int) -> Part:
    rng = np.random.default_rng(seed)
    y = rng.integers(C, size=n)
    return 5.0 + 1.5 * np.eye(C, D)[y] + rng.normal(size=(n, D)), y


def parties(times: float = 1.0) -> dict[str, Part]:
    X, y = draw(240, 0)
    order = np.argsort(y + np.random.default_rng(1).random(len(y)) * 2.0)  # skewed classes
    return {f"clinic {k}": (times * X[rows], y[rows]) for k, rows in enumerate(np.array_split(order, 6))}


def test_the_spread_is_that_of_an_eigendecomposition_of_the_pooled_covariance() -> None:
    held = parties()
    X = np.concatenate([X for X, _ in held.values()])
    found = spread_of(random_start(D, np.ones(C, bool), seed=0), held.values())
    np.testing.assert_allclose(found.centre, X.mean(axis=0))
    np.testing.assert_allclose(found.largest**2, np.linalg.eigvalsh(np.cov(X.T, bias=True))[-1], rtol=1e-3)
    np.testing.assert_allclose(found.length**2, np.mean(np.sum(X**2, axis=1)))


@pytest.mark.parametrize("start", ["random", "fedncm", "gh-nb"])
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"optimiser": "fedadam"},
        {"optimiser": "fedyogi"},
        {"optimiser": "fedprox", "mu": 0.5, "weight_decay": 0.01},
        {"optimiser": "scaffold", "momentum": 0.5},
        {"optimiser": "feddyn", "alpha": 0.2},
        {"optimiser": "mimelite"},
        {"optimiser": "mime"},
    ],
    ids=lambda more: more.get("optimiser", "fedavg"),
)
def test_law_features_times_a_thousand_change_no_accuracy(start: str, more: dict[str, Any]) -> None:
    X, y = draw(400, 9)
    runs = []
    for times in (1.0, 1000.0):
        plan = TuningPlan(rounds=6, batch_size=16, fraction=0.7, **more)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FitWarning)  # some of these starts lose at first: no matter here
            runs.append(tune(parties(times), start, plan, test=(times * X, y)))
    one, other = ([point.accuracy or 0.0 for point in run.points] for run in runs)
    np.testing.assert_allclose(one, other, atol=0.0051)  # float32: one sample of 400 on a boundary, or two
    assert one[0] != one[-1]
    same = runs[0].classifier.predict(X) == runs[1].classifier.predict(1000.0 * X)
    assert np.mean(same) >= 0.99


def test_law_centralised_descent_with_the_stable_step_never_raises_the_loss() -> None:
    X, y = draw(300, 2)
    plan = TuningPlan(rounds=60, batch_size=0)
    points = tune({"all": (X, y)}, "random", plan, test=(X, y)).points
    losses = [point.loss for point in points if point.loss is not None]
    assert len(losses) == 61
    assert max(np.diff(losses)) <= 1e-6
    worse = TuningPlan(rounds=60, batch_size=0, lr=40 * STABLE, feature_scale=1.0, temperature=1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FitWarning)
        large = [point.loss for point in tune({"all": (X, y)}, "random", worse, test=(X, y)).points]
    assert max(np.diff([loss for loss in large if loss is not None])) > 0.1


def test_a_grid_takes_the_rate_with_the_best_validation_and_charges_its_trials() -> None:
    X, y = draw(400, 9)
    one = tune(parties(), "random", TuningPlan(rounds=20, lr=0.02, epochs=3), test=(X, y))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FitWarning)
        found = tune(parties(), "random", TuningPlan(rounds=20, lr="1e-7, 0.02", epochs=3), test=(X, y))
    assert found.classifier.info["plan"]["lr"] == 0.02
    assert list(found.rates) == ["1e-07", "0.02"]
    assert found.rates["0.02"] > found.rates["1e-07"]
    for left, right in zip(one.points, found.points, strict=True):
        assert left.accuracy == right.accuracy
    assert found.points[-1].total_bytes > 2.5 * one.points[-1].total_bytes


def test_server_rates_are_tried_too_and_a_run_needs_one_of_each() -> None:
    plan = TuningPlan(lr="0.1,auto", server_lr="0.1,1")
    assert len(candidates(plan)) == 4
    with pytest.raises(InputError, match="lr must be 0 or more"):
        TuningPlan(lr="0.1,many")
    with pytest.raises(InputError, match="server_lr must be above 0"):
        TuningPlan(server_lr="0,1")
    with pytest.raises(InputError, match="feature_scale must be above 0, and is for stage 'lp' alone"):
        TuningPlan(stage="ft", feature_scale=2.0)


def test_a_first_round_that_loses_more_than_it_gains_is_told() -> None:
    X, y = draw(400, 9)
    with pytest.warns(FitWarning, match="the first round lost more than it gained.*take a smaller one"):
        tune(parties(), "fedcof", TuningPlan(rounds=2, lr=50.0, batch_size=4), test=(X, y))


def test_features_that_are_all_the_same_have_no_rate() -> None:
    with pytest.raises(InputError, match="no rate follows from features that are all the same"):
        tune({"a": (np.ones((4, D)), np.arange(4))}, "random", TuningPlan(rounds=1))


def test_units_change_nothing_but_the_meaning_of_the_rate() -> None:
    """Training on features divided by s with the rate r is training on them as they are with r·s², of W."""
    held, test = parties(), draw(50, 3)
    plan = TuningPlan(rounds=3, lr=0.1, temperature=1.0)
    scaled = TuningPlan(rounds=3, lr=0.1, temperature=1.0, feature_scale=1.0)
    one, two = (tune(held, "random", each, test=test) for each in (plan, scaled))
    for name in ("weights", "bias"):
        np.testing.assert_allclose(getattr(one.classifier, name), getattr(two.classifier, name), rtol=1e-5, atol=1e-6)
