"""Batches: reports that are added up together, and the sums that stand in the ledger in their clients' place.

A batch is written down before the helper is asked. So after a crash the very same sum is requested again, which tells
nobody anything new, and no report is lost or counted twice. A sum enters the ledger as the contribution of a client of
its own, ``batch-…``, which is enrolled with a key that signs nothing else: checks, running sums, snapshots and the
log hold for it as for any other. With an epsilon it enters with noise on it instead, and never without.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from fedmoments.core.statistics import Statistics
from fedmoments.durable import Connection
from fedmoments.errors import LedgerError, RefusedError
from fedmoments.federation.store.arrivals import Arrival
from fedmoments.federation.store.attempts import leave_out, next_attempt
from fedmoments.federation.store.audit import append, entry
from fedmoments.federation.store.departures import depart
from fedmoments.federation.store.intake import read_contribution, take_in, take_out
from fedmoments.federation.store.masked import withdraw
from fedmoments.federation.store.members import enrol
from fedmoments.federation.store.receipt import Receipt
from fedmoments.federation.terms import Terms
from fedmoments.wire import IdentityKey, encode

__all__ = ["Batch", "batches", "dissolve", "keep_result", "keep_sums", "open_batch", "reopen", "results_of"]


@dataclass(frozen=True)
class Batch:
    """Reports that are added up together.

    Parameters
    ----------
    name
        ``batch-`` and the first digits of the digest of its reports.
    status
        ``asked``: the helper may have answered; ``collected``: the sum is in; ``left``: it was taken out.
    members
        (client, id of its report), in order of the clients' names; none once it has left.
    plan
        What the sums depend on beside the reports, as it was opened with.

    Examples
    --------
    >>> Batch("batch-0123456789ab", "asked", (("clinic", "ab" * 16),), {}).clients
    ('clinic',)
    """

    name: str
    status: str
    members: tuple[tuple[str, str], ...]
    plan: Mapping[str, Any]

    @property
    def clients(self) -> tuple[str, ...]:
        """Whose reports."""
        return tuple(client for client, _ in self.members)

    @property
    def reports(self) -> tuple[str, ...]:
        """Their ids."""
        return tuple(report for _, report in self.members)


def open_batch(connection: Connection, reports: Sequence[str], plan: Mapping[str, Any]) -> Batch:
    """Put waiting reports into a batch, inside a transaction.

    Raises
    ------
    LedgerError
        When one of them is not there, or in a batch already.
    """
    wanted = set(reports)
    query = "SELECT client, version, report FROM reports WHERE batch IS NULL ORDER BY client"
    rows = [row for row in connection.execute(query) if row[2] in wanted]
    if len(rows) != len(reports) or not rows:
        raise LedgerError(f"{len(reports)} reports were to be added up, but {len(rows)} of them wait: look again")
    name = f"batch-{hashlib.sha256(' '.join(sorted(reports)).encode()).hexdigest()[:12]}"
    facts = {"batch": name, "reports": [[client, version] for client, version, _ in rows], "plan": dict(plan)}
    new = append(connection, "batch", facts)
    connection.execute("INSERT INTO batches VALUES (?, ?, ?, 'asked', NULL)", (name, new.seq, json.dumps(dict(plan))))
    connection.executemany("UPDATE reports SET batch = ? WHERE report = ?", [(name, report) for report in reports])
    return Batch(name, "asked", tuple((client, report) for client, _, report in rows), dict(plan))


def batches(connection: Connection) -> tuple[Batch, ...]:
    """Return all batches in the order in which they were opened."""
    members: dict[str, list[tuple[str, str]]] = {}
    rows = connection.execute("SELECT batch, client, report FROM reports WHERE batch IS NOT NULL ORDER BY client")
    for name, client, report in rows:
        members.setdefault(name, []).append((client, report))
    rows = connection.execute("SELECT batch, status, plan FROM batches ORDER BY seq")
    return tuple(Batch(name, status, tuple(members.get(name, ())), json.loads(plan)) for name, status, plan in rows)


def keep_sums(connection: Connection, terms: Terms, batch: Batch, sums: Mapping[str, Statistics], source: str) -> None:
    """Take in the sums of a batch as contributions, erase its reports, and write both down; inside a transaction.

    Parameters
    ----------
    sums
        Name of each part -> statistics in fixed point, of the moments that the terms ask for.

    Raises
    ------
    RefusedError
        When a sum is such as no data have: somebody in the batch did not send statistics.
    """
    _require_asked(connection, batch)
    arrivals = []
    for name, stats in sums.items():
        key = IdentityKey.generate()
        enrol(connection, name, key.public, None)
        connection.execute("INSERT INTO parts VALUES (?, ?)", (name, batch.name))
        data = encode(stats, terms.agreement, client=name, version=1, key=key)
        arrivals.append(Arrival.of(data, source, partial(read_contribution, connection, terms.agreement)))
    for answer in take_in(connection, terms.agreement, arrivals):
        if isinstance(answer, RefusedError):
            raise answer
    _close(connection, batch, {"parts": list(sums)})


def keep_result(connection: Connection, batch: Batch, result: bytes, facts: Mapping[str, Any]) -> None:
    """Keep the noised sum of a batch, or what two phases gave, and erase its reports, inside a transaction."""
    _require_asked(connection, batch)
    connection.execute("UPDATE batches SET result = ? WHERE batch = ?", (result, batch.name))
    _close(connection, batch, {"parts": [], "result": hashlib.sha256(result).hexdigest(), **facts})


def results_of(connection: Connection) -> dict[str, bytes]:
    """Return the noised sums, or what two phases gave, that are in, by batch; each must be what the log says."""
    digest = "SELECT json_extract(facts, '$.result') FROM audit WHERE event = 'collected' "
    digest += "AND json_extract(facts, '$.batch') = batches.batch ORDER BY seq DESC LIMIT 1"
    query = f"SELECT batch, result, ({digest}) FROM batches WHERE result IS NOT NULL ORDER BY batch"  # noqa: S608
    results = {}
    for batch, result, noted in connection.execute(query):
        if hashlib.sha256(result).hexdigest() != noted:
            raise LedgerError(f"what {batch} gave is not what was written: the ledger is damaged; run verify")
        results[batch] = result
    return results


def dissolve(connection: Connection, terms: Terms, name: str, reason: str) -> Receipt | None:
    """Take a whole batch out, inside a transaction.

    Clients of a batch that was collected are out for good. One that was not is given up: where the mode allows that,
    they are asked again, for the next attempt, and so are those whose reports wait, which were made for this one.

    Returns None when there is no batch of that name.

    Raises
    ------
    LedgerError
        When the name is that of one part of a batch.
    """
    part = connection.execute("SELECT batch FROM parts WHERE client = ?", (name,)).fetchone()
    if part is not None and part[0] != name:
        raise LedgerError(f"{name!r} is one cohort of the batch {part[0]!r}, which can only be removed as a whole")
    row = connection.execute("SELECT seq, status FROM batches WHERE batch = ?", (name,)).fetchone()
    if row is None:
        return None
    if row[1] == "left":
        return _receipt(connection, terms, row[0])
    _take_out_parts(connection, terms, name)
    members = connection.execute("SELECT client, version FROM reports WHERE batch = ?", (name,)).fetchall()
    facts = {"batch": name, "reason": reason[:1000], "members": [list(member) for member in members]}
    new = append(connection, "dissolved", facts)
    connection.execute("DELETE FROM reports WHERE batch = ?", (name,))
    depart(connection, members, new.seq)
    connection.execute("UPDATE batches SET status = 'left', result = NULL, seq = ? WHERE batch = ?", (new.seq, name))
    clients = [client for client, _ in members]
    if row[1] == "asked" and terms.privacy.mode.repeats:
        _ask_again(connection, terms, clients)
    else:
        leave_out(connection, clients)
    return _receipt(connection, terms, new.seq)


def _take_out_parts(connection: Connection, terms: Terms, name: str) -> None:
    query = "SELECT client FROM parts WHERE batch = ? AND client IN (SELECT client FROM contributions)"
    for (client,) in connection.execute(query, (name,)).fetchall():
        take_out(connection, terms.agreement, client)


def _ask_again(connection: Connection, terms: Terms, clients: list[str]) -> None:
    """Begin the next attempt, with the clients of a batch that was given up and those whose reports wait."""
    rows = connection.execute("SELECT client FROM reports WHERE batch IS NULL").fetchall()
    waiting = [client for (client,) in rows]
    for client in waiting:
        withdraw(connection, terms, client)
    next_attempt(connection, [*clients, *waiting])


def reopen(connection: Connection, name: str, without: Sequence[str], reason: str) -> None:
    """Undo a batch that the helper refused: its reports wait again, but for those of some clients; in a transaction.

    Clients whose reports are unsound, or may be in no sum any more, are taken out. They are not asked again because of
    a batch that was given up; they may report again, with higher versions.
    """
    row = connection.execute("SELECT status FROM batches WHERE batch = ?", (name,)).fetchone()
    if row is None or row[0] != "asked":
        raise LedgerError(f"the batch {name!r} is {row[0] if row else 'not there'}: it is not undone")
    new = append(connection, "reopened", {"batch": name, "without": list(without), "reason": reason[:1000]})
    for client in without:
        query = "SELECT version FROM reports WHERE client = ? AND batch = ?"
        version = connection.execute(query, (client, name)).fetchone()[0]
        connection.execute("DELETE FROM reports WHERE client = ?", (client,))
        depart(connection, [(client, version)], new.seq)
    leave_out(connection, without)
    connection.execute("UPDATE reports SET batch = NULL WHERE batch = ?", (name,))
    connection.execute("DELETE FROM batches WHERE batch = ?", (name,))


def _receipt(connection: Connection, terms: Terms, seq: int) -> Receipt:
    written = entry(connection, seq)
    facts = (written.seq, written.hash, written.event, written.time, written.details.get("counter", 0))
    return Receipt(terms.id, written.details["batch"], 1, "", *facts)


def _require_asked(connection: Connection, batch: Batch) -> None:
    row = connection.execute("SELECT status FROM batches WHERE batch = ?", (batch.name,)).fetchone()
    if row is None or row[0] != "asked":
        raise LedgerError(
            f"the batch {batch.name!r} is {row[0] if row else 'not there'}: its sum is not taken in again"
        )


def _close(connection: Connection, batch: Batch, facts: Mapping[str, Any]) -> None:
    append(connection, "collected", {"batch": batch.name, "reports": len(batch.members), **facts})
    connection.execute("UPDATE batches SET status = 'collected' WHERE batch = ?", (batch.name,))
    connection.execute("UPDATE reports SET data = NULL WHERE batch = ?", (batch.name,))
