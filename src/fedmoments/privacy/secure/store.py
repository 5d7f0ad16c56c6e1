"""The leader's reports on disk: the latest of each client, and what was asked of the helper.

A report is on the disk before it is acknowledged, and a request before it leaves. From then on the reports in it are
what the sum is of: a client cannot replace them in that round.
"""

import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np

from fedmoments.errors import InputError, RefusedError
from fedmoments.privacy.secure.context import Context
from fedmoments.privacy.secure.database import Database
from fedmoments.privacy.secure.report import Report
from fedmoments.privacy.secure.request import SumRequest
from fedmoments.privacy.secure.stream import Block, Words
from fedmoments.wire import Reason

__all__ = ["ReportStore"]

#: "fmR1".
NUMBER = 0x666D5231

_SCHEMA = """
-- sealed and masked are NULL once they were forgotten
CREATE TABLE reports (
    context BLOB NOT NULL, client TEXT NOT NULL, version INTEGER NOT NULL, report TEXT NOT NULL,
    sealed BLOB, masked BLOB, PRIMARY KEY (context, client), UNIQUE (context, report)
);
CREATE TABLE requests (
    digest BLOB PRIMARY KEY, context BLOB NOT NULL, data BLOB NOT NULL, finished INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE parts (
    context BLOB NOT NULL, report TEXT NOT NULL, digest BLOB NOT NULL REFERENCES requests ON DELETE CASCADE,
    PRIMARY KEY (context, report, digest)
) WITHOUT ROWID;
CREATE INDEX parts_by_request ON parts (digest);
"""


class ReportStore:
    """Reports and requests of a leader, of all its rounds.

    Parameters
    ----------
    path
        The file, made if it is not there; None: in memory.

    Examples
    --------
    >>> ReportStore(None).present(Context("ab" * 32, 0, "cd" * 32))
    {}
    """

    def __init__(self, path: str | Path | None) -> None:
        self._database = Database(path, "the leader's store of reports", NUMBER, _SCHEMA)

    def _writing(self) -> AbstractContextManager[sqlite3.Connection]:
        return self._database.writing()

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    # ---------------------------------------------------------------------------------------------- reports

    def keep(self, context: Context, report: Report) -> bool:
        """Keep a report, in place of an earlier version; True if it was new, False if it was here already.

        Raises
        ------
        RefusedError
            When a later version is here, other content of the same version, or one that a sum was asked of.
        """
        key = context.digest
        with self._writing() as connection:
            row = connection.execute(
                "SELECT version, report FROM reports WHERE context = ? AND client = ?", (key, report.client)
            ).fetchone()
            if row is not None and row == (report.version, report.id):
                return False
            if row is not None:
                self._check_replaceable(connection, context, report, row)
            other = connection.execute(
                "SELECT client FROM reports WHERE context = ? AND report = ? AND client <> ?",
                (key, report.id, report.client),
            ).fetchone()
            if other is not None:
                raise RefusedError(
                    Reason.CONFLICT,
                    f"client '{report.client}' sent a report under the id {report.id} of another client's: make a new "
                    "one with make_report(), which draws ids at random",
                    report.client,
                )
            connection.execute(
                "INSERT OR REPLACE INTO reports VALUES (?, ?, ?, ?, ?, ?)",
                (key, report.client, report.version, report.id, report.sealed, report.masked.tobytes()),
            )
        return True

    @staticmethod
    def _check_replaceable(
        connection: sqlite3.Connection, context: Context, report: Report, row: tuple[int, str]
    ) -> None:
        version, former = row
        client = report.client
        asked = connection.execute(
            "SELECT 1 FROM parts WHERE context = ? AND report = ?", (context.digest, former)
        ).fetchone()
        if asked is not None:
            raise RefusedError(
                Reason.REPLAYED,
                f"version {version} of client '{client}' is in a batch of round {context.round} and cannot be replaced "
                f"or taken out any more, but version {report.version} arrived: it can count in a later round",
                client,
            )
        if report.version < version:
            raise RefusedError(
                Reason.REPLAYED,
                f"version {version} of client '{client}' is here, but the older version {report.version} arrived: "
                "number a new report higher",
                client,
            )
        if report.version == version:
            raise RefusedError(
                Reason.CONFLICT,
                f"version {version} of client '{client}' is here, but other bytes of the same version arrived: send "
                "the former bytes again, or number a new report higher",
                client,
            )

    def present(self, context: Context) -> dict[str, str]:
        """Return the report's id of each client whose report is here, by client."""
        with self._database.reading() as connection:
            rows = connection.execute(
                "SELECT client, report FROM reports WHERE context = ? AND masked IS NOT NULL ORDER BY client",
                (context.digest,),
            ).fetchall()
        return dict(rows)

    def drop(self, context: Context, client: str) -> bool:
        """Delete the report of a client; False if it has none.

        Raises
        ------
        RefusedError
            When a sum was asked of it.
        """
        with self._writing() as connection:
            row = connection.execute(
                "SELECT version, report FROM reports WHERE context = ? AND client = ?", (context.digest, client)
            ).fetchone()
            if row is None:
                return False
            asked = connection.execute(
                "SELECT 1 FROM parts WHERE context = ? AND report = ?", (context.digest, row[1])
            ).fetchone()
            if asked is not None:
                raise RefusedError(
                    Reason.REPLAYED,
                    f"the report of client '{client}' is in a batch and cannot be taken out: nobody knows its numbers",
                    client,
                )
            connection.execute("DELETE FROM reports WHERE context = ? AND client = ?", (context.digest, client))
        self._database.empty_log()
        return True

    def forget(self, context: Context) -> None:
        """Delete all vectors and seeds of a round; who reported which version stays known."""
        with self._writing() as connection:
            connection.execute("UPDATE reports SET sealed = NULL, masked = NULL WHERE context = ?", (context.digest,))
        self._database.empty_log()

    # ---------------------------------------------------------------------------------------------- requests

    def ask(self, context: Context, ids: Sequence[str], blocks: Iterable[Block]) -> SumRequest:
        """Make a request and keep it; its reports cannot be replaced from now on."""
        with self._writing() as connection:
            reports = []
            for name in ids:
                row = connection.execute(
                    "SELECT sealed FROM reports WHERE context = ? AND report = ?", (context.digest, name)
                ).fetchone()
                if row is None or row[0] is None:
                    raise InputError(f"there is no report {name[:40]!r} in this round: ask for those that are present")
                reports.append((name, row[0]))
            request = SumRequest(context, reports, tuple(blocks))
            connection.execute(
                "INSERT OR IGNORE INTO requests VALUES (?, ?, ?, 0)",
                (request.digest, context.digest, request.to_bytes()),
            )
            connection.executemany(
                "INSERT OR IGNORE INTO parts VALUES (?, ?, ?)",
                [(context.digest, name, request.digest) for name in request.ids],
            )
        return request

    def pending(self, context: Context) -> list[SumRequest]:
        """Return the requests that were made and not finished: to be sent again after a crash."""
        with self._database.reading() as connection:
            rows = connection.execute(
                "SELECT data FROM requests WHERE context = ? AND NOT finished ORDER BY digest", (context.digest,)
            ).fetchall()
        return [SumRequest.from_bytes(data) for (data,) in rows]

    def withdraw(self, request: SumRequest) -> None:
        """Forget a request that the helper refused; its reports are free again, unless in another request."""
        with self._writing() as connection:
            self._check_known(connection, request)
            connection.execute("DELETE FROM requests WHERE digest = ?", (request.digest,))

    def add_masked(self, request: SumRequest, total: Words) -> None:
        """Add the masked vectors of a request to ``total``, at its blocks, and note it as finished."""
        key = request.context.digest
        with self._writing() as connection:
            self._check_known(connection, request)
            for name in request.ids:
                row = connection.execute(
                    "SELECT masked FROM reports WHERE context = ? AND report = ?", (key, name)
                ).fetchone()
                if row is None or row[0] is None:
                    raise InputError(f"the vector of report {name} was forgotten: this sum was finished before")
                masked, at = np.frombuffer(row[0], np.uint64), 0
                for start, stop in request.blocks:
                    part = total[at : at + stop - start]
                    np.add(part, masked[start:stop], out=part)
                    at += stop - start
            connection.execute("UPDATE requests SET finished = 1 WHERE digest = ?", (request.digest,))

    @staticmethod
    def _check_known(connection: sqlite3.Connection, request: SumRequest) -> None:
        if connection.execute("SELECT 1 FROM requests WHERE digest = ?", (request.digest,)).fetchone() is None:
            raise InputError(
                "this request was not made by this leader, or was withdrawn: make it with Leader.request(...)"
            )
