"""The server's steps against their formulas in plain numpy, and the laws among them."""

import numpy as np
import pytest

from fedmoments.errors import InputError
from fedmoments.settings.optimisers import OPTIMISERS
from fedmoments.settings.plan import TuningPlan
from fedmoments.tuning.engine import AVERAGED, Arrays, Update
from fedmoments.tuning.optimisers import FlowerStrategy, Scaffold, make_optimiser

SIZES = {"a": 5, "b": 1, "c": 9}


def updates(
    arrays: Arrays, seed: int, clients: tuple[str, ...] = ("a", "b", "c"), *, control: bool = False
) -> list[Update]:
    rng = np.random.default_rng(seed)
    made = []
    for client in clients:
        moved = {n: (a + rng.normal(size=a.shape)).astype(a.dtype) for n, a in arrays.items()}
        change: Arrays = {n: rng.normal(size=a.shape) for n, a in arrays.items() if not n.startswith(AVERAGED)}
        made.append(Update(client, SIZES[client], 2, 0.3, moved, change if control else None))
    return made


def start(dtype: type = np.float64) -> Arrays:
    rng = np.random.default_rng(7)
    return {"head/weights": rng.normal(size=(4, 3)).astype(dtype), "head/bias": rng.normal(size=3).astype(dtype)}


def mean_change(arrays: Arrays, sent: list[Update]) -> Arrays:
    total = sum(u.samples for u in sent)
    return {n: sum(u.samples / total * (u.arrays[n] - a) for u in sent) for n, a in arrays.items()}  # type: ignore[misc]


def test_fedavg_is_the_mean_by_samples() -> None:
    now = start()
    sent = updates(now, 0)
    change = mean_change(now, sent)
    found = make_optimiser(TuningPlan(optimiser="fedavg"), SIZES).step(1, now, sent)
    for name, array in found.items():
        np.testing.assert_allclose(array, now[name] + change[name], rtol=1e-12)


def test_fedavgm_follows_its_formula_over_rounds() -> None:
    plan = TuningPlan(optimiser="fedavgm", server_momentum=0.8, server_lr=0.5)
    optimiser, now = make_optimiser(plan, SIZES), start()
    expected, velocity = dict(now), None
    for number in range(1, 5):
        sent = updates(now, number)
        change = mean_change(now, sent)
        velocity = change if velocity is None else {n: 0.8 * velocity[n] + change[n] for n in change}
        expected = {n: now[n] + 0.5 * velocity[n] for n in now}
        now = optimiser.step(number, now, sent)
        for name in now:
            np.testing.assert_allclose(now[name], expected[name], rtol=1e-10)


def test_fedadam_follows_its_formula_over_rounds() -> None:
    plan = TuningPlan(optimiser="fedadam", server_lr=0.1)
    optimiser, now = make_optimiser(plan, SIZES), start()
    m = {n: np.zeros_like(a) for n, a in now.items()}
    v = {n: np.zeros_like(a) for n, a in now.items()}
    for number in range(1, 5):
        sent = updates(now, number)
        change = mean_change(now, sent)
        m = {n: 0.9 * m[n] + 0.1 * change[n] for n in m}
        v = {n: 0.999 * v[n] + 0.001 * change[n] ** 2 for n in v}
        eta = 0.1 * np.sqrt(1 - 0.999 ** (number + 1)) / (1 - 0.9 ** (number + 1))
        expected = {n: now[n] + eta * m[n] / (np.sqrt(v[n]) + 1e-3) for n in now}
        now = optimiser.step(number, now, sent)
        for name in now:
            np.testing.assert_allclose(now[name], expected[name], rtol=1e-9)


@pytest.mark.parametrize(
    "other", [TuningPlan(optimiser="fedprox"), TuningPlan(optimiser="fedavgm", server_momentum=0.0)]
)
def test_fedprox_and_fedavgm_without_momentum_merge_as_fedavg_bit_for_bit(other: TuningPlan) -> None:
    now = start(np.float32)
    one, two = make_optimiser(TuningPlan(optimiser="fedavg"), SIZES), make_optimiser(other, SIZES)
    left, right = dict(now), dict(now)
    for number in range(1, 4):
        left, right = one.step(number, left, updates(left, number)), two.step(number, right, updates(right, number))
    for name in now:
        np.testing.assert_array_equal(left[name], right[name])


def test_a_server_learning_rate_scales_the_step_of_fedavg() -> None:
    now = start()
    sent = updates(now, 3)
    found = make_optimiser(TuningPlan(optimiser="fedavg", server_lr=0.25), SIZES).step(1, now, sent)
    for name, change in mean_change(now, sent).items():
        np.testing.assert_allclose(found[name], now[name] + 0.25 * change, rtol=1e-12)


def test_control_variates_of_the_server_are_the_clients_mean_whoever_takes_part() -> None:
    rng = np.random.default_rng(0)
    optimiser, now = Scaffold(TuningPlan(optimiser="scaffold"), SIZES), start()
    own = {client: {n: np.zeros_like(a) for n, a in now.items()} for client in SIZES}
    total = sum(SIZES.values())
    for number in range(1, 8):
        chosen = tuple(rng.choice(list(SIZES), size=rng.integers(1, 4), replace=False))
        sent = updates(now, number, chosen, control=True)
        now = optimiser.step(number, now, sent)
        for update in sent:
            assert update.control is not None
            own[update.client] = {n: own[update.client][n] + update.control[n] for n in now}
        for name, array in optimiser.control(now).items():
            np.testing.assert_allclose(array, sum(SIZES[c] / total * own[c][name] for c in SIZES), atol=1e-12)


def test_scaffold_moves_parameters_as_fedavg_does() -> None:
    now = start()
    sent = updates(now, 5, control=True)
    one = make_optimiser(TuningPlan(optimiser="fedavg"), SIZES).step(1, now, sent)
    two = make_optimiser(TuningPlan(optimiser="scaffold"), SIZES).step(1, now, sent)
    half = make_optimiser(TuningPlan(optimiser="scaffold", server_lr=0.5), SIZES).step(1, now, sent)
    for name in now:
        np.testing.assert_array_equal(one[name], two[name])
        np.testing.assert_allclose(half[name], (now[name] + one[name]) / 2, rtol=1e-12)


@pytest.mark.parametrize("name", OPTIMISERS)
def test_running_values_are_averaged_and_never_optimised(name: str) -> None:
    now = {**start(), f"{AVERAGED}encoder/bn.running_var": np.full(3, 1e-3)}
    sent = [
        Update(c, n, 1, 0.1, {**{k: a + 1 for k, a in now.items()}, f"{AVERAGED}encoder/bn.running_var": np.full(3, v)},
               start() if OPTIMISERS[name].controlled else None)
        for (c, n), v in zip(SIZES.items(), (1e-4, 2e-4, 3e-4), strict=True)
    ]  # fmt: skip
    optimiser = make_optimiser(TuningPlan(optimiser=name), SIZES)
    for number in range(1, 6):
        found = optimiser.step(number, now, sent)[f"{AVERAGED}encoder/bn.running_var"]
        np.testing.assert_allclose(found, np.full(3, (5 * 1e-4 + 2e-4 + 9 * 3e-4) / 15), rtol=1e-12)


@pytest.mark.parametrize("name", OPTIMISERS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_restored_optimiser_goes_on_bit_for_bit(name: str, dtype: type) -> None:
    plan, now = TuningPlan(optimiser=name), start(dtype)
    control = OPTIMISERS[name].controlled
    whole, half = make_optimiser(plan, SIZES), make_optimiser(plan, SIZES)
    left, right = dict(now), dict(now)
    for number in range(1, 3):
        left = whole.step(number, left, updates(left, number, control=control))
        right = half.step(number, right, updates(right, number, control=control))
    again = make_optimiser(plan, SIZES)
    again.restore(dict(sorted(half.state().items())))  # a file keeps names, not their order
    for number in range(3, 6):
        left = whole.step(number, left, updates(left, number, control=control))
        right = again.step(number, right, updates(right, number, control=control))
    for each in now:
        assert left[each].dtype == dtype
        np.testing.assert_array_equal(left[each], right[each])


def test_flower_is_asked_where_it_has_the_strategy() -> None:
    from flwr.serverapp import strategy

    for name, kind in (("fedavg", "FedAvg"), ("fedavgm", "FedAvgM"), ("fedadam", "FedAdam"), ("fedprox", "FedProx")):
        assert type(FlowerStrategy(TuningPlan(optimiser=name))._strategy) is getattr(strategy, kind)


def test_a_round_without_updates_and_odd_updates_are_refused() -> None:
    now = start()
    for name in ("fedavg", "scaffold"):
        optimiser = make_optimiser(TuningPlan(optimiser=name), SIZES)
        with pytest.raises(InputError, match="no client sent an update"):
            optimiser.step(1, now, [])
        with pytest.raises(InputError, match="client a sent other arrays"):
            optimiser.step(1, now, [Update("a", 5, 1, 0.1, {"x": np.zeros(2)})])
        with pytest.raises(InputError, match="no weight"):
            optimiser.step(1, now, [Update("a", 0, 1, 0.1, now)])
    with pytest.raises(InputError, match="control variates"):
        optimiser.step(1, now, [Update("a", 5, 1, 0.1, now)])
    with pytest.raises(InputError, match="5 were announced"):
        optimiser.step(1, now, [Update("a", 6, 1, 0.1, now, control=start())])
