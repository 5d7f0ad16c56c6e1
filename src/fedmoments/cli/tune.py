"""``fedmoments tune``: linear probing and fine-tuning of a simulated federation, from every start, as curves."""

from pathlib import Path
from typing import Annotated

from fedmoments.cli.generate import command, typed
from fedmoments.cli.given import Taken
from fedmoments.cli.options import OF_SIMULATIONS, Fresh, Json, example, typed_command
from fedmoments.cli.output import plural, print_files, print_json, print_line, print_note, progress_bar
from fedmoments.cli.places import results_folder
from fedmoments.cli.simulate import ASK
from fedmoments.settings.plan import TuningPlan
from fedmoments.settings.study import TuningStudy

__all__ = ["tune"]

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
        typed("--out", "-o", help="Folder for results.json, report.html, config.toml and what was tuned.", common=5),
    ] = None,
    json: Json = False,
) -> None:
    """Tune in rounds from closed-form heads and from a random start: accuracy against rounds, bytes and compute.

    Every combination of start, optimiser and seed is one run. An interrupted job goes on from its folder.
    """
    from fedmoments.cli.tuning_tables import show_tuning
    from fedmoments.extras import require
    from fedmoments.study.jobs.tuning import run_tuning

    require("flwr", "Tuning in rounds", "flower")
    results_folder(out)
    try:
        with progress_bar("tuning") as progress:
            outcome = run_tuning(
                study, out, command=typed_command(), cache_dir=study.cache, progress=progress, fresh=fresh
            )
    except KeyboardInterrupt:
        kept = f"what was tuned is kept in {out}, the same command goes on from there" if out else "nothing is kept"
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
