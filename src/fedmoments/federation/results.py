"""Fitting heads from a durable ledger, as often as one likes: nobody has to send anything again."""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fedmoments.api import fit, spec_for
from fedmoments.classifier import Classifier
from fedmoments.errors import FedMomentsError, MissingMomentError
from fedmoments.federation.store import FederationStore
from fedmoments.federation.terms import Terms
from fedmoments.heads import Head, make_head

__all__ = ["Fitted", "fit_heads", "require_served"]


@dataclass(frozen=True, eq=False)
class Fitted:
    """A head that was fitted from a ledger.

    Parameters
    ----------
    head
        With its hyper-parameters.
    classifier
        Fitted, with notes of origin.
    statistics_digest
        SHA-256 of the merged statistics that it was fitted from: the same on every machine.
    sends
        What a client sends for it.
    seconds
        How long the fit took.
    """

    head: Head
    classifier: Classifier
    statistics_digest: str
    sends: str
    seconds: float


def require_served(terms: Terms, heads: Mapping[str, Head]) -> None:
    """Refuse heads that need moments which the terms do not ask for."""
    for name, head in heads.items():
        if not head.needs <= terms.spec:
            raise MissingMomentError(
                f"the head '{name}' needs {head.needs}, but the terms of the federation '{terms.name}' ask clients for "
                f"{terms.spec}: choose another head, or start a federation whose terms serve it"
            )


def fit_heads(
    store: FederationStore,
    heads: Iterable[str],
    hyper: Mapping[str, Mapping[str, Any]] | None = None,
    *,
    on_failure: Callable[[str, FedMomentsError], None] | None = None,
) -> dict[str, Fitted]:
    """Fit heads from all that a ledger holds.

    Parameters
    ----------
    store
        The ledger.
    heads
        Names of heads; the moments that they need must be among those that the terms ask for.
    hyper
        Head name -> hyper-parameters.
    on_failure
        Called with the name of a head that cannot be fitted from what is there, and why; raised without it.

    Raises
    ------
    MissingMomentError
        When the terms do not ask for what a head needs.
    """
    terms = store.terms
    chosen = {name: make_head(name, **(hyper or {}).get(name, {})) for name in heads}
    require_served(terms, chosen)
    merged = store.statistics()
    notes = {
        "encoder": {**terms.encoder, "options": dict(terms.encoder["options"])},
        "fingerprint": terms.fingerprint.digest,
        "federation": terms.id,
    }
    found: dict[str, Fitted] = {}
    for name, head in chosen.items():
        spec = spec_for(head, means_per_client=terms.spec.means_per_client)
        part = merged.restricted(spec)
        start = time.perf_counter()
        try:
            classifier = fit(
                head, part.restricted(head.needs), class_names=terms.classes, feature_map=terms.map_or_none
            )
        except FedMomentsError as error:
            if on_failure is None:
                raise type(error)(
                    f"the head '{name}' cannot be fitted from what {store.status().clients} clients sent: {error}"
                ) from error
            on_failure(name, error)
            continue
        seconds = time.perf_counter() - start
        classifier = classifier.noting(
            **notes, head=name, settings=head.settings(), temperature=head.temperature, statistics=part.digest()
        )
        found[name] = Fitted(head, classifier, part.digest(), str(spec), seconds)
    return found
