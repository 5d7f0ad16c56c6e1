"""``fedmoments federate``: a whole federation on one machine, with the processes, keys and bytes of a real one."""

import shlex
from contextlib import redirect_stdout
from itertools import count
from pathlib import Path
from typing import Annotated, Any

import typer

from fedmoments.cli.agreements import Epsilon, agreed_from
from fedmoments.cli.command import PlainCommand
from fedmoments.cli.federation_runs import RunLines, fail_run, follow, read_results, show_results, tell, why
from fedmoments.cli.options import (
    BatchSize,
    Cache,
    ClientColumn,
    Device,
    DomainColumn,
    Domains,
    Encoder,
    ImageColumn,
    Json,
    LabelColumn,
    Payload,
    Pooling,
    Runtime,
    Set,
    Size,
    Strict,
    TestFile,
    TestShare,
    TextColumn,
    Threads,
    example,
    hyper_of_heads,
    listed,
    results_folder,
)
from fedmoments.cli.output import print_json, print_line
from fedmoments.cli.privacy_options import (
    Batch,
    ClientNorm,
    ClipNorm,
    Cohort,
    Contributors,
    Delta,
    MaxClientSamples,
    Neighbours,
    NoiseShares,
    Robust,
    Secure,
    SketchSpare,
    Unit,
)
from fedmoments.cli.server import longest
from fedmoments.errors import DeploymentError, FedMomentsError, InputError

__all__ = ["federate_command"]

EXAMPLE = example("fedmoments federate --data runs/demo/digits.npz --local 3 --clients 12")
#: Options of secure sums, which simulate has, too.
_OF_MASKS = ("secure", "batch", "cohort", "contributors")
#: Options of 'simulate' that have another name here.
_NAMES = {"clients": "clients", "splits": "split", "means_per_client": "means-per-client", "budgets": "budget"}


def federate_command(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command("federate", cls=PlainCommand, short_help="Run a whole federation on one machine.", epilog=EXAMPLE)(
        _federate
    )


def _federate(
    *,
    local: Annotated[int, typer.Option(metavar="N", min=1, help="Nodes, each a process that plays some clients.")],
    tls: Annotated[bool, typer.Option("--tls/--no-tls", help="Certificates and node keys, as in the field.")] = True,
    engine: Annotated[
        str,
        typer.Option(help="flower: real processes; ray: Flower's own simulation; memory: one process, no network."),
    ] = "flower",
    data: Annotated[
        str, typer.Option(help="digits, folder:PATH, csv:PATH, npz:PATH … or a path, as for 'simulate'.")
    ] = "digits",
    encoder: Encoder = None,
    size: Size = None,
    pooling: Pooling = None,
    runtime: Runtime = None,
    device: Device = None,
    threads: Threads = None,
    batch_size: BatchSize = None,
    text: TextColumn = None,
    image: ImageColumn = None,
    label: LabelColumn = None,
    client: ClientColumn = None,
    domain: DomainColumn = None,
    domains: Domains = None,
    test: TestFile = None,
    test_share: TestShare = None,
    strict: Strict = None,
    clients: Annotated[int | None, typer.Option(help="Number of clients; 100, or what domain and id say.")] = None,
    split: Annotated[str | None, typer.Option(help="dirichlet:0.1 by default; see 'fedmoments split --help'.")] = None,
    alpha: Annotated[float | None, typer.Option(help="0.5 is short for --split dirichlet:0.5.")] = None,
    means: Annotated[int | None, typer.Option(help="Means that a client sends of each class; 1.")] = None,
    budget: Payload = None,
    seed: Annotated[int | None, typer.Option(help="Every random choice follows from it; 0.")] = None,
    heads: Annotated[str, typer.Option(help="Names, separated by commas.")] = "fedcof",
    settings: Set = None,
    rounds: Annotated[int, typer.Option(help="Rounds of collection.")] = 1,
    per_round: Annotated[int, typer.Option(help="Nodes asked in each; 0: all that are not done.")] = 0,
    fit_each_round: Annotated[bool, typer.Option("--fit-each-round", help="Fit heads after every round.")] = False,
    no_evaluate: Annotated[bool, typer.Option("--no-evaluate", help="Do not ask clients to test the heads.")] = False,
    min_count: Annotated[
        int | None,
        typer.Option(
            help="Clients withhold a class with fewer samples; 5. To send small classes, say 1. Noise that hides one "
            "sample goes with 1 only, and has it by default."
        ),
    ] = None,
    sketch_spare: SketchSpare = None,
    secure: Secure = None,
    batch: Batch = None,
    cohort: Cohort = None,
    contributors: Contributors = None,
    epsilon: Epsilon = None,
    delta: Delta = None,
    unit: Unit = None,
    neighbours: Neighbours = None,
    clip: ClipNorm = None,
    client_norm: ClientNorm = None,
    noise_shares: NoiseShares = None,
    robust: Robust = None,
    max_client_samples: MaxClientSamples = None,
    cache: Cache = None,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Folder for classifiers, federation.json and report.html.")
    ] = Path("runs/federation"),
    keep: Annotated[
        Path | None,
        typer.Option(help="Folder for ledger, keys and nodes; OUT/federation by default, or OUT/federation-2 …"),
    ] = None,
    timeout: Annotated[float | None, typer.Option(help="Seconds until it is given up.")] = None,
    json: Json = False,
) -> None:
    """Run a whole federation on one machine: server, nodes, keys and bytes are those of a real one.

    The classifiers are those of 'fedmoments simulate' with the same split, to the last bit, also with --secure sums;
    the line to compare with is printed. With --secure one more node is the helper.
    """
    from fedmoments.deploy.local import ENGINES, prepare_local
    from fedmoments.extras import require
    from fedmoments.flower.settings import ServerSettings

    require("flwr", "A federation", "flower")
    if engine not in ENGINES:
        raise InputError(f"--engine must be one of {', '.join(ENGINES)}, not '{engine}'")
    if split is not None and alpha is not None:
        raise InputError("--alpha is short for --split dirichlet:ALPHA: give one of them")
    results_folder(out)
    place = keep or _fresh(out)
    _require_empty(place)
    typed: dict[str, Any] = {"encoder": encoder, "size": size, "pooling": pooling, "runtime": runtime}
    typed |= {"device": device, "threads": threads, "batch_size": batch_size, "text": text, "image": image}
    typed |= {"label": label, "client": client, "domain": domain, "domains": domains, "test": test}
    typed |= {"test_share": test_share, "strict": strict, "clients": clients, "means_per_client": means, "seed": seed}
    typed |= {"budgets": budget}
    typed |= {"splits": split if alpha is None else f"dirichlet:{alpha:g}"}
    typed = {name: value for name, value in typed.items() if value is not None}
    chosen, hyper = tuple(listed(heads, str, "--heads")), hyper_of_heads(settings or [])
    server = ServerSettings(
        str(place / "ledger.db"),
        str(out.resolve()),
        chosen,
        hyper,
        rounds=rounds,
        per_round=per_round,
        fit_each_round=fit_each_round,
        evaluate=not no_evaluate,
        robust=robust or "",
        max_client_samples=max_client_samples or 0,
    )
    agreed: dict[str, Any] = {"secure": secure, "batch": batch, "cohort": cohort, "contributors": contributors}
    agreed |= {"epsilon": epsilon, "delta": delta, "unit": unit, "neighbours": neighbours, "clip": clip}
    agreed |= {"client_norm": client_norm, "budget": noise_shares}
    privacy = agreed_from(agreed)
    least, spare = _least(min_count, privacy), _spare(sketch_spare, chosen, hyper)
    plan = prepare_local(
        place,
        _job(data, typed, chosen, hyper),
        server,
        nodes=local,
        engine=engine,
        tls=tls,
        policy={"min_count": least, "sketch_spare": spare},
        cache=None if cache is None else str(cache.resolve()),
        privacy=privacy,
    )
    _require_sums(privacy, plan.clients)
    tell(f"{plan.clients:,} clients on {plan.nodes} nodes ({engine}); ledger {plan.server.ledger}")
    _run(plan, engine, tls=tls, timeout=timeout or longest(plan.server, secure))
    found = read_results(out)
    masks = {name: value for name, value in agreed.items() if name in _OF_MASKS and value is not None}
    command = _simulation(
        data, typed, chosen, settings or [], cache, rules={"min_count": least, "sketch_spare": spare, **masks}
    )
    same = found["clients"] == plan.clients and privacy.secure != "cohorts" and epsilon is None
    _show(found, plan, command, engine, complete=same and not found["left_out"], json=json)


def _spare(typed: int | None, heads: tuple[str, ...], hyper: dict[str, Any]) -> int:
    """Return with how many spare samples clients send sketch rows: as typed, or as their policy has it by default."""
    from fedmoments.federation.policy import ClientPolicy
    from fedmoments.simulation.run import choose_heads

    if typed is not None:
        return typed
    sketches = any(head.needs.has_sketch for head in choose_heads(heads, hyper).values())
    return ClientPolicy().sketch_spare if sketches else 0


def _least(typed: int | None, privacy: Any) -> int:
    """Return from how many samples on clients send a class: as typed, or what goes with the noise."""
    from fedmoments.federation.policy import ClientPolicy
    from fedmoments.privacy.dp import check_rules

    if typed is not None:
        check_rules(privacy, min_count=typed)
        return typed
    if privacy.epsilon is None or privacy.unit != "sample":
        return ClientPolicy().min_count
    tell("clients send classes of any size (--min-count 1): noise hides one sample, a minimum count would move several")
    return 1


def _require_sums(privacy: Any, clients: int) -> None:
    """Refuse sums that so few clients can never make, before anything is sent."""
    if privacy.secure and clients < privacy.batch:
        raise InputError(
            f"secure sums are over {privacy.batch} clients or more (--batch), but there are {clients}: lower it, or "
            "take more clients"
        )
    if privacy.secure == "cohorts" and clients < 2 * privacy.cohort:
        raise InputError(
            f"{clients} clients make one cohort of {privacy.cohort}, and one mean a class shows no spread: choose "
            "--cohort at most half of the clients, --secure two-phase, or more clients"
        )


def _fresh(out: Path) -> Path:
    """Return a folder that is not there yet: ledgers and keys of earlier trials are never overwritten."""
    places = (out / ("federation" if number == 1 else f"federation-{number}") for number in count(1))
    return next(place for place in places if not place.exists())


def _require_empty(place: Path) -> None:
    if place.is_dir() and any(place.iterdir()):
        raise InputError(
            f"{place} holds a federation already, whose ledger and keys are never overwritten: choose another --keep"
        )


def _job(data: str, typed: dict[str, Any], heads: tuple[str, ...], hyper: dict[str, Any]) -> Any:
    from fedmoments.jobs import JobConfig

    values = {"data": data, **typed, "heads": heads, "hyper": hyper, "seeds": 1}
    return JobConfig().changed(values, "the command line")


def _run(plan: Any, engine: str, *, tls: bool, timeout: float) -> None:
    """Run to the end, telling what happens; a run that does not complete ends the command with exit code 1."""
    from fedmoments.deploy.local import run_local, started

    try:
        if engine == "memory":
            with redirect_stdout(RunLines()):
                run_local(plan, engine)
        elif engine == "ray":
            tell("Flower's simulation starts; this takes a while")
            RunLines().write(f"{run_local(plan, engine, timeout=timeout)}\n")
        else:
            with started(plan, tls=tls) as (server, nodes):
                tell(f"serving at {server.link.address}, {'with TLS' if tls else 'without TLS'}")
                server.submit()
                status = follow(server, timeout, nodes)
                if not status.succeeded:
                    raise DeploymentError(why(server.log(), status.status, status.details))
    except FedMomentsError as error:
        fail_run(str(error), plan.server.ledger)


def _simulation(
    data: str,
    typed: dict[str, Any],
    heads: tuple[str, ...],
    settings: list[str],
    cache: Path | None,
    *,
    rules: dict[str, Any],
) -> str:
    """Return the command that simulates the same split in one process."""
    words = ["fedmoments", "simulate", data, "--heads", ",".join(heads)]
    for name, value in typed.items():
        option = f"--{_NAMES.get(name, name.replace('_', '-'))}"
        words += [option] if value is True else [option, f"{value}"]
    for pair in settings:
        words += ["--set", pair]
    for name, value in rules.items():
        if (name, value) not in (("min_count", 1), ("sketch_spare", 0)):
            words += [f"--{name.replace('_', '-')}", f"{value}"]
    if cache is not None:
        words += ["--cache", str(cache)]
    return shlex.join([*words, "--seeds", "1"])


def _show(found: dict[str, Any], plan: Any, command: str, engine: str, *, complete: bool, json: bool) -> None:
    if json:
        facts = {"engine": engine, "nodes": plan.nodes, "clients_in_all": plan.clients, "ledger": plan.server.ledger}
        print_json({**found, **facts, "out": plan.server.out, "simulate": command, "complete": complete})
        return
    show_results(found)
    print_line()
    for each in found["heads"]:
        print_line(f"{each['head']} classifier {each['classifier']}")
        print_line(f"{each['head']} statistics {each['statistics']}")
    print_line(f"the same split in one process: {command}")
    if not complete:
        print_line("its digests are others, for not every client is in as it is there, or there is noise")
    print_line(f"wrote {plan.server.out}; 'fedmoments status {plan.server.ledger}' says who is in")
