"""FedYogi, FedDyn, MimeLite and Mime: formulas in plain numpy, and the laws that say what they must equal."""

from typing import Any

import numpy as np
import pytest
from tests.tuning.probing_workshop import PRESENT, clients, start

from fedmoments.errors import InputError, UnknownNameError
from fedmoments.settings.optimisers import Optimiser
from fedmoments.settings.plan import TuningPlan
from fedmoments.tuning.draws import batches
from fedmoments.tuning.engine import Arrays, Update
from fedmoments.tuning.optimisers import make_optimiser
from fedmoments.tuning.probing import FeatureEngine
from fedmoments.tuning.start import BIAS, WEIGHTS

SIZES = {"a": 5, "b": 1, "c": 9}
NAMES = (WEIGHTS, BIAS)


def run(plan: TuningPlan, rounds: int, drawn: Any = None) -> tuple[Arrays, FeatureEngine, Any]:
    """Return what rounds end with; ``drawn`` says who takes part in one."""
    head = start()
    engine = FeatureEngine(plan, head, clients(), None, dtype=np.float64)
    optimiser, arrays = make_optimiser(plan, engine.samples), head.arrays(np.float64)
    for number in range(1, rounds + 1):
        names = engine.clients if drawn is None else drawn(number, engine.clients)
        control = optimiser.control(arrays)
        if plan.asks_first:
            control = optimiser.informed(arrays, engine.train(number, arrays, None, names))
        arrays = optimiser.step(number, arrays, engine.train(number, arrays, control, names))
    return arrays, engine, optimiser


def pooled() -> tuple[np.ndarray, np.ndarray]:
    parts = clients().values()
    return np.concatenate([X for X, _ in parts]), np.concatenate([y for _, y in parts])


def gradient(X: np.ndarray, y: np.ndarray, arrays: Arrays, temperature: float) -> Arrays:
    """Return the gradient of the mean cross-entropy, written down from its definition, class by class."""
    scores = (X @ arrays[WEIGHTS] + arrays[BIAS]) / temperature
    scores[:, ~PRESENT] = -np.inf
    p = np.exp(scores - scores.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    p[np.arange(len(y)), y] -= 1.0
    return {WEIGHTS: X.T @ p / (len(y) * temperature), BIAS: p.mean(axis=0) / temperature}


def test_fedyogi_follows_its_formula_over_rounds_number_by_number() -> None:
    plan = TuningPlan(optimiser="fedyogi", server_lr=0.1, beta_1=0.8, beta_2=0.9, tau=0.01)
    optimiser, rng = make_optimiser(plan, SIZES), np.random.default_rng(0)
    w: Any = rng.normal(size=4)
    expected, m, v = w.tolist(), [0.0] * 4, [0.01**2] * 4
    for number in range(1, 7):
        sent = [Update(name, n, 1, 0.1, {"w": w + rng.normal(size=4)}) for name, n in SIZES.items()]
        for i in range(4):
            change = sum(u.samples * (u.arrays["w"][i] - w[i]) for u in sent) / 15
            m[i] = 0.8 * m[i] + 0.2 * change
            grows = 1.0 if change**2 > v[i] else -1.0 if change**2 < v[i] else 0.0
            before, v[i] = v[i], v[i] + 0.1 * change**2 * grows
            assert abs(v[i] - before) <= 0.1 * change**2 + 1e-15
            assert v[i] >= 0
            expected[i] = expected[i] + 0.1 * m[i] / (v[i] ** 0.5 + 0.01)
        w = optimiser.step(number, {"w": w}, sent)["w"]
        np.testing.assert_allclose(w, expected, rtol=1e-9)


@pytest.mark.parametrize(
    "other", [{"optimiser": "feddyn", "alpha": 0.0}, {"optimiser": "mimelite", "server_momentum": 0.0}]
)
def test_law_without_penalty_or_momentum_the_rounds_are_fedavgs_bit_for_bit(other: dict[str, Any]) -> None:
    common: dict[str, Any] = {"lr": 0.2, "batch_size": 2, "epochs": 2, "momentum": 0.5, "weight_decay": 0.01}
    one, two = (run(TuningPlan(**common, **more), 4)[0] for more in ({"optimiser": "fedavg"}, other))
    for name in NAMES:
        np.testing.assert_array_equal(one[name], two[name])


def test_law_feddyns_server_holds_the_mean_of_what_clients_keep_whoever_took_part() -> None:
    plan = TuningPlan(optimiser="feddyn", alpha=0.3, lr=0.1, batch_size=3, epochs=2)

    def drawn(number: int, names: Any) -> list[str]:
        return [name for place, name in enumerate(names) if (place + number) % 2]

    _, engine, optimiser = run(plan, 5, drawn)
    total, kept, moved = sum(engine.samples.values()), engine.state(), optimiser.state()
    for name in NAMES:
        mean = sum(n / total * kept.get(f"control/{client}/{name}", 0.0) for client, n in engine.samples.items())
        np.testing.assert_allclose(-plan.alpha * moved[name], mean, rtol=1e-9, atol=1e-12)
        assert np.abs(mean).max() > 1e-4


@pytest.mark.parametrize(
    "other", [{"optimiser": "feddyn", "alpha": 1.0}, {"optimiser": "mime", "server_momentum": 0.0, "server_lr": 0.5}]
)
def test_law_rounds_end_at_the_solution_of_pooled_data_where_fedavg_drifts(other: dict[str, Any]) -> None:
    X, y = pooled()
    left = {}
    for more in ({"optimiser": "fedavg"}, other):
        optimiser = more["optimiser"]
        plan = TuningPlan(**more, lr=0.1, batch_size=0, epochs=25, weight_decay=0.1)
        arrays, engine, _ = run(plan, 60)
        slope = gradient(engine.start.inputs(X, np.float64), y, arrays, engine.start.temperature)
        left[optimiser] = max(float(np.abs(slope[name] + 0.1 * PRESENT * arrays[name]).max()) for name in NAMES)
    assert left[other["optimiser"]] < 1e-3
    assert left[other["optimiser"]] < 0.01 * left["fedavg"]


def test_mimelite_follows_its_formula() -> None:
    plan = TuningPlan(optimiser="mimelite", server_momentum=0.7, server_lr=0.5, lr=0.2, batch_size=0, epochs=2)
    found, engine, _ = run(plan, 3)
    head, parts, T = engine.start, clients(), engine.start.temperature
    samples = {name: (head.inputs(X, np.float64), y) for name, (X, y) in parts.items() if len(y)}
    total = sum(len(y) for _, y in samples.values())
    w, m = head.arrays(np.float64), {name: np.zeros_like(a) for name, a in head.arrays(np.float64).items()}
    for _ in range(3):
        ends, firsts = {name: 0.0 * w[name] for name in NAMES}, {name: 0.0 * w[name] for name in NAMES}
        for X, y in samples.values():
            own = dict(w)
            for _ in range(2):
                g = gradient(X, y, own, T)
                own = {name: own[name] - 0.2 * (0.3 * g[name] + 0.7 * m[name]) for name in NAMES}
            first = gradient(X, y, w, T)
            for name in NAMES:
                ends[name] += len(y) / total * own[name]
                firsts[name] += len(y) / total * first[name]
        w, m = (
            {name: w[name] + 0.5 * (ends[name] - w[name]) for name in NAMES},
            {name: 0.7 * m[name] + 0.3 * firsts[name] for name in NAMES},
        )
    for name in NAMES:
        np.testing.assert_allclose(found[name], w[name], rtol=1e-9, atol=1e-11)


def test_mime_follows_its_formula_batch_by_batch_whoever_takes_part() -> None:
    numbers: dict[str, Any] = {"server_momentum": 0.7, "server_lr": 0.5, "lr": 0.2, "momentum": 0.4}
    plan = TuningPlan(optimiser="mime", **numbers, batch_size=3, epochs=2, weight_decay=0.05)

    def drawn(number: int, names: Any) -> list[str]:
        return [name for place, name in enumerate(names) if (place + number) % 3]

    found, engine, _ = run(plan, 3, drawn)
    head, parts, T = engine.start, clients(), engine.start.temperature
    samples = {name: (head.inputs(X, np.float64), y) for name, (X, y) in parts.items() if len(y)}

    def slope(X: Any, y: Any, arrays: Arrays) -> Arrays:
        raw = gradient(X, y, arrays, T)
        return {name: raw[name] + 0.05 * PRESENT * arrays[name] for name in NAMES}

    w, m = head.arrays(np.float64), {name: np.zeros_like(a) for name, a in head.arrays(np.float64).items()}
    for number in (1, 2, 3):
        names = drawn(number, engine.clients)
        total = sum(len(samples[name][1]) for name in names)
        told = {name: slope(*samples[name], w) for name in names}
        c = {k: sum(len(samples[name][1]) / total * told[name][k] for name in names) for k in NAMES}
        ends = {k: 0.0 * w[k] for k in NAMES}
        for name in names:
            X, y = samples[name]
            own, velocity = dict(w), {k: 0.0 * w[k] for k in NAMES}
            drawn_rows = batches(len(y), 3, seed=plan.seed, round_number=number, client=name, epochs=2)
            for rows in drawn_rows:
                here, there = slope(X[rows], y[rows], own), slope(X[rows], y[rows], w)
                step = {k: 0.3 * (here[k] - there[k] + c[k]) + 0.7 * m[k] for k in NAMES}
                velocity = {k: 0.4 * velocity[k] + step[k] for k in NAMES}
                own = {k: own[k] - 0.2 * velocity[k] for k in NAMES}
            ends = {k: ends[k] + len(y) / total * own[k] for k in NAMES}
        w, m = (
            {k: w[k] + 0.5 * (ends[k] - w[k]) for k in NAMES},
            {k: 0.7 * m[k] + 0.3 * c[k] for k in NAMES},
        )
    for name in NAMES:
        np.testing.assert_allclose(found[name], w[name], rtol=1e-9, atol=1e-11)
        assert np.abs(found[name] - head.arrays(np.float64)[name]).max() > 1e-3


def test_what_does_not_belong_is_refused() -> None:
    with pytest.raises(InputError, match="feddyn has no learning rate of the server"):
        make_optimiser(TuningPlan(optimiser="feddyn", server_lr=0.1), SIZES)
    now: Arrays = {"w": np.zeros(2)}
    with pytest.raises(InputError, match="trained on 4 samples, but 5 were announced"):
        make_optimiser(TuningPlan(optimiser="feddyn"), SIZES).step(1, now, [Update("a", 4, 1, 0.1, now)])
    with pytest.raises(InputError, match="client a sent no gradient"):
        make_optimiser(TuningPlan(optimiser="mimelite"), SIZES).step(1, now, [Update("a", 5, 1, 0.1, now)])
    with pytest.raises(InputError, match="client a sent no gradient of its samples, which mime needs"):
        make_optimiser(TuningPlan(optimiser="mime"), SIZES).informed(now, [Update("a", 5, 0, 0.1, {})])
    with pytest.raises(InputError, match="no client sent its gradient"):
        make_optimiser(TuningPlan(optimiser="mime"), SIZES).informed(now, [])
    with pytest.raises(InputError, match="'fedavg' has one exchange a round"):
        make_optimiser(TuningPlan(), SIZES).informed(now, [])
    with pytest.raises(UnknownNameError, match="rule of a client's steps"):
        Optimiser("mine", make_optimiser, local="scafold")
