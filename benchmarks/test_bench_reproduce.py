"""A table on features of BANKING77's shape: cached against cold, and fits that no seed changes against all fits."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmoments.settings.study import StudySettings
from fedmoments.study.papers import World
from fedmoments.study.papers.engines.simulation import run
from fedmoments.study.simulation import simulate

N_TRAIN, N_TEST, DIM, N_CLASSES, SEEDS = 10_003, 3_080, 384, 77, 5
HEADS = ["fedncm", "fed3r", "fedcof", "fedcof-oracle", "fedcgs", "gh-nb", "gh-lda", "gh-qda"]
SETTINGS: dict[str, Any] = {"heads": HEADS, "clients": [10], "splits": ["dirichlet:0.1"]}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    rng = np.random.default_rng(0)
    means = rng.normal(size=(N_CLASSES, DIM)) * 0.02
    arrays: dict[str, Any] = {}
    for part, n in (("train", N_TRAIN), ("test", N_TEST)):
        y = rng.permutation(n) % N_CLASSES
        X = means[y] + 0.1 * rng.normal(size=(n, DIM))
        arrays |= {f"x_{part}": (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float16), f"y_{part}": y}
    path = tmp_path_factory.mktemp("reproduce") / "features.npz"
    np.savez(path, **arrays)
    return str(path)


def test_a_table_from_the_cache_against_a_cold_one(
    data: str, tmp_path: Path, compare: Callable[..., float], note: Callable[[str, str, str], None]
) -> None:
    kept = World(StudySettings(data=data), seeds=SEEDS, cache_dir=tmp_path)
    found = run(SETTINGS, kept)
    mean = {each.where["head"]: each.mean or 0.0 for each in found if each.quantity == "accuracy"}
    assert all(0.3 < value < 0.995 for value in mean.values()), mean  # neither trivial nor impossible

    def cold() -> object:
        return run(SETTINGS, World(StudySettings(data=data), seeds=SEEDS, cache_dir=False))

    compare(
        f"{len(HEADS)} heads × {SEEDS} seeds of a table, from the cache to cold",
        lambda: run(SETTINGS, World(StudySettings(data=data), seeds=SEEDS, cache_dir=tmp_path)),
        cold,
        at_least=5.0,
        rounds=2,
    )
    note("heads of a table", ", ".join(f"{head} {100 * value:.0f} %" for head, value in mean.items()), "-")


def test_fits_that_no_seed_changes_against_all_of_them(data: str, compare: Callable[..., float]) -> None:
    world = World(StudySettings(data=data), seeds=SEEDS, cache_dir=False)
    features = world.features()
    sweep: dict[str, Any] = {"clients": SETTINGS["clients"], "splits": SETTINGS["splits"], "seeds": SEEDS}

    def ours() -> object:
        world.memories.clear()
        return run(SETTINGS, world)

    compare(
        "a table with QDA fitted once to QDA fitted for every seed",
        ours,
        lambda: simulate(features, HEADS, **sweep),
        at_least=1.5,
        rounds=2,
    )
