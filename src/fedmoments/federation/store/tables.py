"""The tables of a ledger: one file a federation (:mod:`fedmoments.durable`)."""

from collections.abc import Callable

from fedmoments.durable import Connection, Kind
from fedmoments.errors import LedgerError
from fedmoments.federation.store.payloads import seal_payloads, stored, stored_clients
from fedmoments.federation.store.totals import Change
from fedmoments.federation.store.tree import grow
from fedmoments.federation.terms import Terms

__all__ = ["LEDGER", "seal_all"]

#: What version 2 added to version 1: masked reports, the batches in which they are added up, and noised sums.
_SINCE_2 = """
-- a client's masked report; data is NULL once its batch was collected: nobody needs it any more
CREATE TABLE reports (
    client TEXT PRIMARY KEY REFERENCES clients, version INTEGER NOT NULL, digest TEXT NOT NULL,
    report TEXT NOT NULL UNIQUE, seq INTEGER NOT NULL REFERENCES audit, bytes INTEGER NOT NULL,
    batch TEXT REFERENCES batches, data BLOB
) WITHOUT ROWID;
-- reports that are added up together; seq is that of the entry that says so, plan is JSON: what draws cohorts
CREATE TABLE batches (
    batch TEXT PRIMARY KEY, seq INTEGER NOT NULL REFERENCES audit, plan TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('asked', 'collected', 'left')),
    result BLOB -- a noised sum, or what two phases gave; sums without noise are contributions
) WITHOUT ROWID;
-- contributions that are sums of a batch, or of a cohort in it
CREATE TABLE parts (client TEXT PRIMARY KEY REFERENCES clients, batch TEXT NOT NULL REFERENCES batches) WITHOUT ROWID;
-- what was noised once for a state of the ledger, and is all that is fitted from
CREATE TABLE releases (
    state TEXT PRIMARY KEY, seq INTEGER NOT NULL REFERENCES audit, facts TEXT NOT NULL, data BLOB NOT NULL
) WITHOUT ROWID;
"""

#: What version 3 added: digests of running sums and payloads, and the tree over the log.
SINCE_3 = """
-- SHA-256 of each running sum as it was written; apart from it, so that a page that was lost is noticed
CREATE TABLE sum_digests (
    moment TEXT NOT NULL, label INTEGER NOT NULL, digest BLOB NOT NULL, PRIMARY KEY (moment, label)
) WITHOUT ROWID;
-- SHA-256 of all bytes of a payload, its signature included
CREATE TABLE payload_digests (
    client TEXT PRIMARY KEY REFERENCES contributions ON DELETE CASCADE, digest BLOB NOT NULL
) WITHOUT ROWID;
-- hashes of the complete subtrees of the Merkle tree over the log
CREATE TABLE tree (
    level INTEGER NOT NULL, place INTEGER NOT NULL, hash BLOB NOT NULL, PRIMARY KEY (level, place)
) WITHOUT ROWID;
"""

_SCHEMA = f"""
-- terms: their canonical JSON; head: hash of the last entry of the log
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE audit (
    seq INTEGER PRIMARY KEY, time TEXT NOT NULL, event TEXT NOT NULL, facts TEXT NOT NULL,
    previous TEXT NOT NULL, hash TEXT NOT NULL
);
CREATE INDEX audit_refusals ON audit (seq) WHERE event = 'refused';
CREATE TABLE clients (
    client TEXT PRIMARY KEY, key BLOB NOT NULL, node_key TEXT,
    status TEXT NOT NULL CHECK (status IN ('enrolled', 'revoked'))
) WITHOUT ROWID;
-- who is in, and with what
CREATE TABLE contributions (
    client TEXT PRIMARY KEY REFERENCES clients, version INTEGER NOT NULL, digest TEXT NOT NULL,
    seq INTEGER NOT NULL REFERENCES audit, bytes INTEGER NOT NULL, samples INTEGER NOT NULL,
    classes INTEGER NOT NULL, mean_rows INTEGER NOT NULL,
    withheld_classes INTEGER NOT NULL, withheld_samples INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE payloads (client TEXT PRIMARY KEY REFERENCES contributions ON DELETE CASCADE, data BLOB NOT NULL);
-- tombstones of those who left
CREATE TABLE departures (
    client TEXT PRIMARY KEY REFERENCES clients, version INTEGER NOT NULL, seq INTEGER NOT NULL REFERENCES audit
) WITHOUT ROWID;
-- running sums: int64, little-endian; label -1 is for all classes
CREATE TABLE totals (moment TEXT NOT NULL, label INTEGER NOT NULL, data BLOB NOT NULL, PRIMARY KEY (moment, label));
CREATE TABLE refusals (
    source TEXT NOT NULL, reason TEXT NOT NULL, client TEXT NOT NULL,
    times INTEGER NOT NULL, entries INTEGER NOT NULL, logged REAL NOT NULL,
    PRIMARY KEY (source, reason, client)
) WITHOUT ROWID;
CREATE TABLE quarantine (
    id INTEGER PRIMARY KEY, client TEXT NOT NULL, version INTEGER NOT NULL, digest TEXT NOT NULL, data BLOB NOT NULL,
    UNIQUE (client, version, digest)
);
{_SINCE_2}{SINCE_3}"""


def _bring_up_to_3(connection: Connection) -> None:

    for statement in filter(str.strip, SINCE_3.split(";\n")):
        connection.execute(statement)
    seal_all(connection)


def _bring_up_to_4(connection: Connection) -> None:
    """Seal the table of those who left, which older ledgers did when somebody left; forget where they were."""
    from fedmoments.federation.store.departures import seal_departures

    connection.execute("DELETE FROM meta WHERE name = 'home'")
    if not connection.execute("SELECT 1 FROM meta WHERE name = 'departures'").fetchone():
        seal_departures(connection)


_UPGRADES: dict[int, str | Callable[[Connection], None]] = {1: _SINCE_2, 2: _bring_up_to_3, 3: _bring_up_to_4}

#: "fmLd" in the header of every ledger file.
LEDGER = Kind("ledger", 0x666D4C64, _SCHEMA, 4, _UPGRADES, remedy="restore a snapshot")


def seal_all(connection: Connection) -> None:
    """Note the digests that the running sums must have, and build the tree over the log; inside a transaction.

    The sums are computed anew from the contributions, so that one that was damaged before is found when it is used. If
    a contribution cannot be read, no sum can be used: ``verify`` says what is wrong.
    """
    for seq, entry_hash in connection.execute("SELECT seq, hash FROM audit ORDER BY seq").fetchall():
        grow(connection, seq, entry_hash)
    row = connection.execute("SELECT value FROM meta WHERE name = 'terms'").fetchone()
    if row is None:  # opening it says so
        return
    agreement = Terms.from_json(row[0]).agreement
    seal_payloads(connection, agreement)
    change = Change(agreement.spec)
    try:
        for client in stored_clients(connection):
            change.add(stored(connection, agreement, client).statistics)
    except LedgerError:
        connection.execute("INSERT INTO sum_digests SELECT moment, label, x'' FROM totals")
        return
    change.seal(connection)
