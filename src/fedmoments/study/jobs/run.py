"""Encode, split, measure, merge, fit, evaluate: the whole job, resumable, every random choice from one seed.

The files that a job leaves: results as JSON and CSV, the report, the configuration and the fitted classifiers.
"""

import csv
import io
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from fedmoments.core.classifier import Classifier
from fedmoments.core.floats import precision
from fedmoments.core.observations import SWEPT, Report, Row
from fedmoments.core.observations.parts import RoundCurve, round_observations
from fedmoments.core.observations.report import Written
from fedmoments.files import write_whole
from fedmoments.pages import write_report
from fedmoments.settings.study import StudySettings
from fedmoments.study.checks import check_study, sweeps_of
from fedmoments.study.crew import crew_of
from fedmoments.study.jobs.budget_curve import budget_curve
from fedmoments.study.jobs.details import Details, round_curves
from fedmoments.study.jobs.encoding import Encoded, encode_data
from fedmoments.study.memory import Memory
from fedmoments.study.simulation.methods import all_names
from fedmoments.study.simulation.points import Point
from fedmoments.study.simulation.rounds import Participation
from fedmoments.study.simulation.sweep import Sweep, plan_sweep
from fedmoments.study.simulation.table import Table, find_all
from fedmoments.study.tracking import Callback, call_all, tracking

__all__ = ["COLUMNS", "PROGRESS", "JobResult", "run_job", "to_csv", "write_outputs"]


_FIGURES = ("accuracy", "up_bytes_total", "up_bytes_per_client", "fit_seconds", "client_seconds", "reason")
#: Columns of results.csv: one row for every setting, head and seed.
COLUMNS = ("head", "baseline", *SWEPT, "seed", *_FIGURES)


def to_csv(rows: Iterable[Row]) -> str:
    """Return one line for every setting, head and seed.

    Examples
    --------
    >>> from fedmoments.core.observations import Outcome, Setting
    >>> row = Row("fedncm", Setting(10, "iid"), "counts + sums", {}, (Outcome(0, 0.9, 10, 640, 10, 0.1),))
    >>> print(to_csv([row]).splitlines()[1])
    fedncm,False,10,iid,1,,,,,,0,0.9,2560,256.0,0.1,,
    """
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    for row in rows:
        for outcome in row.outcomes:
            total = outcome.up_bytes
            sizes = {"up_bytes_total": total, "up_bytes_per_client": total / max(outcome.clients, 1)}
            about = {"head": row.head, "baseline": row.baseline, **sizes}
            writer.writerow({**vars(outcome), **row.setting.to_dict(), **about})
    return text.getvalue()


def write_outputs(
    folder: Path, report: Report, configuration: str, classifiers: Mapping[str, Classifier]
) -> list[Path]:
    """Write all files of a job and return their paths; each appears whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    report.write(folder / "results.json")
    write_whole(folder / "results.csv", to_csv(report.rows).encode())
    write_whole(folder / "config.toml", configuration.encode())
    write_report(folder / "report.html", report)
    heads = folder / "heads"
    heads.mkdir(exist_ok=True)
    for former in heads.glob("*.safetensors"):  # of an earlier run in this folder, with another configuration
        if former.stem not in classifiers:
            former.unlink()
    for name, classifier in classifiers.items():
        classifier.save(heads / f"{name}.safetensors")
    return [folder / name for name in ("report.html", "results.json", "results.csv", "config.toml")] + [heads]


#: File of a job's folder that holds what was found so far.
PROGRESS = "progress.jsonl"

#: Called with (done, in all, what is being done).
Progress = Callable[[int, int, str], None]


@dataclass(frozen=True, eq=False)
class JobResult(Written):
    """What a job found.

    Parameters
    ----------
    report, files
        Everything that was measured: what results.json holds, and the page shows; and what was written.
    classifiers
        Head name -> classifier of the first setting and seed.
    resumed
        How many outcomes an earlier, interrupted run had found already.
    encoded
        How many samples were encoded now rather than found in the cache.
    """

    classifiers: dict[str, Classifier]
    resumed: int
    encoded: int


def run_job(
    config: StudySettings,
    out: Path | None = None,
    *,
    command: str = "",
    cache_dir: Any = None,
    progress: Progress | None = None,
    fresh: bool = False,
    for_report: bool = True,
    callbacks: Sequence[Callback] = (),
) -> JobResult:
    """Run a job.

    Parameters
    ----------
    config
        What to run.
    out
        Folder for results.json, results.csv, report.html, config.toml and heads/; nothing is written without one. A
        job that was interrupted goes on from there.
    command
        What the user typed, for the report.
    cache_dir
        Folder of the feature cache; the user's by default, False does without.
    progress
        Called before every step.
    fresh
        Forget what an earlier run left in ``out``.
    for_report
        Look at what a report shows beyond tables and digests, too: confusions, calibration, who holds what, bias,
        diagnostics. Whoever writes no report and reads no document does without.
    callbacks
        Called with every result as it is found, and with the files at the end.
    """
    check_study(config)
    start = time.perf_counter()
    encoded = encode_data(config, cache_dir=cache_dir, progress=progress, tables=True)
    encode_seconds = time.perf_counter() - start
    config = replace(config, heads=all_names(config.heads), encoder=encoded.encoder.name)
    encoded = encoded.behind(config.feature_map, config.heads)
    memory = Memory(out / PROGRESS if out else None, encoded.basis(), fresh=fresh)
    start = time.perf_counter()
    details = Details(for_report or out is not None)
    with precision(config.precision), tracking(callbacks, config.to_dict()):
        report, first = _simulated(config, encoded, memory, details, progress=progress, callbacks=callbacks)
        timings = {"encode": encode_seconds, "simulate": time.perf_counter() - start}
        report = replace(report, command=command, timings=timings, seconds=sum(timings.values()))
        classifiers = _noted(config, encoded, first, details)
        files = write_outputs(out, report, config.to_toml(), classifiers) if out else []
        for callback in callbacks:
            callback.on_end(report, files)
    return JobResult(report, files, classifiers, memory.found, encoded.computed)


def _simulated(
    config: StudySettings,
    encoded: Encoded,
    memory: Memory,
    details: Details,
    *,
    progress: Progress | None,
    callbacks: Sequence[Callback],
) -> tuple[Report, Point]:
    """Return what was measured, and the first setting; ``details`` looks closer at it on the way."""
    sweep = plan_sweep(
        encoded.features,
        config.heads,
        sweeps_of(config),
        seeds=config.seeds,
        first_seed=config.seed,
        hyper=config.hyper,
        memory_limit=config.memory_limit * 1e9,
        memory=memory,
        progress=progress,
        looks_closer=True,
    )
    table, rounds = _measured(sweep, config, details, progress, callbacks)
    first = sweep.settings[0]
    call_all(callbacks, round_observations(rounds, first.to_dict()))
    curve = budget_curve(encoded.features, config, first, progress=progress) if config.budget_curve else None
    report = replace(
        table.report(),
        data=replace(encoded.describe(), fingerprint=encoded.measured_as().digest),
        rounds=rounds,
        budget_curve=curve,
        config=config.to_dict(),
    )
    return details.added_to(report, sweep.is_first), first


def _measured(
    sweep: Sweep,
    config: StudySettings,
    details: Details,
    progress: Progress | None,
    callbacks: Sequence[Callback],
) -> tuple[Table, tuple[RoundCurve, ...]]:
    """Measure every federation of a sweep once: in rounds, for the table and for a closer look."""
    with crew_of(config.jobs, config.cluster) as crew:
        tell = progress if crew.is_alone else None  # other processes tell nothing of rounds
        look = partial(round_curves, participation=config.participation, progress=tell)
        table, rounds = find_all(sweep, crew, look, details.look, callbacks)
    order = [str(Participation.parse(text)) for text in config.participation]
    return table, tuple(sorted(rounds, key=lambda curve: order.index(curve.participation)))


def _noted(config: StudySettings, encoded: Encoded, first: Point, details: Details) -> dict[str, Classifier]:
    """Return the classifiers with notes of origin."""
    notes: dict[str, Any] = {"encoder": encoded.describe().encoder, "data": config.data}
    description = first.protection.description
    if description:
        notes["protection"] = description
    return {
        name: classifier.noting(**notes, fingerprint=encoded.measured_as(details.measured_behind[name]).digest)
        for name, classifier in details.classifiers.items()
    }
