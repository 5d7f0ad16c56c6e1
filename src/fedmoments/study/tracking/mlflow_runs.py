"""MLflow: one run for the study, with its settings and files, and one run below it for every method and setting.

Accuracy, bytes and seconds are metrics, whose step is the seed, or the round where there are rounds. The study's files
are artifacts as they are on the disk (JSON, CSV, HTML, TOML, safetensors): no model is logged, so nothing is pickled.
"""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedmoments.core.observations import ACCURACY, Observation, Report, Scalar
from fedmoments.errors import InputError
from fedmoments.extras import require
from fedmoments.study.tracking.callback import Callback, Tracker
from fedmoments.study.tracking.naming import flat, metric_name, place_of, short_name, step_of

__all__ = ["ENTRIES", "MlflowCallback"]

#: Experiment of MLflow under which studies stand.
EXPERIMENT = "fedmoments"
#: Longest text that MLflow takes for a parameter.
LONGEST = 500
#: Folder where neither the command nor MLFLOW_TRACKING_URI names a place.
DEFAULT_FOLDER = "mlruns"


class MlflowCallback(Callback):
    """Logs a study with MLflow.

    Parameters
    ----------
    place
        A tracking URI, or a folder; by default what ``MLFLOW_TRACKING_URI`` says, or else the folder ``mlruns``.
    out
        Not used: MLflow has a place of its own.

    Raises
    ------
    InputError
        When the URI holds a password, which reports would repeat.
    MissingExtraError
        When MLflow is not installed.
    """

    def __init__(self, place: str = "", out: Path | None = None) -> None:
        del out
        # MLflow reports its use to its makers unless this is set before it is imported.
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        mlflow = require("mlflow", "--track mlflow", "track", "mlflow-skinny")
        self.place = _checked(place or os.environ.get("MLFLOW_TRACKING_URI", "") or DEFAULT_FOLDER)
        if "://" not in self.place or self.place.startswith("file:"):
            # The user named a folder; MLflow asks for this word besides, since it prefers databases.
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        self._client = self._ask(lambda: mlflow.MlflowClient(tracking_uri=_uri(self.place)))
        self._experiment = ""
        self._study = ""
        self._runs: dict[tuple[tuple[str, Scalar], ...], str] = {}

    def on_start(self, config: Mapping[str, Any]) -> None:
        def start() -> None:
            known = self._client.get_experiment_by_name(EXPERIMENT)
            self._experiment = known.experiment_id if known else self._client.create_experiment(EXPERIMENT)
            self._study = self._client.create_run(self._experiment, run_name="study").info.run_id
            for name, value in flat(config):
                self._client.log_param(self._study, _key(name), value[:LONGEST])

        self._ask(start)

    def on_result(self, result: Observation) -> None:
        def log() -> None:
            run = self._run(place_of(result))
            for seed, value in zip(result.seeds or (None,) * len(result.values), result.values, strict=True):
                if value is not None:
                    self._client.log_metric(run, metric_name(result), value, step=step_of(result, seed))
            if result.reason:
                self._client.set_tag(run, "reason", result.reason[:LONGEST])

        self._ask(log)

    def on_end(self, report: Report, files: Sequence[Path]) -> None:
        def end() -> None:
            for seen in report.results.observations:
                run = self._runs.get(tuple(place_of(seen).items()))
                if run and seen.quantity == ACCURACY and "round" not in seen.where and seen.mean is not None:
                    self._client.log_metric(run, "accuracy_mean", seen.mean)
                    if seen.spread is not None:
                        self._client.log_metric(run, "accuracy_std", seen.spread)
            for path in files:
                log = self._client.log_artifacts if path.is_dir() else self._client.log_artifact
                log(self._study, str(path), *([path.name] if path.is_dir() else []))
            self._close("FINISHED")

        self._ask(end)

    def on_stop(self) -> None:
        if self._study:
            self._ask(lambda: self._close("FAILED"))

    def _run(self, place: dict[str, Scalar]) -> str:
        """Return the run of a method and setting, made when it is first needed."""
        key = tuple(place.items())
        if key not in self._runs:
            tags = {"mlflow.parentRunId": self._study}
            run = self._client.create_run(self._experiment, run_name=short_name(place), tags=tags).info.run_id
            for name, value in place.items():
                self._client.log_param(run, _key(name), str(value)[:LONGEST])
            self._runs[key] = run
        return self._runs[key]

    def _close(self, status: str) -> None:
        for run in (*self._runs.values(), self._study):
            self._client.set_terminated(run, status)

    def _ask(self, request: Callable[[], Any]) -> Any:
        """Ask MLflow; what it refuses is said in one sentence."""
        refused = require("mlflow.exceptions", "--track mlflow", "track", "mlflow-skinny").MlflowException
        try:
            return request()
        except (refused, OSError) as error:
            why = str(error).partition("\n")[0]
            raise InputError(
                f"MLflow at {self.place} did not take what was tracked: {why}. Check --track mlflow:PLACE and "
                "MLFLOW_TRACKING_URI, or leave --track out"
            ) from error


def _checked(place: str) -> str:
    """Refuse a password in a URI: commands and reports would repeat it."""
    if re.match(r"[a-z+]+://[^/@]*:[^/@]*@", place):
        raise InputError(
            "the tracking URI holds a password, which reports would repeat: leave user and password out of it and set "
            "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD"
        )
    return place


def _uri(place: str) -> str:
    return place if "://" in place or place.startswith("file:") else Path(place).absolute().as_uri()


def _key(name: str) -> str:
    """Return a name with the letters that MLflow takes."""
    return re.sub(r"[^\w./ :-]", "_", name)


ENTRIES = (Tracker("mlflow", MlflowCallback),)
