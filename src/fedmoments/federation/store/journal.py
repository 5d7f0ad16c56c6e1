"""The journal beside a ledger: what may not be undone by putting an older ledger in its place.

``LEDGER.journal`` is plain text, a JSON object a line, append-only, readable by its owner alone. It repeats what the
log says of every departure, revocation, new key and release, each line bound to the one before by a hash. A line is
forced to the disk before the change that it tells of is committed. So after a kill it may tell of something that did
not happen yet, which the next transaction makes up for, but it never lacks something that did.

The number of its last line is the federation's *counter*. It stands in every receipt and in every head of the log, and
never goes back: a party that has seen a higher one than it is shown knows that an older ledger took the place of the
newer one, even if the journal was deleted.

============  =====================================================================================================
event         facts; each line also has ``head``: hash of the log's last entry before the transaction
============  =====================================================================================================
left          client, version, digest
withdrawn     the same, of a masked report
dissolved     batch, members: [client, version] each
revoked       client, key, node_key
rotated       client, former, key, node_key
spent         ratio: noise of a release over its sensitivity; what; number: how many releases there were then
restored      checksum of the snapshot that took the ledger's place; returned: who had left and was brought back
============  =====================================================================================================
"""

import errno
import json
import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fedmoments.durable import Connection
from fedmoments.durable.locks import locked_file, read_at, write_at
from fedmoments.errors import FileFormatError, LedgerError, reading
from fedmoments.federation.store.audit import Entry, entries, head, is_kept

__all__ = ["Journal", "journal_of", "line_facts", "take_in", "taken_in"]

#: What a line keeps of the facts of the log's entry.
_KEPT = {
    "left": ("client", "version", "digest"),
    "withdrawn": ("client", "version", "digest"),
    "dissolved": ("batch", "members"),
    "revoked": ("client", "key", "node_key"),
    "rotated": ("client", "former", "key", "node_key"),
    "restored": ("checksum", "returned", "lost"),
    "spent": ("ratio", "what", "number"),
}
#: Longer journals are not believed: some hundred bytes for every departure, revocation and release.
MOST_BYTES = 2**30

#: Makes up, inside a transaction, for a line that the ledger lacks.
Redo = Callable[[Connection, Entry], None]


def journal_of(ledger: Path) -> Path:
    """Return where the journal of a ledger is.

    Examples
    --------
    >>> journal_of(Path("trial/ledger.db")).as_posix()
    'trial/ledger.db.journal'
    """
    return ledger.with_name(f"{ledger.name}.journal")


class Journal:
    """A journal: the companion of its ledger's transactions.

    Parameters
    ----------
    path
        Where it is.
    federation
        Id of the federation: what its first line follows.
    redo
        Makes up for a line that the ledger lacks, for a process died before its commit.
    """

    def __init__(self, path: Path, federation: str, redo: Redo) -> None:
        self.path, self.federation = path, federation
        self._redo = redo
        self._connection: Connection | None = None
        self._before = (0, "")
        self._seen: tuple[int, int, int] | None = None

    # ---------------------------------------------------------------------------------------------- reading

    def lines(self) -> list[Entry]:
        """Return all lines, once every hash is right; a last line that a kill cut off did not happen.

        Raises
        ------
        FileFormatError
            When it is damaged, or is the journal of another federation.
        LedgerError
            When there is none.
        """
        try:
            with self.path.open("rb") as file:
                data = file.read(MOST_BYTES + 1)
        except FileNotFoundError as error:
            raise LedgerError(f"the journal {self.path} is not there") from error
        read: list[Entry] = []
        place = (1, self.federation)
        for number, text in enumerate(data.split(b"\n")[:-1], start=1):
            line = _read_line(text, place, first=number == 1)
            if line is None:
                raise FileFormatError(
                    f"line {number} of the journal {self.path} was changed, or is of another federation: bring back "
                    "the file that belongs to this ledger"
                )
            read.append(line)
            place = (line.seq + 1, line.hash)
        return read

    def missing(self, connection: Connection) -> list[Entry]:
        """Return the lines that a ledger has not taken in.

        Raises
        ------
        LedgerError
            When there is no journal, or its end is missing.
        """
        seq, last = taken_in(connection)
        read = self.lines()
        known = {line.seq: line.hash for line in read} | ({read[0].seq - 1: read[0].previous} if read else {})
        if seq and known.get(seq) != last:
            raise LedgerError(
                f"the journal {self.path} lacks line {seq}, which the ledger has seen: bring back the journal that "
                "belongs to this ledger"
            )
        return [line for line in read if line.seq > seq]

    def require_current(self, connection: Connection) -> None:
        """Refuse a ledger that is older than its journal, or that has lost it.

        Raises
        ------
        LedgerError
            With what the ledger lacks, and what to do.
        """
        stamp = self._stamp()
        if stamp is not None and stamp == self._seen:
            return
        lacking = self.missing(connection)
        unknown = [line for line in lacking if not _is_known(connection, line.details["head"], self.federation)]
        if unknown:
            raise LedgerError(
                f"this ledger is older than its journal {self.path}, which tells of {_told(unknown)} since: it was put "
                "back by hand, or another one was restored in its place. Use that one, or 'fedmoments ledger restore' "
                "a snapshot, which keeps what the journal says"
            )
        if not lacking:
            self._seen = stamp

    # ---------------------------------------------------------------------------------------------- transactions

    def begin(self, connection: Connection) -> None:
        """Bring a ledger up to its journal, where a process died between the two, or refuse an older one."""
        self._connection = connection
        self.require_current(connection)
        for line in self.missing(connection) if self._seen != self._stamp() else ():
            self._redo(connection, line)
            take_in(connection, line)
        row = connection.execute("SELECT max(seq) FROM audit").fetchone()
        self._before = (int(row[0]), head(connection))

    def flush(self) -> None:
        """Write what the log says of this transaction, forced to the disk, if the journal still ends where it did."""
        connection = self._connection
        if connection is None:
            return
        seq, last = taken_in(connection)
        new = []
        for entry in entries(connection, after=self._before[0]):
            if is_kept(entry.event, entry.details) and entry.details["counter"] > seq:
                facts = {**line_facts(connection, entry), "head": self._before[1]}
                event = "spent" if "ratio" in facts else entry.event
                new.append(Entry.following(last or self.federation, seq + 1, event, facts, entry.time))
                seq, last = new[-1].seq, new[-1].hash
                take_in(connection, new[-1])
        if new:
            self.append(new)

    def drop(self) -> None:
        """Forget the transaction, for it was undone."""
        self._connection = None

    def append(self, new: list[Entry]) -> None:
        """Write lines and force them to the disk, if the journal ends where they begin."""
        with locked_file(self.path) as descriptor:
            end = _end_of(descriptor)
            read = self.lines()
            if read and (read[-1].seq + 1, read[-1].hash) != (new[0].seq, new[0].previous):
                reason = "another ledger of this federation has written to it meanwhile"
                raise OSError(errno.EBUSY, reason, str(self.path))
            data = b"".join(json.dumps(asdict(line)).encode("ascii") + b"\n" for line in new)
            try:
                if write_at(descriptor, data, end) != len(data):
                    raise OSError(errno.ENOSPC, "a line was written in part", str(self.path))
                os.fsync(descriptor)
            except OSError:
                os.ftruncate(descriptor, end)  # what is undone is not told of
                raise
        self._seen = None

    def adopt(self, connection: Connection) -> None:
        """Make the journal of a ledger that has none yet, from its log; inside a transaction."""
        lines: list[Entry] = []
        last, spent = self.federation, 0
        for entry in entries(connection):
            if is_kept(entry.event, entry.details):
                facts = {**line_facts(connection, entry), "head": entry.previous}
                spent += "ratio" in facts
                if "ratio" in facts:
                    facts["number"] = spent
                event = "spent" if "ratio" in facts else entry.event
                lines.append(Entry.following(last, len(lines) + 1, event, facts, entry.time))
                last = lines[-1].hash
        with locked_file(self.path):
            pass
        _force_folder(self.path)
        if lines:
            self.append(lines)
        seq = len(lines)
        for name, value in (("counter", str(seq)), ("journal", f"{seq} {last if seq else ''}")):
            connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, value))

    def _stamp(self) -> tuple[int, int, int] | None:
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_ino, found.st_size, found.st_mtime_ns


def line_facts(connection: Connection, entry: Entry) -> dict[str, Any]:
    """Return what the journal keeps of an entry of the log; of a release, what it cost."""
    facts = entry.details
    if entry.event in ("released", "collected", "spent"):
        row = connection.execute("SELECT value FROM meta WHERE name = 'accountant'").fetchone()
        number = len(json.loads(row[0])["spendings"]) if row else 0
        ratio = facts["ratio"] if entry.event == "spent" else facts["noise_over_sensitivity"]
        return {
            "ratio": ratio,
            "what": facts.get("what", facts.get("state", facts.get("batch", "")))[:16],
            "number": number,
        }
    return {name: facts[name] for name in _KEPT[entry.event] if name in facts}


def taken_in(connection: Connection) -> tuple[int, str]:
    """Return number and hash of the last line that a ledger has taken in; (0, "") if there is none."""
    row = connection.execute("SELECT value FROM meta WHERE name = 'journal'").fetchone()
    if row is None:
        return 0, ""
    with reading("what the ledger noted of its journal is damaged; restore a snapshot"):
        seq, _, last = row[0].partition(" ")
        return int(seq), str(last)


def take_in(connection: Connection, line: Entry) -> None:
    """Note that a ledger has taken in a line, inside a transaction."""
    for name, value in (("counter", str(line.seq)), ("journal", f"{line.seq} {line.hash}")):
        connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, value))


def _is_known(connection: Connection, entry_hash: str, federation: str) -> bool:
    """Say whether the log holds an entry: then the ledger is not older than the line that names it."""
    if entry_hash == federation:
        return True
    return connection.execute("SELECT 1 FROM audit WHERE hash = ?", (entry_hash,)).fetchone() is not None


def _told(lines: list[Entry]) -> str:
    """Return what lines tell of, in words; the first few.

    Examples
    --------
    >>> _told([Entry.following("ab" * 32, 1, "left", {"client": "clinic"}, "2030-01-01")])
    "line 1: left 'clinic'"
    """
    names = [str(line.details.get("client", line.details.get("batch", line.details.get("what", "")))) for line in lines]
    told = [
        f"line {line.seq}: {line.event}{f' {name!r}' if name else ''}" for line, name in zip(lines, names, strict=True)
    ]
    return "; ".join(told[:5]) + (f" and {len(told) - 5} more" if len(told) > 5 else "")


def _end_of(descriptor: int) -> int:
    """Return where the last whole line ends, and cut off what a kill left behind it."""
    size = os.fstat(descriptor).st_size
    data = read_at(descriptor, size, 0)
    end = data.rfind(b"\n") + 1
    if end < size:
        os.ftruncate(descriptor, end)
    return end


def _force_folder(path: Path) -> None:
    if os.name == "nt":  # a folder has no descriptor there, and its entries are journalled
        return
    descriptor = os.open(path.absolute().parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read_line(text: bytes, place: tuple[int, str], *, first: bool) -> Entry | None:
    """Return a line that is sound and follows the one before; None if it is not."""
    try:
        line = Entry(**json.loads(text))
        lost = first and line.event == "restored" and line.details.get("lost") is True
        sound = line.is_sound and line.event in _KEPT and type(line.seq) is int
        sound = sound and (lost or (line.seq, line.previous) == place)
        return line if sound and set(line.details) <= {*_KEPT[line.event], "head"} else None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
