"""A closer look at one federation of a job: its first setting and first seed.

Confusions and calibration of every head, who holds what, the bias of the free covariance, and the fitted classifiers
themselves; and, over all seeds, accuracy round by round.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from fedmoments.classifier import Classifier
from fedmoments.data import Split
from fedmoments.errors import FedMomentsError
from fedmoments.gaussian import covariance_bias
from fedmoments.heads import Head
from fedmoments.simulation import Features, Federation, Setting, evaluate
from fedmoments.simulation.calibration import calibrate
from fedmoments.simulation.rounds import Participation, simulate_rounds
from fedmoments.simulation.run import make_split
from fedmoments.statistics import Ledger, StatisticsSpec

__all__ = ["Details", "look_closer", "round_curves"]

#: Called with (done, in all, what is being done).
Progress = Callable[[int, int, str], None]


@dataclass(frozen=True, eq=False)
class Details:
    """What a report shows beyond the table, ready for JSON, and the fitted classifiers by head."""

    heads: list[dict[str, Any]]
    holders: dict[str, Any]
    bias: dict[str, Any] | None
    classifiers: dict[str, Classifier]


def look_closer(
    features: Features,
    split: Split,
    heads: dict[str, Head],
    setting: Setting,
    *,
    seed: int,
    memory_limit: float = 4e9,
    progress: Progress | None = None,
) -> Details:
    """Return the details of one federation.

    Parameters
    ----------
    features, split
        Everybody's samples, and who holds what.
    heads
        Name -> head; one that cannot be fitted is left out here, and has its reason in the table.
    setting, seed
        Of this federation.
    memory_limit
        Bytes that the statistics of one head may take.
    progress
        Called before every head.
    """
    federation = Federation(
        features,
        split,
        list(heads.values()),
        means_per_client=setting.means_per_client,
        seed=seed,
        memory_limit=memory_limit,
    )
    found: list[dict[str, Any]] = []
    classifiers: dict[str, Classifier] = {}
    for done, (name, head) in enumerate(heads.items()):
        if progress:
            progress(done, len(heads), f"looking closer at {name}")
        try:
            classifier = federation.fitted(head)
        except FedMomentsError:
            continue
        classifier = classifier.named(features.class_names) if features.class_names else classifier
        test = features.test
        calibration = calibrate(classifier, test.X, test.y, temperature=head.temperature)
        confusion = evaluate(classifier, test).table
        classifiers[name] = classifier.noting(head=name, settings=head.settings(), temperature=head.temperature)
        found.append(
            {"head": name, "seed": seed, "confusion": confusion.tolist(), "calibration": calibration.to_dict()}
        )
    return Details(found, _holders(features, split, setting, seed), _bias(features, split), classifiers)


def round_curves(
    features: Features,
    heads: dict[str, Head],
    setting: Setting,
    participation: tuple[str, ...],
    seeds: range,
    *,
    progress: Progress | None = None,
) -> list[dict[str, Any]]:
    """Return accuracy round by round, for every way of taking part, every seed and every quick head, ready for JSON."""
    # A head with a covariance a class is not fitted after every round: it takes as long as all others together.
    quick = {name: head for name, head in heads.items() if "class_grams" not in head.needs.moments}
    curves: list[dict[str, Any]] = []
    for text, seed in product(participation, seeds):

        def say(seen: int, total: int, text: str = text, seed: int = seed) -> None:
            if progress:
                progress(seen, total, f"rounds of {text} clients, seed {seed}")

        split = make_split(features, setting.clients, setting.split, seed)
        how, means = Participation.parse(text), setting.means_per_client
        for curve in simulate_rounds(features, split, quick, how, seed=seed, means_per_client=means, progress=say):
            senders = int((split.sizes > 0).sum())
            curves.append({"clients": senders, "split": setting.split, **curve.to_dict()})
    return curves


def _holders(features: Features, split: Split, setting: Setting, seed: int) -> dict[str, Any]:
    """Return who holds what: counts by client and class."""
    cells = split.cells(features.train.y, features.n_classes).tocoo()
    rows = np.stack([cells.row, cells.col, cells.data], axis=1)
    return {
        "clients": list(split.names) if split.names else [],
        "n_clients": split.n_clients,
        "cells": rows.tolist(),
        "seed": seed,
        "split": setting.split,
    }


def _bias(features: Features, split: Split) -> dict[str, Any] | None:
    """Return the bias of the free covariance, from client means and class norms; None if nobody holds a sample."""
    if not split.sizes.any():
        return None
    spec = StatisticsSpec.of("client_means", "class_norms")
    train = features.train
    ledger = Ledger.of(train.X, train.y, split.clients, spec, n_classes=features.n_classes, fold=True)
    bias = covariance_bias(ledger.statistics())
    return {
        "overall": bias.overall if math.isfinite(bias.overall) else None,
        "relative": [float(value) if math.isfinite(value) else None for value in bias.relative],
        "held_by": bias.held_by.tolist(),
    }
