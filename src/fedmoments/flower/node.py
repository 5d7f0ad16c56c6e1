"""A node: what one party's machine does when the federation asks. Knows nothing of Flower.

The node decides. It checks the terms against its own policy, measures its own data, signs, keeps what it sends on its
own disk until it is acknowledged, and writes down what left.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from fedmoments.classifier import Classifier, load_bytes
from fedmoments.deploy.keys import load_identity
from fedmoments.errors import FedMomentsError, InputError, LedgerError, PolicyError
from fedmoments.features.registry import encoders
from fedmoments.federation.evaluation import LocalEvaluation
from fedmoments.federation.outbox import Outbox
from fedmoments.federation.terms import Terms
from fedmoments.flower.holdings import Held, holdings_of
from fedmoments.flower.settings import ClientSettings
from fedmoments.linalg import blocks
from fedmoments.statistics import Accumulator, Statistics
from fedmoments.wire import IdentityKey, encode, pack_bundle

__all__ = ["Node", "Offer", "identity_of", "measure_held"]


@dataclass(frozen=True)
class Offer:
    """What a node sends when it is asked to contribute.

    Parameters
    ----------
    bundle
        Contributions, packed.
    clients
        Whose they are.
    declined
        What was not sent: client, and the rule or error that kept it back.
    more
        Whether others wait for the next time.
    """

    bundle: bytes
    clients: tuple[str, ...]
    declined: tuple[Mapping[str, str], ...]
    more: bool = False

    def words(self) -> dict[str, Any]:
        """Return all but the bundle, ready for JSON."""
        return {"clients": list(self.clients), "more": self.more, "declined": [dict(each) for each in self.declined]}


def identity_of(settings: ClientSettings, client: str) -> IdentityKey:
    """Return the key that signs a client's contributions: from its file, or derived in a simulation."""
    if settings.key_seed:
        return IdentityKey.from_bytes(sha256(f"fedmoments\n{settings.key_seed}\n{client}".encode()).digest())
    return load_identity(Path(settings.keys) / f"{client}.identity")


def measure_held(held: Held, terms: Terms) -> Statistics:
    """Measure one client's features behind the terms' feature map, in fixed point."""
    accumulator = Accumulator(terms.spec, n_classes=len(terms.classes), dim=terms.dim, seed=terms.seed)
    feature_map = terms.fingerprint.feature_map
    for block in blocks(len(held.y)):
        X = held.X[block]
        accumulator.update(feature_map(X) if feature_map else X, held.y[block])
    return accumulator.statistics().quantized(terms.fixed_point)


class Node:
    """One party's machine, serving one client or several.

    Parameters
    ----------
    settings
        The client's own.
    """

    def __init__(self, settings: ClientSettings) -> None:
        self.settings, self.policy = settings, settings.own_policy
        self.outbox = Outbox(settings.folder) if settings.folder else NoOutbox()

    def contribute(self, terms: Terms, *, most_bytes: int, again: bool = False, after: str = "") -> Offer:
        """Return contributions that were not acknowledged yet, as many as fit; errors of one client stop no other.

        Parameters
        ----------
        terms
            What is asked for.
        most_bytes
            Cap on the bundle; a single larger contribution goes alone, for the terms cap that.
        again
            Send also what was acknowledged before.
        after
            The last client of a bundle that had no room for all: go on behind it.
        """
        try:
            self._require_terms(terms)
            self.policy.require(terms)
            clients = holdings_of(self.settings, terms).clients
        except (FedMomentsError, OSError, ValueError) as error:
            who = self.settings.name or "all clients of this node"
            self.outbox.declined(terms, who, str(error))
            return Offer(pack_bundle([]), (), ({"client": who, "why": str(error)},))
        if after:
            clients = clients[clients.index(after) + 1 :] if after in clients else ()
        sent: dict[str, bytes] = {}
        declined: list[dict[str, str]] = []
        room = most_bytes
        with self.outbox.batch():  # on the disk before anything leaves: the bundle is returned after the block
            for client in clients:
                try:
                    data = self._contribution(terms, client)
                except (FedMomentsError, OSError, ValueError, ArithmeticError) as error:
                    declined.append({"client": client, "why": str(error)})
                    self.outbox.declined(terms, client, str(error))
                    continue
                if not again and self.outbox.acknowledged(terms.id, client):
                    continue
                if len(data) > room and sent:
                    return Offer(pack_bundle(list(sent.values())), tuple(sent), tuple(declined), more=True)
                room -= len(data)
                sent[client] = data
                self.outbox.sent(terms, client)
        return Offer(pack_bundle(list(sent.values())), tuple(sent), tuple(declined))

    def acknowledge(self, receipts: Sequence[str], refusals: Sequence[Mapping[str, Any]]) -> list[str]:
        """Keep receipts and refusals, each by itself; return what was wrong with those that cannot be kept."""
        problems: list[str] = []
        with self.outbox.batch():
            for receipt in receipts:
                try:
                    self.outbox.acknowledge(receipt)
                except LedgerError as error:
                    problems.append(str(error))
            for refusal in refusals:
                given = [refusal[key] for key in ("federation", "client", "version", "reason", "sentence")]
                try:
                    self.outbox.refused(*given)
                except LedgerError as error:
                    problems.append(str(error))
        return problems

    def evaluate(self, terms: Terms, classifier_bytes: bytes) -> LocalEvaluation:
        """Return how a broadcast head does on this node's held-out data, summed over its clients."""
        self._require_terms(terms)
        classifier = load_bytes(classifier_bytes)
        _require_agreed(classifier, terms)
        total = LocalEvaluation.zero(classifier.n_classes)
        if not self.settings.evaluate:
            return total
        holdings = holdings_of(self.settings, terms)
        temperature = float(classifier.info.get("temperature", 1.0))
        for client in holdings.clients:
            held = holdings.test(client)
            if len(held.y):
                found = LocalEvaluation.of(
                    classifier, held.X, held.y, temperature=temperature, min_count=self.policy.min_count
                )
                self.outbox.evaluated(terms, client, found)
                total += found
        return total

    def _require_terms(self, terms: Terms) -> None:
        """Refuse terms that this client did not read."""
        named = terms.encoder["name"] in encoders()
        if not self.settings.federation and not named:
            raise PolicyError(
                f"the server asks for the encoder '{terms.encoder['name']}', a file, a function or a download: a "
                "client that has not read the terms loads none but those that fedmoments knows by name"
            )
        if self.settings.federation and terms.id != self.settings.federation:
            raise PolicyError(
                f"this client takes part in the federation {self.settings.federation[:16]}…, but the server sent the "
                f"terms of {terms.id[:16]}… ('{terms.name}'): read those first, then name them in the settings"
            )

    def _contribution(self, terms: Terms, client: str) -> bytes:
        held = holdings_of(self.settings, terms).train(client)

        key = identity_of(self.settings, client)

        def make(version: int) -> bytes:
            mask, withheld = self.policy.select(held.y, terms.spec.means_per_client)
            kept = Held(held.X[mask], held.y[mask])
            stats = measure_held(kept, terms)
            data = encode(stats, terms.agreement, client=client, version=version, key=key, withheld=withheld)
            self.policy.require_size(len(data))
            return data

        source = sha256(f"{held.digest()}{self.policy}{key.public.hex}".encode()).hexdigest()
        return self.outbox.prepare(terms, client, source, make)


class NoOutbox:
    """Stands for an outbox in a simulation, where nothing is kept: a contribution is made anew, the same bytes."""

    def prepare(self, terms: Terms, client: str, source: str, make: Callable[[int], bytes]) -> bytes:  # noqa: ARG002
        """Make the first version."""
        return make(1)

    def batch(self) -> AbstractContextManager[None]:
        """Group nothing."""
        return nullcontext()

    def acknowledged(self, terms_id: str, client: str) -> bool:  # noqa: ARG002
        """Remember no receipt."""
        return False

    def _forget(self, *_: object) -> None:
        """Keep nothing."""

    sent = acknowledge = refused = declined = evaluated = _forget


def _require_agreed(classifier: Classifier, terms: Terms) -> None:
    """Refuse to evaluate a classifier of another federation."""
    if classifier.class_names != terms.classes:
        raise InputError("the classifier that was broadcast has other classes than the terms")
