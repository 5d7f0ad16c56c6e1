"""Values as TOML, JSON and command lines give them, checked against the types of a dataclass's fields."""

import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import Field, fields
from typing import Any, TypeVar

from fedmoments.errors import InputError, UnknownNameError
from fedmoments.settings.option import option_of

__all__ = ["checked_values", "choices_of", "from_values", "types_of", "with_values"]

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
