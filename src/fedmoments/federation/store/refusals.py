"""What was refused, and how little of it is kept: nobody may fill the disk by sending what is refused anyway.

- The log gets one ``refused`` entry a minute for the same source, reason and client; in between they are only counted,
  and the next entry says how many there were.
- One source fills at most `ENTRIES_PER_SOURCE` entries in all, ``quarantined`` ones included; the rest is only counted.
- At most `MOST_COUNTERS` triples of source, reason and client are counted apart; further sources are counted together
  as ``others``. The client is part of the triple only if that name is enrolled, for anybody can make up names.
- The quarantine holds at most `MOST_QUARANTINED` contributions and `QUARANTINE_BYTES` bytes; the oldest are dropped.

So ``source`` should be something that a sender cannot choose at will: the node's id, not a name from its message.
"""

import time

from fedmoments.durable import Connection
from fedmoments.errors import RefusedError
from fedmoments.federation.store.audit import append
from fedmoments.wire import Header
from fedmoments.wire.header import Buffer

__all__ = [
    "ENTRIES_PER_SOURCE",
    "MOST_COUNTERS",
    "MOST_QUARANTINED",
    "QUARANTINE_BYTES",
    "quarantine",
    "record_refusal",
]

#: Seconds within which the same refusal is logged once.
MINUTE = 60.0
ENTRIES_PER_SOURCE = 1_000
MOST_COUNTERS = 10_000
MOST_QUARANTINED = 100
QUARANTINE_BYTES = 2**28
#: Longer texts are cut before they are logged.
MOST_TEXT = 1_000


def record_refusal(connection: Connection, error: RefusedError, *, source: str, size: int) -> None:
    """Count a refusal and log it, unless the rules of the module say that counting is enough; in a transaction.

    Parameters
    ----------
    connection
        The ledger's.
    error
        Why it was refused.
    source
        Where it came from, as the server knows it.
    size
        Bytes that arrived.
    """
    client = error.client if error.client is not None and _is_enrolled(connection, error.client) else ""
    source = _counted_source(connection, source)
    key = (source, error.reason, client)
    query = "SELECT times, logged FROM refusals WHERE source = ? AND reason = ? AND client = ?"
    times, logged = connection.execute(query, key).fetchone() or (0, None)
    now = time.time()
    is_due = logged is None or not 0 <= now - logged < MINUTE  # a clock that was put back must not silence the log
    if is_due and _has_room(connection, source):
        facts = {"reason": error.reason, "sentence": error.sentence[:MOST_TEXT], "source": source, "bytes": size}
        append(connection, "refused", facts | {"times": times + 1} | ({"client": client} if client else {}))
        _count(connection, key, times=1, entries=1, logged=now)
    else:
        _count(connection, key, times=1, entries=0, logged=logged or 0.0)


def quarantine(connection: Connection, header: Header, data: Buffer, *, source: str) -> None:
    """Keep a contribution that contradicts one that was taken in, dropping the oldest ones that are too many."""
    key = (header.client, header.version, header.digest)
    known = "SELECT 1 FROM quarantine WHERE client = ? AND version = ? AND digest = ?"
    if connection.execute(known, key).fetchone():
        return
    is_kept = len(data) <= QUARANTINE_BYTES
    dropped = []
    if is_kept:
        connection.execute("INSERT INTO quarantine (client, version, digest, data) VALUES (?, ?, ?, ?)", (*key, data))
        held = connection.execute("SELECT id, digest, length(data) FROM quarantine ORDER BY id DESC").fetchall()
        total = 0
        for place, (number, digest, size) in enumerate(held):
            total += size
            if place >= MOST_QUARANTINED or total > QUARANTINE_BYTES:
                connection.execute("DELETE FROM quarantine WHERE id = ?", (number,))
                dropped.append(digest)
    source = _counted_source(connection, source)
    if _has_room(connection, source):
        facts = {"client": header.client, "version": header.version, "digest": header.digest, "bytes": len(data)}
        append(connection, "quarantined", facts | {"source": source, "kept": is_kept, "dropped": dropped})
        _count(connection, (source, "conflict", header.client), times=0, entries=1, logged=0.0)


def _counted_source(connection: Connection, source: str) -> str:
    source = source[:MOST_TEXT]
    if connection.execute("SELECT 1 FROM refusals WHERE source = ? LIMIT 1", (source,)).fetchone():
        return source
    counters = connection.execute("SELECT count(*) FROM refusals").fetchone()[0]
    return source if counters < MOST_COUNTERS else "others"


def _has_room(connection: Connection, source: str) -> bool:
    used = connection.execute("SELECT coalesce(sum(entries), 0) FROM refusals WHERE source = ?", (source,)).fetchone()
    return bool(used[0] < ENTRIES_PER_SOURCE)


def _count(connection: Connection, key: tuple[str, str, str], *, times: int, entries: int, logged: float) -> None:
    connection.execute(
        "INSERT INTO refusals (source, reason, client, times, entries, logged) VALUES (?, ?, ?, ?, ?, ?) "
        "ON CONFLICT DO UPDATE SET times = times + excluded.times, entries = entries + excluded.entries, "
        "logged = max(logged, excluded.logged)",
        (*key, times, entries, logged),
    )


def _is_enrolled(connection: Connection, client: str) -> bool:
    return connection.execute("SELECT 1 FROM clients WHERE client = ?", (client,)).fetchone() is not None
