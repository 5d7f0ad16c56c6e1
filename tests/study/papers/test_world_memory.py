"""What is remembered: by everything that it depends on, across runs, and not when it failed."""

from pathlib import Path

import numpy as np
import pytest

from fedmoments.errors import UnknownNameError
from fedmoments.settings.study import StudySettings
from fedmoments.study.memory import Memory
from fedmoments.study.papers import Observation, Request, World, run_experiment
from fedmoments.study.papers.experiment import read_experiment

TABLE = """
title = "T"
source = "Table 1"
about = "A."
needs = "features"
engine = "simulation"
seeds = 2
reference = "FedNCM"
rows = [{ name = "FedNCM", where = { head = "fedncm" } }, { name = "Fed3R", where = { head = "fed3r" } }]
columns = [{ name = "10 clients", where = { clients = 10 } }, { name = "999 clients", where = { clients = 999 } }]
[settings]
heads = ["fedncm", "fed3r"]
clients = [10, 999]
splits = ["iid", "domain"]
[[paper]]
name = "theirs"
values = [[50, nan], [60, nan]]
settings = { heads = ["fed3r"] }
"""


def test_a_measurement_is_made_once_and_kept_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a" / "m.jsonl"
    made = [Observation({"k": 1}, (0.5, None), "bytes", seeds=(3, 4))]
    assert Memory(path).once([1, "x"], lambda: made) == made
    again = Memory(path)
    assert again.once([1, "x"], lambda: pytest.fail("it is known")) == made
    assert again.found == 1
    assert again.once([2, "x"], list) == []


def test_a_line_that_was_cut_off_costs_that_line_alone(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    memory = Memory(path)
    for key in (1, 2):
        memory.once(key, lambda key=key: [Observation({"k": key}, (0.5,))])  # type: ignore[misc]
    path.write_bytes(path.read_bytes()[:-20])
    memory = Memory(path)
    assert memory.once(1, list)[0].where == {"k": 1}
    memory.once(2, lambda: [Observation({"k": 2}, (0.7,))])
    assert Memory(path).once(2, list)[0].values == (0.7,)


def test_a_failure_is_not_remembered(tmp_path: Path) -> None:
    memory = Memory(tmp_path / "m.jsonl")
    memory.once(1, lambda: [Observation({}, (None,), reason="no memory")])
    assert memory.once(1, lambda: [Observation({}, (0.5,))])[0].values == (0.5,)


@pytest.fixture
def data(tmp_path: Path) -> StudySettings:
    rng = np.random.default_rng(0)
    y = np.arange(240) % 4
    X = np.eye(4, 8)[y] + rng.normal(scale=0.4, size=(240, 8))
    np.savez(tmp_path / "toy.npz", x_train=X[:160], y_train=y[:160], x_test=X[160:], y_test=y[160:])
    return StudySettings(data=f"npz:{tmp_path / 'toy.npz'}")


def test_an_experiment_on_data_that_stand_in(data: StudySettings, tmp_path: Path) -> None:
    table = read_experiment("fedcof/t", TABLE)
    world = World(data, seeds=3, cache_dir=tmp_path / "cache")
    found = run_experiment(table, world)
    assert found["mode"] == "stand-in"
    assert found["table"]["ours"][1][0]["mean"] is not None
    assert found["table"]["ours"][1][1]["reason"] == "not measured on these data"
    told = " ".join(found["deviations"])
    assert "not the numbers" in told
    assert "3 seeds instead of 2" in told
    assert "name no domain" in told
    assert "more clients than the 160" in told
    assert found["cached"] == 0
    again = run_experiment(table, World(data, seeds=3, cache_dir=tmp_path / "cache"))
    assert again["cached"] == 6
    fresh = {key: value for key, value in found.items() if key not in ("seconds", "cached")}
    assert {key: again[key] for key in fresh} == fresh


def test_an_experiment_on_the_papers_own_data(data: StudySettings) -> None:
    table = read_experiment("fedcof/t", TABLE)
    found = run_experiment(table, World(data, seeds=2, cache_dir=False), Request(same_as="theirs"))
    assert found["mode"] == "same data"
    assert found["table"]["ours"][0][0]["mean"] is None, "the block's own settings hold"
    assert found["table"]["ours"][1][0]["verdict"] == "differs"
    assert not any("not the numbers" in each for each in found["deviations"])
    with pytest.raises(UnknownNameError, match="did you mean 'theirs'"):
        run_experiment(table, World(data, cache_dir=False), Request(same_as="their"))


def test_changed_settings_are_told(data: StudySettings) -> None:
    table = read_experiment("fedcof/t", TABLE)
    world = World(data, seeds=2, cache_dir=False)
    found = run_experiment(table, world, Request(changes={"clients": [5]}))
    assert "clients is 5 instead of 10, 999, as was requested" in found["deviations"]
    with pytest.raises(UnknownNameError, match="did you mean 'clients'"):
        run_experiment(table, world, Request(changes={"cleints": [5]}))


def test_other_data_do_not_find_what_was_kept(data: StudySettings, tmp_path: Path) -> None:
    table = read_experiment("fedcof/t", TABLE)
    run_experiment(table, World(data, seeds=2, cache_dir=tmp_path / "cache"))
    path = tmp_path / "other.npz"
    with np.load(data.data.partition(":")[2]) as arrays:
        np.savez(path, **{**arrays, "x_test": arrays["x_test"] + 0.5})
    other = World(StudySettings(data=f"npz:{path}"), seeds=2, cache_dir=tmp_path / "cache")
    assert run_experiment(table, other)["cached"] == 0
