"""The log: everything that happened, each entry bound to the one before by a hash.

The hash of an entry is SHA-256 of the former entry's hash and the canonical JSON of number, time, event and facts; the
first entry follows the federation's id. To change, drop or swap an entry, all later ones must be computed anew, and
then none of the receipts that clients hold is in the chain any more.

============  ==================================================================================================
event         facts
============  ==================================================================================================
created       name, federation; key: what signs for the ledger, if the terms do not say it
amended       classes: those that were added, terms: digest of the terms since
enrolled      client, key, node_key
revoked       client
joined        client, version, digest, moments, bytes, classes, samples, withheld, source
replaced      the same, and former: the version that was taken out
left          client, version, digest
refused       reason, sentence, source, bytes, client (if it names one that is enrolled), times
quarantined   client, version, digest, bytes, source, kept, dropped
note          note, and what the server wrote down with it
reported      client, version, digest, report, bytes, source; former: the version that it replaces
withdrawn     client, version, digest: a report that was in no batch
batch         batch, reports: [client, version] each, plan: they are added up together, and nobody can leave alone
collected     batch, reports: how many, parts: the contributions that hold the sums; result: digest of another result
reopened      batch, without, reason: the helper refused it; its reports wait again, but for those of some clients
dissolved     batch, reason: all of it was taken out
attempt       attempt: for which reports are made since a batch was given up, clients: asked again, without: no more
cohorts       clients: how many, digest: of the nonce and the roster that cohorts are drawn with
released      state, epsilon, delta, noise, spent: sums were noised once for all that is fitted from that state
spent         ratio, what: a release that this ledger does not hold, for it is older; charged all the same
departed      client, version: it left after what this ledger was restored from
rotated       client, former, key, node_key, signature: the former key signed the new one
snapshot      file, checksum, bytes, head
restored      file, checksum, returned: who had left and was brought back, lost: whether the journal was lost
============  ==================================================================================================

Entries that a receipt is given for, and those that the journal keeps, also have ``counter``: the number of the
journal's last line. Every entry has ``salt``, random bits: clients are shown hashes of their neighbours' entries, in
proofs and in receipts, and could otherwise try out what another one sent.
"""

import hashlib
import json
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from fedmoments.core.maps.canonical import canonical_json
from fedmoments.durable import Connection
from fedmoments.errors import LedgerError
from fedmoments.federation.store.tree import grow

__all__ = ["Entry", "append", "counter", "entries", "entry", "head", "is_kept", "redoing"]

#: What the journal keeps, beside releases that were charged; and what clients get receipts for.
_KEPT = ("left", "withdrawn", "dissolved", "revoked", "rotated", "released", "spent", "restored")
_RECEIPTS = ("joined", "replaced", "reported")

#: Of each entry's facts: what makes its hash tell nothing.
SALT = "salt"
_COLUMNS = "seq, time, event, facts, previous, hash"


@dataclass(frozen=True)
class Entry:
    """One line of the log.

    Parameters
    ----------
    seq
        Its number, from 1 without a gap.
    time
        When it was written: ISO 8601, UTC.
    event
        What happened; see the table in the module.
    facts
        Canonical JSON of the details.
    previous, hash
        Of the entry before, and of this one: 64 hexadecimal digits.

    Examples
    --------
    >>> first = Entry.following("ab" * 32, 1, "note", {"note": "round opened"}, "2030-01-01T00:00:00.000Z")
    >>> first.is_sound, first.details["note"]
    (True, 'round opened')
    >>> import dataclasses
    >>> dataclasses.replace(first, event="left").is_sound
    False
    """

    seq: int
    time: str
    event: str
    facts: str
    previous: str
    hash: str

    @classmethod
    def following(cls, previous: str, seq: int, event: str, facts: dict[str, Any], time: str) -> "Entry":
        """Return the entry that comes after one of that hash."""
        text = canonical_json(facts)
        return cls(seq, time, event, text, previous, _hash(previous, seq, time, event, text))

    @property
    def details(self) -> dict[str, Any]:
        """The facts, without the salt."""
        value: dict[str, Any] = json.loads(self.facts)
        value.pop(SALT, None)
        return value

    @property
    def is_sound(self) -> bool:
        """Whether the hash is that of what the entry says."""
        return self.hash == _hash(self.previous, self.seq, self.time, self.event, self.facts)


def _hash(previous: str, seq: int, time: str, event: str, facts: str) -> str:
    # `facts` is canonical JSON itself, so this is the canonical JSON of the four
    line = f'{{"event":{canonical_json(event)},"facts":{facts},"seq":{seq},"time":{canonical_json(time)}}}'
    return hashlib.sha256((previous + line).encode()).hexdigest()


def append(connection: Connection, event: str, facts: dict[str, Any], *, genesis: str = "") -> Entry:
    """Write the next entry; call it inside a transaction.

    Parameters
    ----------
    connection
        The ledger's.
    event, facts
        See the module.
    genesis
        What the first entry follows.
    """
    last = connection.execute("SELECT seq, hash FROM audit ORDER BY seq DESC LIMIT 1").fetchone()
    seq, previous = last or (0, genesis)
    if last is not None and previous != head(connection):
        raise LedgerError("the log does not end with the entry that was noted as its head: run verify")
    facts = {**_counted(connection, event, facts), SALT: secrets.token_hex(16)}
    time = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    new = Entry.following(previous, seq + 1, event, facts, time)
    row = (new.seq, new.time, new.event, new.facts, new.previous, new.hash)
    connection.execute(f"INSERT INTO audit ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)", row)  # noqa: S608 - constant names
    connection.execute("INSERT OR REPLACE INTO meta VALUES ('head', ?)", (new.hash,))
    grow(connection, new.seq, new.hash)
    return new


def is_kept(event: str, facts: dict[str, Any]) -> bool:
    """Say whether the journal keeps an entry.

    Examples
    --------
    >>> is_kept("left", {}), is_kept("joined", {}), is_kept("collected", {"charged": True})
    (True, False, True)
    """
    return event in _KEPT or (event == "collected" and facts.get("charged") is True)


def counter(connection: Connection) -> int:
    """Return the number of the journal's last line, as far as the ledger knows."""
    row = connection.execute("SELECT value FROM meta WHERE name = 'counter'").fetchone()
    return int(row[0]) if row else 0


@contextmanager
def redoing(connection: Connection) -> Iterator[None]:
    """Inside, nothing counts as new: what is written makes up for lines that the journal holds already."""
    connection.execute("INSERT OR REPLACE INTO meta VALUES ('redoing', '')")
    try:
        yield
    finally:
        connection.execute("DELETE FROM meta WHERE name = 'redoing'")


def _counted(connection: Connection, event: str, facts: dict[str, Any]) -> dict[str, Any]:
    """Return the facts with the counter, one higher for what the journal keeps."""
    kept = is_kept(event, facts)
    if not kept and event not in _RECEIPTS:
        return facts
    number = counter(connection)
    if kept and not connection.execute("SELECT 1 FROM meta WHERE name = 'redoing'").fetchone():
        number += 1
        connection.execute("INSERT OR REPLACE INTO meta VALUES ('counter', ?)", (str(number),))
    return {**facts, "counter": number}


def head(connection: Connection) -> str:
    """Return the hash of the last entry, as the ledger noted it beside the log."""
    row = connection.execute("SELECT value FROM meta WHERE name = 'head'").fetchone()
    return str(row[0]) if row else ""


def entry(connection: Connection, seq: int) -> Entry:
    """Return the entry of that number, which must exist and be as it was written."""
    row = connection.execute(f"SELECT {_COLUMNS} FROM audit WHERE seq = ?", (seq,)).fetchone()  # noqa: S608
    if row is None or not Entry(*row).is_sound:
        raise LedgerError(f"entry {seq} of the log is missing, or is not as it was written: run verify")
    return Entry(*row)


def entries(connection: Connection, *, after: int = 0, at_most: int = -1) -> Iterator[Entry]:
    """Yield entries in order, those behind number ``after``."""
    query = f"SELECT {_COLUMNS} FROM audit WHERE seq > ? ORDER BY seq LIMIT ?"  # noqa: S608
    for row in connection.execute(query, (after, at_most)):
        yield Entry(*row)
