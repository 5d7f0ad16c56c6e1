"""Encode, split, fit the heads, tune from each start with each optimiser: curves of accuracy, bytes and compute."""

import json
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fedmoments
from fedmoments.errors import FileFormatError
from fedmoments.files import write_whole
from fedmoments.pages import write_report
from fedmoments.settings.study import TuningStudy
from fedmoments.study.jobs.encoding import Encoded, encode_data
from fedmoments.study.jobs.tuning_world import World
from fedmoments.study.tuning_checks import check_tuning, start_word
from fedmoments.tuning import TuningPlan
from fedmoments.tuning.loop import tune
from fedmoments.tuning.reached import reached

__all__ = ["TuningResult", "run_tuning"]

#: Called with (done, in all, what is being done).
Progress = Callable[[int, int, str], None]


@dataclass(frozen=True, eq=False)
class TuningResult:
    """What a job found: everything, ready for JSON; the files that were written; runs that were kept and replaced."""

    document: dict[str, Any]
    files: list[Path]
    resumed: int
    replaced: int = 0


def run_tuning(
    config: TuningStudy,
    out: Path | None = None,
    *,
    command: str = "",
    cache_dir: Any = None,
    progress: Progress | None = None,
    fresh: bool = False,
) -> TuningResult:
    """Run a job of tuning.

    Parameters
    ----------
    config
        What to run.
    out
        Folder for results.json, report.html, config.toml, curves/ and tuned/; nothing is written without one. A job
        that was interrupted goes on from there, in the middle of a run if need be.
    command
        What the user typed, for the report.
    cache_dir
        Folder of the feature cache; the user's by default, False does without.
    progress
        Called after every round.
    fresh
        Forget the runs that an earlier job left in ``out``, ended or interrupted.
    """
    check_tuning(config)
    clock = time.perf_counter()
    encoded = encode_data(config, cache_dir=cache_dir, progress=progress)
    if fresh and out:
        shutil.rmtree(out / "curves", ignore_errors=True)
    job = _Job(config, encoded, out, progress)
    curves, heads = job.run()
    document = _document(config, encoded, (curves, heads), job.n_clients, command)
    document["seconds"] = time.perf_counter() - clock
    files = _write(out, document, config) if out else []
    return TuningResult(document, files, job.resumed, job.replaced)


class _Job:
    """The loops over seeds, starts and optimisers."""

    def __init__(self, config: TuningStudy, encoded: Encoded, out: Path | None, progress: Progress | None) -> None:
        self.config, self.encoded, self.out, self.progress = config, encoded, out, progress
        self.resumed, self.replaced = 0, 0
        self.n_clients = 0
        self._done = 0

    def run(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Return all curves, and the one-shot heads of every seed."""
        curves: list[dict[str, Any]] = []
        heads: list[dict[str, Any]] = []
        prepared = None
        if self.config.stage != "lp":
            from fedmoments.study.jobs.tuning_network import PreparedSamples

            prepared = PreparedSamples(self.encoded, self.config.readers)
        for seed in range(self.config.seed, self.config.seed + self.config.seeds):
            world = World(self.config, self.encoded, seed, prepared)
            heads += world.heads
            self.n_clients = len(world.holders)
            for start in self.config.starts:
                for optimiser in self.config.optimisers:
                    curves.append(self._curve(world, start, optimiser))
        return curves, heads

    def _curve(self, world: World, start: str, optimiser: str) -> dict[str, Any]:
        """Return one run, from the file of an earlier job if that has ended it."""
        plan = self.config.plan_of(start, optimiser, world.seed)
        basis = world.basis(start, plan)
        name = run_name(start, plan)
        kept = self.out / "curves" / f"{name}.json" if self.out else None
        known = _read_curve(kept, plan, basis) if kept else None
        self.replaced += kept is not None and known is None and kept.exists()
        if known is not None:
            self.resumed, self._done = self.resumed + 1, self._done + 1
            return known
        run = world.prepare(start, plan)
        checkpoint = self.out / "curves" / f"{name}.checkpoint" if self.out else None
        if checkpoint:
            checkpoint.parent.mkdir(parents=True, exist_ok=True)
        runs = len(self.config.starts) * len(self.config.optimisers) * self.config.seeds

        def say(done: int, total: int, told: str) -> None:
            if self.progress:
                self.progress(
                    self._done * total + done, runs * total, f"{start}, {optimiser}, seed {world.seed}: {told}"
                )

        tuned = tune(plan, run.engine, run.arrays, prices=run.prices, checkpoint=checkpoint, basis=basis, progress=say)
        self._done += 1
        curve = {
            "start": start,
            "optimiser": optimiser,
            "seed": world.seed,
            "temperature": run.start.temperature,
            "temperatures": run.temperatures,
            "plan": plan.to_dict(),
            "points": [point.to_dict() for point in tuned.points],
            "best_round": tuned.best_round,
            "stopped": tuned.stopped,
            **run.refits(tuned.arrays),
        }
        if self.out and kept and checkpoint:
            if world.seed == self.config.seed:
                run.save(self.out / "tuned" / name, tuned.arrays)
            write_whole(kept, json.dumps({"basis": basis, "curve": curve}, allow_nan=False).encode())
            checkpoint.unlink(missing_ok=True)
        return curve


def run_name(start: str, plan: TuningPlan) -> str:
    """Return the name of a run in files.

    Examples
    --------
    >>> run_name("heads/my head.safetensors", TuningPlan(optimiser="fedadam", seed=2))
    'lp-my-head-fedadam-2'
    """
    return f"{plan.stage}-{start_word(start)}-{plan.optimiser}-{plan.seed}"


def _read_curve(path: Path, plan: TuningPlan, basis: str) -> dict[str, Any] | None:
    """Return the curve of an ended run with the same plan and data; None if there is none."""
    if not path.exists():
        return None
    try:
        found = json.loads(path.read_bytes())
        curve: dict[str, Any] = found["curve"]
        same = found["basis"] == basis and curve["plan"] == json.loads(json.dumps(plan.to_dict()))
    except (ValueError, KeyError, TypeError) as error:
        raise FileFormatError(f"{path} is no curve of a run: delete it to run that anew") from error
    return curve if same else None


def _document(
    config: TuningStudy,
    encoded: Encoded,
    found: tuple[list[dict[str, Any]], list[dict[str, Any]]],
    clients: int,
    command: str,
) -> dict[str, Any]:
    first = TuningPlan(**config.plan)
    curves, heads = found
    return {
        "format": 1,
        "version": fedmoments.__version__,
        "command": command,
        "rows": [],
        "data": encoded.describe(),
        "config": config.to_dict(),
        "tuning": {
            "stage": config.stage,
            "clients": clients,
            "split": config.splits[0],
            "per_round": first.per_round(clients),
            "replacement": first.replacement,
            "rounds": first.rounds,
            "batchnorm": None if config.stage == "lp" else first.batchnorm,
            "curves": curves,
            "heads": heads,
            "reached": reached(curves),
        },
    }


def _write(out: Path, document: Mapping[str, Any], config: TuningStudy) -> list[Path]:
    out.mkdir(parents=True, exist_ok=True)
    text = json.dumps(document, allow_nan=False, ensure_ascii=False) + "\n"
    write_whole(out / "results.json", text.encode())
    write_whole(out / "config.toml", config.to_toml().encode())
    write_report(out / "report.html", document)
    return [out / name for name in ("report.html", "results.json", "config.toml", "curves", "tuned")]
