"""A closer look at one federation of a job: its first setting and first seed.

Confusions and calibration of every head, who holds what, the bias of the free covariance, and the fitted classifiers
themselves; and, over all seeds, accuracy round by round.

The table's accuracies come from float64 statistics. The classifiers here are fitted from fixed-point ones, measured
client by client as a deployed federation measures them, so that their digests are those that it would print.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from fedmoments.baselines import Baseline
from fedmoments.classifier import Classifier
from fedmoments.data import DROPPED, Split
from fedmoments.errors import FedMomentsError
from fedmoments.gaussian import covariance_bias
from fedmoments.heads import Head
from fedmoments.linalg import blocks
from fedmoments.privacy.card import privacy_card
from fedmoments.privacy.sketch_leaks import sketch_facts
from fedmoments.simulation import Features, Federation, Setting, evaluate
from fedmoments.simulation.calibration import calibrate
from fedmoments.simulation.measuring import sent_by
from fedmoments.simulation.methods import Method
from fedmoments.simulation.notices import choice_of
from fedmoments.simulation.projection import make_projection, map_features
from fedmoments.simulation.rounds import Participation, simulate_rounds
from fedmoments.simulation.run import federation_of, is_sketched, make_split
from fedmoments.statistics import FixedPoint, Ledger, StatisticsSpec

__all__ = ["MOST_NUMBERS", "Details", "look_closer", "round_curves"]

#: Numbers that all clients together may send for their statistics to be measured client by client, which takes about
#: 8 s of one core then. More are measured in float64, all clients at once, and have no digest.
MOST_NUMBERS = 500_000_000
#: Means over fewer samples than a client's policy lets out by default.
SMALL = 5

#: Called with (done, in all, what is being done).
Progress = Callable[[int, int, str], None]


@dataclass(frozen=True, eq=False)
class Details:
    """What a report shows beyond the table, ready for JSON, and the fitted classifiers by head."""

    heads: list[dict[str, Any]]
    holders: dict[str, Any]
    bias: dict[str, Any] | None
    privacy: dict[str, Any]
    robust: dict[str, Any] | None
    classifiers: dict[str, Classifier]


def look_closer(
    features: Features,
    split: Split,
    heads: dict[str, Method],
    setting: Setting,
    *,
    seed: int,
    budget: str | None = None,
    memory_limit: float = 4e9,
    progress: Progress | None = None,
) -> Details:
    """Return the details of one federation.

    Heads on scatter sketches are a federation of their own, as they are in the field: their means are rounded.

    Every head has the digest of its classifier, that of the merged statistics that it was fitted from, and what the
    clients measured, on which the last bits of both depend. Where a federation would not arrive at the same bits, the
    digests are None and ``digest_reason`` says why. The classifiers' digests depend on how many threads the linear
    algebra runs in, too: factorisations round differently then.

    Parameters
    ----------
    features, split
        Everybody's samples, and who holds what.
    heads
        Name -> head or baseline; one that cannot be fitted is left out here, and has its reason in the table.
    setting, seed
        Of this federation.
    budget
        Of heads on scatter sketches.
    memory_limit
        Bytes that the statistics of one head may take.
    progress
        Called before every head.
    """
    made = {
        sketched: _as_deployed(
            partial(
                federation_of,
                features,
                split,
                [head for head in heads.values() if is_sketched(head) == sketched],
                replace(setting, budget=budget if sketched else None),
                seed=seed,
                memory_limit=memory_limit,
            )
        )
        for sketched in dict.fromkeys(is_sketched(head) for head in heads.values())
    }
    found: list[dict[str, Any]] = []
    classifiers: dict[str, Classifier] = {}
    for done, (name, head) in enumerate(heads.items()):
        if progress:
            progress(done, len(heads), f"looking closer at {name}")
        federation, reason = made[is_sketched(head)]
        try:
            classifier = federation.fitted(head)
        except FedMomentsError:
            continue
        classifier = classifier.named(features.class_names) if features.class_names else classifier
        test = features.test
        calibration = calibrate(classifier, test.X, test.y, temperature=head.temperature)
        confusion = evaluate(classifier, test).table
        baseline = {"baseline": True} if isinstance(head, Baseline) else {}
        classifiers[name] = classifier.noting(
            head=name, settings=head.settings(), temperature=head.temperature, **baseline
        )
        found.append(
            {
                "head": name,
                "seed": seed,
                "confusion": confusion.tolist(),
                "calibration": calibration.to_dict(),
                "choice": choice_of(classifier),
                **_digests(federation, head, classifier, reason),
            }
        )
    federation = next(iter(made.values()))[0]
    fitted = {name: heads[name] for name in classifiers if made[is_sketched(heads[name])][0] is federation}
    bias = _bias(federation.mapped, federation.split)
    card, robust = _card(made, split), _examination(federation, fitted)
    return Details(found, _holders(features, split, setting, seed), bias, card, robust, classifiers)


def _examination(federation: Federation, fitted: dict[str, Method]) -> dict[str, Any] | None:
    """Return whom the server left out and who moves the quick head with most moments most; None where nobody looks."""
    quick = [(name, head) for name, head in fitted.items() if isinstance(head, Head) and not head.slow]
    if federation.shield is None or not quick:
        return None
    specs = {name: sent_by(head, federation.means_per_client) for name, head in quick}
    name, head = max(quick, key=lambda each: len(specs[each[0]].moments))  # who lies in the gram is seen there
    return federation.shield.examination(name, head, specs[name])


def _card(made: dict[bool, tuple[Federation, str | None]], split: Split) -> dict[str, Any]:
    """Return who learns what, what clients withheld and what their means are over, ready for JSON."""
    federation = next(iter(made.values()))[0]
    sketched = made[True][0] if True in made and federation.protection.agreed.is_clear else None
    protection, shield = federation.protection, federation.shield
    labels, n_classes = federation.features.train.y, federation.features.n_classes
    held, sent = (each.cells(labels, n_classes) for each in (split, federation.split))
    withheld = {"classes": int(held.nnz - sent.nnz), "samples": int(held.sum() - sent.sum())}
    exposed = {"cells": int(sent.nnz), "single": int((sent.data == 1).sum()), "small": int((sent.data < SMALL).sum())}
    return privacy_card(
        protection.agreed,
        min_count=protection.min_count,
        withheld=withheld,
        spent=shield.spent if shield else None,
        obfuscation=protection.obfuscation,
        robust=protection.robust,
        dropped=shield.dropped if shield else None,
        exposed=exposed if protection.agreed.is_clear else None,
        sketches=sketch_facts(sketched.ledger.statistics()) if sketched else None,
        simulated=True,
    )


def _as_deployed(make: Callable[..., Federation]) -> tuple[Federation, str | None]:
    """Return the federation in fixed point, as a deployed one measures, or else in float64 with the reason why."""
    plain = make()
    if plain.shield:
        own = plain.protection
        exact = own.agreed.secure in ("sums", "two-phase") and own.agreed.epsilon is None
        exact = exact and own.obfuscation is None and own.attack is None
        return plain, None if exact else "cohorts, noise, obfuscation and filters give no two federations the same bits"
    form = FixedPoint()
    federation = make(fixed_point=form)
    if federation.numbers > MOST_NUMBERS:
        return make(), (
            f"its clients together send {federation.numbers:,} numbers: too many to measure client by client here "
            f"(the most are {MOST_NUMBERS:,})"
        )
    longest = _longest(federation.mapped, federation.split)
    if longest > form.norm_bound:
        return make(), (
            f"a training sample has the norm {longest:.6g}, more than the norm bound of {form.norm_bound:g} that a "
            "federation agrees on by default: scale features, or put them on the unit sphere"
        )
    try:
        _ = federation.ledger
    except FedMomentsError as error:
        return make(), str(error)
    return federation, None


def _longest(features: Features, split: Split) -> float:
    """Return the largest Euclidean norm of a sample that somebody holds, 0 if nobody does."""
    held = np.flatnonzero(split.clients != DROPPED)
    norms = (np.linalg.norm(features.train.X[held[block]].astype(np.float64), axis=1) for block in blocks(len(held)))
    return max((float(each.max()) for each in norms), default=0.0)


def _digests(federation: Federation, head: Method, classifier: Classifier, reason: str | None) -> dict[str, Any]:
    """Return what a deployed federation's classifier can be compared with, ready for JSON."""
    if isinstance(head, Baseline):
        reason = "the clients of a baseline send what does not add up, so that no federation collects it"
    elif head.has_own_map and not reason:
        reason = "it has a feature map of its own, whose parameters a federation agrees on first"
    if isinstance(head, Baseline) or reason:
        return {"digest": None, "statistics_digest": None, "measured": None, "digest_reason": reason}
    return {
        "digest": classifier.digest(),
        "statistics_digest": federation.received(head).digest(),
        "measured": "masked sums" if federation.shield else str(federation.spec),
        "digest_reason": None,
    }


def round_curves(
    features: Features,
    heads: dict[str, Method],
    setting: Setting,
    participation: tuple[str, ...],
    seeds: range,
    *,
    progress: Progress | None = None,
) -> list[dict[str, Any]]:
    """Return accuracy round by round, for every way of taking part, every seed and every quick head, ready for JSON."""
    quick = {name: head for name, head in heads.items() if isinstance(head, Head) and not head.slow}
    curves: list[dict[str, Any]] = []
    for text, seed in product(participation, seeds):

        def say(seen: int, total: int, text: str = text, seed: int = seed) -> None:
            if progress:
                progress(seen, total, f"rounds of {text} clients, seed {seed}")

        split = make_split(features, setting.clients, setting.split, seed)
        how, means = Participation.parse(text), setting.means_per_client
        projection = make_projection(setting.projection, features.dim, seed)
        measured = map_features(features, split, projection) if projection else features
        for curve in simulate_rounds(measured, split, quick, how, seed=seed, means_per_client=means, progress=say):
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
