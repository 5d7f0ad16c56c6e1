"""Names that come from others cannot write to the terminal: whatever is not printable is shown, not sent."""

import io
import json
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedmoments as fm
from fedmoments.cli.output import fits_width, print_json, print_line, print_note, print_table, visible

#: Clears the screen; sets the title; rewrites the line; turns the direction of text; a C1 control; a line of its own.
HOSTILE = ("\x1b[2Jcat", "\x1b]0;owned\x07dog", "cow\rerror: none", "a\u202eb", "\x9b31mred", "x\nnote: all is well")


def harmless(text: str) -> bool:
    return all(letter.isprintable() or letter == "\n" for letter in text)


@given(st.text(max_size=40))
def test_law_nothing_that_is_printed_moves_a_terminal(text: str) -> None:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        print_line(f"note: {text}")
        print_table(["name", f"of {text}"], [[text, "1"]], right=["name"])
        print_json({"name": text})
        print_note(text)
        fits_width(["name"], [[text]])
    assert harmless(out.getvalue()), out.getvalue()
    assert harmless(err.getvalue())
    assert err.getvalue().count("\n") == 1
    assert out.getvalue().startswith(f"note: {visible(text)}"[:20])


def test_a_json_document_is_the_same_after_it_was_made_visible(capsys: pytest.CaptureFixture[str]) -> None:
    document = {name: list(HOSTILE) for name in HOSTILE}
    print_json(document)
    printed = capsys.readouterr().out
    assert harmless(printed)
    assert json.loads(printed) == document


@pytest.fixture
def hostile_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A features file, statistics and a classifier whose classes have hostile names, in a hostile folder."""
    folder = tmp_path / "a\x1b[2Jb"
    folder.mkdir()
    monkeypatch.chdir(folder)
    rng = np.random.default_rng(0)
    y = np.arange(240) % len(HOSTILE)
    X = (rng.normal(size=(240, 5)) + y[:, None]).astype(np.float32)
    np.savez("f\x1b[31m.npz", x_train=X, y_train=y, x_test=X[:60], y_test=y[:60], classes=np.array(HOSTILE))
    head = fm.fit("gh-lda", {"a": (X, y)}, class_names=HOSTILE)
    head.save("h\x1b[31m.safetensors")
    spec = fm.StatisticsSpec.of("class_grams", "class_thirds", "class_fourths")
    stats = fm.Statistics.of(X, y, spec, n_classes=len(HOSTILE))
    fm.save_statistics("s\x1b[31m.stats", stats, {"class_names": list(HOSTILE)})
    return {"features": "f\x1b[31m.npz", "head": "h\x1b[31m.safetensors", "statistics": "s\x1b[31m.stats"}


@pytest.mark.parametrize(
    "arguments",
    [
        ("inspect", "{head}"),
        ("inspect", "{statistics}"),
        ("diagnose", "{statistics}"),
        ("diagnose", "{features}", "--clients", "3"),
        ("simulate", "{features}", "--clients", "3", "--heads", "fedncm", "--details"),
        ("audit", "{features}", "--moments", "class_grams"),
        ("audit", "{features}", "--min-count", "5", "--json"),
        ("server", "create", "{features}x", "--classes", "{features}"),
        ("split", "{features}", "--clients", "3", "-o", "o\x1b[31m"),
        ("predict", "{head}", "{features}"),
        ("inspect", "none\x1b[2J"),
    ],
    ids=" ".join,
)
def test_no_command_sends_what_names_hold(arguments: tuple[str, ...], hostile_files: dict[str, str]) -> None:
    from click.testing import CliRunner

    from fedmoments.cli.app import app

    result: Any = CliRunner().invoke(app, [word.format(**hostile_files) for word in arguments])
    assert harmless(result.stdout), repr(result.stdout)
    assert harmless(result.stderr), repr(result.stderr)
    assert result.stdout or result.stderr
    assert isinstance(result.exception, SystemExit | None)
