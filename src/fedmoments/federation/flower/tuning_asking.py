"""Asking many nodes the same at once, each about one thing, until all have answered or the time is over.

A node whose app process died, or that went away, is asked again when it is there, a few times; one that does not have
the start of the tuning is sent it. Whatever else goes wrong is handed on, and costs nobody else an answer.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from flwr.app import RecordDict
from flwr.serverapp import Grid

from fedmoments.errors import InputError
from fedmoments.federation.flower.exchange import Exchange, Failure, Reply
from fedmoments.federation.flower.messages import content_of, content_size
from fedmoments.federation.flower.tuning_replies import is_missing_start
from fedmoments.settings.server import TuningSettings
from fedmoments.wire import pack_bundle

__all__ = ["Asking"]

T = TypeVar("T")

#: Times that a node is asked the same.
MOST_TRIES = 3


@dataclass
class Asking(Generic[T]):
    """One question to many.

    Parameters
    ----------
    grid, settings
        Whom to ask, and how long.
    kind
        Type of the messages.
    common
        Words that go to all.
    asks
        What it is about (a client, a node) -> the node to ask, and the fields of the message.
    items
        Bytes that go to all.
    start
        Bytes of the start of the tuning.
    read
        Takes an answer apart, given what it is about, or raises InputError.
    fail
        Called with every failure.
    with_start
        Whether the start goes along at once; otherwise to those that say they do not have it.
    sent
        What it is about -> bytes of the first message about it, once it was asked.
    """

    grid: Grid
    settings: TuningSettings
    kind: str
    common: Mapping[str, Any]
    asks: Mapping[str, tuple[int, Mapping[str, Any]]]
    items: Sequence[bytes]
    start: bytes
    read: Callable[[str, RecordDict], T]
    fail: Callable[[Failure], None]
    with_start: bool = False
    sent: dict[str, int] = field(default_factory=dict)
    _results: dict[str, T] = field(default_factory=dict)
    _away: dict[str, Failure] = field(default_factory=dict)
    _tries: Counter[str] = field(default_factory=Counter)

    def run(self, *, reply_bytes: int, group: str) -> dict[str, T]:
        """Ask, and return what could be read of the answers, by what was asked about.

        Parameters
        ----------
        reply_bytes
            Most bytes of a reply.
        group
            Label of the messages in Flower's log.
        """
        until = time.monotonic() + self.settings.deadline
        self._exchange = Exchange(self.grid, self.settings.ttl, self.settings.poll, reply_bytes, group)
        self._ask(self.asks, start=self.with_start)
        self._exchange.hear(self._take, until=until, idle=self._look)
        while self._away and time.monotonic() < until:
            time.sleep(self.settings.poll)
            self._look()
            self._exchange.hear(self._take, until=until, idle=self._look)
        for failure in self._away.values():
            self.fail(failure)
        return self._results

    def _ask(self, about: Iterable[str], *, start: bool) -> None:
        payload = pack_bundle([*self.items, *([self.start] if start else [])])
        for name in about:
            node, fields = self.asks[name]
            self._tries[name] += 1
            content = content_of({**self.common, **fields, "with_start": start}, payload)
            self.sent.setdefault(name, content_size(content))
            for failure in self._exchange.ask(self.kind, {node: content}, name):
                self.fail(failure)

    def _take(self, answer: Reply | Failure) -> None:
        about = answer.about
        again = self._tries[about] < MOST_TRIES
        if isinstance(answer, Failure):
            if answer.passing and again:
                self._away[about] = answer
            else:
                self.fail(answer)
            return
        if is_missing_start(answer.content) and again:
            self._ask([about], start=True)
            return
        try:
            self._results[about] = self.read(about, answer.content)
        except InputError as error:
            self.fail(Failure(answer.node, self.kind, 0, str(error), about))

    def _look(self) -> None:
        """Ask those again that are back."""
        here = set(self.grid.get_node_ids()) if self._away else set()
        back = [about for about, failure in self._away.items() if failure.node in here]
        for about in back:
            del self._away[about]
        if back:
            self._ask(back, start=self.with_start)
