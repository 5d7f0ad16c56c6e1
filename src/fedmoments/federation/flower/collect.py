"""Collecting: ask nodes for contributions, take them into the ledger, acknowledge what is on the disk.

What arrives is submitted in groups, one transaction each, and forgotten. A node hears of a contribution's receipt only
after the commit; a node that never hears sends the same bytes again, which changes nothing.
"""

import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from flwr.serverapp import Grid

from fedmoments.core.observations.federated import ServerRound, Trouble
from fedmoments.errors import InputError, RefusedError
from fedmoments.federation.flower.exchange import Exchange, Failure, Reply
from fedmoments.federation.flower.live import Live
from fedmoments.federation.flower.messages import ACKNOWLEDGE, CONTRIBUTE, content_of
from fedmoments.federation.flower.replies import Contributed, cleaned, read_contributed
from fedmoments.federation.outbox import LEFT
from fedmoments.federation.store import FederationStore
from fedmoments.settings.server import ServerSettings
from fedmoments.wire.withdrawal import is_withdrawal, withdrawn_by

__all__ = ["Collection"]

#: A group of contributions is committed when it has so many members or bytes, or when nothing more came.
GROUP_SIZE, GROUP_BYTES = 256, 2**26
#: How often a node that went away is asked again in one round.
MOST_TRIES = 3
#: Seconds between two looks for nodes that came back.
LOOK = 5.0
#: Seconds beyond the deadline in which nodes may still hear what was taken in.
GRACE = 15.0
#: Troubles of each kind that a report holds; the ledger's log counts all.
MOST_TOLD = 200


class _Told:
    """What goes on in a round, and the first `MOST_TOLD` of each kind of trouble."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.accepted, self.bytes = 0, 0
        self.counts = {"refused": 0, "declined": 0, "failures": 0}
        self._troubles: dict[str, list[Trouble]] = {kind: [] for kind in self.counts}

    def tell(self, kind: str, trouble: Trouble) -> None:
        """Count something that went wrong, and keep it if there is room."""
        self.counts[kind] += 1
        if len(self._troubles[kind]) < MOST_TOLD:
            self._troubles[kind].append(trouble)

    def round(self, number: int, seconds: float) -> ServerRound:
        """Return the round, once it is over."""
        refused, declined, failures = (tuple(troubles) for troubles in self._troubles.values())
        asked = tuple(self.asked)
        return ServerRound(number, asked, self.accepted, refused, declined, failures, self.counts, self.bytes, seconds)


@dataclass
class _Group:
    """Contributions that wait for one transaction, with the nodes that sent them."""

    items: list[bytes] = field(default_factory=list)
    nodes: list[int] = field(default_factory=list)
    size: int = 0

    @property
    def is_full(self) -> bool:
        """Whether it is time for the transaction."""
        return len(self.items) >= GROUP_SIZE or self.size >= GROUP_BYTES

    def add(self, node: int, items: Sequence[bytes]) -> None:
        """Add what a node sent."""
        self.items += items
        self.nodes += [node] * len(items)
        self.size += sum(map(len, items))


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
    live
        Where the round says what it is doing.
    """

    def __init__(
        self,
        grid: Grid,
        store: FederationStore,
        settings: ServerSettings,
        *,
        number: int,
        progress: Callable[[int, int, str], None] | None = None,
        live: Live | None = None,
    ) -> None:
        self._live = live or Live("", store)
        self.store, self.settings, self._mode = store, settings, store.terms.privacy.mode
        self._number, self._told = number, _Told()
        self.done: set[int] = set()
        self._grid, self._progress = grid, progress
        self._exchange = Exchange(grid, settings.ttl, settings.poll, settings.bundle_bytes, f"round {number}")
        self._group = _Group()
        self._enrolled = len(store.enrolled())
        self._more: dict[int, str] = {}
        self._seen: dict[int, int] = {}
        self._received: dict[int, int] = {}
        self._until = math.inf
        self._tries: dict[int, int] = {}
        self._away: dict[int, Failure] = {}
        self._looked = 0.0

    def run(self, nodes: list[int]) -> ServerRound:
        """Ask nodes, and return what happened once all have answered or the deadline has passed."""
        start = time.monotonic()
        self._until = start + self.settings.deadline
        self._told.asked = list(nodes)
        self._show()
        self._ask(nodes)
        while self._exchange.pending or self._wait_for_return():
            self._exchange.hear(self._take, until=self._until, idle=self._work)
            self._flush()
            if time.monotonic() >= self._until:
                break
        self._exchange.hear(self._take, until=time.monotonic() + GRACE)  # acknowledgements of what came last
        for failure in self._away.values():
            self._fail(failure)
        return self._told.round(self._number, time.monotonic() - start)

    def _work(self) -> None:
        """Between two looks: commit what came, and ask nodes again that are back."""
        self._flush()
        self._show()
        if self._away and time.monotonic() - self._looked >= LOOK:
            self._ask_returned()

    def _show(self) -> None:
        """Say for whom the round waits."""
        pending = sorted(self._exchange.pending | set(self._away))
        asked = self._told.asked
        self._live.say(
            phase=f"round {self._number} of {self.settings.rounds}",
            waiting=f"waiting for {self._live.names(pending[:20])}{' …' if len(pending) > 20 else ''}",
            here=[node for node in asked if node not in self._away],
            asked=asked,
            pending=pending,
        )

    def _ask(self, nodes: list[int]) -> None:
        """Ask nodes from their first client on."""
        for node in nodes:
            self._tries[node] = self._tries.get(node, 0) + 1
            self._received[node] = 0  # it begins anew, and may send again what was not acknowledged
        self._ask_after(dict.fromkeys(nodes, ""))

    def _ask_after(self, last: dict[int, str]) -> None:
        """Ask nodes for what they have behind the last client that was sent."""
        fields = {
            "terms": self.store.terms.to_json(),
            "most_bytes": self.settings.bundle_bytes,
            "again": self.settings.again,
            "attempt": self.store.terms.attempt,
            "given_up": self.store.given_up(),
        }
        contents = {node: content_of({**fields, "after": after}) for node, after in last.items()}
        for failure in self._exchange.ask(CONTRIBUTE, contents):
            self._fail(failure)

    def _take(self, answer: Reply | Failure) -> None:
        """Handle one answer; what a node sends can spoil nothing but its own part."""
        if isinstance(answer, Failure):
            if answer.kind == CONTRIBUTE and answer.passing and self._tries[answer.node] < MOST_TRIES:
                self._away[answer.node] = answer
            else:
                self._fail(answer)
        elif answer.kind == ACKNOWLEDGE:
            self._say(answer.node, "acknowledged")
        else:
            self._take_contributions(answer)

    def _take_contributions(self, answer: Reply) -> None:
        room = self._enrolled - self._received[answer.node]
        try:
            reply = read_contributed(answer.content, most_bytes=self.settings.bundle_bytes, most_items=room)
        except InputError as error:
            self._fail(Failure(answer.node, answer.kind, 0, str(error)))
            return
        self._received[answer.node] += len(reply.items)
        self._seen[answer.node] = reply.seen
        if reply.n_declined:
            self._note_declined(answer.node, reply)
        if reply.more and reply.items and time.monotonic() < self._until:
            self._more[answer.node] = reply.last
        self._group.add(answer.node, reply.items)
        if not reply.items:
            self.done.add(answer.node)
            self._tell_departed(answer.node, reply.held)
        if self._group.is_full:
            self._flush()

    def _tell_departed(self, node: int, clients: Sequence[str]) -> None:
        """Tell clients that hold a receipt and have left since: they would believe that they take part."""
        refusals = []
        for client in clients:
            version = self.store.departed(client)
            if version is not None:
                sentence = (
                    f"client {client!r} has left with version {version}, and the ledger holds nothing of it: to "
                    "contribute again, run 'fedmoments rejoin FOLDER', with its own folder, and start it again"
                )
                whose: dict[str, Any] = {"federation": self.store.terms.id, "client": client, "version": version}
                refusals.append({**whose, "reason": LEFT, "sentence": sentence})
                self._told.tell("refused", Trouble(node, **refusals[-1]))
        if refusals:
            content = content_of({"receipts": [], "refusals": refusals, "over": False, "log": None})
            for failure in self._exchange.ask(ACKNOWLEDGE, {node: content}):
                self._fail(failure)

    def _taken_in(self, group: _Group) -> list[Any]:
        """Take in contributions with one commit, and withdrawals each by itself; return the answers in order."""
        sources = [f"node {node}" for node in group.nodes]
        answers: dict[int, Any] = {
            place: self.store.withdraw(item, source=sources[place])
            for place, item in enumerate(group.items)
            if is_withdrawal(item)
        }
        rest = [place for place in range(len(group.items)) if place not in answers]
        results = self._mode.take_in(
            self.store, [group.items[place] for place in rest], [sources[place] for place in rest]
        )
        answers |= dict(zip(rest, results, strict=True))
        return [answers[place] for place in range(len(group.items))]

    def _note_declined(self, node: int, reply: Contributed) -> None:
        """Log what a node withheld: one entry a reply, however many clients it names."""
        declined = [dict(entry) for entry in reply.declined]
        for entry in declined:
            self._told.tell("declined", Trouble(node, entry["client"], why=entry["why"]))
        self._told.counts["declined"] += reply.n_declined - len(declined)
        self.store.note("declined", node=str(node), count=reply.n_declined, clients=declined)

    def _flush(self) -> None:
        """Commit what has arrived, and then acknowledge it."""
        group, self._group = self._group, _Group()
        if not group.items:
            return
        answers: dict[int, dict[str, list[Any]]] = {}
        entries: dict[int, list[int]] = {}
        results = self._taken_in(group)
        for node, item, result in zip(group.nodes, group.items, results, strict=True):
            answer = answers.setdefault(node, {"receipts": [], "refusals": []})
            if isinstance(result, RefusedError):
                refusal = self._refusal(item, result)
                self._told.tell("refused", Trouble(node, **refusal))
                if refusal["version"]:
                    answer["refusals"].append(refusal)
            else:
                answer["receipts"].append(result.to_json())
                entries.setdefault(node, []).append(result.seq)
                self._live.learn(node, result.client)
                self._told.accepted += 1
        self._told.bytes += group.size
        shown = {node: self.store.show(entries.get(node, ()), self._seen.get(node, 0)) for node in answers}
        contents = {node: content_of({**answer, "over": False, "log": shown[node]}) for node, answer in answers.items()}
        self.done |= set(answers) - set(self._more)
        for failure in self._exchange.ask(ACKNOWLEDGE, contents):
            self._fail(failure)
        more, self._more = self._more, {}
        if more:
            self._ask_after(more)

    def _refusal(self, item: bytes, error: RefusedError) -> dict[str, Any]:
        """Return what is sent to the client; without a readable header, the version is 0."""
        client, version = error.client or "", 0
        with suppress(RefusedError):
            own = withdrawn_by(item) if is_withdrawal(item) else self._mode.sender(item, self.store.terms)
            client, version = own
        whose = {"federation": self.store.terms.id, "client": client, "version": version}
        return {**whose, "reason": error.reason, "sentence": error.sentence}

    def _wait_for_return(self) -> bool:
        """Wait until a node that went away is back and was asked again; return whether one was."""
        while self._away and time.monotonic() < self._until:
            if self._ask_returned():
                return True
            time.sleep(min(LOOK, max(self._until - time.monotonic(), 0.0)))
        return False

    def _ask_returned(self) -> bool:
        """Ask nodes again that went away and are back; return whether there were any."""
        self._looked = time.monotonic()
        here = set(self._grid.get_node_ids())
        back = sorted(node for node in self._away if node in here)
        for node in back:
            self.store.note("node back", node=str(node), reason=self._away.pop(node).reason[:500])
        if back:
            self._ask(back)
        return bool(back)

    def _fail(self, failure: Failure) -> None:
        reason = cleaned(failure.reason, 500)
        client = self._live.client(failure.node) or None
        trouble = Trouble(str(failure.node), client, reason, code=failure.code, kind=failure.kind)
        self._told.tell("failures", trouble)
        self.store.note("node failed", **trouble.flattened())
        self._say(failure.node, f"failed: {reason[-200:]}")

    def _say(self, node: int, what: str) -> None:
        if self._progress:
            self._progress(len(self.done), len(self._told.asked), f"{self._live.name(node)} {what}")
