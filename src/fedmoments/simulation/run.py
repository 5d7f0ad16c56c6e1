"""Sweeps: the Cartesian product of numbers of clients, splits, means per client and shrinkages, over seeds."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import product
from typing import Any, Protocol

from fedmoments.data import Split, parse_split
from fedmoments.errors import InputError
from fedmoments.gaussian import Shrinkage
from fedmoments.heads import Head, head_names, make_head
from fedmoments.simulation.features import Features
from fedmoments.simulation.measuring import Federation, sent_by
from fedmoments.simulation.results import Outcome, Row, Setting, SimulationResult

__all__ = ["OutcomeMemory", "Progress", "choose_heads", "finds_clients", "make_split", "simulate", "standard_heads"]

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


def standard_heads() -> tuple[str, ...]:
    """Return all heads but those with a feature map of their own, which are slow at their papers' sizes.

    Examples
    --------
    >>> "fedcof" in standard_heads(), "fed3r-rf" in standard_heads()
    (True, False)
    """
    return tuple(name for name in head_names() if not make_head(name).has_own_map)


def simulate(
    features: Features,
    heads: Iterable[str],
    *,
    clients: Sequence[int] = (),
    splits: Sequence[str] = ("dirichlet:0.1",),
    shrinkages: Sequence[str | None] = (None,),
    means_per_client: Sequence[int] = (1,),
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
        Names of heads.
    clients, splits, shrinkages, means_per_client
        Values to sweep; all combinations are run. No number of clients means 100, or what the data say. A shrinkage
        applies to the heads that have it as a hyper-parameter; None leaves each head's own.
    seeds, first_seed
        How many, and the first of them: first_seed, first_seed + 1, …
    hyper
        Head name -> hyper-parameters.
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
    chosen = choose_heads(heads, hyper or {})
    if seeds < 1:
        raise InputError(f"seeds must be 1 or more, not {seeds}")
    settings = _settings(clients, splits, means_per_client, shrinkages)
    for number, split in {(s.clients, s.split): None for s in settings}:
        make_split(
            features, number, split, seed=first_seed
        )  # a split that is impossible must show before hours of work
    each_seed = range(first_seed, first_seed + seeds)
    sweep = _Sweep(features, chosen, tuple(settings), each_seed, memory_limit, memory, progress)
    outcomes, reports = sweep.run()
    rows = [
        Row(name, setting, _sends(head, setting), head.settings(), tuple(outcomes[setting, name]))
        for setting in settings
        for name, head in _with_shrinkage(chosen, setting.shrinkage).items()
    ]
    return SimulationResult(features.summary(), tuple(reports), tuple(rows), time.perf_counter() - start)


@dataclass(frozen=True)
class _Sweep:
    """The loops: splits and seeds outside, so that a federation is measured once for all shrinkages and heads."""

    features: Features
    heads: Mapping[str, Head]
    settings: tuple[Setting, ...]
    seeds: range
    memory_limit: float
    memory: OutcomeMemory | None
    progress: Progress | None

    def run(self) -> tuple[dict[tuple[Setting, str], list[Outcome]], list[dict[str, Any]]]:
        """Return the outcomes of every setting and head, by seed, and a report on every split."""
        outcomes: dict[tuple[Setting, str], list[Outcome]] = {}
        reports: list[dict[str, Any]] = []
        steps = len(self.settings) * len(self.seeds) * len(self.heads)
        done = 0
        for clients, scheme in {(s.clients, s.split): None for s in self.settings}:
            here = [s for s in self.settings if (s.clients, s.split) == (clients, scheme)]
            for seed in self.seeds:
                split = make_split(self.features, clients, scheme, seed)
                reports.append({"seed": seed, **split.report()})
                for setting, federation in self._federations(split, here, seed):
                    for name, head in _with_shrinkage(self.heads, setting.shrinkage).items():
                        if self.progress:
                            self.progress(done, steps, f"{scheme}, seed {seed}, {name}")
                        outcome = self._outcome(setting, federation, name, head)
                        outcomes.setdefault((setting, name), []).append(outcome)
                        done += 1
        if self.progress:
            self.progress(steps, steps, "done")
        return outcomes, reports

    def _outcome(self, setting: Setting, federation: Federation, name: str, head: Head) -> Outcome:
        """Return what was found before, or find it now and remember it."""
        if self.memory is None:
            return federation.try_head(head)
        outcome = self.memory.find(setting, name, head.settings(), federation.seed)
        if outcome is None:
            outcome = federation.try_head(head)
            self.memory.keep(setting, name, head.settings(), outcome)
        return outcome

    def _federations(self, split: Split, settings: list[Setting], seed: int) -> Iterable[tuple[Setting, Federation]]:
        """Yield every setting with its federation, keeping one federation in memory at a time."""
        for means in dict.fromkeys(s.means_per_client for s in settings):
            federation = Federation(
                self.features,
                split,
                list(self.heads.values()),
                means_per_client=means,
                seed=seed,
                memory_limit=self.memory_limit,
            )
            for setting in settings:
                if setting.means_per_client == means:
                    yield setting, federation


def choose_heads(names: Iterable[str], hyper: Mapping[str, Mapping[str, Any]]) -> dict[str, Head]:
    """Return heads by name, each with its hyper-parameters.

    Examples
    --------
    >>> choose_heads(["fedncm"], {"fedncm": {"metric": "euclidean"}})
    {'fedncm': NearestMean(metric='euclidean')}
    """
    wanted = list(dict.fromkeys(names))
    if not wanted:
        raise InputError("there is no head to simulate: give at least one")
    for name in hyper:
        if name not in wanted:
            raise InputError(
                f"hyper-parameters are given for '{name}', which is not among the heads: {', '.join(wanted)}"
            )
    return {name: make_head(name, **hyper.get(name, {})) for name in wanted}


def _with_shrinkage(heads: Mapping[str, Head], shrinkage: str | None) -> dict[str, Head]:
    if shrinkage is None:
        return dict(heads)
    shrinks = {name for name, head in heads.items() if "shrinkage" in {field.name for field in fields(head)}}
    change: dict[str, Any] = {"shrinkage": shrinkage}
    return {name: replace(head, **change) if name in shrinks else head for name, head in heads.items()}


def _sends(head: Head, setting: Setting) -> str:
    return str(sent_by(head, setting.means_per_client))


def _settings(
    clients: Sequence[int], splits: Sequence[str], means: Sequence[int], shrinkages: Sequence[str | None]
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
        for number, count, word in product(numbers, means, shrinkages):
            found[Setting(number, scheme, count, word)] = None
    if not found:
        raise InputError("there is nothing to simulate: give at least one split, shrinkage and number of means")
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
