"""Encode, split, measure, merge, fit, evaluate: the whole job, resumable, every random choice from one seed."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import fedmoments
from fedmoments.core.classifier import Classifier
from fedmoments.core.observations import Results
from fedmoments.privacy.sweep import read_protections
from fedmoments.settings.study import StudySettings
from fedmoments.study.checks import check_study, dimensions_of
from fedmoments.study.jobs.budget_curve import budget_curve
from fedmoments.study.jobs.details import Details, round_curves
from fedmoments.study.jobs.encoding import Encoded, encode_data
from fedmoments.study.jobs.outputs import write_outputs
from fedmoments.study.memory import Memory
from fedmoments.study.simulation.methods import all_names
from fedmoments.study.simulation.points import Point
from fedmoments.study.simulation.results import SimulationResult
from fedmoments.study.simulation.rounds import Participation, RoundCurve
from fedmoments.study.simulation.sweep import Table, plan_sweep

__all__ = ["PROGRESS", "JobResult", "run_job"]

#: File of a job's folder that holds what was found so far.
PROGRESS = "progress.jsonl"

#: Called with (done, in all, what is being done).
Progress = Callable[[int, int, str], None]


@dataclass(frozen=True, eq=False)
class JobResult:
    """What a job found.

    Parameters
    ----------
    simulation
        The table.
    rounds
        Accuracy round by round, where clients take part in rounds.
    document
        Everything, ready for JSON; what results.json holds.
    classifiers
        Head name -> classifier of the first setting and seed.
    files
        What was written.
    resumed
        How many outcomes an earlier, interrupted run had found already.
    encoded
        How many samples were encoded now rather than found in the cache.
    """

    simulation: SimulationResult
    rounds: tuple[RoundCurve, ...]
    document: dict[str, Any]
    classifiers: dict[str, Classifier]
    files: list[Path]
    resumed: int
    encoded: int

    @cached_property
    def results(self) -> Results:
        """Every observation: of the table, of pairs of methods, and of rounds."""
        place = self.simulation.rows[0].setting.to_dict()
        in_rounds = (each for curve in self.rounds for each in curve.observations(**place))
        return Results((*self.simulation.results.observations, *in_rounds))


def run_job(
    config: StudySettings,
    out: Path | None = None,
    *,
    command: str = "",
    cache_dir: Any = None,
    progress: Progress | None = None,
    fresh: bool = False,
    for_report: bool = True,
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
    """
    check_study(config)
    timings: dict[str, float] = {}
    clock = time.perf_counter()
    encoded = encode_data(config, cache_dir=cache_dir, progress=progress)
    timings["encode"] = time.perf_counter() - clock
    config = replace(config, heads=all_names(config.heads), encoder=encoded.encoder.name)
    encoded = encoded.behind(config.feature_map, config.heads)
    memory = Memory(out / PROGRESS if out else None, encoded.basis(), fresh=fresh)
    clock = time.perf_counter()
    sweep = plan_sweep(
        encoded.features,
        config.heads,
        clients=config.clients,
        splits=config.splits,
        shrinkages=config.shrinkages or (None,),
        means_per_client=config.means_per_client,
        projections=dimensions_of(config),
        protections=read_protections(config.privacy),
        budgets=config.budgets,
        seeds=config.seeds,
        first_seed=config.seed,
        hyper=config.hyper,
        memory_limit=config.memory_limit * 1e9,
        memory=memory,
        progress=progress,
        looks_closer=True,
    )
    table, details, rounds = Table(sweep), Details(for_report or out is not None), list[RoundCurve]()
    for held in sweep:
        if sweep.is_first(held.setting):
            rounds += round_curves(held, config.participation, progress=progress)
        table.add(held)
        if held.is_first:
            details.look(held)
    places = {detail["head"]: place for place, detail in enumerate(details.heads)}
    simulation = table.result(0.0)
    rows = (
        replace(row, detail=places.get(row.head)) if sweep.is_first(row.setting) else row for row in simulation.rows
    )
    simulation = replace(simulation, rows=tuple(rows))
    document = _document(config, encoded, simulation, details, command)
    kinds = [Participation.parse(text) for text in config.participation]
    rounds.sort(key=lambda curve: kinds.index(curve.participation))
    first = sweep.settings[0]
    document["rounds"] = [{"split": first.split, "clients": curve.seen, **curve.to_dict()} for curve in rounds]
    if config.budget_curve:
        document["budget_curve"] = budget_curve(encoded.features, config, first, progress=progress)
    timings["simulate"] = time.perf_counter() - clock
    document["timings"] = timings
    document["seconds"] = sum(timings.values())
    simulation = replace(simulation, seconds=document["seconds"])
    classifiers = _noted(config, encoded, first, details)
    files = write_outputs(out, document, simulation.rows, config.to_toml(), classifiers) if out else []
    return JobResult(simulation, tuple(rounds), document, classifiers, files, memory.found, encoded.computed)


def _document(
    config: StudySettings, encoded: Encoded, simulation: SimulationResult, details: Details, command: str
) -> dict[str, Any]:
    """Return everything that was found, ready for JSON."""
    document = {**simulation.to_dict(), "format": 1, "version": fedmoments.__version__, "command": command}
    document["config"] = config.to_dict()
    document["data"] = {**encoded.describe(), "fingerprint": encoded.measured_as().digest}
    document |= {"details": details.heads, "holders": details.holders, "bias": details.bias}
    document |= {"privacy": details.privacy, "robust": details.robust, "diagnostics": details.diagnostics}
    return document


def _noted(config: StudySettings, encoded: Encoded, first: Point, details: Details) -> dict[str, Classifier]:
    """Return the classifiers with notes of origin."""
    notes: dict[str, Any] = {"encoder": encoded.describe()["encoder"], "data": config.data}
    description = first.protection.description
    if description:
        notes["protection"] = description
    return {
        name: classifier.noting(**notes, fingerprint=encoded.measured_as(details.measured_behind[name]).digest)
        for name, classifier in details.classifiers.items()
    }
