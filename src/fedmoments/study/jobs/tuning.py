"""Encode, split, fit the heads, tune from each start with each optimiser: curves of accuracy, bytes and compute."""

import json
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from fedmoments.core.floats import precision
from fedmoments.core.observations import Observation, Report, Scalar
from fedmoments.core.observations.codec import from_plain, to_plain
from fedmoments.core.observations.report import Written
from fedmoments.core.observations.tuning import OneShot, Tuning, TuningCurve
from fedmoments.errors import FileFormatError, InputError
from fedmoments.files import write_whole
from fedmoments.pages import write_report
from fedmoments.settings.study import TuningStudy
from fedmoments.study.checks import check_tuning, start_word
from fedmoments.study.crew import Crew, crew_of
from fedmoments.study.jobs.encoding import Encoded, encode_data
from fedmoments.study.jobs.tuning_world import Run, World
from fedmoments.study.tracking import Callback, call_all, tracking
from fedmoments.tuning import TuningPlan
from fedmoments.tuning.loop import Tuned, run_rounds
from fedmoments.tuning.prices import Bill
from fedmoments.tuning.rates import choose_rates

__all__ = ["TuningResult", "run_tuning"]

#: Called with (done, in all, what is being done).
Progress = Callable[[int, int, str], None]


@dataclass(frozen=True, eq=False)
class TuningResult(Written):
    """What a job found: the report, the files that were written, and runs that were kept and replaced."""

    resumed: int
    replaced: int = 0

    @property
    def tuning(self) -> Tuning:
        """All curves, and the heads that were not tuned."""
        return self.report.tuning or Tuning()


def run_tuning(
    config: TuningStudy,
    out: Path | None = None,
    *,
    command: str = "",
    cache_dir: Any = None,
    progress: Progress | None = None,
    fresh: bool = False,
    callbacks: Sequence[Callback] = (),
    crew: Crew | None = None,
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
    callbacks
        Called with every tested round once its run has ended, and with the files at the end.
    crew
        Who works on the runs; by default whom the configuration names. A cluster writes into ``out``, too: all of its
        machines must see it under this name.
    """
    check_tuning(config)
    clock = time.perf_counter()
    encoded = encode_data(config, cache_dir=cache_dir, progress=progress)
    if fresh and out:
        shutil.rmtree(out / "curves", ignore_errors=True)
    job = _Job(config, encoded, out, progress, callbacks)
    with precision(config.precision), tracking(callbacks, config.to_dict()):
        with crew_of(config.jobs, config.cluster) if crew is None else nullcontext(crew) as workers:
            tuning = job.run(workers)
        report = Report(
            data=encoded.describe(),
            tuning=tuning,
            config=config.to_dict(),
            command=command,
            seconds=time.perf_counter() - clock,
        )
        files = _write(out, report, config) if out else []
        for callback in callbacks:
            callback.on_end(report, files)
    return TuningResult(report, files, job.resumed, job.replaced)


class _Job:
    """The loops over seeds, starts and optimisers."""

    def __init__(
        self,
        config: TuningStudy,
        encoded: Encoded,
        out: Path | None,
        progress: Progress | None,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        self.config, self.encoded, self.out, self.progress = config, encoded, out, progress
        self.callbacks = callbacks
        self.resumed, self.replaced = 0, 0
        self._done = 0
        self._latest: World | None = None
        self._prepared: Any = None
        if config.stage != "lp":
            from fedmoments.study.jobs.tuning_network import PreparedSamples

            self._prepared = PreparedSamples(encoded, config.readers)

    def run(self, crew: Crew) -> Tuning:
        """Return all curves, and the one-shot heads of every seed."""
        seeds = range(self.config.seed, self.config.seed + self.config.seeds)
        runs: list[tuple[str, str] | None] = [*product(self.config.starts, self.config.optimisers)]
        tasks = list(product(seeds, runs or [None]))
        done: dict[int, _Found] = {}
        common = self if crew.is_alone else _Job(self.config, self.encoded, self.out, None)
        for place, one in crew.start(_find, common, tasks):
            done[place] = one
            self.resumed += one.resumed
            self.replaced += one.replaced
            self._tell(len(done), tasks, place)
            self._require_file(one, tasks[place][0])
            if one.curve is not None:
                call_all(self.callbacks, self._tested(one.curve, one.clients))
        return self._together([done[place] for place in range(len(tasks))], len(runs) or 1)

    def _together(self, done: "Sequence[_Found]", runs: int) -> Tuning:
        """Return all runs as one, in order; the first of a seed brings its heads."""
        curves = [one.curve for one in done if one.curve is not None]
        heads, clients = [head for one in done[::runs] for head in one.heads], done[-1].clients
        first = TuningPlan(**self.config.plan)
        return Tuning(
            self.config.stage,
            clients,
            self.config.splits[0],
            first.per_round(clients),
            first.replacement,
            first.rounds,
            None if self.config.stage == "lp" else first.batchnorm,
            tuple(curves),
            tuple(heads),
        )

    def _tested(self, curve: TuningCurve, clients: int) -> Iterator[Observation]:
        """Yield what is known after every round of one run."""
        place: dict[str, Scalar] = {"head": curve.start, "optimiser": curve.optimiser, "stage": self.config.stage}
        place |= {"split": self.config.splits[0], "clients": clients, "seed": curve.seed}
        for point in curve.points:
            where = {**place, "round": point.round}
            figures = (("accuracy", point.accuracy, ""), ("loss", point.loss, ""), ("sent", point.total_bytes, "bytes"))
            for quantity, value, unit in figures:
                if value is not None:
                    yield Observation(where, (value,), quantity, None, (curve.seed,), unit)

    def find(self, seed: int, run: tuple[str, str] | None) -> "_Found":
        """Return one run, from the file of an earlier job if that has ended it; without one, the heads of a seed."""
        world = self._latest  # held: on a cluster, another thread may be about another seed
        if world is None or world.seed != seed:
            world = self._latest = World(self.config, self.encoded, seed, self._prepared)
        clients = len(world.holders)
        # the first run of a seed brings its heads
        is_first = run is None or run == (self.config.starts[0], self.config.optimisers[0])
        heads = tuple(world.heads) if is_first else ()
        if run is None:
            return _Found(None, heads, clients)
        start, optimiser = run
        plan = self.config.plan_of(start, optimiser, seed)
        basis = world.basis(start, plan)
        kept = self._file_of(start, plan)
        known = _read_curve(kept, plan, basis) if kept else None
        replaced = kept is not None and known is None and kept.exists()
        curve = known or self._run(world, start, plan, basis, kept)
        self._done += 1
        return _Found(curve, heads, clients, known is not None, replaced)

    def _file_of(self, start: str, plan: TuningPlan) -> Path | None:
        return self.out / "curves" / f"{run_name(start, plan)}.json" if self.out else None

    def _tell(self, done: int, tasks: Sequence[Any], place: int) -> None:
        """Tell of a run that another process has ended; runs of this one tell of their rounds."""
        seed, run = tasks[place]
        if self.progress and not self._done:
            self.progress(done, len(tasks), f"{', '.join(run or ())}, seed {seed}")

    def _require_file(self, one: "_Found", seed: int) -> None:
        """Refuse a machine that wrote its curve elsewhere."""
        if one.curve is None:
            return
        kept = self._file_of(one.curve.start, self.config.plan_of(one.curve.start, one.curve.optimiser, seed))
        if kept is not None and not kept.exists():
            raise InputError(
                f"a run ended, but {kept} is not here: with --cluster, --out is a folder that all machines of the "
                "cluster see under this name"
            )

    def _run(self, world: World, start: str, plan: TuningPlan, basis: str, kept: Path | None) -> TuningCurve:
        """Run one run, from its checkpoint on if there is one, and keep it."""
        checkpoint = kept.with_suffix(".checkpoint") if kept else None
        if checkpoint:
            checkpoint.parent.mkdir(parents=True, exist_ok=True)
        say = self._progress_of(f"{start}, {plan.optimiser}, seed {world.seed}")
        asked, bill, tried = plan, Bill(), dict[str, float]()
        if plan.has_grid:
            chosen = choose_rates(plan, lambda rates: _trial(world.prepare(start, rates)))
            plan, bill, tried = chosen.plan, chosen.bill, dict(chosen.tried)
        run = world.prepare(start, plan)
        tuned = run_rounds(
            run.plan,
            run.engine,
            run.arrays,
            prices=replace(run.prices, opening=run.prices.opening + bill),
            units=run.start.units(run.plan.feature_scale),
            checkpoint=checkpoint,
            basis=basis,
            progress=say,
        )
        refit, probe = run.refits(tuned.arrays)
        curve = TuningCurve(
            start,
            plan.optimiser,
            world.seed,
            tuned.points,
            run.plan,
            run.start.temperature,
            run.temperatures,
            tried,
            tuned.best_round,
            tuned.stopped,
            refit,
            probe,
        )
        if self.out and kept and checkpoint:
            if world.seed == self.config.seed:
                run.save(self.out / "tuned" / kept.stem, tuned.arrays)
            document = {"basis": basis, "asked": asked.to_dict(), "curve": to_plain(curve)}
            write_whole(kept, json.dumps(document, allow_nan=False).encode())
            checkpoint.unlink(missing_ok=True)
        return curve

    def _progress_of(self, name: str) -> Progress:
        """Return what tells of one run among all."""
        runs = len(self.config.starts) * len(self.config.optimisers) * self.config.seeds

        def say(done: int, total: int, line: str) -> None:
            if self.progress:
                self.progress(self._done * total + done, runs * total, f"{name}: {line}")

        return say


@dataclass(frozen=True, eq=False)
class _Found:
    """One run that has ended, and the one-shot heads of its seed."""

    curve: TuningCurve | None
    heads: tuple[OneShot, ...]
    clients: int
    resumed: bool = False
    replaced: bool = False


def _find(job: _Job, task: tuple[int, tuple[str, str] | None]) -> _Found:
    return job.find(*task)


def run_name(start: str, plan: TuningPlan) -> str:
    """Return the name of a run in files.

    Examples
    --------
    >>> run_name("heads/my head.safetensors", TuningPlan(optimiser="fedadam", seed=2))
    'lp-my-head-fedadam-2'
    """
    return f"{plan.stage}-{start_word(start)}-{plan.optimiser}-{plan.seed}"


def _read_curve(path: Path, plan: TuningPlan, basis: str) -> TuningCurve | None:
    """Return the curve of an ended run with the same plan and data; None if there is none."""
    if not path.exists():
        return None
    try:
        document = json.loads(path.read_bytes())
        if document["basis"] != basis:  # of other code or data: its form may be another one, too
            return None
        curve = from_plain(TuningCurve, document["curve"], str(path))
    except (ValueError, KeyError, TypeError, FileFormatError) as error:
        raise FileFormatError(f"{path} is not a curve of a run: delete it to run that again") from error
    return curve if document.get("asked") == plan.to_dict() else None


def _trial(run: Run) -> Tuned:
    """Return what comes of a run with one of several rates; it is charged for its rounds alone."""
    free = replace(run.prices, start=replace(run.prices.start, up=0, up_formula=0.0, down=0, down_formula=0.0))
    units = run.start.units(run.plan.feature_scale)
    return run_rounds(run.plan, run.engine, run.arrays, prices=free, units=units)


def _write(out: Path, report: Report, config: TuningStudy) -> list[Path]:
    out.mkdir(parents=True, exist_ok=True)
    report.write(out / "results.json")
    write_whole(out / "config.toml", config.to_toml().encode())
    write_report(out / "report.html", report)
    return [out / name for name in ("report.html", "results.json", "config.toml", "curves", "tuned")]
