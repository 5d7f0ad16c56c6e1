"""A job that was interrupted goes on where it stopped, and finds what it would have found; nothing stale is kept."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import until

from fedmoments.settings.study import StudySettings
from fedmoments.study.jobs import run_job
from fedmoments.study.simulation import Federation

HANGING = """
import sys, time
from pathlib import Path
from fedmoments.settings.study import StudySettings
from fedmoments.study.jobs import run_job

def hang(done, total, text):
    if text.startswith("dirichlet") and done == 7:
        time.sleep(600)

run_job(StudySettings.load("run.toml"), Path("out"), progress=hang)
"""


def wait_for_lines(path: Path, lines: int) -> None:
    until(lambda: path.exists() and path.read_bytes().count(b"\n") >= lines, pause=0.02)


@pytest.fixture
def config(features_file: str) -> StudySettings:
    heads = ("fedncm", "fedcof", "gh-lda")
    return StudySettings(data=features_file, heads=heads, clients=(5, 8), splits=("dirichlet:0.5",), seeds=3)


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Which heads were really fitted and tested, with their seeds."""
    heads: list[Any] = []
    really = Federation.outcome

    def count(self: Federation, head: Any) -> Any:
        heads.append((head, self.seed))
        return really(self, head)

    monkeypatch.setattr(Federation, "outcome", count)
    return heads


def test_a_sweep_that_was_killed_goes_on_and_ends_as_if_it_had_not_been(
    config: StudySettings, tried: list[Any], timeless: Callable[[Any], Any]
) -> None:
    Path("run.toml").write_text(config.to_toml(), "utf-8")
    process = subprocess.Popen([sys.executable, "-c", HANGING])
    try:
        wait_for_lines(Path("out/progress.jsonl"), 7)
    finally:
        process.send_signal(signal.SIGKILL)
        assert process.wait(30) == -signal.SIGKILL
    assert [path.name for path in Path("out").iterdir()] == ["progress.jsonl"]

    resumed = run_job(config, Path("out"))
    assert resumed.resumed == 7
    assert len(tried) == 2 * 3 * 3 - 7
    whole = run_job(config, Path("whole"))
    assert whole.resumed == 0
    assert timeless(resumed.document) == timeless(whole.document)
    for name in ("config.toml", "heads/fedcof.safetensors"):
        assert (Path("out") / name).read_bytes() == (Path("whole") / name).read_bytes()
    first, last = (json.loads((Path(out) / "results.json").read_text("utf-8")) for out in ("out", "whole"))
    assert timeless(first) == timeless(last)


def test_a_finished_sweep_is_not_repeated_but_extended(config: StudySettings, tried: list[Any]) -> None:
    run_job(config, Path("out"))
    tried.clear()
    assert run_job(config, Path("out")).resumed == 18
    assert not tried
    wider = replace(config, heads=(*config.heads, "fed3r"), seeds=4)
    assert run_job(wider, Path("out")).resumed == 18
    assert len(tried) == 2 * 4 * 4 - 18


def test_a_line_that_was_cut_off_costs_itself_alone(config: StudySettings) -> None:
    run_job(config, Path("out"))
    record = Path("out/progress.jsonl")
    data = record.read_bytes()
    record.write_bytes(data[:-30])
    assert run_job(config, Path("out")).resumed == 17
    assert run_job(config, Path("out")).resumed == 18
    record.write_bytes(b'\xff\xfe{}\nnull\n[]\n{"key": 3}\n' + data)
    assert run_job(config, Path("out")).resumed == 18


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 100},
        {"splits": ("iid",)},
        {"shrinkages": ("absolute:2",)},
        {"means_per_client": (2,)},
        {"clients": (6,)},
    ],
)
def test_other_settings_find_nothing(config: StudySettings, change: dict[str, Any]) -> None:
    run_job(config, Path("out"))
    assert run_job(replace(config, **change), Path("out")).resumed == 0


def test_other_hyper_parameters_are_fitted_again(config: StudySettings) -> None:
    run_job(config, Path("out"))
    other = replace(config, hyper={"fedncm": {"metric": "euclidean"}})
    assert run_job(other, Path("out")).resumed == 12


def test_other_data_and_other_encoders_find_nothing(photos: str) -> None:
    config = StudySettings(data=photos, encoder="blocks", heads=("fedncm",), clients=(3,), seeds=1)
    run_job(config, Path("out"))
    assert run_job(config, Path("out")).resumed == 1
    assert run_job(replace(config, size=64), Path("out")).resumed == 0
    next(Path("photos/train/red").iterdir()).unlink()
    assert run_job(config, Path("out")).resumed == 0


def test_other_clients_in_the_same_data_find_nothing(sentences: str) -> None:
    """The samples are the same, but who holds them is not."""
    text = Path("said.csv").read_text("utf-8")
    lines = [f"{line},{'team' if i == 0 else i % 2}" for i, line in enumerate(text.splitlines())]
    Path("said.csv").write_text("\n".join(lines) + "\n", "utf-8")
    config = StudySettings(
        data=sentences, encoder="letters", text="sentence", label="topic", client="user", splits=("id",), seeds=1
    )
    first = run_job(replace(config, heads=("fedcof",)), Path("out"))
    other = run_job(replace(config, heads=("fedcof",), client="team"), Path("out"))
    assert first.document["rows"][0]["seeds"][0]["clients"] == 3
    assert other.resumed == 0
    assert other.document["rows"][0]["seeds"][0]["clients"] == 2


def test_a_head_that_needed_too_much_memory_is_tried_again_with_more(config: StudySettings) -> None:
    little = replace(config, heads=("gh-qda", "fedncm"), memory_limit=5e-6, clients=(5,), seeds=1)
    assert run_job(little, Path("out")).report.rows[0].accuracy is None
    again = run_job(replace(little, memory_limit=4.0), Path("out"))
    assert again.resumed == 1
    assert again.report.rows[0].accuracy is not None
