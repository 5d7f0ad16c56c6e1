"""Settings as a person writes them: a frozen dataclass, read from TOML and checked against the types of its fields."""

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

from fedmoments.errors import FileFormatError, InputError, UnknownNameError

__all__ = ["from_values", "parse_toml", "read_toml", "to_toml", "with_values"]

T = TypeVar("T")

_KINDS: dict[str, type | tuple[type, ...]] = {"str": str, "int": int, "float": (int, float), "bool": bool}


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
    return type(settings)(**{f.name: getattr(settings, f.name) for f in fields(now)} | _typed(now, values, whose))


def from_values(cls: type[T], values: Mapping[str, Any], whose: str) -> T:
    """Return a new dataclass of these values, checked as :func:`with_values` does; its defaults stand for the rest."""
    return cls(**_typed(cls, values, whose))


def _typed(cls: Any, values: Mapping[str, Any], whose: str) -> dict[str, Any]:
    known = {f.name: f.type.__name__ if isinstance(f.type, type) else str(f.type) for f in fields(cls)}
    for name in values:
        if name not in known:
            raise UnknownNameError(f"key of {whose}", name, known)
    return {name: _checked(name, value, known[name], whose) for name, value in values.items()}


def parse_toml(text: str, whose: str) -> dict[str, Any]:
    """Return a TOML document, or say what is wrong with it."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise FileFormatError(f"{whose} is not TOML: {error}") from error


def read_toml(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the TOML document in a file, or say what is wrong with it."""
    try:
        text = Path(path).read_text("utf-8")
    except UnicodeDecodeError as error:
        raise FileFormatError(f"{path} is not TOML: {error}") from error
    return parse_toml(text, str(path))


def to_toml(document: Mapping[str, Any]) -> str:
    """Return a document as TOML: values first, then tables, which may hold tables of values.

    Examples
    --------
    >>> print(to_toml({"seed": 0, "policy": {"min_count": 5}}))
    seed = 0
    <BLANKLINE>
    [policy]
    min_count = 5
    <BLANKLINE>
    """
    lines = [f"{_key(name)} = {_value(value)}" for name, value in document.items() if not isinstance(value, Mapping)]
    for name, table in document.items():
        if isinstance(table, Mapping):
            lines += _table(_key(name), table)
    return "\n".join(lines) + "\n"


def _table(path: str, table: Mapping[str, Any]) -> list[str]:
    plain = {name: value for name, value in table.items() if not isinstance(value, Mapping)}
    lines = [] if table and not plain else ["", f"[{path}]"]
    lines += [f"{_key(name)} = {_value(value)}" for name, value in plain.items()]
    for name, value in table.items():
        if isinstance(value, Mapping):
            lines += _table(f"{path}.{_key(name)}", value)
    return lines


def _checked(name: str, value: Any, kind: str, whose: str) -> Any:
    """Return a value in the type that its field declares."""
    base = kind.removesuffix(" | None")
    if value is None and kind != base:
        return None
    if "Mapping[" in base:
        return _checked_table(name, value, whose, nested=base.count("Mapping[") > 1)
    if base.startswith("tuple["):
        item = base.removeprefix("tuple[").partition(",")[0]
        several = list(value) if isinstance(value, list | tuple) else [value]
        return tuple(_checked(name, each, item, whose) for each in several)
    wrong_bool = isinstance(value, bool) and base != "bool"
    if wrong_bool or not isinstance(value, _KINDS[base]):
        raise InputError(f"{whose}: '{name}' must be of type {base}; {value!r} arrived")
    return float(str(value)) if base == "float" else value


def _checked_table(name: str, value: Any, whose: str, *, nested: bool) -> dict[str, Any]:
    sound = isinstance(value, Mapping) and (not nested or all(isinstance(t, Mapping) for t in value.values()))
    if not sound:
        form = f"table of tables, [{name}.NAME]" if nested else f"table, [{name}]"
        raise InputError(f"{whose}: '{name}' must be a {form}; {value!r} arrived")
    return {inner: dict(table) for inner, table in value.items()} if nested else dict(value)


def _key(name: str) -> str:
    """Return a key as TOML writes it: bare where it can be."""
    return name if re.fullmatch("[A-Za-z0-9_-]+", name) else _value(name)


def _value(value: Any) -> str:
    """Return a value as TOML writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return '"' + "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in escaped) + '"'
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_value(each) for each in value) + "]"
    return repr(value)
