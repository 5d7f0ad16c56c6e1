"""The files that a federation leaves: the classifiers, what happened, and a page to look at."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import fedmoments
from fedmoments.core.observations import Outcome, Row, Setting
from fedmoments.federation.evaluation import LocalEvaluation
from fedmoments.federation.results import Fitted, Source, source_of
from fedmoments.federation.store import FederationStore, Status
from fedmoments.federation.terms import Terms
from fedmoments.files import write_whole
from fedmoments.pages import Results, write_report
from fedmoments.privacy.card import privacy_card
from fedmoments.privacy.sketch_leaks import sketch_facts

#: With more clients than this the page does not draw who holds what: all contributions would be read again.
MOST_HOLDERS = 2000

__all__ = ["federation_results", "write_federation"]


def write_federation(
    folder: Path,
    store: FederationStore,
    fitted: Mapping[str, Fitted],
    evaluations: Mapping[str, LocalEvaluation],
    events: Mapping[str, Any],
    *,
    source: Source | None = None,
) -> list[Path]:
    """Write ``heads/NAME.safetensors``, ``federation.json`` and ``report.html``; each appears whole or not at all.

    Parameters
    ----------
    folder
        Made if it is not there.
    store
        The ledger that the heads were fitted from.
    fitted, evaluations
        Heads by name, and what clients found of them on data of theirs.
    events
        Rounds and failures, ready for JSON.
    source
        What the heads were fitted from.
    """
    heads = folder / "heads"
    heads.mkdir(parents=True, exist_ok=True)
    for former in heads.glob("*.safetensors"):
        if former.stem not in fitted:
            former.unlink()
    for name, fit in fitted.items():
        fit.classifier.save(heads / f"{name}.safetensors")
    results = federation_results(store, fitted, evaluations, events, source=source)
    text = json.dumps(results.raw, allow_nan=False, ensure_ascii=False) + "\n"
    write_whole(folder / "federation.json", text.encode())
    write_report(folder / "report.html", results)
    return [folder / "report.html", folder / "federation.json", heads]


def federation_results(
    store: FederationStore,
    fitted: Mapping[str, Fitted],
    evaluations: Mapping[str, LocalEvaluation],
    events: Mapping[str, Any],
    *,
    source: Source | None = None,
) -> Results:
    """Return what is known of a federation in the form that reports are drawn from.

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
    rows = tuple(
        Row(
            name,
            setting,
            fit.sends,
            fit.head.settings(),
            (_outcome(fit, tested.get(name), status.clients, sent),),
            detail=place,
        )
        for place, (name, fit) in enumerate(fitted.items())
    )
    document = {
        "format": 1,
        "version": fedmoments.__version__,
        "data": {
            "name": terms.name,
            "description": f"A federation of {status.clients} clients.",
            "train": samples,
            "test": max((evaluation.n_samples for evaluation in evaluations.values()), default=0),
            "dim": terms.dim,
            "classes": len(terms.classes),
            "class_names": list(terms.classes),
            "encoder": terms.encoder_note,
            "fingerprint": terms.fingerprint.digest,
        },
        "seeds": 1,
        "bytes_per_number": 8,
        "rows": [row.to_dict() for row in rows],
        "details": [{"head": name, **_detail(fit, tested.get(name))} for name, fit in fitted.items()],
        "holders": _holders(store.holders() if status.clients <= MOST_HOLDERS and mode.is_open else []),
        "federation": {
            "id": terms.id,
            "name": terms.name,
            "state": state,
            **mode.noise.publishable(events),
        },
        "privacy": _card(terms, status, source),
    }
    return Results(document, rows)


def _holders(held: Sequence[tuple[str, Mapping[int, int]]]) -> dict[str, Any]:
    """Return who holds how many samples of which class."""
    cells = [[place, label, count] for place, (_, counts) in enumerate(held) for label, count in counts.items()]
    return {"clients": [client for client, _ in held], "n_clients": len(held), "cells": cells}


def _outcome(fit: Fitted, evaluation: LocalEvaluation | None, n_clients: int, sent: int) -> Outcome:
    """Return what the one run gave of a head; ``sent`` are the bytes of all clients."""
    return Outcome(
        seed=0,
        accuracy=None if evaluation is None else evaluation.accuracy,
        clients=n_clients,
        up_floats=0,
        up_counts=0,
        fit_seconds=fit.seconds,
        reason="no client evaluated it" if evaluation is None else None,
        coded_bytes=sent,
    )


def _detail(fit: Fitted, evaluation: LocalEvaluation | None) -> dict[str, Any]:
    """Return the digests of one head, and what was measured of it."""
    detail: dict[str, Any] = {"digest": fit.classifier.digest(), "statistics_digest": fit.statistics_digest}
    if evaluation is not None:
        detail["confusion"] = evaluation.confusion.tolist()
        detail["calibration"] = evaluation.calibration(fit.classifier.temperature).to_dict()
    return detail


def _card(terms: Terms, status: Status, source: Source | None) -> dict[str, Any]:
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
