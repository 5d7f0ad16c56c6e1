"""The vectorised engine against the rule in plain loops, gradients against differences, and independence of company."""

from typing import Any

import numpy as np
import pytest
from tests.tuning.probing_workshop import CLASSES, DIM, clients, referee, start, zeros

from fedmoments.settings.plan import TuningPlan
from fedmoments.tuning import probing
from fedmoments.tuning.engine import Arrays, Engine
from fedmoments.tuning.probing import FeatureEngine
from fedmoments.tuning.samples import Samples
from fedmoments.tuning.softmax_steps import StepRule, local_steps, softmax_gradients
from fedmoments.tuning.start import BIAS, WEIGHTS, random_start

PLANS = {
    "fedavg": TuningPlan(lr=0.3, batch_size=4),
    "all at once": TuningPlan(lr=0.3, batch_size=0, epochs=3),
    "momentum": TuningPlan(lr=0.1, batch_size=4, epochs=2, momentum=0.8, weight_decay=0.05, validation=0.3),
    "fedprox": TuningPlan(optimiser="fedprox", mu=0.4, lr=0.2, batch_size=2, epochs=2, momentum=0.5),
    "scaffold": TuningPlan(optimiser="scaffold", lr=0.2, batch_size=4, epochs=2, weight_decay=0.02),
    "scaffold with momentum": TuningPlan(optimiser="scaffold", lr=0.05, batch_size=3, epochs=2, momentum=0.9),
}


@pytest.mark.parametrize("kind", ["linear", "diagonal", "quadratic", "low-rank"])
@pytest.mark.parametrize("name", PLANS)
def test_two_rounds_equal_the_rule_in_plain_loops(name: str, kind: str) -> None:
    plan, head, parts = PLANS[name], start(kind), clients()
    engine = FeatureEngine(plan, head, parts, None, dtype=np.float64)
    arrays = head.arrays(np.float64)
    own: dict[str, Arrays] = {client: zeros(arrays) for client in parts}
    rng = np.random.default_rng(0)
    for round_number in (1, 2):
        server: Arrays | None = None
        if plan.controlled:
            server = {key: 0.1 * rng.normal(size=array.shape) for key, array in arrays.items()}
        updates = engine.train(round_number, arrays, server, engine.clients)
        for update in updates:
            mine = parts[update.client]
            now, loss, raw = referee(plan, head, mine, update.client, round_number, arrays, server, own[update.client])
            assert update.samples == engine.samples[update.client]
            assert update.loss == pytest.approx(loss, rel=1e-9)
            for key in (WEIGHTS, BIAS):
                np.testing.assert_allclose(update.arrays[key], now[key], rtol=1e-9, atol=1e-9)
                if update.control is not None:
                    change = raw[key] - own[update.client][key]
                    np.testing.assert_allclose(update.control[key], change, rtol=1e-9, atol=1e-9)
            assert (update.control is not None) == plan.controlled
            own[update.client] = raw
        arrays = {key: array.copy() for key, array in updates[-1].arrays.items()}


def test_float32_follows_float64() -> None:
    plan, head, parts = PLANS["momentum"], start(), clients()
    narrow, wide = (FeatureEngine(plan, head, parts, None, dtype=dtype) for dtype in (np.float32, np.float64))
    pairs = zip(
        narrow.train(1, head.arrays(), None, narrow.clients),
        wide.train(1, head.arrays(np.float64), None, wide.clients),
        strict=True,
    )
    for one, other in pairs:
        assert one.arrays[WEIGHTS].dtype == np.float32
        np.testing.assert_allclose(one.arrays[WEIGHTS], other.arrays[WEIGHTS], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["linear", "quadratic"])
def test_gradients_are_slopes_of_the_loss(kind: str) -> None:
    head = start(kind, temperature=0.3)
    X, y = clients()["big"]
    samples = Samples.of(head, [("big", X, y)], np.float64)
    rng, rows = np.random.default_rng(1), np.arange(len(y))[None]
    theta = rng.normal(size=(1, head.width + 1, CLASSES))
    gradient, unused, step = np.empty_like(theta), np.empty_like(theta), 1e-5
    softmax_gradients(samples, rows, theta, head.temperature, gradient)
    for place in np.ndindex(theta.shape):
        moved = [theta.copy(), theta.copy()]
        moved[0][place] += step
        moved[1][place] -= step
        up, down = (softmax_gradients(samples, rows, each, head.temperature, unused)[0] for each in moved)
        assert gradient[place] == pytest.approx((up - down) / (2 * step), rel=1e-5, abs=1e-7)


# -------------------------------------------------------------------------------------------------- company


def fingerprint(engine: Engine, arrays: Arrays, control: Arrays | None, names: list[str]) -> dict[str, bytes]:
    updates = engine.train(3, arrays, control, names)
    return {
        u.client: b"".join(array.tobytes() for array in {**u.arrays, **(u.control or {})}.values()) for u in updates
    }


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", PLANS)
def test_law_a_client_trains_the_same_alone_and_beside_others(name: str, dtype: Any) -> None:
    sizes = {f"client {place}": size for place, size in enumerate([3, 40, 33, 33, 8, 8, 8, 64, 1, 65, 1, 90])}
    plan, head, parts = PLANS[name], start(), clients(1, sizes)
    arrays = head.arrays(dtype)
    control = zeros(arrays) if plan.controlled else None
    together = FeatureEngine(plan, head, parts, None, dtype=dtype)
    found = fingerprint(together, arrays, control, list(parts))
    for client in parts:
        alone = FeatureEngine(plan, head, {client: parts[client]}, None, dtype=dtype)
        assert fingerprint(alone, arrays, control, [client])[client] == found[client]


def test_law_a_client_trains_the_same_alone_and_beside_others_in_many_dimensions() -> None:
    rng = np.random.default_rng(0)
    n_classes, dim = 77, 384
    sizes = [64, 31, 64, 32, 90, 32, 5, 1]
    parts = {
        str(i): (rng.normal(size=(n, dim)).astype(np.float32), rng.integers(n_classes, size=n))
        for i, n in enumerate(sizes)
    }
    head, plan = random_start(dim, np.ones(n_classes, bool), seed=0), TuningPlan(lr=0.1)
    together = fingerprint(FeatureEngine(plan, head, parts, None), head.arrays(), None, list(parts))
    for client, mine in parts.items():
        alone = FeatureEngine(plan, head, {client: mine}, None)
        assert fingerprint(alone, head.arrays(), None, [client])[client] == together[client]


@pytest.mark.parametrize("numbers", [1, 2 * (DIM + 1) * CLASSES, 1 << 18])
def test_law_how_many_clients_step_together_changes_nothing(numbers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, head, parts = PLANS["scaffold with momentum"], start(), clients()
    engine = FeatureEngine(plan, head, parts, None)
    arrays = head.arrays()
    expected = fingerprint(engine, arrays, zeros(arrays), list(engine.clients))
    monkeypatch.setattr(probing, "GROUP_NUMBERS", numbers)
    again = FeatureEngine(plan, head, parts, None)
    assert fingerprint(again, arrays, zeros(arrays), list(again.clients)[::-1]) == expected


def test_clients_need_not_be_in_order_of_their_samples() -> None:
    head, parts = start(), clients(2, {"a": 3, "b": 9, "c": 3})
    samples = Samples.of(head, [(name, *part) for name, part in parts.items()], np.float64)
    rows = [[np.arange(3)], [np.arange(3, 8), np.arange(8, 12)], [np.arange(12, 15)]]
    theta = np.zeros((DIM + 1, CLASSES))
    together = local_steps(samples, rows, theta, StepRule(0.5, 1.0))
    for place, mine in enumerate(rows):
        alone = local_steps(samples, [mine], theta, StepRule(0.5, 1.0))
        np.testing.assert_array_equal(alone.parameters[0], together.parameters[place])
        assert alone.losses[0] == together.losses[place]
        assert together.gradients is None
