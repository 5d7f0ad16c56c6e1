"""``fedmoments probe``: how good a tuned encoder's features are, and heads that are fitted anew on them."""

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
    results_folder,
)
from fedmoments.cli.output import plural, print_json, print_line, print_table, progress_bar
from fedmoments.errors import InputError

__all__ = ["probe_command"]

EXAMPLE = example(
    "fedmoments measure runs/demo/digits.npz --head fedncm --client everybody --out all.stats",
    "fedmoments fit all.stats --head fedncm --out fedncm.classifier",
    "fedmoments probe runs/demo/digits.npz --head fedncm.classifier --heads fed3r,gh-lda --out runs/refit",
)


def probe_command(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command("probe", cls=PlainCommand, short_help="Measure features by closed-form heads.", epilog=EXAMPLE)(_probe)


def _probe(
    data: Annotated[str, typer.Argument(help="Data, as in 'fedmoments simulate': digits, folder:PATH, npz:PATH …")],
    model: Annotated[
        Path | None,
        typer.Argument(help="Folder of a tuned model (RUN/tuned/NAME of 'fedmoments tune'), or its encoder file."),
    ] = None,
    *,
    encoder: Annotated[
        str | None, typer.Option(help="The encoder to measure: tuned:FILE, or any other (see 'fedmoments encoders').")
    ] = None,
    base: Annotated[
        str | None, typer.Option(help="The encoder to compare with; by default the one that was tuned.")
    ] = None,
    head: Annotated[
        Path | None, typer.Option(help="Classifier that was trained; by default head.safetensors of the folder.")
    ] = None,
    heads: Annotated[str, typer.Option(help="Heads to fit in closed form, separated by commas.")] = "fed3r",
    settings: Set = None,
    clients: Annotated[
        int | None, typer.Option(help="Number of clients, which only heads from client means depend on.")
    ] = None,
    split: Annotated[str | None, typer.Option(help="dirichlet:0.1, iid, … (see 'fedmoments split --help').")] = None,
    seed: Annotated[int | None, typer.Option(help="Every random choice follows from it.")] = None,
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
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder for the refitted heads.")] = None,
    json: Json = False,
) -> None:
    """Measure a tuned encoder by ridge regression on its features, before and after, and keep the refitted heads.

    Ridge regression has one solution, whatever head was trained and however clients hold the samples: its accuracy says
    how good the features are. Where it is better than the trained head, take it instead.
    """
    from fedmoments.jobs import JobConfig
    from fedmoments.jobs.probe import run_probe

    typed: dict[str, Any] = {
        "data": data,
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
        "heads": listed(heads, str, "--heads"),
        "hyper": hyper_of_heads(settings) if settings else None,
        "clients": None if clients is None else [clients],
        "splits": None if split is None else [split],
        "seed": seed,
    }
    if out is not None:
        results_folder(out)
    tuned = _tuned(model, encoder, head, base)
    config = JobConfig().changed({name: each for name, each in typed.items() if each is not None}, "the command line")
    options: dict[str, Any] = {"dealt": clients is not None or split is not None, "base": base, "out": out}
    command = shlex.join(["fedmoments", *sys.argv[1:]])
    with progress_bar("probing") as progress:
        found = run_probe(config, tuned, command=command, cache_dir=cache, progress=progress, **options)
    if json:
        print_json(found.document)
        return
    _show(found.document)


def _tuned(model: Path | None, encoder: str | None, head: Path | None, base: str | None) -> Any:
    """Return what was tuned, from the folder of a model and from what is named beside it."""
    from fedmoments.jobs.probe import Tuned, find_tuned

    found = find_tuned(model) if model is not None else Tuned()
    if model is None and encoder is None and head is None:
        raise InputError(
            "say what was tuned: the folder of a tuned model, --encoder tuned:FILE, or --head FILE where it was a head"
        )
    if found.encoder is not None and encoder is not None:
        raise InputError(f"{model} holds the tuned encoder already: leave --encoder out, or the folder")
    if base is not None and found.encoder is None and encoder is None:
        raise InputError("--base is what another encoder is compared with, but only a head was tuned: add --encoder")
    return Tuned(found.encoder or encoder, found.head if head is None else existing_file(head))


def _show(document: dict[str, Any]) -> None:
    found, data = document["probe"], document["data"]
    base, encoder = found["base"]["name"], found["encoder"]["name"]
    if found["tuned"]:
        print_line(f"before: {base}, d = {found['base']['dim']}; after: {encoder}, d = {found['encoder']['dim']}")
    else:
        print_line(f"the encoder was not tuned: the trained head and refits share the features of {encoder}")
    columns = ["head", "before", "after", "gain"] if found["tuned"] else ["head", "accuracy"]
    names = ("before", "after", "gain") if found["tuned"] else ("after",)
    rows = [[row["head"], *(_percent(row[name], signed=name == "gain") for name in names)] for row in found["rows"]]
    if found["softmax"] is not None:
        trained = {"after": _percent(found["softmax"])}
        rows.append(["trained head", *(trained.get(name, "–") for name in names)])
    print_table(columns, rows, right=columns[1:])
    for row in found["rows"]:
        if row["reason"]:
            print_line(f"note: {row['head']}: {row['reason']}")
    split = found["split"]
    held = (
        "any split gives the same" if split is None else f"{split['scheme']} over {plural(split['clients'], 'client')}"
    )
    print_line(f"{data['train']:,} samples to fit from ({held}), {data['test']:,} to test on")
    if document["files"]:
        print_line(f"wrote {', '.join(document['files'])}")


def _percent(share: float | None, *, signed: bool = False) -> str:
    return "–" if share is None else f"{100 * share:{'+' if signed else ''}.2f}"
