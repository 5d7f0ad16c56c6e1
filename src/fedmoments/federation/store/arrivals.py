"""What arrives: read before others have to wait, then taken in or refused, each by itself, in one transaction."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from fedmoments.durable import Connection
from fedmoments.errors import RefusedError
from fedmoments.federation.store.receipt import Receipt
from fedmoments.federation.store.refusals import quarantine, record_refusal
from fedmoments.wire import Contribution, Reason
from fedmoments.wire.header import Buffer

__all__ = ["Arrival", "answer_each", "in_parts"]

#: More bytes are taken in by several transactions, so that memory and waiting writers are spared.
PART_BYTES = 2**25

Content = TypeVar("Content")


@dataclass(frozen=True)
class Arrival(Generic[Content]):
    """What arrived, and what it was found to be.

    Parameters
    ----------
    data
        The bytes.
    content
        The contribution or masked report in them, its signature verified; or why it is refused.
    source
        Where it came from, as the server knows it.
    """

    data: Buffer
    content: Content | RefusedError
    source: str

    @classmethod
    def of(cls, data: Buffer, source: str, read: Callable[[Buffer], Content]) -> "Arrival[Content]":
        """Read what arrived."""
        try:
            return cls(data, read(data), source)
        except RefusedError as error:
            return cls(data, error, source)


def answer_each(
    connection: Connection, arrivals: Iterable[Arrival[Content]], take: Callable[[Content, Buffer, str], Receipt]
) -> list[Receipt | RefusedError]:
    """Take in each arrival or refuse and log it, all inside one transaction; return the answers in order."""
    answers: list[Receipt | RefusedError] = []
    for arrival in arrivals:
        data, content, source = arrival.data, arrival.content, arrival.source
        try:
            if isinstance(content, RefusedError):
                raise content
            answers.append(take(content, data, source))
        except RefusedError as error:
            if error.reason == Reason.CONFLICT and isinstance(content, Contribution):
                quarantine(connection, content.header, data, source=source)
            record_refusal(connection, error, source=source, size=len(data))
            answers.append(RefusedError(error.reason, error.sentence, error.client))  # without its frames
    return answers


def in_parts(items: Sequence[Buffer], source: str | Sequence[str]) -> Iterator[list[tuple[Buffer, str]]]:
    """Yield items with their sources, so many at a time as one transaction takes in."""
    sources = [source] * len(items) if isinstance(source, str) else source
    part: list[tuple[Buffer, str]] = []
    size = 0
    for data, origin in zip(items, sources, strict=True):
        if part and size + len(data) > PART_BYTES:
            yield part
            part, size = [], 0
        part.append((data, origin))
        size += len(data)
    if part:
        yield part
