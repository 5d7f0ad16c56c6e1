"""A small SQLite file that survives a crash at any moment: what the servers of secure sums remember.

Write-ahead log and ``synchronous=FULL``: a commit returns when its bytes were forced to the disk. Every write is one
``BEGIN IMMEDIATE`` transaction, so that several processes may share a file; they wait for each other for up to
`BUSY_SECONDS`. Files are readable by their owner only, and what is deleted is overwritten with zeros; in the log it
stays until that is emptied (:meth:`Database.empty_log`). They must lie on a local disk: a write-ahead log does not work
over a network file system.
"""

import fcntl
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import RLock

from fedmoments.errors import FileFormatError, LedgerError

__all__ = ["Database"]

#: How long a writer waits for another one.
BUSY_SECONDS = 60.0

_PRAGMAS = (
    "PRAGMA journal_mode=WAL",
    "PRAGMA synchronous=FULL",
    "PRAGMA secure_delete=ON",
    "PRAGMA foreign_keys=ON",
    "PRAGMA trusted_schema=OFF",
    "PRAGMA cell_size_check=ON",
)


class Database:
    """A connection that threads share and that is made anew after a failure.

    Parameters
    ----------
    path
        The file; it is made if it is not there. None: in memory, gone with the process.
    what
        What it is, for messages: ``"the helper's memory"``.
    number
        SQLite's application id: kind and version of the tables.
    schema
        ``CREATE`` statements.

    Raises
    ------
    LedgerError
        When the file cannot be opened or made.
    FileFormatError
        When it is something else.

    Examples
    --------
    >>> database = Database(None, "the example", 7, "CREATE TABLE t (x INTEGER);")
    >>> with database.writing() as connection:
    ...     _ = connection.execute("INSERT INTO t VALUES (1)")
    >>> with database.reading() as connection:
    ...     connection.execute("SELECT x FROM t").fetchall()
    [(1,)]
    """

    def __init__(self, path: str | Path | None, what: str, number: int, schema: str) -> None:
        self.path = None if path is None else Path(path)
        self._what, self._number, self._schema = what, number, schema
        self._lock = RLock()
        self._connection: sqlite3.Connection | None = None
        self._closed = False
        with self._explained("nothing is remembered"), self._one_at_a_time():
            self._make()

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Do everything inside in one transaction, which is on the disk when this returns, or not at all.

        Raises
        ------
        LedgerError
            When the file cannot be written: disk full, failing disk, another process that does not let go.
        """
        with self._lock, self._explained("nothing of it was remembered, and nothing may leave"):
            connection = self._open()
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            finally:
                self._roll_back()

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Read one consistent state, whatever other processes write meanwhile."""
        with self._lock, self._explained("it cannot be read"):
            connection = self._open()
            connection.execute("BEGIN")
            try:
                yield connection
            finally:
                self._roll_back()

    def empty_log(self) -> None:
        """Empty the write-ahead log, which still holds what was deleted; call it after deleting.

        Raises
        ------
        LedgerError
            When another process reads the file and does not let go of it.
        """
        with self._lock, self._explained("what was deleted is still in its write-ahead log"):
            if self._open().execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
                raise sqlite3.OperationalError("another process is reading it")

    def close(self) -> None:
        """Close the file; what was in memory only is gone."""
        with self._lock:
            self._drop()
            self._closed = True

    def __del__(self) -> None:
        connection = getattr(self, "_connection", None)
        if connection is not None:
            connection.close()

    # ---------------------------------------------------------------------------------------------- opening

    def _open(self) -> sqlite3.Connection:
        if self._closed:
            raise LedgerError(f"{self._name} was closed: open it again")
        if self._connection is None:
            address = ":memory:" if self.path is None else str(self.path)
            connection = sqlite3.connect(address, isolation_level=None, timeout=BUSY_SECONDS, check_same_thread=False)
            try:
                for pragma in _PRAGMAS:
                    connection.execute(pragma).fetchall()
                # a commit whose fsync failed may be in the log only: force it to the disk before it is built upon
                connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    def _make(self) -> None:
        connection = self._open()
        if not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            script = f"BEGIN IMMEDIATE; PRAGMA application_id={self._number}; {self._schema} COMMIT;"
            connection.executescript(script)
        found = connection.execute("PRAGMA application_id").fetchone()[0]
        if found != self._number:
            self._drop()
            raise FileFormatError(
                f"{self.path} is an SQLite file, but not {self._what} of this release (number {found:#x}, not "
                f"{self._number:#x}): choose another file, or the release that wrote it"
            )

    @contextmanager
    def _one_at_a_time(self) -> Iterator[None]:
        """Make the file, readable by its owner only, and hold its lock while its tables are made."""
        if self.path is None:
            yield
            return
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        # not a lock of the file itself: closing it would drop the locks that SQLite holds on it in this process
        lock = os.open(self.path.with_name(f"{self.path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    # ---------------------------------------------------------------------------------------------- failing

    @property
    def _name(self) -> str:
        return self._what if self.path is None else f"{self._what} ({self.path})"

    @contextmanager
    def _explained(self, consequence: str) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            if self.path is not None:  # after a failed write nothing that this connection remembers is trusted
                self._drop()
            if type(error) is sqlite3.DatabaseError:
                raise FileFormatError(f"{self._name} is no such file, or is damaged: {error}") from error
            raise LedgerError(
                f"{self._name} cannot be used ({error}); {consequence}: free space, mend the disk or end the process "
                "that holds it, then try again"
            ) from error

    def _roll_back(self) -> None:
        if self._connection is not None and self._connection.in_transaction:
            with suppress(sqlite3.Error):  # what raised is what matters
                self._connection.execute("ROLLBACK")

    def _drop(self) -> None:
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self._connection.close()
        self._connection = None
