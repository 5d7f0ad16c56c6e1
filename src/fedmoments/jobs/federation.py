"""The files that a federation leaves: the classifiers, what happened, and a page to look at."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import fedmoments
from fedmoments.federation.evaluation import LocalEvaluation
from fedmoments.federation.results import Fitted, Source, source_of
from fedmoments.federation.store import FederationStore, Status
from fedmoments.federation.terms import Terms
from fedmoments.files import write_whole
from fedmoments.privacy.card import privacy_card
from fedmoments.privacy.sketch_leaks import sketch_facts
from fedmoments.report import write_report

#: With more clients than this the page does not draw who holds what: all contributions would be read again.
MOST_HOLDERS = 2000

__all__ = ["federation_document", "write_federation"]


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
    for name, each in fitted.items():
        each.classifier.save(heads / f"{name}.safetensors")
    document = federation_document(store, fitted, evaluations, events, source=source)
    text = json.dumps(document, allow_nan=False, ensure_ascii=False) + "\n"
    write_whole(folder / "federation.json", text.encode())
    write_report(folder / "report.html", document)
    return [folder / "report.html", folder / "federation.json", heads]


def federation_document(
    store: FederationStore,
    fitted: Mapping[str, Fitted],
    evaluations: Mapping[str, LocalEvaluation],
    events: Mapping[str, Any],
    *,
    source: Source | None = None,
) -> dict[str, Any]:
    """Return what is known of a federation in the form that reports are drawn from, ready for JSON.

    Under terms with an epsilon it holds nothing of the exact sums, not even their digest: whoever knows all samples but
    one could tell that one from a digest. Neither does it tell the bytes that clients sent, which show how many classes
    they hold, nor what they withheld, nor what refusals say of a contribution: bytes are then those of contributions
    that hold every class.
    """
    terms, status = store.terms, store.status()
    noised = terms.privacy.epsilon is not None
    samples, state = status.samples, store.digest()
    if noised or terms.privacy.secure == "two-phase":  # these are not in the running sums
        statistics = (source or source_of(store)).statistics
        samples, state = statistics.n_samples, statistics.digest()
    sent = status.bytes if not noised or terms.privacy.secure else 8 * terms.layout.size * status.clients
    senders = max(status.clients, 1)
    rows: list[dict[str, Any]] = []
    details: list[dict[str, Any]] = []
    for name, each in fitted.items():
        found = evaluations.get(name)
        tested = found is not None and found.n_samples > 0
        rows.append(
            {
                "head": name,
                "clients": status.clients,
                "split": None,
                "means_per_client": terms.spec.means_per_client,
                "shrinkage": None,
                "sends": each.sends,
                "hyper": each.head.settings(),
                "accuracy": found.accuracy if found is not None and tested else None,
                "accuracy_std": None,
                "up_bytes_per_client": sent / senders,
                "up_bytes_total": sent,
                "fit_seconds": each.seconds,
                "reasons": [] if tested else ["no client evaluated it"],
                "seeds": [{"clients": status.clients}],
                "detail": len(details),
            }
        )
        digests = {"digest": each.classifier.digest(), "statistics_digest": each.statistics_digest}
        details.append({"head": name, **digests})
        if found is not None and tested:
            details[-1]["confusion"] = found.confusion.tolist()
            details[-1]["calibration"] = found.calibration(each.head.temperature).to_dict()
    held = store.holders() if status.clients <= MOST_HOLDERS and terms.privacy.is_clear else []
    cells = [[place, label, count] for place, (_, counts) in enumerate(held) for label, count in counts.items()]
    return {
        "format": 1,
        "version": fedmoments.__version__,
        "data": {
            "name": terms.name,
            "description": f"A federation of {status.clients} clients.",
            "train": samples,
            "test": max((each.n_samples for each in evaluations.values()), default=0),
            "dim": terms.dim,
            "classes": len(terms.classes),
            "class_names": list(terms.classes),
            "encoder": {**terms.encoder, "options": dict(terms.encoder["options"])},
            "fingerprint": terms.fingerprint.digest,
        },
        "seeds": 1,
        "bytes_per_number": 8,
        "rows": rows,
        "details": details,
        "holders": {"clients": [client for client, _ in held], "n_clients": len(held), "cells": cells},
        "federation": {
            "id": terms.id,
            "name": terms.name,
            "state": state,
            **(_publishable(events) if noised else events),
        },
        "privacy": _card(terms, status, source),
    }


def _publishable(events: Mapping[str, Any]) -> dict[str, Any]:
    """Return what happened, without bytes, and without the digests and numbers that refusals tell of."""
    told = {"sentence": "the ledger's log says why, and the client was told"}
    rounds = [
        {**each, "bytes": None, "refused": [{**refusal, **told} for refusal in each.get("refused", ())]}
        for each in events.get("rounds", ())
    ]
    return {**events, "rounds": rounds}


def _card(terms: Terms, status: Status, source: Source | None) -> dict[str, Any]:
    """Return the privacy card; what was withheld is unknown behind masks, and not told under noise."""
    withheld = None
    if terms.privacy.is_clear:
        withheld = {
            "classes": sum(each.withheld_classes for each in status.contributors),
            "samples": sum(each.withheld_samples for each in status.contributors),
        }
    spent = None if status.spent is None else {**status.spent, "noise": source.noise if source else None}
    return privacy_card(
        terms.privacy,
        withheld=withheld,
        spent=spent,
        robust=(source.robust or None) if source else None,
        dropped=source.dropped if source else None,
        sketches=sketch_facts(source.statistics) if source and terms.spec.has_sketch else None,
    )
