"""The file ``outbox.db``: SQLite with a write-ahead log and ``synchronous=FULL``, readable by its owner only.

A commit returns when its bytes were forced to the disk. Several processes may share the file: every write is one
``BEGIN IMMEDIATE`` transaction, and writers wait for each other for up to `BUSY_SECONDS`. What is deleted is
overwritten with zeros.
"""

import fcntl
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import RLock
from typing import Any

from fedmoments.errors import FileFormatError, LedgerError
from fedmoments.federation.outbox.record import Record

__all__ = ["Database"]

#: "fmOb" in the header of every outbox.
APPLICATION_ID = 0x666D4F62
#: Version of the tables below; a release opens its own.
SCHEMA_VERSION = 1
#: How long a writer waits for another one.
BUSY_SECONDS = 60.0

_PRAGMAS = (
    "PRAGMA journal_mode=WAL",
    "PRAGMA synchronous=FULL",
    "PRAGMA secure_delete=ON",
    "PRAGMA trusted_schema=OFF",
    "PRAGMA cell_size_check=ON",
)
_SCHEMA = f"""
BEGIN IMMEDIATE;
PRAGMA application_id={APPLICATION_ID};
PRAGMA user_version={SCHEMA_VERSION};
-- facts: JSON for the record; receipt: JSON of the server; refusal: JSON of reason and sentence; payload: last, for it
-- is long and seldom read, and NULL once it was forgotten
CREATE TABLE contributions (
    federation TEXT NOT NULL, client TEXT NOT NULL, version INTEGER NOT NULL, source TEXT NOT NULL,
    digest TEXT NOT NULL, facts TEXT NOT NULL, receipt TEXT, refusal TEXT, payload BLOB,
    PRIMARY KEY (federation, client, version)
);
-- no version up to this one can be taken in any more
CREATE TABLE floors (
    federation TEXT NOT NULL, client TEXT NOT NULL, above INTEGER NOT NULL, PRIMARY KEY (federation, client)
);
COMMIT;
"""


class Database:
    """A connection that threads share and that is made anew after a failure.

    Parameters
    ----------
    path
        The file; it is made if it is not there.
    record
        Its lines are written before every commit.

    Raises
    ------
    LedgerError
        When the file cannot be opened or made.
    FileFormatError
        When it is something else, or was written by another version.
    """

    def __init__(self, path: Path, record: Record) -> None:
        self.path, self._record = path, record
        self._lock = RLock()
        self._connection: sqlite3.Connection | None = None
        self._closed = self._failed = False
        self._depth = 0
        with self._explained(), _one_at_a_time(record.path):
            self._make()
        self._check()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Do everything inside in one transaction, with that around it if there is one.

        It is on the disk when the outermost one ends; when that raises, nothing of it happened.

        Raises
        ------
        LedgerError
            When the file cannot be written: disk full, failing disk, another process that does not let go.
        """
        with self._lock:
            outermost = self._depth == 0
            if outermost:
                self.rows("BEGIN IMMEDIATE")
            self._depth += 1
            try:
                yield
                if outermost:
                    with self._explained():
                        self._record.flush()
                    self.rows("COMMIT")
            except BaseException:
                if outermost:
                    self._undo()
                raise
            finally:
                self._depth -= 1

    @property
    def in_transaction(self) -> bool:
        """Whether this thread is inside of :meth:`writing`."""
        with self._lock:  # another thread that is inside holds the lock
            return self._depth > 0

    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """Run one statement and return its rows."""
        with self._lock, self._explained():
            return self._open().execute(query, values).fetchall()

    def close(self) -> None:
        """Close the connection; the last one to close folds the write-ahead log into the file."""
        with self._lock:
            self._drop()
            self._closed = True

    # ---------------------------------------------------------------------------------------------- opening

    def _make(self) -> None:
        """Make the file and its tables where they are not; alone, so that no one sees them half made."""
        with suppress(FileExistsError):  # never opened here if it exists: closing it would let go of SQLite's locks
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        connection = self._open()
        if not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            connection.executescript(_SCHEMA)

    def _check(self) -> None:
        found, version = (self.rows(f"PRAGMA {name}")[0][0] for name in ("application_id", "user_version"))
        if (found, version) != (APPLICATION_ID, SCHEMA_VERSION):
            self.close()
            what = "is an SQLite file, but no outbox" if found != APPLICATION_ID else f"is of version {version}"
            raise FileFormatError(
                f"{self.path} {what}; this release opens outboxes of version {SCHEMA_VERSION}: choose another folder"
            )

    def _open(self) -> sqlite3.Connection:
        if self._closed:
            raise LedgerError(f"the outbox {self.path} was closed: open it again")
        if self._connection is None:
            self._connection = sqlite3.connect(
                self.path, isolation_level=None, timeout=BUSY_SECONDS, check_same_thread=False
            )
            for pragma in _PRAGMAS:
                self._connection.execute(pragma)
        return self._connection

    # ---------------------------------------------------------------------------------------------- failing

    def _undo(self) -> None:
        self._record.drop()
        if self._connection is not None and self._connection.in_transaction:
            with suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")
        if self._failed:  # after a failed write nothing that this connection remembers is trusted
            self._drop()
        self._failed = False

    def _drop(self) -> None:
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self._connection.close()
        self._connection = None

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn what SQLite and the file system raise into one sentence; the transaction around it has failed."""
        if self._failed:
            raise LedgerError(f"nothing of this batch is kept, for the outbox {self.path} failed before: try again")
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            if self._depth:
                self._failed = True
            else:
                self._drop()
            if type(error) is sqlite3.DatabaseError:
                raise FileFormatError(f"{self.path} is no outbox, or is damaged: {error}") from error
            raise LedgerError(
                f"the outbox {self.path} cannot be used ({error}); nothing in it is half there: free space, mend the "
                "disk or end the process that holds it, then try again"
            ) from error


@contextmanager
def _one_at_a_time(path: Path) -> Iterator[None]:
    """Hold the lock of a file that SQLite does not know."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
