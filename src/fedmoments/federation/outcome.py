"""The files that a federation leaves: the classifiers, what happened, and a page to look at."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from fedmoments.core.classifier import Classifier
from fedmoments.core.classifier.version import Version
from fedmoments.core.observations import Outcome, Report, Row, Setting
from fedmoments.core.observations.federated import FederationEvents, PrivacyCard
from fedmoments.core.observations.parts import UNTESTED, UNTOLD, Data, HeadDetail, Holders
from fedmoments.federation.evaluation import LocalEvaluation
from fedmoments.federation.evaluation.refining import confidence_at
from fedmoments.federation.results import Fitted, Source, source_of
from fedmoments.federation.store import FederationStore, Status
from fedmoments.federation.terms import Terms
from fedmoments.files import write_whole
from fedmoments.handover.card import model_card
from fedmoments.handover.evidence import Evidence
from fedmoments.pages import write_report
from fedmoments.privacy.card import privacy_card
from fedmoments.privacy.sketch_leaks import sketch_facts

#: With more clients than this the page does not draw who holds what: all contributions would be read again.
MOST_HOLDERS = 2000

__all__ = ["federation_report", "logged_versions", "privacy_card_of", "write_federation"]


def write_federation(
    folder: Path,
    store: FederationStore,
    fitted: Mapping[str, Fitted],
    evaluations: Mapping[str, LocalEvaluation],
    events: FederationEvents,
    *,
    source: Source | None = None,
) -> list[Path]:
    """Write ``heads/NAME.safetensors``, model cards, ``federation.json`` and ``report.html``, each whole or not at all.

    Parameters
    ----------
    folder
        Made if it is not there.
    store
        The ledger that the heads were fitted from.
    fitted, evaluations
        Heads by name, and what clients found of them on data of theirs.
    events
        What the server tells of rounds and failures.
    source
        What the heads were fitted from.
    """
    heads = folder / "heads"
    heads.mkdir(parents=True, exist_ok=True)
    for former in (*heads.glob("*.safetensors"), *heads.glob("*.md")):
        if former.stem not in fitted:
            former.unlink()
    versions = logged_versions(store)
    fitted = {
        name: replace(fit, classifier=_versioned(fit.classifier, versions.get(name))) for name, fit in fitted.items()
    }
    for name, fit in fitted.items():
        fit.classifier.save(heads / f"{name}.safetensors")
    report = federation_report(store, fitted, evaluations, events, source=source)
    report.write(folder / "federation.json")
    for detail in report.details:
        card = model_card(fitted[detail.head].classifier, evidence=Evidence(report, detail))
        write_whole(heads / f"{detail.head}.md", card.encode())
    write_report(folder / "report.html", report)
    return [folder / "report.html", folder / "federation.json", heads]


def logged_versions(store: FederationStore) -> dict[str, Version]:
    """Return the version of every head that was fitted last from a ledger, by what its log says.

    Versions stand in files alone, never in what clients are asked to test: the same head must be the same bytes there,
    so that a test that is requested again tells nothing new.
    """
    versions: dict[str, Version] = {}
    last: dict[str, str] = {}
    for entry in store.audit():
        facts = entry.details
        for head, digest in facts["digests"].items() if facts.get("note") in ("fitted", "refitted") else ():
            if digest == last.get(head):
                continue
            former = versions.get(head, Version(f"{store.terms.name}/{head}", 0))
            version = former.following(last.get(head), digest)
            versions[head] = replace(version, federation=store.terms.id, entry=entry.seq)
            last[head] = digest
    return versions


def _versioned(classifier: Classifier, version: Version | None) -> Classifier:
    return classifier if version is None else classifier.noting(version=version.to_dict())


def federation_report(
    store: FederationStore,
    fitted: Mapping[str, Fitted],
    evaluations: Mapping[str, LocalEvaluation],
    events: FederationEvents,
    *,
    source: Source | None = None,
) -> Report:
    """Return what is known of a federation.

    Under terms with an epsilon it holds nothing of the exact sums, not even their digest: whoever knows all samples but
    one could tell that one from a digest. Neither does it tell the bytes that clients sent, which show how many classes
    they hold, nor what they withheld, nor what refusals say of a contribution: bytes are then those of contributions
    that hold every class.
    """
    terms, status = store.terms, store.status()
    mode = terms.privacy.mode
    samples, state = status.samples, store.digest()
    if not mode.is_in_ledger:
        statistics = (source or source_of(store)).statistics
        samples, state = statistics.n_samples, statistics.digest()
    sent = mode.publishable_bytes(status.bytes, dense=8 * terms.layout.size * status.clients)
    tested = {name: evaluation for name, evaluation in evaluations.items() if evaluation.n_samples}
    setting = Setting(status.clients, means_per_client=terms.spec.means_per_client, epsilon=terms.privacy.epsilon)
    rows, details = [], []
    for place, (name, fit) in enumerate(fitted.items()):
        why = UNTOLD if name in evaluations else UNTESTED
        outcome = _outcome(fit, tested.get(name), why, status.clients, sent)
        rows.append(Row(name, setting, fit.sends, fit.head.settings(), (outcome,), detail=place))
        details.append(_detail(name, fit, tested.get(name)))
    tests = max((evaluation.n_samples for evaluation in evaluations.values()), default=0)
    data = Data(
        terms.name,
        f"A federation of {status.clients} clients.",
        samples,
        tests,
        terms.dim,
        len(terms.classes),
        tuple(terms.classes),
        fingerprint=terms.fingerprint.digest,
        encoder=terms.encoder_note,
    )
    return Report(
        tuple(rows),
        data,
        details=tuple(details),
        holders=_holders(store.holders() if status.clients <= MOST_HOLDERS and mode.is_open else []),
        privacy=privacy_card_of(terms, status, source),
        federation=replace(mode.noise.publishable(events), id=terms.id, name=terms.name, state=state),
        bytes_per_number=8,
    )


def _holders(held: Sequence[tuple[str, Mapping[int, int]]]) -> Holders:
    """Return who holds how many samples of which class."""
    cells = [(place, label, count) for place, (_, counts) in enumerate(held) for label, count in counts.items()]
    return Holders(len(held), np.array(cells, np.int64).reshape(-1, 3), tuple(client for client, _ in held))


def _outcome(fit: Fitted, evaluation: LocalEvaluation | None, reason: str, n_clients: int, sent: int) -> Outcome:
    """Return what the one run gave of a head, or the reason why it has no result; ``sent`` are all clients' bytes."""
    return Outcome(
        seed=0,
        accuracy=None if evaluation is None else evaluation.accuracy,
        clients=n_clients,
        up_floats=0,
        up_counts=0,
        fit_seconds=fit.seconds,
        reason=reason if evaluation is None else None,
        coded_bytes=sent,
    )


def _detail(name: str, fit: Fitted, evaluation: LocalEvaluation | None) -> HeadDetail:
    """Return the digests of one head, and what was measured of it."""
    detail = HeadDetail(name, digest=fit.classifier.digest(), statistics_digest=fit.statistics_digest)
    if evaluation is None:
        return detail
    tested = fit.classifier.ranks.temperature if fit.classifier.ranks else fit.classifier.temperature
    figures = evaluation.evaluation(fit.classifier.class_names).by_class
    confidence = confidence_at(evaluation, fit.classifier.temperature / tested)
    calibration = evaluation.calibration(tested).reliability(confidence)
    return replace(detail, confusion=evaluation.confusion, calibration=calibration, figures=figures)


def privacy_card_of(terms: Terms, status: Status, source: Source | None) -> PrivacyCard:
    """Return the privacy card; what was withheld is unknown behind masks, and not published under noise."""
    withheld = None
    if terms.privacy.mode.is_open:
        withheld = {
            "classes": sum(client.withheld_classes for client in status.contributors),
            "samples": sum(client.withheld_samples for client in status.contributors),
        }
    spent = None if status.spent is None else {**status.spent, "noise": source.noise if source else None}
    if source is None:
        return privacy_card(terms.privacy, withheld=withheld, spent=spent)
    return privacy_card(
        terms.privacy,
        withheld=withheld,
        spent=spent,
        robust=source.robust or None,
        dropped=source.dropped,
        sketches=sketch_facts(source.statistics) if terms.spec.has_sketch else None,
    )
