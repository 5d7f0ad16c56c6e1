"""How many modules of ours run code on a sample's way: what grows here grows in every reader's head."""

import sys
import threading
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, cast

import numpy as np
import pytest

import fedmoments as fm
from fedmoments.core.statistics import Ledger
from fedmoments.federation.deploy.local import prepare_local, run_local
from fedmoments.samples.features import Features, Samples
from fedmoments.settings.server import ServerSettings
from fedmoments.settings.study import StudySettings
from fedmoments.study.jobs import run_job

ROOT = f"{Path(fm.__file__).parent}/"
#: Modules from clients' features to a classifier.
FIT = {"fedncm": 26, "fedcof": 29, "gh-lda": 27}
#: One head, setting and seed on features that are held in memory.
SIMULATION = 55
#: The same from a file: read, encoded, checked for duplicates, split, with digests and a privacy card; no report.
STUDY = 95
#: A federation in one process, by which app runs them: a client's answers, and the server's whole run with its report.
ROLES = {"client": 106, "server": 138}
APPS = {"federation/flower/client_app.py": "client", "federation/flower/server_app.py": "server"}


def module_of(frame: FrameType) -> str | None:
    """Return the module of ours in which a function runs; None for other code, and for what is read once."""
    code = frame.f_code
    if code.co_name == "<module>" or not code.co_filename.startswith(ROOT):
        return None
    return code.co_filename.removeprefix(ROOT)


def role_of(frame: FrameType | None) -> str:
    """Return whose app called a function; nobody's while modules are imported."""
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_code.co_filename.startswith(ROOT):
            return ""
        if app := APPS.get(module_of(frame) or ""):
            return app
        frame = frame.f_back
    return ""


def walked(call: Callable[[], Any]) -> list[str]:
    """Return the modules of ours in which a function runs, when everything is imported and read that is read once."""
    call()
    modules: set[str] = set()
    watched(call, lambda frame, module: modules.add(module))
    return sorted(modules)


def watched(call: Callable[[], Any], notice: Callable[[FrameType, str], Any]) -> None:
    """Call, and notice every function of ours that is called on the way, with its module."""

    def note(frame: FrameType, event: str, _: Any) -> None:
        module = module_of(frame) if event == "call" else None
        if module is not None:
            notice(frame, module)

    before = sys.getprofile()
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(before)
        threading.setprofile(None)


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


def test_a_federation_passes_no_more_modules_than_it_did(samples: tuple[Any, Any], tmp_path: Path) -> None:
    X, y = samples
    np.savez(tmp_path / "toy.npz", x_train=X[:90], y_train=y[:90], x_test=X[90:], y_test=y[90:])
    study = StudySettings(data=f"npz:{tmp_path / 'toy.npz'}", clients=(6,), splits=("iid",), seeds=1)
    server = ServerSettings(ledger=str(tmp_path / "ledger.db"), heads=("fedcof",), out=str(tmp_path / "out"))
    plan = prepare_local(tmp_path / "place", study, server, nodes=3, engine="memory", policy={"min_count": 1})
    modules: dict[str, set[str]] = defaultdict(set)

    def notice(frame: FrameType, module: str) -> None:
        if any(module not in modules[role] for role in ROLES):
            modules[role_of(frame)].add(module)

    watched(lambda: run_local(plan, "memory"), notice)
    for role, most in ROLES.items():
        assert len(modules[role]) <= most, sorted(modules[role])
