"""The effective configuration as TOML, which ``--config`` reads."""

import json
from collections.abc import Mapping
from typing import Any

__all__ = ["to_toml"]

#: Lists that are longer get one line an item.
WIDTH = 88


def to_toml(config: Mapping[str, Any]) -> str:
    """Return a nested mapping as TOML text; null, which TOML does not know, becomes a comment.

    Examples
    --------
    >>> print(to_toml({"seeds": 5, "data": {"name": "digits", "label": None}, "heads": ["fedcof"]}))
    seeds = 5
    heads = ["fedcof"]
    <BLANKLINE>
    [data]
    name = "digits"
    # label is not set
    """
    return "\n".join(_lines(config, ())).strip()


def _lines(table: Mapping[str, Any], path: tuple[str, ...]) -> list[str]:
    plain = {key: value for key, value in table.items() if not isinstance(value, Mapping)}
    lines = [_pair(str(key), value) for key, value in plain.items()]
    if path and (lines or not table):
        lines = ["", f"[{'.'.join(path)}]", *lines]
    for key, value in table.items():
        if isinstance(value, Mapping):
            lines += _lines(value, (*path, _key(str(key))))
    return lines


def _pair(key: str, value: Any) -> str:
    if value is None:
        return f"# {_key(key)} is not set"
    line = f"{_key(key)} = {_value(value)}"
    if len(line) > WIDTH and isinstance(value, (list, tuple)):
        return "\n".join([f"{_key(key)} = [", *(f"  {_value(each)}," for each in value if each is not None), "]"])
    return line


def _key(key: str) -> str:
    bare = key.isascii() and key.replace("-", "").replace("_", "").isalnum()
    return key if bare else _string(key)


def _value(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_value(each) for each in value if each is not None) + "]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(str(k))} = {_value(v)}" for k, v in value.items() if v is not None) + "}"
    if isinstance(value, (bool, int)):
        return json.dumps(value)
    if isinstance(value, float):
        return repr(value)
    return _string(str(value))


def _string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
