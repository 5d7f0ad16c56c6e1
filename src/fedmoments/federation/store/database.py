"""The file: how it is made, opened, written to and read, so that a failure leaves all of a change or none of it.

One SQLite file a federation, with a write-ahead log and ``synchronous=FULL``: a commit returns when its bytes were
forced to the disk, and only then is anything acknowledged. Every write is one ``BEGIN IMMEDIATE`` transaction, so that
several processes may write to the same file; they wait for each other for up to `BUSY_SECONDS`. ``secure_delete``
overwrites what is deleted with zeros. The file must lie on a local disk: a write-ahead log does not work over a
network file system.
"""

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from fedmoments.errors import FileFormatError, LedgerError

__all__ = ["APPLICATION_ID", "MOST_BLOB_BYTES", "SCHEMA_VERSION", "Database", "part_of", "put_in_place"]

#: "fmLd" in the header of every ledger file.
APPLICATION_ID = 0x666D4C64
#: Version of the tables below; a release opens its own, and brings older ones up to it.
SCHEMA_VERSION = 2
#: How long a writer waits for another one.
BUSY_SECONDS = 60.0
#: SQLite's own limit on one blob, less some room for the row around it.
MOST_BLOB_BYTES = 10**9 - 2**20

_AGAIN = "free space or mend the disk, then try again"
_PRAGMAS = (
    "PRAGMA journal_mode=WAL",
    "PRAGMA synchronous=FULL",
    "PRAGMA secure_delete=ON",
    "PRAGMA foreign_keys=ON",
    "PRAGMA trusted_schema=OFF",
    "PRAGMA cell_size_check=ON",
)

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

_SCHEMA = f"""
PRAGMA application_id={APPLICATION_ID};
PRAGMA user_version={SCHEMA_VERSION};
BEGIN IMMEDIATE;
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
{_SINCE_2}
COMMIT;
"""


class Database:
    """A connection that is made anew after a failure.

    Parameters
    ----------
    path
        An existing file that `Database.build` made.

    Raises
    ------
    LedgerError
        When there is no such file, or it cannot be opened.
    FileFormatError
        When it is something else, or was written by another version.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._is_settled = self._closed = False
        if not self.path.is_file():
            raise LedgerError(f"there is no ledger at {self.path}: make one with FederationStore.create")
        try:
            self._check()
        except BaseException:
            self.close()
            raise

    @staticmethod
    @contextmanager
    def build(path: Path) -> Iterator[sqlite3.Connection]:
        """Make the tables in a new file that nobody else knows yet, and yield a connection to fill them.

        Nothing is forced to the disk: `put_in_place` does that once for the whole file.
        """
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("PRAGMA synchronous=OFF")
            connection.executescript(_SCHEMA)
            yield connection
            connection.execute("PRAGMA journal_mode=WAL")

    @property
    def connection(self) -> sqlite3.Connection:
        """The connection; a new one if the former one failed."""
        if self._closed:
            raise LedgerError(f"the ledger {self.path} was closed: open it again")
        if self._connection is None:
            address = f"file:{quote(str(self.path.absolute()))}?mode=rw"
            connection = sqlite3.connect(
                address, uri=True, isolation_level=None, timeout=BUSY_SECONDS, check_same_thread=False
            )
            try:
                for pragma in _PRAGMAS:
                    connection.execute(pragma).fetchall()
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    def close(self) -> None:
        """Close the connection; the last one to close folds the write-ahead log into the file."""
        self._drop()
        self._closed = True

    @contextmanager
    def writing(self, what: str, advice: str = _AGAIN) -> Iterator[sqlite3.Connection]:
        """Do everything inside in one transaction, which is on the disk when this returns, or not at all.

        Parameters
        ----------
        what
            What has not happened if it fails, for the message: ``"client 'clinic' was not enrolled"``.
        advice
            What to do then.

        Raises
        ------
        LedgerError
            When the file cannot be written: disk full, failing disk, another process that does not let go.
        """
        with self._lock:
            try:
                self._settle()
                self.connection.execute("BEGIN IMMEDIATE")
                yield self.connection
                self.connection.execute("COMMIT")
            except sqlite3.Error as error:
                self._drop()  # after a failed write or fsync nothing that this connection remembers is trusted
                raise LedgerError(
                    f"{what}, for the ledger {self.path} cannot be written ({error}); nothing of it is half there and "
                    f"nothing is counted twice: {advice}"
                ) from error
            finally:
                self._roll_back()

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Read one consistent state, whatever other processes write meanwhile."""
        with self._lock:
            try:
                self.connection.execute("BEGIN")
                yield self.connection
            except sqlite3.Error as error:
                self._drop()
                raise LedgerError(
                    f"the ledger {self.path} cannot be read ({error}): mend the disk, or restore a snapshot"
                ) from error
            finally:
                self._roll_back()

    def erase_log(self) -> None:
        """Fold the write-ahead log into the file and cut it to nothing, so that deleted bytes are gone from both."""
        with self._lock:
            try:
                busy, _, _ = self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            except sqlite3.Error as error:
                self._drop()
                raise LedgerError(f"the write-ahead log of {self.path} cannot be erased ({error})") from error
        if busy:
            raise LedgerError(f"the write-ahead log of {self.path} cannot be erased: another process is reading it")

    def _check(self) -> None:
        try:
            numbers = [self.connection.execute(f"PRAGMA {n}").fetchone()[0] for n in ("application_id", "user_version")]
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError):
                raise LedgerError(f"the ledger {self.path} cannot be opened: {error}") from error
            raise FileFormatError(f"{self.path} is no ledger of a federation, or is damaged: {error}") from error
        if numbers[0] != APPLICATION_ID:
            raise FileFormatError(f"{self.path} is an SQLite file, but no ledger of a federation")
        if numbers[1] == 1:
            self._bring_up()
        elif numbers[1] != SCHEMA_VERSION:
            raise FileFormatError(
                f"{self.path} was written in version {numbers[1]} of the ledger's tables, but this release reads "
                f"versions up to {SCHEMA_VERSION}: open it with the release that wrote it"
            )

    def _bring_up(self) -> None:
        """Add the tables that version 2 has beyond version 1; nothing that is there changes."""
        with self.writing(f"{self.path} was not brought up to version {SCHEMA_VERSION} of its tables") as connection:
            if connection.execute("PRAGMA user_version").fetchone()[0] == 1:  # else another process was faster
                for statement in filter(str.strip, _SINCE_2.split(";\n")):
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version={SCHEMA_VERSION}")

    def _settle(self) -> None:
        """Make sure that what can be read is on the disk, once a connection.

        The write-ahead log may end with a commit whose fsync failed: whole, never acknowledged, perhaps in memory only.
        Once it is in the file and forced to the disk, it may be acknowledged when it is sent again.
        """
        if not self._is_settled:
            self.connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            self._is_settled = True

    def _roll_back(self) -> None:
        if self._connection is not None and self._connection.in_transaction:
            with suppress(sqlite3.Error):  # what raised is what matters; the connection is dropped then
                self._connection.execute("ROLLBACK")

    def _drop(self) -> None:
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self._connection.close()
            self._connection, self._is_settled = None, False


@contextmanager
def part_of(target: Path) -> Iterator[Path]:
    """Yield the name of a file beside ``target`` to write to; whatever is left of it is removed at the end."""
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        yield part
    except (OSError, sqlite3.Error) as error:
        raise LedgerError(f"{target} cannot be written ({error}): mend that and try again") from error
    finally:
        for suffix in ("", "-wal", "-shm", "-journal"):
            part.with_name(part.name + suffix).unlink(missing_ok=True)


def put_in_place(part: Path, target: Path) -> None:
    """Give a finished file its name; never overwrite, not even in a race.

    Raises
    ------
    LedgerError
        When there is a file of that name, or the write-ahead log of a former one.
    """
    for taken in (target, target.with_name(f"{target.name}-wal"), target.with_name(f"{target.name}-journal")):
        if taken.exists():
            raise LedgerError(f"{taken} exists and is not overwritten: choose another name, or move it away")
    descriptor = os.open(part, os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    try:
        os.link(part, target)
    except FileExistsError as error:
        raise LedgerError(f"{target} exists and is not overwritten: choose another name, or move it away") from error
    part.unlink()
    _sync_folder(target.parent)


def _sync_folder(folder: Path) -> None:
    """Force the names in a folder to the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
