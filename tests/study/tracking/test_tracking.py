"""Results reach callbacks, MLflow's own store and TensorBoard's own reader as they are found."""

import importlib
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedmoments as fm
from fedmoments.errors import InputError, MissingExtraError, UnknownNameError
from fedmoments.samples.features import Features, Samples
from fedmoments.study.tracking import make_trackers
from fedmoments.study.tracking.mlflow_runs import MlflowCallback
from fedmoments.study.tracking.tensorboard_events import TensorBoardCallback

CLIENTS, SEEDS = (4, 8), 2


def features() -> Features:
    y = np.arange(240) % 3
    X = np.eye(3, 5)[y] + np.random.default_rng(0).normal(scale=0.6, size=(240, 5))
    return Features("toy", 3, train=Samples(X[:160], y[:160]), test=Samples(X[160:], y[160:]))


def run(*callbacks: fm.Callback) -> fm.Report:
    heads = ["fedncm", "fedcof"]
    return fm.simulate(features(), heads, clients=CLIENTS, splits=["iid"], seeds=SEEDS, callbacks=callbacks)


class Noting(fm.Callback):
    def __init__(self, fail: bool = False) -> None:
        self.seen: list[fm.Observation] = []
        self.events: list[str] = []
        self.fail = fail

    def on_start(self, config: Mapping[str, Any]) -> None:
        self.events.append(f"start {config['data']}")

    def on_result(self, result: fm.Observation) -> None:
        self.seen.append(result)
        if self.fail:
            raise RuntimeError("full")

    def on_end(self, report: fm.Report, files: Sequence[Path]) -> None:
        self.events.append(f"end {len(report.rows)} {len(files)}")

    def on_stop(self) -> None:
        self.events.append("stop")


def test_a_callback_gets_every_result_once_and_in_order() -> None:
    noting = Noting()
    report = run(noting)
    assert noting.events == ["start toy", "end 4 0"]
    accuracies = [each for each in noting.seen if each.quantity == "accuracy"]
    assert all(len(each.values) == len(each.seeds) == 1 for each in noting.seen)
    for whole in report.results.observations:
        if whole.quantity == "accuracy":
            mine = [each for each in accuracies if each.where == whole.where]
            assert [each.seeds[0] for each in mine] == list(range(SEEDS))
            assert tuple(each.values[0] for each in mine) == whole.values
    assert len(accuracies) == 2 * len(CLIENTS) * SEEDS


def test_a_callback_that_fails_ends_the_study_and_others_are_closed() -> None:
    first, failing = Noting(), Noting(fail=True)
    with pytest.raises(RuntimeError, match="full"):
        run(first, failing)
    assert first.events == failing.events == ["start toy", "stop"]
    assert len(failing.seen) == 1


def mlflow_runs(folder: Path) -> tuple[Any, list[Any]]:
    client = importlib.import_module("mlflow").MlflowClient(tracking_uri=folder.absolute().as_uri())
    experiment = client.get_experiment_by_name("fedmoments")
    return client, client.search_runs([experiment.experiment_id])


def test_mlflow_has_a_run_for_every_method_and_setting(tmp_path: Path) -> None:
    callback = MlflowCallback(str(tmp_path / "store"))
    report = run(callback)
    client, runs = mlflow_runs(tmp_path / "store")
    (study,) = [each for each in runs if "mlflow.parentRunId" not in each.data.tags]
    below = {(each.data.params["head"], int(each.data.params["clients"])): each for each in runs if each != study}
    assert study.data.params["data"] == "toy"
    assert {each.info.status for each in runs} == {"FINISHED"}
    assert len(below) == len(runs) - 1 == 2 * len(CLIENTS)
    for row in report.rows:
        logged = below[row.head, row.setting.clients or 0]
        assert logged.data.tags["mlflow.parentRunId"] == study.info.run_id
        history = client.get_metric_history(logged.info.run_id, "accuracy")
        assert {each.step: each.value for each in history} == dict(enumerate(row.accuracies))
        assert logged.data.metrics["accuracy_mean"] == row.accuracy
        assert logged.data.metrics["up_bytes"] == row.outcomes[-1].up_bytes / row.outcomes[-1].clients


def test_mlflow_marks_a_study_that_failed(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="full"):
        run(MlflowCallback(str(tmp_path / "store")), Noting(fail=True))
    assert {each.info.status for each in mlflow_runs(tmp_path / "store")[1]} == {"FAILED"}


def test_mlflow_refuses_a_password_in_the_uri_and_does_not_repeat_it() -> None:
    with pytest.raises(InputError, match="MLFLOW_TRACKING_PASSWORD") as caught:
        MlflowCallback("https://me:secret@tracking.example")
    assert "secret" not in str(caught.value)


def test_mlflow_in_a_place_that_is_none_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(InputError, match=r"MLflow at .*file did not take what was tracked"):
        run(MlflowCallback(str(tmp_path / "file")))


def test_tensorboard_reads_every_figure(tmp_path: Path) -> None:
    reader = importlib.import_module("tensorboard.backend.event_processing.event_accumulator")
    report = run(TensorBoardCallback(str(tmp_path)))
    (study,) = tmp_path.iterdir()
    folders = sorted(study.iterdir())
    assert [folder.name[4:] for folder in folders][:2] == [
        "fedncm clients=4 split=iid means_per_client=1",
        "fedcof clients=4 split=iid means_per_client=1",
    ]
    for folder, row in zip(folders, report.rows, strict=True):
        events = reader.EventAccumulator(str(folder))
        events.Reload()
        scalars = events.Scalars("accuracy")
        assert [each.step for each in scalars] == list(range(SEEDS))
        assert [each.value for each in scalars] == pytest.approx(row.accuracies, rel=1e-6)
        assert events.Scalars("accuracy_mean")[0].value == pytest.approx(row.accuracy, rel=1e-6)
        assert {"up_bytes", "up_total_bytes", "fit_seconds"} <= set(events.Tags()["scalars"])


def test_two_studies_have_folders_of_their_own(tmp_path: Path) -> None:
    for _ in range(2):
        TensorBoardCallback("", tmp_path).on_start({})
    assert len(list((tmp_path / "tensorboard").iterdir())) == 2


def test_unknown_names_and_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'mlflow'"):
        make_trackers(["mlfow"], None)
    for name in [name for name in sys.modules if name.partition(".")[0] == "tensorboard"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(MissingExtraError, match=r"fedmoments\[track\]"):
        make_trackers(["tensorboard"], None)


def test_the_command_tracks_with_both_and_logs_files_without_pickle(tmp_path: Path) -> None:
    y = np.arange(120) % 3
    X = (np.eye(3, 4)[y] + np.random.default_rng(1).normal(scale=0.3, size=(120, 4))).astype("f4")
    np.savez(tmp_path / "toy.npz", x_train=X[:80], y_train=y[:80], x_test=X[80:], y_test=y[80:])
    command = [sys.executable, "-m", "fedmoments", "simulate", "toy.npz", "--heads", "fedncm", "--clients", "4"]
    command += ["--seeds", "1", "--participation", "2", "--out", "out", "--track", "mlflow,tensorboard"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "logged in mlruns" in done.stdout
    assert f"logged in {Path('out', 'tensorboard')}" in done.stdout
    client, runs = mlflow_runs(tmp_path / "mlruns")
    (study,) = [each for each in runs if "mlflow.parentRunId" not in each.data.tags]
    names = {each.path for each in client.list_artifacts(study.info.run_id)}
    assert {"results.json", "results.csv", "report.html", "config.toml", "heads"} <= names
    stored = {path.suffix for path in (tmp_path / "mlruns").rglob("*") if path.is_file()}
    assert not stored & {".pkl", ".pickle", ".joblib"}
    rounds = [each for each in runs if "participation" in each.data.params]
    assert len(client.get_metric_history(rounds[0].info.run_id, "accuracy_by_round")) == 2
    document = json.loads((tmp_path / "out" / "results.json").read_text())
    assert document["rows"][0]["head"] == "fedncm"
