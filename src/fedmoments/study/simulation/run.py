"""Whole federations for every setting, seed and head: one call, one table."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Unpack

from fedmoments.core.observations import Report
from fedmoments.samples.features import Features
from fedmoments.study.memory import Memory
from fedmoments.study.simulation.methods import Method, standard_heads
from fedmoments.study.simulation.points import Sweeps
from fedmoments.study.simulation.sweep import Progress, Table, plan_sweep

__all__ = ["simulate", "standard_heads"]


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
    **sweeps: Unpack[Sweeps],
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
        Called before every step, and at the end.
    **sweeps
        Values to sweep: clients, splits, means_per_client, shrinkages, projections, protections and budgets
        (:class:`~fedmoments.study.simulation.points.Sweeps`).

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
        progress=progress,
    )
    table = Table(sweep)
    for held in sweep:
        table.add(held)
    return replace(table.report(), seconds=time.perf_counter() - start)
