"""The page that lists all items of the papers: what it names is there, and what is there is on it."""

import re
import shlex
from collections import Counter
from pathlib import Path

import click
import numpy as np
import pytest
from click.testing import CliRunner

import fedmoments as fm
from fedmoments.cli.app import app
from fedmoments.core.heads import head_names
from fedmoments.study.baselines import baseline_names
from fedmoments.study.papers import experiments, find

DOCS = Path(__file__).parents[3] / "docs" / "reproduction"
TEXT = (DOCS / "audit.md").read_text()
KINDS = ("tested", "measured", "runs", "not here")
ROWS = re.findall(rf"^\| ([A-Z]\d+) \| (.+) \| (.+) \| ({'|'.join(KINDS)}) \|$", TEXT, re.MULTILINE)
SHOWN = {name: spans for name, _, where, _ in ROWS if (spans := re.findall(r"`([^`]+)`", where))}
COMMANDS = sorted({span for spans in SHOWN.values() for span in spans if " " in span})
OF_DATA = ("simulate", "tune")
ABSENT = "npz:nowhere.npz"


def test_rows_are_numbered_and_counted() -> None:
    assert len(ROWS) == len(re.findall(r"^\| [A-Z]\d+ \|", TEXT, re.MULTILINE))
    for letter, total in Counter(name[0] for name, *_ in ROWS).items():
        assert [name for name, *_ in ROWS if name[0] == letter] == [f"{letter}{i + 1}" for i in range(total)]
    assert f": {len(ROWS)} items." in TEXT.replace("\n", " ")
    said = {kind: int(number) for kind, number in re.findall(r"^\| ([a-z ]+) \| .+ \| (\d+) \|$", TEXT, re.MULTILINE)}
    assert said == dict(Counter(kind for *_, kind in ROWS))


def test_what_is_here_names_how_to_run_it_and_what_is_not_says_why() -> None:
    for name, what, where, kind in ROWS:
        assert (name in SHOWN) == (kind != "not here"), (name, what)
        assert len(where) > 3


@pytest.mark.parametrize("span", sorted({s for spans in SHOWN.values() for s in spans if " " not in s}))
def test_names_without_arguments_are_heads_baselines_commands_or_python(span: str) -> None:
    if span.startswith("fm."):
        assert span.removeprefix("fm.") in fm.__all__
    else:
        assert span in {*head_names(), *baseline_names(), *app.list_commands(click.Context(app))}


@pytest.mark.parametrize("line", [line for line in COMMANDS if not line.startswith("reproduce ")])
def test_commands_are_accepted_up_to_the_data(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Heads, hyper-parameters, splits and plans are checked before data are opened, which are not there."""
    monkeypatch.chdir(tmp_path)
    Path("sizes.csv").write_text("images\n3\n9\n")
    Path("flats.csv").write_text("size,age,price,rain,snow\n3,9,2,0,1\n4,8,5,1,0\n")
    fm.fit("fedncm", {"a": (np.eye(2), [0, 1])}).save("lp.safetensors")
    command, *words = shlex.split(line)
    done = CliRunner().invoke(app, [command, *([ABSENT] if command in OF_DATA else []), *words])
    if command in OF_DATA:
        assert "nowhere.npz cannot be read: there is no such file" in " ".join(done.output.split())
    else:
        assert done.exit_code == 0, done.output


def test_a_command_that_is_wrong_would_be_seen() -> None:
    for line in ("simulate --heads fedcov", "tune --adapter lora", "simulate --heads fedcof --set fedcof.gamma=1"):
        command, *words = line.split()
        assert "nowhere.npz cannot be read" not in CliRunner().invoke(app, [command, ABSENT, *words]).output


def test_every_experiment_is_on_the_page_and_every_name_is_an_experiment() -> None:
    named = [line.removeprefix("reproduce ") for line in COMMANDS if line.startswith("reproduce ")]
    assert {each.name for each in find(named)} == set(named)
    assert {each.name for each in experiments()} == set(named)


def test_what_is_called_measured_has_figures_in_the_tables() -> None:
    pages = (DOCS / "tables.md", DOCS / "claims.md", DOCS.with_suffix(".md"))
    figures = "".join(page.read_text() for page in pages)
    for name, _, where, kind in ROWS:
        for experiment in re.findall(r"`reproduce ([^`]+)`", where):
            if kind in ("measured", "runs"):
                shown = any(each.format(experiment) in figures for each in ("({})", "| {} |", "`{}`"))
                assert shown == (kind == "measured"), (name, experiment)
