"""Personalisation without training at all clients of a simulated federation: one table over heads and variants."""

import statistics as plain_statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

import fedmoments
from fedmoments.samples.splits.numbers import CLIENTS, finds_clients
from fedmoments.settings.study import StudySettings
from fedmoments.study.checks import check_study
from fedmoments.study.jobs.encoding import Progress, encode_data
from fedmoments.study.personal import PersonalResult, PersonalRow, simulate_personal
from fedmoments.study.simulation.methods import all_names
from fedmoments.study.simulation.points import make_split

__all__ = ["simulate_personalisation"]


def simulate_personalisation(
    config: StudySettings,
    *,
    betas: Sequence[float | str] = ("auto",),
    held_out: float = 0.0,
    command: str = "",
    cache_dir: Any = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Simulate what personalisation brings, for all numbers of clients, splits, heads and seeds of a job.

    Parameters
    ----------
    config
        Data, encoder, heads, clients, splits and seeds.
    betas, held_out
        As in :func:`fedmoments.study.personal.simulate_personal`.
    command
        What the user typed.
    cache_dir, progress
        Of the feature cache and of what is being done, as in :func:`fedmoments.study.jobs.run_job`.

    Returns
    -------
    dict
        Ready for JSON: what was run, and in ``personal`` a row for every setting, head and variant, with means over
        seeds and the figures of each.
    """
    check_study(config)
    encoded = encode_data(config, cache_dir=cache_dir, progress=progress)
    config = replace(config, heads=all_names(config.heads), encoder=encoded.encoder.name)
    rows: list[dict[str, Any]] = []
    for scheme in config.splits:
        for clients in config.clients or (None if finds_clients(scheme) else CLIENTS,):
            results = [
                simulate_personal(
                    encoded.features,
                    make_split(encoded.features, clients, scheme, seed),
                    config.heads,
                    betas=betas,
                    seed=seed,
                    held_out=held_out,
                    hyper=config.hyper,
                    memory_limit=config.memory_limit * 1e9,
                    progress=progress,
                )
                for seed in range(config.seed, config.seed + config.seeds)
            ]
            rows += _means({"clients": clients, "split": scheme}, results)
    return {
        "format": 1,
        "version": fedmoments.__version__,
        "command": command,
        "data": encoded.describe(),
        "config": config.to_dict(),
        "personal": {"betas": [str(beta) for beta in betas], "held_out": held_out, "rows": rows},
    }


def _means(setting: Mapping[str, Any], results: Sequence[PersonalResult]) -> list[dict[str, Any]]:
    """Return a row for every head and variant of one setting: means over seeds, and each seed."""
    rows = []
    for place in range(len(results[0].rows)):
        found = [result.rows[place] for result in results]
        seeds = [
            {"seed": result.seed, "tested_clients": result.clients, "tests": result.samples, **row.to_dict()}
            for result, row in zip(results, found, strict=True)
        ]
        for each in seeds:
            del each["head"], each["variant"]
        figures = {name: _mean(found, name) for name in ("accuracy", "client_accuracy", "gains", "losses")}
        values = [row.accuracy for row in found if row.accuracy is not None]
        spread = plain_statistics.stdev(values) if len(values) > 1 else None
        reason = next((row.reason for row in found if row.reason), None)
        about = {"head": found[0].head, "variant": found[0].variant, **setting}
        rows.append({**about, **figures, "spread": spread, "reason": reason, "seeds": seeds})
    return rows


def _mean(rows: Sequence[PersonalRow], name: str) -> float | None:
    values = [getattr(row, name) for row in rows]
    return None if any(value is None for value in values) else float(np.mean(values))
