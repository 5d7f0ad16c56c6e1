"""Commands from functions: their parameters, and the fields of settings among them, become arguments and options.

A parameter that is a settings class, ``Annotated[StudySettings, Taken(…)]``, stands for one option a field; what was
typed is laid over the file that ``--config`` names, or over the defaults. ``Annotated[Given[…], Taken(…)]`` leaves that
to the command. All other parameters are ``Annotated[type, typed(…)]`` or ``Annotated[type, positional(…)]``.
"""

import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Any

import click

from fedmoments.cli.given import Given, Leaf, Taken, laid_over, leaves_of
from fedmoments.cli.parameters import LAST, OptionOf, Positional, parameter_of
from fedmoments.cli.places import existing_file
from fedmoments.cli.texts import JOINED, joined
from fedmoments.errors import FileFormatError, InputError, UnknownNameError
from fedmoments.settings.files import checked_values, read_toml
from fedmoments.settings.option import GROUPS, Option

__all__ = ["Command", "command", "positional", "typed"]

CONFIG = Option("TOML file with any of these settings; options on the command line win.", metavar="FILE")
#: Characters of the longest option beside which its help stands in the same line.
COLUMN = 30


def typed(*names: str, help: str, **more: Any) -> Option:  # noqa: A002 - what it is
    """Return what an option of a function says of itself: see :class:`~fedmoments.settings.option.Option`."""
    return Option(help, names, **more)


def positional(*, help: str, metavar: str = "") -> Option:  # noqa: A002 - what it is
    """Return what an argument of a function says of itself."""
    return Option(help, metavar=metavar, argument=True)


# ---------------------------------------------------------------------------------------------- help


class Command(click.Command):
    """A command whose help is plain text under headings: arguments, what is typed most, then one group after another.

    Parameters
    ----------
    grouped
        Whether options stand under headings; a few options need none.
    attributes
        As in :class:`click.Command`.
    """

    def __init__(self, *, grouped: bool, **attributes: Any) -> None:
        super().__init__(**attributes)
        self._grouped = grouped

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write usage, what the command does, and its parameters under headings."""
        self.format_usage(ctx, formatter)
        self.format_help_text(ctx, formatter)
        for heading, rows in self.sections(ctx):
            with formatter.section(heading):
                formatter.write_dl(rows, col_max=COLUMN)
        self.format_epilog(ctx, formatter)

    def sections(self, ctx: click.Context) -> list[tuple[str, list[tuple[str, str]]]]:
        """Return each heading of the help with its rows: how a parameter is typed, and what it does."""
        arguments = [
            (param.make_metavar(ctx), param.explanation) for param in self.params if isinstance(param, Positional)
        ]
        options = [(heading or "Options", self._rows(ctx, heading)) for heading in ("", *GROUPS)]
        return [(heading, rows) for heading, rows in (("Arguments", arguments), *options) if rows]

    def _rows(self, ctx: click.Context, heading: str) -> list[tuple[str, str]]:
        params = [param for param in self.get_params(ctx) if isinstance(param, click.Option)]
        own = [param for param in params if self._heading(param) == heading]
        own.sort(key=lambda param: param.rank if isinstance(param, OptionOf) else LAST + 1)
        return [row for param in own if (row := param.get_help_record(ctx))]

    def _heading(self, param: click.Option) -> str:
        return param.group if self._grouped and isinstance(param, OptionOf) else ""


# ---------------------------------------------------------------------------------------------- parameters


@dataclass(frozen=True)
class _Block:
    """A parameter of a function that is a settings class."""

    name: str
    cls: Any
    taken: Taken
    raw: bool  # whether the function wants what was typed, rather than settings

    @property
    def leaves(self) -> dict[str, Leaf]:
        return {"__".join((self.name, *leaf.path)): leaf for leaf in leaves_of(self.cls, self.taken)}

    def given(self, values: dict[str, Any], base: Any, table: Mapping[str, Any]) -> Given[Any]:
        leaves, nested = self.leaves, dict[str, Any]()
        for key, leaf in leaves.items():
            value = values.pop(key)
            if value is None or value == ():
                continue
            place = nested
            for name in leaf.path[:-1]:
                place = place.setdefault(name, {})
            place[leaf.path[-1]] = joined(value) if leaf.option.kind in JOINED else value
        if self.taken.ask and self.taken.argument not in nested and base is None:
            raise InputError(self.taken.ask)
        return Given(self.cls, tuple(leaves.values()), laid_over(table, nested), base)


def _block(name: str, kind: Any, taken: Taken) -> _Block:
    raw = typing.get_origin(kind) is Given
    return _Block(name, typing.get_args(kind)[0] if raw else kind, taken, raw)


# ---------------------------------------------------------------------------------------------- commands


def command(name: str, example: str = "") -> Callable[[Callable[..., None]], Command]:
    """Return what makes a command of a function.

    Parameters
    ----------
    name
        As it is typed.
    example
        The end of its help.
    """
    return lambda function: _command_of(name, example, function)


def _command_of(name: str, example: str, function: Callable[..., None]) -> Command:
    blocks: list[_Block] = []
    singles: dict[str, Leaf] = {}
    params: list[click.Parameter] = []
    hints = typing.get_type_hints(function, include_extras=True)
    for parameter in inspect.signature(function).parameters.values():
        kind, said = typing.get_args(hints[parameter.name])[:2]
        if isinstance(said, Taken):
            blocks.append(_block(parameter.name, kind, said))
            params += [parameter_of(key, leaf, of_settings=True) for key, leaf in blocks[-1].leaves.items()]
        else:
            default = MISSING if parameter.default is parameter.empty else parameter.default
            singles[parameter.name] = Leaf((parameter.name,), kind, default, said)
            params.append(parameter_of(parameter.name, singles[parameter.name], of_settings=False))
    if any(block.taken.file for block in blocks) and "config" not in singles:
        params.append(parameter_of("config", Leaf(("config",), Path | None, None, CONFIG), of_settings=False))
    return Command(
        grouped=bool(blocks),
        name=name,
        params=sorted(params, key=lambda param: isinstance(param, click.Option)),  # arguments first
        callback=_callback(function, blocks, singles),
        help=inspect.cleandoc(function.__doc__ or ""),
        epilog=example,
    )


def _callback(
    function: Callable[..., None], blocks: Sequence[_Block], singles: Mapping[str, Leaf]
) -> Callable[..., None]:
    """Return what calls a function with what was typed."""

    def call(**values: Any) -> None:
        bases, tables = _read(blocks, values.get("config"))
        arguments: dict[str, Any] = {}
        for block in blocks:
            given = block.given(values, bases.get(block.name), tables.get(block.name, {}))
            arguments[block.name] = given if block.raw else given.build()
        for name, leaf in singles.items():
            value = joined(values[name]) if leaf.option.kind in JOINED else values[name]
            arguments[name] = list(value) if isinstance(value, tuple) else value
        function(**arguments)

    return call


def _read(blocks: Sequence[_Block], config: Path | None) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Return what a file says: settings where one block is the whole file, values where several are tables of it."""
    of_file = [block for block in blocks if block.taken.file]
    if config is None or not of_file:
        return {}, {}
    existing_file(config)
    if len(of_file) == 1:
        return {of_file[0].name: of_file[0].cls.load(config)}, {}
    document, known = read_toml(config), {block.name: block for block in of_file}
    tables = {}
    for name, table in document.items():
        if name not in known:
            raise UnknownNameError(f"table of {config}", name, known)
        if not isinstance(table, Mapping):
            raise FileFormatError(f"{config}: '{name}' must be a table, [{name}]; {table!r} arrived")
        tables[name] = checked_values(known[name].cls, table, f"[{name}] of {config}")
    return {}, tables
