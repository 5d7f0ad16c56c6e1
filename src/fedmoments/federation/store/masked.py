"""Masked reports: taken in exactly once each, as contributions are, until a batch of them is added up.

A report waits in the ledger until it is put into a batch. From then on it can neither be replaced nor withdrawn, for
the helper may have answered already. When the sum is in, the masked bytes are erased: with the helper's key, which may
be stolen one day, they would be the client's numbers.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from fedmoments.durable import Connection
from fedmoments.errors import LedgerError, RefusedError
from fedmoments.federation.store.arrivals import Arrival, answer_each
from fedmoments.federation.store.attempts import given_up, leave_out
from fedmoments.federation.store.audit import append, entry
from fedmoments.federation.store.departures import come_back, depart, departed_version
from fedmoments.federation.store.members import key_of
from fedmoments.federation.store.receipt import Receipt
from fedmoments.federation.terms import Terms
from fedmoments.privacy.secure.envelope import ENVELOPE_BYTES
from fedmoments.privacy.secure.report import Report, read_report
from fedmoments.wire import PublicKey, Reason
from fedmoments.wire.header import Buffer

__all__ = ["Waiting", "read_masked", "stored_envelope", "stored_report", "take_reports", "waiting", "withdraw"]


@dataclass(frozen=True)
class Waiting:
    """A report that is in no batch yet.

    Parameters
    ----------
    client, version, digest
        Whose, which, and the SHA-256 of its bytes.
    report
        Its id, hexadecimal digits.
    bytes
        Its size.

    Examples
    --------
    >>> Waiting("clinic", 1, "ab" * 32, "cd" * 16, 4096).client
    'clinic'
    """

    client: str
    version: int
    digest: str
    report: str
    bytes: int


def read_masked(connection: Connection, terms: Terms, data: Buffer) -> Report:
    """Read a report, with the keys of those who are enrolled."""
    report = read_report(bytes(data), terms.context, terms.layout.size, lambda client: key_of(connection, client))
    terms.privacy.mode.check_report(report, terms)
    return report


def take_reports(
    connection: Connection, terms: Terms, arrivals: Iterable[Arrival[Report]]
) -> list[Receipt | RefusedError]:
    """Take in each report or refuse and log it, all inside one transaction; return the answers in order."""
    return answer_each(connection, arrivals, partial(_take, connection, terms))


def _take(connection: Connection, terms: Terms, report: Report, data: Buffer, source: str) -> Receipt:
    """Take in one report, or return the receipt that it already has."""
    client, version, digest = report.client, report.version, hashlib.sha256(data).hexdigest()
    key_of(connection, client)  # it may have been revoked since it was read
    query = "SELECT version, digest, seq, batch FROM reports WHERE client = ?"
    current = connection.execute(query, (client,)).fetchone()
    if current is not None and (version, digest) == current[:2]:
        return Receipt.of(terms.id, entry(connection, current[2]))
    _require_new(connection, report, digest, current)
    facts: dict[str, Any] = {
        "client": client,
        "version": version,
        "digest": digest,
        "report": report.id,
        "bytes": len(data),
        "source": source[:1000],
    }
    if current is not None:
        facts["former"] = current[0]
        connection.execute("DELETE FROM reports WHERE client = ?", (client,))
    new = append(connection, "reported", facts)
    row = (client, version, digest, report.id, new.seq, len(data), None, bytes(data))
    connection.execute("INSERT INTO reports VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
    come_back(connection, client)
    return Receipt.of(terms.id, new)


def _require_new(connection: Connection, report: Report, digest: str, current: Any) -> None:
    client, version = report.client, report.version
    if current is not None and current[3] is not None:
        raise RefusedError(
            Reason.REPLAYED,
            f"version {current[0]} of client {client!r} is part of the sum {current[3]!r}, which nobody can take apart:"
            " it stays as it is until the whole batch is removed",
            client,
        )
    if current is not None and version == current[0]:
        raise RefusedError(
            Reason.CONFLICT,
            f"client {client!r} has reported version {version} with the digest {current[1]}, but another report "
            f"({digest}) arrived under the same version: a new report needs a higher version",
            client,
        )
    departed = _departed_version(connection, client)
    last = current[0] if current else departed
    if version <= last:
        raise RefusedError(
            Reason.REPLAYED,
            f"of client {client!r} version {last} was reported before, but version {version} arrived: report again "
            f"with version {last + 1}",
            client,
        )
    if connection.execute("SELECT 1 FROM reports WHERE report = ?", (report.id,)).fetchone():
        raise RefusedError(
            Reason.CONFLICT, f"client {client!r} sent a report under an id that another report has", client
        )


def _departed_version(connection: Connection, client: str) -> int:
    """Return the version with which a client left, 0 if it did not; refuse a client whose batch has left."""
    version, event = departed_version(connection, client)
    if event == "dissolved" and client not in given_up(connection):
        raise RefusedError(
            Reason.REPLAYED,
            f"client {client!r} was in a sum that was removed, and cannot return: take part in a new federation",
            client,
        )
    return version


def waiting(connection: Connection) -> tuple[Waiting, ...]:
    """Return the reports that are in no batch, in order of their clients' names."""
    rows = connection.execute(
        "SELECT client, version, digest, report, bytes FROM reports WHERE batch IS NULL ORDER BY client"
    )
    return tuple(Waiting(*row) for row in rows)


def stored_report(connection: Connection, terms: Terms, report: str) -> Report:
    """Return a report that is in; its signature was verified when it was taken in."""
    row = connection.execute("SELECT client, digest, data FROM reports WHERE report = ?", (report,)).fetchone()
    if row is None or row[2] is None or hashlib.sha256(row[2]).hexdigest() != row[1]:
        raise LedgerError(f"the masked report {report} is not in the ledger, or is damaged: run verify")
    key = connection.execute("SELECT key FROM clients WHERE client = ?", (row[0],)).fetchone()[0]
    return read_report(row[2], terms.context, terms.layout.size, lambda _: PublicKey(key))


def stored_envelope(connection: Connection, report: str) -> bytes:
    """Return the envelope of a report that is in: what the helper gets, which checks it."""
    query = "SELECT substr(data, 1, ?) FROM reports WHERE report = ? AND data IS NOT NULL"
    row = connection.execute(query, (ENVELOPE_BYTES, report)).fetchone()
    if row is None:
        raise LedgerError(f"the masked report {report} is not in the ledger: run verify")
    return bytes(row[0])


def withdraw(connection: Connection, terms: Terms, client: str) -> Receipt | None:
    """Take a client's report out, inside a transaction; None if it has none.

    Raises
    ------
    LedgerError
        When it is part of a sum.
    """
    query = "SELECT version, digest, batch FROM reports WHERE client = ?"
    row = connection.execute(query, (client,)).fetchone()
    if row is None:
        return None
    if row[2] is not None:
        members = connection.execute("SELECT count(*) FROM reports WHERE batch = ?", (row[2],)).fetchone()[0]
        raise LedgerError(
            f"client {client!r} cannot leave by itself: its numbers are in the sum {row[2]!r} of {members} clients, "
            f"which nobody can take apart. The whole batch can be removed: 'fedmoments leave LEDGER {row[2]}'"
        )
    new = append(connection, "withdrawn", {"client": client, "version": row[0], "digest": row[1]})
    connection.execute("DELETE FROM reports WHERE client = ?", (client,))
    depart(connection, [(client, row[0])], new.seq)
    leave_out(connection, [client])
    return Receipt.of(terms.id, new)
