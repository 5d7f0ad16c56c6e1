"""Sweeps: all combinations of clients, splits, means, projections, protections and shrinkages, over seeds."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import product
from typing import Any, Protocol

from fedmoments.api import spec_for
from fedmoments.data import Split, parse_split
from fedmoments.errors import InputError
from fedmoments.gaussian import Shrinkage
from fedmoments.heads import Head
from fedmoments.privacy.protection import Protection
from fedmoments.simulation.budgets import plan_of
from fedmoments.simulation.features import Features
from fedmoments.simulation.measuring import Federation, sent_by
from fedmoments.simulation.methods import Method, choose_heads, choose_methods, standard_heads
from fedmoments.simulation.projection import make_projection
from fedmoments.simulation.results import Outcome, Row, Setting, SimulationResult
from fedmoments.statistics import SketchPlan

__all__ = [
    "CLIENTS",
    "OutcomeMemory",
    "Progress",
    "choose_heads",
    "federation_of",
    "finds_clients",
    "is_sketched",
    "make_split",
    "methods_in",
    "simulate",
    "standard_heads",
]

#: Called with (steps done, steps in all, what is being done).
Progress = Callable[[int, int, str], None]


class OutcomeMemory(Protocol):
    """What remembers outcomes, so that an interrupted sweep does not repeat them."""

    def find(self, setting: Setting, head: str, hyper: dict[str, Any], seed: int) -> Outcome | None:
        """Return an outcome that was found before, or None."""

    def keep(self, setting: Setting, head: str, hyper: dict[str, Any], outcome: Outcome) -> None:
        """Remember an outcome."""


#: Number of clients when none is given and the data do not say it.
CLIENTS = 100
#: Splits that find their clients in the data.
NATURAL = ("domain", "id")


def simulate(
    features: Features,
    heads: Iterable[str],
    *,
    clients: Sequence[int] = (),
    splits: Sequence[str] = ("dirichlet:0.1",),
    shrinkages: Sequence[str | None] = (None,),
    means_per_client: Sequence[int] = (1,),
    projections: Sequence[int | None] = (None,),
    protections: Sequence[Protection] = (Protection(),),
    budgets: Sequence[str] = (),
    seeds: int = 5,
    first_seed: int = 0,
    hyper: Mapping[str, Mapping[str, Any]] | None = None,
    memory_limit: float = 4e9,
    memory: OutcomeMemory | None = None,
    progress: Progress | None = None,
) -> SimulationResult:
    """Run a whole federation for every setting, seed and head.

    Parameters
    ----------
    features
        Training samples, which are split over clients, and test samples.
    heads
        Names of heads, and of baselines to compare them with.
    clients, splits, shrinkages, means_per_client, projections, protections
        Values to sweep; all combinations are run. No number of clients means 100, or what the data say. A shrinkage
        applies to the heads that have it as a hyper-parameter; None leaves each head's own. A projection is the number
        of dimensions behind a public random one, drawn from the seed of the run; None takes features as they are.
        Masks and the noise of a protection are drawn anew every time.
    budgets
        Bytes that a client's rows may take, swept over the heads on scatter sketches: ``means/2``, ``50KB``
        (:mod:`fedmoments.statistics.sketch_plan`). All other heads run once, without one.
    seeds, first_seed
        How many, and the first of them: first_seed, first_seed + 1, …
    hyper
        Name -> hyper-parameters.
    memory_limit
        Bytes that the statistics of one head may take; a head that needs more is reported, not fitted.
    progress
        Called before every step, and at the end.

    Returns
    -------
    SimulationResult
        One row for every setting and head. A head that cannot be fitted in a setting has a row with the reason.

    Raises
    ------
    InputError
        When a name, a number or a split is wrong: before anything is measured.
    """
    start = time.perf_counter()
    chosen = choose_methods(heads, hyper or {})
    if seeds < 1:
        raise InputError(f"seeds must be 1 or more, not {seeds}")
    settings = _settings(
        clients, splits, means_per_client, shrinkages=shrinkages, projections=projections, protections=protections
    )
    settings = _with_budgets(settings, budgets, chosen)
    for budget, dimensions in product(budgets, projections):
        plan_of(budget, n_classes=features.n_classes, dim=features.dim, projection=dimensions)
    for dimensions in projections:
        make_projection(dimensions, features.dim, first_seed)
    for number, split in {(s.clients, s.split): None for s in settings}:
        make_split(
            features, number, split, seed=first_seed
        )  # a split that is impossible must show before hours of work
    each_seed = range(first_seed, first_seed + seeds)
    sweep = _Sweep(features, chosen, tuple(settings), tuple(budgets), each_seed, memory_limit, memory, progress)
    outcomes, reports = sweep.run()
    rows = [
        _row(name, method, setting, outcomes[setting, name])
        for setting in settings
        for name, method in methods_in(setting, chosen, budgets).items()
    ]
    return SimulationResult(features.summary(), tuple(reports), tuple(rows), time.perf_counter() - start)


@dataclass(frozen=True)
class _Sweep:
    """The loops: splits and seeds outside, so that a federation is measured once for all shrinkages and heads."""

    features: Features
    methods: Mapping[str, Method]
    settings: tuple[Setting, ...]
    budgets: tuple[str, ...]
    seeds: range
    memory_limit: float
    memory: OutcomeMemory | None
    progress: Progress | None

    def run(self) -> tuple[dict[tuple[Setting, str], list[Outcome]], list[dict[str, Any]]]:
        """Return the outcomes of every setting and head, by seed, and a report on every split."""
        outcomes: dict[tuple[Setting, str], list[Outcome]] = {}
        reports: list[dict[str, Any]] = []
        steps = len(self.seeds) * sum(len(methods_in(s, self.methods, self.budgets)) for s in self.settings)
        done = 0
        for clients, scheme in {(s.clients, s.split): None for s in self.settings}:
            here = [s for s in self.settings if (s.clients, s.split) == (clients, scheme)]
            for seed in self.seeds:
                split = make_split(self.features, clients, scheme, seed)
                reports.append({"seed": seed, **split.report()})
                for setting, federation in self._federations(split, here, seed):
                    for name, method in methods_in(setting, self.methods, self.budgets).items():
                        if self.progress:
                            self.progress(done, steps, f"{scheme}, seed {seed}, {name}")
                        outcome = self._outcome(setting, federation, name, method)
                        outcomes.setdefault((setting, name), []).append(outcome)
                        done += 1
        if self.progress:
            self.progress(steps, steps, "done")
        return outcomes, reports

    def _outcome(self, setting: Setting, federation: Federation, name: str, method: Method) -> Outcome:
        """Return what was found before, or find it now and remember it."""
        known = self.memory.find(setting, name, method.settings(), federation.seed) if self.memory is not None else None
        if known is not None:
            return known
        outcome = federation.try_head(method) if isinstance(method, Head) else federation.try_baseline(method)
        if self.memory is not None:
            self.memory.keep(setting, name, method.settings(), outcome)
        return outcome

    def _federations(self, split: Split, settings: list[Setting], seed: int) -> Iterable[tuple[Setting, Federation]]:
        """Yield every setting with its federation, keeping one federation in memory at a time."""
        alike: dict[Setting, list[Setting]] = {}
        for setting in settings:
            alike.setdefault(replace(setting, shrinkage=None), []).append(setting)
        for common, several in alike.items():
            federation = federation_of(
                self.features,
                split,
                list(methods_in(common, self.methods, self.budgets).values()),
                common,
                seed=seed,
                memory_limit=self.memory_limit,
            )
            for setting in several:
                yield setting, federation


def federation_of(
    features: Features, split: Split, methods: Sequence[Method], setting: Setting, *, seed: int, **more: Any
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
    >>> from fedmoments.simulation.features import Samples
    >>> part = Samples(np.eye(64)[np.arange(40) % 2], np.arange(40) % 2)
    >>> toy = Features("toy", 2, part, part)
    >>> setting = Setting(4, "iid", budget="means/8")
    >>> federation_of(toy, make_split(toy, 4, "iid", seed=0), [], setting, seed=0).dim
    9
    """
    plan, dimensions = plan_of(
        setting.budget, n_classes=features.n_classes, dim=features.dim, projection=setting.projection
    )
    return Federation(
        features,
        split,
        methods,
        feature_map=make_projection(dimensions, features.dim, seed),
        means_per_client=setting.means_per_client,
        seed=seed,
        protection=setting.protection,
        plan=replace(plan, spare=setting.protection.sketch_spare),
        **more,
    )


def methods_in(setting: Setting, methods: Mapping[str, Method], budgets: Sequence[str]) -> dict[str, Method]:
    """Return what runs in a setting: where budgets are swept, heads on sketches in these, and all others without.

    Examples
    --------
    >>> both = choose_methods(["fedcof", "sketch"], {})
    >>> list(methods_in(Setting(10, "iid"), both, ["means"])), list(methods_in(Setting(10, "iid"), both, []))
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
    >>> [is_sketched(method) for method in choose_methods(["fedcof", "sketch"], {}).values()]
    [False, True]
    """
    return isinstance(method, Head) and method.needs.has_sketch


def _with_budgets(settings: list[Setting], budgets: Sequence[str], methods: Mapping[str, Method]) -> list[Setting]:
    """Return the settings with every budget besides, as far as anything runs in them."""
    if budgets and not any(is_sketched(method) for method in methods.values()):
        spec_for(*(method for method in methods.values() if isinstance(method, Head)), budget=budgets[0])  # refuses
    every = [replace(setting, budget=budget) for budget in (None, *budgets) for setting in settings]
    return [setting for setting in every if methods_in(setting, methods, budgets)]


def _with_shrinkage(methods: Mapping[str, Method], shrinkage: str | None) -> dict[str, Method]:
    """Return heads with the shrinkage of a setting, if they have one; baselines are not swept."""
    if shrinkage is None:
        return dict(methods)
    change: dict[str, Any] = {"shrinkage": shrinkage}
    return {name: replace(method, **change) if _shrinks(method) else method for name, method in methods.items()}


def _shrinks(method: Method) -> bool:
    return isinstance(method, Head) and "shrinkage" in {field.name for field in fields(method)}


def _row(name: str, method: Method, setting: Setting, outcomes: list[Outcome]) -> Row:
    plan = SketchPlan(setting.budget) if setting.budget else None
    sends = str(sent_by(method, setting.means_per_client, plan)) if isinstance(method, Head) else method.sends
    baseline = not isinstance(method, Head)
    return Row(name, setting, sends, method.settings(), tuple(outcomes), baseline=baseline)


def _settings(
    clients: Sequence[int],
    splits: Sequence[str],
    means: Sequence[int],
    *,
    shrinkages: Sequence[str | None],
    projections: Sequence[int | None],
    protections: Sequence[Protection],
) -> list[Setting]:
    for word in shrinkages:
        if word is not None:
            Shrinkage.parse(word)
    for several in means:
        if several < 1:
            raise InputError(f"means per client must be 1 or more, not {several}")
    found: dict[Setting, None] = {}
    for scheme in splits:
        numbers: Sequence[int | None] = clients or [None if finds_clients(scheme) else CLIENTS]
        for number, count, dimensions, shield, word in product(numbers, means, projections, protections, shrinkages):
            found[Setting(number, scheme, count, word, dimensions, shield)] = None
    if not found:
        raise InputError(
            "there is nothing to simulate: give at least one split, shrinkage, projection, protection and "
            "number of means"
        )
    return list(found)


def finds_clients(scheme: str) -> bool:
    """Return whether a scheme says itself how many clients there are."""
    return parse_split(scheme).scheme.name in NATURAL or "num_partitions=" in scheme or "NaturalId" in scheme


def make_split(features: Features, clients: int | None, scheme: str, seed: int) -> Split:
    """Return the split of the training samples that a scheme makes for a seed.

    Examples
    --------
    >>> import numpy as np
    >>> from fedmoments.simulation.features import Samples
    >>> part = Samples(np.ones((4, 1)), np.array([0, 1, 0, 1]))
    >>> make_split(Features("toy", 2, part, part), 2, "iid", seed=0).sizes
    array([2, 2])
    """
    return parse_split(scheme).apply(
        features.train.y, n_clients=clients, seed=seed, domains=features.domains, ids=features.ids
    )
