"""How many modules of ours run code on a sample's way: what grows here grows in every reader's head."""

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import fedmoments as fm
from fedmoments.core.statistics import Ledger
from fedmoments.samples.features import Features, Samples
from fedmoments.settings.study import StudySettings
from fedmoments.study.jobs import run_job

ROOT = f"{Path(fm.__file__).parent}/"
#: Modules from clients' features to a classifier.
FIT = {"fedncm": 25, "fedcof": 30, "gh-lda": 28}
#: One head, setting and seed on features that are held in memory.
SIMULATION = 56
#: The same from a file: read, encoded, checked for duplicates, split, with digests and a privacy card; no report.
STUDY = 95


def walked(call: Callable[[], Any]) -> list[str]:
    """Return the modules of ours in which a function runs, when everything is imported and read that is read once."""
    call()
    modules: set[str] = set()

    def note(frame: Any, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(ROOT) and code.co_name != "<module>":
            modules.add(code.co_filename.removeprefix(ROOT))

    before = sys.getprofile()
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(before)
        threading.setprofile(None)
    return sorted(modules)


@pytest.fixture
def samples() -> tuple[Any, Any]:
    y = np.arange(120) % 3
    return 3.0 * np.eye(3, 8)[y] + np.random.default_rng(0).normal(size=(120, 8)), y


@pytest.mark.parametrize("head", FIT)
def test_fit_passes_no_more_modules_than_it_did(head: str, samples: tuple[Any, Any]) -> None:
    X, y = samples
    parties = {f"party {k}": (X[k::4], y[k::4]) for k in range(4)}
    modules = walked(lambda: fm.fit(head, parties))
    assert len(modules) <= FIT[head], modules


def test_a_simulation_passes_no_more_modules_than_it_did(samples: tuple[Any, Any]) -> None:
    X, y = samples
    features = Features("toy", 3, Samples(X[:90], y[:90]), Samples(X[90:], y[90:]))
    modules = walked(lambda: fm.simulate(features, ["fedcof"], clients=[4], splits=["iid"], seeds=1))
    assert len(modules) <= SIMULATION, modules


def test_a_study_passes_no_more_modules_than_it_did_and_measures_once(
    samples: tuple[Any, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = samples
    np.savez(tmp_path / "toy.npz", x_train=X[:90], y_train=y[:90], x_test=X[90:], y_test=y[90:])
    job = StudySettings(data=f"npz:{tmp_path / 'toy.npz'}", heads=("fedcof",), clients=(4,), seeds=1)
    modules = walked(lambda: run_job(job, for_report=False))
    assert len(modules) <= STUDY, modules

    measured: list[int] = []
    really: Any = Ledger.of

    def counted(*given: Any, **named: Any) -> Ledger:
        measured.append(1)
        return cast("Ledger", really(*given, **named))

    monkeypatch.setattr(Ledger, "of", staticmethod(counted))
    run_job(job, tmp_path / "out")
    assert len(measured) == 1, "with a report, too"
