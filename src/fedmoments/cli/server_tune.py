"""``fedmoments server tune``: rounds of linear probing or fine-tuning with the clients of a federation."""

import json as json_module
from pathlib import Path
from typing import Annotated, Any

import typer

from fedmoments.cli.federation_runs import DIGITS, plain, tell
from fedmoments.cli.ledger import Ledger, open_ledger
from fedmoments.cli.options import Json, Set, hyper_of_heads, results_folder
from fedmoments.cli.output import plural, print_json, print_line, print_table, readable_bytes
from fedmoments.cli.privacy_options import MaxClientSamples
from fedmoments.cli.server_runs import SLACK, authority_of, finish
from fedmoments.cli.tuning_options import (
    Batchnorm,
    Beta1,
    Beta2,
    CheckEvery,
    Epochs,
    Fraction,
    LearningRate,
    LocalBatch,
    Momentum,
    Mu,
    Optimiser,
    Patience,
    PlanSeed,
    Replacement,
    Rounds,
    ServerLr,
    ServerMomentum,
    Stage,
    Tau,
    Temperature,
    ValidationShare,
    WeightDecay,
    typed_plan,
)
from fedmoments.errors import InputError

__all__ = ["tune"]

#: Rounds that are listed.
SHOWN = 20


def tune(
    ledger: Ledger,
    *,
    keys: Annotated[Path | None, typer.Option(help="Folder that 'fedmoments keys server' filled.")] = None,
    host: Annotated[str, typer.Option(help="Address to listen at; 0.0.0.0 for all of this machine.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen at.")] = 9092,
    start: Annotated[
        str, typer.Option(help="A head that is fitted from the ledger, random, or a file of a classifier.")
    ] = "fedcof",
    settings: Set = None,
    stage: Stage = None,
    optimiser: Optimiser = None,
    rounds: Rounds = None,
    fraction: Fraction = None,
    replacement: Replacement = None,
    lr: LearningRate = None,
    momentum: Momentum = None,
    weight_decay: WeightDecay = None,
    local_batch: LocalBatch = None,
    epochs: Epochs = None,
    server_lr: ServerLr = None,
    server_momentum: ServerMomentum = None,
    beta_1: Beta1 = None,
    beta_2: Beta2 = None,
    tau: Tau = None,
    mu: Mu = None,
    temperature: Temperature = None,
    batchnorm: Batchnorm = None,
    validation: ValidationShare = None,
    check_every: CheckEvery = None,
    patience: Patience = None,
    test_every: Annotated[
        int | None,
        typer.Option(metavar="N", help="Rounds from one test by the clients to the next; the start and the end only."),
    ] = None,
    seed: PlanSeed = None,
    minimum: Annotated[int | None, typer.Option(help="Updates that a round must bring, or it fails; 1.")] = None,
    nodes: Annotated[int | None, typer.Option(help="Client nodes to wait for before the first round; 1.")] = None,
    wait: Annotated[float | None, typer.Option(help="For how many seconds to wait for them; 120.")] = None,
    deadline: Annotated[float | None, typer.Option(help="Seconds until a round is closed; 600.")] = None,
    ttl: Annotated[float | None, typer.Option(help="Seconds that a message lives; 1.5 times the deadline.")] = None,
    max_client_samples: MaxClientSamples = None,
    no_evaluate: Annotated[
        bool, typer.Option("--no-evaluate", help="Do not ask clients to test on their test parts.")
    ] = False,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Folder for what was tuned, and for going on after a stop.")
    ] = Path("tuned"),
    home: Annotated[
        Path | None, typer.Option(help="Folder for Flower's state and logs; LEDGER.flower by default.")
    ] = None,
    timeout: Annotated[
        float | None, typer.Option(help="Seconds until it is given up; all waits together by default.")
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Without certificates, on this machine only: for trials.")
    ] = False,
    json: Json = False,
) -> None:
    """Tune in rounds with the clients of a federation, from a head of its ledger: those that allow it train.

    A run that was stopped goes on from its folder when the same command is given again. Exit code 0 only if the run
    completed.
    """
    plan = typed_plan(
        stage=stage, optimiser=optimiser, rounds=rounds, fraction=fraction, replacement=replacement, lr=lr,
        momentum=momentum, weight_decay=weight_decay, batch_size=local_batch, epochs=epochs, server_lr=server_lr,
        server_momentum=server_momentum, beta_1=beta_1, beta_2=beta_2, tau=tau, mu=mu, temperature=temperature,
        batchnorm=batchnorm, validation=validation, check_every=check_every, patience=patience, test_every=test_every,
        seed=seed,
    )  # fmt: skip
    typed: dict[str, Any] = {"minimum": minimum, "nodes": nodes, "wait": wait, "deadline": deadline}
    typed["max_client_samples"] = max_client_samples
    typed |= {"ttl": ttl if ttl or not deadline else 1.5 * deadline, "evaluate": not no_evaluate}
    given = {name: value for name, value in typed.items() if value is not None}
    authority = authority_of(keys, insecure=insecure)
    given |= {"ledger": str(ledger.resolve()), "out": str(results_folder(out).resolve()), "plan": plan}
    chosen = _settings(given, start, settings or [])
    place = home or ledger.with_name(f"{ledger.name}.flower")
    status = _serve(chosen, place, timeout, authority=authority, host=host, port=port)
    results = json_module.loads((out / "tuning.json").read_text("utf-8"))
    if json:
        found = {"status": status.status, "run": status.run_id, "seconds": status.seconds}
        print_json({**found, "out": str(out.resolve()), "results": results})
        return
    _show(results, out)


def _settings(given: dict[str, Any], start: str, pairs: list[str]) -> Any:
    """Return the server's settings, once they can be run."""
    from fedmoments.extras import require
    from fedmoments.federation.policy import require_clear
    from fedmoments.flower.tuning_run import RunFolder
    from fedmoments.flower.tuning_settings import RANDOM, TuningSettings
    from fedmoments.heads import presets
    from fedmoments.simulation.run import choose_heads

    require("flwr", "A server of a federation", "flower")
    hyper = hyper_of_heads(pairs)
    if set(hyper) - {start}:
        raise InputError(f"--set gives hyper-parameters of {', '.join(hyper)}, but the start is '{start}'")
    if start != RANDOM and start not in presets():
        if not Path(start).is_file():
            raise InputError(
                f"--start takes a head (see 'fedmoments heads'), random, or the file of a classifier, not '{start}'"
            )
        start = str(Path(start).resolve())
    chosen = TuningSettings(start=start, hyper=hyper.get(start, {}), **given)
    with open_ledger(Path(chosen.ledger)) as store:
        require_clear(store.terms)
        if start in presets():
            from fedmoments.federation.results import require_served

            require_served(store.terms, choose_heads([start], hyper))
        RunFolder(chosen).load(store.terms.id)  # a folder of another run is refused before anything is served
    return chosen


def _serve(settings: Any, home: Path, timeout: float | None, **where: Any) -> Any:
    """Serve until the run is over, and return its status."""
    from fedmoments.deploy.home import FlowerHome
    from fedmoments.deploy.serving import serve

    plan = settings.tuning_plan
    asked = 2 * plan.rounds + plan.rounds // plan.check_every + 5
    longest = settings.wait + asked * settings.deadline + SLACK
    with serve(settings, FlowerHome(home), **where) as server:
        tell(
            f"serving at {server.link.address}, {'with TLS' if where['authority'] else 'without TLS'}; Ctrl-C stops it"
        )
        return finish(server, timeout or longest)


def _show(results: dict[str, Any], out: Path) -> None:
    """Print what a run found."""
    plan, points = results["plan"], results["points"]
    samples = sum(each["train"] for each in results["clients"].values())
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
        for each in facts.get("clients", [facts])[:5]:
            who = each.get("client") or f"node {each.get('node')}"
            print_line(f"note: {who}: {plain(str(each.get('why') or each.get('reason')))}")
    if results["stopped"]:
        print_line(results["stopped"])
    print_line(
        f"wrote {out / 'tuned.safetensors'}, classifier {results['classifier'][:DIGITS]}, tuning.json and "
        f"{out / 'report.html'}"
    )


def _share(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.2f}"
