"""Whole federations for every setting, seed and head: one call, one table."""

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fedmoments.privacy.protection import Protection
from fedmoments.samples.features import Features
from fedmoments.study.memory import Memory
from fedmoments.study.simulation.methods import Method, standard_heads
from fedmoments.study.simulation.results import SimulationResult
from fedmoments.study.simulation.sweep import Progress, Table, plan_sweep

__all__ = ["simulate", "standard_heads"]


def simulate(
    features: Features,
    heads: Iterable[str | Method],
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
    memory: Memory | None = None,
    progress: Progress | None = None,
) -> SimulationResult:
    """Run a whole federation for every setting, seed and head.

    Parameters
    ----------
    features
        Training samples, which are split over clients, and test samples.
    heads
        Heads, and baselines to compare them with: names, or objects such as ``MyHead()``.
    clients, splits, shrinkages, means_per_client, projections, protections
        Values to sweep; all combinations are run. No number of clients means 100, or what the data say. A shrinkage
        applies to the heads that have it as a hyper-parameter; None leaves each head's own. A projection is the number
        of dimensions behind a public random one, drawn from the seed of the run; None takes features as they are.
        Masks and the noise of a protection are drawn anew every time.
    budgets
        Bytes that a client's rows may take, swept over the heads on scatter sketches: ``means/2``, ``50KB``
        (:mod:`fedmoments.core.statistics.sketch_plan`). All other heads run once, without one.
    seeds, first_seed
        How many, and the first of them: first_seed, first_seed + 1, …
    hyper
        Name -> hyper-parameters.
    memory_limit
        Bytes that the statistics of one head may take; a head that needs more is reported, not fitted.
    memory
        What was found before; what is found now is added to it.
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
    sweep = plan_sweep(
        features,
        heads,
        clients=clients,
        splits=splits,
        shrinkages=shrinkages,
        means_per_client=means_per_client,
        projections=projections,
        protections=protections,
        budgets=budgets,
        seeds=seeds,
        first_seed=first_seed,
        hyper=hyper,
        memory_limit=memory_limit,
        memory=memory,
        progress=progress,
    )
    table = Table(sweep)
    for held in sweep:
        table.add(held)
    return table.result(time.perf_counter() - start)
