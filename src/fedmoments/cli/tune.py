"""``fedmoments tune``: linear probing and fine-tuning of a simulated federation, from every start, as curves."""

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
    Pooling,
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
    Patience,
    Replacement,
    Rounds,
    ServerLr,
    ServerMomentum,
    Stage,
    Tau,
    Temperature,
    TestEvery,
    ValidationShare,
    WeightDecay,
    typed_plan,
)
from fedmoments.errors import InputError

__all__ = ["tune_command"]

EXAMPLE = example(
    "fedmoments tune runs/demo/digits.npz --starts random,fedcof --optimisers fedavg,fedadam --clients 20 --rounds 5 "
    "--temperature auto --for random.lr=0.1 --seeds 1 --out runs/tuned"
)


def tune_command(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command("tune", cls=PlainCommand, short_help="Probe or fine-tune from a head, in rounds.", epilog=EXAMPLE)(
        _tune
    )


def _tune(
    data: Annotated[
        str | None, typer.Argument(help="digits, folder:PATH, csv:PATH, parquet:PATH, npz:PATH or hf:NAME.")
    ] = None,
    *,
    starts: Annotated[
        str | None,
        typer.Option(help="random, names of heads, files of classifiers; random,fedncm,fed3r,fedcof by default."),
    ] = None,
    optimisers: Annotated[
        str | None, typer.Option(help="fedavg, fedavgm, fedadam, fedprox, scaffold; fedavg by default.")
    ] = None,
    heads: Annotated[str | None, typer.Option(help="More one-shot heads to compare curves with.")] = None,
    stage: Stage = None,
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
    test_every: TestEvery = None,
    runs: Annotated[
        list[str] | None,
        typer.Option(
            "--for",
            metavar="RUN.NAME=VALUE",
            help="A number for some runs only, by start, optimiser or START/OPTIMISER: random.lr=0.1, "
            "fedcof/fedadam.server_lr=0.001; may be repeated.",
        ),
    ] = None,
    refit: Annotated[
        str | None, typer.Option(help="Heads that are fitted anew after ft and feat; fed3r by default, none for none.")
    ] = None,
    encoder_flops: Annotated[
        float | None, typer.Option(metavar="FLOPS", help="Of the encoder, a sample, where features are given.")
    ] = None,
    encoder: Encoder = None,
    size: Size = None,
    pooling: Pooling = None,
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
    split: Annotated[str | None, typer.Option(help="One split; dirichlet:0.1 (see 'fedmoments split --help').")] = None,
    seeds: Annotated[int | None, typer.Option(help="How many seeds; 3.")] = None,
    seed: Annotated[int | None, typer.Option(help="The first seed; every random choice follows from it.")] = None,
    settings: Set = None,
    config: Annotated[
        Path | None, typer.Option(help="TOML file with any of these settings; options that are typed win.")
    ] = None,
    cache: Cache = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Folder for results.json, report.html, config.toml and what was tuned."),
    ] = None,
    json: Json = False,
) -> None:
    """Tune in rounds from closed-form heads and from a random start: accuracy against rounds, bytes and compute.

    Every combination of start, optimiser and seed is one run. An interrupted job goes on from its folder.
    """
    from fedmoments.jobs.tuning_config import TuningConfig

    base = TuningConfig.load(config) if config else TuningConfig()
    plan = typed_plan(
        stage=stage, rounds=rounds, fraction=fraction, replacement=replacement, lr=lr, momentum=momentum,
        weight_decay=weight_decay, batch_size=local_batch, epochs=epochs, server_lr=server_lr,
        server_momentum=server_momentum, beta_1=beta_1, beta_2=beta_2, tau=tau, mu=mu, temperature=temperature,
        batchnorm=batchnorm, validation=validation, check_every=check_every, patience=patience, test_every=test_every,
    )  # fmt: skip
    typed: dict[str, Any] = {
        "data": data, "encoder": encoder, "size": size, "pooling": pooling, "device": device, "threads": threads,
        "batch_size": batch_size, "text": text, "image": image, "label": label, "client": client, "domain": domain,
        "domains": domains, "test": test, "test_share": test_share, "strict": strict, "seeds": seeds, "seed": seed,
        "clients": [clients] if clients is not None else None,
        "splits": [split] if split else None,
        "starts": listed(starts, str, "--starts") if starts else None,
        "optimisers": listed(optimisers, str, "--optimisers") if optimisers else None,
        "heads": listed(heads, str, "--heads") if heads else None,
        "refit": None if refit is None else [] if refit == "none" else listed(refit, str, "--refit"),
        "encoder_flops": encoder_flops,
        "hyper": hyper_of_heads(settings) if settings else None,
        "plan": {**base.plan, **plan} if plan else None,
        "runs": _runs(runs, base.runs) if runs else None,
    }  # fmt: skip
    if data is None and config is None:
        raise InputError("say which data: digits, folder:PATH, csv:PATH, npz:PATH …, or --config FILE")
    job = base.changed({name: value for name, value in typed.items() if value is not None}, "the command line")
    _run_and_show(job, out, cache=cache, json=json)


def _runs(pairs: list[str], before: Any) -> dict[str, dict[str, Any]]:
    """Return numbers for some runs from ``RUN.NAME=VALUE`` texts."""
    found = {place: dict(numbers) for place, numbers in before.items()}
    for pair in pairs:
        left, equals, text = pair.partition("=")
        place, dot, name = left.rpartition(".")
        if not equals or not dot or not place or not name:
            raise InputError(f"--for is typed as RUN.NAME=VALUE, such as random.lr=0.1, but '{pair}' arrived")
        found.setdefault(place, {})[name] = _value(text)
    return found


def _value(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return {"true": True, "false": False}.get(text, text)


def _run_and_show(config: Any, out: Path | None, *, cache: Path | None, json: bool) -> None:
    from fedmoments.cli.tuning_tables import show_tuning
    from fedmoments.extras import require
    from fedmoments.jobs.tuning import run_tuning

    require("flwr", "Tuning in rounds", "flower")
    if out is not None:
        results_folder(out)
    command = shlex.join(["fedmoments", *sys.argv[1:]])
    try:
        with progress_bar("tuning") as progress:
            found = run_tuning(config, out, command=command, cache_dir=cache, progress=progress)
    except KeyboardInterrupt:
        kept = f"what was tuned is kept in {out}, the same command goes on from there" if out else "nothing is kept"
        sys.stderr.write(f"interrupted; {kept}\n")
        raise
    if json:
        print_json(found.document)
        return
    show_tuning(found.document)
    if found.resumed:
        print_line(f"{plural(found.resumed, 'run')} of an earlier job in {out} were kept")
    if found.replaced:
        print_line(f"{plural(found.replaced, 'run')} of an earlier job in {out} had other settings and were replaced")
    if found.files:
        print_line(f"wrote {', '.join(str(path) for path in found.files)}")
