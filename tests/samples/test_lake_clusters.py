"""A lake on a cluster: a Dask scheduler and workers in processes of their own, over TLS; Ray tasks."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.dask_clusters import dask_cluster

import fedmoments as fm

pytest.importorskip("distributed")
pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("default")]
SPEC = fm.StatisticsSpec.of("client_means", "gram", "scatter_sketch")
PARTS = 24


@pytest.fixture(name="lake")
def fixture_lake(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    folder = tmp_path / "lake"
    folder.mkdir()
    for number in range(PARTS):
        y = rng.integers(0, 4, size=20_000)
        X = (rng.normal(size=(20_000, 64)) + np.eye(4, 64)[y]).astype(np.float32)
        table = pa.table({"vector": pa.FixedSizeListArray.from_arrays(pa.array(X.ravel()), 64), "label": y})
        parquet.write_table(table, folder / f"part-{number}.parquet")
    return folder


def test_a_killed_worker_of_a_dask_cluster_loses_nothing_and_changes_no_bit(lake: Path, tmp_path: Path) -> None:
    alone = fm.measure_files(lake, SPEC)
    killed: list[int] = []
    with dask_cluster(tmp_path) as (client, workers, _):
        assert client.scheduler.address.startswith("tls://")

        def kill_one(done: int, _: int) -> None:
            if done == 3 and not killed:
                os.kill(workers[0].pid, signal.SIGKILL)
                killed.append(done)

        stats = fm.measure_files(lake, SPEC, executor=client, progress=kill_one)
        assert len(client.scheduler_info()["workers"]) == 1
    assert killed
    assert stats == alone


def test_the_command_measures_on_the_cluster_and_on_two_processes(lake: Path, tmp_path: Path) -> None:
    def measured(name: str, *options: str, **env: str) -> fm.Statistics:
        out = tmp_path / name
        command = [sys.executable, "-m", "fedmoments", "measure", f"parquet:{lake}", "--head", "fedcof", "-o", str(out)]
        subprocess.run([*command, *options], check=True, env={**os.environ, **env}, timeout=300)
        return fm.load_statistics(out)[0]

    alone = measured("alone.stats")
    assert measured("two.stats", "--workers", "2") == alone
    with dask_cluster(tmp_path) as (client, _, env):
        assert measured("cluster.stats", "--cluster", client.scheduler.address, **env) == alone


def test_ray_tasks_give_the_same_bits(lake: Path) -> None:
    ray = pytest.importorskip("ray")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
    try:
        seen: list[int] = []
        stats = fm.measure_files(lake, SPEC, executor=ray, progress=lambda done, _: seen.append(done))
    finally:
        ray.shutdown()
    assert stats == fm.measure_files(lake, SPEC)
    assert seen == list(range(1, PARTS + 1))
