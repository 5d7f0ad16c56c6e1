"""Personalisation without training at all clients of a simulated federation: one table over heads and variants."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from fedmoments.core.observations import Report
from fedmoments.core.observations.personal import Personal, PersonalRow
from fedmoments.samples.splits.numbers import CLIENTS, finds_clients
from fedmoments.settings.study import StudySettings
from fedmoments.study.checks import check_study
from fedmoments.study.jobs.encoding import Progress, encode_data
from fedmoments.study.personal import PersonalResult, simulate_personal
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
) -> Report:
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
    Report
        In its part ``personal`` a row for every setting, head and variant, over all seeds.
    """
    check_study(config)
    encoded = encode_data(config, cache_dir=cache_dir, progress=progress)
    config = replace(config, heads=all_names(config.heads), encoder=encoded.encoder.name)
    rows: list[PersonalRow] = []
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
            rows += _rows(clients, scheme, results)
    personal = Personal(tuple(rows), tuple(str(beta) for beta in betas), held_out)
    return Report(
        data=encoded.describe(), seeds=config.seeds, personal=personal, config=config.to_dict(), command=command
    )


def _rows(clients: int | None, scheme: str, results: Sequence[PersonalResult]) -> Iterator[PersonalRow]:
    """Yield a row for every head and variant of one setting."""
    for same in zip(*(result.rows for result in results), strict=True):
        outcomes = tuple(counts.outcome(result.seed) for counts, result in zip(same, results, strict=True))
        yield PersonalRow(same[0].head, same[0].variant, clients, scheme, outcomes)
