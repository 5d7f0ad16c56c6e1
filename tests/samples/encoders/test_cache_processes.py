"""The feature cache among processes: killed half-way, and two at once. This file is also the program that they run."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tests.waiting import HANG, until

from fedmoments.samples.encoders import pipeline
from fedmoments.samples.encoders.encoder import Encoder
from fedmoments.samples.encoders.pipeline import encode_samples
from fedmoments.samples.samples import Samples

N, BATCH = 120, 4


class Logging(Encoder):
    """Writes every sample that it encodes to a log, whole lines at once."""

    name = "logging"
    modality = "text"
    batch_size = BATCH
    dim = 2
    preprocessing = MappingProxyType({})
    weights_hash = "w"

    def __init__(self, log: Path, delay: float) -> None:
        self.log, self.delay = log, delay

    def probed(self) -> NDArray[np.float32]:
        return np.ones((4, self.dim), np.float32)  # the probe's sentences are none that it can read

    def prepare(self, sample: Any) -> Any:
        return int(sample)

    def encode(self, batch: Sequence[Any]) -> NDArray[np.float32]:
        time.sleep(self.delay)
        with self.log.open("a") as file:
            file.write("".join(f"{number}\n" for number in batch))
        return np.array([[number, 1] for number in batch], dtype=np.float32)


def main(cache: str, log: str, delay: str) -> None:
    pipeline._STORE_SAMPLES = 8
    samples = Samples([str(i) for i in range(N)], np.zeros(N, np.int64), ("a",), "text")
    found = encode_samples(Logging(Path(log), float(delay)), samples, cache_dir=cache)
    np.testing.assert_array_equal(found.features[:, 0], np.arange(N))
    sys.stdout.write(f"{found.computed}\n")


def start(cache: Path, log: Path, delay: float) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, str(cache), str(log), str(delay)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def lines(log: Path) -> list[str]:
    return log.read_text().split() if log.exists() else []


def finish(process: subprocess.Popen[str]) -> int:
    out, _ = process.communicate(timeout=HANG)
    assert process.returncode == 0
    return int(out)


def test_after_kill_9_half_way_the_second_run_starts_where_the_first_stopped(tmp_path: Path) -> None:
    log, cache = tmp_path / "log", tmp_path / "cache"
    process = start(cache, log, 0.03)
    until(lambda: len(lines(log)) >= N // 2, pause=0.005)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    before = len(lines(log))
    assert N // 2 <= before < N
    again = finish(start(cache, log, 0.0))
    assert before + again <= N + 8 + BATCH  # what was computed since the last block is computed twice, nothing else
    assert again <= N // 2 + 8 + BATCH
    assert set(lines(log)) == {str(i) for i in range(N)}
    assert finish(start(cache, log, 0.0)) == 0


def test_two_processes_at_once_encode_each_sample_once(tmp_path: Path) -> None:
    log, cache = tmp_path / "log", tmp_path / "cache"
    processes = [start(cache, log, 0.02) for _ in range(2)]
    assert sorted(finish(process) for process in processes) == [0, N]
    assert sorted(map(int, lines(log))) == list(range(N))


def test_many_kills_in_a_row_lose_nothing_that_was_stored(tmp_path: Path) -> None:
    log, cache = tmp_path / "log", tmp_path / "cache"
    for kill in range(3):
        process = start(cache, log, 0.03)
        until(lambda wanted=24 * (kill + 1): len(lines(log)) >= wanted, pause=0.002)  # type: ignore[misc]
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
    finish(start(cache, log, 0.0))
    assert len(lines(log)) <= N + 3 * (8 + BATCH)


if __name__ == "__main__":
    main(*sys.argv[1:])
