"""What a client keeps of its contributions, read: the newest one, its receipt, and whether the client leaves."""

import json
import os
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from fedmoments.durable import DurableFile, Kind
from fedmoments.errors import LedgerError, reading
from fedmoments.federation.outbox.checks import read_receipt
from fedmoments.federation.outbox.rare_changes import SharedValues
from fedmoments.federation.outbox.record import Record
from fedmoments.wire.header import MOST_VERSIONS

__all__ = ["DEPARTED", "LEFT", "Departure", "Kept", "Newest", "Refusal"]

#: Why a server refuses a contribution that it has no more; and events of receipts that say so.
LEFT = "left"
DEPARTED = ("left", "withdrawn")

#: What version 2 added to version 1: keys of the samples of each contribution, and withdrawals.
_SINCE_2 = """
-- keys of the samples that a contribution was measured from (:mod:`fedmoments.federation.outbox.differences`)
CREATE TABLE samples (
    federation TEXT NOT NULL, client TEXT NOT NULL, version INTEGER NOT NULL, keys BLOB NOT NULL,
    PRIMARY KEY (federation, client, version)
);
-- versions that are to be taken out of the ledger, by the party's own word
CREATE TABLE withdrawals (
    federation TEXT NOT NULL, client TEXT NOT NULL, version INTEGER NOT NULL, PRIMARY KEY (federation, client)
);
"""
#: What version 3 added: what samples of each class shared (:mod:`fedmoments.federation.outbox.rare_changes`).
_SINCE_3 = "ALTER TABLE samples ADD COLUMN shared BLOB;"
_SCHEMA = f"""
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
{_SINCE_2}{_SINCE_3}"""
#: "fmOb" in the header of every outbox.
_KIND = Kind(
    "outbox",
    0x666D4F62,
    _SCHEMA,
    3,
    {1: _SINCE_2, 2: _SINCE_3},
    remedy="choose another folder, and rejoin above the last version that was sent",
)


class Refusal(NamedTuple):
    """Why a server refused a contribution: the reason's code, and its sentence."""

    reason: str
    sentence: str


class Newest(NamedTuple):
    """The newest contribution of a client: its receipt is the server's JSON text, if there is one yet."""

    version: int
    digest: str
    receipt: str | None
    refusal: Refusal | None


class Departure(NamedTuple):
    """A client that leaves: its last version, whether the server took it out, and whether the party itself asked."""

    version: int
    gone: bool
    own: bool


class Kept:
    """The folder of an outbox, read."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self._record = Record(self.folder / "record.jsonl")
        self._database = DurableFile.at(self.folder / "outbox.db", _KIND, companion=self._record)
        self._record.make()

    def close(self) -> None:
        """Close the file; what was stored stays."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def newest(self, terms_id: str, client: str) -> Newest | None:
        """Return what is known of a client's newest contribution; None if there is none."""
        rows = self._database.rows(
            "SELECT version, digest, receipt, refusal FROM contributions WHERE federation = ? AND client = ? "
            "ORDER BY version DESC LIMIT 1",
            *(terms_id, client),
        )
        if not rows:
            return None
        version, digest, receipt, refusal = rows[0]
        with reading(f"what the outbox {self.folder} keeps of client '{client}' is damaged"):
            return Newest(version, digest, receipt, Refusal(*json.loads(refusal)) if refusal else None)

    def acknowledged(self, terms_id: str, client: str) -> bool:
        """Say whether the newest contribution of a client has a receipt."""
        newest = self.newest(terms_id, client)
        return newest is not None and newest.receipt is not None

    def departure(self, terms_id: str, client: str) -> Departure | None:
        """Return that, and how, a client leaves or has left a federation; None if it takes part."""
        newest, (_, floor) = self.newest(terms_id, client), self._last(terms_id, client)
        if newest is None or floor >= newest.version:
            return None
        query = "SELECT version FROM withdrawals WHERE federation = ? AND client = ?"
        asked = [row[0] for row in self._database.rows(query, terms_id, client)] == [newest.version]
        told = newest.refusal is not None and newest.refusal.reason == LEFT
        gone = told or (newest.receipt is not None and read_receipt(newest.receipt).event in DEPARTED)
        return Departure(newest.version, gone=gone, own=asked) if asked or gone else None

    def sources(self, terms_id: str, client: str) -> tuple[str, ...]:
        """Return what everything was made from that was ever made for a client here, oldest first."""
        query = "SELECT source FROM contributions WHERE federation = ? AND client = ? ORDER BY version"
        return tuple(source for (source,) in self._database.rows(query, terms_id, client))

    def measured(self, terms_id: str, client: str) -> tuple[bytes, ...]:
        """Return the keys of the samples of all of a client's contributions, as far as they are known."""
        query = "SELECT keys FROM samples WHERE federation = ? AND client = ? ORDER BY version"
        return tuple(keys for (keys,) in self._database.rows(query, terms_id, client))

    def shared(self, terms_id: str, client: str) -> tuple[tuple[bytes, SharedValues | None], ...]:
        """Return the same with what samples of each class shared; None where an older release did not keep it."""
        query = "SELECT keys, shared FROM samples WHERE federation = ? AND client = ? ORDER BY version"
        rows = self._database.rows(query, terms_id, client)
        return tuple((keys, SharedValues.from_bytes(shared) if shared else None) for keys, shared in rows)

    def pending(self, terms_id: str) -> tuple[str, ...]:
        """Return the clients whose newest contribution, or its withdrawal, has no receipt and was not forgotten."""
        rows = self._database.rows(
            "SELECT client FROM contributions AS mine WHERE federation = ? AND receipt IS NULL "
            "AND payload IS NOT NULL AND version = (SELECT max(version) FROM contributions AS all_of_it "
            "WHERE all_of_it.federation = mine.federation AND all_of_it.client = mine.client) ORDER BY client",
            terms_id,
        )
        leaving = self._database.rows("SELECT client FROM withdrawals WHERE federation = ?", terms_id)
        waiting = [client for (client,) in leaving if (going := self.departure(terms_id, client)) and not going.gone]
        return tuple(sorted({*(client for (client,) in rows), *waiting}))

    def federations(self) -> tuple[tuple[str, str], ...]:
        """Return the federations for which something was made here: pairs of terms' id and client, sorted.

        Examples
        --------
        >>> import tempfile
        >>> from fedmoments.federation.outbox import Outbox
        >>> with tempfile.TemporaryDirectory() as folder, Outbox(folder) as outbox:
        ...     outbox.federations()
        ()
        """
        rows = self._database.rows("SELECT DISTINCT federation, client FROM contributions ORDER BY federation, client")
        return tuple((federation, client) for federation, client in rows)

    def _last(self, terms_id: str, client: str) -> tuple[int, int]:
        """Return the newest version, 0 if there is none, and the version up to which no other can be taken in."""
        rows = self._database.rows(
            "SELECT (SELECT coalesce(max(version), 0) FROM contributions WHERE federation = ? AND client = ?), "
            "(SELECT coalesce(max(above), 0) FROM floors WHERE federation = ? AND client = ?)",
            *(terms_id, client, terms_id, client),
        )
        return rows[0][0], rows[0][1]

    def _reusable(self, terms_id: str, client: str, source: str, last: int, floor: int) -> tuple[bytes | None, int]:
        """Return the newest bytes if they can be sent (again), else None and the version to make."""
        rows = self._database.rows(
            "SELECT payload FROM contributions WHERE federation = ? AND client = ? AND version = ? AND source = ? "
            "AND version > ?",
            *(terms_id, client, last, source, floor),
        )
        return (rows[0][0] if rows else None), max(last, floor) + 1

    def _known(self, terms_id: str, client: str, version: int) -> tuple[dict[str, Any], str | None]:
        """Return facts and receipt of a version that was made here."""
        rows = self._database.rows(
            "SELECT facts, receipt FROM contributions WHERE federation = ? AND client = ? AND version = ?",
            *(
                terms_id,
                client,
                version if type(version) is int and 1 <= version <= MOST_VERSIONS else 0,
            ),  # what SQLite cannot hold was not made
        )
        if not rows:
            raise LedgerError(
                f"version {version} of client '{client}' for the federation {terms_id[:12]}… was never made in the "
                f"outbox {self.folder}: was it made in another folder?"
            )
        facts, receipt = rows[0]
        with reading(f"what the outbox {self.folder} keeps of client '{client}' is damaged"):
            return dict(json.loads(facts)), receipt
