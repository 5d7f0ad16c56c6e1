"""Attempts: how often a batch was given up before its sum was in, and who is asked again since."""

import json
from collections.abc import Collection, Sequence
from typing import Any

from fedmoments.durable import Connection
from fedmoments.errors import reading
from fedmoments.federation.store.audit import append

__all__ = ["given_up", "last_attempt", "leave_out", "next_attempt"]


def last_attempt(connection: Connection) -> int:
    """Return the number of the attempt that reports are made for, from 0."""
    return _read(connection)[0]


def given_up(connection: Connection) -> list[str]:
    """Return the clients whose report was given up with its batch and who have not reported since."""
    reported = {client for (client,) in connection.execute("SELECT client FROM reports")}
    return [client for client in _read(connection)[1] if client not in reported]


def next_attempt(connection: Connection, clients: Sequence[str]) -> int:
    """Begin the next attempt, inside a transaction: clients are to be asked again; return its number."""
    number, before = _read(connection)
    names = sorted({*before, *clients})
    value = json.dumps({"attempt": number + 1, "clients": names})
    connection.execute("INSERT OR REPLACE INTO meta VALUES ('attempts', ?)", (value,))
    append(connection, "attempt", {"attempt": number + 1, "clients": names, "without": []})
    return number + 1


def leave_out(connection: Connection, clients: Collection[str]) -> None:
    """Ask clients no more who left of their own accord, or whose sum did, inside a transaction."""
    number, names = _read(connection)
    if set(names) & set(clients):
        rest = [name for name in names if name not in clients]
        value = json.dumps({"attempt": number, "clients": rest})
        connection.execute("UPDATE meta SET value = ? WHERE name = 'attempts'", (value,))
        without = sorted(set(names) - set(rest))
        append(connection, "attempt", {"attempt": number, "clients": rest, "without": without})


def _read(connection: Connection) -> tuple[int, list[str]]:
    row = connection.execute("SELECT value FROM meta WHERE name = 'attempts'").fetchone()
    with reading("what the ledger noted of attempts is damaged: restore a snapshot"):
        known: dict[str, Any] = {"attempt": 0, "clients": []} if row is None else json.loads(row[0])
        return int(known["attempt"]), list(known["clients"])
