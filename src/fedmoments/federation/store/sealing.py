"""Digests and tree for a ledger of an older version: from what its clients signed, not from what it holds."""

from fedmoments.durable import Connection
from fedmoments.errors import LedgerError
from fedmoments.federation.store.payloads import seal_payloads, stored, stored_clients
from fedmoments.federation.store.totals import Change
from fedmoments.federation.store.tree import grow
from fedmoments.federation.terms import Terms

__all__ = ["seal_all"]


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
