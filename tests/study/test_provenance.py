"""Results of other code are never kept: ours, somebody else's head, its helpers, its version."""

import importlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedmoments as fm
from fedmoments import provenance
from fedmoments.core.heads.head import Head
from fedmoments.errors import InputError
from fedmoments.privacy.modes.registry import MODES
from fedmoments.provenance import code_of, package_code
from fedmoments.settings.optimisers import OPTIMISERS
from fedmoments.settings.study import StudySettings
from fedmoments.study.jobs import run_job
from fedmoments.study.memory import identity_of

HEAD = """
from dataclasses import dataclass
import numpy as np
from fedmoments.core.classifier import LinearClassifier
from fedmoments.core.statistics import StatisticsSpec
from fedmoments.core.heads import Head, Preset

@dataclass(frozen=True)
class Mine(Head):
    @property
    def needs(self):
        return StatisticsSpec()

    def solve(self, stats):
        means = SIGN * stats.sums / np.maximum(stats.counts, 1)[:, None]
        return LinearClassifier(weights=means.T, bias=-0.5 * (means**2).sum(axis=1), present=stats.counts > 0)

PRESETS = Preset("mine", Mine, "nearest mean, by hand", "nobody's")
"""


def write_head(folder: Path, sign: str) -> None:
    """Install a package with a head, found by its entry point, in a folder; or install it anew with other code."""
    about = folder / "mine_head-1.0.dist-info"
    about.mkdir(parents=True, exist_ok=True)
    (folder / "mine_head.py").write_text(HEAD.replace("SIGN", sign), "utf-8")
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: mine-head\nVersion: 1.0\n", "utf-8")
    (about / "entry_points.txt").write_text("[fedmoments.heads]\nmine = mine_head:PRESETS\n", "utf-8")


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    y = np.arange(240) % 4
    X = 3 * np.eye(4, 8)[y] + rng.normal(size=(240, 8))
    np.savez(tmp_path / "toy.npz", x_train=X[:160], y_train=y[:160], x_test=X[160:], y_test=y[160:])
    return f"npz:{tmp_path / 'toy.npz'}"


def simulate(data: str, *more: str) -> tuple[float, float, str]:
    """Run the command in a process of its own: accuracy of the table, of the saved classifier, and what was said."""
    python, place = [sys.executable, "-m", "fedmoments"], {**os.environ, "PYTHONPATH": "site"}
    arguments = ["simulate", data, "--heads", "mine", "--clients", "5", "--seeds", "1", "-o", "out", *more]
    said = subprocess.run([*python, *arguments], env=place, capture_output=True, text=True, check=True).stdout
    table = json.loads(Path("out/results.json").read_text("utf-8"))["rows"][0]["accuracy"]
    saved = fm.load("out/heads/mine.safetensors")
    arrays = np.load("toy.npz")
    return table, float((saved.predict(arrays["x_test"]) == arrays["y_test"]).mean()), said


def test_a_head_by_entry_point_that_was_edited_is_measured_again(data: str) -> None:
    write_head(Path("site"), "+1.0")
    table, saved, _ = simulate(data)
    assert table == saved > 0.9
    assert "1 result of an earlier run in out" in simulate(data)[2]
    assert "earlier run" not in simulate(data, "--fresh")[2]
    write_head(Path("site"), "-1.0")  # every prediction turns
    table, saved, said = simulate(data)
    assert table == saved < 0.1
    assert "earlier run" not in said
    write_head(Path("site"), "+1.0")
    assert "1 result of an earlier run in out" in simulate(data)[2], "the old code finds its own results"


def test_other_code_of_ours_finds_nothing(data: str, monkeypatch: pytest.MonkeyPatch) -> None:
    job = StudySettings(data=data, heads=("fedncm",), clients=(5,), seeds=2)
    run_job(job, Path("out"), cache_dir=False)
    assert run_job(job, Path("out"), cache_dir=False).resumed == 2
    monkeypatch.setattr(provenance, "package_code", lambda: "a built-in head was edited")
    assert run_job(job, Path("out"), cache_dir=False).resumed == 0


def test_fresh_forgets(data: str) -> None:
    job = StudySettings(data=data, heads=("fedncm",), clients=(5,), seeds=2)
    run_job(job, Path("out"), cache_dir=False)
    assert run_job(job, Path("out"), cache_dir=False, fresh=True).resumed == 0
    assert run_job(job, Path("out"), cache_dir=False).resumed == 2


def test_our_sources_are_all_in_the_hash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy of the package has the same hash; one more space in any file has another."""
    copy = tmp_path / "fedmoments"
    shutil.copytree(Path(fm.__file__).parent, copy, ignore=shutil.ignore_patterns("__pycache__"))
    before = package_code.__wrapped__()
    monkeypatch.setattr(fm, "__file__", str(copy / "__init__.py"))
    assert package_code.__wrapped__() == before
    for name in ("core/linalg.py", "study/simulation/sweep.py"):
        (copy / name).write_text((copy / name).read_text("utf-8") + " \n", "utf-8")
        changed = package_code.__wrapped__()
        assert changed != before
        before = changed


def test_a_head_of_a_package_depends_on_all_of_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A helper module that was edited changes the code of a head beside it."""
    monkeypatch.syspath_prepend(str(tmp_path))
    folder = tmp_path / "party_heads"
    folder.mkdir()
    (folder / "__init__.py").write_text("", "utf-8")
    (folder / "helper.py").write_text("SIGN = 1\n", "utf-8")
    (folder / "head.py").write_text(HEAD.replace("SIGN", "1.0"), "utf-8")
    one = importlib.import_module("party_heads.head")
    first = code_of(one.Mine)
    assert first != package_code()
    (folder / "helper.py").write_text("SIGN = 2\n", "utf-8")
    again = importlib.reload(one)
    assert code_of(again.Mine) != first
    for name in [name for name in sys.modules if name.startswith("party_heads")]:
        del sys.modules[name]


def test_a_head_of_a_lone_module_depends_on_the_modules_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A module in no package, and a function and a module that it imports from its own folder."""
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "lone_sign.py").write_text("import lone_deep\ndef sign():\n    return lone_deep.SIGN\n", "utf-8")
    (tmp_path / "lone_deep.py").write_text("SIGN = 1\n", "utf-8")
    (tmp_path / "lone_other.py").write_text("nobody = 'imports it'\n", "utf-8")
    (tmp_path / "lone_head.py").write_text("from lone_sign import sign\n" + HEAD.replace("SIGN", "sign()"), "utf-8")
    head = importlib.import_module("lone_head")
    seen = [code_of(head.Mine)]
    for name in ("lone_other", "lone_deep", "lone_sign"):
        with (tmp_path / f"{name}.py").open("a", encoding="utf-8") as file:
            file.write("# edited\n")
        seen.append(code_of(importlib.reload(head).Mine))
    assert seen[0] == seen[1]
    assert len(set(seen)) == 3
    for name in [name for name in sys.modules if name.startswith("lone_")]:
        del sys.modules[name]


def test_a_class_that_was_typed_is_never_the_same() -> None:
    """Without a file nobody knows what it will be next time; within a process it is one thing."""
    namespace: dict[str, Any] = {"__name__": "typed", "Head": Head}
    exec("class Typed(Head): pass", namespace)
    exec("class Other(Head): pass", namespace)
    typed, other = namespace["Typed"], namespace["Other"]
    assert code_of(typed) == code_of(typed)
    assert code_of(typed) != code_of(other)


def test_identity_has_class_and_hyper_parameters() -> None:
    from fedmoments.core.heads import make_head

    assert identity_of(make_head("fedncm")) == identity_of(make_head("fedncm"))
    assert identity_of(make_head("fedncm")) != identity_of(make_head("fedncm", metric="euclidean"))
    assert identity_of(make_head("fedcof")) != identity_of(make_head("fedcof-oracle"))


MODE = """
from fedmoments.privacy.modes.clear import Clear

class Whispered(Clear):
    name = "whispered"
    PITCH = 1
"""


def test_what_was_simulated_in_a_mode_of_ones_own_is_measured_again_when_its_code_changes(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    job = StudySettings(data=data, heads=("fedncm",), clients=(5,), seeds=1, privacy={"secure": "whispered"})
    kept = []
    for pitch in "112":
        (tmp_path / "whispering.py").write_text(MODE.replace("PITCH = 1", f"PITCH = {pitch}"), "utf-8")
        sys.modules.pop("whispering", None)
        importlib.invalidate_caches()
        fm.register_privacy(importlib.import_module("whispering").Whispered)
        try:
            kept.append(run_job(job, Path("out"), cache_dir=False).resumed)
        finally:
            MODES.remove("whispered")
    assert kept == [0, 1, 0]


OPTIMISER = """
from fedmoments.tuning.optimisers import Scaffold

class Slower(Scaffold):
    controlled = True
    step_size = {}
"""


def test_a_checkpoint_of_an_optimiser_that_was_edited_is_refused(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    arrays = np.load("toy.npz")
    parties = {str(k): (arrays["x_train"][k::3], arrays["y_train"][k::3]) for k in range(3)}
    refused = []
    for step in ("0.5", "0.5", "0.25"):
        source = OPTIMISER.format(step)
        (tmp_path / "slower_steps.py").write_text(source, "utf-8")
        sys.modules.pop("slower_steps", None)
        importlib.invalidate_caches()
        fm.register_optimiser(importlib.import_module("slower_steps").Slower, "slower")
        try:
            plan = fm.TuningPlan(rounds=2, lr=0.01, optimiser="slower")
            fm.tune(parties, "fedncm", plan, checkpoint=tmp_path / "rounds.ckpt")
            refused.append(False)
        except InputError:
            refused.append(True)
        finally:
            OPTIMISERS.remove("slower")
    assert refused == [False, False, True]
