"""The outbox: a contribution is measured once, stored, and sent as the very same bytes until it is acknowledged.

A server takes each (client, version) in exactly once and answers a repetition with the same receipt. So a client may
send as often as it likes, after any failure, as long as it never sends two contents under one version: that is what
the outbox is for.
"""

import json
import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from fedmoments.durable import Connection, DurableFile, Kind
from fedmoments.errors import InputError, LedgerError, reading
from fedmoments.federation.outbox.checks import MOST_TEXT, facts_of, follows, read_receipt
from fedmoments.federation.outbox.record import Record
from fedmoments.federation.terms import Terms
from fedmoments.wire import check_client_id
from fedmoments.wire.header import MOST_VERSIONS

__all__ = ["LEFT", "Departure", "Newest", "Outbox", "Refusal"]

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
{_SINCE_2}"""
#: "fmOb" in the header of every outbox.
_KIND = Kind(
    "outbox",
    0x666D4F62,
    _SCHEMA,
    2,
    {1: _SINCE_2},
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


class Outbox:
    """One folder, for any number of federations and clients; threads and processes may share it.

    ==================  ============================================================================================
    ``outbox.db``       contributions, receipts and refusals (SQLite; see :mod:`fedmoments.durable`)
    ``answers.db``      tests of classifiers that were answered (:mod:`fedmoments.federation.outbox.answers`)
    ``record.jsonl``    everything that left, a line each (see :mod:`fedmoments.federation.outbox.record`): ``time``
                        (UTC), ``event`` (audited, prepared, sent, acknowledged, refused, evaluated, tuned, scored
                        or declined), ``federation`` (id), ``name``, ``client``, ``version``, ``digest``,
                        ``moments``, ``bytes``, ``classes``, ``samples``, ``withheld``, ``seq`` and ``chain`` of the
                        receipt, ``sentence``;
                        of an audit: ``policy``, ``kept_back``, ``classes_kept_back``, ``unreadable``, ``merged``,
                        ``one_mean``, ``reveals`` and ``replaces``;
                        of tuning: ``run``, ``round``, ``stage`` and ``part``; of a test: ``heads`` and ``told``;
                        what does not apply is left out
    ==================  ============================================================================================

    A process that was forked must open its own.

    Parameters
    ----------
    folder
        Made if it is not there; both files in it are readable by their owner only.

    Examples
    --------
    >>> import tempfile
    >>> from fedmoments import Statistics, StatisticsSpec
    >>> from fedmoments.samples.fingerprint import Fingerprint
    >>> from fedmoments.wire import IdentityKey, encode
    >>> pets = Fingerprint("none", "none", None, ("cat", "dog"))
    >>> terms = Terms("pets", {"name": "identity", "options": {}}, pets, 2, StatisticsSpec())
    >>> measured = Statistics.of([[1.0, 0.0]], [0], terms.spec, n_classes=2)
    >>> key = IdentityKey.generate()
    >>> def make(version):
    ...     print("measuring for version", version)
    ...     return encode(measured, terms.agreement, client="clinic", version=version, key=key)
    >>> with tempfile.TemporaryDirectory() as folder, Outbox(folder) as outbox:
    ...     first = outbox.prepare(terms, "clinic", "data of May", make)
    ...     again = outbox.prepare(terms, "clinic", "data of May", make)
    ...     outbox.sent(terms, "clinic")
    ...     outbox.pending(terms.id), first == again
    measuring for version 1
    (('clinic',), True)
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self._record = Record(self.folder / "record.jsonl")
        self._database = DurableFile.at(self.folder / "outbox.db", _KIND, companion=self._record)
        self._record.make()

    def close(self) -> None:
        """Close the file; what was stored stays."""
        self._database.close()

    def __enter__(self) -> "Outbox":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def batch(self) -> AbstractContextManager[Connection]:
        """Group everything inside in one transaction: much faster for many clients.

        Nothing of it is on the disk before the block ends, so no contribution may leave before; when the block raises,
        nothing of it happened. Other writers wait meanwhile, so measure before, or in batches of seconds.

        Examples
        --------
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder, Outbox(folder) as outbox:
        ...     with outbox.batch():
        ...         outbox.rejoin("ab" * 32, "clinic", above=3)
        """
        return self._database.writing()

    # ---------------------------------------------------------------------------------------------- sending

    def prepare(
        self,
        terms: Terms,
        client: str,
        source: str,
        make: Callable[[int], bytes],
        describe: Callable[[bytes, int], Mapping[str, Any]] | None = None,
        *,
        samples: bytes | None = None,
    ) -> bytes:
        """Return the contribution to send: the stored one, or a new one if there is none of this source yet.

        Parameters
        ----------
        terms
            Of the federation that asks.
        client
            Who contributes.
        source
            A digest of everything that the contribution is made from: data, policy, key.
        make
            Called with the version to make; returns the signed bytes (:func:`fedmoments.wire.encode`). Never called if
            the newest contribution has the same source.
        describe
            Called with what was made and its version; returns what the record tells of it. None: it is a contribution,
            and is looked into. Masked reports cannot be, and are described by whoever made them.
        samples
            Keys of the samples that it is measured from, kept for :meth:`measured`; None keeps none.

        Returns
        -------
        bytes
            On the disk before they are returned (in a :meth:`batch`, when it ends).

        Raises
        ------
        InputError
            When ``make`` returns something else than a contribution of this client and version.
        """
        check_client_id(client)
        if not source:
            raise InputError("the source of a contribution must be a digest of what it is made from, not empty")
        while True:
            before = self._last(terms.id, client)
            stored, version = self._reusable(terms.id, client, source, *before)
            if stored is not None:
                return stored
            data = make(version)
            facts = facts_of(data, terms, client, version) if describe is None else dict(describe(data, version))
            with self._database.writing() as connection:
                if self._last(terms.id, client) != before:
                    continue  # another process was faster: take what it stored, or make the version after it
                connection.execute(
                    "INSERT INTO contributions (federation, client, version, source, digest, facts, payload) "
                    "VALUES (?, ?, ?, ?, ?, ?, ?)",
                    (terms.id, client, version, source, facts["digest"], json.dumps(facts), data),
                )
                if samples is not None:
                    connection.execute("INSERT INTO samples VALUES (?, ?, ?, ?)", (terms.id, client, version, samples))
                self._record.add("prepared", **facts)
            return data

    def sent(self, terms: Terms, client: str) -> None:
        """Record that the newest contribution is being sent; call it before every attempt."""
        with self._database.writing():
            version, _ = self._last(terms.id, client)
            facts, _ = self._known(terms.id, client, version)
            self._record.add("sent", **facts)

    def acknowledge(self, receipt: str) -> None:
        """Keep a server's receipt, JSON text; the same one again is fine.

        Raises
        ------
        LedgerError
            When it is not a receipt, is for something that this outbox did not make, or contradicts one that it holds.
        """
        new = read_receipt(receipt)
        with self._database.writing() as connection:
            facts, held = self._known(new.federation, new.client, new.version)
            if new.digest != facts["digest"]:
                raise LedgerError(
                    f"the receipt for version {new.version} of client '{new.client}' is for the digest {new.digest}, "
                    f"but what was made has {facts['digest']}: the server holds something that this client did not send"
                )
            if held is not None and not follows(new, read_receipt(held)):
                return
            connection.execute(
                "UPDATE contributions SET receipt = ?, refusal = NULL "
                "WHERE federation = ? AND client = ? AND version = ?",
                (new.to_json(), new.federation, new.client, new.version),
            )
            self._record.add("acknowledged", **facts, seq=new.seq, chain=new.chain, sentence=new.event)

    def refused(self, terms_id: str, client: str, version: int, reason: str, sentence: str) -> None:
        """Keep why a server refused a contribution; it stays unacknowledged.

        Raises
        ------
        LedgerError
            When this outbox made no such version.
        """
        refusal = Refusal(str(reason)[:MOST_TEXT], sentence[:MOST_TEXT])
        with self._database.writing() as connection:
            facts, _ = self._known(terms_id, client, version)
            connection.execute(
                "UPDATE contributions SET refusal = ? WHERE federation = ? AND client = ? AND version = ?",
                (json.dumps(refusal), terms_id, client, version),
            )
            self._record.add("refused", **facts, sentence=": ".join(refusal))

    # ---------------------------------------------------------------------------------------------- looking

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

    def withdraw(self, terms_id: str, client: str) -> int:
        """Note that a client's contribution is to be taken out, and return its version; sent until it is acknowledged.

        Raises
        ------
        LedgerError
            When there is none.
        """
        newest = self.newest(terms_id, client)
        if newest is None:
            raise LedgerError(
                f"client '{client}' has contributed nothing from {self.folder}: there is nothing to withdraw"
            )
        with self._database.writing() as connection:
            values = (terms_id, client, newest.version)
            connection.execute("INSERT OR REPLACE INTO withdrawals VALUES (?, ?, ?)", values)
        return newest.version

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
        >>> with tempfile.TemporaryDirectory() as folder, Outbox(folder) as outbox:
        ...     outbox.federations()
        ()
        """
        rows = self._database.rows("SELECT DISTINCT federation, client FROM contributions ORDER BY federation, client")
        return tuple((federation, client) for federation, client in rows)

    # ---------------------------------------------------------------------------------------------- the rest

    def rejoin(self, terms_id: str, client: str, above: int) -> None:
        """Make sure that what is prepared next has a version above ``above``: up to there the server takes none.

        For a client that left, or whose outbox was lost. A newest contribution above it stays the one to send.
        """
        if type(above) is not int or not 0 <= above < MOST_VERSIONS:
            raise InputError(f"versions are whole numbers from 0 to {MOST_VERSIONS - 1}, not {above!r}")
        with self._database.writing() as connection:
            connection.execute(
                "INSERT INTO floors VALUES (?, ?, ?) "
                "ON CONFLICT (federation, client) DO UPDATE SET above = max(above, excluded.above)",
                (terms_id, client, above),
            )
            connection.execute("DELETE FROM withdrawals WHERE federation = ? AND client = ?", (terms_id, client))

    def forget(self, terms_id: str, client: str) -> None:
        """Delete the bytes of all contributions of a client, on the disk too; versions and receipts stay known.

        Raises
        ------
        LedgerError
            In a batch, or when another process is reading and the bytes cannot be overwritten yet: try again.
        """
        if self._database.is_writing:
            raise LedgerError("bytes cannot be forgotten inside of a batch: end it first")
        with self._database.writing() as connection:
            connection.execute(
                "UPDATE contributions SET payload = NULL WHERE federation = ? AND client = ?", (terms_id, client)
            )
        self._database.erase_log()

    def audited(self, terms: Terms, client: str, version: int, notes: Mapping[str, Any]) -> None:
        """Record what a version that is being made reveals, and what the client's rules did about it.

        Parameters
        ----------
        terms
            Of the federation that asks.
        client, version
            Whose contribution, and which.
        notes
            Ready for JSON; ``replaces`` is added where an older version is known to the server, for the difference of
            two versions reveals what changed between them.
        """
        with self._database.writing():
            last, _ = self._last(terms.id, client)
            facts = {"version": version, "moments": list(terms.spec.sent), **notes, "replaces": last or None}
            self.sending("audited", terms, client, **facts)

    def pinned(self, federation: str, client: str, key: str) -> None:
        """Record that a server was believed by the first key that it showed: the terms named none."""
        sentence = (
            f"the terms name no key for the server's log, so the first one that it showed is believed, {key}, and from "
            "now on only that. Compare it with what others were shown ('fedmoments witness'), or ask its operator"
        )
        with self._database.writing():
            self._record.add("pinned", federation=federation, client=client, sentence=sentence)

    def declined(self, terms: Terms, client: str, sentence: str) -> None:
        """Record that the client was asked and did not do it, and why."""
        self.sending("declined", terms, client, sentence=sentence[:MOST_TEXT])

    def sending(self, event: str, terms: Terms, client: str, **facts: Any) -> None:
        """Record what is being sent that is not a contribution, and is not kept.

        Parameters
        ----------
        event
            ``tuned``: parameters that were trained on the client's samples; ``scored``: sums of results of parameters;
            ``evaluated``: results of classifiers on held-out samples.
        terms, client, facts
            For whom, whose, and what the table of the class says of it.
        """
        with self._database.writing():
            self._record.add(event, federation=terms.id, name=terms.name, client=client, **facts)

    # ---------------------------------------------------------------------------------------------- inside

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
