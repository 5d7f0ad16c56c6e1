"""Fitting heads from a durable ledger, as often as one likes: nobody has to send anything again.

Under terms with an epsilon heads are fitted from a release, the noised sums that the ledger made once for its present
state: fitting again, other heads or evaluating them costs no further privacy.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fedmoments.api import fit, spec_for
from fedmoments.classifier import Classifier
from fedmoments.errors import FedMomentsError, InputError, MissingMomentError
from fedmoments.federation.store import FederationStore
from fedmoments.federation.terms import Terms
from fedmoments.heads import Head, make_head
from fedmoments.privacy.robust import suspects
from fedmoments.statistics import Statistics

__all__ = ["Fitted", "Source", "fit_heads", "require_filterable", "require_served", "source_of"]


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


@dataclass(frozen=True, eq=False)
class Source:
    """What heads are fitted from.

    Parameters
    ----------
    statistics
        The merged contributions in fixed point, or a release of them in float64.
    robust, max_samples
        The filter that was applied.
    dropped
        Clients that it left out of the statistics, with the reason; their contributions stay in the ledger.
    noise
        Of a release: the noise, and what it promises; None where nothing was noised.
    """

    statistics: Statistics
    robust: str = ""
    max_samples: int = 0
    dropped: Mapping[str, str] = field(default_factory=dict)
    noise: Mapping[str, Any] | None = None


def require_filterable(terms: Terms, robust: str, max_samples: int) -> None:
    """Refuse a filter where it cannot see single contributions, or would look at them behind the noise's back."""
    asked = f"the filter {robust!r}" if robust else f"a cap of {max_samples} samples a client" if max_samples else ""
    if asked and terms.privacy.secure:
        raise InputError(
            f"{asked} needs to see every contribution, but under secure {terms.privacy.secure} the server sees sums "
            "only: choose one of both"
        )
    if asked and terms.privacy.epsilon is not None:
        raise InputError(
            f"{asked} decides by the data who is counted, which the noise was not made for: with an epsilon nobody can "
            "be left out"
        )


def source_of(store: FederationStore, *, robust: str = "", max_samples: int = 0) -> Source:
    """Return what heads are fitted from: everything, what a filter leaves of it, or the release of it.

    Parameters
    ----------
    store
        The ledger.
    robust
        ``mad``: leave out clients whose statistics lie far from the others'. All contributions are in memory then.
    max_samples
        Leave out clients that say they have more samples than this; 0: any number.

    Raises
    ------
    PrivacyError
        When a release of the present state is needed, and the budget does not allow one; nothing is lost then.
    """
    require_filterable(store.terms, robust, max_samples)
    if store.terms.privacy.epsilon is not None:
        release = store.release()
        return Source(release.statistics, noise=release.facts)
    if store.terms.privacy.secure == "two-phase":
        return Source(store.scatter())
    if not robust and not max_samples:
        return Source(store.statistics())
    parts = dict(store.contributions())
    found = suspects(parts, max_samples=max_samples or None, filter=robust or None, checked=True)
    dropped = {str(client): reason for client, reason in found.dropped.items()}
    if len(dropped) == len(parts):
        raise InputError(f"the filter would leave out all {len(parts)} clients: raise the cap, or fit without a filter")
    kept = Statistics.merge(part for client, part in parts.items() if client not in dropped)
    return Source(kept, robust, max_samples, dropped)


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
    source: Source | None = None,
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
    source
        What :func:`source_of` returned; by default what it returns without a filter.

    Raises
    ------
    MissingMomentError
        When the terms do not ask for what a head needs.
    PrivacyError
        As in :func:`source_of`.
    """
    terms = store.terms
    chosen = {name: make_head(name, **(hyper or {}).get(name, {})) for name in heads}
    require_served(terms, chosen)
    merged = (source or source_of(store)).statistics
    notes: dict[str, Any] = {
        "encoder": {**terms.encoder, "options": dict(terms.encoder["options"])},
        "fingerprint": terms.fingerprint.digest,
        "federation": terms.id,
        **({"privacy": terms.privacy.to_dict()} if terms.privacy.epsilon is not None else {}),
    }
    found: dict[str, Fitted] = {}
    for name, head in chosen.items():
        spec = spec_for(head, means_per_client=terms.spec.means_per_client)
        derived = terms.privacy.secure == "two-phase"  # holds the scatter of client means, not the means
        part = merged if derived else merged.restricted(spec)
        needed = part if derived else part.restricted(head.needs)
        start = time.perf_counter()
        try:
            classifier = fit(head, needed, class_names=terms.classes, feature_map=terms.map_or_none)
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
