"""TensorBoard: a folder for the study, in it one run for every method and setting, with its figures as scalars.

The step is the seed, or the round where there are rounds. Settings are hyper-parameters of the run, so that the tab
HPARAMS compares them. Each figure is written at once, and no file stays open.
"""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedmoments.core.observations import ACCURACY, Observation, Report, Scalar
from fedmoments.extras import require
from fedmoments.study.tracking.callback import Callback, Tracker
from fedmoments.study.tracking.naming import metric_name, place_of, short_name, step_of

__all__ = ["ENTRIES", "TensorBoardCallback"]

#: Folder where neither the command nor a results folder names one.
DEFAULT_FOLDER = Path("runs")


class TensorBoardCallback(Callback):
    """Writes event files for TensorBoard.

    Parameters
    ----------
    place
        A folder; by default ``tensorboard`` in the results folder, or ``runs/tensorboard``.
    out
        The results folder.

    Raises
    ------
    MissingExtraError
        When TensorBoard is not installed.
    """

    def __init__(self, place: str = "", out: Path | None = None) -> None:
        self._events = _part("compat.proto.event_pb2")
        self._summaries = _part("compat.proto.summary_pb2")
        self._records = _part("summary.writer.record_writer")
        self._parameters = _part("plugins.hparams.summary_v2")
        self._home = Path(place) if place else (out or DEFAULT_FOLDER) / "tensorboard"
        self._files: dict[tuple[tuple[str, Scalar], ...], Path] = {}

    @property
    def place(self) -> str:  # type: ignore[override]
        """The folder, for ``tensorboard --logdir``."""
        return str(self._home)

    def on_start(self, config: Mapping[str, Any]) -> None:
        del config
        moment = time.strftime("%Y%m%d-%H%M%S")
        names = [moment, *(f"{moment}-{number}" for number in range(2, 1000))]
        # A second study within a second gets a folder of its own, or TensorBoard would draw both as one.
        self._study = next(self._home / name for name in names if not (self._home / name).exists())
        self._study.mkdir(parents=True)

    def on_result(self, result: Observation) -> None:
        file = self._file(place_of(result))
        for seed, value in zip(result.seeds or (None,) * len(result.values), result.values, strict=True):
            if value is not None:
                self._write(file, self._scalar(metric_name(result), value), step_of(result, seed))

    def on_end(self, report: Report, files: Sequence[Path]) -> None:
        del files
        for seen in report.results.observations:
            file = self._files.get(tuple(place_of(seen).items()))
            if file and seen.quantity == ACCURACY and "round" not in seen.where and seen.mean is not None:
                self._write(file, self._scalar("accuracy_mean", seen.mean), 0)

    def _scalar(self, name: str, value: float) -> Any:
        summary = self._summaries.Summary
        return summary(value=[summary.Value(tag=name, simple_value=value)])

    def _file(self, place: dict[str, Scalar]) -> Path:
        """Return the event file of a method and setting, begun when it is first needed."""
        key = tuple(place.items())
        if key not in self._files:
            number = len(self._files)
            folder = self._study / f"{number:03d} {short_name(place)}"[:200]
            folder.mkdir()
            file = folder / f"events.out.tfevents.{int(time.time()):010d}.fedmoments.{number}"
            self._append(file, self._events.Event(wall_time=time.time(), file_version="brain.Event:2"))
            self._write(file, self._parameters.hparams_pb(place, trial_id=folder.name), 0)
            self._files[key] = file
        return self._files[key]

    def _write(self, file: Path, summary: Any, step: int) -> None:
        self._append(file, self._events.Event(wall_time=time.time(), step=step, summary=summary))

    def _append(self, file: Path, event: Any) -> None:
        with file.open("ab") as stream:
            self._records.RecordWriter(stream).write(event.SerializeToString())


def _part(module: str) -> Any:
    return require(f"tensorboard.{module}", "--track tensorboard", "track", "tensorboard")


ENTRIES = (Tracker("tensorboard", TensorBoardCallback),)
