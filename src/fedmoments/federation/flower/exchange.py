"""Asking nodes and hearing from them: push, then poll until everybody answered or the time is over.

Replies are pulled a few at a time and handed on at once, never collected: a server process holds what it is working on
and no more. A reply that its SuperLink has not passed on before the node leaves is lost, so there is no pause between
two looks while replies come in. Errors are matched to nodes by the message that they answer, because some carry a
wrong source.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

__all__ = ["Exchange", "Failure", "Reply"]

#: What taking a reply apart raises when its node sent nonsense; what the network raises is not among them.
_BROKEN = (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError)
#: Most bytes of replies that one pull may bring.
PULL_BYTES = 2**28


@dataclass(frozen=True)
class Reply:
    """What a node answered, and what the message was about."""

    node: int
    kind: str
    content: RecordDict
    about: str = ""


@dataclass(frozen=True)
class Failure:
    """Why a node did not answer: Flower's code and reason, or that time was over (code −1)."""

    node: int
    kind: str
    code: int
    reason: str
    about: str = ""

    @property
    def passing(self) -> bool:
        """Whether the node may answer if it is asked again: it went away, or its app process died."""
        return self.code in (5, 8)


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
    """

    grid: Grid
    ttl: float
    poll: float
    reply_bytes: int
    group: str = ""
    _pending: dict[str, tuple[int, str, str]] = field(default_factory=dict)
    _broken: list[Failure] = field(default_factory=list)

    @property
    def pending(self) -> frozenset[int]:
        """Nodes that have not answered."""
        return frozenset(node for node, _, _ in self._pending.values())

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
        messages = [
            Message(content, node, kind, ttl=self.ttl, group_id=self.group) for node, content in contents.items()
        ]
        ids: list[str | None] = list(self.grid.push_messages(messages))
        ids += [None] * (len(messages) - len(ids))  # Flower's own grid returns none at all when it gives up
        refused = []
        for node, name in zip(contents, ids, strict=True):
            if not name:
                refused.append(Failure(node, kind, 0, "the SuperLink did not take the message", about))
            else:
                self._pending[name] = (node, kind, about)
        return refused

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
            if idle is not None:
                idle()
            if not came and self._pending:
                time.sleep(self.poll)
        late, self._pending = self._pending, {}
        for node, kind, about in late.values():
            on_reply(Failure(node, kind, -1, "no answer before the deadline", about))

    def _hand_over(self, names: list[str], on_reply: Callable[[Reply | Failure], None]) -> int:
        """Hand over the answers to some messages that are there, one at a time; return how many."""
        came = 0
        for message in self._pull(names):
            answer = self._answer(message)
            if answer is not None:
                came += 1
                on_reply(answer)
            del message
        while self._broken:
            came += 1
            on_reply(self._broken.pop())
        return came

    def _pull(self, names: list[str]) -> Iterable[Message]:
        """Pull replies; Flower takes them apart here, and one that cannot be taken apart costs its own node only."""
        try:
            return self.grid.pull_messages(names)
        except _BROKEN as error:
            if len(names) > 1:
                return [message for name in names for message in self._pull([name])]
            node, kind, about = self._pending.pop(names[0])
            self._broken.append(Failure(node, kind, 0, f"its reply cannot be read ({type(error).__name__})", about))
            return []

    def _answer(self, message: Message) -> Reply | Failure | None:
        pending = self._pending.pop(message.metadata.reply_to_message_id, None)
        if pending is None:  # an answer to a message of an earlier, given-up wait
            return None
        node, kind, about = pending
        if message.has_error():
            reason = (message.error.reason or "").strip() or "no reason given"
            return Failure(node, kind, message.error.code, reason, about)
        if not message.has_content():
            return Failure(node, kind, 0, "an empty reply", about)
        return Reply(node, kind, message.content, about)


def _groups(names: list[str], size: int) -> Iterable[list[str]]:
    return (names[start : start + size] for start in range(0, len(names), size))
