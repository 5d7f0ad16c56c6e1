"""``fedmoments simulate``: data and an encoder in, a table over heads and settings, classifiers and a report out."""

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from fedmoments.cli.command import PlainCommand
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
from fedmoments.cli.output import plural, print_json, print_line, progress_bar
from fedmoments.cli.privacy_options import (
    Attack,
    Batch,
    ClientNorm,
    ClipNorm,
    Cohort,
    Contributors,
    Delta,
    Epsilons,
    MaxClientSamples,
    MinCount,
    Neighbours,
    NoiseShares,
    Obfuscate,
    Robust,
    Secure,
    SketchSpare,
    Unit,
)
from fedmoments.cli.simulation_tables import (
    show_budget_curve,
    show_card,
    show_digests,
    show_problems,
    show_result,
    show_rounds,
)
from fedmoments.errors import InputError

__all__ = ["run_and_show", "simulate_command"]

EXAMPLE = example(
    "fedmoments simulate runs/demo/digits.npz --heads fedncm,fedcof,gh-lda --clients 10,50 --alpha 0.1 --seeds 2"
)


def simulate_command(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command("simulate", cls=PlainCommand, short_help="Simulate a federation for many settings.", epilog=EXAMPLE)(
        _simulate
    )


def _simulate(
    data: Annotated[
        str | None,
        typer.Argument(
            help="digits, folder:PATH, csv:PATH, parquet:PATH, npz:PATH or hf:NAME; a path alone where its ending, or "
            "that it is a folder, says what it is."
        ),
    ] = None,
    *,
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
    heads: Annotated[
        str | None,
        typer.Option(
            help="Names, separated by commas. 'all' are all but fed3r-rf, which is slow at its 5,000 random features: "
            "'all,fed3r-rf' asks for it, and --set fed3r-rf.n_features=1000 makes it smaller. Baselines to compare "
            "with may stand among them; 'baselines' are all of them (see 'fedmoments heads')."
        ),
    ] = None,
    clients: Annotated[
        str | None, typer.Option(help="Numbers of clients: 10,100. By default 100, or what domain and id say.")
    ] = None,
    split: Annotated[
        str | None, typer.Option(help="Splits: dirichlet:0.1,iid,… (see 'fedmoments split --help').")
    ] = None,
    alpha: Annotated[str | None, typer.Option(help="0.1,0.5 is short for --split dirichlet:0.1,dirichlet:0.5.")] = None,
    shrinkage: Annotated[
        str | None,
        typer.Option(help="automatic,absolute:1,relative:0.5,blend:0.1,none: for the heads that have a shrinkage."),
    ] = None,
    means_per_client: Annotated[str | None, typer.Option(help="1,2: means that a client sends of each class.")] = None,
    project: Annotated[
        str | None,
        typer.Option(
            help="full,256,128: measure behind a public random projection to so many dimensions, drawn from the seed."
        ),
    ] = None,
    budget: Payload = None,
    budget_curve: Annotated[
        bool | None,
        typer.Option(
            "--budget-curve",
            help="Accuracy against bytes, from an eighth of FedNCM's payload to Fed3R's, for all heads.",
        ),
    ] = None,
    participation: Annotated[
        str | None,
        typer.Option(help="10 or 10:replacement: accuracy after each round of so many clients, until all were seen."),
    ] = None,
    min_count: MinCount = None,
    sketch_spare: SketchSpare = None,
    obfuscate: Obfuscate = None,
    secure: Secure = None,
    batch: Batch = None,
    cohort: Cohort = None,
    contributors: Contributors = None,
    epsilon: Epsilons = None,
    delta: Delta = None,
    unit: Unit = None,
    neighbours: Neighbours = None,
    clip: ClipNorm = None,
    client_norm: ClientNorm = None,
    noise_shares: NoiseShares = None,
    robust: Robust = None,
    max_client_samples: MaxClientSamples = None,
    attack: Attack = None,
    seeds: Annotated[int | None, typer.Option(help="How many seeds: splits differ, features do not.")] = None,
    seed: Annotated[int | None, typer.Option(help="The first seed; every random choice follows from it.")] = None,
    settings: Set = None,
    memory_limit: Annotated[
        float | None, typer.Option(metavar="GB", help="Most memory for the statistics of a head.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="TOML file with any of these settings; options that are typed win.")
    ] = None,
    cache: Cache = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="Folder for results.json, results.csv, report.html, config.toml and the classifiers."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Simulate a federation: encode, split, measure, merge, fit and test, for all combinations of the settings."""
    from fedmoments.jobs import JobConfig

    typed: dict[str, Any] = {
        "data": data,
        "encoder": encoder,
        "size": size,
        "pooling": pooling,
        "runtime": runtime,
        "device": device,
        "threads": threads,
        "batch_size": batch_size,
        "text": text,
        "image": image,
        "label": label,
        "client": client,
        "domain": domain,
        "domains": domains,
        "test": test,
        "test_share": test_share,
        "strict": strict,
        "heads": listed(heads, str, "--heads") if heads else None,
        "clients": listed(clients, int, "--clients") if clients else None,
        "splits": _splits(split, alpha),
        "shrinkages": listed(shrinkage, str, "--shrinkage") if shrinkage else None,
        "means_per_client": listed(means_per_client, int, "--means-per-client") if means_per_client else None,
        "projections": listed(project, str, "--project") if project else None,
        "budgets": listed(budget, str, "--budget") if budget else None,
        "budget_curve": budget_curve,
        "participation": listed(participation, str, "--participation") if participation else None,
        "seeds": seeds,
        "seed": seed,
        "hyper": hyper_of_heads(settings, baselines=True) if settings else None,
        "memory_limit": memory_limit,
    }
    rules: dict[str, Any] = {
        "min_count": min_count,
        "sketch_spare": sketch_spare,
        "obfuscation": listed(obfuscate, str, "--obfuscate") if obfuscate else None,
        "secure": secure,
        "batch": batch,
        "cohort": cohort,
        "contributors": contributors,
        "epsilon": listed(epsilon, float, "--epsilon") if epsilon else None,
        "delta": delta,
        "unit": unit,
        "neighbours": neighbours,
        "clip": clip,
        "client_norm": client_norm,
        "budget": noise_shares,
        "robust": robust,
        "max_samples": max_client_samples,
        "attack": attack,
    }
    base = JobConfig.load(config) if config else JobConfig()
    rules = {name: value for name, value in rules.items() if value is not None}
    typed["privacy"] = {**base.privacy, **rules} if rules else None
    if data is None and config is None:
        raise InputError("say which data: digits, folder:PATH, csv:PATH, npz:PATH …, or --config FILE")
    job = base.changed({name: value for name, value in typed.items() if value is not None}, "the command line")
    run_and_show(job, out, cache=cache, json=json)


def run_and_show(config: Any, out: Path | None, *, cache: Path | None, json: bool) -> Any:
    """Run a job with a progress bar, print its table or its JSON, and return what it found."""
    from fedmoments.jobs import run_job

    if out is not None:
        results_folder(out)
    command = shlex.join(["fedmoments", *sys.argv[1:]])
    try:
        with progress_bar("simulating") as progress:
            found = run_job(config, out, command=command, cache_dir=cache, progress=progress)
    except KeyboardInterrupt:
        sys.stderr.write(f"{_interrupted(out)}\n")
        raise
    if json:
        print_json(found.document)
        return found
    show_problems(found.document["data"]["problems"])
    show_result(found.simulation)
    show_rounds(found.document["rounds"])
    if found.document.get("budget_curve"):
        show_budget_curve(found.document["budget_curve"])
    show_digests(found.document["details"], found.simulation)
    show_card(found.document["privacy"], plain=not config.privacy, several=len(config.protections) > 1)
    if found.resumed:
        print_line(f"{plural(found.resumed, 'result')} of an earlier run in {out} were kept")
    if found.files:
        print_line(f"wrote {', '.join(str(path) for path in found.files)}")
    return found


def _interrupted(out: Path | None) -> str:
    """Return what an interruption has left."""
    from fedmoments.jobs.record import Record
    from fedmoments.jobs.run import PROGRESS

    if out is None:
        return "interrupted"
    kept = len(Record(out / PROGRESS, ""))
    if not kept:
        return f"interrupted; no result is kept in {out} yet"
    verb = "is" if kept == 1 else "are"
    return f"interrupted; {plural(kept, 'result')} {verb} kept in {out}, the same command goes on from there"


def _splits(split: str | None, alpha: str | None) -> list[str] | None:
    chosen = listed(split, str, "--split") if split else []
    if alpha:
        chosen += [f"dirichlet:{value:g}" for value in listed(alpha, float, "--alpha")]
    return chosen or None
