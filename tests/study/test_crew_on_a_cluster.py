"""Studies on a Dask cluster over TLS: scheduler and workers are processes; a killed worker changes no result."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.dask_clusters import dask_cluster
from tests.study.test_crew import HEADS, ROOT, SWEEP, plain, toy
from tests.waiting import until

from fedmoments.errors import InputError
from fedmoments.study import crew
from fedmoments.study.crew import Crew
from fedmoments.study.simulation import simulate

pytest.importorskip("distributed")
pytestmark = pytest.mark.filterwarnings("default")  # Dask's own


@pytest.fixture(name="importable", scope="module", autouse=True)
def fixture_importable() -> Iterator[None]:
    """Let workers import heads and functions of tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
        yield


@pytest.fixture(name="cluster", scope="module")
def fixture_cluster(importable: None, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Two workers, of two threads each."""
    with dask_cluster(tmp_path_factory.mktemp("dask"), threads=2) as parts:
        yield parts


def divide(folder: str, task: int) -> float:
    with Path(folder, "tried").open("a") as file:
        file.write("x")
    return 1 / task


def wait_for_file(folder: str, task: int) -> int:
    """Say who works, and wait until the test lets it end."""
    Path(folder, f"{task}-{os.getpid()}.begun").touch()
    until(Path(folder, "go").exists)
    return task


def test_a_cluster_finds_what_one_process_finds(cluster: Any) -> None:
    client, _, _ = cluster
    assert client.scheduler.address.startswith("tls://")
    alone = simulate(toy(), HEADS, seeds=2, **SWEEP)
    crowd = simulate(toy(), HEADS, seeds=2, crew=Crew(client), **SWEEP)
    assert plain(crowd) == plain(alone)


def test_an_error_of_the_work_is_raised_here_and_tried_once(cluster: Any, tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        list(Crew(cluster[0]).start(divide, str(tmp_path), [0]))
    assert (tmp_path / "tried").read_text() == "x"


def test_results_arrive_as_they_are_found(cluster: Any, tmp_path: Path) -> None:
    arriving = Crew(cluster[0]).start(_first_waits, str(tmp_path), [0, 1])
    assert next(arriving) == (1, 1)
    (tmp_path / "go").touch()
    assert list(arriving) == [(0, 0)]


def _first_waits(folder: str, task: int) -> int:
    if task == 0:
        until(Path(folder, "go").exists)
    return task


def test_a_cluster_without_workers_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crew, "PATIENCE", 1)
    told = pytest.raises(InputError, match="the cluster has no workers after 1 s: start some")
    with dask_cluster(tmp_path, workers=0) as (client, _, _), told:
        list(Crew(client).start(divide, str(tmp_path), [1]))


def test_work_of_a_killed_worker_is_done_by_another(tmp_path: Path) -> None:
    with dask_cluster(tmp_path) as (client, workers, _):
        arriving = Crew(client).start(wait_for_file, str(tmp_path), [0, 1, 2, 3])
        until(lambda: len(list(tmp_path.glob("*.begun"))) == 2)
        os.kill(workers[0].pid, signal.SIGKILL)
        workers[0].wait(timeout=60)
        (tmp_path / "go").touch()
        assert sorted(arriving) == [(0, 0), (1, 1), (2, 2), (3, 3)]
        begun = [path.stem.split("-") for path in tmp_path.glob("*.begun")]
    lost = {task for task, process in begun if process == str(workers[0].pid)}
    assert lost
    assert lost <= {task for task, process in begun if process == str(workers[1].pid)}
