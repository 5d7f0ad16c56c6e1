"""Verification: that the log is whole, and that it explains every number in the ledger.

The chain of hashes is followed from the federation's id to the head. Then the log is replayed: who is enrolled, who is
in with which digest, who left; and the running sums are computed anew from the stored contributions of those who are
in. Tables and log must agree, bit for bit, and so must every small row beside them (terms, keys, accounts, counters).

A log that was cut off at its end, consistently, cannot be told from a younger one by looking at the file alone. So
``expect`` takes a hash that is known from elsewhere (a client's receipt, or a head that was written down) and must be
in the chain.
"""

from dataclasses import dataclass, replace

from fedmoments.durable import Connection, DurableFile
from fedmoments.errors import FileFormatError, LedgerError, reading
from fedmoments.federation.store.audit import entries, head
from fedmoments.federation.store.journal import Journal
from fedmoments.federation.store.noted import noted_problems
from fedmoments.federation.store.payloads import stored, stored_clients
from fedmoments.federation.store.replay import Replay
from fedmoments.federation.store.totals import Change, digest_of, stored_totals
from fedmoments.federation.store.tree import tree_problems
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


def verify(
    file: DurableFile, agreement: Agreement, expect: str | None = None, journal: Journal | None = None
) -> Verification:
    """Check the whole ledger: its pages, its log, its tables, and its journal; see `FederationStore.verify`."""
    damage = file.damage()
    try:
        with file.reading(settled=False) as connection, reading("its tables hold what no ledger writes"):
            outcome = _verify(connection, agreement, expect)
            problem = (
                None if journal is None else _journal_problem(connection, journal, is_needed=not file.is_read_only)
            )
            if problem:
                outcome = replace(outcome, replay_equal=False, problems=(*outcome.problems, problem))
    except FileFormatError as error:
        damage = damage or [str(error)]
        outcome = Verification(chain_whole=False, replay_equal=False, entries=0, clients=0, head="")
    if not damage:
        return outcome
    problems = (*(f"the file is damaged: {line}" for line in damage), *outcome.problems)
    return replace(outcome, chain_whole=False, replay_equal=False, problems=problems)


def _verify(connection: Connection, agreement: Agreement, expect: str | None) -> Verification:
    chain: list[str] = []
    hashes: list[str] = []
    replay = Replay()
    length, last, expected_seen = 0, agreement.federation, expect is None
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
        hashes.append(entry.hash)
        expected_seen = expected_seen or entry.hash == expect
        try:
            replay.follow(entry)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            chain.append(f"entry {entry.seq} ({entry.event}) cannot be understood: {error!r}")
    chain += tree_problems(connection, hashes)
    noted = head(connection)
    if noted != last:
        chain.append(f"the log ends with the hash {last}, but {noted} was noted as its head: its end is missing")
    if not expected_seen:
        chain.append(f"no entry has the hash {expect}: the log was cut off, rewritten, or is not the one meant")
    problems = [*replay.compare(connection), *noted_problems(connection, agreement, replay)]
    clients = stored_clients(connection)
    problems += _compare_totals(connection, agreement, clients)
    sentences = [*chain, *problems]
    if len(sentences) > MOST_PROBLEMS:
        sentences = [*sentences[:MOST_PROBLEMS], f"… and {len(sentences) - MOST_PROBLEMS} more"]
    return Verification(not chain, not problems, length, len(clients), last, tuple(sentences))


def _journal_problem(connection: Connection, journal: Journal, *, is_needed: bool) -> str | None:
    """Return what is wrong with the journal; on read-only media, it need not be there."""
    if not is_needed and not journal.path.exists():
        return None
    if is_needed and not connection.execute("SELECT 1 FROM meta WHERE name = 'counter'").fetchone():
        return f"there is a journal {journal.path}, but the note of what was taken in of it is missing"
    try:
        journal.require_current(connection)
    except (LedgerError, FileFormatError) as error:
        return str(error)
    return None


def _compare_totals(connection: Connection, agreement: Agreement, clients: list[str]) -> list[str]:
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
    for key, data, digest in stored_totals(connection):
        values = computed.pop(key, None)
        if digest != digest_of(*key, data):
            problems.append(f"the running sum of '{key[0]}' for label {key[1]} does not have the digest that was noted")
        if values is None or values.astype("<i8").tobytes() != data:
            problems.append(f"the running sum of '{key[0]}' for label {key[1]} is not the sum of the contributions")
    problems += [f"the running sum of '{name}' for label {label} is missing" for name, label in computed]
    return problems
