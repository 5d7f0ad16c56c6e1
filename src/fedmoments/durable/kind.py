"""What a durable file is, and what goes with it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

__all__ = ["Companion", "Kind"]


@dataclass(frozen=True)
class Kind:
    """What a file is.

    Parameters
    ----------
    name
        For messages: ``"outbox"``.
    number
        SQLite's application id: four letters in the header.
    schema
        ``CREATE`` statements of the tables.
    version
        Of these tables; a release opens its own, and brings older ones up to it.
    upgrades
        Statements that bring tables of a version up to the next one, or what does it inside a transaction.
    remedy
        What to do when a file is damaged.
    unwritten
        What has not happened when it cannot be written, for the message.
    journal
        ``wal``, or ``delete``: without a log beside it, for what may lie on a network file system.
    """

    name: str
    number: int
    schema: str
    version: int = 0
    upgrades: Mapping[int, str | Callable[[Any], None]] = field(default_factory=dict)
    remedy: str = "move it away"
    unwritten: str = "nothing of it was kept"
    journal: str = "wal"


class Companion(Protocol):
    """What goes with the transactions of a file, such as lines of a text file."""

    def begin(self, connection: Any) -> None:
        """Look at the file when a transaction has begun; what it raises undoes that."""

    def flush(self) -> None:
        """Write what waits, before a commit; an OSError undoes the transaction."""

    def drop(self) -> None:
        """Forget what waits, for its transaction was undone."""
