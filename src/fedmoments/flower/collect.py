"""Collecting: ask nodes for contributions, take them into the ledger, acknowledge what is on the disk.

What arrives is submitted in groups, one transaction each, and forgotten. A node hears of a contribution's receipt only
after the commit; a node that never hears sends the same bytes again, which changes nothing.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from flwr.serverapp import Grid

from fedmoments.errors import FedMomentsError, RefusedError
from fedmoments.federation.store import FederationStore
from fedmoments.flower.exchange import Exchange, Failure, Reply
from fedmoments.flower.messages import ACKNOWLEDGE, CONTRIBUTE, content_of, read_content
from fedmoments.flower.settings import ServerSettings
from fedmoments.wire import read_header, unpack_bundle

__all__ = ["Collection", "RoundReport"]

#: A group of contributions is committed when it has so many members or bytes, or when nothing more came.
GROUP_SIZE, GROUP_BYTES = 256, 2**26
#: How often a node that went away is asked again in one round.
MOST_TRIES = 3
#: Seconds between two looks for nodes that came back.
LOOK = 5.0


@dataclass
class RoundReport:
    """What happened in one round.

    Parameters
    ----------
    number
        From 1.
    asked
        Nodes that were asked.
    accepted, refused
        Contributions taken in (or known already), and refusals (code and sentence).
    declined
        What nodes kept back, and why.
    failures
        Nodes that did not answer, and why.
    bytes
        Bytes of the contributions that arrived.
    seconds
        How long it took.
    """

    number: int
    asked: list[int] = field(default_factory=list)
    accepted: int = 0
    refused: list[dict[str, Any]] = field(default_factory=list)
    declined: list[dict[str, Any]] = field(default_factory=list)
    failures: list[dict[str, Any]] = field(default_factory=list)
    bytes: int = 0
    seconds: float = 0.0


@dataclass
class _Group:
    """Contributions that wait for one transaction, with the nodes that sent them."""

    items: list[bytes] = field(default_factory=list)
    nodes: list[int] = field(default_factory=list)
    size: int = 0


class Collection:
    """One round of collection.

    Parameters
    ----------
    grid, store, settings
        Whom to ask, where contributions go, and how.
    number
        Of the round, from 1.
    progress
        Called with (nodes done, nodes asked, what happened).
    """

    def __init__(
        self,
        grid: Grid,
        store: FederationStore,
        settings: ServerSettings,
        *,
        number: int,
        progress: Callable[[int, int, str], None] | None = None,
    ) -> None:
        self.store, self.settings = store, settings
        self.report = RoundReport(number)
        self.done: set[int] = set()
        self._grid, self._progress = grid, progress
        self._exchange = Exchange(grid, settings.ttl, settings.poll, settings.bundle_bytes, f"round {number}")
        self._group = _Group()
        self._enrolled = len(store.enrolled())
        self._more: dict[int, str] = {}
        self._parts: dict[int, int] = {}
        self._tries: dict[int, int] = {}
        self._away: dict[int, Failure] = {}
        self._looked = 0.0

    def run(self, nodes: list[int]) -> RoundReport:
        """Ask nodes, and return what happened once all have answered or the deadline has passed."""
        start = time.monotonic()
        until = start + self.settings.deadline
        self.report.asked = list(nodes)
        self._ask(nodes)
        while True:
            self._exchange.hear(self._take, until=until, idle=self._flush)
            self._flush()
            if not self._exchange.pending and not self._wait_for_return(until):
                break
        for failure in self._away.values():
            self._fail(failure)
        self.report.seconds = time.monotonic() - start
        return self.report

    def _ask(self, nodes: list[int]) -> None:
        """Ask nodes from their first client on."""
        for node in nodes:
            self._tries[node] = self._tries.get(node, 0) + 1
        self._ask_after(dict.fromkeys(nodes, ""))

    def _ask_after(self, last: dict[int, str]) -> None:
        """Ask nodes for what they have behind the last client that was sent."""
        words = {
            "terms": self.store.terms.to_json(),
            "most_bytes": self.settings.bundle_bytes,
            "again": self.settings.again,
        }
        contents = {node: content_of({**words, "after": after}) for node, after in last.items()}
        for failure in self._exchange.ask(CONTRIBUTE, contents):
            self._fail(failure)

    def _take(self, answer: Reply | Failure) -> None:
        """Handle one answer; what a node sends can spoil nothing but its own part."""
        if isinstance(answer, Failure):
            if answer.kind == CONTRIBUTE and answer.passing and self._tries[answer.node] < MOST_TRIES:
                self._away[answer.node] = answer
            else:
                self._fail(answer)
            return
        if answer.kind == ACKNOWLEDGE:
            self._say(answer.node, "acknowledged")
            return
        try:
            words, bundle = read_content(answer.content, most_bytes=self.settings.bundle_bytes + 2**20)
            items = unpack_bundle(bundle, max_bytes=self.settings.bundle_bytes + 2**20, max_items=2**20)
            last = str((words["clients"] or [""])[-1])
            declined = [{"client": str(each["client"]), "why": str(each["why"])[:500]} for each in words["declined"]]
        except (FedMomentsError, KeyError, TypeError, ValueError) as error:
            self._fail(Failure(answer.node, answer.kind, 0, f"its reply makes no sense: {error}"))
            return
        for each in declined:
            self.report.declined.append({"node": answer.node, **each})
            self.store.note("declined", node=str(answer.node), **each)
        self._parts[answer.node] = self._parts.get(answer.node, 0) + 1
        if words.get("more") is True and items and self._parts[answer.node] <= self._enrolled:
            self._more[answer.node] = last
        for item in items:
            self._group.items.append(bytes(item))
            self._group.nodes.append(answer.node)
            self._group.size += len(item)
        if not items:
            self.done.add(answer.node)
        if len(self._group.items) >= GROUP_SIZE or self._group.size >= GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        """Commit what has arrived, and then acknowledge it."""
        group, self._group = self._group, _Group()
        if not group.items:
            return
        answers: dict[int, dict[str, list[Any]]] = {}
        found = self.store.submit_many(group.items, source=f"round {self.report.number}")
        for node, item, result in zip(group.nodes, group.items, found, strict=True):
            answer = answers.setdefault(node, {"receipts": [], "refusals": []})
            if isinstance(result, RefusedError):
                refusal = self._refusal(item, result)
                self.report.refused.append({"node": node, **refusal})
                if refusal["client"]:
                    answer["refusals"].append(refusal)
            else:
                answer["receipts"].append(result.to_json())
                self.report.accepted += 1
        self.report.bytes += group.size
        contents = {node: content_of({**answer, "over": False}) for node, answer in answers.items()}
        self.done |= set(answers) - set(self._more)
        for failure in self._exchange.ask(ACKNOWLEDGE, contents):
            self._fail(failure)
        more, self._more = self._more, {}
        if more:
            self._ask_after(more)

    def _refusal(self, item: bytes, error: RefusedError) -> dict[str, Any]:
        """Return what the client is told; a header that cannot be read has no version to speak of."""
        client, version = error.client or "", 0
        try:
            header = read_header(item, self.store.terms.agreement)
            client, version = header.client, header.version
        except RefusedError:
            pass
        told = {"federation": self.store.terms.id, "client": client, "version": version}
        return {**told, "reason": error.reason, "sentence": error.sentence}

    def _wait_for_return(self, until: float) -> bool:
        """Ask nodes again that went away and came back; return whether there is anything left to hear."""
        while self._away and time.monotonic() < until:
            here = set(self._grid.get_node_ids())
            back = sorted(node for node in self._away if node in here)
            if back:
                for node in back:
                    self.store.note("node back", node=str(node), reason=self._away.pop(node).reason[:500])
                self._ask(back)
                return True
            time.sleep(min(LOOK, max(until - time.monotonic(), 0.0)))
        return False

    def _fail(self, failure: Failure) -> None:
        facts = {"node": str(failure.node), "code": failure.code, "reason": failure.reason[:500]}
        self.report.failures.append({**facts, "kind": failure.kind})
        self.store.note("node failed", kind=failure.kind, **facts)
        self._say(failure.node, f"failed: {failure.reason.strip().splitlines()[-1][:200]}")

    def _say(self, node: int, what: str) -> None:
        if self._progress:
            self._progress(len(self.done), len(self.report.asked), f"node {node} {what}")
