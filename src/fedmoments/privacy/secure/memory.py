"""What the helper remembers permanently: which reports it unmasked where, and in which company.

Four rules are kept, each within the transaction that remembers the batch:

1. *Once.* In a context, a client has one report, and each of its coordinates is unmasked once. A later version of a
   report that was collected is refused as well: a client that reports the same data again would otherwise give the
   leader two sums to subtract.
2. *Company.* The batches of all federations cut the clients into cells: two clients are in the same cell if they were
   always collected together. Whatever the leader adds and subtracts, over all blocks, rounds and federations, is a sum
   of cells. So a batch is refused when it would cut a cell of fewer than ``minimum`` clients off. This is what stops
   "the same batch plus one" in another round or in a second exchange, whose map is linear in the first one's sums, and
   at other coordinates, where moments that belong together (a count and a trace) would tell what the newcomer holds. A
   batch that the helper adds noise to is exempt: the noise protects it. Sums of tests have cells of their own, for they
   are of other samples.
3. *Same answer.* A request that was answered before is recognised by its digest. Its answer is computed again, with the
   noise of the first time: fresh noise could be averaged away.
4. *One attempt.* After a batch was given up its clients report again, for the next attempt, which is another round.
   Where two sums of the same numbers would tell more than one (``once``), a client whose report was opened is in no
   batch of another attempt: "client" for noise, which two draws would thin out. Where sums are taken inside groups that
   nobody may choose, nothing of the federation is: "federation". So an attempt that is opened is the only one.
"""

import struct
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import product
from pathlib import Path

from fedmoments.durable import Connection, DurableFile, Kind
from fedmoments.errors import FileFormatError, InputError, PrivacyError, RefusedError
from fedmoments.privacy.secure.context import MOST_ATTEMPTS, Context
from fedmoments.privacy.secure.request import SumRequest
from fedmoments.privacy.secure.stream import Block
from fedmoments.wire import Reason

__all__ = ["Memory"]

_SCHEMA = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
-- blocks: pairs of 64-bit numbers; noise: int64, little-endian, NULL without
CREATE TABLE batches (
    batch INTEGER PRIMARY KEY, digest BLOB NOT NULL UNIQUE, context BLOB NOT NULL, blocks BLOB NOT NULL, noise BLOB
);
CREATE TABLE reports (
    context BLOB NOT NULL, client TEXT NOT NULL, report TEXT NOT NULL,
    PRIMARY KEY (context, client), UNIQUE (context, report)
) WITHOUT ROWID;
CREATE TABLE parts (
    context BLOB NOT NULL, client TEXT NOT NULL, batch INTEGER NOT NULL REFERENCES batches,
    PRIMARY KEY (context, client, batch)
) WITHOUT ROWID;
CREATE TABLE cells (
    federation TEXT NOT NULL, client TEXT NOT NULL, cell INTEGER NOT NULL, PRIMARY KEY (federation, client)
) WITHOUT ROWID;
CREATE INDEX cells_by_number ON cells (federation, cell);
"""
#: "fmH1". Never restored: what it forgot could be asked for again.
_KIND = Kind(
    "helper's memory",
    0x666D4831,
    _SCHEMA,
    remedy="make a new key, which gets a new memory",
    unwritten="nothing was recorded, so nothing may be sent",
)


class Memory:
    """The helper's memory.

    Parameters
    ----------
    path
        Its file; None: in memory, for simulations.
    owner
        The helper's public key: a file belongs to one key.
    minimum
        Fewest clients of a cell.
    once
        What is opened in one attempt only: nothing (""), what a "client" reports, or anything of a "federation".

    Raises
    ------
    FileFormatError
        When the file is not a helper's memory, or that of another key.

    Examples
    --------
    :class:`~fedmoments.privacy.secure.helper.Helper` keeps one:

    >>> memory = Memory(None, "ab" * 32, minimum=3)
    >>> memory.batches()
    0
    >>> memory.close()
    """

    def __init__(self, path: str | Path | None, owner: str, minimum: int, once: str = "") -> None:
        if once not in ("", "client", "federation"):
            raise InputError(f"what is opened in one attempt is '', 'client' or 'federation', not {once!r:.40}")
        self._database = DurableFile.at(path, _KIND)
        self._minimum, self._once = minimum, once
        with self._database.writing() as connection:
            connection.execute("INSERT OR IGNORE INTO meta VALUES ('owner', ?)", (owner,))
            keeper = connection.execute("SELECT value FROM meta WHERE name = 'owner'").fetchone()[0]
        if keeper != owner:
            self.close()
            raise FileFormatError(
                f"{path} is the memory of the helper with the key {keeper[:16]}..., not of {owner[:16]}...: a key and "
                "its memory stay together; open it with that key, or give the new key a new file"
            )

    def remember(
        self, request: SumRequest, reports: Mapping[str, str], noise: Callable[[], bytes] | None
    ) -> bytes | None:
        """Remember a batch permanently, or recognise it; on the disk when this returns.

        Parameters
        ----------
        request
            What was asked.
        reports
            The report's id of each client of the batch.
        noise
            Draws the noise, as bytes; called once, for a batch that is new. None: without noise.

        Returns
        -------
        bytes or None
            The noise of this batch: drawn now, or when it was first asked for.

        Raises
        ------
        PrivacyError
            When it would break a rule; nothing is remembered then.
        RefusedError
            When a client of it was opened in another attempt; it names the client. Nothing is remembered then.
        """
        with self._database.writing() as connection:
            known = connection.execute("SELECT noise FROM batches WHERE digest = ?", (request.digest,)).fetchone()
            if known is not None:
                return None if known[0] is None else bytes(known[0])
            self._check_attempt(connection, request.context, sorted(reports))
            self._check_once(connection, request, reports)
            if noise is None:
                self._keep_company(connection, request.context.federation, sorted(reports))
                self._keep_company(connection, f"*{request.context.about}", sorted(reports))
            drawn = None if noise is None else noise()
            self._write(connection, request, reports, drawn)
        return drawn

    def batches(self) -> int:
        """Return how many batches were answered, of all contexts."""
        with self._database.reading() as connection:
            return int(connection.execute("SELECT count(*) FROM batches").fetchone()[0])

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    # ---------------------------------------------------------------------------------------------- once

    @staticmethod
    def _check_once(connection: Connection, request: SumRequest, reports: Mapping[str, str]) -> None:
        context = request.context.digest
        overlapping: dict[int, bool] = {}
        for client, report in reports.items():
            collected = connection.execute(
                "SELECT client, report FROM reports WHERE context = ? AND client = ? "
                "UNION SELECT client, report FROM reports WHERE context = ? AND report = ?",
                (context, client, context, report),
            ).fetchall()
            if any(row != (client, report) for row in collected):
                raise PrivacyError(
                    f"another report of client '{client}' was collected in round {request.context.round} before: one "
                    "report of a client counts in a round; leave it out of the batch, or begin a new round"
                )
            rows = connection.execute("SELECT batch FROM parts WHERE context = ? AND client = ?", (context, client))
            for (batch,) in rows.fetchall():
                if batch not in overlapping:
                    row = connection.execute("SELECT blocks FROM batches WHERE batch = ?", (batch,)).fetchone()
                    overlapping[batch] = _overlap(_unpacked(row[0]), request.blocks)
                if overlapping[batch]:
                    raise PrivacyError(
                        f"the report of client '{client}' was unmasked before at a coordinate that is requested again: "
                        "every coordinate of a report is unmasked once, in one batch; ask for disjoint blocks, or "
                        "repeat the former request unchanged"
                    )

    def _check_attempt(self, connection: Connection, context: Context, clients: Sequence[str]) -> None:
        """Refuse what was opened in another attempt, earlier or later, where one attempt is all there may be."""
        if not self._once:
            return
        others = {replace(context, round=number).digest: number for number in range(MOST_ATTEMPTS + 1)}
        others.pop(context.digest, None)
        rows = connection.execute("SELECT DISTINCT context FROM reports").fetchall()
        opened = {digest: others[digest] for (digest,) in rows if digest in others}
        if opened and self._once == "federation":
            raise PrivacyError(
                f"sums of attempt {min(opened.values())} of this federation were opened, and attempt {context.round} "
                "is asked for: sums over the same clients in other groups would show what few of them hold, so one "
                "attempt is opened. Ask for the sums of that attempt again, or create a new federation; whoever "
                "reports there, too, must know that the difference of both results can show what changed between them"
            )
        query = "SELECT 1 FROM reports WHERE context = ? AND client = ?"
        for (digest, number), client in product(opened.items(), clients):
            if connection.execute(query, (digest, client)).fetchone():
                sentence = (
                    f"client '{client}' is in a noised sum that was opened in attempt {number}: noise drawn again over "
                    "the same numbers would thin the first out, so it is in no sum of this federation any more. A new "
                    "federation spends an epsilon of its own on it, beside the one that is spent"
                )
                raise RefusedError(Reason.REPLAYED, sentence, client)

    # ---------------------------------------------------------------------------------------------- company

    def _keep_company(self, connection: Connection, federation: str, clients: Sequence[str]) -> None:
        """Cut the cells of a federation, or of all, by a batch; refuse if one becomes too small."""
        touched: dict[int | None, list[str]] = defaultdict(list)
        for client in clients:
            row = connection.execute(
                "SELECT cell FROM cells WHERE federation = ? AND client = ?", (federation, client)
            ).fetchone()
            touched[None if row is None else row[0]].append(client)
        last = connection.execute("SELECT max(cell) FROM cells WHERE federation = ?", (federation,)).fetchone()[0] or 0
        for cell, inside in touched.items():
            outside = 0
            if cell is not None:
                whole = connection.execute(
                    "SELECT count(*) FROM cells WHERE federation = ? AND cell = ?", (federation, cell)
                ).fetchone()[0]
                outside = whole - len(inside)
            self._check_cell(inside, outside, is_new=cell is None)
            if cell is None or outside:
                last += 1
                connection.executemany(
                    "INSERT INTO cells VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET cell = excluded.cell",
                    [(federation, client, last) for client in inside],
                )

    def _check_cell(self, inside: Sequence[str], outside: int, *, is_new: bool) -> None:
        if len(inside) >= self._minimum and (not outside or outside >= self._minimum):
            return
        names = ", ".join(f"'{name}'" for name in inside[:3]) + (", ..." if len(inside) > 3 else "")
        what = (
            f"{len(inside)} clients that were in no batch before ({names})"
            if is_new
            else f"{len(inside)} clients ({names}) of a group of {len(inside) + outside} that were always together"
        )
        raise PrivacyError(
            f"this batch joins others and {what}: the difference of two batches must be {self._minimum} clients or "
            "more, in whatever federations they are, or it would show what few clients hold; let at least so many join "
            "or stay out together. For data that have nothing to do with the former, make a new helper key"
        )

    # ---------------------------------------------------------------------------------------------- writing

    @staticmethod
    def _write(connection: Connection, request: SumRequest, reports: Mapping[str, str], noise: bytes | None) -> None:
        context = request.context.digest
        with closing(connection.cursor()) as cursor:
            cursor.execute(
                "INSERT INTO batches (digest, context, blocks, noise) VALUES (?, ?, ?, ?)",
                (request.digest, context, _packed(request.blocks), noise),
            )
            batch = cursor.lastrowid
            cursor.executemany(
                "INSERT OR IGNORE INTO reports VALUES (?, ?, ?)",
                [(context, client, report) for client, report in reports.items()],
            )
            cursor.executemany("INSERT INTO parts VALUES (?, ?, ?)", [(context, client, batch) for client in reports])


def _packed(blocks: Sequence[Block]) -> bytes:
    return b"".join(struct.pack("<QQ", *block) for block in blocks)


def _unpacked(data: bytes) -> list[Block]:
    return [(start, stop) for start, stop in struct.iter_unpack("<QQ", data)]


def _overlap(one: Sequence[Block], other: Sequence[Block]) -> bool:
    """Say whether two ascending lists of disjoint blocks share a coordinate."""
    i = j = 0
    while i < len(one) and j < len(other):
        if one[i][0] < other[j][1] and other[j][0] < one[i][1]:
            return True
        if one[i][1] <= other[j][1]:
            i += 1
        else:
            j += 1
    return False
