"""Running a baseline on the clients of a split: each works on its own samples, then the server combines."""

import time
from dataclasses import dataclass

import numpy as np

from fedmoments.core.classifier import Classifier
from fedmoments.core.costs import PayloadSize
from fedmoments.errors import NotEnoughDataError
from fedmoments.samples import Split
from fedmoments.samples.features import Features
from fedmoments.study.baselines import Baseline, Upload

__all__ = ["Collected", "client_seed", "collect", "combine"]


@dataclass(frozen=True, eq=False)
class Collected:
    """What all clients of a baseline sent.

    Parameters
    ----------
    uploads
        One for every client with a sample.
    size
        Numbers and counts of all of them.
    seconds
        Time of all clients' own work together: each would take its share of it, all at the same time.
    """

    uploads: tuple[Upload, ...]
    size: PayloadSize
    seconds: float


def client_seed(seed: int, client: int) -> int:
    """Return the seed of a client's own random choices, which does not depend on who else takes part.

    Examples
    --------
    >>> client_seed(0, 1) == client_seed(0, 1) != client_seed(1, 1)
    True
    """
    return int(np.random.SeedSequence([seed, client]).generate_state(1)[0])


def collect(baseline: Baseline, features: Features, split: Split, *, seed: int, memory_limit: float) -> Collected:
    """Let every client with a sample do its work, and return what they send.

    Parameters
    ----------
    baseline
        Which one.
    features, split
        Everybody's samples, and who holds what.
    seed
        Of the run; every client has its own from it.
    memory_limit
        Bytes that all uploads together may take.
    """
    uploads: list[Upload] = []
    size, seconds = PayloadSize(0, 0), 0.0
    for client, mine in enumerate(split):
        if not len(mine):
            continue
        X, y = features.train.X[mine].astype(np.float64), features.train.y[mine]
        start = time.perf_counter()
        upload = baseline.local(X, y, n_classes=features.n_classes, seed=client_seed(seed, client))
        seconds += time.perf_counter() - start
        uploads.append(upload)
        size += PayloadSize(upload.n_counts, upload.n_floats)
        if 8 * size.floats > memory_limit:
            raise NotEnoughDataError(
                f"what its first {len(uploads)} clients send takes {8 * size.floats / 1e9:.1f} GB already, more than "
                f"the limit of {memory_limit / 1e9:g} GB"
            )
    return Collected(tuple(uploads), size, seconds)


def combine(baseline: Baseline, collected: Collected, *, dim: int, seed: int) -> tuple[Classifier, float]:
    """Return the server's classifier, and the seconds that combining took."""
    if not collected.uploads:
        raise NotEnoughDataError("no client holds a sample, so that there is nothing to combine")
    start = time.perf_counter()
    classifier = baseline.combine(collected.uploads, dim=dim, seed=seed)
    return classifier, time.perf_counter() - start
