"""What commands have in common: options, lists and hyper-parameters as people type them, files that must be there."""

import re
import types
import typing
from collections.abc import Callable, Iterable
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from fedmoments.errors import InputError, UnknownNameError

__all__ = [
    "BatchSize",
    "Cache",
    "ClientColumn",
    "Device",
    "DomainColumn",
    "Domains",
    "Encoder",
    "ImageColumn",
    "Json",
    "LabelColumn",
    "Payload",
    "Pooling",
    "Runtime",
    "Set",
    "Size",
    "Strict",
    "TestFile",
    "TestShare",
    "TextColumn",
    "Threads",
    "example",
    "existing_file",
    "hyper_of_heads",
    "hyper_parameters",
    "listed",
    "results_folder",
    "writable_place",
]

T = TypeVar("T", int, float, str)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout, and nothing else.")]
Encoder = Annotated[
    str | None, typer.Option(help="Name, path or id: see 'fedmoments encoders'. By default, the data's kind decides.")
]
Size = Annotated[int | None, typer.Option(help="Pixels of the side of an image, after preprocessing.")]
Pooling = Annotated[str | None, typer.Option(help="cls or mean, for transformers.")]
Runtime = Annotated[str | None, typer.Option(help="torch or onnx (exported once, about 3 times faster).")]
Device = Annotated[str | None, typer.Option(help="Where torch computes: cpu, cuda, mps …")]
Threads = Annotated[int | None, typer.Option(help="Threads of the encoder.")]
BatchSize = Annotated[int | None, typer.Option(help="Samples that are encoded at once.")]
TextColumn = Annotated[str | None, typer.Option(help="Column of sentences.")]
ImageColumn = Annotated[str | None, typer.Option(help="Column of images or of paths to them.")]
LabelColumn = Annotated[str | None, typer.Option(help="Column of labels.")]
ClientColumn = Annotated[str | None, typer.Option(help="Column of clients, for the split 'id'.")]
DomainColumn = Annotated[str | None, typer.Option(help="Column of domains, for the split 'domain'.")]
Domains = Annotated[bool | None, typer.Option("--domains", help="Folders are domain/class, not class.")]
TestFile = Annotated[str | None, typer.Option(help="A second file, to test on.")]
TestShare = Annotated[float | None, typer.Option(help="Share to test on, of data that come in one part.")]
Strict = Annotated[bool | None, typer.Option("--strict", help="Stop at the first sample that is unreadable.")]
Payload = Annotated[
    str | None,
    typer.Option(
        "--budget",
        metavar="BYTES",
        help="means, means/8, gram, 50KB …: bytes that a client's means and scatter sketch may take, for heads on "
        "sketches; the client picks precision, projection and rank (see docs/sketch.md).",
    ),
]
Cache = Annotated[Path | None, typer.Option(help="Folder of the feature cache; the user's by default.")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="HEAD.NAME=VALUE", help="A hyper-parameter of a head; may be repeated."),
]


def example(*lines: str) -> str:
    """Return the end of a command's help: lines that work as they stand, once ``fedmoments demo`` has run.

    Examples
    --------
    >>> print(example("fedmoments heads").replace(chr(8), "(unwrapped)"))
    (unwrapped)
    Example, after 'fedmoments demo':
      fedmoments heads
    """
    return "\n".join(["\b", "Example, after 'fedmoments demo':", *(f"  {line}" for line in lines)])


def listed(text: str, kind: type[T], option: str) -> list[T]:
    """Return the values of a list that was typed with commas; commas inside parentheses do not separate.

    Examples
    --------
    >>> listed("10,100", int, "--clients")
    [10, 100]
    >>> listed("iid,flower:F(a=1,b=2)", str, "--split")
    ['iid', 'flower:F(a=1,b=2)']
    """
    make: Callable[[str], T] = kind
    parts = [part.strip() for part in re.split(r",(?![^(]*\))", text) if part.strip()]
    try:
        values = [make(part) for part in parts]
    except ValueError:
        what = {int: "whole numbers", float: "numbers"}.get(kind, "values")
        raise InputError(f"{option} takes {what}, separated by commas, but '{text}' arrived") from None
    if not values:
        raise InputError(f"{option} takes at least one value, but '{text}' arrived")
    return values


def existing_file(path: Path) -> Path:
    """Return the path of a file that is there and can be opened, or say what is wrong with it."""
    if path.is_dir():
        raise InputError(f"{path} is a directory, but a file was asked for")
    if not path.exists():
        raise InputError(f"{path} does not exist")
    with path.open("rb"):
        return path


def writable_place(path: Path) -> Path:
    """Return the path of a file that can be made there, or say before any work is done why not."""
    if path.is_dir():
        raise InputError(f"{path} is a directory, but the name of a file to write was asked for")
    if not path.parent.is_dir():
        raise InputError(f"{path} cannot be written: there is no directory {path.parent}")
    return path


def results_folder(path: Path) -> Path:
    """Return a folder for results that is there or can be made, or say before any work is done why not."""
    above = next(place for place in (path, *path.parents) if place.exists())
    if not above.is_dir():
        raise InputError(f"{path} cannot be the folder of the results: {above} is a file")
    return path


def hyper_of_heads(pairs: Iterable[str], *, baselines: bool = False) -> dict[str, dict[str, Any]]:
    """Return hyper-parameters by head, and by baseline where those may be named, from ``head.key=value`` texts.

    Examples
    --------
    >>> hyper_of_heads(["gh-dlr-qda.rank=4"])
    {'gh-dlr-qda': {'rank': 4}}
    """
    found: dict[str, dict[str, Any]] = {}
    for pair in pairs:
        head, dot, rest = pair.partition(".")
        if not dot or "=" in head:
            raise InputError(f"--set is typed as HEAD.NAME=VALUE here, but '{pair}' arrived")
        found.setdefault(head, {}).update(hyper_parameters(head, [rest], baselines=baselines))
    return found


def hyper_parameters(head: str, pairs: Iterable[str], *, baselines: bool = False) -> dict[str, Any]:
    """Return hyper-parameters of a head from ``key=value`` texts, each in the type that the head declares.

    Parameters
    ----------
    head
        Its name.
    pairs
        What was typed.
    baselines
        Whether it may be a baseline.

    Examples
    --------
    >>> hyper_parameters("gh-dlr-qda", ["rank=4", "shrinkage=relative:0.5"])
    {'rank': 4, 'shrinkage': 'relative:0.5'}
    """
    declared = _declared(head, baselines=baselines)
    kinds = typing.get_type_hints(declared)
    allowed = [field.name for field in fields(declared)]
    found: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = (part.strip() for part in pair.partition("="))
        if not equals or not name or not text:
            raise InputError(f"a hyper-parameter is typed as name=value, but '{pair}' arrived")
        if name not in allowed:
            takes = ", ".join(allowed) or "none"
            raise InputError(f"head '{head}' has no hyper-parameter '{name}': it takes {takes}")
        found[name] = _typed(head, name, text, kinds[name])
    return found


def _declared(name: str, *, baselines: bool) -> type[Any]:
    """Return the class whose fields are the hyper-parameters."""
    from fedmoments.baselines import baselines as all_baselines
    from fedmoments.heads import presets
    from fedmoments.simulation.methods import require_head

    table, more = presets(), all_baselines()
    if name in table:
        return table[name].head
    if not baselines:
        require_head(name)
    elif name in more:
        return more[name].head
    raise UnknownNameError("head", name, [*table, *more] if baselines else table)


def _typed(head: str, name: str, text: str, kind: Any) -> Any:
    """Return a text as the first of the types that a field may have, narrowest first."""
    union = isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union
    choices = typing.get_args(kind) if union else (kind,)
    words = {"true": True, "yes": True, "false": False, "no": False}
    if bool in choices and text.lower() in words:
        return words[text.lower()]
    for number in (int, float):
        if number in choices:
            try:
                return number(text)
            except ValueError:
                continue
    if str in choices or not {bool, int, float}.intersection(choices):
        return text
    wanted = " or ".join(
        {bool: "true or false", int: "a whole number", float: "a number"}.get(c, str(c)) for c in choices
    )
    raise InputError(f"hyper-parameter '{name}' of head '{head}' must be {wanted}, but '{text}' arrived")
