"""The rounds: laws over optimisers, resuming, early stop, what is charged."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedmoments as fm
from fedmoments.errors import InputError
from fedmoments.tuning import OPTIMISERS, TuningPlan
from fedmoments.tuning.draws import drawn_clients
from fedmoments.tuning.engine import Arrays
from fedmoments.tuning.loop import Tuned, run_rounds
from fedmoments.tuning.prices import Bill, Prices
from fedmoments.tuning.probing import FeatureEngine
from fedmoments.tuning.start import BIAS, WEIGHTS, Start, random_start, start_from

C, D = 4, 6
Parts = dict[str, tuple[np.ndarray, np.ndarray]]


def world(seed: int = 0, clients: int = 7, spread: float = 1.5) -> tuple[Parts, tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(C, D)) * spread

    def draw(n: int, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        y = rng.choice(C, size=n, p=weights)
        return (centres[y] + rng.normal(size=(n, D))).astype(np.float32), y

    parts = {f"client-{k}": draw(int(rng.integers(3, 40)), rng.dirichlet(np.full(C, 0.5))) for k in range(clients)}
    return parts, draw(200, np.full(C, 1 / C))


def begin(parts: Parts, name: str = "fedncm", seed: int = 0) -> Start:
    if name == "random":
        return random_start(D, np.ones(C, bool), seed=seed)
    return start_from(fm.fit(name, parts, n_classes=C), name)


def run(
    plan: TuningPlan,
    start: Start,
    parts: Parts,
    test: tuple[np.ndarray, np.ndarray],
    dtype: type = np.float32,
    **more: Any,
) -> Tuned:
    engine = FeatureEngine(plan, start, parts, test, dtype=dtype)
    return run_rounds(plan, engine, start.arrays(dtype), prices=Prices(start.width, C, encoder_flops=10.0), **more)


def test_fedavg_with_one_local_step_and_everybody_is_centralised_gradient_descent() -> None:
    parts, test = world()
    start = begin(parts, "random")
    plan = TuningPlan(rounds=5, lr=0.3, batch_size=0, weight_decay=0.01)
    found = run(plan, start, parts, test, np.float64)
    X = np.concatenate([X for X, _ in parts.values()]).astype(np.float64)
    y = np.concatenate([y for _, y in parts.values()])
    W, b = start.arrays(np.float64)[WEIGHTS], start.arrays(np.float64)[BIAS]
    for _ in range(5):
        scores = X @ W + b
        p = np.exp(scores - scores.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        slope = (p - np.eye(C)[y]) / len(y)
        W, b = W - 0.3 * (X.T @ slope + 0.01 * W), b - 0.3 * (slope.sum(axis=0) + 0.01 * b)
    np.testing.assert_allclose(found.arrays[WEIGHTS], W, atol=1e-10)
    np.testing.assert_allclose(found.arrays[BIAS], b, atol=1e-10)


@pytest.mark.parametrize(
    "other",
    [{"optimiser": "fedprox", "mu": 0.0}, {"optimiser": "fedavgm", "server_momentum": 0.0}],
    ids=["fedprox with mu 0", "fedavgm with momentum 0"],
)
def test_is_fedavg_bit_for_bit(other: dict[str, Any]) -> None:
    parts, test = world()
    plans = [
        TuningPlan(rounds=6, lr=0.1, batch_size=8, fraction=0.5),
        TuningPlan(rounds=6, lr=0.1, batch_size=8, fraction=0.5, **other),
    ]
    one, two = (run(plan, begin(parts), parts, test) for plan in plans)
    for name in one.arrays:
        np.testing.assert_array_equal(one.arrays[name], two.arrays[name])
    assert [p.accuracy for p in one.points] == [p.accuracy for p in two.points]


def test_fedprox_with_a_mu_above_0_is_not_fedavg_and_stays_nearer_to_the_start() -> None:
    parts, test = world()
    start = begin(parts)
    moved = {}
    for mu in (0.0, 1.0, 10.0):
        plan = TuningPlan(rounds=1, lr=0.05, batch_size=4, epochs=5, optimiser="fedprox", mu=mu)
        arrays = run(plan, start, parts, test).arrays
        moved[mu] = float(np.linalg.norm(arrays[WEIGHTS] - start.arrays()[WEIGHTS]))
    assert moved[0.0] > moved[1.0] > moved[10.0]


def test_scaffold_with_identical_clients_is_fedavg() -> None:
    parts, test = world()
    same = {f"client-{k}": parts["client-0"] for k in range(5)}
    start = begin(same, "random")
    common: dict[str, Any] = {"rounds": 6, "lr": 0.2, "batch_size": 0, "epochs": 3}
    one = run(TuningPlan(optimiser="fedavg", **common), start, same, test, np.float64)
    two = run(TuningPlan(optimiser="scaffold", **common), start, same, test, np.float64)
    for name in one.arrays:
        np.testing.assert_allclose(one.arrays[name], two.arrays[name], atol=1e-12)


def test_scaffold_gets_nearer_to_the_optimum_than_fedavg_where_clients_differ() -> None:
    parts, test = world(3, spread=0.7)
    start = begin(parts, "random")
    X = np.concatenate([X for X, _ in parts.values()]).astype(np.float64)
    y = np.concatenate([y for _, y in parts.values()])
    common: dict[str, Any] = {"batch_size": 0, "weight_decay": 0.05, "test_every": 1000}

    def objective(arrays: Arrays) -> float:
        scores = X @ arrays[WEIGHTS] + arrays[BIAS]
        top = scores.max(axis=1)
        loss = np.log(np.exp(scores - top[:, None]).sum(axis=1)) + top - scores[np.arange(len(y)), y]
        return float(loss.mean()) + 0.025 * sum(float((array**2).sum()) for array in arrays.values())

    def reached(**numbers: Any) -> float:
        return objective(run(TuningPlan(**common, **numbers), start, parts, test, np.float64).arrays)

    best = reached(rounds=400, lr=0.6)
    gaps = {name: reached(rounds=150, lr=0.1, epochs=10, optimiser=name) - best for name in ("fedavg", "scaffold")}
    assert 0 <= gaps["scaffold"] < 0.02 * gaps["fedavg"]


@pytest.mark.parametrize("name", ["fedncm", "fedcof", "gh-lda", "gh-qda", "gh-nb"])
def test_the_first_point_of_a_curve_is_the_heads_own_accuracy(name: str) -> None:
    parts, test = world(1, clients=30)
    head = fm.fit(name, parts, n_classes=C)
    found = run(TuningPlan(rounds=1), start_from(head, name), parts, test)
    assert found.points[0].accuracy == (head.predict(test[0]) == test[1]).mean()


class Stop(Exception):
    pass


def stop_after(rounds: int) -> Callable[[int, int, str], None]:
    def say(done: int, _total: int, _told: str) -> None:
        if done == rounds:
            raise Stop

    return say


@pytest.mark.parametrize("optimiser", OPTIMISERS)
def test_an_interrupted_run_goes_on_bit_for_bit(optimiser: str, tmp_path: Path) -> None:
    parts, test = world()
    start = begin(parts)
    plan = TuningPlan(
        rounds=9, lr=0.1, momentum=0.5, batch_size=4, fraction=0.6, optimiser=optimiser, validation=0.2, check_every=2
    )
    whole = run(plan, start, parts, test)
    file = tmp_path / "run.checkpoint"
    for at in (1, 4, 5, 8):
        with pytest.raises(Stop):
            run(plan, start, parts, test, checkpoint=file, progress=stop_after(at))
    found = run(plan, start, parts, test, checkpoint=file)
    assert found.resumed == 8
    assert found.points == whole.points
    assert (found.best_round, found.stopped) == (whole.best_round, whole.stopped)
    for name in whole.arrays:
        np.testing.assert_array_equal(found.arrays[name], whole.arrays[name])


def test_a_checkpoint_of_another_run_is_refused_and_kept(tmp_path: Path) -> None:
    parts, test = world()
    file = tmp_path / "run.checkpoint"
    run(TuningPlan(rounds=2, lr=0.1), begin(parts), parts, test, checkpoint=file)
    before = file.read_bytes()
    with pytest.raises(InputError, match="checkpoint of another run"):
        run(TuningPlan(rounds=2, lr=0.2), begin(parts), parts, test, checkpoint=file)
    with pytest.raises(InputError, match="checkpoint of another run"):
        run(TuningPlan(rounds=2, lr=0.1), begin(parts), parts, test, checkpoint=file, basis="other data")
    with pytest.raises(InputError, match="is of round 2, but 1 rounds"):
        run(TuningPlan(rounds=1, lr=0.1), begin(parts), parts, test, checkpoint=file)
    assert file.read_bytes() == before
    more = run(TuningPlan(rounds=4, lr=0.1), begin(parts), parts, test, checkpoint=file)
    whole = run(TuningPlan(rounds=4, lr=0.1), begin(parts), parts, test)
    np.testing.assert_array_equal(more.arrays[WEIGHTS], whole.arrays[WEIGHTS])


def test_it_stops_early_and_returns_the_best_check() -> None:
    parts, test = world(5, clients=12)
    plan = TuningPlan(rounds=400, lr=3.0, batch_size=2, validation=0.3, check_every=3, patience=4)
    found = run(plan, begin(parts), parts, test)
    assert found.stopped is not None
    assert "no better validation in 4 checks" in found.stopped
    assert found.points[-1].round < 400
    checks = [p for p in found.points if p.validation is not None]
    best = max(checks, key=lambda p: (p.validation, -(p.validation_loss or 0)))
    assert found.best_round == best.round == found.result.round
    assert [p.round for p in checks] == list(range(0, found.points[-1].round + 1, 3))
    assert checks[-1].round - best.round == 12
    engine = FeatureEngine(plan, begin(parts), parts, test)
    assert engine.validate(found.arrays).accuracy == best.validation


def test_a_validation_share_without_a_sample_is_refused() -> None:
    parts, test = world()
    tiny = {name: (X[:3], y[:3]) for name, (X, y) in parts.items()}
    with pytest.raises(InputError, match="no client has a sample in its validation share"):
        run(TuningPlan(rounds=2, validation=0.1), begin(parts), tiny, test)


def test_a_run_that_diverges_stops_and_keeps_what_it_had() -> None:
    parts, test = world()
    found = run(TuningPlan(rounds=50, lr=1e30, weight_decay=1e20), begin(parts), parts, test)
    assert found.stopped is not None
    assert "diverged" in found.stopped
    assert all(np.isfinite(array).all() for array in found.arrays.values())


def test_a_round_is_tested_only_when_it_is_due() -> None:
    parts, test = world()
    found = run(TuningPlan(rounds=7, test_every=3, lr=0.1), begin(parts), parts, test)
    assert [p.round for p in found.points if p.accuracy is not None] == [0, 3, 6, 7]


@pytest.mark.parametrize(
    ("optimiser", "up", "down"), [("fedavg", 1, 1), ("fedadam", 1, 1), ("scaffold", 2, 2), ("mime", 2, 3)]
)
def test_bytes_measured_and_by_formula_agree_up_to_the_header(optimiser: str, up: int, down: int) -> None:
    parts, test = world()
    plan = TuningPlan(rounds=3, fraction=0.5, optimiser=optimiser)
    found = run(plan, begin(parts), parts, test)
    last, uploads = found.points[-1], 3 * plan.per_round(len(parts))
    numbers = 4 * (D * C + C) * uploads
    assert (last.up_formula, last.down_formula) == (up * numbers, down * numbers)
    for copies, measured in ((up, last.up), (down, last.down)):
        assert copies * numbers < measured < copies * numbers + 1200 * uploads * (1 + (optimiser == "mime"))


def test_every_check_is_charged_one_download_and_one_score_of_every_client() -> None:
    parts, test = world()
    common: dict[str, Any] = {"rounds": 4, "fraction": 0.5, "validation": 0.3}
    often, seldom = (run(TuningPlan(**common, check_every=every), begin(parts), parts, test).points for every in (1, 4))
    model = 4 * (D * C + C)
    for point, other in zip(often, seldom, strict=True):
        more = point.round if point.round < 4 else 3  # checks beyond those in rounds 0 and 4
        assert point.up - other.up == 24 * len(parts) * more
        assert model * len(parts) * more <= point.down - other.down <= (model + 1200) * len(parts) * more
        assert (point.up_formula, point.down_formula) == (other.up_formula, other.down_formula)


def test_flops_follow_the_formula_of_linear_probing() -> None:
    parts, test = world()
    plan = TuningPlan(rounds=2, epochs=3)
    found = run(plan, begin(parts), parts, test)
    samples = sum(len(y) for _, y in parts.values())
    assert found.points[-1].flops == 2 * 3 * samples * (10.0 + 3 * D * C)


def test_a_start_that_cost_something_is_charged_from_the_first_point_on() -> None:
    parts, test = world()
    start, plan = begin(parts), TuningPlan(rounds=1)
    engine = FeatureEngine(plan, start, parts, test)
    prices = Prices(D, C, start=Bill(1000, 10, 900.0, 0.0, 7.0), encoder_flops=0.0)
    first = run_rounds(plan, engine, start.arrays(), prices=prices).points[0]
    assert (first.up, first.down, first.up_formula, first.flops) == (1000, 10, 900.0, 7.0)


def test_what_is_sent_once_is_charged_to_each_client_once_also_after_an_interruption(tmp_path: Path) -> None:
    parts, test = world()
    start, plan = begin(parts), TuningPlan(rounds=5, fraction=0.3, replacement=True, seed=1)
    engine = FeatureEngine(plan, start, parts, test)
    plain = run_rounds(plan, engine, start.arrays(), prices=Prices(D, C)).points
    prices, file = Prices(D, C, frozen=1_000_000, opening=Bill(3, 5, flops=None)), tmp_path / "run.checkpoint"
    with pytest.raises(Stop):
        run_rounds(plan, engine, start.arrays(), prices=prices, checkpoint=file, progress=stop_after(3))
    points = run_rounds(plan, engine, start.arrays(), prices=prices, checkpoint=file).points
    drawn = [
        set(drawn_clients(7, plan.per_round(7), t, replacement=True, seed=1).tolist())
        for t in range(1, plan.rounds + 1)
    ]
    assert [p.up - q.up for p, q in zip(points, plain, strict=True)] == [0, 3, 3, 3, 3, 3]
    met = [len(set().union(*drawn[:t])) for t in range(plan.rounds + 1)]
    assert 2 < met[-1] < 10
    extra = [p.down - q.down for p, q in zip(points, plain, strict=True)]
    assert extra == [0] + [5 + 1_000_000 * each for each in met[1:]]


@pytest.mark.parametrize(("name", "stage", "numbers"), [
    ("fedncm", "lp", 0), ("fedncm", "feat", D * C + C), ("gh-lda", "lp", D), ("gh-lda", "ft", D),
    ("gh-nb", "lp", D + 2 * C * D + C), ("gh-qda", "ft", D + C * D * D + C * D + C),
])  # fmt: skip
def test_a_start_knows_what_clients_need_besides_what_is_trained(name: str, stage: str, numbers: int) -> None:
    parts, _ = world(1, clients=30)
    assert begin(parts, name).frozen(stage) == numbers
