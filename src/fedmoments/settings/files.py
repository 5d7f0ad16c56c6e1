"""Settings from and to TOML files: one reader and one writer for all of them."""

import math
import os
from collections.abc import Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, ClassVar, Self

from fedmoments.settings.toml import parse_toml, read_toml, to_toml
from fedmoments.settings.values import from_values, with_values

__all__ = ["FromFile", "absolute_data"]


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
            if getattr(self, name):
                places[name] = absolute_data(getattr(self, name), base)
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
