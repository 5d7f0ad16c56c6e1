"""TOML documents: read, and written."""

import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedmoments.errors import reading

__all__ = ["parse_toml", "read_toml", "to_toml"]

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
