"""Several processes find what one finds; what fails in one fails in the same words; none outlives its parent."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.waiting import until

from fedmoments.core.classifier import Classifier
from fedmoments.core.floats import precision
from fedmoments.core.heads.head import Head
from fedmoments.core.observations import Observation, Outcome, Report
from fedmoments.core.statistics import Statistics, StatisticsSpec
from fedmoments.errors import InputError, NotEnoughDataError
from fedmoments.samples.features import Features, Samples
from fedmoments.settings.study import StudySettings, TuningStudy
from fedmoments.study.crew import Crew, crew_of
from fedmoments.study.jobs.run import PROGRESS, run_job
from fedmoments.study.jobs.tuning import run_tuning
from fedmoments.study.memory import Memory
from fedmoments.study.simulation import simulate
from fedmoments.study.tracking import Callback

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Broken(Head):
    """Cannot be fitted; a class of a module, so that another process finds it."""

    needs = StatisticsSpec.of("sums")

    def solve(self, stats: Statistics) -> Classifier:
        raise ZeroDivisionError(f"{stats.n_classes} classes are too many")


@dataclass(frozen=True)
class Modest(Head):
    """Says by an error of ours that it has too little."""

    needs = StatisticsSpec.of("sums")

    def solve(self, stats: Statistics) -> Classifier:
        raise NotEnoughDataError("nothing is enough")


def toy(n: int = 2_400, dim: int = 24) -> Features:
    rng = np.random.default_rng(0)
    y = np.arange(n) % 6
    X = (rng.normal(size=(6, dim))[y] + rng.normal(size=(n, dim))).astype(np.float32)
    half = n // 2
    return Features("toy", 6, train=Samples(X[:half], y[:half]), test=Samples(X[half:], y[half:]))


def plain(report: Report) -> Any:
    """Return all that does not depend on the clock."""

    def still(outcome: Outcome) -> Outcome:
        return replace(outcome, fit_seconds=None, client_seconds=None)

    rows = [replace(row, outcomes=tuple(map(still, row.outcomes))) for row in report.rows]
    return [(row.head, row.setting, row.outcomes) for row in rows], report.splits


@pytest.fixture(name="pair", scope="module")
def fixture_pair() -> Any:
    with pytest.MonkeyPatch.context() as patch, crew_of(2) as crew:
        patch.syspath_prepend(str(ROOT))  # processes import this module, too
        yield crew


HEADS: list[str | Head] = ["fedncm", "fedcof", "auto", Broken(), Modest()]
SWEEP: dict[str, Any] = {"clients": [5, 20], "splits": ["dirichlet:0.3"], "shrinkages": [None, "absolute:0.1"]}


def test_processes_find_what_one_process_finds(pair: Crew) -> None:
    alone = simulate(toy(), HEADS, seeds=2, **SWEEP)
    crowd = simulate(toy(), HEADS, seeds=2, crew=pair, **SWEEP)
    assert plain(crowd) == plain(alone)
    reasons = {row.head.lower(): row.reasons for row in crowd.rows}
    assert "raised ZeroDivisionError: 6 classes are too many" in reasons["broken"][0]
    assert reasons["modest"] == ("nothing is enough",)


def test_processes_compute_in_the_precision_that_was_asked_for(pair: Crew, tmp_path: Path) -> None:
    path = tmp_path / "known.jsonl"
    wide = simulate(toy(), ["gh-lda"], seeds=2, clients=[5], memory=Memory(path))
    with precision("float32"):
        alone = simulate(toy(), ["gh-lda"], seeds=2, clients=[5])
        crowd = simulate(toy(), ["gh-lda"], seeds=2, clients=[5], crew=pair, memory=Memory(path))
    assert plain(crowd) == plain(alone)
    assert len(Memory(path)) == 4, "results of one precision are not taken for those of the other"
    assert [row.accuracy for row in wide.rows] == [row.accuracy for row in alone.rows]


def test_results_of_processes_are_remembered_and_found_again(pair: Crew, tmp_path: Path) -> None:
    path = tmp_path / "known.jsonl"
    first = simulate(toy(), HEADS[:2], seeds=3, clients=[5], crew=pair, memory=Memory(path))
    again = Memory(path)
    assert len(again) == 6
    second = simulate(toy(), HEADS[:2], seeds=3, clients=[5], crew=pair, memory=again)
    assert again.found == 6
    assert first.rows == second.rows


def test_progress_is_told_to_the_end(pair: Crew) -> None:
    told: list[tuple[int, int, str]] = []
    simulate(toy(), ["fedncm", "fedcof"], seeds=3, clients=[5], crew=pair, progress=lambda *step: told.append(step))
    assert [done for done, _, _ in told] == list(range(7))
    assert {total for _, total, _ in told} == {6}


def test_callbacks_are_called_here_with_results_of_processes(pair: Crew) -> None:
    class Gathered(Callback):
        def __init__(self) -> None:
            self.figures: set[tuple[Any, ...]] = set()
            self.ended = 0

        def on_result(self, result: Observation) -> None:
            if not result.unit.startswith("s"):  # seconds depend on the clock
                self.figures.add(
                    (*sorted(map(str, result.where.items())), result.quantity, result.values, result.seeds)
                )

        def on_end(self, report: Report, files: Sequence[Path]) -> None:
            self.ended += 1

    alone, crowd = Gathered(), Gathered()
    simulate(toy(), ["fedncm", "fedcof"], seeds=2, callbacks=[alone], **SWEEP)
    simulate(toy(), ["fedncm", "fedcof"], seeds=2, callbacks=[crowd], crew=pair, **SWEEP)
    assert alone.figures
    assert crowd.figures == alone.figures
    assert crowd.ended == 1


def test_large_arrays_are_mapped_not_copied(pair: Crew) -> None:
    X = np.random.default_rng(0).normal(size=(400, 64))
    found = dict(pair.start(look_at, {"X": X, "small": np.ones(3)}, [1, 2]))
    assert found[0] == (float(X.sum()), True, False)
    assert found[1] == (float(X.sum()), True, False)


def look_at(common: dict[str, Any], _: int) -> tuple[float, bool, bool]:
    X, small = common["X"], common["small"]
    return float(X.sum()), not X.flags.writeable, not small.flags.writeable


def test_a_head_that_other_processes_cannot_find_is_refused(pair: Crew) -> None:
    @dataclass(frozen=True)
    class Local(Broken):
        pass

    with pytest.raises(InputError, match="must be classes of a module that can be imported"):
        simulate(toy(), [Local()], seeds=2, clients=[5], crew=pair)


def test_jobs_must_be_one_or_more() -> None:
    with pytest.raises(InputError, match="--jobs is how many processes work, 1 or more; 0 arrived"), crew_of(0):
        pass
    with pytest.raises(InputError, match="--cluster has workers of its own"), crew_of(2, "tcp://127.0.0.1:1"):
        pass


@pytest.fixture(name="npz")
def fixture_npz(tmp_path: Path) -> Path:
    data = toy()
    train, test = data.train, data.test
    np.savez(tmp_path / "toy.npz", x_train=train.X, y_train=train.y, x_test=test.X, y_test=test.y)
    return tmp_path / "toy.npz"


def test_a_job_of_two_processes_has_the_digests_of_one(npz: Path) -> None:
    config = StudySettings(
        data=str(npz), heads=("fedcof", "auto"), clients=(4, 8), seeds=2, participation=("2",), budgets=("means",)
    )
    alone, crowd = (run_job(replace(config, jobs=jobs), cache_dir=False) for jobs in (1, 2))
    assert plain(crowd.report) == plain(alone.report)
    assert crowd.report.rounds == alone.report.rounds
    digests = [{name: each.digest() for name, each in job.classifiers.items()} for job in (alone, crowd)]
    assert digests[0] == digests[1]
    assert digests[0]


def test_tuning_in_two_processes_has_the_curves_of_one(npz: Path, tmp_path: Path) -> None:
    pytest.importorskip("flwr")
    config = TuningStudy(
        data=str(npz), starts=("random", "fedncm"), optimisers=("fedavg", "fedadam"), clients=(4,), seeds=2,
        plan={"rounds": 2}, heads=("fedcof",),
    )  # fmt: skip
    alone = run_tuning(config, tmp_path / "one", cache_dir=False)
    crowd = run_tuning(replace(config, jobs=2), tmp_path / "two", cache_dir=False)
    assert crowd.tuning == alone.tuning
    names = [sorted(path.name for path in (tmp_path / name / "curves").iterdir()) for name in ("one", "two")]
    assert names[0] == names[1]
    assert len(names[0]) == 8
    assert run_tuning(replace(config, jobs=2), tmp_path / "two", cache_dir=False).resumed == 8


# --------------------------------------------------------------------------------------------- nobody is left behind

LONG = """
import sys
from fedmoments.study.crew import crew_of
from tests.study.test_crew import note_and_wait

if __name__ == "__main__":
    with crew_of(2) as crew:
        for _ in crew.start(note_and_wait, sys.argv[1], [0, 1, 2, 3]):
            pass
"""


def note_and_wait(folder: str, task: int) -> None:
    path = Path(folder, f"{task}.part")
    path.write_text(str(os.getpid()))
    path.rename(Path(folder, f"{task}.pid"))
    time.sleep(600)


def is_alive(process: int) -> bool:
    stat = Path(f"/proc/{process}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes in /proc")
@pytest.mark.parametrize("signal_sent", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_process_outlives_the_one_that_started_it(signal_sent: signal.Signals, tmp_path: Path) -> None:
    script, own = tmp_path / "long.py", tmp_path / "temporary"
    script.write_text(LONG)
    own.mkdir()
    parent = subprocess.Popen(
        [sys.executable, str(script), str(tmp_path)], env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(own)},
        stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        until(lambda: len(list(tmp_path.glob("*.pid"))) == 2)
        workers = [int(path.read_text()) for path in tmp_path.glob("*.pid")]
        assert all(map(is_alive, workers))
        # as a terminal does it: Ctrl-C goes to all processes of the group
        (os.killpg if signal_sent is signal.SIGINT else os.kill)(parent.pid, signal_sent)
        parent.wait(timeout=60)
        until(lambda: not any(map(is_alive, workers)))
        until(lambda: not list(own.rglob("*.common")))
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(parent.pid, signal.SIGKILL)
        parent.wait(timeout=60)


def test_an_interrupted_job_of_processes_goes_on(npz: Path, tmp_path: Path) -> None:
    config = StudySettings(data=str(npz), heads=("fedncm",), clients=(4,), seeds=4, jobs=2)
    out = tmp_path / "out"

    def stop(done: int, _: int, what: str) -> None:
        if what.startswith("dirichlet") and done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_job(config, out, cache_dir=False, progress=stop)
    kept = len(Memory(out / PROGRESS))
    assert kept >= 3
    assert run_job(config, out, cache_dir=False).resumed >= kept - 1
