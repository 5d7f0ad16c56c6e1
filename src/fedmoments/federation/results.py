"""Fitting heads from a durable ledger, any number of times, without asking clients again.

Under terms with an epsilon heads are fitted from a release, the noised sums that the ledger made once for its present
state: fitting again, other heads or evaluating them costs no further privacy.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fedmoments.core.api import fit, spec_for
from fedmoments.core.classifier import Classifier
from fedmoments.core.gaussian.client_draws import MOST_KEPT
from fedmoments.core.heads import Head, make_head
from fedmoments.core.statistics import Ledger, Statistics
from fedmoments.errors import FedMomentsError, InputError, MissingMomentError, UnknownNameError
from fedmoments.federation.ageing import aged_statistics
from fedmoments.federation.company import require_company, require_parties
from fedmoments.federation.store import FederationStore
from fedmoments.federation.terms import Terms
from fedmoments.privacy.robust import suspects
from fedmoments.privacy.robust.filtering import FILTERS

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
    parts
        Yields the contributions that the statistics are the sum of, one at a time; None where the server cannot read
        them, or weighs them.
    """

    statistics: Statistics
    robust: str = ""
    max_samples: int = 0
    dropped: Mapping[str, str] = field(default_factory=dict)
    noise: Mapping[str, Any] | None = None
    parts: Callable[[], Iterable[Statistics]] | None = None

    def for_head(self, head: Head, terms: Terms) -> Statistics:
        """Return what a head is fitted from: clients' class sums apart, where it sees more in them and they are known.

        Those of few clients are made of their contributions (:attr:`~fedmoments.core.heads.Head.apart_needs`).
        """
        mode, held, wanted = terms.privacy.mode, self.statistics, head.apart_needs
        if wanted == head.needs or mode.noise.is_on:
            return mode.part_for(held, head.needs)
        if wanted <= held.spec:
            return mode.part_for(held, wanted)
        ledger = Ledger(head.needs, n_classes=held.n_classes, dim=held.dim, fixed_point=held.fixed_point)
        cells = 0
        for client, part in enumerate(self.parts() if self.parts else ()):
            cells += len(part.classes)
            if 8 * held.dim * cells > MOST_KEPT:
                return mode.part_for(held, head.needs)
            ledger.join(client, part)
        if not len(ledger):
            return mode.part_for(held, head.needs)
        return _with_names(terms, ledger.statistics(wanted).restricted(wanted))


def require_filterable(terms: Terms, robust: str, max_samples: int) -> None:
    """Refuse a filter where it cannot see single contributions, or that the noise does not account for."""
    if robust and robust not in FILTERS:
        raise UnknownNameError("robust filter", robust, FILTERS)
    asked = f"the filter {robust!r}" if robust else f"a cap of {max_samples} samples a client" if max_samples else ""
    if asked:
        terms.privacy.mode.check_filter(asked)


def source_of(store: FederationStore, *, robust: str = "", max_samples: int = 0, half_life: float = 0.0) -> Source:
    """Return what heads are fitted from: everything, what a filter leaves of it, or the release of it.

    Parameters
    ----------
    store
        The ledger.
    robust
        ``mad``: leave out clients whose statistics lie far from the others'. All contributions are in memory then.
    max_samples
        Leave out clients that say they have more samples than this; 0: any number.
    half_life
        Days after which a contribution weighs half as much (:mod:`fedmoments.federation.ageing`); 0: all weigh the
        same.

    Raises
    ------
    PrivacyError
        When a release of the present state is needed, and the budget does not allow one; nothing is lost then.
    NotEnoughDataError
        When too few parties are in the ledger, or left by a filter (:mod:`fedmoments.federation.company`).
    """
    require_filterable(store.terms, robust, max_samples)
    if half_life:
        if robust or max_samples:
            raise InputError("a half-life and a filter of clients are not applied together: choose one")
        return Source(_with_names(store.terms, aged_statistics(store, half_life)))
    if not robust and not max_samples:
        require_parties(store.terms, store.terms.privacy.mode.contributors(store.status()))
        statistics, noise = store.terms.privacy.mode.read(store)
        mode = store.terms.privacy.mode
        parts = (lambda: (part for _, part in store.contributions())) if mode.is_open else None
        return Source(_with_names(store.terms, statistics), noise=noise, parts=parts)
    return _filtered(store, robust, max_samples)


def _filtered(store: FederationStore, robust: str, max_samples: int) -> Source:
    """Return what a filter leaves of the contributions."""
    parts = dict(store.contributions())
    suspicion = suspects(parts, max_samples=max_samples or None, filter=robust or None, checked=True)
    dropped = {str(client): reason for client, reason in suspicion.dropped.items()}
    if len(dropped) == len(parts):
        raise InputError(f"the filter would leave out all {len(parts)} clients: raise the cap, or fit without a filter")
    kept = {client: part for client, part in parts.items() if client not in dropped}
    left = [client for client, part in kept.items() if part.n_samples]
    parties, choice = sum(part.n_samples > 0 for part in parts.values()), _behind(robust, max_samples)
    require_company(store.terms, left, parties, choice, "raise the cap, or fit without a filter")
    merged = _with_names(store.terms, Statistics.merge(kept.values()))
    return Source(merged, robust, max_samples, dropped, parts=kept.values)


def _behind(robust: str, max_samples: int) -> str:
    """Say which cap and filter a head is fitted behind."""
    cap = f"a cap of {max_samples} samples" if max_samples else ""
    return "behind " + " and ".join(filter(None, [cap, robust]))


def _with_names(terms: Terms, received: Statistics) -> Statistics:
    """Return what clients sent and what class names say, where the terms let them count."""
    return received if terms.names is None else terms.names.added_to(received, terms.map_or_none, terms.seed)


def require_served(terms: Terms, heads: Mapping[str, Head]) -> None:
    """Refuse heads that need moments which the terms do not ask for."""
    for name, head in heads.items():
        if not head.suited(terms.spec).needs <= terms.spec:
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
    terms, mode = store.terms, store.terms.privacy.mode
    chosen = {name: make_head(name, **(hyper or {}).get(name, {})) for name in heads}
    require_served(terms, chosen)
    source = source or source_of(store)
    notes: dict[str, Any] = {
        "encoder": terms.encoder_note,
        "fingerprint": terms.fingerprint.digest,
        "federation": terms.id,
        **mode.noise.notes,
        **({"name_samples": terms.names.n} if terms.names else {}),
    }
    fitted: dict[str, Fitted] = {}
    for name, asked in chosen.items():
        head = asked.suited(terms.spec)
        spec = spec_for(head, means_per_client=terms.spec.means_per_client)
        part, needed = mode.part_for(source.statistics, spec), source.for_head(head, terms)
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
        classifier = classifier.noting(**notes, head=name, settings=head.settings(), statistics=part.digest())
        fitted[name] = Fitted(head, classifier, part.digest(), str(spec), seconds)
    return fitted
