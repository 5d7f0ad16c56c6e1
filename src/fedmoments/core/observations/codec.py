"""Dataclasses to plain values that JSON holds, and back: the one place where either is done.

A frozen dataclass becomes a mapping of its fields, a tuple or an array a list, bytes base64 text; a number that is not
finite becomes null. Reading follows the annotations of the fields, so that a document that was cut, or is of another
release, is refused by the name of what is wrong in it. What a class names in ``derived`` is written besides, for
whoever reads the file without this package; reading does not believe it but works it out again. What it names in
``undefined`` is NaN where the document has null.
"""

import base64
import math
import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedmoments.errors import FileFormatError

__all__ = ["from_plain", "to_plain"]

T = TypeVar("T")


def to_plain(value: Any) -> Any:
    """Return a value ready for JSON.

    Examples
    --------
    >>> from fedmoments.core.observations import Observation
    >>> to_plain(Observation({"head": "fedcof"}, (0.5, float("nan")), seeds=(0, 1)))["values"]
    [0.5, None]
    """
    value = _builtin(value)
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _builtin(value: Any) -> Any:
    """Return a dataclass as a dictionary, NumPy's arrays and numbers as Python's, and anything else as it is."""
    if is_dataclass(value) and not isinstance(value, type):
        if hasattr(value, "flattened"):
            return value.flattened()
        names = (*(field.name for field in fields(value)), *getattr(value, "derived", ()))
        return {name: getattr(value, name) for name in names}
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def from_plain(kind: type[T], plain: Any, whose: str = "the document") -> T:
    """Return the dataclass that :func:`to_plain` wrote.

    Parameters
    ----------
    kind
        Which one.
    plain
        A mapping, as JSON gives it. A field that is not there has its default.
    whose
        Where it came from, for messages.

    Raises
    ------
    FileFormatError
        When a field is missing, unknown or of another type.

    Examples
    --------
    >>> from fedmoments.core.observations import Observation
    >>> from_plain(Observation, {"where": {"head": "fedcof"}, "values": [0.5, None]}).values
    (0.5, None)
    >>> from_plain(Observation, {"where": {}, "values": "x"})
    Traceback (most recent call last):
    fedmoments.errors.FileFormatError: the document holds 'x' as Observation.values, where a list belongs
    """
    if not isinstance(plain, Mapping):
        raise FileFormatError(f"{whose} holds {plain!r} where a {kind.__name__} belongs")
    nested = getattr(kind, "nested", None)
    plain = plain if nested is None else nested(plain, whose)
    known = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    if unknown := [name for name in plain if name not in {*known, *getattr(kind, "derived", ())}]:
        raise FileFormatError(f"{whose} holds '{unknown[0]}', which a {kind.__name__} does not have")
    if lacking := [name for name in _required(kind) if name not in plain]:  # type: ignore[arg-type]
        raise FileFormatError(f"{whose} lacks '{lacking[0]}' of a {kind.__name__}")
    return kind(**_values(kind, plain, whose))


def _values(kind: type, plain: Mapping[str, Any], whose: str) -> dict[str, Any]:
    """Return the values of the fields that are there; a number that may be undefined is written as nothing."""
    hints, there = _hints(kind), [field.name for field in fields(kind) if field.name in plain]
    undefined = {name for name in getattr(kind, "undefined", ()) if plain.get(name) is None}
    return {
        name: math.nan if name in undefined else _read(hints[name], plain[name], f"{kind.__name__}.{name}", whose)
        for name in there
    }


@cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


@cache
def _required(kind: type) -> tuple[str, ...]:
    """Return the fields that have no default."""
    declared = fields(kind)
    return tuple(entry.name for entry in declared if entry.default is MISSING and entry.default_factory is MISSING)


def _read(hint: Any, plain: Any, name: str, whose: str) -> Any:
    """Return a value of the type that a field is annotated with."""
    hint = _spelled_out(hint)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return _read_union(arguments, plain, name, whose)
    if origin is tuple or origin is np.ndarray:
        _require(isinstance(plain, list | tuple), plain, name, "a list", whose)
        return _read_list(origin, arguments, plain, name, whose)
    if origin in (dict, Mapping):
        _require(isinstance(plain, Mapping), plain, name, "a mapping", whose)
        return {str(key): _read(arguments[1], item, name, whose) for key, item in plain.items()}
    if is_dataclass(hint):
        return from_plain(hint, plain, whose)  # type: ignore[arg-type]
    return plain if hint is Any else _read_scalar(hint, plain, name, whose)


def _spelled_out(hint: Any) -> Any:
    """Return what a ``type`` alias stands for: from numpy 2.5 on, NDArray[np.float64] is one."""
    origin = typing.get_origin(hint)
    meaning = getattr(hint if origin is None else origin, "__value__", None)
    if meaning is None:
        return hint
    return meaning if origin is None else meaning[typing.get_args(hint)]


def _read_list(origin: Any, arguments: tuple[Any, ...], plain: list[Any], name: str, whose: str) -> Any:
    if origin is np.ndarray:
        return _read_array(typing.get_args(arguments[1])[0], plain, name, whose)
    kinds = arguments[:1] * len(plain) if arguments[1:] == (...,) else arguments
    _require(len(kinds) == len(plain), plain, name, f"a list of {len(kinds)}", whose)
    return tuple(_read(kind, item, name, whose) for kind, item in zip(kinds, plain, strict=True))


def _read_array(kind: Any, plain: list[Any], name: str, whose: str) -> NDArray[Any]:
    """Return an array of numbers; null is NaN in one of floats, and nothing is rounded to a whole number."""
    try:
        array = np.asarray(plain, np.float64 if np.issubdtype(kind, np.floating) else None)
    except (ValueError, TypeError):
        array = np.asarray("ragged")
    wanted = "f" if np.issubdtype(kind, np.floating) else "iub"
    _require(array.dtype.kind in wanted or not array.size, plain, name, f"numbers of type {kind.__name__}", whose)
    return array.astype(kind)


def _read_union(kinds: tuple[Any, ...], plain: Any, name: str, whose: str) -> Any:
    if type(None) in kinds and (plain is None or (isinstance(plain, float) and not math.isfinite(plain))):
        return None
    errors = []
    for kind in sorted((kind for kind in kinds if kind is not type(None)), key=lambda kind: kind is float):
        try:
            return _read(kind, plain, name, whose)
        except FileFormatError as error:
            errors.append(error)
    raise errors[0]


def _read_scalar(kind: Any, plain: Any, name: str, whose: str) -> Any:
    if kind is bytes and isinstance(plain, str):
        try:
            return base64.b64decode(plain, validate=True)
        except ValueError as error:
            raise FileFormatError(f"{whose} holds {plain!r:.40} as {name}, where base64 text belongs") from error
    if kind is float and isinstance(plain, int) and not isinstance(plain, bool):
        return plain  # JSON writes 1.0 of other programs as 1
    same = isinstance(plain, kind) and isinstance(plain, bool) == (kind is bool)
    _require(same, plain, name, f"a value of type {kind.__name__}", whose)
    return plain


def _require(good: bool, plain: Any, name: str, wanted: str, whose: str) -> None:  # noqa: FBT001
    if not good:
        raise FileFormatError(f"{whose} holds {plain!r} as {name}, where {wanted} belongs")
