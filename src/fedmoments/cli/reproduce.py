"""``fedmoments reproduce``: a table or figure of a paper, run again, and shown beside the paper's numbers."""

import contextlib
import shlex
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
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
    read = cache(lambda: read_data(world.config))
    more = {"pairs": [_pair(each) for each in asked["settings"]], "read": read}
    _require_all([each for each in chosen if each.name in what], read, world)
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
    _tell_end(documents, [*files, *index], index, json=json, one=len(chosen) == 1)
    if any(disagrees(document) for document in documents):
        raise typer.Exit(DISAGREES)


def _tell_end(documents: list[Any], files: list[Path], index: list[Path], *, json: bool, one: bool) -> None:
    if json:
        print_json(documents[0] if one else documents)
    elif files:
        few = files if len(documents) == 1 else [f"{len(documents)} folders", *index]
        print_line(f"wrote {', '.join(map(str, few))}")


def _one(experiment: Any, world: Any, asked: Mapping[str, Any], *, named: bool) -> Any:
    """Return the document of an experiment, or None when it was not named and cannot be run, which is told."""
    from fedmoments.reproduction import Request, run_experiment

    seeds = asked["seeds"] or experiment.seeds
    block = next((block for block in experiment.paper if block.name == asked["same_as"]), None)
    block = None if experiment.is_free else block
    command = shlex.join(["fedmoments", *sys.argv[1:]])
    try:
        _require(experiment, asked["read"], world)
        changes = _changes({**experiment.settings, **(block.settings if block else {})}, asked["pairs"])
        request = Request(block.name if block else None, changes, command)
        with progress_bar(experiment.name) as progress:
            # what was encoded is shared by all; what was told and counted is each one's own
            own = replace(world, seeds=seeds, progress=progress, deviations=[], memories={})
            with _blamed(changes):
                return run_experiment(experiment, own, request)
    except FedMomentsError as error:
        if named:
            raise
        sys.stderr.write(f"skipped {experiment.name}: {' '.join(str(error).split())}\n")
        return None


def _require_all(named: Iterable[Any], read: Callable[[], Any], world: Any) -> None:
    """Refuse what cannot be run before anything is."""
    for each in named:
        _require(each, read, world)


def _require(experiment: Any, read: Callable[[], Any], world: Any) -> None:
    """Refuse an experiment that these data, or what is installed, do not allow."""
    from fedmoments.reproduction.availability import obstacle

    if not experiment.is_free and (why := obstacle(experiment, read(), world.encoder_names)):
        raise InputError(f"{experiment.name} cannot be run: {why}")


@contextlib.contextmanager
def _blamed(changes: Mapping[str, Any]) -> Iterator[None]:
    """Turn what a changed setting broke into a sentence; without changes an error is ours, and is shown whole."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        if not changes or isinstance(error, FedMomentsError):
            raise
        typed = ", ".join(f"{name} = {value}" for name, value in changes.items())
        raise InputError(
            f"the experiment cannot be run with {typed}, as --set asks ({type(error).__name__}: {error}); leave it "
            "out, or set it as the file of the experiment has it"
        ) from error


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
    """Return settings that replace an experiment's; one value is a list of one where the engine takes a list."""
    from fedmoments.reproduction.engines import LISTS

    found: dict[str, Any] = {}
    for path, value in pairs:
        before = {**settings, **found}.get(path[0])
        if before is None and path[0] in LISTS:
            before = []
        found[path[0]] = _within(before, path, 1, value)
    return found


def _within(before: Any, path: list[str], depth: int, value: Any) -> Any:
    name = ".".join(path[:depth])
    if depth < len(path):
        if before is not None and not isinstance(before, Mapping):
            raise InputError(f"--set {'.'.join(path)}: '{name}' is no table, but {before!r}")
        table = dict(before or {})
        return {**table, path[depth]: _within(table.get(path[depth]), path, depth + 1, value)}
    if isinstance(before, list | tuple):
        made = value if isinstance(value, list) else [value]
        if before and all(isinstance(each, str) for each in before):
            made = [each if isinstance(each, str) else str(each) for each in made]
        if before and made and {_kind(each) for each in made} != {_kind(each) for each in before}:
            raise InputError(f"--set {name} holds {_kind(before[0])} such as {before[0]!r}, but {value!r} arrived")
        return made
    alike = _kind(value) == _kind(before) or (depth > 1 and not isinstance(before, Mapping))
    if before is not None and not alike:  # a number within a table may be a word such as auto
        raise InputError(f"--set {name} is {_kind(before)} such as {before!r}, but {value!r} arrived")
    return value


def _kind(value: Any) -> str:
    """Return what a value is, in words: settings are replaced by what is of their kind."""
    kinds = ((bool, "true or false"), (int | float, "a number"), (str, "a word"), (Mapping, "a table"))
    return next((words for kind, words in kinds if isinstance(value, kind)), "a list")
