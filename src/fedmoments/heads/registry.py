"""All heads by name: the presets of every file of this room, and of installed third-party packages.

A head file declares ``PRESETS``, a tuple of :class:`~fedmoments.heads.Preset`. A third-party package adds its own
through the entry-point group ``fedmoments.heads``, each entry point naming such a tuple or a single preset.
"""

import importlib
import pkgutil
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from importlib.metadata import entry_points
from typing import Any

from fedmoments.errors import InputError, UnknownNameError
from fedmoments.heads.head import Head, Preset

__all__ = ["head_names", "make_head", "presets"]

ENTRY_POINTS = "fedmoments.heads"


@cache
def presets() -> Mapping[str, Preset[Head]]:
    """Return all presets by name, ours first, in alphabetical order each.

    Examples
    --------
    >>> str(presets()["fedcof"].make().needs)
    'counts + client_means'
    """
    ours: list[Preset[Head]] = []
    package = importlib.import_module("fedmoments.heads")
    for module in pkgutil.iter_modules(package.__path__, "fedmoments.heads."):
        ours.extend(getattr(importlib.import_module(module.name), "PRESETS", ()))
    theirs: list[Preset[Head]] = []
    for entry in entry_points(group=ENTRY_POINTS):
        loaded = entry.load()
        theirs.extend([loaded] if isinstance(loaded, Preset) else loaded)
    table: dict[str, Preset[Head]] = {}
    for preset in [*sorted(ours, key=lambda p: p.name), *sorted(theirs, key=lambda p: p.name)]:
        if preset.name in table:
            raise InputError(f"two heads call themselves '{preset.name}': rename or uninstall one of them")
        table[preset.name] = preset
    return table


def head_names() -> tuple[str, ...]:
    """Return the names of all heads.

    Examples
    --------
    >>> "fed3r" in head_names()
    True
    """
    return tuple(presets())


def make_head(name: str, **hyper: Any) -> Head:
    """Return the head of that name with these hyper-parameters.

    Examples
    --------
    >>> make_head("fedncm", metric="euclidean")
    NearestMean(metric='euclidean')
    >>> make_head("fedncm", shrinkage=1.0)
    Traceback (most recent call last):
    fedmoments.errors.InputError: head 'fedncm' has no hyper-parameter 'shrinkage': it takes metric
    """
    table = presets()
    if name not in table:
        raise UnknownNameError("head", name, table)
    allowed = [each.name for each in fields(table[name].head)]
    for given in hyper:
        if given not in allowed:
            takes = ", ".join(allowed) or "none"
            raise InputError(f"head '{name}' has no hyper-parameter '{given}': it takes {takes}")
    return table[name].make(**hyper)
