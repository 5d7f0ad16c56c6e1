"""The second of two phases at the server: tell all clients what the first one gave, and add up what they report."""

import time
from hashlib import sha256
from typing import Any

from flwr.serverapp import Grid

from fedmoments.errors import DeploymentError, FedMomentsError, PrivacyError
from fedmoments.federation.flower.exchange import Exchange, Failure, Reply
from fedmoments.federation.flower.messages import ACKNOWLEDGE, SECOND, content_of
from fedmoments.federation.flower.replies import cleaned, read_contributed
from fedmoments.federation.flower.second_report import SecondPhase
from fedmoments.federation.store import FederationStore, Receipt
from fedmoments.privacy.secure import HeldReports, Leader, Report, read_report
from fedmoments.privacy.secure.broadcast import Broadcast
from fedmoments.settings.server import ServerSettings

__all__ = ["SecondCollection"]

#: Seconds within which nodes should hear that their second reports are in.
GRACE = 15.0


class SecondCollection:
    """Asks for reports of the second phase.

    They are held in memory only: clients keep what they sent, and send the same again if the server is started again.

    Parameters
    ----------
    grid, store, settings
        Whom to ask, who is enrolled, and how.
    broadcast
        What the first phase gave.
    clients
        Who was in it.
    """

    def __init__(
        self,
        grid: Grid,
        store: FederationStore,
        settings: ServerSettings,
        broadcast: Broadcast,
        clients: frozenset[str],
    ) -> None:
        self._store, self._settings, self._broadcast = store, settings, broadcast
        self._keys = {member.client: member.key for member in store.enrolled()}
        self._exchange = Exchange(grid, settings.ttl, settings.poll, settings.bundle_bytes, "second phase")
        self._context = broadcast.context(store.terms.context)
        self._reports, self._clients = HeldReports(), clients
        self.leader = Leader(self._context, broadcast.size, store.terms.privacy.batch, self._reports)
        self._sent: dict[int, list[tuple[str, str]]] = {}
        self._seen: dict[int, int] = {}
        self.troubles: list[str] = []

    def run(self, nodes: list[int]) -> None:
        """Ask nodes for the reports of all clients of the first phase.

        Raises
        ------
        PrivacyError
            When one of them did not report: both phases must be over the same clients.
        """
        self._ask(dict.fromkeys(nodes, ""))
        self._exchange.hear(self._take, until=time.monotonic() + self._settings.deadline)
        missing = sorted(self._clients - set(self.leader.present))
        if missing:
            raise PrivacyError(
                f"{len(missing)} of {len(self._clients)} clients of the first phase are missing in the second "
                f"({', '.join(missing[:5])}), and both must be over the same: the first is kept, so run again when "
                f"they are there, or give it up with 'fedmoments leave'. {' | '.join(self.troubles[:3])}"
            )

    def acknowledge(self) -> None:
        """Tell the nodes that their reports are in, with the last entry of the log as the receipt."""
        last = list(self._store.audit())[-1]
        phase = SecondPhase(self._store.terms, self._broadcast)
        place = (last.seq, last.hash, "reported", last.time)
        contents = {}
        for node, sent in self._sent.items():
            made = [Receipt(phase.id, client, 1, digest, *place) for client, digest in sent]
            receipts = [self._store.signed(receipt).to_json() for receipt in made]
            log = self._store.show([last.seq], self._seen.get(node, 0))
            contents[node] = content_of({"receipts": receipts, "refusals": [], "over": False, "log": log})
        self._exchange.ask(ACKNOWLEDGE, contents)
        self._exchange.hear(lambda _: None, until=time.monotonic() + GRACE)

    def _ask(self, after: dict[int, str]) -> None:
        terms = self._store.terms
        fields = {"terms": terms.to_json(), "attempt": terms.attempt, "most_bytes": self._settings.bundle_bytes}
        broadcast = self._broadcast.to_bytes()
        contents = {node: content_of({**fields, "after": last}, broadcast) for node, last in after.items()}
        for failure in self._exchange.ask(SECOND, contents):
            self._take(failure)

    def _take(self, answer: Reply | Failure) -> None:
        """Handle one answer; what a node sends can spoil nothing but its own part."""
        if isinstance(answer, Failure):
            self._tell(answer.node, answer.reason)
            return
        try:
            reply = read_contributed(answer.content, most_bytes=self._settings.bundle_bytes, most_items=len(self._keys))
        except FedMomentsError as error:
            self._tell(answer.node, str(error))
            return
        self._seen[answer.node] = reply.seen
        for entry in reply.declined:
            self._tell(answer.node, f"{entry['client']}: {entry['why']}")
        for item in reply.items:
            self._keep(answer.node, item)
        if reply.more and reply.items:
            self._ask({answer.node: reply.last})

    def _keep(self, node: int, item: bytes) -> None:
        try:
            report = self._read(item)
            if report.client not in self._clients:  # its data are not in the means that it was sent
                return
            self._reports.take(report)
            self._sent.setdefault(node, []).append((report.client, sha256(item).hexdigest()))
        except FedMomentsError as error:
            self._tell(node, str(error))

    def _read(self, item: bytes) -> Report:
        def key_of(client: str) -> Any:
            if client not in self._keys:
                raise DeploymentError(f"no client called {client!r} is enrolled")
            return self._keys[client]

        return read_report(item, self._context, self._broadcast.size, key_of)

    def _tell(self, node: int, reason: str) -> None:
        text = cleaned(reason, 500)
        self.troubles.append(text)
        self._store.note("second phase", node=str(node), reason=text)
