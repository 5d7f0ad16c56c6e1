"""All baselines by name: built in (the ``PRESETS`` of every file of this room), installed, registered at run time."""

from collections.abc import Mapping
from typing import Any, TypeVar

from fedmoments.core.heads.preset import Preset, made, preset_of
from fedmoments.registry import Registry, scan
from fedmoments.study.baselines.baseline import Baseline

__all__ = ["BASELINES", "baseline_names", "baselines", "make_baseline", "register_baseline"]

Given = TypeVar("Given", bound=type[Baseline] | Baseline | Preset[Baseline])

BASELINES: Registry[Preset[Baseline]] = Registry(
    "baseline",
    group="fedmoments.baselines",
    accept=preset_of(Baseline),
    built_in=scan("fedmoments.study.baselines", "PRESETS"),
)


def register_baseline(baseline: Given, name: str | None = None) -> Given:
    """Make a baseline (a class, an instance or a preset) known by name in this process; also a class decorator.

    Examples
    --------
    >>> from fedmoments.study.baselines.ensemble import ClientEnsemble
    >>> _ = register_baseline(ClientEnsemble(weighting="samples"), "vote")
    >>> make_baseline("vote").settings()["weighting"]
    'samples'
    >>> BASELINES.remove("vote")
    """
    BASELINES.register(baseline, name)
    return baseline


def baselines() -> Mapping[str, Preset[Baseline]]:
    """Return all baselines by name, in alphabetical order.

    Examples
    --------
    >>> baselines()["ensemble"].make().sends
    'a linear head'
    """
    return BASELINES


def baseline_names() -> tuple[str, ...]:
    """Return the names of all baselines.

    Examples
    --------
    >>> "fedpft" in baseline_names()
    True
    """
    return tuple(BASELINES)


def make_baseline(name: str, **hyper: Any) -> Baseline:
    """Return the baseline of that name with these hyper-parameters.

    Examples
    --------
    >>> make_baseline("ensemble", colour="red")
    Traceback (most recent call last):
    fedmoments.errors.InputError: baseline 'ensemble' has no hyper-parameter 'colour': it takes decay, weighting
    """
    return made(BASELINES, name, hyper)
