"""Random features against the exact kernel: a naive referee, the limit of many features, and the file of the figure."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedmoments.core.heads import make_head
from fedmoments.core.maps import RandomFourier, median_bandwidth
from fedmoments.core.observations import matching
from fedmoments.core.statistics import Statistics
from fedmoments.errors import InputError, UnknownNameError
from fedmoments.samples.features import Samples
from fedmoments.settings.study import StudySettings
from fedmoments.study.papers import Observation, Request, World, experiment, run_experiment
from fedmoments.study.papers.engines.kernel import DualRidge, chosen_samples, gaussian_kernel, run
from fedmoments.study.papers.engines.seeds import across_seeds

SMALL = {"features": [20, 200], "bandwidths": [1000, "automatic"], "samples_per_class": 15}


def rings(n: int, seed: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Three classes at three distances from a centre that is not the origin: no line tells them apart."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 3
    angle = rng.uniform(0, 2 * np.pi, n)
    X = np.c_[np.cos(angle), np.sin(angle)] * (1.0 + 2 * y)[:, None] + rng.normal(scale=0.2, size=(n, 2))
    return np.c_[X, rng.normal(scale=0.1, size=(n, 2))] + 5.0, y


@pytest.fixture
def data(tmp_path: Path) -> str:
    (X, y), (T, t) = rings(240, 0), rings(150, 1)
    path = tmp_path / "rings.npz"
    np.savez(path, x_train=X.astype(np.float32), y_train=y, x_test=T.astype(np.float32), y_test=t, classes=list("abc"))
    return str(path)


def naive_scores(
    X: NDArray[Any], y: NDArray[Any], T: NDArray[Any], sigma: float, ridge: float, n_classes: int, *, normalize: bool
) -> NDArray[np.float64]:
    """Kernel ridge regression, one number at a time."""

    def k(a: Any, b: Any) -> float:
        return float(np.exp(-sum((p - q) ** 2 for p, q in zip(a, b, strict=True)) / (2 * sigma**2)))

    K = np.array([[k(a, b) for b in X] for a in X])
    scores = np.full((len(T), n_classes), -np.inf)
    for label in set(y.tolist()):
        alpha = np.linalg.inv(K + ridge * np.eye(len(X))) @ (y == label).astype(float)
        norm = np.sqrt(alpha @ K @ alpha) if normalize else 1.0
        scores[:, label] = [sum(a * k(t, x) for a, x in zip(alpha, X, strict=True)) / norm for t in T]
    return scores


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("offset", [0.0, 1000.0])
def test_kernel_ridge_is_that_of_the_naive_formula(normalize: bool, offset: float) -> None:
    X, y = rings(30, 0)
    T, _ = rings(7, 1)
    made = DualRidge.fit(
        lambda A, B: gaussian_kernel(A, B, 1.3), X + offset, y, n_classes=4, ridge=0.01, normalize=normalize
    )
    wanted = naive_scores(X, y, T, 1.3, 0.01, 4, normalize=normalize)
    np.testing.assert_allclose(made.scores(T + offset), wanted, atol=1e-7 if offset else 1e-10)
    assert made.predict(T + offset).tolist() == wanted.argmax(axis=1).tolist()
    assert not made.present[3]


def test_kernel_ridge_needs_a_ridge() -> None:
    with pytest.raises(InputError, match="must be above 0"):
        DualRidge.fit(lambda A, B: A @ B.T, np.eye(2), np.array([0, 1]), n_classes=2, ridge=0.0)


def test_the_dual_solution_on_random_features_is_the_head_s() -> None:
    X, y = rings(60, 0)
    T, _ = rings(20, 1)
    fourier = RandomFourier(4, 40, 2.0, 7)
    head = make_head("fed3r-rf", n_features=40, bandwidth=2.0, map_seed=7, ridge=0.01)
    primal = head.fit(Statistics.of(fourier(X), y, head.needs, n_classes=3))
    dual = DualRidge.fit(lambda A, B: A @ B.T, fourier(X), y, n_classes=3, ridge=0.01)
    np.testing.assert_allclose(dual.scores(fourier(T)), primal.scores(fourier(T)), atol=1e-9)


def test_many_random_features_come_near_the_exact_kernel() -> None:
    X, y = rings(45, 0)
    T, _ = rings(30, 1)
    exact = DualRidge.fit(lambda A, B: gaussian_kernel(A, B, 2.0), X, y, n_classes=3, ridge=0.1).scores(T)
    errors = []
    for size in (100, 2500, 62500):  # each 25 times as many: 5 times as near
        fourier = RandomFourier(4, size, 2.0, 3)
        made = DualRidge.fit(lambda A, B: A @ B.T, fourier(X), y, n_classes=3, ridge=0.1)
        errors.append(float(np.sqrt(((made.scores(fourier(T)) - exact) ** 2).mean())))
    assert errors[0] > 2.5 * errors[1] > 6 * errors[2]
    assert errors[2] < 0.01 * float(exact.std())


def test_the_engine_measures_every_method_at_every_place(data: str) -> None:
    world = World(StudySettings(data=data), seeds=2, cache_dir=False)
    found = run(SMALL, world)
    places = {(each.where["method"], each.where["samples"]) for each in found}
    assert places == {
        ("random features", "all"),
        ("random features", "subset"),
        ("exact kernel", "subset"),
        ("ridge", "all"),
        ("ridge", "subset"),
        ("softmax", "all"),
    }
    assert len([each for each in found if each.quantity == "accuracy"]) == 6 * 2 * 2
    assert {each.seeds for each in found} == {(0, 1)}
    assert {len(each.values) for each in found} == {2}

    def accuracy(**where: Any) -> float:
        several = {each.mean for each in matching(found, where)}
        assert len(several) == 1, "what does not depend on D has one value at every D"
        return several.pop() or 0.0

    auto = {"bandwidth": "automatic"}
    assert accuracy(method="exact kernel", **auto) > 0.8 > 0.7 > accuracy(method="ridge", samples="all")
    assert accuracy(method="random features", samples="all", features=200, **auto) > 0.8 > accuracy(method="softmax")
    gap = matching(found, {"quantity": "gap", "features": 200, **auto})[0]
    rf, krr = (
        matching(found, {"method": m, "samples": "subset", "features": 200, **auto})[0]
        for m in ("random features", "exact kernel")
    )
    assert gap.values == tuple(100 * abs(a - b) for a, b in zip(rf.known, krr.known, strict=True))


def test_the_exact_kernel_is_fitted_on_the_subset_with_the_bandwidth_of_all_samples(data: str) -> None:
    world = World(StudySettings(data=data), seeds=1, cache_dir=False)
    found = matching(run(SMALL, world), {"method": "exact kernel", "bandwidth": "automatic"})[0]
    train, test = world.features().train, world.features().test
    sigma = median_bandwidth(len(train), train.X.astype(float).sum(axis=0), float((train.X.astype(float) ** 2).sum()))
    part = chosen_samples(train, 15, 0)
    assert np.bincount(part.y).tolist() == [15, 15, 15]
    scores = naive_scores(part.X, part.y, test.X[:40], sigma, 0.01, 3, normalize=True)
    made = DualRidge.fit(lambda A, B: gaussian_kernel(A, B, sigma), part.X, part.y, n_classes=3, ridge=0.01)
    np.testing.assert_array_equal(made.predict(test.X[:40]), scores.argmax(axis=1))
    assert found.mean == float((made.predict(test.X) == test.y).mean())


def test_a_large_subset_is_cut_and_told(data: str) -> None:
    world = World(StudySettings(data=data), seeds=1, cache_dir=False)
    run({**SMALL, "features": [20], "bandwidths": [1], "most_samples": 30}, world)
    assert any("at most 10 samples a class instead of 15" in words for words in world.deviations)
    with pytest.raises(UnknownNameError, match="kernel"):
        run({"sizes": [3]}, world)


def test_a_repeated_run_measures_nothing_again(data: str, tmp_path: Path) -> None:
    first = World(StudySettings(data=data), seeds=1, cache_dir=tmp_path / "cache")
    before = run(SMALL, first)
    again = World(StudySettings(data=data), seeds=1, cache_dir=tmp_path / "cache")
    assert run(SMALL, again) == before
    kept = max(memory.found for memory in again.memories.values())
    assert kept == 2 * (4 + 2 * 2)
    other = World(StudySettings(data=data), seeds=1, cache_dir=tmp_path / "cache")
    run({**SMALL, "ridge": 1.0}, other)
    assert all(memory.found < kept for memory in other.memories.values())


def test_too_little_memory_is_a_reason(data: str) -> None:
    world = World(StudySettings(data=data, memory_limit=1e-6), seeds=1, cache_dir=False)
    found = matching(run(SMALL, world), {"method": "random features", "samples": "all", "features": 200})[0]
    assert found.values == (None,)
    assert found.reason
    assert "limit" in found.reason


def test_figure_8_is_drawn_and_its_claims_are_settled(data: str) -> None:
    changes = {"features": [500, 10000], "samples_per_class": 10, "bandwidths": ["automatic"]}
    world = World(StudySettings(data=data, memory_limit=1e-3), seeds=1, cache_dir=False)  # 10,000 features do not fit
    found = run_experiment(experiment("fed3r/figure8"), world, Request(changes=changes))
    verdicts = [(each["id"], each["verdict"]) for each in found["claims"]]
    assert ("random-features-approach-kernel/automatic", "holds") in verdicts
    assert ("kernel-above-softmax/automatic", "holds") in verdicts
    assert ("more-random-features-help/automatic", "not tested") in verdicts
    assert {verdict for name, verdict in verdicts if "/" not in name} == {"not tested"}
    assert found["experiment"]["figures"][0]["panel"] == "bandwidth"
    settings = experiment("fed3r/figure8").settings
    assert (settings["ridge"], settings["samples_per_class"], settings["bandwidths"][0]) == (0.01, 40, 1000)
    assert (min(settings["features"]), max(settings["features"])) == (500, 10000)


def test_seeds_are_joined_place_by_place() -> None:
    several = [
        (seed, [Observation({"a": 1}, (0.1 * seed,)), Observation({"a": 2}, (None,), reason="none")]) for seed in (3, 4)
    ]
    joined = across_seeds(several)
    assert [each.seeds for each in joined] == [(3, 4), (3, 4)]
    assert joined[0].values == (0.1 * 3, 0.1 * 4)
    assert (joined[1].values, joined[1].reason) == ((None, None), "none")


def test_chosen_samples_are_drawn_anew_by_every_seed() -> None:
    everyone = Samples(np.arange(40.0)[:, None], np.arange(40) % 2)
    first, second = (chosen_samples(everyone, 5, seed) for seed in (0, 1))
    assert np.bincount(first.y).tolist() == [5, 5]
    assert first.X.ravel().tolist() == sorted(first.X.ravel().tolist()) != second.X.ravel().tolist()
    assert (first.X.ravel() % 2 == first.y).all()
