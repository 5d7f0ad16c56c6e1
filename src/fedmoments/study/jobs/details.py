"""A closer look at one federation of a job: its first setting and first seed.

Confusions and calibration of every head, who holds what, the bias of the free covariance, diagnostics, the privacy
card, and the fitted classifiers themselves: all of the very fits that the table shows, from statistics measured once.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from fedmoments.core.classifier import Classifier
from fedmoments.core.diagnostics import NEEDS, diagnose
from fedmoments.core.gaussian import CovarianceBias, covariance_bias
from fedmoments.core.heads import Head
from fedmoments.core.maps import FeatureMap
from fedmoments.core.observations import Report, Setting
from fedmoments.core.observations.federated import Examination, PrivacyCard
from fedmoments.core.observations.parts import Diagnosis, HeadDetail, Holders, Revealed, RoundCurve
from fedmoments.core.statistics import StatisticsSpec
from fedmoments.errors import FedMomentsError
from fedmoments.federation.evaluation import LocalEvaluation
from fedmoments.privacy.card import privacy_card
from fedmoments.privacy.leaks import LeakReport, revealed_by
from fedmoments.privacy.map_leaks import MapOutline
from fedmoments.privacy.outline import Outline
from fedmoments.privacy.sketch_leaks import sketch_facts
from fedmoments.samples import Split
from fedmoments.study.baselines import Baseline
from fedmoments.study.jobs.diagnostics import MOST_DIM, about_federation
from fedmoments.study.simulation.fit import Fit, choice_of
from fedmoments.study.simulation.measuring import Federation
from fedmoments.study.simulation.methods import Method
from fedmoments.study.simulation.payload import sent_by
from fedmoments.study.simulation.rounds import Participation, simulate_rounds
from fedmoments.study.simulation.sweep import Held

__all__ = ["Details", "round_curves", "why_no_digest"]

#: Means over fewer samples than a client's policy lets out by default.
SMALL = 5
#: Clients whose contributions are audited for a report.
AUDITED = 1_000

#: Called with (done, in all, what is being done).
Progress = Callable[[int, int, str], None]


@dataclass(eq=False)
class Details:
    """What a report shows beyond the table, and the fitted classifiers by head.

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
    heads: list[HeadDetail] = field(default_factory=list)
    classifiers: dict[str, Classifier] = field(default_factory=dict)
    measured_behind: dict[str, FeatureMap | None] = field(default_factory=dict)
    holders: Holders | None = None
    bias: CovarianceBias | None = None
    diagnosis: Diagnosis | None = None
    privacy: PrivacyCard | None = None
    robust: Examination | None = None

    def look(self, held: Held) -> None:
        """Look at a federation whose heads were fitted, while it is in memory."""
        fits = held.fits()
        for name, fit in fits.items():
            self._head(name, held.methods[name], held.federation, fit, held.seed)
        if self.for_report and self.holders is None:
            self.holders = _holders(held)
            self.diagnosis, self.bias = _diagnosed(held)
            self.robust = _examination(held.federation, {name: held.methods[name] for name in fits})
        if self.privacy is None or _shows_sketches(held.federation):
            self.privacy = _card(held.federation, held.split)

    def _head(self, name: str, method: Method, federation: Federation, fit: Fit, seed: int) -> None:
        classifier = fit.classifier
        if classifier is None:
            return
        detail = _digests(HeadDetail(name, seed, choice=choice_of(classifier)), federation, method, fit)
        if self.for_report:
            detail = replace(_trust(detail, federation, fit), audit=_audited(federation, method))
        self.heads.append(detail)
        baseline = {"baseline": True} if isinstance(method, Baseline) else {}
        self.classifiers[name] = classifier.noting(head=name, settings=method.settings(), **baseline)
        self.measured_behind[name] = federation.feature_map

    def added_to(self, report: Report, is_first: Callable[[Setting], bool]) -> Report:
        """Return a report with all of this; rows that ``is_first`` says to be looked at know their detail."""
        places = {detail.head: place for place, detail in enumerate(self.heads)}
        rows = (replace(row, detail=places.get(row.head)) if is_first(row.setting) else row for row in report.rows)
        return replace(
            report,
            rows=tuple(rows),
            details=tuple(self.heads),
            holders=self.holders,
            bias=self.bias,
            diagnosis=self.diagnosis,
            privacy=self.privacy,
            robust=self.robust,
        )


def _shows_sketches(federation: Federation) -> bool:
    """Say whether what sketches show belongs on the card."""
    is_open = federation.protection.agreed.mode.is_open
    return federation.spec.has_sketch and is_open and federation.shield is None


def _trust(detail: HeadDetail, federation: Federation, fit: Fit) -> HeadDetail:
    """Return a detail with which classes are taken for which, and how well confidence fits accuracy."""
    if fit.classifier is None or fit.predicted is None:
        return detail
    test, n = federation.features.test, fit.classifier.n_classes
    table = np.bincount(test.y * n + fit.predicted, minlength=n * n).reshape(n, n)
    tested = LocalEvaluation.of(fit.classifier, test.X, test.y, fit.classifier.temperature)
    calibration = tested.calibration(fit.classifier.temperature).reliability()
    return replace(detail, confusion=table, calibration=calibration, figures=tested.evaluation().by_class)


def _audited(federation: Federation, method: Method) -> tuple[Revealed, ...]:
    """Return what an audit says of the first clients' contributions for a head; nothing where no server reads them."""
    if federation.shield is not None or not federation.protection.agreed.mode.is_open or isinstance(method, Baseline):
        return ()
    spec, labels, split = (
        sent_by(method, federation.means_per_client, federation.plan),
        federation.features.train.y,
        federation.split,
    )
    behind = MapOutline.of(federation.feature_map, federation.dim)
    outlines = (
        replace(Outline.of_labels(labels[split.indices(client)], spec, federation.dim), behind=behind)
        for client in range(min(split.n_clients, AUDITED))
    )
    fewest = max(federation.protection.min_count or 1, SMALL)
    return revealed_by(LeakReport.of(outline, min_count=fewest) for outline in outlines)


def _examination(federation: Federation, fitted: Mapping[str, Method]) -> Examination | None:
    """Return whom the server left out and who moves the quick head with most moments most; None where nobody looks."""
    quick = {name: head for name, head in fitted.items() if isinstance(head, Head) and not head.slow}
    if federation.shield is None or not quick:
        return None
    specs = {name: sent_by(head, federation.means_per_client) for name, head in quick.items()}
    name = max(quick, key=lambda name: len(specs[name].moments))  # who lies in the gram is seen there
    return federation.shield.examination(name, quick[name], specs[name])


def _card(federation: Federation, split: Split) -> PrivacyCard:
    """Return who learns what, what clients withheld and what their means are over."""
    protection, shield = federation.protection, federation.shield
    labels, n_classes = federation.features.train.y, federation.features.n_classes
    held, sent = (part.cells(labels, n_classes) for part in (split, federation.split))
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
        exposed=exposed if protection.agreed.mode.is_open else None,
        sketches=sketch_facts(federation.merged) if _shows_sketches(federation) else None,
        simulated=True,
    )


def why_no_digest(federation: Federation) -> str | None:
    """Return why no deployed federation arrives at the bits of this one; None where one does."""
    if not federation.shield:
        return federation.form.reason
    own = federation.protection
    exact = own.agreed.mode.is_repeatable and not (own.obfuscation or own.attack or own.robust or own.max_samples)
    return None if exact else "cohorts, noise, obfuscation and filters give no two federations the same bits"


def _digests(detail: HeadDetail, federation: Federation, method: Method, fit: Fit) -> HeadDetail:
    """Return a detail with what a deployed federation's classifier can be compared with."""
    reason = why_no_digest(federation)
    if isinstance(method, Baseline):
        reason = "the clients of a baseline send what does not add up, so that no federation collects it"
        return replace(detail, digest_reason=reason)
    if method.has_own_map and not reason:
        reason = "it has a feature map of its own, whose parameters a federation agrees on first"
    if reason:
        return replace(detail, digest_reason=reason)
    measured = "masked sums" if federation.shield else str(federation.spec)
    statistics = federation.received(method).digest()
    return replace(detail, digest=fit.digest, statistics_digest=statistics, measured=measured)


def round_curves(held: Held, participation: tuple[str, ...], *, progress: Progress | None = None) -> list[RoundCurve]:
    """Return accuracy round by round, for every way of taking part and every quick head."""
    quick = {name: head for name, head in held.methods.items() if isinstance(head, Head) and not head.slow}
    curves: list[RoundCurve] = []
    for text in participation if quick else ():

        def say(seen: int, total: int, text: str = text) -> None:
            if progress:
                progress(seen, total, f"adding {text} clients at a time, seed {held.seed}")

        curves += simulate_rounds(held.federation, quick, Participation.parse(text), progress=say)
    return curves


def _holders(held: Held) -> Holders:
    """Return who holds what: counts by client and class."""
    features, split = held.federation.features, held.split
    cells = split.cells(features.train.y, features.n_classes).tocoo()
    rows = np.stack([cells.row, cells.col, cells.data], axis=1).astype(np.int64)
    return Holders(split.n_clients, rows, tuple(split.names or ()), held.seed, held.setting.split)


def _diagnosed(held: Held) -> tuple[Diagnosis, CovarianceBias | None]:
    """Return the diagnostics of a federation, or the reason why there are none, and the bias of the free covariance."""
    federation, where = held.federation, about_federation(held.split, held.setting, held.seed)
    if not federation.split.sizes.any():
        return replace(where, reason="there is nothing to diagnose: no client of this split holds a sample"), None
    small = federation.dim <= MOST_DIM
    means = StatisticsSpec.of("client_means", means_per_client=held.setting.means_per_client)
    try:
        stats = federation.observed((NEEDS if small else StatisticsSpec.of("class_norms")) | means)
        bias = covariance_bias(stats)
        test = federation.mapped.test
        diagnostics = diagnose(stats, test=(test.X, test.y) if len(test) else None) if small else None
    except FedMomentsError as error:
        return replace(where, reason=str(error)), None
    reason = (
        f"features have {federation.dim:,} dimensions, more than the {MOST_DIM:,} up to which a simulation diagnoses "
        "by the way: run 'fedmoments diagnose'"
    )
    return replace(where, diagnostics=diagnostics, reason=None if small else reason), bias
