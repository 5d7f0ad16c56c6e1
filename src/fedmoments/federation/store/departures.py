"""Who left, with which version: one table, sealed by a digest, so that a damaged row lets nobody back unnoticed."""

import hashlib
from collections.abc import Iterable

from fedmoments.durable import Connection
from fedmoments.errors import LedgerError
from fedmoments.federation.store.audit import entry

__all__ = ["come_back", "depart", "departed_version", "seal_departures", "seal_problem"]

_SEAL = "departures"


def depart(connection: Connection, clients: Iterable[tuple[str, int]], seq: int) -> None:
    """Note with which version clients left, and the entry of the log that says so; inside a transaction."""
    _check(connection)
    rows = [(client, version, seq) for client, version in clients]
    connection.executemany("INSERT OR REPLACE INTO departures VALUES (?, ?, ?)", rows)
    seal_departures(connection)


def come_back(connection: Connection, client: str) -> None:
    """Forget that a client left, for it is in again; inside a transaction."""
    if connection.execute("DELETE FROM departures WHERE client = ?", (client,)).rowcount:
        seal_departures(connection)


def departed_version(connection: Connection, client: str) -> tuple[int, str]:
    """Return the version with which a client left, and the event of the log that says so; (0, "") if it did not.

    Raises
    ------
    LedgerError
        When the table is not what was written: whoever left could be brought back by what it sent before.
    """
    _check(connection)
    gone = connection.execute("SELECT version, seq FROM departures WHERE client = ?", (client,)).fetchone()
    return (0, "") if gone is None else (int(gone[0]), entry(connection, gone[1]).event)


def _digest(connection: Connection) -> str:
    rows = connection.execute("SELECT client, version, seq FROM departures ORDER BY client").fetchall()
    return hashlib.sha256(repr(rows).encode()).hexdigest()


def seal_departures(connection: Connection) -> None:
    """Note the digest of the table, inside the transaction that makes or changes it."""
    connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (_SEAL, _digest(connection)))


def seal_problem(connection: Connection) -> list[str]:
    """Return whether the table is not what was sealed."""
    noted = connection.execute("SELECT value FROM meta WHERE name = ?", (_SEAL,)).fetchone()
    is_sound = noted is not None and noted[0] == _digest(connection)
    return [] if is_sound else [f"the note '{_SEAL}' is not the digest of the table of those who left"]


def _check(connection: Connection) -> None:
    """Refuse a table that was changed."""
    if seal_problem(connection):
        raise LedgerError(
            "who left is not what was written: the ledger is damaged, and takes nobody in; run verify, and restore a "
            "snapshot"
        )
