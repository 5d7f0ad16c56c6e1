"""The loops of a sweep: splits and seeds outside, so that a federation is measured once for all shrinkages and heads.

Whoever runs a sweep gets one federation after the other, not measured yet: what looks at it in rounds measures it, what
looks closer finds the fits that the table shows. One federation is in memory at a time.

Whole federations for every setting, seed and head: one call, one table.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from fedmoments.core.costs.sketches import plan_of
from fedmoments.core.heads import Head
from fedmoments.core.notebook import notebook_progress
from fedmoments.core.observations import Outcome, Report, Row, Setting
from fedmoments.core.observations.codec import from_plain
from fedmoments.core.observations.parts import Data, SplitReport
from fedmoments.core.statistics import SketchPlan
from fedmoments.errors import InputError
from fedmoments.samples import Split
from fedmoments.samples.features import Features
from fedmoments.study.memory import Memory, identity_of
from fedmoments.study.simulation.fit import Fit
from fedmoments.study.simulation.measuring import Federation
from fedmoments.study.simulation.methods import Method, choose_methods, make_projection, standard_heads
from fedmoments.study.simulation.payload import sent_by
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
from fedmoments.study.tracking import Callback, call_all, tracking

__all__ = ["Held", "Progress", "Sweep", "Table", "plan_sweep", "simulate", "split_report", "standard_heads"]


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

        Who holds what is part of the key as it is, not as it was asked for: whoever made the split. Where the
        classifier is looked at, what is remembered counts only if it is of the same classifier: noise is drawn anew.
        """
        if self.memory is None:
            return self._found_now(method)
        key = ["outcome", self.setting.to_dict(), self.federation.split.digest(), name, identity_of(method), self.seed]
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


@dataclass(frozen=True, eq=False)
class Sweep:
    """All settings and seeds; iterating yields a :class:`Held` for each."""

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

    def __iter__(self) -> Iterator[Held]:
        """Yield every setting with its federation, keeping one federation in memory at a time."""
        say = _Steps(self.progress, sum(len(self.methods_in(setting)) for setting in self.settings) * len(self.seeds))
        for clients, scheme in {(s.clients, s.split): None for s in self.settings}:
            here = [s for s in self.settings if (s.clients, s.split) == (clients, scheme)]
            for seed in self.seeds:
                first = seed == self.seeds[0]
                split = self.splits[clients, scheme] if first else make_split(self.features, clients, scheme, seed)
                yield from self._held(split, here, seed, say)
        say.end()

    def _held(self, split: Split, settings: list[Point], seed: int, say: "_Steps") -> Iterator[Held]:
        """Yield the settings of one split; those that differ in their shrinkage alone share a federation."""
        alike: dict[Point, list[Point]] = {}
        for setting in settings:
            alike.setdefault(replace(setting, shrinkage=None), []).append(setting)
        for (common, several), kind in product(alike.items(), KINDS):
            mine = self._methods_in(common, kind)
            if not mine:
                continue
            limit = self.memory_limit
            federation = federation_of(self.features, split, list(mine.values()), common, seed=seed, memory_limit=limit)
            for setting in several:
                first = self.looks_closer and self.is_first(setting) and seed == self.seeds[0]
                methods = self._methods_in(setting, kind)
                yield Held(setting, seed, split, federation, methods, first, self.memory, say)

    def _methods_in(self, setting: Point, kind: tuple[bool, bool]) -> dict[str, Method]:
        """Return what runs in one federation of a setting: with sketches or not, behind the advised map or not."""
        advised = self.features.advised_map is not None
        return {
            name: each
            for name, each in self.methods_in(setting).items()
            if (is_sketched(each), advised and leaves_map(each)) == kind
        }

    def methods_in(self, setting: Point) -> dict[str, Method]:
        """Return what runs in a setting."""
        return methods_in(setting, self.methods, self.budgets)

    def is_first(self, setting: Setting) -> bool:
        """Say whether a setting is the first one, whatever its budget, or that with the first budget."""
        first = replace(self.settings[0], budget=None)
        return setting.budget in (None, *self.budgets[:1]) and replace(setting, budget=None) == first


@dataclass(eq=False)
class _Steps:
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


class Table:
    """Gathers the outcomes of a sweep into rows, one for every setting and method."""

    def __init__(self, sweep: Sweep, callbacks: Sequence[Callback] = ()) -> None:
        self._sweep, self._callbacks = sweep, callbacks
        self._outcomes: dict[tuple[Point, str], list[Outcome]] = {}
        self._splits: dict[tuple[int | None, str, int], SplitReport] = {}

    def add(self, held: Held) -> None:
        """Fit and test everything that runs in a federation."""
        setting = held.setting
        place = (setting.clients, setting.split, held.seed)
        if place not in self._splits:
            self._splits[place] = split_report(held.split, held.seed)
        for name, outcome in held.outcomes().items():
            self._outcomes.setdefault((setting, name), []).append(outcome)
            row = _row(name, held.methods[name], setting, [outcome], self._sweep.features.n_classes)
            call_all(self._callbacks, row.observations)

    def report(self) -> Report:
        """Return the table, once everything was added."""
        sweep = self._sweep
        rows = tuple(
            _row(name, method, setting, self._outcomes[setting, name], sweep.features.n_classes)
            for setting in sweep.settings
            for name, method in sweep.methods_in(setting).items()
        )
        return Report(rows, Data(**sweep.features.summary()), len(sweep.seeds), tuple(self._splits.values()))


def split_report(split: Split, seed: int) -> SplitReport:
    """Return the sizes of a split."""
    return from_plain(SplitReport, {**split.report(), "seed": seed})


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


def _row(name: str, method: Method, setting: Point, outcomes: list[Outcome], n_classes: int) -> Row:
    plan = SketchPlan(setting.budget, rows="automatic").settled(n_classes) if setting.budget else None
    sends = str(sent_by(method, setting.means_per_client, plan)) if isinstance(method, Head) else method.sends
    baseline = not isinstance(method, Head)
    return Row(name, setting, sends, method.settings(), tuple(outcomes), baseline=baseline)


def simulate(
    features: Features,
    heads: Iterable[str | Method],
    *,
    seeds: int = 5,
    first_seed: int = 0,
    hyper: Mapping[str, Mapping[str, Any]] | None = None,
    memory_limit: float = 4e9,
    memory: Memory | None = None,
    progress: Progress | None = None,
    callbacks: Sequence[Callback] = (),
    **sweeps: Sequence[Any],
) -> Report:
    """Run a whole federation for every setting, seed and head.

    Parameters
    ----------
    features
        Training samples, which are split over clients, and test samples.
    heads
        Heads, and baselines to compare them with: names, or objects such as ``MyHead()``.
    seeds, first_seed
        How many, and the first of them: first_seed, first_seed + 1, …
    hyper
        Name -> hyper-parameters.
    memory_limit
        Bytes that the statistics of one head may take; a head that needs more is reported, not fitted.
    memory
        What was found before; what is found now is added to it.
    progress
        Called before every step, and at the end; a notebook shows a bar by default.
    callbacks
        Called with every result as it is found: see :class:`~fedmoments.study.tracking.Callback`.
    **sweeps
        Values to sweep; all combinations are run. ``clients``: numbers of clients; without any 100, or what the data
        say. ``splits``: schemes, as they are typed. ``means_per_client``: means that a client sends of a class.
        ``shrinkages``: for the heads that have one; None leaves each head's own. ``projections``: dimensions behind a
        public random projection, drawn from the seed; None takes features as they are. ``protections``: what clients,
        sums and server do for privacy and against poison. ``budgets``: bytes that a client's rows may take, swept over
        heads on scatter sketches; all others run once, without one.

    Returns
    -------
    Report
        One row for every setting and head. A head that cannot be fitted in a setting has a row with the reason.

    Raises
    ------
    InputError
        When a name, a number or a split is wrong: before anything is measured.

    Examples
    --------
    >>> import numpy as np
    >>> from fedmoments.samples.features import Features, Samples
    >>> y = np.arange(200) % 4
    >>> X = np.eye(4)[y] + np.random.default_rng(0).normal(scale=0.1, size=(200, 4))
    >>> features = Features("toy", 4, train=Samples(X[:120], y[:120]), test=Samples(X[120:], y[120:]))
    >>> report = simulate(features, ["fedncm", "fedcof"], clients=[5, 10], splits=["iid"], seeds=2)
    >>> report.results.pivot("head", "clients").text("fedcof", 10)
    '100.00 ± 0.00'
    """
    start = time.perf_counter()
    sweep = plan_sweep(
        features,
        heads,
        sweeps,
        seeds=seeds,
        first_seed=first_seed,
        hyper=hyper,
        memory_limit=memory_limit,
        memory=memory,
        progress=progress or notebook_progress("simulating"),
    )
    table = Table(sweep, callbacks)
    with tracking(callbacks, {"data": features.name, "heads": list(sweep.methods), "seeds": seeds, **sweeps}):
        for held in sweep:
            table.add(held)
        report = replace(table.report(), seconds=time.perf_counter() - start)
        for callback in callbacks:
            callback.on_end(report, ())
    return report
