"""Gaussianity, the Fisher subspace and temperatures: naive referees, and the paper's numbers by value."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.stats import kurtosis, skew

from fedmoments.core.observations import Observation, matching
from fedmoments.errors import UnknownNameError
from fedmoments.settings.study import StudySettings
from fedmoments.study.papers import Request, World, experiment, run_experiment
from fedmoments.study.papers.engines.diagnosis import run

C, D = 7, 12


def draw(n: int, seed: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Seven skewed classes in twelve dimensions, of different sizes."""
    rng = np.random.default_rng(seed)
    y = np.minimum(rng.integers(0, C + 2, n), C - 1)
    means = np.random.default_rng(9).normal(scale=1.2, size=(C, D))
    return (means[y] + rng.gamma(2.0, 0.7, size=(n, D))).astype(np.float32), y


@pytest.fixture
def data(tmp_path: Path) -> str:
    (X, y), (T, t) = draw(400, 0), draw(300, 1)
    path = tmp_path / "gamma.npz"
    np.savez(path, x_train=X, y_train=y, x_test=T, y_test=t, classes=[f"c{i}" for i in range(C)])
    return str(path)


def value(found: list[Observation], **where: Any) -> float:
    several = matching(found, where)
    assert len(several) == 1, where
    return several[0].values[0] if several[0].values[0] is not None else math.nan


def test_gaussianity_is_that_of_scipy(data: str) -> None:
    found = run({"looks": ["gaussianity"]}, World(StudySettings(data=data), cache_dir=False))
    X, y = draw(400, 0)
    for shape, naive in (("skewness", skew), ("kurtosis", kurtosis)):
        every = np.abs(np.concatenate([naive(X[y == label].astype(float), axis=0) for label in range(C)]))
        place = {"shape": shape, "of": "features"}
        assert value(found, **place, quantity="mean") == pytest.approx(every.mean())
        assert value(found, **place, quantity="median") == pytest.approx(np.median(every))
        assert value(found, **place, quantity="p90") == pytest.approx(np.quantile(every, 0.9))
        assert 0 < value(found, shape=shape, of="chance", quantity="mean") < every.mean()


def test_lda_in_fisher_directions_is_that_of_the_generalised_eigenproblem(data: str) -> None:
    settings = {"looks": ["fisher"], "shrinkages": ["blend:0.05"], "directions": [2, 4]}
    found = run(settings, World(StudySettings(data=data), cache_dir=False))
    (X, y), (T, t) = draw(400, 0), draw(300, 1)
    X, T = X.astype(float), T.astype(float)
    means = np.array([X[y == label].mean(axis=0) for label in range(C)])
    priors = np.bincount(y) / len(y)
    within = (X - means[y]).T @ (X - means[y]) / (len(X) - C)
    within = 0.95 * within + 0.05 * np.trace(within) / D * np.eye(D)
    centred = means - X.mean(axis=0)
    values, vectors = eigh((centred * priors[:, None]).T @ centred, within)
    values, vectors = values[::-1], vectors[:, ::-1]

    def accuracy(basis: NDArray[np.float64]) -> float:
        inside, m = basis.T @ within @ basis, means @ basis
        scores = (T @ basis) @ np.linalg.solve(inside, m.T)
        scores += np.log(priors) - 0.5 * np.einsum("ck,kc->c", m, np.linalg.solve(inside, m.T))
        return float((scores.argmax(axis=1) == t).mean())

    accuracies = {k: accuracy(vectors[:, : min(k, C - 1)]) for k in (2, 4, 8)}
    for k, wanted in accuracies.items():  # 8 is added: it is the first power of two with all 6
        assert value(found, space="fisher", directions=k) == pytest.approx(wanted, abs=1e-12)
        energy = values[: min(k, C - 1)].sum() / values.sum()
        assert value(found, space="fisher", directions=k, quantity="energy") == pytest.approx(energy)
    assert value(found, space="full") == value(found, space="all") == pytest.approx(accuracy(np.eye(D)), abs=1e-12)
    best = max(accuracies, key=lambda k: (accuracies[k], -k))
    assert value(found, space="best", quantity="dimensions") == best
    assert value(found, space="best", quantity="compression") == D / best
    assert value(found, space="fisher", directions=8, quantity="useful dimensions") == C - 1
    assert value(found, space="full", quantity="dimensions") == D


def test_the_cross_entropy_at_a_temperature_is_that_of_its_formula(data: str) -> None:
    settings = {
        "looks": ["temperature"], "heads": ["fed3r"], "hyper": {"fed3r": {"ridge": 0.01}}, "temperatures": [0.1, 1, 10]
    }  # fmt: skip
    found = run(settings, World(StudySettings(data=data), cache_dir=False))
    X, y = draw(400, 0)
    Y = np.eye(C)[y]
    W = np.linalg.solve(X.T.astype(float) @ X + 0.01 * np.eye(D), X.T.astype(float) @ Y)
    W /= np.linalg.norm(W, axis=0)
    losses = {}
    for T in (0.1, 1.0, 10.0):
        p = np.exp(X @ W / T)
        p /= p.sum(axis=1, keepdims=True)
        losses[T] = -np.log(p[np.arange(len(y)), y]).mean()
        assert value(found, temperature=T, quantity="cross-entropy") == pytest.approx(losses[T], rel=1e-6)
    assert value(found, quantity="best temperature") == min(losses, key=losses.__getitem__)


def test_an_unknown_look_or_setting_is_refused(data: str) -> None:
    world = World(StudySettings(data=data), cache_dir=False)
    with pytest.raises(UnknownNameError, match="gaussianity"):
        run({"looks": ["gausianity"]}, world)
    with pytest.raises(UnknownNameError, match="diagnosis"):
        run({"clients": [3]}, world)


def test_what_cannot_be_said_has_a_reason(tmp_path: Path) -> None:
    path = tmp_path / "few.npz"
    np.savez(path, x_train=np.eye(4), y_train=[0, 0, 1, 1], x_test=np.eye(4), y_test=[0, 0, 1, 1])
    found = run({"looks": ["gaussianity"]}, World(StudySettings(data=str(path)), cache_dir=False))
    assert {each.values for each in found} == {(None,)}
    assert all(each.reason for each in found)


def test_a_look_is_remembered_by_its_settings(data: str, tmp_path: Path) -> None:
    settings = {"looks": ["fisher"], "shrinkages": ["blend:0.05"]}
    before = run(settings, World(StudySettings(data=data), cache_dir=tmp_path / "c"))
    world = World(StudySettings(data=data), cache_dir=tmp_path / "c")
    assert run(settings, world) == before
    assert [memory.found for memory in world.memories.values()] == [1]
    assert run({**settings, "shrinkages": ["blend:0.9"]}, world) != before


def test_tables_9_and_10_print_what_the_paper_prints() -> None:
    shapes = {block.name: block.values[0] for block in experiment("gh-ofl/table9").paper}
    assert shapes["CIFAR-10, ResNet-18"] == (1.69, 1.64, 2.34, 4.22, 3.41, 7.61)
    assert shapes["SVHN, ResNet-18"] == (2.35, 2.06, 4.09, 11.05, 5.97, 25.27)
    means_and_percentiles = [shapes[name][place] for name in list(shapes)[3:] for place in (0, 2, 3, 5)]
    assert means_and_percentiles == [0.17, 0.36, 0.24, 0.55, 0.32, 0.64, 0.60, 1.21, 0.27, 0.50, 0.57, 0.86]
    table = experiment("gh-ofl/table10")
    names = [row.name for row in table.rows]
    full, best = names.index("full LDA"), names.index("Fisher-k*")
    full_accuracies = [block.values[full][0] for block in table.paper]
    assert full_accuracies == [86.26, 64.12, 62.88, 90.28, 98.87, 83.60]
    assert [block.values[best][:4] for block in table.paper] == [
        (86.26, 0.99, 16, 32.0), (64.15, 0.99, 128, 4.0), (62.88, 0.99, 16, 32.0),
        (90.29, 0.99, 128, 6.0), (98.88, 0.99, 32, 24.0), (83.60, 0.99, 16, 48.0),
    ]  # fmt: skip
    for block in table.paper:  # the compressions that are printed are d/k*
        assert block.values[full][2] / block.values[best][2] == block.values[best][3]
    assert table.block("CIFAR-100, ResNet-18").values[names.index("Fisher-32")][:2] == (53.25, 0.77)


@pytest.mark.parametrize("name", ["gh-ofl/table9", "gh-ofl/table10", "fed3r/figure7"])
def test_every_cell_is_measured_and_every_claim_is_settled(name: str, data: str) -> None:
    world = World(StudySettings(data=data), cache_dir=False)
    found = run_experiment(experiment(name), world, Request())
    assert all(claim["verdict"] != "not tested" for claim in found["claims"])
    first = found["table"]["ours"][0]
    last = found["table"]["ours"][-1]
    assert any(cell["mean"] is not None for cell in first)
    if name == "gh-ofl/table10":
        assert all(cell["mean"] is not None for cell in last)
        same = [claim for claim in found["claims"] if claim["id"] == "fisher-loses-nothing"]
        assert {claim["verdict"] for claim in same} == {"holds"}
        assert {pair["difference"] for pair in same[0]["pairs"]} == {0.0}
