"""All baselines by name: the ``PRESETS`` of every file of this room."""

import importlib
import pkgutil
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from typing import Any

from fedmoments.baselines.baseline import Baseline
from fedmoments.errors import InputError, UnknownNameError
from fedmoments.heads import Preset

__all__ = ["baseline_names", "baselines", "make_baseline"]


@cache
def baselines() -> Mapping[str, Preset[Baseline]]:
    """Return all baselines by name, in alphabetical order.

    Examples
    --------
    >>> baselines()["ensemble"].make().sends
    'a linear head'
    """
    found: list[Preset[Baseline]] = []
    package = importlib.import_module("fedmoments.baselines")
    for module in pkgutil.iter_modules(package.__path__, "fedmoments.baselines."):
        found.extend(getattr(importlib.import_module(module.name), "PRESETS", ()))
    return {preset.name: preset for preset in sorted(found, key=lambda preset: preset.name)}


def baseline_names() -> tuple[str, ...]:
    """Return the names of all baselines.

    Examples
    --------
    >>> "fedpft" in baseline_names()
    True
    """
    return tuple(baselines())


def make_baseline(name: str, **hyper: Any) -> Baseline:
    """Return the baseline of that name with these hyper-parameters.

    Examples
    --------
    >>> make_baseline("ensemble", colour="red")
    Traceback (most recent call last):
    fedmoments.errors.InputError: baseline 'ensemble' has no hyper-parameter 'colour': it takes decay, weighting
    """
    table = baselines()
    if name not in table:
        raise UnknownNameError("baseline", name, table)
    allowed = [each.name for each in fields(table[name].head)]
    for given in hyper:
        if given not in allowed:
            takes = ", ".join(allowed) or "none"
            raise InputError(f"baseline '{name}' has no hyper-parameter '{given}': it takes {takes}")
    return table[name].make(**hyper)
