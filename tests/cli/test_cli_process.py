"""What only a process of its own shows: exit codes, streams, missing packages, signals."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from tests.waiting import HANG, until, without_progress

SHIM = """
import sys
sys.modules[{missing!r}] = None
sys.argv = ["fedmoments", {command!r}]
import fedmoments.cli
fedmoments.cli.main()
"""


def start(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, timeout=HANG, check=False, **options
    )


def fedmoments(*arguments: str) -> subprocess.CompletedProcess[str]:
    return start("-m", "fedmoments", *arguments)


@pytest.mark.parametrize("missing", ["click", "rich"])
def test_a_missing_package_gets_a_kind_sentence(missing: str) -> None:
    result = start("-c", SHIM.format(missing=missing, command="heads"))
    assert result.returncode == 2
    sentence = f"The command line needs the package '{missing}', which is not installed: pip install 'fedmoments[cli]'"
    assert result.stderr == f"error: {sentence}\n"


def test_the_demo_without_scikit_learn_says_what_to_install(tmp_path: Path) -> None:
    result = start("-c", SHIM.format(missing="sklearn", command="demo"), cwd=tmp_path)
    assert result.returncode == 2
    assert result.stderr.endswith("pip install 'fedmoments[sklearn]'\n")
    assert result.stderr.count("\n") == 1
    assert not list(tmp_path.rglob("*.npz"))


def test_a_terminal_that_gets_no_arguments_shows_where_to_start() -> None:
    from fedmoments.cli.app import app

    ours, theirs = os.openpty()
    with os.fdopen(ours, "rb", buffering=0) as terminal:
        done = subprocess.run([sys.executable, "-m", "fedmoments"], stdout=theirs, timeout=HANG, check=False)
        shown = terminal.read(65536).decode()
        os.close(theirs)
    assert done.returncode == 0
    assert max(map(len, shown.splitlines())) <= 85
    commands = [line.split()[1] for line in shown.splitlines() if line.startswith("  fedmoments ")]
    assert commands[0] == "demo"
    assert {*commands} <= {*app.list_commands(click.Context(app))}


def test_the_command_line_imports_nothing_heavy_before_it_is_asked_to() -> None:
    probe = "import sys, fedmoments.cli; print([m for m in ('click', 'rich', 'numpy', 'scipy') if m in sys.modules])"
    assert start("-c", probe).stdout == "[]\n"


def test_a_whole_run_in_processes(features: str) -> None:
    measured = fedmoments("measure", features, "--head", "gh-lda", "--out", "a.stats")
    assert (measured.returncode, without_progress(measured.stderr)) == (0, "")
    fitted = fedmoments("fit", "a.stats", "--head", "gh-lda", "--out", "a.classifier", "--json")
    assert json.loads(fitted.stdout)["head"] == "gh-lda"
    evaluated = fedmoments("evaluate", "a.classifier", features, "--json")
    assert json.loads(evaluated.stdout)["accuracy"] > 0.5


def test_what_is_no_terminal_gets_plain_lines(features: str) -> None:
    result = fedmoments("simulate", features, "--heads", "fedncm,fedcof", "--clients", "5", "--seeds", "2")
    assert (result.returncode, without_progress(result.stderr)) == (0, "")
    assert "\x1b" not in result.stdout
    assert not {"─", "│", "┃", "━"} & set(result.stdout)


def test_bad_input_exits_with_2_and_one_sentence(workshop: Path, features: str) -> None:
    for arguments in (("simulate", "nowhere"), ("simulate", features, "--heads", "x"), ("inspect", features), ("x",)):
        result = fedmoments(*arguments)
        assert (result.returncode, result.stdout) == (2, "")
        assert result.stderr.startswith("error: ")
        assert result.stderr.count("\n") == 1


def test_a_reader_that_leaves_early_is_no_error(features: str) -> None:
    command = f"{sys.executable} -m fedmoments heads --json | head -n 1"
    result = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=HANG, check=False)
    assert result.stderr == ""


#: The command line, which hears interrupts also where the shell around the tests has made its children ignore them.
HEARING = (
    "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "from fedmoments.cli import main; sys.argv[0] = 'fedmoments'; main()"
)


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_an_interrupted_run_exits_with_130_and_says_what_is_kept(workshop: Path, arrays: Any) -> None:
    np.savez(workshop / "large.npz", **{**arrays, **{x: np.tile(arrays[x], 40) for x in ("x_train", "x_test")}})
    arguments = ["simulate", "large.npz", "--seeds", "1000", "--out", "out"]
    process = subprocess.Popen(
        [sys.executable, "-c", HEARING, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    found = workshop / "out" / "progress.jsonl"
    until(found.exists)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=HANG)
    kept = found.read_bytes().count(b"\n")
    told = f"interrupted; {kept} results are kept in out, the same command continues from there\n"
    told = told.replace("1 results are", "1 result is") if kept == 1 else told
    assert (process.returncode, stdout, without_progress(stderr)) == (130, "", told)
    assert [path.name for path in (workshop / "out").iterdir()] == ["progress.jsonl"]
