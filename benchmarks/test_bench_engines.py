"""Engines on the same work: wall clock, CPU time and memory of all their processes, and whether the bits are equal.

Each runs in a process of its own, whose tree of processes is watched. A neighbour on the machine lengthens the wall
clock, not the CPU time: what two idle cores would give is the CPU time of one process over that of the busiest two.
"""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pytest

psutil = pytest.importorskip("psutil")
pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

ROWS, DIM, CLASSES, FILES = int(os.environ.get("FEDMOMENTS_LAKE_ROWS", "200000")), 512, 100, 8
Note = Callable[..., None]

MEASURE = """
import sys, fedmoments as fm
def run(executor):
    stats = fm.measure_files(LAKE, fm.spec_for("gh-lda"), n_classes=100, executor=executor)
    print("DIGEST", stats.digest())
if __name__ == "__main__":
"""
ENGINES = {
    "one process": "    run(None)",
    "process pool": """
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        run(pool)
""",
    "Dask": """
    from distributed import Client, LocalCluster
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster) as client:
        run(client)
""",
    "Ray": """
    import ray
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
    run(ray)
""",
}
NEEDED = {"Dask": "distributed", "Ray": "ray"}


class Watch:
    """CPU seconds and memory of a process and all below it, looked at every 20 ms."""

    def __init__(self, command: list[str]) -> None:
        one = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "RAY_DEDUP_LOGS": "0"}
        start = perf_counter()
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=one)
        self.used: dict[int, float] = {}
        self.peak = 0.0
        self._over = threading.Event()
        watcher = threading.Thread(target=self._look)
        watcher.start()
        self.out, _ = self.process.communicate()
        self._over.set()
        watcher.join()
        self.wall = perf_counter() - start
        assert not self.process.returncode, command

    def _look(self) -> None:
        root = psutil.Process(self.process.pid)
        while not self._over.wait(0.02):
            held = 0
            for process in self._tree(root):
                try:
                    times, memory = process.cpu_times(), process.memory_info()
                except psutil.Error:
                    continue
                self.used[process.pid] = times.user + times.system
                held += memory.rss
            self.peak = max(self.peak, held / 2**20)

    @staticmethod
    def _tree(root: Any) -> list[Any]:
        try:
            return [root, *root.children(recursive=True)]
        except psutil.Error:
            return []

    @property
    def cpu(self) -> float:
        return sum(self.used.values())

    def on_idle_cores(self) -> float:
        """Return the seconds that the busiest processes take side by side: this one, then the busiest below it."""
        below = [used for pid, used in self.used.items() if pid != self.process.pid]
        return self.used.get(self.process.pid, 0.0) + max(below, default=0.0)


def test_every_engine_gives_the_same_bits(tmp_path: Path, note: Note) -> None:
    rng = np.random.default_rng(0)
    lake = tmp_path / "lake"
    lake.mkdir()
    for number in range(FILES):
        X = rng.standard_normal((ROWS // FILES, DIM), dtype=np.float32)
        vectors = pa.FixedSizeListArray.from_arrays(pa.array(X.ravel()), DIM)
        labels = rng.integers(0, CLASSES, size=len(X))
        parquet.write_table(pa.table({"vector": vectors, "label": labels}), lake / f"part-{number}.parquet")
    digests = {}
    for name, body in ENGINES.items():
        if name in NEEDED and find_spec(NEEDED[name]) is None:
            note(f"  {name}: not installed", "", "")
            continue
        script = tmp_path / f"{name.replace(' ', '_')}.py"
        script.write_text(MEASURE.replace("LAKE", repr(str(lake))) + body)
        run = Watch([sys.executable, str(script)])
        digests[name] = next(line.split()[1] for line in run.out.splitlines() if line.startswith("DIGEST"))
        note(f"{ROWS:,} × {DIM} rows, {name}", f"{run.wall:.1f} s, CPU {run.cpu:.1f} s, {run.peak:.0f} MB", "same bits")
    assert len(set(digests.values())) == 1


def test_two_jobs_on_two_cores(tmp_path: Path, note: Note) -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 50, size=20_000)
    X = (rng.normal(size=(20_000, 384)) + 0.5 * rng.normal(size=(50, 384))[y]).astype(np.float32)
    np.savez(tmp_path / "f.npz", x_train=X[:16_000], y_train=y[:16_000], x_test=X[16_000:], y_test=y[16_000:])
    runs, found = {}, {}
    for jobs in (1, 2):
        out = tmp_path / f"run{jobs}"
        command = [sys.executable, "-m", "fedmoments", "simulate", str(tmp_path / "f.npz"), "--heads", "fedcof,auto"]
        command += ["--clients", "50,100", "--seeds", "40", "--jobs", str(jobs), "--out", str(out), "--fresh"]
        runs[jobs] = Watch(command)
        results = json.loads((out / "results.json").read_text())
        found[jobs] = [seed["digest"] for row in results["rows"] for seed in row["seeds"]]
    wall, idle = runs[1].wall / runs[2].wall, runs[1].cpu / runs[2].on_idle_cores()
    note("--jobs 2 against one process, wall clock (on idle cores)", f"{wall:.2f} ({idle:.2f})", ">= 1.7 idle")
    assert found[1] == found[2]
    assert idle >= 1.7
