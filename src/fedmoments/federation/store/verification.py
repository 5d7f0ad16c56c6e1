"""Verification: that the log is whole, and that it explains every number in the ledger.

The chain of hashes is followed from the federation's id to the head. Then the log is replayed: who is enrolled, who is
in with which digest, who left; and the running sums are computed anew from the stored contributions of those who are
in. Tables and log must agree, bit for bit.

A log that was cut off at its end, consistently, cannot be told from a younger one by looking at the file alone. So
``expect`` takes a hash that is known from elsewhere (a client's receipt, or a head that was written down) and must be
in the chain.
"""

import sqlite3
from dataclasses import dataclass, field
from typing import Any

from fedmoments.errors import LedgerError
from fedmoments.federation.store.audit import Entry, entries, head
from fedmoments.federation.store.masked_replay import MaskedReplay, differences
from fedmoments.federation.store.payloads import stored, stored_clients
from fedmoments.federation.store.totals import Change, stored_totals
from fedmoments.wire import Agreement

__all__ = ["Verification", "verify"]

#: More problems than these are counted, not told.
MOST_PROBLEMS = 100


@dataclass(frozen=True)
class Verification:
    """What a verification found.

    Parameters
    ----------
    chain_whole
        Every entry's hash is right and follows from the entry before, none is missing, and the last one is the head.
    replay_equal
        Members, contributions, those who left and running sums are what the log and the stored contributions say.
    entries
        How many entries the log has.
    clients
        How many contributions are in.
    head
        Hash of the last entry: note it elsewhere, and give it to a later ``verify(expect=…)``.
    problems
        A sentence for each thing that is wrong; the first hundred.

    Examples
    --------
    >>> Verification(chain_whole=True, replay_equal=False, entries=3, clients=1, head="ab" * 32).whole
    False
    """

    chain_whole: bool
    replay_equal: bool
    entries: int
    clients: int
    head: str
    problems: tuple[str, ...] = ()

    @property
    def whole(self) -> bool:
        """Whether nothing is wrong."""
        return self.chain_whole and self.replay_equal


@dataclass
class _Replay:
    """What the log says, entry by entry."""

    members: dict[str, tuple[str, str | None, str]] = field(default_factory=dict)
    present: dict[str, tuple[int, str, int]] = field(default_factory=dict)
    gone: dict[str, tuple[int, int]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.masked = MaskedReplay(self.gone, self.problems)

    def follow(self, entry: Entry) -> None:
        facts = entry.details
        client = facts.get("client", "")
        if self.masked.follow(entry, facts):
            return
        if entry.event == "enrolled":
            self.members[client] = (facts["key"], facts["node_key"], "enrolled")
        elif entry.event == "revoked":
            self.members[client] = (*self.members[client][:2], "revoked")
        elif entry.event in ("joined", "replaced"):
            self._enter(entry, facts)
        elif entry.event == "left":
            if self.present.get(client, (0, ""))[:2] != (facts["version"], facts["digest"]):
                self.problems.append(f"entry {entry.seq}: client {client!r} left with what it had not contributed")
            self.present.pop(client, None)
            self.gone[client] = (facts["version"], entry.seq)

    def _enter(self, entry: Entry, facts: dict[str, Any]) -> None:
        client, version = facts["client"], facts["version"]
        last = self.present.get(client, self.gone.get(client, (0,)))[0]
        if version <= last or (entry.event == "replaced") != (client in self.present):
            self.problems.append(
                f"entry {entry.seq}: client {client!r} {entry.event} with version {version} after {last}"
            )
        self.present[client] = (version, facts["digest"], entry.seq)
        self.gone.pop(client, None)


def verify(connection: sqlite3.Connection, agreement: Agreement, expect: str | None = None) -> Verification:
    """Check the whole ledger, inside a transaction that reads; see `FederationStore.verify`."""
    try:
        return _verify(connection, agreement, expect)
    except sqlite3.DatabaseError as error:
        problem = f"the file is damaged, so that not all of it can be read: {error}"
        return Verification(chain_whole=False, replay_equal=False, entries=0, clients=0, head="", problems=(problem,))


def _verify(connection: sqlite3.Connection, agreement: Agreement, expect: str | None) -> Verification:
    chain: list[str] = []
    replay = _Replay()
    length, last, found = 0, agreement.federation, expect is None
    for entry in entries(connection):
        length += 1
        if entry.seq != length:
            chain.append(f"entry {length} is missing: entry {entry.seq} comes in its place")
            length = entry.seq
        if entry.previous != last:
            chain.append(f"entry {entry.seq} does not follow from the one before it")
        if not entry.is_sound:
            chain.append(f"entry {entry.seq} ({entry.event}) does not have the hash of what it says")
        last = entry.hash
        found = found or entry.hash == expect
        try:
            replay.follow(entry)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            chain.append(f"entry {entry.seq} ({entry.event}) cannot be understood: {error!r}")
    noted = head(connection)
    if noted != last:
        chain.append(f"the log ends with the hash {last}, but {noted} was noted as its head: its end is missing")
    if not found:
        chain.append(f"no entry has the hash {expect}: the log was cut off, rewritten, or is not the one meant")
    problems = [*replay.problems, *_compare_members(connection, replay), *_compare_contributions(connection, replay)]
    problems += replay.masked.compare(connection)
    clients = stored_clients(connection)
    problems += _compare_totals(connection, agreement, clients)
    told = [*chain, *problems]
    if len(told) > MOST_PROBLEMS:
        told = [*told[:MOST_PROBLEMS], f"… and {len(told) - MOST_PROBLEMS} more"]
    return Verification(not chain, not problems, length, len(clients), last, tuple(told))


def _compare_members(connection: sqlite3.Connection, replay: _Replay) -> list[str]:
    rows = connection.execute("SELECT client, hex(key), node_key, status FROM clients")
    held = {client: (key.lower(), node_key, status) for client, key, node_key, status in rows}
    return differences("the enrolment of client", held, replay.members)


def _compare_contributions(connection: sqlite3.Connection, replay: _Replay) -> list[str]:
    rows = connection.execute("SELECT client, version, digest, seq FROM contributions")
    held = {client: (version, digest, seq) for client, version, digest, seq in rows}
    gone = {client: tuple(rest) for client, *rest in connection.execute("SELECT client, version, seq FROM departures")}
    orphans = connection.execute("SELECT client FROM payloads WHERE client NOT IN (SELECT client FROM contributions)")
    return [
        *differences("the contribution of client", held, replay.present),
        *differences("the departure of client", gone, replay.gone),
        *(f"a payload of client {client!r} belongs to no contribution" for (client,) in orphans),
    ]


def _compare_totals(connection: sqlite3.Connection, agreement: Agreement, clients: list[str]) -> list[str]:
    """Compute the running sums anew, in the memory of one contribution and the sums, and compare every byte."""
    change = Change(agreement.spec)
    problems = []
    query = "SELECT bytes, samples, classes, mean_rows, withheld_classes, withheld_samples FROM contributions"
    for client in clients:
        try:
            part = stored(connection, agreement, client)
        except LedgerError as error:
            problems.append(str(error))
            continue
        change.add(part.statistics)
        stats, withheld = part.statistics, part.withheld
        columns = (stats.n_samples, len(stats.classes), len(stats.row_labels), withheld.classes, withheld.samples)
        noted = connection.execute(f"{query} WHERE client = ?", (client,)).fetchone()
        if noted != (part.size, *columns):
            problems.append(f"what is noted of the contribution of client {client!r} is not what it holds")
    computed = change.occupied()
    for key, data in stored_totals(connection):
        values = computed.pop(key, None)
        if values is None or values.astype("<i8").tobytes() != data:
            problems.append(f"the running sum of '{key[0]}' for label {key[1]} is not the sum of the contributions")
    problems += [f"the running sum of '{name}' for label {label} is missing" for name, label in computed]
    return problems
