"""Encode, split, measure, merge, fit, evaluate: the whole job, resumable, every random choice from one seed."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import fedmoments
from fedmoments.classifier import Classifier
from fedmoments.jobs.budget_curve import budget_curve
from fedmoments.jobs.config import JobConfig
from fedmoments.jobs.details import look_closer, round_curves
from fedmoments.jobs.diagnostics import quick_diagnostics
from fedmoments.jobs.encoding import Encoded, encode_data
from fedmoments.jobs.outputs import write_outputs
from fedmoments.jobs.record import Record
from fedmoments.simulation import Setting, SimulationResult, simulate
from fedmoments.simulation.budgets import plan_of
from fedmoments.simulation.methods import Method, choose_methods
from fedmoments.simulation.projection import make_projection
from fedmoments.simulation.run import is_sketched, make_split
from fedmoments.simulation.shield import public_map

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
    document: dict[str, Any]
    classifiers: dict[str, Classifier]
    files: list[Path]
    resumed: int
    encoded: int


def run_job(
    config: JobConfig,
    out: Path | None = None,
    *,
    command: str = "",
    cache_dir: Any = None,
    progress: Progress | None = None,
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
    """
    config.check()
    timings: dict[str, float] = {}
    clock = time.perf_counter()
    encoded = encode_data(config, cache_dir=cache_dir, progress=progress)
    timings["encode"] = time.perf_counter() - clock
    config = replace(config, heads=config.head_names, encoder=encoded.encoder.name)
    record = Record(out / PROGRESS if out else None, " ".join(encoded.basis()))
    clock = time.perf_counter()
    simulation = simulate(
        encoded.features,
        config.heads,
        clients=config.clients,
        splits=config.splits,
        shrinkages=config.shrinkages or (None,),
        means_per_client=config.means_per_client,
        projections=config.dimensions,
        protections=config.protections,
        budgets=config.budgets,
        seeds=config.seeds,
        first_seed=config.seed,
        hyper=config.hyper,
        memory_limit=config.memory_limit * 1e9,
        memory=record,
        progress=progress,
    )
    timings["simulate"] = time.perf_counter() - clock
    clock = time.perf_counter()
    document, classifiers = _document(config, encoded, simulation, command, progress)
    timings["look closer"] = time.perf_counter() - clock
    document["timings"] = timings
    document["seconds"] = sum(timings.values())
    simulation = replace(simulation, seconds=document["seconds"])
    files = write_outputs(out, document, config.to_toml(), classifiers) if out else []
    return JobResult(simulation, document, classifiers, files, record.found, encoded.computed)


def _document(
    config: JobConfig, encoded: Encoded, simulation: SimulationResult, command: str, progress: Progress | None
) -> tuple[dict[str, Any], dict[str, Classifier]]:
    """Return everything that was found, and the classifiers of the first setting and seed."""
    setting = simulation.rows[0].setting
    heads = _heads(config, simulation)
    split = make_split(encoded.features, setting.clients, setting.split, config.seed)
    details = look_closer(
        encoded.features,
        split,
        heads,
        setting,
        seed=config.seed,
        budget=config.budgets[0] if config.budgets else None,
        memory_limit=config.memory_limit * 1e9,
        progress=progress,
    )
    seeds = range(config.seed, config.seed + config.seeds)
    rounds = round_curves(encoded.features, heads, setting, config.participation, seeds, progress=progress)
    about = encoded.describe()
    fingerprint = encoded.measured_as()
    notes = {"encoder": about["encoder"], "data": config.data}
    if setting.protection.words:
        notes["protection"] = setting.protection.words
    classifiers = {
        name: classifier.noting(**notes, fingerprint=_measured_as(encoded, config, setting, heads[name]))
        for name, classifier in details.classifiers.items()
    }
    where = {detail["head"]: place for place, detail in enumerate(details.heads)}
    document = {**simulation.to_dict(), "format": 1, "version": fedmoments.__version__, "command": command}
    for row, found in zip(document["rows"], simulation.rows, strict=True):
        alike = found.setting.budget in (None, *config.budgets[:1])
        first = alike and replace(found.setting, budget=None) == replace(setting, budget=None)
        row["detail"] = where.get(found.head) if first else None
    document["config"] = config.to_dict()
    document["data"] = {**about, "fingerprint": fingerprint.digest}
    document |= {"details": details.heads, "holders": details.holders, "bias": details.bias, "rounds": rounds}
    document |= {"privacy": details.privacy, "robust": details.robust}
    if config.budget_curve:
        document["budget_curve"] = budget_curve(encoded.features, config, setting, progress=progress)
    document["diagnostics"] = quick_diagnostics(encoded.features, split, setting, config.seed)
    return document, classifiers


def _measured_as(encoded: Encoded, config: JobConfig, setting: Setting, head: Method) -> str:
    """Return the fingerprint of what a head was measured on: a small budget projects features for heads on sketches."""
    budget = config.budgets[0] if config.budgets and is_sketched(head) else None
    features = encoded.features
    _, dimensions = plan_of(budget, n_classes=features.n_classes, dim=features.dim, projection=setting.projection)
    projection = make_projection(dimensions, features.dim, config.seed)
    return encoded.measured_as(public_map(projection, setting.protection.agreed)).digest


def _heads(config: JobConfig, simulation: SimulationResult) -> dict[str, Method]:
    """Return what ran in the first setting: heads that have a shrinkage, with that of the setting if it has one."""
    setting = simulation.rows[0].setting
    hyper = {name: dict(config.hyper.get(name, {})) for name in config.heads}
    for row in simulation.rows:
        if row.setting == setting and setting.shrinkage and "shrinkage" in row.hyper and not row.baseline:
            hyper[row.head]["shrinkage"] = setting.shrinkage
    return choose_methods(config.heads, hyper)
