"""A workshop: an empty directory with a small features file where ``fedmoments demo`` would leave it.

And what ``fedmoments demo`` itself leaves, made once for all tests and all processes that run them.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from filelock import FileLock
from tests.waiting import HANG, without_progress

from fedmoments.cli.app import app

Arrays = dict[str, Any]
Run = Callable[..., Any]


def toy_arrays(n_classes: int = 10, dim: int = 12, n_train: int = 600, n_test: int = 200) -> Arrays:
    """Gaussian classes with a common covariance, so that heads differ."""
    rng = np.random.default_rng(7)
    means = rng.normal(scale=1.2, size=(n_classes, dim))
    mixing = rng.normal(size=(dim, dim)) / np.sqrt(dim)

    def draw(n: int) -> tuple[Any, Any]:
        y = rng.integers(n_classes, size=n)
        return (means[y] + rng.normal(size=(n, dim)) @ mixing).astype(np.float32), y

    (x_train, y_train), (x_test, y_test) = draw(n_train), draw(n_test)
    names = np.array([f"class {label}" for label in range(n_classes)])
    return {"x_train": x_train, "y_train": y_train, "x_test": x_test, "y_test": y_test, "classes": names}


@pytest.fixture
def arrays() -> Arrays:
    return toy_arrays()


@pytest.fixture(scope="session")
def session(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all processes of this session share."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


@dataclass(frozen=True)
class Demo:
    """What ``fedmoments demo`` printed, and the folder that it was started in."""

    folder: Path
    printed: str


@pytest.fixture(scope="session")
def demo(session: Path) -> Demo:
    """Run ``fedmoments demo`` as a person does, once: it takes as long as all other tests of commands."""
    pytest.importorskip("sklearn")
    pytest.importorskip("torch")
    folder = session / "demo"
    printed = folder / "printed.txt"
    with FileLock(session / "demo.lock"):
        if not printed.exists():
            folder.mkdir(exist_ok=True)
            result = subprocess.run(
                [sys.executable, "-m", "fedmoments", "demo"],
                cwd=folder,
                env={**os.environ, "FEDMOMENTS_CACHE": str(session / "cache")},
                capture_output=True,
                text=True,
                timeout=HANG,
                check=False,
            )
            said = without_progress(result.stderr)
            assert (result.returncode, said) == (0, "")
            printed.write_text(result.stdout, "utf-8")
    return Demo(folder, printed.read_text("utf-8"))


@pytest.fixture
def workshop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arrays: Arrays, session: Path) -> Path:
    """The current directory of a test, with ``runs/demo/digits.npz`` in it; features are cached for the session."""
    folder = tmp_path / "runs" / "demo"
    folder.mkdir(parents=True)
    np.savez(folder / "digits.npz", **arrays)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setenv("FEDMOMENTS_CACHE", str(session / "cache"))
    return tmp_path


@pytest.fixture
def features(workshop: Path) -> str:
    return str(Path("runs", "demo", "digits.npz"))


@pytest.fixture
def run(workshop: Path) -> Run:
    """Run a command in this process; it must succeed unless another exit code is expected."""

    def invoke(*arguments: str, code: int = 0) -> Any:
        result = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
        assert result.exit_code == code, result.output
        return result

    return invoke


@pytest.fixture(autouse=True)
def no_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """Say nothing on how far a command is, which on a slow machine would stand among what it says."""
    monkeypatch.setattr("fedmoments.cli.output.QUIET", float("inf"))
