"""Whole federations for every setting, seed and head: one call, one table.

Federations do not know of each other, so that a crew of processes or a cluster may work on them. The one that is looked
at closer stays in this process: its classifiers are saved.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

from fedmoments.core.heads import Head
from fedmoments.core.notebook import notebook_progress
from fedmoments.core.observations import Outcome, Report, Row
from fedmoments.core.observations.parts import Data, SplitReport
from fedmoments.core.statistics import SketchPlan
from fedmoments.samples.features import Features
from fedmoments.study.crew import Crew, crew_of
from fedmoments.study.memory import Memory
from fedmoments.study.simulation.methods import Method
from fedmoments.study.simulation.payload import sent_by
from fedmoments.study.simulation.points import Point
from fedmoments.study.simulation.sweep import Held, Progress, Sweep, Unit, plan_sweep
from fedmoments.study.tracking import Callback, call_all, tracking

__all__ = ["Table", "find_all", "simulate"]

#: What else is found in a federation beside the table.
Look = Callable[[Held], Sequence[Any]]


class Table:
    """Gathers the outcomes of a sweep into rows, one for every setting and method."""

    def __init__(self, sweep: Sweep, callbacks: Sequence[Callback] = ()) -> None:
        self._sweep, self._callbacks = sweep, callbacks
        self._outcomes: dict[tuple[Point, str], dict[int, Outcome]] = {}
        self._splits: dict[tuple[Any, ...], SplitReport] = {}

    def add(self, held: Held) -> None:
        """Fit and test everything that runs in a federation."""
        setting = held.setting
        place = (setting.clients, setting.split, held.seed)
        if place not in self._splits:
            self._splits[place] = held.split.report(held.seed)
        for name, outcome in held.outcomes().items():
            self._keep(setting, name, {held.seed: outcome})

    def found(self) -> tuple[dict[tuple[Point, str], dict[int, Outcome]], dict[tuple[Any, ...], SplitReport]]:
        """Return what was added, for the table of another process (:meth:`take`)."""
        return self._outcomes, self._splits

    def take(
        self, outcomes: Mapping[tuple[Point, str], Mapping[int, Outcome]], splits: Mapping[tuple[Any, ...], SplitReport]
    ) -> None:
        """Add what another process found."""
        for (setting, name), by_seed in outcomes.items():
            self._keep(setting, name, by_seed)
        self._splits.update(splits)

    def _keep(self, setting: Point, name: str, by_seed: Mapping[int, Outcome]) -> None:
        """Keep outcomes of a method, and tell whoever follows."""
        self._outcomes.setdefault((setting, name), {}).update(by_seed)
        if self._callbacks:
            method = self._sweep.methods_in(setting)[name]
            row = _row(name, method, setting, list(by_seed.values()), self._sweep.features.n_classes)
            call_all(self._callbacks, row.observations)

    def report(self) -> Report:
        """Return the table, once everything was added."""
        sweep = self._sweep
        rows = tuple(
            _row(name, method, setting, self._by_seed(setting, name), sweep.features.n_classes)
            for setting in sweep.settings
            for name, method in sweep.methods_in(setting).items()
        )
        places = {(unit.common.clients, unit.common.split, unit.seed): None for unit in sweep.units()}
        splits = tuple(self._splits[place] for place in places)
        return Report(rows, Data(**sweep.features.summary()), len(sweep.seeds), splits)

    def _by_seed(self, setting: Point, name: str) -> list[Outcome]:
        outcomes = self._outcomes[setting, name]
        return [outcomes[seed] for seed in self._sweep.seeds]


def _row(name: str, method: Method, setting: Point, outcomes: list[Outcome], n_classes: int) -> Row:
    plan = SketchPlan(setting.budget, rows="automatic").settled(n_classes) if setting.budget else None
    sends = str(sent_by(method, setting.means_per_client, plan)) if isinstance(method, Head) else method.sends
    baseline = not isinstance(method, Head)
    return Row(name, setting, sends, method.settings(), tuple(outcomes), baseline=baseline)


@dataclass(frozen=True, eq=False)
class _Found:
    """What one federation gave, as it travels between processes."""

    outcomes: Mapping[tuple[Point, str], Mapping[int, Outcome]]
    splits: Mapping[tuple[Any, ...], SplitReport]
    looked: list[Any]
    added: Mapping[str, Any]
    reused: int


def _find_unit(common: tuple[Sweep, Look | None], unit: Unit) -> _Found:
    """Fit and test everything in one federation: what a worker does."""
    whole, look = common
    sweep = whole.apart()
    table = Table(sweep)
    looked = list(_add_all(table, sweep.held(unit), sweep, look))
    memory = sweep.memory or Memory(None)
    return _Found(*table.found(), looked, memory.added, memory.found)


def find_all(
    sweep: Sweep,
    crew: Crew,
    look: Look | None = None,
    closer: Callable[[Held], None] | None = None,
    callbacks: Sequence[Callback] = (),
) -> tuple[Table, list[Any]]:
    """Measure every federation of a sweep once; return the table, and what ``look`` gave, in order.

    Parameters
    ----------
    sweep
        What is found.
    crew
        Who works.
    look
        Called with the first setting, of every seed, before it is added to the table; a function of a module, or a
        ``functools.partial`` of one.
    closer
        Called, in this process, with what is looked at closer, after it was added.
    callbacks
        Called, in this process, with every result as it is found here or arrives.
    """
    table, units, say = Table(sweep, callbacks), sweep.units(), sweep.steps()
    mine, sent = list[int](), list[int]()
    for place, unit in enumerate(units):
        (mine if crew.is_alone or sweep.is_looked_at(unit) else sent).append(place)
    looked: dict[int, list[Any]] = {}
    running = crew.start(_find_unit, (sweep.apart(), look), [units[place] for place in sent])
    for place in mine:
        looked[place] = list(_add_all(table, sweep.held(units[place], say), sweep, look, closer))
    for number, arrived in running:
        unit = units[sent[number]]
        looked[sent[number]] = arrived.looked
        _take(table, arrived, sweep.memory)
        for _, name in arrived.outcomes:
            say(f"{unit.common.split}, seed {unit.seed}, {name}")
    say.end()
    return table, [seen for place in sorted(looked) for seen in looked[place]]


def _take(table: Table, arrived: _Found, memory: Memory | None) -> None:
    """Add what a worker found to the table, and to what is remembered."""
    table.take(arrived.outcomes, arrived.splits)
    if memory is not None:
        memory.take(arrived.added, arrived.reused)


def _add_all(
    table: Table,
    several: Iterable[Held],
    sweep: Sweep,
    look: Look | None,
    closer: Callable[[Held], None] | None = None,
) -> Iterable[Any]:
    """Add federations to a table, and yield what ``look`` gives of those of the first setting."""
    for held in several:
        if look and sweep.is_first(held.setting):
            yield from look(held)
        table.add(held)
        if closer and held.is_first:
            closer(held)


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
    jobs: int = 1,
    cluster: str | None = None,
    crew: Crew | None = None,
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
    jobs, cluster
        Processes of this machine that work on settings and seeds, or the address of a Dask scheduler (``tcp://…``,
        ``tls://…``) whose workers do. Results are the same. A script that starts processes guards what it runs by
        ``if __name__ == "__main__":``, as everywhere in Python.
    crew
        Who works, where it is there already (:func:`fedmoments.study.crew.crew_of`).
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
    with tracking(callbacks, {"data": features.name, "heads": list(sweep.methods), "seeds": seeds, **sweeps}):
        with nullcontext(crew) if crew is not None else crew_of(jobs, cluster) as workers:
            table, _ = find_all(sweep, workers, callbacks=callbacks)
        report = replace(table.report(), seconds=time.perf_counter() - start)
        for callback in callbacks:
            callback.on_end(report, ())
    return report
