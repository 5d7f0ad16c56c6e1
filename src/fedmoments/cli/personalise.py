"""``fedmoments personalise``: a client's own classifier without training, or what it would bring all clients."""

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
    Runtime,
    Set,
    Size,
    Strict,
    TestFile,
    TestShare,
    TextColumn,
    Threads,
    example,
    existing_file,
    hyper_of_heads,
    listed,
    writable_place,
)
from fedmoments.cli.output import plural, print_json, print_line, print_table, progress_bar, readable_bytes
from fedmoments.errors import InputError

__all__ = ["personalise_command"]

EXAMPLE = example(
    "fedmoments measure runs/demo/digits.npz --head fedncm --client everybody --out all.stats",
    "fedmoments personalise runs/demo/digits.npz --model all.stats --beta auto --shares --out mine.classifier",
    "fedmoments personalise runs/demo/digits.npz --clients 20 --split dirichlet:0.1 --heads fedncm,gh-lda --seeds 1",
)
#: Heads that a simulation compares unless it is told which.
HEADS = ("fedncm", "fed3r", "gh-lda")


def personalise_command(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command(
        "personalise", cls=PlainCommand, short_help="Make a client's own classifier, without training.", epilog=EXAMPLE
    )(_personalise)


def _personalise(
    data: Annotated[
        str,
        typer.Argument(
            help="With --model, this client's own samples: features (.npz), folder:PATH, csv:PATH … Without, data of "
            "all clients to simulate them with, as in 'fedmoments simulate'."
        ),
    ],
    *,
    model: Annotated[
        Path | None,
        typer.Option(
            help="What the server broadcast: a classifier, or merged statistics ('fedmoments merge'), which class "
            "means are blended in."
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Classifier file to write, with --model.")] = None,
    beta: Annotated[
        str | None,
        typer.Option(
            help="Weight of the client's own class means: 'auto' or 0 to 1; a list in simulations, 'auto' by default. "
            "With --model, none is blended unless this is given."
        ),
    ] = None,
    all_labels: Annotated[
        bool, typer.Option("--all-labels", help="With --model: predict labels too that this client does not have.")
    ] = False,
    shares: Annotated[
        bool, typer.Option("--shares", help="With --model: predict own labels as often as this client has them.")
    ] = False,
    newcomer: Annotated[
        bool, typer.Option("--newcomer", help="With --model: this client's samples are not among the statistics.")
    ] = False,
    heads: Annotated[
        str | None,
        typer.Option(help="Heads to simulate; with statistics, the one head to fit ('fedncm' by default)."),
    ] = None,
    clients: Annotated[
        str | None, typer.Option(help="Numbers of clients to simulate: 10,100. By default 100, or what the data say.")
    ] = None,
    split: Annotated[
        str | None, typer.Option(help="Splits to simulate: dirichlet:0.1,iid,… (see 'fedmoments split --help').")
    ] = None,
    held_out: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help="Test every client on this share of its own samples, instead of test samples that are dealt out: for "
            "the splits domain and id.",
        ),
    ] = None,
    seeds: Annotated[int | None, typer.Option(help="How many seeds to simulate.")] = None,
    seed: Annotated[int | None, typer.Option(help="The first seed; every random choice follows from it.")] = None,
    settings: Set = None,
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
    cache: Cache = None,
    json: Json = False,
) -> None:
    """Make a client's own classifier without training, or simulate what that brings.

    What a client can do by itself: predict only labels that it has, as often as it has them (--shares), and blend the
    federation's class means with its own (--beta). Nothing leaves the client.
    """
    from fedmoments.jobs import JobConfig

    of_data: dict[str, Any] = {
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
        "seed": seed,
        "hyper": hyper_of_heads(settings) if settings else None,
        "heads": listed(heads, str, "--heads") if heads else None,
    }
    of_simulation: dict[str, Any] = {
        "clients": listed(clients, int, "--clients") if clients else None,
        "splits": listed(split, str, "--split") if split else None,
        "seeds": seeds,
    }
    given = {name: value for name, value in of_data.items() if value is not None}
    simulated = {name: value for name, value in of_simulation.items() if value is not None}
    if model is not None:
        _refuse(
            {**simulated, **({} if held_out is None else {"held_out": held_out})}, "for simulations, without --model"
        )
        base = JobConfig(heads=()).changed(given, "the command line")
        options = {"beta": beta, "own_labels": not all_labels, "shares": shares, "newcomer": newcomer}
        _one(base, model, out, options, cache=cache, json=json)
        return
    own = {"out": out, "all_labels": all_labels, "shares": shares, "newcomer": newcomer}
    _refuse({name: value for name, value in own.items() if value}, "for one client, with --model")
    base = JobConfig(heads=HEADS, seeds=3).changed({**given, **simulated}, "the command line")
    _all(base, listed(beta, str, "--beta") if beta else ["auto"], held_out or 0.0, cache=cache, json=json)


def _refuse(given: dict[str, Any], why: str) -> None:
    """Refuse options of the other way to use the command."""
    if given:
        options = ", ".join(f"--{'split' if name == 'splits' else name.replace('_', '-')}" for name in given)
        raise InputError(f"{options}: only {why}")


# ---------------------------------------------------------------------------------------------- one client


def _one(
    config: Any, model: Path, out: Path | None, options: dict[str, Any], *, cache: Path | None, json: bool
) -> None:
    from fedmoments.jobs.personal import personalise

    if out is None:
        raise InputError("say where to write this client's classifier: --out FILE")
    if len(config.heads) > 1:
        raise InputError(f"one client's classifier has one head, but --heads names {len(config.heads)}")
    place = writable_place(out)
    head = config.heads[0] if config.heads else None
    other = sorted(set(config.hyper) - {head or "fedncm"})
    if other:
        raise InputError(
            f"--set speaks of {', '.join(other)}, but the head here is {head or 'fedncm'}: name it by --heads"
        )
    hyper = config.hyper.get(head or "fedncm", {})
    with progress_bar("personalising") as progress:
        found = personalise(
            config, existing_file(model), head=head, hyper=hyper, cache_dir=cache, progress=progress, **options
        )
    found.classifier.save(place)
    document = {"out": str(place), "bytes": place.stat().st_size, **found.document}
    if json:
        print_json(document)
        return
    print_line(
        f"{plural(document['samples'], 'sample')} of {document['labels']} of {document['classes']} classes; predicts "
        f"{plural(len(document['predicts']), 'label')}{', as often as they occur' if document['shares'] else ''}"
    )
    if document["blend"] is not None:
        print_line(_blend_line(document["blend"]))
    if document["unknown"]:
        names = ", ".join(document["unknown"][:5])
        print_line(f"note: the federation has no sample of {names}: never predicted")
    if document["tests"]:
        print_line(
            f"accuracy on {plural(document['tests'], 'test sample')}: {document['before']:.2%} before, "
            f"{document['after']:.2%} after"
        )
    print_line(f"wrote {place} ({readable_bytes(document['bytes'])})")


def _blend_line(blend: dict[str, Any]) -> str:
    if blend["tau"] is None:
        return f"own class means have the weight {blend['mean_beta']:.2f}"
    if blend["tau"] == "inf":
        return "leave-one-out keeps the federation's class means: one's own would not be nearer"
    return (
        f"leave-one-out takes the federation's class means for {blend['tau']:g} samples each: own means have the "
        f"weight {blend['mean_beta']:.2f} on average"
    )


# ---------------------------------------------------------------------------------------------- all clients


def _all(config: Any, betas: list[str], held_out: float, *, cache: Path | None, json: bool) -> None:
    from fedmoments.jobs.personal_simulation import simulate_personalisation

    command = shlex.join(["fedmoments", *sys.argv[1:]])
    with progress_bar("simulating") as progress:
        document = simulate_personalisation(
            config, betas=betas, held_out=held_out, command=command, cache_dir=cache, progress=progress
        )
    if json:
        print_json(document)
        return
    rows = document["personal"]["rows"]
    several = len({(row["clients"], row["split"]) for row in rows}) > 1
    columns = ["head", "variant", *(["clients", "split"] if several else []), "accuracy", "±", "mean of clients"]
    columns += ["gain", "lose"]
    print_table(columns, [_cells(row, several=several) for row in rows], right=columns[-5:])
    for reason in dict.fromkeys(f"{row['head']}, {row['variant']}: {row['reason']}" for row in rows if row["reason"]):
        print_line(f"note: {reason}")
    first = rows[0]["seeds"][0]
    dealt = f"{held_out:g} of their own samples" if held_out else "test samples in proportion to their own"
    print_line(
        f"{plural(first['tested_clients'], 'client')} tested on {dealt}, {plural(first['tests'], 'sample')} in the "
        f"first federation; {plural(config.seeds, 'seed')}. 'gain' and 'lose' are shares of clients, against 'global'"
    )


def _cells(row: dict[str, Any], *, several: bool) -> list[str]:
    shares = [row[name] for name in ("accuracy", "spread", "client_accuracy", "gains", "losses")]
    texts = [
        "–" if share is None else f"{100 * share:.{digits}f}"
        for share, digits in zip(shares, (2, 2, 2, 0, 0), strict=True)
    ]
    where = [str(row["clients"] or "–"), row["split"]] if several else []
    return [row["head"], row["variant"], *where, *texts]
