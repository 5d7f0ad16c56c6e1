"""The server's part of a test: broadcast the heads, and add up what nodes tell, believing none of them too much.

A clear result counts for at most as many samples as the clients that signed it contributed, so that nobody sets the
accuracy by claiming more, and the spread over nodes is shown beside it. Masked results are opened by the helper's sum
over all who reported; what single clients claimed there nobody can tell, only that all together claim no more samples
than were contributed.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from flwr.app import RecordDict
from flwr.serverapp import Grid

from fedmoments.core.observations.federated import SiteAccuracy, Spread, Trouble
from fedmoments.errors import FedMomentsError, InputError, PrivacyError
from fedmoments.federation.evaluation import LocalEvaluation
from fedmoments.federation.flower.exchange import Exchange, Failure, Reply
from fedmoments.federation.flower.live import Live
from fedmoments.federation.flower.messages import EVALUATE, content_of, read_content
from fedmoments.federation.flower.replies import cleaned
from fedmoments.federation.flower.secure import AloneRun, SecureRun
from fedmoments.federation.flower.testing import heads_digest, signed_results
from fedmoments.federation.results import Source
from fedmoments.federation.store import FederationStore
from fedmoments.privacy.modes.messages import TESTED
from fedmoments.privacy.secure import HeldReports, Leader, read_report
from fedmoments.settings.server import ServerSettings
from fedmoments.wire import PublicKey, pack_bundle, unpack_bundle

__all__ = ["Evaluated", "EvaluationRound"]

#: Cap on what a node may answer: confusion tables of some thousand classes.
EVALUATION_BYTES = 2**28
#: Nodes whose accuracy the report lists, lowest first.
MOST_SITES = 200


@dataclass
class Evaluated:
    """What clients found.

    Parameters
    ----------
    evaluations
        Sums over held-out samples, by head.
    spread
        How far nodes lie apart, by head: ready for JSON.
    failures
        Nodes that did not answer, or not soundly, and why.
    """

    evaluations: dict[str, LocalEvaluation]
    spread: dict[str, Spread] = field(default_factory=dict)
    failures: list[Trouble] = field(default_factory=list)


class EvaluationRound:
    """One round of tests.

    Parameters
    ----------
    grid, store, settings
        Whom to ask, who is enrolled and contributed what, and how.
    heads
        Bytes of the classifiers, by name.
    leading
        The server's part of adding up.
    source
        What the heads were fitted from: results of clients that were left out of it count for nothing.
    live
        Where the test says how far it is.
    """

    def __init__(
        self,
        grid: Grid,
        store: FederationStore,
        settings: ServerSettings,
        *,
        heads: Mapping[str, bytes],
        leading: SecureRun | AloneRun,
        source: Source,
        live: Live | None = None,
    ) -> None:
        self._live = live or Live("", store)
        self._grid, self._store, self._settings, self._leading = grid, store, settings, leading
        self._heads, self._digest = dict(heads), heads_digest(list(heads.values()))
        self._terms, self._mode = store.terms, store.terms.privacy.mode
        self._keys = {member.client: member.key for member in store.enrolled()}
        weights = self._mode.weights(store)
        self._contributed = {client: weight for client, weight in weights.items() if client not in source.dropped}
        self._samples = source.statistics.n_samples
        self._heard: set[str] = set()
        self._sites: dict[str, list[SiteAccuracy]] = {name: [] for name in heads}
        self._reports = HeldReports()
        zero = LocalEvaluation.zero(len(self._terms.classes))
        self.result = Evaluated(dict.fromkeys(heads, zero))

    def run(self) -> Evaluated:
        """Ask all nodes, and return what they found together."""
        nodes = self._leading.clients(sorted(self._grid.get_node_ids()))
        exchange = Exchange(self._grid, self._settings.ttl, self._settings.poll, EVALUATION_BYTES, "evaluation")
        content = content_of({"terms": self._terms.to_json(), "over": True}, pack_bundle(list(self._heads.values())))
        for failure in exchange.ask(EVALUATE, dict.fromkeys(nodes, content)):
            self._take(failure)

        def show() -> None:
            waiting = f"waiting for {self._live.names(sorted(exchange.pending)[:20])}"
            self._live.say(phase="clients test the heads", waiting=waiting, here=nodes, asked=[], pending=[])

        show()
        exchange.hear(self._take, until=time.monotonic() + self._settings.deadline, idle=show)
        if isinstance(self._leading, SecureRun):
            self._open(self._leading)
        else:
            self.result.spread = {name: _spread(sites) for name, sites in self._sites.items() if sites}
        alone = {name: self.result.evaluations[name].accuracy_alone for name in self.result.spread}
        self.result.spread = {name: replace(own, alone=alone[name]) for name, own in self.result.spread.items()}
        shown = {name: part.accuracy if part.n_samples else None for name, part in self.result.evaluations.items()}
        answered = len(nodes) - len({failure.node for failure in self.result.failures})
        self._store.note("evaluated", asked=len(nodes), answered=answered, accuracy=shown)
        return self.result

    def _take(self, answer: Reply | Failure) -> None:
        """Handle one answer; what a node sends can spoil nothing but its own part."""
        if isinstance(answer, Reply):
            try:
                self._read(answer.content)
            except FedMomentsError as error:
                answer = Failure(answer.node, EVALUATE, 0, str(error))
            except Exception as error:  # a node chooses what it sends: nothing of it may end the round
                answer = Failure(answer.node, EVALUATE, 0, f"its evaluation is invalid ({type(error).__name__})")
            else:
                return
        self._fail(answer.node, answer.reason, answer.code)

    def _fail(self, node: int | str, reason: str, code: int = 0) -> None:
        client = self._live.client(node) or None if isinstance(node, int) else None
        failure = Trouble(str(node), client, cleaned(reason, 500), code=code)
        self.result.failures.append(failure)
        self._store.note("evaluation failed", **failure.flattened())

    def _read(self, content: RecordDict) -> None:
        fields, bundle = read_content(content, most_bytes=EVALUATION_BYTES)
        if self._mode.has_helper:
            parts = unpack_bundle(bundle, max_bytes=EVALUATION_BYTES, max_items=len(self._keys))
            for part in parts:
                self._reports.take(read_report(bytes(part), self._context, self._size, self._key_of))
            return
        parts = unpack_bundle(bundle, max_bytes=EVALUATION_BYTES, max_items=len(self._heads))
        if len(parts) != len(self._heads):
            raise InputError(f"{len(self._heads)} heads were to be evaluated, but {len(parts)} evaluations arrived")
        most = self._weight(list(fields["clients"]), list(fields["signatures"]), bundle)
        noised = self._mode.noise.is_on
        classes = len(self._terms.classes)
        told = [LocalEvaluation.from_bytes(bytes(part), classes, noised=noised).bounded(most) for part in parts]
        found = {name: (result.accuracy, result.n_samples) for name, result in zip(self._heads, told, strict=True)
                 if result.n_samples}  # fmt: skip
        self._live.tested(list(fields["clients"]), found)
        for name, result in zip(self._heads, told, strict=True):
            self.result.evaluations[name] += result
            if result.n_samples:
                self._sites[name].append(SiteAccuracy(result.accuracy, result.n_samples, result.accuracy_alone))

    def _weight(self, clients: list[str], signatures: list[str], bundle: bytes) -> int:
        """Return how many samples the clients contributed that signed a result, none of which was heard before."""
        text = signed_results(self._terms, self._digest, bundle)
        if len(set(clients)) < len(clients) or not self._heard.isdisjoint(clients):
            raise InputError("its evaluation names a client twice, or one that another node spoke for")
        for client, signature in zip(clients, signatures, strict=True):
            if not self._key_of(client).verify(bytes.fromhex(signature), text):
                raise InputError(f"its evaluation is not signed by the client {client!r}")
        most = sum(self._contributed.get(client, 0) for client in clients)
        if not most:
            raise InputError("its clients contributed nothing to these heads, so that their results have no weight")
        self._heard.update(clients)
        return most

    def _key_of(self, client: str) -> PublicKey:
        if client not in self._keys:
            raise InputError(f"no client called {client!r} is enrolled")
        return self._keys[client]

    # ---------------------------------------------------------------------------------------------- behind masks

    @property
    def _context(self) -> Any:
        return self._terms.context.testing(self._digest)

    @property
    def _size(self) -> int:
        return len(self._heads) * len(LocalEvaluation.zero(len(self._terms.classes)).to_vector())

    def _open(self, leading: SecureRun) -> None:
        """Add up masked results together with the helper; without enough of them there is nothing to show."""
        leader = Leader(self._context, self._size, self._terms.privacy.batch, self._reports)
        try:
            request = leader.request()
            answer = leading.helper.ask(TESTED, request.to_bytes(), 8 * request.size)
            total = leader.finish(request, np.frombuffer(answer, "<u8").astype(np.uint64))
            vectors = np.split(total, len(self._heads))
            parts = [LocalEvaluation.from_vector(vector, len(self._terms.classes)) for vector in vectors]
            for part in parts:
                self._require_possible(part)
        except FedMomentsError as error:
            self._fail("all", f"masked results cannot be added up: {error}")
            return
        self.result.evaluations = dict(zip(self._heads, parts, strict=True))
        self.result.spread = dict.fromkeys(self._heads, Spread(clients=len(leader.present)))

    def _require_possible(self, part: LocalEvaluation) -> None:
        """Refuse a sum that no honest clients give: more samples than were contributed, or more right than tested."""
        if self._mode.noise.is_on:
            return
        samples, correct = part.totals.tolist()
        smallest = min(int(array.min(initial=0)) for array in vars(part).values())
        if not 0 <= correct <= samples <= max(self._samples, 1) or smallest < 0:
            raise PrivacyError(
                f"{correct} right answers on {samples} samples came out, but {self._samples} samples were "
                "contributed to these heads: a client claims what cannot be, and the masks hide which client it was"
            )


def _spread(sites: list[SiteAccuracy]) -> Spread:
    """Return how far accuracies of nodes lie apart, the largest share of samples that one has, and each, nameless."""
    accuracies = sorted(site.accuracy for site in sites)
    samples = [site.samples for site in sites]
    lowest = sorted(sites, key=lambda site: (site.accuracy, site.samples))[:MOST_SITES]
    return Spread(
        nodes=len(sites),
        lowest=accuracies[0],
        median=float(np.median(accuracies)),
        highest=accuracies[-1],
        largest_share=max(samples) / sum(samples),
        sites=tuple(lowest),
    )
