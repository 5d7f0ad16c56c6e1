"""What was typed of some settings: laid over a file's or over the defaults, and written back as words."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from types import NoneType
from typing import Any, Generic, TypeVar

from fedmoments.cli.texts import written
from fedmoments.settings.files import FromFile, choices_of, from_values, types_of, with_values
from fedmoments.settings.option import Option, option_of

__all__ = ["Given", "Leaf", "Taken", "laid_over", "leaves_of", "one_of"]

T = TypeVar("T")


@dataclass(frozen=True)
class Taken:
    """Which fields of some settings a command takes, and how.

    Parameters
    ----------
    argument
        The field that is typed without a name, by its place.
    only, without
        Fields that are options of the command, or that are not; all are unless one of these says otherwise. A key of a
        table is named as ``TABLE.KEY``.
    help
        Field, or ``TABLE.KEY`` -> what the help says of it here.
    tables
        Field that is a table -> classes whose fields are its keys, each an option.
    sweeps
        Whether keys of tables that can be swept take several values.
    file
        Whether ``--config`` names a TOML file of these settings; options that are typed win.
    ask
        What is said when ``argument`` is neither typed nor in a file; empty: its default is taken.
    """

    argument: str = ""
    only: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    help: Mapping[str, str] = field(default_factory=dict)
    tables: Mapping[str, tuple[type, ...]] = field(default_factory=dict)
    sweeps: bool = False
    file: bool = False
    ask: str = ""

    def takes(self, *path: str) -> bool:
        """Say whether a field, or a key of a table, is an option of the command."""
        names = {path[0], ".".join(path)}
        return names.isdisjoint(self.without) and not (self.only and names.isdisjoint(self.only))


@dataclass(frozen=True)
class Leaf:
    """One option: where its value goes, its type, its default, and what it says of itself."""

    path: tuple[str, ...]
    kind: Any
    default: Any
    option: Option

    @property
    def name(self) -> str:
        """The option as it is typed."""
        return next((name for name in self.option.names if name.startswith("--")), f"--{_dashed(self.path[-1])}")


def _dashed(name: str) -> str:
    return name.replace("_", "-")


def leaves_of(cls: Any, taken: Taken) -> list[Leaf]:
    """Return the options that a command takes of some settings, in the order of the fields."""
    leaves: list[Leaf] = []
    for declared in fields(cls):
        name, said = declared.name, option_of(declared)
        if said is not None and name in taken.tables:
            for rules in taken.tables[name]:
                leaves += _keys(name, rules, taken)
        elif said is not None and taken.takes(name) and (said.kind or not _is_table(types_of(cls)[name])):
            said = replace(said, help=taken.help.get(name, said.help), argument=name == taken.argument)
            leaves.append(Leaf((name,), types_of(cls)[name], declared.default, said))
    return leaves


def _keys(table: str, rules: Any, taken: Taken) -> list[Leaf]:
    """Return the options that are keys of a table."""
    leaves = []
    for declared in fields(rules):
        said, kind = option_of(declared), types_of(rules)[declared.name]
        if said is None or not taken.takes(table, declared.name):
            continue
        text = taken.help.get(f"{table}.{declared.name}", said.help)
        if said.swept and taken.sweeps:
            kind, text = tuple[one_of(kind), ...], f"{text.rstrip('.')}; {said.swept}"  # type: ignore[misc]
        leaves.append(Leaf((table, declared.name), kind, declared.default, replace(said, help=text)))
    return leaves


def one_of(kind: Any) -> Any:
    """Return the type of a value that is not None."""
    return next(choice for choice in choices_of(kind) if choice is not NoneType)


def _is_table(kind: Any) -> bool:
    return isinstance(getattr(kind, "__origin__", None), type) and issubclass(kind.__origin__, Mapping)


@dataclass(frozen=True)
class Given(Generic[T]):
    """What was typed of some settings.

    Parameters
    ----------
    cls
        Their class.
    leaves
        All options that the command takes of them.
    values
        Field -> what was typed; tables hold the keys that were typed.
    base
        What a file says; None: there is none.
    """

    cls: type[T]
    leaves: tuple[Leaf, ...]
    values: Mapping[str, Any]
    base: T | None = None

    def build(self, **more: Any) -> T:
        """Return the settings: what was typed over what a file says or the defaults, and some values beside.

        Paths that were typed are meant from the working directory.

        Parameters
        ----------
        more
            Values that the command knows itself; they win.
        """
        if self.base is None:
            settings = from_values(self.cls, {**self.values, **more}, "the command line")
        else:
            laid = {name: laid_over(getattr(self.base, name), value) for name, value in self.values.items()}
            settings = with_values(self.base, {**laid, **more}, "the command line")
        return settings.placed(Path.cwd()) if isinstance(settings, FromFile) else settings

    def over(self, base: T) -> "Given[T]":
        """Return the same laid over other settings, where no file says any."""
        return self if self.base is not None else replace(self, base=base)

    def also(self, **values: Any) -> "Given[T]":
        """Return the same with some more values, as if they had been typed."""
        return replace(self, values={**self.values, **values})

    @property
    def names(self) -> list[str]:
        """Options that were typed."""
        return [leaf.name for leaf in self.leaves if _at(self.values, leaf.path) is not None]

    def arguments(self, only: Sequence[str] = (), without: Sequence[str] = ()) -> list[str]:
        """Return what was typed as words of a command line, of all fields or of some."""
        arguments: list[str] = []
        for leaf in self.leaves:
            value, name = _at(self.values, leaf.path), leaf.path[-1]
            if value is not None and name not in without and (not only or name in only):
                arguments += _arguments(leaf.name, value)
        return arguments


def _arguments(option: str, value: Any) -> list[str]:
    if isinstance(value, bool):
        return [option if value else f"--no-{option.removeprefix('--')}"]
    if isinstance(value, Mapping):
        pairs = [f"{name}={item}" for name, item in _flat(value).items()]
        return [argument for pair in pairs for argument in (option, pair)]
    return [option, written(value)]


def _flat(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table of values, or of tables, as one of values: ``HEAD.NAME`` for each of the latter."""
    flat: dict[str, Any] = {}
    for name, value in table.items():
        flat |= {f"{name}.{key}": item for key, item in value.items()} if isinstance(value, Mapping) else {name: value}
    return flat


def _at(values: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    value: Any = values
    for name in path:
        value = value.get(name) if value else None
    return value


def laid_over(before: Any, typed: Any) -> Any:
    """Return what was typed over what was there: tables keep what is not typed.

    Examples
    --------
    >>> laid_over({"fed3r": {"ridge": 1}}, {"fed3r": {"center": True}, "gh-lda": {}})
    {'fed3r': {'ridge': 1, 'center': True}, 'gh-lda': {}}
    """
    if not isinstance(typed, Mapping):
        return typed
    table = dict(before)
    for name, value in typed.items():
        table[name] = laid_over(table.get(name, {}), value)
    return table
