"""``fedmoments reproduce``: a table or figure of a paper, run again, and shown beside the paper's numbers."""

import contextlib
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import click

from fedmoments.cli.generate import command, positional, typed
from fedmoments.cli.given import Given, Taken
from fedmoments.cli.options import OF_SIMULATIONS, Fresh, Json, example, typed_command
from fedmoments.cli.output import print_files, print_json, print_line, print_note, progress_bar
from fedmoments.cli.places import results_folder
from fedmoments.cli.reproduction_tables import listing, show_document, show_line, show_listing
from fedmoments.cli.texts import listed
from fedmoments.errors import FedMomentsError, InputError, UnknownNameError
from fedmoments.settings.study import StudySettings

__all__ = ["reproduce"]

EXAMPLE = example(
    "fedmoments reproduce list",
    "fedmoments reproduce fedcof/table3 --data runs/demo/digits.npz --seeds 2 --out runs/reproduce",
)
#: Exit code when numbers that need no data are not the paper's.
DISAGREES = 3
#: More experiments than this are printed in a line each.
MOST_TABLES = 3

What = Annotated[
    list[str],
    positional(
        metavar="WHAT...",
        help="list; or names such as fedcof/table3 or 'FedCOF Table 3', patterns such as 'fedcof/*', 'free' for all "
        "that need no data, or 'all'.",
    ),
]
SameAs = Annotated[
    str | None,
    typed(
        "--as",
        metavar="PART",
        help="The data are the paper's own, for this part of its table, such as 'CIFAR-100, SqueezeNet': "
        "numbers are then compared one by one. Without it, the data are treated as a substitute.",
    ),
]
Changes = Annotated[
    list[str] | None,
    typed(
        "--set",
        metavar="NAME=VALUE",
        help="Change a setting of the experiment: clients=10,50, rounds=20, hyper.fedcof.shrinkage=automatic; may "
        "be repeated.",
    ),
]
Folder = Annotated[
    Path | None,
    typed(
        "--out",
        "-o",
        help="Folder for results: DATA/NAME/ with results.json, measurements.csv, report.html, summary.md and "
        "figures, and an index.html of all of them.",
        common=4,
    ),
]


@command("reproduce", EXAMPLE)
def reproduce(
    what: What,
    study: Annotated[
        Given[StudySettings],
        Taken(
            without=(*OF_SIMULATIONS, "heads", "hyper", "clients", "splits", "seeds"),
            help={"encoder": "Names, paths or ids, separated by commas: see 'fedmoments encoders'."},
            file=True,
        ),
    ],
    *,
    same_as: SameAs = None,
    settings: Changes = None,
    seeds: Annotated[
        int | None, typed(help="How many seeds; by default as many as in the paper.", metavar="N", common=3)
    ] = None,
    out: Folder = None,
    fresh: Fresh = False,
    json: Json = False,
) -> None:
    """Reproduce tables and figures of the papers, and show ours beside theirs, with a verdict on every claim.

    Exit code 3: numbers that need no data differ from the paper's. Claims that fail do not change the exit code.
    """
    if seeds is not None and seeds < 1:
        raise InputError(f"--seeds must be 1 or more, but {seeds} arrived")
    built = study.build()
    world = _world(built, fresh=fresh)
    if what == ["list"]:
        _list(world, given=study.base is not None or "data" in study.values, json=json)
        return
    if "list" in what:
        raise InputError("'list' stands alone: fedmoments reproduce list")
    results_folder(out)
    from fedmoments.study.crew import crew_of

    with crew_of(built.jobs, built.cluster) as crew:
        asked = {"seeds": seeds, "same_as": same_as, "settings": settings or []}
        _run(what, replace(world, crew=crew), asked, out=out, json=json)


def _world(study: StudySettings, *, fresh: bool) -> Any:
    """Return where experiments are run: these data, behind one encoder or several."""
    from fedmoments.study.papers.world import World

    names = tuple(listed(study.encoder, str, "--encoder")) if study.encoder else ()
    own = replace(study, encoder=names[0] if len(names) == 1 else None, cache=None)
    return World(own, encoders=names if len(names) > 1 else (), cache_dir=study.cache, fresh=fresh)


def _list(world: Any, *, given: bool, json: bool) -> None:
    from fedmoments.samples.reading import read_data

    experiments = listing(read_data(world.config) if given else None, world.encoder_names)
    (print_json if json else show_listing)(experiments)


def _run(what: list[str], world: Any, asked: Mapping[str, Any], *, out: Path | None, json: bool) -> None:
    """Run experiments one after the other; those that were not named are skipped when they cannot be run."""
    from fedmoments.samples.reading import read_data
    from fedmoments.study.papers import find
    from fedmoments.study.papers.outputs import plain_document, write_index, write_outputs
    from fedmoments.study.papers.pages.answer import disagrees

    chosen = find(what)
    _require_part(chosen, asked["same_as"], what)
    read = cache(lambda: read_data(world.config))
    more = {"pairs": [_pair(text) for text in asked["settings"]], "read": read}
    _require_named(chosen, what, read, world)
    documents, files = [], []
    with _interruptible():
        for experiment in chosen:
            document = _one(experiment, world, {**asked, **more}, named=experiment.name in what)
            if document is not None:
                documents.append(plain_document(document))
                files += write_outputs(document, out) if out is not None else []
                if not json:
                    _show_newest(documents, len(chosen))
    if not documents:
        raise InputError(f"nothing of {', '.join(what)} can be run with {world.config.data}; see 'reproduce list'")
    index = write_index(out) if out is not None else []
    _tell_end(documents, [*files, *index], index, json=json, one=len(chosen) == 1)
    if any(map(disagrees, documents)):
        raise click.exceptions.Exit(DISAGREES)


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Say, where somebody interrupts, that nothing is lost."""
    try:
        yield
    except KeyboardInterrupt:
        print_note("interrupted; what was measured is kept, the same command continues from there")
        raise


def _show_newest(documents: list[Any], chosen: int) -> None:
    if 1 < len(documents) <= chosen <= MOST_TABLES:
        print_line()
    (show_document if chosen <= MOST_TABLES else show_line)(documents[-1])


def _tell_end(documents: list[Any], files: list[Path], index: list[Path], *, json: bool, one: bool) -> None:
    if json:
        print_json(documents[0] if one else documents)
    elif files:
        print_files(files if len(documents) == 1 else [f"{len(documents)} folders", *index])


def _one(experiment: Any, world: Any, asked: Mapping[str, Any], *, named: bool) -> Any:
    """Return the document of an experiment, or None when it was not named and cannot be run."""
    from fedmoments.study.papers import Request, run_experiment

    seeds = asked["seeds"] or experiment.seeds
    block = next((block for block in experiment.paper if block.name == asked["same_as"]), None)
    block = None if experiment.is_free else block
    try:
        _require(experiment, asked["read"], world)
        changes = _changes({**experiment.settings, **(block.settings if block else {})}, asked["pairs"])
        request = Request(block.name if block else None, changes, typed_command())
        with progress_bar(experiment.name) as progress:
            # encoded samples are shared by all experiments; deviations and counts are not
            own = replace(world, seeds=seeds, progress=progress, deviations=[], memories={})
            with _blamed(changes):
                return run_experiment(experiment, own, request)
    except FedMomentsError as error:
        if named:
            raise
        print_note(f"skipped {experiment.name}: {error}")
        return None


def _require(experiment: Any, read: Callable[[], Any], world: Any) -> None:
    """Refuse an experiment that these data, or what is installed, do not allow."""
    from fedmoments.study.papers.library import obstacle

    if not experiment.is_free and (why := obstacle(experiment, read(), world.encoder_names)):
        raise InputError(f"{experiment.name} cannot be run: {why}")


def _require_named(chosen: Iterable[Any], what: list[str], read: Callable[[], Any], world: Any) -> None:
    """Refuse an experiment that was named and cannot be run, before any is."""
    for experiment in chosen:
        if experiment.name in what:
            _require(experiment, read, world)


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
    known = {block.name for experiment in chosen for block in experiment.paper if not experiment.is_free}
    if part not in known:
        raise UnknownNameError(f"part of {', '.join(what)}", part, known)
    for experiment in chosen:
        if experiment.name in what and not experiment.is_free:
            experiment.block(part)


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
    from fedmoments.study.papers.engines import LISTS

    changes: dict[str, Any] = {}
    for path, value in pairs:
        before = {**settings, **changes}.get(path[0])
        if before is None and path[0] in LISTS:
            before = []
        changes[path[0]] = _within(before, path, 1, value)
    return changes


def _within(before: Any, path: list[str], depth: int, value: Any) -> Any:
    name = ".".join(path[:depth])
    if depth < len(path):
        if before is not None and not isinstance(before, Mapping):
            raise InputError(f"--set {'.'.join(path)}: '{name}' is not a table, but {before!r}")
        table = dict(before or {})
        return {**table, path[depth]: _within(table.get(path[depth]), path, depth + 1, value)}
    if isinstance(before, list | tuple):
        return _as_list(before, value, name)
    alike = _kind(value) == _kind(before) or (depth > 1 and not isinstance(before, Mapping))
    if before is not None and not alike:  # a number within a table may be a word such as auto
        raise InputError(f"--set {name} is {_kind(before)} such as {before!r}, but {value!r} arrived")
    return value


def _as_list(before: Sequence[Any], value: Any, name: str) -> list[Any]:
    """Return what replaces a list: values of the kind that it holds."""
    values = value if isinstance(value, list) else [value]
    if not before or not values:
        return values
    kinds = {*map(_kind, before)}
    if kinds == {_kind("")}:
        return [*map(str, values)]
    if {*map(_kind, values)} != kinds:
        raise InputError(f"--set {name} holds {_kind(before[0])} such as {before[0]!r}, but {value!r} arrived")
    return values


def _kind(value: Any) -> str:
    """Return what a value is, in words: settings are replaced by what is of their kind."""
    kinds = ((bool, "true or false"), (int | float, "a number"), (str, "a word"), (Mapping, "a table"))
    return next((description for kind, description in kinds if isinstance(value, kind)), "a list")
