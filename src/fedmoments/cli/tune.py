"""``fedmoments tune``: linear probing and fine-tuning of a simulated federation, from every start, as curves.

What ``fedmoments tune`` prints: what was run, and one table of every start and optimiser.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from fedmoments.cli.generate import command, typed
from fedmoments.cli.given import Taken
from fedmoments.cli.options import OF_SIMULATIONS, Fresh, Json, Track, example, typed_command
from fedmoments.cli.output import (
    plural,
    print_files,
    print_json,
    print_line,
    print_note,
    print_table,
    print_tracked,
    progress_bar,
    readable_bytes,
    readable_seconds,
)
from fedmoments.cli.places import results_folder
from fedmoments.cli.simulate import ASK
from fedmoments.core.observations import Observation, Report
from fedmoments.core.observations.parts import Data
from fedmoments.core.observations.tuning import Tuning, TuningCurve, TuningRun
from fedmoments.pages.tuning_chart import optimiser_name
from fedmoments.settings.plan import TuningPlan
from fedmoments.settings.study import TuningStudy

__all__ = ["show_tuning", "tune"]


STAGES = {
    "lp": "linear probing (head only)",
    "ft": "fine-tuning (encoder and head)",
    "feat": "training the encoder (the head frozen)",
}
FIGURES = ("start %", "end %", "highest in round")
COMPARED = ("rounds to random's end", "bytes to it")
SPENT = "bytes in all"
UP_AND_DOWN = "bytes are up and down, of all clients, the head's own upload included"
#: One-shot heads that nothing starts from and that are named.
MOST_HEADS = 8
#: Runs that diverged and are listed.
MOST_RUNS = 5


def show_tuning(report: Report) -> None:
    """Print the tuning of a report for people.

    Examples
    --------
    >>> from fedmoments.core.observations.tuning import RoundPoint
    >>> points = tuple(RoundPoint(t, 0.5 + t / 8, up=1000 * t) for t in range(3))
    >>> show_tuning(Report(tuning=Tuning(clients=2, curves=(TuningCurve("fedncm", "fedavg", 0, points),))))
    linear probing (head only); 2 clients
    <BLANKLINE>
    start   optimiser  start %  end %  highest in round  bytes in all
    fedncm  FedAvg       50.00  75.00                 2        2.0 kB
    """
    tuning = report.tuning or Tuning()
    for line in (_data(report.data), _setting(tuning)):
        if line:
            print_line(line)
    print_line()
    if not tuning.runs:
        print_line("nothing was tuned")
        return
    compared = any(run.reached for run in tuning.runs)
    figures = [*FIGURES, *(COMPARED if compared else ()), SPENT]
    rows = []
    for run in tuning.runs:
        accuracies = [_percent(run.first), _percent(run.end), _best_round(run)]
        ends = [*(_reached(run) if compared else ()), readable_bytes(run.spent("total_bytes").mean or 0.0)]
        rows.append([run.start, optimiser_name(run.optimiser), *accuracies, *ends])
    print_table(["start", "optimiser", *figures], rows, right=figures)
    _show_notes(report, tuning)


def _data(data: Data) -> str:
    """Return what was tuned on, as far as it is known."""
    facts = [
        f"{data.train:,} training samples" if data.train else "",
        f"{data.test:,} test samples" if data.test else "",
        f"d = {data.dim}" if data.dim else "",
        plural(data.classes, "class") if data.classes else "",
    ]
    return ": ".join(filter(None, (data.name, ", ".join(filter(None, facts)))))


def _setting(tuning: Tuning) -> str:
    where = [
        plural(tuning.clients, "client") if tuning.clients else "",
        f"split {tuning.split}" if tuning.split else "",
    ]
    parts = [
        STAGES.get(tuning.stage, tuning.stage),
        ", ".join(filter(None, where)),
        _rounds(tuning),
        f"batch normalisation {tuning.batchnorm}" if tuning.batchnorm else "",
        plural(tuning.seeds, "seed") if tuning.seeds > 1 else "",
    ]
    return "; ".join(filter(None, parts))


def _rounds(tuning: Tuning) -> str:
    per_round, clients = tuning.per_round, tuning.clients
    parts = [f"{per_round:,} a round"] if per_round else []
    if per_round and clients and per_round < clients and tuning.replacement is not None:
        parts += ["with replacement" if tuning.replacement else "without replacement"]
    parts += [f"at most {plural(tuning.rounds, 'round')}"] if tuning.rounds else []
    return ", ".join(parts)


def _percent(accuracy: Observation) -> str:
    if accuracy.mean is None:
        return "not tested"
    spread = "" if accuracy.spread is None else f" ± {100 * accuracy.spread:.2f}"
    return f"{100 * accuracy.mean:.2f}{spread}"


def _best_round(run: TuningRun) -> str:
    """Return the round that validation chose, or else that of the highest test accuracy; a range over seeds."""
    chosen = run.over_seeds(lambda curve: curve.best_round, "best round")
    rounds = chosen if chosen.known else run.highest_round
    if not rounds.known:
        return "–"
    return f"{rounds.low:,.0f}" if rounds.low == rounds.high else f"{rounds.low:,.0f}–{rounds.high:,.0f}"


def _reached(run: TuningRun) -> tuple[str, str]:
    reached = run.reached
    if reached is None:
        return "–", "–"
    if reached.rounds is None or reached.bytes is None:
        return "never", "–"
    some = f" ({reached.hit} of {plural(reached.seeds, 'seed')})" if reached.hit < reached.seeds else ""
    return f"{reached.rounds:,.1f}".removesuffix(".0") + some, readable_bytes(reached.bytes)


def _show_refits(tuning: Tuning) -> None:
    """Print heads that were fitted anew on what was tuned, one line a run."""
    for run in tuning.runs:
        figures = [f"{name} {_percent(run.refitted(name))}" for name in run.refits]
        before = run.probed("before")
        was = f" (fed3r before tuning: {_percent(before)})" if before.known else ""
        if figures:
            run_name = f"{run.start}, {optimiser_name(run.optimiser)}"
            print_line(f"refitted after {run_name}, accuracy %: {', '.join(figures)}{was}")


def _show_notes(report: Report, tuning: Tuning) -> None:
    _show_heads(tuning)
    _show_refits(tuning)
    _show_fallen(tuning)
    _show_stopped([curve for run in tuning.runs for curve in run.curves])
    parts = [f"{readable_seconds(report.seconds)} in all", UP_AND_DOWN] if report.seconds is not None else []
    parts += ["± is the standard deviation over seeds"] if tuning.seeds > 1 else []
    if parts:
        print_line("; ".join(parts))


def _show_heads(tuning: Tuning) -> None:
    heads = {name: shots for name, shots in tuning.one_shots.items() if name not in tuning.starts}
    if heads:
        figures = [f"{name} {_percent(shots['accuracy'])}" for name, shots in [*heads.items()][:MOST_HEADS]]
        more = f" and {len(heads) - MOST_HEADS} more" if len(heads) > MOST_HEADS else ""
        print_line(f"one-shot heads for comparison, accuracy %: {', '.join(figures)}{more}")


def _show_fallen(tuning: Tuning) -> None:
    fallen = [run for run in tuning.runs if run.first.known and run.end.known and _lost(run)]
    if fallen:
        names = ", ".join(f"{run.start} with {optimiser_name(run.optimiser)}" for run in fallen[:MOST_RUNS])
        print_line(f"note: {names} ended below the start: a smaller learning rate may help (--for START.lr=…)")


def _lost(run: TuningRun) -> bool:
    return (run.end.mean or 0.0) < (run.first.mean or 0.0)


def _show_stopped(curves: Sequence[TuningCurve]) -> None:
    stopped = [curve for curve in curves if curve.stopped]
    for curve in [curve for curve in stopped if str(curve.stopped).startswith("diverged")][:MOST_RUNS]:
        print_line(f"note: {curve.start}, {optimiser_name(curve.optimiser)}, seed {curve.seed} {curve.stopped}")
    parts = [f"{plural(len(stopped), 'run')} stopped early"] if stopped else []
    parts += (
        ["the end is the round that validation chose"] if any(curve.best_round is not None for curve in curves) else []
    )
    if parts:
        print_line(f"note: {'; '.join(parts)}")


EXAMPLE = example(
    "fedmoments tune runs/demo/digits.npz --starts random,fedcof --optimisers fedavg,fedadam --clients 20 --rounds 5 "
    "--temperature auto --for random.lr=0.1 --seeds 1 --out runs/tuned"
)


@command("tune", EXAMPLE)
def tune(
    study: Annotated[
        TuningStudy,
        Taken(
            "data",
            without=(*OF_SIMULATIONS, "memory_limit", "runtime", "plan.optimiser", "plan.seed"),
            help={"clients": "Number of clients.", "splits": "One split (see 'fedmoments split --help')."},
            tables={"plan": (TuningPlan,)},
            file=True,
            ask=ASK,
        ),
    ],
    *,
    fresh: Fresh = False,
    out: Annotated[
        Path | None,
        typed("--out", "-o", help="Folder for results.json, report.html, config.toml and the tuned models.", common=5),
    ] = None,
    track: Track = (),
    json: Json = False,
) -> None:
    """Tune in rounds from closed-form heads and from a random start: accuracy against rounds, bytes and compute.

    Every combination of start, optimiser and seed is one run. Give the same command again to resume an interrupted job.
    """
    from fedmoments.extras import require
    from fedmoments.study.jobs.tuning import run_tuning
    from fedmoments.study.tracking import make_trackers

    require("flwr", "Tuning in rounds", "flower")
    results_folder(out)
    trackers = make_trackers(track, out)
    try:
        with progress_bar("tuning") as progress:
            outcome = run_tuning(
                study,
                out,
                command=typed_command(),
                cache_dir=study.cache,
                progress=progress,
                fresh=fresh,
                callbacks=trackers,
            )
    except KeyboardInterrupt:
        kept = f"what was tuned is kept in {out}, the same command continues from there" if out else "nothing is kept"
        print_note(f"interrupted; {kept}")
        raise
    if json:
        print_json(outcome.document)
        return
    show_tuning(outcome.report)
    if outcome.resumed:
        print_line(f"{plural(outcome.resumed, 'run')} of an earlier job in {out} were kept")
    if outcome.replaced:
        print_line(f"{plural(outcome.replaced, 'run')} of an earlier job in {out} had other settings and were replaced")
    print_files(outcome.files)
    print_tracked(trackers)
