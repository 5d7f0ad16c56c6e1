"""``fedmoments reproduce``: a table or figure of a paper, run again, and shown beside the paper's numbers."""

import contextlib
import shlex
import sys
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import typer

from fedmoments.cli.command import PlainCommand
from fedmoments.cli.options import (
    BatchSize,
    ClientColumn,
    Device,
    DomainColumn,
    Domains,
    ImageColumn,
    Json,
    LabelColumn,
    Pooling,
    Runtime,
    Size,
    Strict,
    TestFile,
    TestShare,
    TextColumn,
    Threads,
    example,
    listed,
    results_folder,
)
from fedmoments.cli.output import print_json, print_line, progress_bar
from fedmoments.cli.reproduction_tables import listing, show_document, show_line, show_listing
from fedmoments.errors import FedMomentsError, InputError, UnknownNameError

__all__ = ["reproduce_command"]

EXAMPLE = example(
    "fedmoments reproduce list",
    "fedmoments reproduce fedcof/table3 --data runs/demo/digits.npz --seeds 2 --out runs/reproduce",
)
#: Exit code when numbers that need no data are not the paper's.
DISAGREES = 3
#: More experiments than this are printed in a line each.
MOST_TABLES = 3


def reproduce_command(app: typer.Typer) -> None:
    """Add the command to the app."""
    words = "Reproduce tables and figures of the papers."
    app.command("reproduce", cls=PlainCommand, short_help=words, epilog=EXAMPLE)(_reproduce)


def _reproduce(
    what: Annotated[
        list[str],
        typer.Argument(
            metavar="WHAT...",
            help="list; or names such as fedcof/table3, patterns such as 'fedcof/*', 'free' for all that need no data, "
            "or 'all'.",
        ),
    ],
    *,
    data: Annotated[
        str | None,
        typer.Option(help="Data, as in 'fedmoments simulate': digits (the default), folder:PATH, csv:PATH, npz:PATH …"),
    ] = None,
    encoder: Annotated[
        str | None,
        typer.Option(help="Names, paths or ids, separated by commas: see 'fedmoments encoders'."),
    ] = None,
    same_as: Annotated[
        str | None,
        typer.Option(
            "--as",
            metavar="PART",
            help="These are the paper's own data of this part of its table, such as 'CIFAR-100, SqueezeNet': numbers "
            "are then compared one by one. Without it, data stand in for the paper's.",
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Change a setting of the experiment: clients=10,50, rounds=20, hyper.fedcof.shrinkage=automatic; may "
            "be repeated.",
        ),
    ] = None,
    seeds: Annotated[int | None, typer.Option(help="How many seeds; as many as in the paper by default.")] = None,
    seed: Annotated[int | None, typer.Option(help="The first seed; every random choice follows from it.")] = None,
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
    memory_limit: Annotated[
        float | None, typer.Option(metavar="GB", help="Most memory for the statistics of a head.")
    ] = None,
    cache_folder: Annotated[
        Path | None, typer.Option("--cache", help="Folder of the caches; the user's by default.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="Folder for results: DATA/NAME/ with results.json, measurements.csv, report.html, summary.md and "
            "figures, and index.html over all that it holds.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Reproduce tables and figures of the papers, and show ours beside theirs, with the verdict on every claim.

    Exit code 3: numbers that need no data are not those of the paper. Claims that fail do not change the exit code.
    """
    typed: dict[str, Any] = {
        "data": data,
        "seed": seed,
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
        "memory_limit": memory_limit,
    }
    from fedmoments.jobs import JobConfig
    from fedmoments.reproduction.world import World

    config = JobConfig().changed({name: each for name, each in typed.items() if each is not None}, "the command line")
    names = tuple(listed(encoder, str, "--encoder")) if encoder else ()
    if seeds is not None and seeds < 1:
        raise InputError(f"--seeds must be 1 or more, but {seeds} arrived")
    config = replace(config, encoder=names[0] if len(names) == 1 else None)
    world = World(config, encoders=names if len(names) > 1 else (), cache_dir=cache_folder)
    if what == ["list"]:
        _list(world, given=data is not None, json=json)
        return
    if "list" in what:
        raise InputError("'list' stands alone: fedmoments reproduce list")
    if out is not None:
        results_folder(out)
    _run(what, world, {"seeds": seeds, "same_as": same_as, "settings": settings or []}, out=out, json=json)


def _list(world: Any, *, given: bool, json: bool) -> None:
    from fedmoments.jobs.encoding import read_data

    found = listing(read_data(world.config) if given else None, world.encoder_names)
    if json:
        print_json(found)
    else:
        show_listing(found)


def _run(what: list[str], world: Any, asked: Mapping[str, Any], *, out: Path | None, json: bool) -> None:
    """Run experiments one after the other; those that were not named are skipped when they cannot be run."""
    from fedmoments.jobs.encoding import read_data
    from fedmoments.reproduction import find
    from fedmoments.reproduction.outputs import plain_document, write_index, write_outputs
    from fedmoments.reproduction.pages.answer import disagrees

    chosen = find(what)
    _require_part(chosen, asked["same_as"], what)
    more = {"pairs": [_pair(each) for each in asked["settings"]], "read": cache(lambda: read_data(world.config))}
    documents, files = [], []
    try:
        for each in chosen:
            document = _one(each, world, {**asked, **more}, named=each.name in what)
            if document is None:
                continue
            documents.append(plain_document(document))
            written = write_outputs(document, out) if out is not None else []
            files += written
            if not json:
                if 1 < len(documents) <= len(chosen) <= MOST_TABLES:
                    print_line()
                (show_document if len(chosen) <= MOST_TABLES else show_line)(documents[-1])
    except KeyboardInterrupt:
        sys.stderr.write("interrupted; what was measured is kept, the same command goes on from there\n")
        raise
    if not documents:
        raise InputError(f"nothing of {', '.join(what)} can be run with {world.config.data}; see 'reproduce list'")
    index = write_index(out) if out is not None else []
    if json:
        print_json(documents[0] if len(chosen) == 1 else documents)
    elif files:
        few = [*files, *index] if len(documents) == 1 else [f"{len(documents)} folders", *index]
        print_line(f"wrote {', '.join(map(str, few))}")
    if any(disagrees(document) for document in documents):
        raise typer.Exit(DISAGREES)


def _one(experiment: Any, world: Any, asked: Mapping[str, Any], *, named: bool) -> Any:
    """Return the document of an experiment, or None when it was not named and cannot be run, which is told."""
    from fedmoments.reproduction import Request, run_experiment
    from fedmoments.reproduction.availability import obstacle

    seeds = asked["seeds"] or experiment.seeds
    part = asked["same_as"] if asked["same_as"] in [block.name for block in experiment.paper] else None
    command = shlex.join(["fedmoments", *sys.argv[1:]])
    request = Request(None if experiment.is_free else part, _changes(experiment.settings, asked["pairs"]), command)
    try:
        if not experiment.is_free and (why := obstacle(experiment, asked["read"](), world.encoder_names)):
            raise InputError(f"{experiment.name} cannot be run: {why}")
        with progress_bar(experiment.name) as progress:
            # what was encoded is shared by all; what was told and counted is each one's own
            own = replace(world, seeds=seeds, progress=progress, deviations=[], memories={})
            return run_experiment(experiment, own, request)
    except FedMomentsError as error:
        if named:
            raise
        sys.stderr.write(f"skipped {experiment.name}: {' '.join(str(error).split())}\n")
        return None


def _require_part(chosen: Iterable[Any], part: str | None, what: list[str]) -> None:
    """Refuse a part that none of the experiments has, or that one that was named does not have."""
    if part is None:
        return
    known = {block.name for each in chosen for block in each.paper if not each.is_free}
    if part not in known:
        raise UnknownNameError(f"part of {', '.join(what)}", part, known)
    for each in chosen:
        if each.name in what and not each.is_free:
            each.block(part)


# ---------------------------------------------------------------------------------------------- settings as typed


def _pair(text: str) -> tuple[list[str], Any]:
    """Return the path of a setting, and its value."""
    name, equals, value = (part.strip() for part in text.partition("="))
    if not equals or not name or not value:
        raise InputError(f"--set is typed as NAME=VALUE here, but '{text}' arrived")
    return name.split("."), _value(value)


def _value(text: str) -> Any:
    """Return a value that was typed: as TOML has it, or a list with commas, or a word."""
    with contextlib.suppress(tomllib.TOMLDecodeError):
        return tomllib.loads(f"value = {text}")["value"]
    if "," in text and "[" not in text:
        return [_value(part) for part in listed(text, str, "--set")]
    return text


def _changes(settings: Mapping[str, Any], pairs: Iterable[tuple[list[str], Any]]) -> dict[str, Any]:
    """Return settings that replace an experiment's; one value is a list of one where the experiment has a list."""
    found: dict[str, Any] = {}
    for path, value in pairs:
        found[path[0]] = _within({**settings, **found}.get(path[0]), path[1:], value)
    return found


def _within(before: Any, path: list[str], value: Any) -> Any:
    if path:
        table = dict(before) if isinstance(before, Mapping) else {}
        return {**table, path[0]: _within(table.get(path[0]), path[1:], value)}
    several = isinstance(before, list | tuple) and not isinstance(value, list)
    return [value] if several else value
