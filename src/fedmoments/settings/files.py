"""Settings from and to TOML files: one reader and one writer for all of them.

TOML documents: read, and written.

Values as TOML, JSON and command lines give them, checked against the types of a dataclass's fields.
"""

import math
import os
import re
import tomllib
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

from fedmoments.errors import InputError, UnknownNameError, reading
from fedmoments.settings.option import option_of

__all__ = [
    "FromFile",
    "absolute_data",
    "checked_values",
    "choices_of",
    "from_values",
    "parse_toml",
    "read_toml",
    "to_toml",
    "types_of",
    "with_values",
]


#: Lists that are longer get one line an item.
WIDTH = 88


def parse_toml(text: str, whose: str) -> dict[str, Any]:
    """Return a TOML document, or say what is wrong with it."""
    with reading(f"{whose} is not TOML"):
        return tomllib.loads(text)


def read_toml(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the TOML document in a file, or say what is wrong with it."""
    with reading(f"{path} is not TOML"):
        text = Path(path).read_text("utf-8")
    return parse_toml(text, str(path))


def to_toml(document: Mapping[str, Any]) -> str:
    """Return a document as TOML: values first, then tables; None, which TOML does not know, becomes a comment.

    Examples
    --------
    >>> print(to_toml({"seed": 0, "policy": {"min_count": 5, "name": None}}))
    seed = 0
    <BLANKLINE>
    [policy]
    min_count = 5
    # name is not set
    <BLANKLINE>
    """
    return "\n".join(_lines(document, ())) + "\n"


def _lines(table: Mapping[str, Any], path: tuple[str, ...]) -> list[str]:
    plain = {_key(name): value for name, value in table.items() if not isinstance(value, Mapping)}
    lines = ["", f"[{'.'.join(path)}]"] if path and (plain or not table) else []
    lines += [f"# {key} is not set" if value is None else _pair(key, value) for key, value in plain.items()]
    for name, value in table.items():
        if isinstance(value, Mapping):
            lines += _lines(value, (*path, _key(name)))
    return lines


def _pair(key: str, value: Any) -> str:
    """Return a line, or a line for every item of a long list."""
    line = f"{key} = {_value(value)}"
    if len(line) <= WIDTH or not isinstance(value, list | tuple):
        return line
    return "\n".join([f"{key} = [", *(f"  {_value(item)}," for item in value if item is not None), "]"])


def _key(name: object) -> str:
    """Return a key as TOML writes it: bare where it can be."""
    return str(name) if re.fullmatch("[A-Za-z0-9_-]+", str(name)) else _value(str(name))


def _value(value: Any) -> str:
    """Return a value as TOML writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_value(item) for item in value if item is not None) + "]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(k)} = {_value(item)}" for k, item in value.items() if item is not None) + "}"
    return repr(value)


def _text(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in escaped) + '"'


T = TypeVar("T")


def with_values(settings: T, values: Mapping[str, Any], whose: str) -> T:
    """Return a dataclass with some values replaced, checked against the types of its fields.

    A field may be text, a number, a boolean, a tuple of one of these, or a table (``Mapping``); with ``| None`` it may
    be left out.

    Parameters
    ----------
    settings
        An instance of a dataclass.
    values
        Field name -> value, as TOML or JSON gives them.
    whose
        Where they came from, for messages.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Door:
    ...     width: float = 1.0
    ...     colours: tuple[str, ...] = ()
    >>> with_values(Door(), {"width": 2, "colours": ["red"]}, "door.toml")
    Door(width=2.0, colours=('red',))
    >>> with_values(Door(), {"with": 2}, "door.toml")
    Traceback (most recent call last):
    fedmoments.errors.UnknownNameError: unknown key of door.toml 'with': did you mean 'width'? ...
    """
    now: Any = settings
    before = {declared.name: getattr(settings, declared.name) for declared in fields(now)}
    return type(settings)(**before | checked_values(type(settings), values, whose))


def from_values(cls: type[T], values: Mapping[str, Any], whose: str) -> T:
    """Return a new dataclass of these values, checked as :func:`with_values` does; its defaults stand for the rest."""
    return cls(**checked_values(cls, values, whose))


def types_of(cls: Any) -> dict[str, Any]:
    """Return the types of a dataclass's fields by name."""
    return typing.get_type_hints(cls)


def choices_of(kind: Any) -> tuple[Any, ...]:
    """Return the types of a union, and of any other type itself.

    Examples
    --------
    >>> choices_of(int | None), choices_of(str)
    ((<class 'int'>, <class 'NoneType'>), (<class 'str'>,))
    """
    union = isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union
    return typing.get_args(kind) if union else (kind,)


def checked_values(cls: Any, values: Mapping[str, Any], whose: str) -> dict[str, Any]:
    """Return values of some fields of a dataclass, each in the type that its field declares, or say what is wrong."""
    declared = {option.name: option for option in fields(cls)}
    for name in values:
        if name not in declared:
            raise UnknownNameError(f"key of {whose}", str(name), declared)
    return {name: _checked(declared[name], value, types_of(cls)[name], whose) for name, value in values.items()}


def _checked(declared: Field[Any], value: Any, kind: Any, whose: str) -> Any:
    """Return a value in the type that its field declares."""
    choices = choices_of(kind)
    if value is None and types.NoneType in choices:
        return None
    for choice in choices:
        origin = typing.get_origin(choice)
        if origin is tuple:
            several = value if isinstance(value, list | tuple) else [value]
            item = typing.get_args(choice)[0]
            return tuple(_scalar(declared, entry, (item,), whose) for entry in several)
        if origin is not None and issubclass(origin, Mapping):
            inner = typing.get_origin(typing.get_args(choice)[1])
            return _table(declared.name, value, whose, nested=inner is not None)
    return _scalar(declared, value, choices, whose)


def _scalar(declared: Field[Any], value: Any, kinds: Iterable[Any], whose: str) -> Any:
    """Return a text, number or boolean in the first of these types that takes it."""
    said = option_of(declared)
    if said is not None and said.kind == "numbers or words" and type(value) is int:
        return str(value)
    for kind in kinds:
        if type(value) is kind:
            return value
        if kind is float and type(value) is int:
            return float(str(value))
    wanted = " or ".join(kind.__name__ for kind in kinds if kind is not types.NoneType)
    raise InputError(f"{whose}: '{declared.name}' must be of type {wanted}; {value!r} arrived")


def _table(name: str, value: Any, whose: str, *, nested: bool) -> dict[str, Any]:
    sound = isinstance(value, Mapping) and (not nested or all(isinstance(t, Mapping) for t in value.values()))
    if not sound:
        form = f"table of tables, [{name}.NAME]" if nested else f"table, [{name}]"
        raise InputError(f"{whose}: '{name}' must be a {form}; {value!r} arrived")
    return {inner: dict(table) for inner, table in value.items()} if nested else dict(value)


def absolute_data(text: str, base: Path) -> str:
    """Return data as a person typed them, with a path that means the same from every folder.

    Examples
    --------
    >>> place = Path("/srv")
    >>> absolute_data("digits", place), absolute_data("hf:mnist", place), absolute_data("npz:a.npz", place)
    ('digits', 'hf:mnist', 'npz:/srv/a.npz')
    """
    kind, colon, rest = text.partition(":")
    if colon and kind != "hf":
        return f"{kind}:{base / Path(rest).expanduser()}"
    path = base / Path(text).expanduser()
    return text if colon or not path.exists() else str(path)


class FromFile:
    """What all settings that have a file of their own can do; a dataclass with this base gets it."""

    #: Fields whose relative paths are meant from the folder of the file, and those that may name data instead.
    paths: ClassVar[tuple[str, ...]] = ()
    sources: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def from_toml(cls, text: str, whose: str = "the configuration") -> Self:
        """Read settings, or say what is wrong with them."""
        return from_values(cls, parse_toml(text, whose), whose)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a settings file."""
        return from_values(cls, read_toml(path), str(path)).placed(Path(path).resolve().parent)

    def placed(self, base: Path) -> Self:
        """Return the settings with relative paths made absolute."""
        places: dict[str, Any] = {}
        for name in self.paths:
            value = getattr(self, name)
            if isinstance(value, tuple):
                places[name] = [str(base / item) for item in value]
            elif value:
                places[name] = str(base / Path(value).expanduser())
        for name in self.sources:
            value = getattr(self, name)
            if isinstance(value, tuple):
                places[name] = [absolute_data(item, base) for item in value]
            elif value:
                places[name] = absolute_data(value, base)
        return self.changed(places)

    def changed(self, values: Mapping[str, Any], whose: str = "the configuration") -> Self:
        """Return the settings with some values replaced, checked against the types of the fields."""
        return with_values(self, values, whose)

    def to_dict(self) -> dict[str, Any]:
        """Return all that was set, by default or otherwise, ready for JSON and TOML; nothing stands for None."""
        document = {}
        this: Any = self  # the dataclass that this is a base of
        for declared in fields(this):
            value = getattr(self, declared.name)
            default = declared.default if declared.default_factory is MISSING else declared.default_factory()
            if value is not None and not (value in ("", (), {}) and value == default):
                document[declared.name] = _plain(value)
        return document

    def to_toml(self) -> str:
        """Return the settings as TOML."""
        return to_toml(self.to_dict())


def _plain(value: Any) -> Any:
    """Return a value as JSON can hold it: lists for tuples, and infinity in tables as a word."""
    if isinstance(value, tuple):
        return list(value)
    if isinstance(value, Mapping):
        return {name: _within(inner) for name, inner in value.items() if inner is not None}
    return value


def _within(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_within(item) for item in value]
    if isinstance(value, Mapping):
        return {name: inner for name, inner in value.items() if inner is not None}
    return "inf" if value == math.inf else value
