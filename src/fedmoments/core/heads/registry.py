"""All heads by name: built in, of installed packages, and registered at run time.

A head file declares ``PRESETS``, a tuple of :class:`~fedmoments.core.heads.Preset`. A third-party package adds its own
through the entry-point group ``fedmoments.heads``, each entry point naming a head's class, a preset, or a tuple.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from fedmoments.core.heads.head import Head
from fedmoments.core.heads.preset import Preset, made, preset_of
from fedmoments.registry import Registry, scan

__all__ = ["HEADS", "TARGET_HEADS", "head_names", "make_head", "presets", "register_head"]

Given = TypeVar("Given", bound=type[Head] | Head | Preset[Head])

HEADS: Registry[Preset[Head]] = Registry(
    "head", group="fedmoments.heads", accept=preset_of(Head), built_in=scan("fedmoments.core.heads", "PRESETS")
)
#: Heads whose targets are not classes (:mod:`fedmoments.core.targets`): not for simulations of classes.
TARGET_HEADS: Registry[Preset[Head]] = Registry(
    "head for targets",
    group="fedmoments.target_heads",
    accept=preset_of(Head),
    built_in=scan("fedmoments.core.targets", "PRESETS"),
)


def register_head(head: Given, name: str | None = None) -> Given:
    """Make a head known by name in this process; also a class decorator.

    Parameters
    ----------
    head
        A class, an instance (whose fields are then the defaults) or a :class:`~fedmoments.core.heads.Preset`.
    name
        What users type; by default the preset's, or the class's (``MyHead`` is typed ``my-head``).

    Returns
    -------
    type[Head] | Head | Preset[Head]
        What was given.

    Examples
    --------
    >>> from fedmoments.core.heads.nearest_mean import NearestMean
    >>> _ = register_head(NearestMean("euclidean"), "nearest-by-length")
    >>> make_head("nearest-by-length")
    NearestMean(metric='euclidean')
    >>> HEADS.remove("nearest-by-length")
    """
    HEADS.register(head, name)
    return head


def presets() -> Mapping[str, Preset[Head]]:
    """Return all presets by name: ours first, in alphabetical order each.

    Examples
    --------
    >>> str(presets()["fedcof"].make().needs)
    'counts + client_means'
    """
    return HEADS


def head_names() -> tuple[str, ...]:
    """Return the names of all heads.

    Examples
    --------
    >>> "fed3r" in head_names()
    True
    """
    return tuple(HEADS)


def make_head(name: str, **hyper: Any) -> Head:
    """Return the head of that name with these hyper-parameters, also one for targets that are not classes.

    Examples
    --------
    >>> make_head("fedncm", metric="euclidean")
    NearestMean(metric='euclidean')
    >>> make_head("fedncm", shrinkage=1.0)
    Traceback (most recent call last):
    fedmoments.errors.InputError: head 'fedncm' has no hyper-parameter 'shrinkage': it takes metric
    """
    return made(TARGET_HEADS if name in TARGET_HEADS else HEADS, name, hyper)
