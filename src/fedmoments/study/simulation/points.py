"""The points of a sweep: all combinations of what is swept, who runs in each, and its split and federation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import product
from typing import Any

from fedmoments.core.api import spec_for
from fedmoments.core.costs.sketches import plan_of
from fedmoments.core.gaussian import Shrinkage
from fedmoments.core.heads import Head
from fedmoments.core.maps import compose
from fedmoments.core.maps.power import AUTO
from fedmoments.core.maps.projection import make_projection
from fedmoments.core.observations import Setting
from fedmoments.errors import InputError, UnknownNameError
from fedmoments.privacy.protection import Protection
from fedmoments.samples import Split, parse_split
from fedmoments.samples.features import Features
from fedmoments.samples.splits.numbers import CLIENTS, finds_clients
from fedmoments.settings.setting import SWEPT
from fedmoments.study.simulation.measuring import Federation
from fedmoments.study.simulation.methods import Method

__all__ = ["Point", "Sweeps", "federation_of", "is_sketched", "leaves_map", "make_split", "methods_in", "settings_of"]

#: The split of a simulation that names none.
DEFAULT_SPLIT = "dirichlet:0.1"


@dataclass(frozen=True)
class Point(Setting):
    """A setting as a simulation runs it: with what clients, sums and server do for privacy and against poison.

    Examples
    --------
    >>> point = Point(10, "iid", protection=Protection(min_count=5))
    >>> point.epsilon, point.privacy
    (None, 'min_count=5')
    """

    split: str = "iid"
    protection: Protection = field(default_factory=Protection)

    def __post_init__(self) -> None:
        agreed = self.protection.agreed
        rest = replace(self.protection, agreed=replace(agreed, epsilon=None))
        object.__setattr__(self, "epsilon", agreed.epsilon)
        object.__setattr__(self, "privacy", rest.description or None)


#: Values to sweep, by what lists of them are called (``several`` of :data:`~fedmoments.settings.setting.SWEPT`, and
#: ``protections``); all combinations are run. What is not given has the one value of a :class:`Point`.
Sweeps = Mapping[str, Sequence[Any]]
#: Loops from the outermost to the innermost: federations that differ in their shrinkage alone are measured once.
_OUTER, _INNER = ("split", "clients"), ("protection", "shrinkage")


def settings_of(methods: Mapping[str, Method], sweeps: Sweeps) -> tuple[Point, ...]:
    """Return all combinations in which anything runs, or say what is wrong with a value.

    Examples
    --------
    >>> from fedmoments.study.simulation.methods import choose_methods
    >>> settings = settings_of(choose_methods(["fedcof"], {}), {"clients": [5, 10], "splits": ["iid"]})
    >>> [setting.clients for setting in settings]
    [5, 10]
    """
    _check_sweeps(sweeps)
    lists = {"protection": "protections", **{name: part.several for name, part in SWEPT.items() if part.several}}
    loops = [*(name for name in lists if name not in (*_OUTER, *_INNER, "budget")), *_INNER]
    defaults = {entry.name: entry.default for entry in fields(Point)} | {"protection": Protection()}
    values = [sweeps.get(lists[name], [defaults[name]]) for name in loops]
    combined = {
        Point(number, scheme, **dict(zip(loops, chosen, strict=True))): None
        for (scheme, number), chosen in product(_places(sweeps), list(product(*values)))
    }
    if not combined:
        raise InputError(
            "there is nothing to simulate: give at least one split, shrinkage, projection, protection and "
            "number of means"
        )
    return tuple(_with_budgets(list(combined), sweeps.get("budgets", ()), methods))


def _check_sweeps(sweeps: Sweeps) -> None:
    known = ["protections", *(part.several for part in SWEPT.values() if part.several)]
    for name in sweeps:
        if name not in known:
            raise UnknownNameError("sweep", name, known)
    for word in sweeps.get("shrinkages", ()):
        if word is not None:
            Shrinkage.parse(word)
    few = min(sweeps.get("means_per_client", ()), default=1)
    if few < 1:
        raise InputError(f"means per client must be 1 or more, not {few}")


def _places(sweeps: Sweeps) -> list[tuple[str, int | None]]:
    """Return every split with every number of clients that it is made for."""
    places: list[tuple[str, int | None]] = []
    for scheme in sweeps.get("splits", [DEFAULT_SPLIT]):
        numbers: Sequence[int | None] = sweeps.get("clients") or [None if finds_clients(scheme) else CLIENTS]
        places += [(scheme, number) for number in numbers]
    return places


def _with_budgets(settings: list[Point], budgets: Sequence[str], methods: Mapping[str, Method]) -> list[Point]:
    """Return the settings with every budget besides, as far as anything runs in them."""
    if budgets and not any(is_sketched(method) for method in methods.values()):
        spec_for(*(method for method in methods.values() if isinstance(method, Head)), budget=budgets[0])  # refuses
    every = [replace(setting, budget=budget) for budget in (None, *budgets) for setting in settings]
    return [setting for setting in every if methods_in(setting, methods, budgets)]


def methods_in(setting: Point, methods: Mapping[str, Method], budgets: Sequence[str]) -> dict[str, Method]:
    """Return what runs in a setting: where budgets are swept, heads on sketches in these, and all others without.

    Examples
    --------
    >>> from fedmoments.study.simulation.methods import choose_methods
    >>> both = choose_methods(["fedcof", "sketch"], {})
    >>> list(methods_in(Point(10, "iid"), both, ["means"])), list(methods_in(Point(10, "iid"), both, []))
    (['fedcof'], ['fedcof', 'sketch'])
    """
    shrunk = _with_shrinkage(methods, setting.shrinkage)
    if not budgets:
        return shrunk
    return {name: method for name, method in shrunk.items() if is_sketched(method) == (setting.budget is not None)}


def is_sketched(method: Method) -> bool:
    """Return whether a method is a head on scatter sketches, which spends a budget.

    Examples
    --------
    >>> from fedmoments.study.simulation.methods import choose_methods
    >>> [is_sketched(method) for method in choose_methods(["fedcof", "sketch"], {}).values()]
    [False, True]
    """
    return isinstance(method, Head) and method.needs.has_sketch


def leaves_map(method: Method) -> bool:
    """Return whether a method is a head that leaves its public map to a rule where nobody names one.

    Examples
    --------
    >>> from fedmoments.study.simulation.methods import choose_methods
    >>> [leaves_map(method) for method in choose_methods(["fedcof", "auto"], {}).values()]
    [False, True]
    """
    return isinstance(method, Head) and method.map_rule == AUTO


def _with_shrinkage(methods: Mapping[str, Method], shrinkage: str | None) -> dict[str, Method]:
    """Return heads with the shrinkage of a setting, if they have one; baselines are not swept."""
    if shrinkage is None:
        return dict(methods)
    change: dict[str, Any] = {"shrinkage": shrinkage}
    return {name: replace(method, **change) if _shrinks(method) else method for name, method in methods.items()}


def _shrinks(method: Method) -> bool:
    return isinstance(method, Head) and "shrinkage" in {field.name for field in fields(method)}


def make_split(features: Features, clients: int | None, scheme: str, seed: int) -> Split:
    """Return the split of the training samples that a scheme makes for a seed.

    Examples
    --------
    >>> import numpy as np
    >>> from fedmoments.samples.features import Samples
    >>> part = Samples(np.ones((4, 1)), np.array([0, 1, 0, 1]))
    >>> make_split(Features("toy", 2, part, part), 2, "iid", seed=0).sizes
    array([2, 2])
    """
    return parse_split(scheme).apply(
        features.train.y,
        n_clients=clients,
        seed=seed,
        domains=features.domains,
        ids=features.ids,
        groups=features.groups,
    )


def federation_of(
    features: Features, split: Split, methods: Sequence[Method], setting: Point, *, seed: int, **more: Any
) -> Federation:
    """Return the federation of a setting: behind its projection, with its protection, within its budget.

    Parameters
    ----------
    features, split, methods
        Everybody's samples, who holds what, and what will be fitted.
    setting, seed
        Of this federation.
    **more
        What else :class:`Federation` takes: memory_limit, fixed_point.

    Examples
    --------
    >>> import numpy as np
    >>> from fedmoments.samples.features import Samples
    >>> part = Samples(np.eye(64)[np.arange(40) % 2], np.arange(40) % 2)
    >>> toy = Features("toy", 2, part, part)
    >>> setting = Point(4, "iid", budget="means/8")
    >>> federation_of(toy, make_split(toy, 4, "iid", seed=0), [], setting, seed=0).dim
    9
    """
    chooses = bool(methods) and all(leaves_map(method) for method in methods)
    public = (features.advised_map if chooses else None) or features.public_map
    width = public.output_dim(features.dim) if public else features.dim
    plan, dimensions = plan_of(setting.budget, n_classes=features.n_classes, dim=width, projection=setting.projection)
    maps = [part for part in (public, make_projection(dimensions, width, seed)) if part]
    return Federation(
        features,
        split,
        methods,
        feature_map=compose(*maps) if maps else None,
        means_per_client=setting.means_per_client,
        seed=seed,
        protection=setting.protection,
        plan=replace(plan, spare=setting.protection.sketch_spare),
        **more,
    )
