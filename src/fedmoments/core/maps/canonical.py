"""One text for one value: the JSON that every hash of a description is taken of.

Keys are sorted, there is no white space, every character outside ASCII is escaped, and a float is written with the
fewest digits that read back as the same float. NaN and the infinities are refused: they are not JSON. ``1`` and
``1.0`` are different texts, so a class that describes itself converts its numbers first.
"""

import hashlib
import json

from fedmoments.errors import InputError

__all__ = ["canonical_json", "sha256_of_json"]


def canonical_json(value: object) -> str:
    r"""Write a value as canonical JSON.

    Parameters
    ----------
    value
        None, a boolean, a finite number, a string, or a list, tuple or dictionary (keys: strings) of such.

    Examples
    --------
    >>> canonical_json({"b": (1, 2.5), "a": "é"})
    '{"a":"\\u00e9","b":[1,2.5]}'
    """
    _check_keys(value)
    try:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"a description cannot be written as JSON ({error}): allowed are None, booleans, finite numbers, strings, "
            "and lists and dictionaries of these; convert arrays with .tolist() first"
        ) from error


def sha256_of_json(value: object) -> str:
    """Hash a value: the SHA-256 of its canonical JSON, 64 hexadecimal digits.

    Examples
    --------
    >>> sha256_of_json({"a": 1, "b": 2}) == sha256_of_json({"b": 2, "a": 1})
    True
    """
    return hashlib.sha256(canonical_json(value).encode("ascii")).hexdigest()


def _check_keys(value: object) -> None:
    # json.dumps would turn the key 1 into "1": two different values would get one text.
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise InputError(
                    f"a description has the key {key!r} of type {type(key).__name__}: "
                    "keys must be strings; rename it, for instance with str()"
                )
            _check_keys(item)
    elif isinstance(value, list | tuple):
        for item in value:
            _check_keys(item)
