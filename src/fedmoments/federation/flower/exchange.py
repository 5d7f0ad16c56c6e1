"""Asking nodes and hearing from them: push, then poll until everybody answered or the time is over.

Replies are pulled a few at a time and handed on at once, never collected: a server process holds what it is working on
and no more. A reply that its SuperLink has not passed on before the node leaves is lost, so there is no pause between
two looks while replies come in. Errors are matched to nodes by the message that they answer, because some carry a
wrong source.

A node that is killed with a message in its hands, and is back before the SuperLink has noticed, never answers, and
nobody says so. A node takes one message at a time, in order: so one that is quiet for long is sent a short question,
and if that is answered while an earlier message is not, the earlier one is lost.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from fedmoments.federation.flower.messages import PRESENT, content_of

__all__ = ["Exchange", "Failure", "Reply"]

#: What taking a reply apart raises when its node sent nonsense; what the network raises is not among them.
_BROKEN = (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError)
#: Most bytes of replies that one pull may bring.
PULL_BYTES = 2**28
#: Our own code, beside Flower's: the node is there, and did not get the message or lost it.
LOST = -2


@dataclass(frozen=True)
class Reply:
    """What a node answered, and what the message was about."""

    node: int
    kind: str
    content: RecordDict
    about: str = ""


@dataclass(frozen=True)
class Failure:
    """Why a node did not answer: Flower's code and reason, that time was over (code −1), or `LOST`."""

    node: int
    kind: str
    code: int
    reason: str
    about: str = ""

    @property
    def passing(self) -> bool:
        """Whether the node may answer if it is asked again: it went away, its app process died, or it was restarted."""
        return self.code in (5, 8, LOST)


@dataclass(frozen=True)
class _Sent:
    """A message under way: to whom, of which type, about what, and when it was sent."""

    node: int
    kind: str
    about: str
    time: float


@dataclass
class Exchange:
    """Messages under way.

    Parameters
    ----------
    grid
        Flower's, or ours.
    ttl
        Seconds for which a message lives.
    poll
        Seconds to sleep when nothing came.
    reply_bytes
        Most bytes of one reply: decides how many are pulled at once.
    group
        Label of these messages in Flower's log.
    quiet
        Seconds without an answer after which a node is asked whether it is there.
    """

    grid: Grid
    ttl: float
    poll: float
    reply_bytes: int
    group: str = ""
    quiet: float = 30.0
    _pending: dict[str, _Sent] = field(default_factory=dict)
    _pings: dict[str, _Sent] = field(default_factory=dict)
    _broken: list[Failure] = field(default_factory=list)

    @property
    def pending(self) -> frozenset[int]:
        """Nodes that have not answered."""
        return frozenset(sent.node for sent in self._pending.values())

    def ask(self, kind: str, contents: Mapping[int, RecordDict], about: str = "") -> list[Failure]:
        """Push one message to each node; return failures for those that Flower did not take.

        Parameters
        ----------
        kind
            Type of the message.
        contents
            By node.
        about
            Given back with the answer, where one node is asked several things at once.
        """
        sent = self._push(kind, contents, about)
        self._pending |= {name: message for name, message in sent.items() if name}
        taken = {message.node for name, message in sent.items() if name}
        return [
            Failure(node, kind, 0, "the SuperLink did not take the message", about)
            for node in contents
            if node not in taken
        ]

    def _push(self, kind: str, contents: Mapping[int, RecordDict], about: str = "") -> dict[str, _Sent]:
        """Push one message to each node; return those that Flower took, by id."""
        messages = [
            Message(content, node, kind, ttl=self.ttl, group_id=self.group) for node, content in contents.items()
        ]
        ids = list(self.grid.push_messages(messages))  # Flower's own grid returns none at all when it gives up
        now = time.monotonic()
        return {name: _Sent(node, kind, about, now) for node, name in zip(contents, ids, strict=False) if name}

    def hear(
        self,
        on_reply: Callable[[Reply | Failure], None],
        *,
        until: float,
        idle: Callable[[], None] | None = None,
    ) -> None:
        """Hand every answer to ``on_reply`` until none is pending or the time is over.

        Parameters
        ----------
        on_reply
            Called once for every message that was pushed; it may ask further.
        until
            Reading of the monotonic clock when the time is over; what is pending then has failed.
        idle
            Called after each look at all pending messages.
        """
        at_once = max(1, PULL_BYTES // self.reply_bytes)
        while self._pending and time.monotonic() < until:
            came = 0
            for names in _groups(list(self._pending), at_once):
                came += self._hand_over(names, on_reply)
                if time.monotonic() >= until:
                    break
            came += self._find_lost(on_reply)
            if idle is not None:
                idle()
            if not came and self._pending:
                time.sleep(self.poll)
        late, self._pending = self._pending, {}
        for sent in late.values():
            on_reply(Failure(sent.node, sent.kind, -1, "no answer before the deadline", sent.about))

    def _find_lost(self, on_reply: Callable[[Reply | Failure], None]) -> int:
        """Ask nodes that are quiet whether they are there; hand over what one that is there has lost, and how much."""
        quiet = self._quiet()
        if quiet:
            self._pings |= self._push(PRESENT, {node: content_of({}) for node in quiet})
        before = self._sent_before() if self._pings else []
        came = self._hand_over(before, on_reply) if before else 0  # it may have come between the two looks
        for name in before:
            if (sent := self._pending.pop(name, None)) is not None:
                came += 1
                reason = "the node is there, but has lost the message: it was restarted"
                on_reply(Failure(sent.node, sent.kind, LOST, reason, sent.about))
        return came

    def _quiet(self) -> list[int]:
        """Return nodes that were sent something long ago, and were not asked since whether they are there."""
        now, asked = time.monotonic(), {ping.node for ping in self._pings.values()}
        last: dict[int, float] = {}
        for sent in self._pending.values():
            last[sent.node] = max(sent.time, last.get(sent.node, sent.time))
        return [node for node in self.pending if now - last[node] >= self.quiet and node not in asked]

    def _sent_before(self) -> list[str]:
        """Return messages to nodes that are there, sent before these were asked."""
        answered = [message.metadata.reply_to_message_id for message in self._pull(list(self._pings), self._pings)]
        pings = [self._pings.pop(name) for name in answered if name in self._pings]
        return [name for name, sent in self._pending.items() for ping in pings if _before(sent, ping)]

    def _hand_over(self, names: list[str], on_reply: Callable[[Reply | Failure], None]) -> int:
        """Hand over the answers to some messages that are there, one at a time; return how many."""
        came = 0
        for message in self._pull(names, self._pending):
            answer = self._answer(message)
            if answer is not None:
                came += 1
                on_reply(answer)
            del message
        while self._broken:
            came += 1
            on_reply(self._broken.pop())
        return came

    def _pull(self, names: list[str], among: dict[str, _Sent]) -> Iterable[Message]:
        """Pull replies; Flower takes them apart here, and one that cannot be taken apart costs its own node only."""
        try:
            return self.grid.pull_messages(names)
        except _BROKEN as error:
            if len(names) > 1:
                return [message for name in names for message in self._pull([name], among)]
            sent = among.pop(names[0])
            if among is self._pending:
                why = f"its reply cannot be read ({type(error).__name__})"
                self._broken.append(Failure(sent.node, sent.kind, 0, why, sent.about))
            return []

    def _answer(self, message: Message) -> Reply | Failure | None:
        sent = self._pending.pop(message.metadata.reply_to_message_id, None)
        if sent is None:  # an answer to a message of an earlier, given-up wait
            return None
        node, kind, about = sent.node, sent.kind, sent.about
        if message.has_error():
            reason = (message.error.reason or "").strip() or "no reason given"
            return Failure(node, kind, message.error.code, reason, about)
        if not message.has_content():
            return Failure(node, kind, 0, "an empty reply", about)
        return Reply(node, kind, message.content, about)


def _before(sent: _Sent, ping: _Sent) -> bool:
    return sent.node == ping.node and sent.time < ping.time


def _groups(names: list[str], size: int) -> Iterable[list[str]]:
    return (names[start : start + size] for start in range(0, len(names), size))
