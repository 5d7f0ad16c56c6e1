"""``fedmoments server tune``: rounds of linear probing or fine-tuning with the clients of a federation."""

import json as json_module
from pathlib import Path
from typing import Annotated, Any

from fedmoments.cli.federation_runs import DIGITS, plain
from fedmoments.cli.generate import command
from fedmoments.cli.given import Given, Taken
from fedmoments.cli.ledger import Ledger, open_ledger
from fedmoments.cli.options import Hyper, Json, example
from fedmoments.cli.output import SHOWN, plural, print_json, print_line, print_table, readable_bytes
from fedmoments.cli.places import results_folder
from fedmoments.cli.server import CLIENT_KEYS, ENROL
from fedmoments.cli.server_create import CREATE
from fedmoments.cli.server_runs import SLACK, Serving, lifetime
from fedmoments.errors import InputError
from fedmoments.settings.plan import RANDOM, TuningPlan
from fedmoments.settings.server import TuningSettings

__all__ = ["tune"]

TUNE_EXAMPLE = example(
    CREATE,
    "fedmoments keys server keys --host fed.example.org",
    CLIENT_KEYS,
    ENROL,
    "fedmoments server run trial.ledger --keys keys --host 0.0.0.0",
    "fedmoments server tune trial.ledger --keys keys --host 0.0.0.0 --start fedcof --stage lp --rounds 20 --lr 0.1 "
    "--out tuned",
).replace(
    "Example, after 'fedmoments demo':",
    "Example, after 'fedmoments demo'; it waits for 'fedmoments client … --allow-tuning lp' elsewhere:",
)


@command("tune", TUNE_EXAMPLE)
def tune(
    ledger: Ledger,
    settings: Annotated[
        Given[TuningSettings],
        Taken(
            without=("hyper", "poll"),
            help={
                "plan.test_every": "Rounds between two tests by the clients; by default only at the start and the end."
            },
            tables={"plan": (TuningPlan,)},
            file=True,
        ),
    ],
    serving: Annotated[Serving, Taken()],
    *,
    hyper: Hyper,
    json: Json = False,
) -> None:
    """Tune in rounds with the clients of a federation, from a head of its ledger: those that allow it train.

    Give the same command again to resume a stopped run from its folder. Exit code 0 only if the run completed.
    """
    authority = serving.authority()
    own = _checked(ledger, settings, hyper)
    status = serving.run(own, ledger, _longest(own), authority)
    results = json_module.loads((Path(own.out) / "tuning.json").read_text("utf-8"))
    if json:
        facts = {"status": status.status, "run": status.run_id, "seconds": status.seconds}
        print_json({**facts, "out": own.out, "results": results})
        return
    _show(results, Path(settings.values.get("out", own.out)))


def _checked(ledger: Path, given: Given[TuningSettings], hyper: dict[str, Any]) -> TuningSettings:
    """Return the server's settings, once they can be run."""
    from fedmoments.core.heads import presets
    from fedmoments.core.heads.choosing import choose_heads
    from fedmoments.extras import require
    from fedmoments.federation.flower.tuning_run import RunFolder
    from fedmoments.federation.policy import require_clear
    from fedmoments.federation.results import require_served

    require("flwr", "A server of a federation", "flower")
    own = given.build(ledger=str(ledger.resolve()), **_start_of(given, hyper), **lifetime(given))
    results_folder(Path(own.out))
    with open_ledger(ledger) as store:
        require_clear(store.terms)
        if own.start in presets():
            require_served(store.terms, choose_heads([own.start], {own.start: own.hyper}))
        RunFolder(own).load(store.terms.id)  # a folder of another run is refused before anything is served
    return own


def _start_of(given: Given[TuningSettings], hyper: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the start, with hyper-parameters that were typed, once it is a head, random or a file."""
    from fedmoments.core.heads import presets

    start = given.values.get("start", given.base.start if given.base else TuningSettings.start)
    if set(hyper) - {start}:
        raise InputError(f"--set gives hyper-parameters of {', '.join(hyper)}, but the start is '{start}'")
    if start != RANDOM and start not in presets():
        if not Path(start).is_file():
            raise InputError(
                f"--start takes a head (see 'fedmoments heads'), random, or the file of a classifier, not '{start}'"
            )
        start = str(Path(start).resolve())
    return {"start": start, **({"hyper": hyper[start]} if hyper else {})}


def _longest(settings: Any) -> float:
    """Return the seconds after which a run with these settings must be over."""
    plan = settings.tuning_plan
    asked = 2 * plan.rounds + plan.rounds // plan.check_every + 5
    return float(settings.wait + asked * settings.deadline + SLACK)


def _show(results: dict[str, Any], out: Path) -> None:
    """Print what a run found."""
    plan, points = results["plan"], results["points"]
    samples = sum(client["train"] for client in results["clients"].values())
    print_line(
        f"{plan['optimiser']}, {plan['stage']}, from {results['start']} at temperature {results['temperature']:g}: "
        f"{samples:,} samples of {plural(len(results['clients']), 'client')}"
    )
    rows = [
        [
            str(point["round"]),
            str(point["participants"]),
            _share(point["accuracy"]),
            _share(point["validation"]),
            "–" if point["train_loss"] is None else f"{point['train_loss']:.4f}",
            readable_bytes(point["up"] + point["down"]),
        ]
        for point in points
    ]
    columns = ["round", "updates", "accuracy %", "validation %", "training loss", "bytes so far"]
    if len(rows) > SHOWN:
        rows = [*rows[:2], ["…"] + [""] * (len(columns) - 1), *rows[3 - SHOWN :]]
    print_line()
    print_table(columns, rows, right=columns)
    for facts in results["failures"][:5]:
        for failure in facts.get("clients", [facts])[:5]:
            who = failure.get("client") or f"node {failure.get('node')}"
            print_line(f"note: {who}: {plain(str(failure.get('why') or failure.get('reason')))}")
    if results["stopped"]:
        print_line(results["stopped"])
    print_line(
        f"wrote {out / 'tuned.safetensors'}, classifier {results['classifier'][:DIGITS]}, tuning.json and "
        f"{out / 'report.html'}"
    )


def _share(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.2f}"
