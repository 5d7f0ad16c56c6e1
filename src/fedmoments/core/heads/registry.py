"""All heads by name: built in, of installed packages, and registered at run time.

A head file declares ``PRESETS``, a tuple of :class:`~fedmoments.core.heads.Preset`. A third-party package adds its own
through the entry-point group ``fedmoments.heads``, each entry point naming a head's class, a preset, or a tuple.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields, replace
from typing import Any, Generic, TypeVar, cast

from fedmoments.core.heads.head import Head
from fedmoments.errors import InputError
from fedmoments.registry import Registry, first_line, scan

__all__ = [
    "HEADS",
    "TARGET_HEADS",
    "Preset",
    "head_names",
    "label_of",
    "made",
    "make_head",
    "preset_of",
    "presets",
    "register_head",
]

Recipe = TypeVar("Recipe")


@dataclass(frozen=True)
class Preset(Generic[Recipe]):
    """A named head (a point in the space of moments × covariance source × solver), or a named baseline.

    Parameters
    ----------
    name
        What users type.
    head
        The class.
    defaults
        Hyper-parameters that make it this preset; users may override any.
    summary
        One line for tables.
    paper
        Where it comes from.

    Examples
    --------
    >>> import fedmoments as fm
    >>> fedcof = fm.presets()["fedcof"]
    >>> fedcof.summary
    'ridge on the within scatter, free covariance of client means'
    >>> fedcof.make(shrinkage=0.1).settings()["shrinkage"]
    0.1
    """

    name: str
    head: type[Recipe]
    summary: str
    paper: str
    defaults: Mapping[str, Any] = field(default_factory=dict)

    def make(self, **hyper: Any) -> Recipe:
        """Return the head or baseline with these hyper-parameters instead of the defaults."""
        return self.head(**{**self.defaults, **hyper})


def preset_of(base: type[Any]) -> Callable[[Any, str | None], Preset[Any]]:
    """Return what makes a preset of a class, of one of its instances, or of a preset.

    A class without a name takes its own, as users type it; an instance's fields are the preset's defaults.

    Examples
    --------
    >>> from fedmoments.core.heads.head import Head
    >>> from fedmoments.core.heads.nearest_mean import NearestMean
    >>> preset_of(Head)(NearestMean, None).name
    'nearest-mean'
    >>> preset_of(Head)(NearestMean("euclidean"), "nearest").make()
    NearestMean(metric='euclidean')
    """

    def accept(given: Any, name: str | None) -> Preset[Any]:
        if isinstance(given, Preset):
            return replace(given, name=name or given.name)
        recipe, defaults = (given, {}) if isinstance(given, type) else (type(given), _values(given, base))
        if not issubclass(recipe, base):
            raise InputError(f"it must be a {base.__name__} (a class, one of its instances, or a Preset)")
        return Preset(name or _typed(recipe.__name__), recipe, first_line(recipe), paper="", defaults=defaults)

    return accept


def made(registry: Registry[Preset[Recipe]], name: str, hyper: Mapping[str, Any]) -> Recipe:
    """Return what a registry has under a name, with these hyper-parameters."""
    preset = registry.find(name)
    allowed = [parameter.name for parameter in fields(cast("Any", preset.head))]  # a dataclass, as its base is
    for given in hyper:
        if given not in allowed:
            takes = ", ".join(allowed) or "none"
            raise InputError(f"{registry.kind} '{name}' has no hyper-parameter '{given}': it takes {takes}")
    return preset.make(**hyper)


def label_of(registry: Mapping[str, Preset[Recipe]], recipe: Recipe) -> str:
    """Return what a recipe is called in tables: the name that it has in the registry, or that of its class.

    Examples
    --------
    >>> import fedmoments as fm
    >>> label_of(fm.presets(), fm.make_head("gh-lda")), label_of(fm.presets(), fm.make_head("fed3r", ridge=0.5))
    ('gh-lda', 'ridge(ridge=0.5)')
    """
    for preset in registry.values():
        if type(recipe) is preset.head and preset.make() == recipe:
            return preset.name
    given: Any = recipe
    changed = [f"{own.name}={getattr(given, own.name)}" for own in fields(given) if _is_changed(own, given)]
    return _typed(type(recipe).__name__) + (f"({', '.join(changed)})" if changed else "")


def _is_changed(parameter: Field[Any], recipe: Any) -> bool:
    return bool(getattr(recipe, parameter.name) != parameter.default)


def _values(given: Any, base: Any) -> dict[str, Any]:
    return {own.name: getattr(given, own.name) for own in fields(given)} if isinstance(given, base) else {}


def _typed(name: str) -> str:
    """Return the name of a class as users type it: NearestMean -> nearest-mean."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "-", name).lower()


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
