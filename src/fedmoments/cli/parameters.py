"""Arguments and options of a command line, each made from what a field or a function's parameter says of itself."""

import typing
from collections.abc import Mapping, Sequence
from dataclasses import MISSING
from pathlib import Path
from typing import Any

import click

from fedmoments.cli.given import Leaf, one_of
from fedmoments.cli.texts import JOINED, KINDS, REPEATED, ListOf, written

__all__ = ["LAST", "OptionOf", "Positional", "parameter_of"]

#: Place in the first list of what has none.
LAST = 100

_SCALARS: Mapping[Any, Any] = {
    str: click.STRING,
    int: click.INT,
    float: click.FLOAT,
    Path: click.Path(path_type=Path),
}


class Positional(click.Argument):
    """An argument that explains itself, whichever release of click it meets."""

    def __init__(self, decls: Sequence[str], explanation: str, **attributes: Any) -> None:
        super().__init__(decls, **attributes)
        self.help = self.explanation = explanation


class OptionOf(click.Option):
    """An option that knows under which heading it stands, and where, and with which entry points packages add values.

    The help names these as the packages' own records do: it loads nobody's code, and does not fail with it.
    """

    def __init__(self, decls: Sequence[str], *, group: str, rank: int, entries: str = "", **attributes: Any) -> None:
        super().__init__(decls, **attributes)
        self.group, self.rank, self.entries = group, rank, entries

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Return how it is typed and what it does, with what installed packages add to it."""
        record = super().get_help_record(ctx)
        added = _installed(self.entries) if self.entries else []
        return (record[0], f"{record[1]} Installed packages add: {', '.join(added)}.") if record and added else record


def _installed(group: str) -> list[str]:
    from importlib.metadata import entry_points  # slow, and for the help alone

    return sorted({entry.name for entry in entry_points(group=group)})


def parameter_of(key: str, leaf: Leaf, *, of_settings: bool) -> click.Parameter:
    """Return an argument or an option.

    Parameters
    ----------
    key
        Name under which the command gets its value.
    leaf
        What it says of itself.
    of_settings
        Whether it is a field of settings: then its value is None unless it was typed.
    """
    required = leaf.default is MISSING and not of_settings and leaf.option.kind not in JOINED
    unset = of_settings or required or leaf.default in (None, MISSING)
    attributes = {"type": _type(leaf), "required": required, **({} if unset else {"default": leaf.default})}
    return (_argument if leaf.option.argument else _flag if one_of(leaf.kind) is bool else _option)(
        key, leaf, attributes
    )


def _argument(key: str, leaf: Leaf, attributes: dict[str, Any]) -> click.Parameter:
    several = _is_several(leaf)
    metavar = leaf.option.metavar or leaf.path[-1].upper()
    if not attributes["required"]:
        metavar = f"[{metavar}]"
    if several and not metavar.endswith("..."):
        metavar = f"{metavar}..."
    return Positional([key], leaf.option.help, nargs=-1 if several else 1, metavar=metavar, **attributes)


def _flag(key: str, leaf: Leaf, attributes: dict[str, Any]) -> click.Parameter:
    names = leaf.option.names or (f"{leaf.name}/--no-{leaf.name.removeprefix('--')}",)
    return _make_option([*names, key], leaf, is_flag=True, default=attributes.get("default"))


def _option(key: str, leaf: Leaf, attributes: dict[str, Any]) -> click.Parameter:
    names = leaf.option.names if leaf.name in leaf.option.names else (leaf.name, *leaf.option.names)
    if _is_several(leaf):
        attributes = {"type": attributes["type"], "required": attributes["required"], "multiple": True}
    if leaf.option.bare is not None:
        attributes = {**attributes, "is_flag": False, "flag_value": leaf.option.bare}
    return _make_option([*names, key], leaf, metavar=leaf.option.metavar or None, **attributes)


def _make_option(decls: Sequence[str], leaf: Leaf, **attributes: Any) -> OptionOf:
    said = leaf.option
    group = "" if said.common else said.group
    return OptionOf(
        decls, group=group, rank=said.common or LAST, entries=said.entries, help=_help_text(leaf), **attributes
    )


def _is_several(leaf: Leaf) -> bool:
    return typing.get_origin(one_of(leaf.kind)) is list or leaf.option.kind in REPEATED


def _type(leaf: Leaf) -> Any:
    if leaf.option.kind in KINDS:
        return KINDS[leaf.option.kind]
    kind = one_of(leaf.kind)
    if typing.get_origin(kind) is tuple:
        return ListOf(typing.get_args(kind)[0])
    if typing.get_origin(kind) is list:
        kind = typing.get_args(kind)[0]
    if leaf.option.least is not None:
        return click.IntRange(min=leaf.option.least)
    return _SCALARS.get(kind)


def _help_text(leaf: Leaf) -> str:
    """Return what the help says: the sentence, and the default."""
    default, value = leaf.option.shown, leaf.default
    if not default and not isinstance(value, bool) and value is not MISSING and value not in (None, "", ()):
        default = written(value)
    return f"{leaf.option.help} [default: {default}]" if default else leaf.option.help
