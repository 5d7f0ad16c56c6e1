"""``fedmoments demo``: one answer, a short table, one fit behind everything, and commands that work afterwards."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.waiting import HANG

from fedmoments.cli.demo import HEADS, _answer, _next_steps
from fedmoments.core.classifier import load
from fedmoments.core.heads import head_names
from fedmoments.core.observations import Outcome, Row, Setting


def results_of(demo: Any) -> Any:
    return json.loads((demo.folder / "runs" / "demo" / "results.json").read_text("utf-8"))


def row(head: str, accuracy: float | None, numbers: int) -> Row:
    return Row(head, Setting(10, "iid"), "counts + sums", {}, (Outcome(0, accuracy, 10, numbers, 10, 0.1),))


@pytest.mark.slow
def test_in_the_demo_fedcof_beats_fedncm_by_five_points(demo: Any) -> None:
    results = results_of(demo)
    accuracy = {row["head"]: row["accuracy"] for row in results["rows"]}
    assert {*accuracy} == {*HEADS}
    assert accuracy["fedcof"] >= accuracy["fedncm"] + 0.05
    assert accuracy["fedncm"] > 0.8
    assert (results["data"]["dim"], results["data"]["encoder"]["name"]) == (1280, "efficientnet-lite0")
    assert {(row["clients"], row["split"]) for row in results["rows"]} == {(100, "dirichlet:0.1")}
    assert {path.stem for path in (demo.folder / "runs" / "demo" / "heads").iterdir()} == {*HEADS}


@pytest.mark.slow
def test_the_demo_prints_one_sentence_and_a_short_table_by_bytes(demo: Any) -> None:
    rows = {row["head"]: row for row in results_of(demo)["rows"]}
    answer, blank, columns, *table = demo.printed.splitlines()
    assert re.match(r"With one upload of 7\.\d kB per client, auto reaches 9\d\.\d % accuracy", answer)
    assert blank == ""
    assert re.split(r" {2,}", columns.strip()) == ["head", "accuracy", "bytes per client", "each client sends, once"]
    shown = [line.split()[0] for line in table[: len(HEADS)]]
    assert shown == sorted(HEADS, key=lambda head: (rows[head]["up_bytes_per_client"], -rows[head]["accuracy"]))
    for line in table[: len(HEADS)]:
        assert f"{100 * rows[line.split()[0]]['accuracy']:.1f} %" in line
    assert len(demo.printed.splitlines()) <= 20
    assert "\\n" not in demo.printed  # a line end inside a line is printed as its escape
    assert "report.html" in demo.printed
    assert not re.search(r"[0-9a-f]{16}|a round|note:", demo.printed)  # digests, rounds, notes: with -v


@pytest.mark.slow
def test_the_row_of_the_demo_its_details_and_the_saved_classifier_are_one_fit(demo: Any) -> None:
    results = results_of(demo)
    for row in results["rows"]:
        detail = results["details"][row["detail"]]
        confusion = np.array(detail["confusion"])
        assert np.trace(confusion) / confusion.sum() == pytest.approx(row["seeds"][0]["accuracy"], abs=1e-12)
        saved = load(demo.folder / "runs" / "demo" / "heads" / f"{row['head']}.safetensors")
        assert saved.digest() == detail["digest"]


@pytest.mark.slow
def test_the_demo_leaves_a_features_file_for_the_other_commands(demo: Any) -> None:
    with np.load(demo.folder / "runs" / "demo" / "digits.npz") as arrays:
        assert arrays["x_train"].shape == (1300, 64)
        assert arrays["x_test"].shape == (497, 64)
        assert (arrays["x_train"].min(), arrays["x_train"].max()) == (0.0, 1.0)
        assert arrays["classes"].tolist()[:2] == ["zero", "one"]


def test_what_the_demo_says_to_try_next_works_as_it_stands(run: Any) -> None:
    for line in _next_steps(Path("runs/demo")):
        _, *arguments = shlex.split(line, comments=True)
        if arguments[0] != "demo":
            assert run(*arguments).stdout


def test_the_answer_of_the_demo_follows_from_the_rows() -> None:
    rows = [row("auto", 0.96, 20_000), row("gh-qda", 0.97, 2_000_000)]
    assert _answer(rows) == (
        "With one upload of 8.0 kB per client, auto reaches 96.0 % accuracy without any training; the most accurate "
        "head here, gh-qda, uploads 800.0 kB for 97.0 %."
    )
    assert _answer([row("auto", 0.98, 20_000), *rows[1:]]).endswith("without any training, the most of all heads here.")
    assert "auto could not be fitted" in _answer([row("auto", None, 20_000), *rows[1:]])


@pytest.mark.long
def test_the_demo_of_all_heads_with_everything_that_it_can_say(demo: Any) -> None:
    command = [sys.executable, "-m", "fedmoments", "demo", "--all", "-v", "--seeds", "1", "--folder", "runs/all"]
    done = subprocess.run(command, cwd=demo.folder, capture_output=True, text=True, timeout=HANG, check=True)
    results = json.loads((demo.folder / "runs" / "all" / "results.json").read_text("utf-8"))
    assert {row["head"] for row in results["rows"]} == {*head_names()} - {
        "fed3r-rf",
        "qda-exchange",
        "fisher-rf",
        "deep-ridge",
    }
    assert "20 clients per round" in done.stdout
    assert all(detail["digest"][:16] in done.stdout for detail in results["details"] if detail["digest"])
