"""``fedmoments simulate``: data and an encoder in, a table over heads and settings, classifiers and a report out."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from fedmoments.cli.generate import command, typed
from fedmoments.cli.given import Given, Taken
from fedmoments.cli.options import Fresh, Json, Track, Verbose, example, typed_command
from fedmoments.cli.output import plural, print_files, print_json, print_line, print_note, print_tracked, progress_bar
from fedmoments.cli.places import results_folder
from fedmoments.cli.texts import listed
from fedmoments.privacy.protection import Agreed, Protection
from fedmoments.settings.study import StudySettings

__all__ = ["ASK", "Alpha", "run_study", "simulate", "splits_of"]

EXAMPLE = example(
    "fedmoments simulate runs/demo/digits.npz --heads fedncm,fedcof,gh-lda --clients 10,50 --alpha 0.1 --seeds 2"
)
#: What is said where no data are named.
ASK = "give the data: digits, folder:PATH, csv:PATH, npz:PATH …, or --config FILE"
Alpha = Annotated[
    str | None,
    typed(help="0.1,0.5 is short for --split dirichlet:0.1,dirichlet:0.5.", metavar="N,…", group="Federation"),
]
PRIVACY = {"privacy": (Agreed, Protection)}


@command("simulate", EXAMPLE)
def simulate(
    study: Annotated[
        Given[StudySettings],
        Taken("data", without=("privacy.helper",), tables=PRIVACY, sweeps=True, file=True, ask=ASK),
    ],
    *,
    alpha: Alpha = None,
    fresh: Fresh = False,
    out: Annotated[
        Path | None,
        typed(
            "--out",
            "-o",
            help="Folder for results.json, results.csv, report.html, config.toml and the classifiers.",
            common=6,
        ),
    ] = None,
    track: Track = (),
    verbose: Verbose = False,
    json: Json = False,
) -> None:
    """Simulate a federation: encode, split, measure, merge, fit and test, for all combinations of the settings."""
    from fedmoments.cli.simulation_tables import show_report
    from fedmoments.privacy.sweep import read_protections
    from fedmoments.study.tracking import make_trackers

    settings = study.build(**splits_of(study, alpha))
    trackers = make_trackers(track, out)
    outcome = run_study(settings, out, fresh=fresh, for_report=json or out is not None, callbacks=trackers)
    if json:
        print_json(outcome.document)
        return
    protections = len(read_protections(settings.privacy)) if settings.privacy else 0
    show_report(outcome.report, protections, verbose=verbose)
    if outcome.resumed:
        print_line(f"{plural(outcome.resumed, 'result')} of an earlier run in {out} were kept")
    print_files(outcome.files)
    print_tracked(trackers)


def splits_of(study: Given[Any], alpha: str | None) -> dict[str, list[str]]:
    """Return the splits that were typed and those that ``--alpha`` is short for; nothing, if there are none."""
    if alpha is None:
        return {}
    short = [f"dirichlet:{value:g}" for value in listed(alpha, float, "--alpha")]
    return {"splits": [*study.values.get("splits", ()), *short]}


def run_study(
    study: StudySettings,
    out: Path | None,
    *,
    fresh: bool = False,
    for_report: bool = True,
    callbacks: Sequence[Any] = (),
) -> Any:
    """Run a study with a progress bar, and return its outcome; an interruption says what is kept."""
    from fedmoments.study.jobs import run_job

    results_folder(out)
    try:
        with progress_bar("simulating") as progress:
            return run_job(
                study,
                out,
                command=typed_command(),
                cache_dir=study.cache,
                progress=progress,
                fresh=fresh,
                for_report=for_report,
                callbacks=callbacks,
            )
    except KeyboardInterrupt:
        print_note(_interrupted(out))
        raise


def _interrupted(out: Path | None) -> str:
    """Return what an interruption has left."""
    from fedmoments.study.jobs.run import PROGRESS
    from fedmoments.study.memory import Memory

    if out is None:
        return "interrupted"
    kept = len(Memory(out / PROGRESS))
    if not kept:
        return f"interrupted; no result is kept in {out} yet"
    verb = "is" if kept == 1 else "are"
    return f"interrupted; {plural(kept, 'result')} {verb} kept in {out}, the same command continues from there"
