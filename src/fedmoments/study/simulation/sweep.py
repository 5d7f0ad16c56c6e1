"""The loops of a sweep: splits and seeds outside, so that a federation is measured once for all shrinkages and heads.

Whoever runs a sweep gets one federation after the other, not measured yet: what looks at it in rounds measures it, what
looks closer finds the fits that the table shows. One federation is in memory at a time.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from fedmoments.core.costs.sketches import plan_of
from fedmoments.core.floats import current_precision, is_single
from fedmoments.core.maps.projection import make_projection
from fedmoments.core.observations import Outcome, Setting
from fedmoments.errors import InputError
from fedmoments.provenance import code_of
from fedmoments.samples import Split
from fedmoments.samples.features import Features
from fedmoments.study.memory import Memory, identity_of
from fedmoments.study.simulation.fit import Fit
from fedmoments.study.simulation.measuring import Federation
from fedmoments.study.simulation.methods import Method, choose_methods, standard_heads
from fedmoments.study.simulation.points import (
    Point,
    Sweeps,
    federation_of,
    is_sketched,
    leaves_map,
    make_split,
    methods_in,
    settings_of,
)

__all__ = ["Held", "Progress", "Steps", "Sweep", "Unit", "plan_sweep", "standard_heads"]


#: Methods that share a federation: whether they need scatter sketches, and whether a rule chooses their map.
KINDS = ((False, False), (False, True), (True, False), (True, True))
#: Called with (steps done, steps in all, what is being done).
Progress = Callable[[int, int, str], None]


@dataclass(frozen=True, eq=False)
class Held:
    """One setting and seed: its split, its federation, and what runs in it.

    Heads on scatter sketches are a federation of their own, as they are in the field: their means are rounded. So are
    those that leave the public map to a rule.

    Parameters
    ----------
    setting, seed
        Where it stands.
    split
        Who holds what, before anything is withheld.
    federation, methods
        What is fitted from it.
    is_first
        Whether it is the setting and seed that is looked at closer, and whose classifiers are saved.
    """

    setting: Point
    seed: int
    split: Split
    federation: Federation
    methods: Mapping[str, Method]
    is_first: bool
    memory: Memory | None = None
    say: Callable[[str], None] = field(default=lambda _: None)

    def outcomes(self) -> dict[str, Outcome]:
        """Return what every method gave, remembered or found now."""
        outcomes = {}
        for name, method in self.methods.items():
            self.say(f"{self.setting.split}, seed {self.seed}, {name}")
            outcomes[name] = self._outcome(name, method)
        return outcomes

    def fits(self) -> dict[str, Fit]:
        """Return the fits that could be made, by name: those that :meth:`outcomes` tells of."""
        every = {name: self.federation.fit(method) for name, method in self.methods.items()}
        return {name: fit for name, fit in every.items() if fit.classifier is not None}

    def _outcome(self, name: str, method: Method) -> Outcome:
        """Return what was found before, or find it now and remember it unless it failed: more memory may change that.

        Who holds what is part of the key as it is, not as it was requested: whoever made the split. Where the
        classifier is looked at, what is remembered counts only if it is of the same classifier: noise is drawn anew.
        """
        if self.memory is None:
            return self._found_now(method)
        key = ["outcome", self.setting.to_dict(), self.federation.split.digest(), name, identity_of(method), self.seed]
        key += [current_precision()] if is_single() else []
        key.append(code_of(type(self.federation.protection.agreed.mode)))
        known = self.memory.find(key, Outcome)
        if known is not None and (not self.is_first or self._is_of(known, method)):
            self.memory.found += 1
            return known
        outcome = self._found_now(method)
        if outcome.reason is None:
            self.memory.keep(key, outcome)
        return outcome

    def _found_now(self, method: Method) -> Outcome:
        outcome = self.federation.outcome(method)
        return replace(outcome, digest=self.federation.fit(method).digest) if self.is_first else outcome

    def _is_of(self, known: Outcome, method: Method) -> bool:
        """Say whether an outcome is of the classifier that is looked at; one that nobody looked at has no digest."""
        fit = self.federation.fit(method)
        return known.digest == fit.digest if known.digest else known.hits == fit.outcome.hits


@dataclass(frozen=True)
class Unit:
    """One federation of a sweep: a seed, settings that share what is measured, and which kind of method runs in it."""

    seed: int
    common: Point
    settings: tuple[Point, ...]
    kind: tuple[bool, bool]


@dataclass(frozen=True, eq=False)
class Sweep:
    """All settings and seeds, federation by federation (:class:`Unit`)."""

    features: Features
    methods: Mapping[str, Method]
    settings: tuple[Point, ...]
    budgets: tuple[str, ...]
    seeds: range
    memory_limit: float
    memory: Memory | None = None
    progress: Progress | None = None
    splits: dict[tuple[int | None, str], Split] = field(default_factory=dict)
    looks_closer: bool = False
    latest: dict[tuple[int | None, str, int], Split] = field(default_factory=dict)

    def units(self) -> list[Unit]:
        """Return all federations; settings that differ in their shrinkage alone share one."""
        units: list[Unit] = []
        for clients, scheme in {(s.clients, s.split): None for s in self.settings}:
            alike: dict[Point, list[Point]] = {}
            for setting in self.settings:
                if (setting.clients, setting.split) == (clients, scheme):
                    alike.setdefault(replace(setting, shrinkage=None), []).append(setting)
            for seed, (common, several), kind in product(self.seeds, alike.items(), KINDS):
                if self._methods_in(common, kind):
                    units.append(Unit(seed, common, tuple(several), kind))
        return units

    def steps(self) -> "Steps":
        """Return what tells progress: a step for every setting, seed and method."""
        return Steps(self.progress, sum(len(self.methods_in(setting)) for setting in self.settings) * len(self.seeds))

    def held(self, unit: Unit, say: Callable[[str], None] = lambda _: None) -> Iterator[Held]:
        """Yield the settings of a federation, which is not measured yet."""
        split, mine = self._split_of(unit), list(self._methods_in(unit.common, unit.kind).values())
        limit = self.memory_limit
        federation = federation_of(self.features, split, mine, unit.common, seed=unit.seed, memory_limit=limit)
        for setting in unit.settings:
            first = self.is_looked_at(unit) and self.is_first(setting)
            methods = self._methods_in(setting, unit.kind)
            yield Held(setting, unit.seed, split, federation, methods, first, self.memory, say)

    def _split_of(self, unit: Unit) -> Split:
        """Return who holds what; the latest split is kept, because federations that share it follow each other."""
        place, seed = (unit.common.clients, unit.common.split or ""), unit.seed
        if seed == self.seeds[0]:
            return self.splits[place]
        if (*place, seed) not in self.latest:
            self.latest.clear()
            self.latest[*place, seed] = make_split(self.features, *place, seed=seed)
        return self.latest[*place, seed]

    def is_looked_at(self, unit: Unit) -> bool:
        """Say whether a federation is looked at closer."""
        first = unit.seed == self.seeds[0] and any(self.is_first(setting) for setting in unit.settings)
        return self.looks_closer and first

    def apart(self) -> "Sweep":
        """Return the sweep for another process: what is known goes along, progress is told here."""
        memory = self.memory.apart() if self.memory is not None else None
        return replace(self, memory=memory, progress=None, latest={})

    def _methods_in(self, setting: Point, kind: tuple[bool, bool]) -> dict[str, Method]:
        """Return what runs in one federation of a setting: with sketches or not, behind the advised map or not."""
        advised = self.features.advised_map is not None
        return {
            name: method
            for name, method in self.methods_in(setting).items()
            if (is_sketched(method), advised and leaves_map(method)) == kind
        }

    def methods_in(self, setting: Point) -> dict[str, Method]:
        """Return what runs in a setting."""
        return methods_in(setting, self.methods, self.budgets)

    def is_first(self, setting: Setting) -> bool:
        """Say whether a setting is the first one, whatever its budget, or that with the first budget."""
        first = replace(self.settings[0], budget=None)
        return setting.budget in (None, *self.budgets[:1]) and replace(setting, budget=None) == first


@dataclass(eq=False)
class Steps:
    """Tells progress."""

    progress: Progress | None
    steps: int
    done: int = 0

    def __call__(self, what: str) -> None:
        if self.progress:
            self.progress(self.done, self.steps, what)
        self.done += 1

    def end(self) -> None:
        if self.progress:
            self.progress(self.steps, self.steps, "done")


def plan_sweep(
    features: Features,
    heads: Iterable[str | Method],
    sweeps: Sweeps,
    *,
    seeds: int,
    first_seed: int,
    hyper: Mapping[str, Mapping[str, Any]] | None,
    memory_limit: float,
    memory: Memory | None,
    progress: Progress | None,
    looks_closer: bool = False,
) -> Sweep:
    """Return the sweep of :func:`~fedmoments.study.simulation.simulate`, whose parameters these are, checked.

    A split that is impossible must show before hours of work: those of the first seed are made here. With
    ``looks_closer``, whoever runs the sweep looks at the fits of the first setting and seed: they are made even where
    outcomes are remembered.
    """
    methods = choose_methods(heads, hyper or {})
    if seeds < 1:
        raise InputError(f"seeds must be 1 or more, not {seeds}")
    settings = settings_of(methods, sweeps)
    for setting in settings:
        make_projection(setting.projection, features.dim, first_seed)
        plan_of(setting.budget, n_classes=features.n_classes, dim=features.dim, projection=setting.projection)
    places = {(s.clients, s.split): None for s in settings}
    first = {place: make_split(features, *place, seed=first_seed) for place in places}
    every, budgets = range(first_seed, first_seed + seeds), tuple(sweeps.get("budgets", ()))
    return Sweep(features, methods, settings, budgets, every, memory_limit, memory, progress, first, looks_closer)
