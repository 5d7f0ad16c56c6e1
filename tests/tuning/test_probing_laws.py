"""Laws of linear probing: what federated training must equal where theory says so."""

from typing import Any

import numpy as np
import pytest
from tests.tuning.probing_workshop import CLASSES, PRESENT, Parts, clients, mean_of, start, zeros

import fedmoments as fm
from fedmoments.settings.plan import TuningPlan
from fedmoments.tuning.engine import Arrays
from fedmoments.tuning.optimisers import make_optimiser
from fedmoments.tuning.probing import FeatureEngine
from fedmoments.tuning.start import BIAS, WEIGHTS, random_start, start_from


def run(plan: TuningPlan, engine: FeatureEngine, arrays: Arrays, rounds: int) -> Arrays:
    """Run rounds of all clients under the plan's own optimiser, from its beginning."""
    optimiser = make_optimiser(plan, engine.samples)
    for round_number in range(1, rounds + 1):
        updates = engine.train(round_number, arrays, optimiser.control(arrays), engine.clients)
        arrays = optimiser.step(round_number, arrays, updates)
    return arrays


@pytest.mark.parametrize("kind", ["linear", "diagonal"])
def test_law_one_local_step_of_all_clients_is_centralised_gradient_descent(kind: str) -> None:
    plan, head, parts = TuningPlan(lr=0.5, batch_size=0, weight_decay=0.1), start(kind), clients()
    X, y = (np.concatenate([part[i] for part in parts.values()]) for i in (0, 1))
    federated = FeatureEngine(plan, head, parts, None, dtype=np.float64)
    central = FeatureEngine(plan, head, {"all": (X, y)}, None, dtype=np.float64)
    many = one = head.arrays(np.float64)
    for round_number in range(1, 21):
        many = mean_of(federated.train(round_number, many, None, federated.clients))
        one = central.train(round_number, one, None, ["all"])[0].arrays
    assert not np.allclose(one[WEIGHTS], head.arrays(np.float64)[WEIGHTS], atol=1e-2)
    for key in (WEIGHTS, BIAS):
        np.testing.assert_allclose(many[key], one[key], rtol=1e-10, atol=1e-12)


def test_law_fedprox_with_mu_0_is_fedavg_bit_for_bit() -> None:
    head, parts = start(), clients()
    found = {}
    for optimiser in ("fedavg", "fedprox"):
        plan = TuningPlan(optimiser=optimiser, mu=0.0, lr=0.2, batch_size=2, epochs=2, momentum=0.5)
        found[optimiser] = run(plan, FeatureEngine(plan, head, parts, None), head.arrays(), 4)
    for key in (WEIGHTS, BIAS):
        np.testing.assert_array_equal(found["fedprox"][key], found["fedavg"][key])


def test_fedprox_with_a_large_mu_stays_near_where_it_began() -> None:
    head, parts = start(), clients()
    moved = []
    for mu in (0.0, 5.0):
        plan = TuningPlan(optimiser="fedprox", mu=mu, lr=0.1, batch_size=0, epochs=20)
        update = FeatureEngine(plan, head, parts, None).train(1, head.arrays(), None, ["big"])[0]
        moved.append(float(np.linalg.norm(update.arrays[WEIGHTS] - head.arrays()[WEIGHTS])))
    assert moved[1] < 0.5 * moved[0]


def test_law_scaffold_with_identical_clients_is_fedavg() -> None:
    head, part = start(), clients()["big"]
    found = {}
    for optimiser in ("fedavg", "scaffold"):
        plan = TuningPlan(optimiser=optimiser, lr=0.3, batch_size=0, epochs=4)
        engine = FeatureEngine(plan, head, {"a": part, "b": part, "c": part}, None, dtype=np.float64)
        found[optimiser] = run(plan, engine, head.arrays(np.float64), 6)
    for key in (WEIGHTS, BIAS):
        np.testing.assert_allclose(found["scaffold"][key], found["fedavg"][key], rtol=1e-10, atol=1e-12)


def test_law_without_momentum_control_variates_are_the_papers_option_ii() -> None:
    plan = TuningPlan(optimiser="scaffold", lr=0.2, batch_size=3, epochs=2)
    head, rng = start(), np.random.default_rng(3)
    engine = FeatureEngine(plan, head, clients(), None, dtype=np.float64)
    arrays = head.arrays(np.float64)
    own = {name: zeros(arrays) for name in engine.clients}
    for round_number in (1, 2, 3):
        server = {key: 0.1 * rng.normal(size=array.shape) * PRESENT for key, array in arrays.items()}
        for update in engine.train(round_number, arrays, server, engine.clients):
            assert update.control is not None
            for key, array in arrays.items():
                change = -server[key] + (array - update.arrays[key]) / (update.steps * plan.step)
                np.testing.assert_allclose(update.control[key], change, rtol=1e-9, atol=1e-10)
                own[update.client][key] = own[update.client][key] + update.control[key]
    for name, array in engine.state().items():
        client, key = name.removeprefix("control/").rsplit("/head/", 1)
        np.testing.assert_allclose(array, own[client]["head/" + key], rtol=1e-9, atol=1e-10)


def test_law_scaffold_finds_the_optimum_where_fedavg_with_many_local_steps_does_not() -> None:
    """At the optimum of the pooled loss SCAFFOLD stands still once control variates are those of that point."""
    head, parts = start(temperature=1.0), clients(4, {"a": 12, "b": 12, "c": 12})
    pooled = {"all": tuple(np.concatenate([part[i] for part in parts.values()]) for i in (0, 1))}
    central = TuningPlan(lr=1.0, batch_size=0, epochs=3000, weight_decay=0.1)
    best = FeatureEngine(central, head, pooled, None, dtype=np.float64).train(  # type: ignore[arg-type]
        1, head.arrays(np.float64), None, ["all"]
    )[0]
    away = {}
    for optimiser in ("fedavg", "scaffold"):
        plan = TuningPlan(optimiser=optimiser, lr=0.2, batch_size=0, epochs=10, weight_decay=0.1)
        engine = FeatureEngine(plan, head, parts, None, dtype=np.float64)
        found = run(plan, engine, head.arrays(np.float64), 150)
        away[optimiser] = np.abs(found[WEIGHTS] - best.arrays[WEIGHTS]).max()
    assert away["scaffold"] < 1e-6
    assert away["fedavg"] > 1e-3


@pytest.mark.parametrize("optimiser", ["fedavg", "fedprox", "scaffold"])
def test_law_absent_classes_never_change(optimiser: str) -> None:
    plan = TuningPlan(optimiser=optimiser, lr=0.3, batch_size=2, epochs=2, momentum=0.5, weight_decay=0.3)
    head = start()
    engine = FeatureEngine(plan, head, clients(), None)
    arrays, began = head.arrays(), head.arrays()
    server = make_optimiser(plan, engine.samples)
    for round_number in (1, 2):
        updates = engine.train(round_number, arrays, server.control(arrays), engine.clients)
        for update in updates:
            for key, array in arrays.items():
                np.testing.assert_array_equal(update.arrays[key][..., ~PRESENT], array[..., ~PRESENT])
                assert update.control is None or not update.control[key][..., ~PRESENT].any()
        arrays = server.step(round_number, arrays, updates)
    for key, array in began.items():  # averages of equal numbers are rounded
        np.testing.assert_allclose(arrays[key][..., ~PRESENT], array[..., ~PRESENT], rtol=1e-6)
        assert not np.isclose(arrays[key][..., PRESENT], array[..., PRESENT]).any()


@pytest.mark.parametrize("name", ["fedncm", "fed3r", "fedcof", "gh-lda", "gh-nb", "gh-qda", "gh-dlr-qda", "fed3r-rf"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_law_the_first_point_is_the_heads_own_accuracy(name: str, dtype: Any) -> None:
    parts: Parts = {
        client: (X.astype(dtype), y) for client, (X, y) in clients(6, {"a": 60, "b": 50, "c": 70, "d": 30}).items()
    }
    X, y = clients(6, {"test": 500})["test"]
    hyper: dict[str, Any] = {"n_features": 64} if name == "fed3r-rf" else {}
    head = fm.fit(name, parts, n_classes=CLASSES, **hyper)
    first = FeatureEngine(TuningPlan(), begun := start_from(head, name), parts, (X.astype(dtype), y)).test(
        begun.arrays()
    )
    assert first is not None
    assert first.accuracy == float(np.mean(head.predict(X.astype(dtype)) == y))


def test_law_training_lowers_the_loss_and_raises_the_accuracy_of_a_random_start() -> None:
    parts, test = clients(7, {"a": 60, "b": 50, "c": 70}), clients(7, {"a": 60, "b": 50, "c": 70})["c"]
    plan, head = TuningPlan(lr=0.3), random_start(4, PRESENT, seed=0)
    engine = FeatureEngine(plan, head, parts, test)
    before, after = engine.test(head.arrays()), engine.test(run(plan, engine, head.arrays(), 20))
    assert before is not None
    assert after is not None
    assert after.mean_loss < 0.7 * before.mean_loss
    assert after.accuracy > before.accuracy + 0.2


@pytest.mark.parametrize("optimiser", ["fedavg", "scaffold"])
def test_law_a_restored_engine_goes_on_bit_for_bit(optimiser: str) -> None:
    plan = TuningPlan(optimiser=optimiser, lr=0.2, batch_size=3, momentum=0.3)
    head, parts = start(), clients()
    whole = FeatureEngine(plan, head, parts, None)
    arrays = head.arrays()
    control = zeros(arrays) if plan.controlled else None
    for round_number in (1, 2):  # not all clients have control variates when the state is taken
        arrays = mean_of(whole.train(round_number, arrays, control, ["a/b", "big", "odd"]))
    state = {name: array.copy() for name, array in whole.state().items()}
    resumed = FeatureEngine(plan, head, parts, None)
    resumed.restore(state)
    for one, other in zip(
        whole.train(3, arrays, control, whole.clients), resumed.train(3, arrays, control, whole.clients), strict=True
    ):
        assert one.loss == other.loss
        for key in (WEIGHTS, BIAS):
            np.testing.assert_array_equal(one.arrays[key], other.arrays[key])
            if one.control is not None and other.control is not None:
                np.testing.assert_array_equal(one.control[key], other.control[key])
    assert set(state) == (
        {f"control/{client}/{key}" for client in ("a/b", "big", "odd") for key in (WEIGHTS, BIAS)}
        if plan.controlled
        else set()
    )
