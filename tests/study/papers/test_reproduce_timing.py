"""Times of heads on this machine: every head has its four numbers, and they are of the work that they name."""

from pathlib import Path

import numpy as np

from fedmoments.core.observations import matching
from fedmoments.settings.study import StudySettings
from fedmoments.study.papers import World, experiment
from fedmoments.study.papers.engines.timing import _least, _memory, run


def test_every_head_has_times_and_memory(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    y = np.arange(120) % 3
    X = rng.normal(size=(120, 6)) + 3.0 * np.eye(3, 6)[y]
    path = tmp_path / "f.npz"
    np.savez(path, x_train=X, y_train=y, x_test=X, y_test=y)
    heads = ["gh-nb", "gh-qda"]
    settings = {"heads": heads, "projections": [0, 4], "scored": 5, "repeats": 1}
    found = run(settings, World(StudySettings(data=str(path)), cache_dir=False))
    for head in heads:
        for projection in (0, 4):
            for quantity in ("fit seconds", "fit MiB", "ms a sample", "ms a sample, batch"):
                (one,) = matching(found, {"head": head, "projection": projection, "quantity": quantity})
                assert one.mean is not None
                assert one.mean >= 0.0


def test_memory_is_the_most_that_arrays_took_at_once() -> None:
    def work() -> float:
        for _ in range(3):
            np.ones(2**18)  # 2 MiB, three times, one after the other
        return float(np.ones(2**19).sum())

    assert 3.9 < _memory(work) < 4.3


def test_the_least_of_several_times_counts() -> None:
    calls: list[int] = []

    def work() -> int:
        calls.append(len(calls))
        return len(calls)

    result, seconds = _least(work, 3)
    assert (result, len(calls)) == (3, 3)
    assert seconds >= 0.0


def test_the_table_of_times_judges_no_number_of_another_machine() -> None:
    table = experiment("gh-ofl/table8-time")
    assert table.paper == ()
    assert {line.where["head"] for line in table.rows} == set(table.settings["heads"])
