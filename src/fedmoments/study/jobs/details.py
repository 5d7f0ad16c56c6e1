"""A closer look at one federation of a job: its first setting and first seed.

Confusions and calibration of every head, who holds what, the bias of the free covariance, diagnostics, the privacy
card, and the fitted classifiers themselves: all of the very fits that the table shows, from statistics measured once.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.classifier import Classifier
from fedmoments.core.diagnostics import NEEDS, diagnose
from fedmoments.core.gaussian import covariance_bias
from fedmoments.core.heads import Head
from fedmoments.core.statistics import StatisticsSpec
from fedmoments.errors import FedMomentsError
from fedmoments.privacy.card import privacy_card
from fedmoments.privacy.sketch_leaks import sketch_facts
from fedmoments.samples import Split
from fedmoments.study.baselines import Baseline
from fedmoments.study.jobs.diagnostics import MOST_DIM, about_federation
from fedmoments.study.simulation.evaluation import calibrate
from fedmoments.study.simulation.fit import Fit
from fedmoments.study.simulation.measuring import Federation, sent_by
from fedmoments.study.simulation.methods import Method
from fedmoments.study.simulation.notices import choice_of
from fedmoments.study.simulation.rounds import Participation, RoundCurve, simulate_rounds
from fedmoments.study.simulation.sweep import Held

__all__ = ["Details", "federation_words", "round_curves"]

#: Means over fewer samples than a client's policy lets out by default.
SMALL = 5

#: Called with (done, in all, what is being done).
Progress = Callable[[int, int, str], None]


@dataclass(eq=False)
class Details:
    """What a report shows beyond the table, ready for JSON, and the fitted classifiers by head.

    Heads on scatter sketches are a federation of their own, so that two may be looked at; who holds what, bias,
    diagnostics and the card are of the first one.

    Every head has the digest of its classifier, that of the merged statistics that it was fitted from, and what the
    clients measured, on which the last bits of both depend. Where a federation would not arrive at the same bits, the
    digests are None and ``digest_reason`` says why. The classifiers' digests depend on how many threads the linear
    algebra runs in, too: factorisations round differently then.

    Parameters
    ----------
    for_report
        Whether anybody reads confusions, calibration, holders, bias, diagnostics and the examination of clients.
    """

    for_report: bool = True
    heads: list[dict[str, Any]] = field(default_factory=list)
    classifiers: dict[str, Classifier] = field(default_factory=dict)
    measured_behind: dict[str, Any] = field(default_factory=dict)
    holders: dict[str, Any] = field(default_factory=dict)
    bias: dict[str, Any] | None = None
    diagnostics: dict[str, Any] = field(default_factory=dict)
    privacy: dict[str, Any] = field(default_factory=dict)
    robust: dict[str, Any] | None = None

    def look(self, held: Held) -> None:
        """Look at a federation whose heads were fitted, while it is in memory."""
        fits = held.fits()
        for name, fit in fits.items():
            self._head(name, held.methods[name], held.federation, fit, held.seed)
        if self.for_report and not self.holders:
            self.holders = _holders(held)
            self.diagnostics, self.bias = _diagnosed(held)
            self.robust = _examination(held.federation, {name: held.methods[name] for name in fits})
        if not self.privacy:
            self.privacy = _card(held.federation, held.split)
        self._tell_sketches(held)

    def _head(self, name: str, method: Method, federation: Federation, fit: Fit, seed: int) -> None:
        classifier, predicted = fit.classifier, fit.predicted
        if classifier is None or predicted is None:
            return
        trust = _trust(federation, classifier, predicted) if self.for_report else {}
        self.heads.append(
            {"head": name, "seed": seed, **trust, "choice": choice_of(classifier), **_digests(federation, method, fit)}
        )
        baseline = {"baseline": True} if isinstance(method, Baseline) else {}
        self.classifiers[name] = classifier.noting(head=name, settings=method.settings(), **baseline)
        self.measured_behind[name] = federation.feature_map

    def _tell_sketches(self, held: Held) -> None:
        """Add what sketches show to the card, where a federation of them is looked at."""
        federation = held.federation
        if federation.spec.has_sketch and federation.protection.agreed.mode.is_open and not federation.shield:
            self.privacy = _card(federation, held.split)


def _trust(federation: Federation, classifier: Classifier, predicted: NDArray[np.int64]) -> dict[str, Any]:
    """Return which classes are taken for which, and how well confidence fits accuracy, ready for JSON."""
    test, n = federation.features.test, classifier.n_classes
    table = np.bincount(test.y * n + predicted, minlength=n * n).reshape(n, n)
    calibration = calibrate(classifier, test.X, test.y, temperature=classifier.temperature)
    return {"confusion": table.tolist(), "calibration": calibration.to_dict()}


def _examination(federation: Federation, fitted: dict[str, Method]) -> dict[str, Any] | None:
    """Return whom the server left out and who moves the quick head with most moments most; None where nobody looks."""
    quick = [(name, head) for name, head in fitted.items() if isinstance(head, Head) and not head.slow]
    if federation.shield is None or not quick:
        return None
    specs = {name: sent_by(head, federation.means_per_client) for name, head in quick}
    name, head = max(quick, key=lambda each: len(specs[each[0]].moments))  # who lies in the gram is seen there
    return federation.shield.examination(name, head, specs[name])


def _card(federation: Federation, split: Split) -> dict[str, Any]:
    """Return who learns what, what clients withheld and what their means are over, ready for JSON."""
    protection, shield = federation.protection, federation.shield
    is_open = protection.agreed.mode.is_open
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
        exposed=exposed if is_open else None,
        sketches=sketch_facts(federation.merged) if is_open and not shield and federation.spec.has_sketch else None,
        simulated=True,
    )


def federation_words(federation: Federation) -> str | None:
    """Return why no deployed federation arrives at the bits of this one; None where one does."""
    if not federation.shield:
        return federation.form.reason
    own = federation.protection
    exact = own.agreed.mode.is_repeatable and not (own.obfuscation or own.attack or own.robust or own.max_samples)
    return None if exact else "cohorts, noise, obfuscation and filters give no two federations the same bits"


def _digests(federation: Federation, method: Method, fit: Fit) -> dict[str, Any]:
    """Return what a deployed federation's classifier can be compared with, ready for JSON."""
    reason = federation_words(federation)
    if isinstance(method, Baseline):
        reason = "the clients of a baseline send what does not add up, so that no federation collects it"
    elif method.has_own_map and not reason:
        reason = "it has a feature map of its own, whose parameters a federation agrees on first"
    if isinstance(method, Baseline) or reason:
        return {"digest": None, "statistics_digest": None, "measured": None, "digest_reason": reason}
    return {
        "digest": fit.digest,
        "statistics_digest": federation.received(method).digest(),
        "measured": "masked sums" if federation.shield else str(federation.spec),
        "digest_reason": None,
    }


def round_curves(held: Held, participation: tuple[str, ...], *, progress: Progress | None = None) -> list[RoundCurve]:
    """Return accuracy round by round, for every way of taking part and every quick head."""
    quick = {name: head for name, head in held.methods.items() if isinstance(head, Head) and not head.slow}
    curves: list[RoundCurve] = []
    for text in participation if quick else ():

        def say(seen: int, total: int, text: str = text) -> None:
            if progress:
                progress(seen, total, f"rounds of {text} clients, seed {held.seed}")

        curves += simulate_rounds(held.federation, quick, Participation.parse(text), progress=say)
    return curves


def _holders(held: Held) -> dict[str, Any]:
    """Return who holds what: counts by client and class."""
    features, split = held.federation.features, held.split
    cells = split.cells(features.train.y, features.n_classes).tocoo()
    rows = np.stack([cells.row, cells.col, cells.data], axis=1)
    return {
        "clients": list(split.names) if split.names else [],
        "n_clients": split.n_clients,
        "cells": rows.tolist(),
        "seed": held.seed,
        "split": held.setting.split,
    }


def _diagnosed(held: Held) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Return the diagnostics of a federation, or the reason why there are none, and the bias of the free covariance."""
    federation, where = held.federation, about_federation(held.split, held.setting, held.seed)
    if not federation.split.sizes.any():
        return {**where, "reason": "there is nothing to diagnose: no client of this split holds a sample"}, None
    small = federation.dim <= MOST_DIM
    means = StatisticsSpec.of("client_means", means_per_client=held.setting.means_per_client)
    try:
        stats = federation.observed((NEEDS if small else StatisticsSpec.of("class_norms")) | means)
        bias = covariance_bias(stats)
        test = federation.mapped.test
        looked = diagnose(stats, test=(test.X, test.y) if len(test) else None).to_dict() if small else None
    except FedMomentsError as error:
        return {**where, "reason": str(error)}, None
    reason = (
        f"features have {federation.dim:,} dimensions, more than the {MOST_DIM:,} up to which a simulation diagnoses "
        "by the way: run 'fedmoments diagnose'"
    )
    plain = {
        "overall": bias.overall if math.isfinite(bias.overall) else None,
        "relative": [float(value) if math.isfinite(value) else None for value in bias.relative],
        "held_by": bias.held_by.tolist(),
    }
    return {**where, **(looked if looked is not None else {"reason": reason})}, plain
