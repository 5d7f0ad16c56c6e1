"""The file itself: how it is made, opened, written to and read, so that a failure leaves all of a change or none."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from threading import RLock
from typing import Any, Self
from urllib.parse import quote

from fedmoments.durable.kind import Companion, Kind
from fedmoments.durable.placing import has_log, is_copy, is_writable, make_folder, narrow, part_of, put_in_place
from fedmoments.durable.versions import brought_up, check_kind, is_current, make_tables, upgrade
from fedmoments.errors import FileFormatError, LedgerError

__all__ = ["MOST_BLOB_BYTES", "Connection", "DurableFile", "erase_deleted"]

Connection = sqlite3.Connection

#: How long a writer waits for another one.
BUSY_SECONDS = 60.0
#: SQLite's own limit on one blob, less some room for the row around it.
MOST_BLOB_BYTES = 10**9 - 2**20

_AGAIN = "free space, repair the disk or end the process that holds it, then try again"
_PRAGMAS = (
    "PRAGMA synchronous=FULL",
    "PRAGMA secure_delete=ON",
    "PRAGMA foreign_keys=ON",
    "PRAGMA trusted_schema=OFF",
    "PRAGMA cell_size_check=ON",
)


class DurableFile:
    """A connection that threads share and that is made anew after a failure. A forked process must open its own.

    Parameters
    ----------
    path
        A file that exists (:meth:`at` and :func:`making` make one). None: in memory, gone with the process.
    kind
        What it must be.
    companion
        Told of every commit and of what was undone.

    Raises
    ------
    LedgerError
        When there is no such file, or it cannot be opened.
    FileFormatError
        When it is something else, is damaged, or was written by another version.

    Examples
    --------
    >>> file = DurableFile(None, Kind("example", 7, "CREATE TABLE t (x INTEGER);"))
    >>> with file.writing() as connection:
    ...     _ = connection.execute("INSERT INTO t VALUES (1)")
    >>> file.rows("SELECT x FROM t")
    [(1,)]
    >>> file.close()
    """

    def __init__(self, path: str | os.PathLike[str] | None, kind: Kind, *, companion: Companion | None = None) -> None:
        self.path = None if path is None else Path(path)
        self.kind = kind
        #: Whether it lies where nothing can be written, or is a snapshot: it is read, and nothing is made beside it.
        place = self.path
        self.is_read_only = place is not None and place.exists() and (not is_writable(place) or is_copy(place))
        self._companion = companion
        self._lock = RLock()
        self._connection: Connection | None = None
        self._is_settled = self._in_doubt = self._has_failed = self._closed = False
        self._depth = 0
        if self.path is not None and not self.path.exists():
            raise LedgerError(f"there is no {kind.name} at {self.path}: make one, or correct the path")
        try:
            with self._explained("nothing was opened", _AGAIN):
                self._bring_up(self.connection)
                self._check_tables(self.connection)
        except BaseException:
            self.close()
            raise

    @classmethod
    def at(cls, path: str | os.PathLike[str] | None, kind: Kind, *, companion: Companion | None = None) -> Self:
        """Open a file, made now with the folders around it if it is not there; None: in memory."""
        place = None if path is None else Path(path)
        if place is not None and not place.exists():
            try:
                make_folder(place.parent)
                with cls.making(place, kind):
                    pass
            except OSError as error:
                raise LedgerError(f"the {kind.name} {place} cannot be used ({error}): choose another place") from error
            except LedgerError:
                if not place.exists():  # else another process was faster
                    raise
        return cls(place, kind, companion=companion)

    @staticmethod
    @contextmanager
    def making(path: Path, kind: Kind) -> Iterator[Connection]:
        """Make a new file: yield a connection to fill it, then force it to the disk and give it its name.

        Raises
        ------
        LedgerError
            When there is a file of that name, or it cannot be written.
        """
        with part_of(path) as part:
            try:
                with closing(sqlite3.connect(part, isolation_level=None)) as connection:
                    connection.execute("PRAGMA synchronous=OFF")  # nobody else knows it yet; it is forced below
                    make_tables(connection, kind)
                    yield connection
                    connection.execute(f"PRAGMA journal_mode={kind.journal}")
            except sqlite3.OperationalError as error:
                raise OSError(str(error)) from error
            put_in_place(part, path)

    def accompany(self, companion: Companion) -> None:
        """Let something go with the transactions from now on."""
        self._companion = companion

    def close(self) -> None:
        """Close the connection; the last one to close folds the log into the file. Again: does nothing."""
        with self._lock:
            self._disconnect()
            self._closed = True

    def __del__(self) -> None:
        connection = getattr(self, "_connection", None)
        if connection is not None:
            connection.close()

    # ---------------------------------------------------------------------------------------------- using

    @contextmanager
    def writing(self, what: str = "", advice: str = _AGAIN) -> Iterator[Connection]:
        """Do everything inside in one transaction, with that around it if there is one.

        It is on the disk when the outermost one ends; when that raises, nothing of it happened.

        Parameters
        ----------
        what, advice
            What has not happened if it fails, ``"client 'clinic' was not enrolled"``, and what to do then.

        Raises
        ------
        LedgerError
            When the file cannot be written: disk full, failing disk, another process that does not let go.
        """
        what = what or self.kind.unwritten
        with self._lock, self._explained(what, advice):
            self._require_sound()
            if self._depth:
                yield self.connection
                return
            if self.is_read_only:
                raise sqlite3.OperationalError(
                    "it lies where nothing can be written, or is a snapshot, and can be read only"
                )
            self._settle()
            self.connection.execute("BEGIN IMMEDIATE")
            self._depth = 1
            try:
                if self._companion is not None:
                    with self._explained(what, advice, OSError):
                        self._companion.begin(self.connection)
                yield self.connection
                self._require_sound()  # a failure that was overlooked undoes all
                if self._companion is not None:
                    with self._explained(what, advice, OSError):
                        self._companion.flush()
                self.connection.execute("COMMIT")
            except BaseException:
                if self._companion is not None:
                    self._companion.drop()
                raise
            finally:
                self._depth = 0
                self._roll_back()
                if self._has_failed:
                    self._distrust()
                self._has_failed = False

    @contextmanager
    def reading(self, *, settled: bool = True) -> Iterator[Connection]:
        """Read one consistent state, whatever other processes write meanwhile.

        Parameters
        ----------
        settled
            Make sure first that what can be read is on the disk, because others will rely on it. False: for looking,
            which a full disk does not prevent.
        """
        with self._lock, self._explained("nothing was read", f"repair the disk, or {self.kind.remedy}"):
            self._require_sound()
            if self.connection.in_transaction:
                yield self.connection
                return
            if settled:
                self._settle()
            self.connection.execute("BEGIN")
            try:
                yield self.connection
            finally:
                self._roll_back()

    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """Return the rows of a query, in the transaction around it if there is one."""
        with self.reading() as connection:
            return connection.execute(query, values).fetchall()

    @property
    def is_writing(self) -> bool:
        """Whether this thread is inside of :meth:`writing`."""
        with self._lock:  # another thread that is inside holds the lock
            return self._depth > 0

    def erase_log(self) -> None:
        """Fold the write-ahead log into the file and cut it to nothing, so that deleted bytes are gone from both.

        Raises
        ------
        LedgerError
            When another process reads the file and does not let go of it.
        """
        with self._lock, self._explained("what was deleted is still in the write-ahead log", _AGAIN):
            if self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
                raise LedgerError(f"the write-ahead log of {self.path} cannot be erased: another process is reading it")

    def copy_to(self, part: Path) -> None:
        """Copy the file as it is now to ``part`` (:func:`part_of`), as one file without a log."""
        with self.reading(settled=False) as connection:
            try:
                with closing(sqlite3.connect(part, isolation_level=None)) as copy:
                    connection.backup(copy)
                    copy.execute("PRAGMA journal_mode=DELETE")
            except sqlite3.OperationalError as error:  # of the copy; what is wrong with this file is no such error
                raise OSError(str(error)) from error

    def damage(self) -> list[str]:
        """Return what SQLite finds wrong with the pages of the file; empty if they are sound."""
        try:
            with self.reading(settled=False) as connection:
                lines = [line for (line,) in connection.execute("PRAGMA integrity_check(10)")]
        except FileFormatError as error:
            return [str(error)]
        return [] if lines == ["ok"] else lines

    # ---------------------------------------------------------------------------------------------- opening

    @property
    def connection(self) -> Connection:
        """The connection; a new one if the former one failed."""
        if self._closed:
            raise LedgerError(f"{self._name} was closed: open it again")
        if self._connection is None:
            connection = _connect(self._address)
            try:
                self._prepare(connection)
            except UnicodeDecodeError as error:  # of SQLite's own words on a file that is none of its
                connection.close()
                raise FileFormatError(f"{self._name} is damaged: {error}") from error
            except BaseException:
                connection.close()
                raise
            if self.is_read_only and not is_current(connection, self.kind):
                with closing(connection):
                    connection = brought_up(connection, _connect(":memory:"), self.kind)
            self._connection = connection
        return self._connection

    @property
    def _address(self) -> str:
        """What SQLite opens. Where nothing can be written, a file without a log cannot change while it is read."""
        if self.path is None:
            return ":memory:"
        mode = "rw"
        if self.is_read_only:
            mode = "ro" if has_log(self.path) else "ro&immutable=1"
        return f"file:{quote(str(self.path.absolute()))}?mode={mode}"

    def _prepare(self, connection: Connection) -> None:
        if self.path is None:
            make_tables(connection, self.kind)
        check_kind(
            connection, self.kind, self._name, self.path
        )  # before anything of a file is changed that may be somebody else's
        if self.path is not None and not self.is_read_only:
            narrow(self.path, f"the {self.kind.name}")
            if connection.execute(f"PRAGMA journal_mode={self.kind.journal}").fetchone()[0] != self.kind.journal:
                raise sqlite3.OperationalError("it needs a write-ahead log, which works on a local disk only")
        for pragma in _PRAGMAS:
            connection.execute(pragma).fetchall()

    def _check_tables(self, connection: Connection) -> None:
        """Refuse a file that another program took tables from."""
        query = "SELECT name FROM sqlite_master WHERE sql IS NOT NULL"
        with closing(sqlite3.connect(":memory:", isolation_level=None)) as sound:
            sound.executescript(self.kind.schema)
            wanted = {name for (name,) in sound.execute(query)}
        missing = wanted - {name for (name,) in connection.execute(query)}
        if missing:
            raise FileFormatError(
                f"{self._name} is damaged, for it lacks {', '.join(sorted(missing))}: {self.kind.remedy}"
            )

    def _bring_up(self, connection: Connection) -> None:
        """Bring the tables of an older version up to this one; nothing that is there changes."""
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        while version != self.kind.version:
            with self.writing(f"version {version} of its tables was not upgraded") as writer:
                if writer.execute("PRAGMA user_version").fetchone()[0] == version:  # else another process was faster
                    upgrade(writer, self.kind, version)
            version += 1

    # ---------------------------------------------------------------------------------------------- failing

    @property
    def _name(self) -> str:
        return f"the {self.kind.name}{'' if self.path is None else f' {self.path}'}"

    @contextmanager
    def _explained(self, what: str, advice: str, *others: type[Exception]) -> Iterator[None]:
        """Turn what SQLite (and others) raise into one sentence; the transaction around it has failed."""
        failures: tuple[type[Exception], ...] = (sqlite3.Error, *others)
        try:
            yield
        except failures as error:
            if self._depth:
                self._has_failed = True
            else:
                self._distrust()
            busy = getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY
            self._in_doubt = self._in_doubt or not busy
            if type(error) is sqlite3.DatabaseError:  # its subclasses are about disks, locks and statements
                raise FileFormatError(
                    f"{self.path} is no {self.kind.name}, or is damaged ({error}): {self.kind.remedy}"
                ) from error
            raise LedgerError(
                f"{what}, for {self._name} cannot be used ({error}); nothing in it is half there and nothing counted "
                f"twice: {advice}"
            ) from error

    def _require_sound(self) -> None:
        if self._has_failed:
            raise LedgerError(f"nothing of this batch is kept, for {self._name} failed before: try again")

    def _settle(self) -> None:
        """Make sure that what can be read is on the disk, once a connection.

        Another process may be in the way of a checkpoint. That is fine while no failure is known; after one, what
        stands in the log is not relied upon before all of it was copied.
        """
        if self._is_settled or self.path is None or self.is_read_only:
            return
        mode = "FULL" if self._in_doubt else "PASSIVE"
        busy = self.connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()[0]
        if busy and self._in_doubt:
            raise sqlite3.OperationalError("what stands in its log is not on the disk yet; another process holds it")
        self._is_settled, self._in_doubt = True, False

    def _roll_back(self) -> None:
        if self._connection is not None and self._connection.in_transaction:
            try:
                self._connection.execute("ROLLBACK")
            except sqlite3.Error:  # what raised before is what matters
                self._distrust()

    def _distrust(self) -> None:
        """Read anew, on a new connection; what is in memory has no other."""
        if self.path is not None:
            self._disconnect()

    def _disconnect(self) -> None:
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self._connection.close()
            self._connection, self._is_settled = None, False


def erase_deleted(path: Path) -> None:
    """Cut what was deleted out of an SQLite file of another program, which no process may have open.

    Raises
    ------
    LedgerError
        When the file cannot be rewritten.
    """
    try:
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("VACUUM")
            if connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
                raise LedgerError(f"another process is reading {path}")
    except sqlite3.Error as error:
        raise LedgerError(f"{path} cannot be rewritten ({error})") from error


def change_other(path: Path, table: str, command: str, *values: float | str) -> None:
    """Run one command on an SQLite file of another program, which no process may have open.

    Nothing happens where the table is missing: a program that was killed while it began may have made none.

    Raises
    ------
    LedgerError
        When the table has other columns, or the file cannot be changed.
    """
    try:
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            if connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchone():
                connection.execute(command, values)
    except sqlite3.Error as error:
        raise LedgerError(f"{path} cannot be changed ({error})") from error


def _connect(address: str) -> Connection:
    return sqlite3.connect(address, uri=True, isolation_level=None, timeout=BUSY_SECONDS, check_same_thread=False)
