"""The durable ledger of a federation."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from fedmoments.core.maps.canonical import canonical_json
from fedmoments.core.statistics import Statistics, StatisticsSpec
from fedmoments.durable import DurableFile, part_of, put_in_place, refuse_taken
from fedmoments.errors import FileFormatError, InputError, LedgerError, MissingMomentError, RefusedError
from fedmoments.federation.drawing_up import amend_terms
from fedmoments.federation.store import audit, members
from fedmoments.federation.store.arrivals import in_parts
from fedmoments.federation.store.attempts import last_attempt
from fedmoments.federation.store.audit import Entry
from fedmoments.federation.store.batches import dissolve
from fedmoments.federation.store.departures import seal_departures
from fedmoments.federation.store.intake import read_contribution, take_in, take_out
from fedmoments.federation.store.journal import Journal, journal_of
from fedmoments.federation.store.masked import withdraw
from fedmoments.federation.store.masked_ledger import MaskedLedger
from fedmoments.federation.store.members import Enrolled
from fedmoments.federation.store.payloads import read_statistics, state_digest
from fedmoments.federation.store.receipt import Receipt
from fedmoments.federation.store.reconciling import redo
from fedmoments.federation.store.restoring import Restored
from fedmoments.federation.store.showing import make_signing_key
from fedmoments.federation.store.snapshot import check_snapshot, write_snapshot
from fedmoments.federation.store.status import Status, read_status
from fedmoments.federation.store.tables import LEDGER
from fedmoments.federation.store.totals import check_fits
from fedmoments.federation.store.verification import Verification, verify
from fedmoments.federation.terms import Terms
from fedmoments.wire import PublicKey
from fedmoments.wire.header import Buffer

__all__ = ["FederationStore"]

#: Longest JSON text of what a note says.
MOST_NOTE = 2**16


class FederationStore(MaskedLedger):
    """Contributions of a federation on disk: exactly once each, in one file, safe against crashes.

    A contribution, the running sums and the log's entry are written in one transaction, and the receipt exists only
    after its commit. What holds, whatever fails:

    - A contribution of a client and version is in once or not at all. The same one again gets the very same receipt;
      nothing is written for it, not even into the log, which therefore does not grow with retries.
    - Another content under a version that is in is refused and kept in quarantine; an older version, or one not above
      the last version of a client that left, is refused.
    - The state depends on who is in with what, and on nothing else: not on order, history or who came and left.
    - Several processes may have the same file open and write, and several threads may share an object: they wait for
      each other. An object must not be carried into a forked process.

    Make one with :meth:`create` or :meth:`open`; close it, or use it in a ``with`` statement.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from fedmoments.samples.fingerprint import Fingerprint
    >>> from fedmoments.wire import IdentityKey, encode
    >>> fingerprint = Fingerprint("none", "none", None, ("cat", "dog"))
    >>> terms = Terms("pets", {"name": "identity", "options": {}}, fingerprint, 3, StatisticsSpec.of("client_means"))
    >>> key = IdentityKey.generate()
    >>> stats = Statistics.of(np.ones((4, 3)), [0, 1, 1, 1], terms.spec, n_classes=2)
    >>> data = encode(stats, terms.agreement, client="clinic", version=1, key=key)
    >>> with tempfile.TemporaryDirectory() as folder, FederationStore.create(Path(folder, "pets"), terms) as store:
    ...     store.enrol("clinic", key.public)
    ...     receipt = store.submit(data)
    ...     store.submit(data) == receipt, store.statistics().counts.tolist()
    ...     left = store.leave("clinic")
    ...     store.statistics().counts.tolist(), store.verify(expect=receipt.chain).whole
    (True, [1, 3])
    ([0, 0], True)
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._database = DurableFile(self.path, LEDGER)
        try:
            with self._database.reading(settled=False) as connection:
                row = connection.execute("SELECT value FROM meta WHERE name = 'terms'").fetchone()
                attempt = last_attempt(connection)
            if row is None:
                raise FileFormatError(f"the ledger {self.path} lacks the terms of its federation: restore a snapshot")
            self.terms = Terms.from_json(row[0]).at(attempt)
            self._accompany()
        except BaseException:
            self.close()
            raise

    # ---------------------------------------------------------------------------------------------- the file

    def _accompany(self) -> None:
        """Let the journal go with all transactions, made now if the ledger never had one."""
        self._journal = Journal(journal_of(self.path), self.terms.id, lambda c, line: redo(c, self.terms, line))
        if self._database.is_read_only:
            return
        with self._database.reading(settled=False) as connection:
            known = connection.execute("SELECT 1 FROM meta WHERE name = 'counter'").fetchone() is not None
        if not known and not self._journal.path.exists():
            with self._database.writing("its journal was not made") as connection:
                self._journal.adopt(connection)
            self.signing_key  # noqa: B018 - made with the ledger
        self._database.accompany(self._journal)

    @classmethod
    def create(cls, path: str | os.PathLike[str], terms: Terms) -> Self:
        """Make the ledger of a new federation and open it.

        Raises
        ------
        LedgerError
            When there is a file of that name, or it cannot be written.
        """
        check_fits(terms)
        target = Path(path)
        with DurableFile.making(target, LEDGER) as connection:
            connection.execute("INSERT INTO meta VALUES ('terms', ?)", (terms.to_json(),))
            seal_departures(connection)
            refuse_taken(target)  # before a key is made beside it
            key = terms.server or make_signing_key(target).public.hex
            connection.execute("INSERT INTO meta VALUES ('server_key', ?)", (key,))
            facts = {"name": terms.name, "federation": terms.id, **({} if terms.server else {"key": key})}
            audit.append(connection, "created", facts, genesis=terms.id)
        return cls(target)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Self:
        """Open a ledger that exists.

        Raises
        ------
        LedgerError, FileFormatError
            When there is none; when the file is something else, damaged, or of another version.
        """
        return cls(path)

    def close(self) -> None:
        """Close the file; calling it again does nothing."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ---------------------------------------------------------------------------------------------- members

    def enrol(self, client: str, key: PublicKey, node_key: str | None = None) -> None:
        """Let a client contribute.

        Parameters
        ----------
        client
            Its name.
        key
            The public half of its identity key.
        node_key
            OpenSSH public key line of the node that carries its contributions.

        Raises
        ------
        LedgerError
            When the client is enrolled with another key, or was revoked; when the key was revoked or replaced under
            any name. The same client and key again are fine.
        """
        self.enrol_many([(client, key, node_key)])

    def enrol_many(self, clients: Iterable[tuple[str, PublicKey, str | None]]) -> None:
        """Enrol many clients with one commit, all or none: (client, key, node_key) each, as in :meth:`enrol`."""
        with self._database.writing("nobody was enrolled") as connection:
            retired = members.retired_keys(connection, self._journal.lines())
            for client, key, node_key in clients:
                members.enrol(connection, client, key, node_key, retired)

    def amend(self, classes: Sequence[str]) -> Terms:
        """Add classes to the terms, signed with the ledger's key; what is in stays valid, and has none of them.

        The same classes again after an older copy was restored give the same terms: parties accept them once.

        Raises
        ------
        InputError, PrivacyError
            As :func:`fedmoments.federation.drawing_up.amend_terms`.
        """
        new = amend_terms(self.terms, classes, self.signing_key)
        check_fits(new)
        with self._database.writing("no class was added") as connection:
            connection.execute("UPDATE meta SET value = ? WHERE name = 'terms'", (new.to_json(),))
            audit.append(connection, "amended", {"classes": list(classes), "terms": new.digest})
        self.terms = new
        return new

    def revoke(self, client: str) -> None:
        """Let a client contribute no more, for good; what it contributed stays until it leaves."""
        with self._database.writing(f"client {client!r} was not revoked") as connection:
            members.revoke(connection, client)

    def enrolled(self) -> tuple[Enrolled, ...]:
        """Return all who were ever enrolled, in order of name."""
        with self._database.reading(settled=False) as connection:
            return members.enrolled(connection)

    # ---------------------------------------------------------------------------------------------- contributions

    def submit(self, data: Buffer, *, source: str = "") -> Receipt:
        """Take in one contribution.

        Parameters
        ----------
        data
            The bytes that :func:`fedmoments.wire.encode` made.
        source
            Where it came from, as the server knows it (the node's id): for the log.

        Raises
        ------
        RefusedError
            When it must not be taken in; that was logged.
        LedgerError
            When it could not be written: send it again. (A commit that the disk failed to confirm may turn out to be
            whole once the disk is mended; then that gets its receipt.)
        """
        (answer,) = self.submit_many([data], source=source)
        if isinstance(answer, RefusedError):
            raise answer
        return answer

    def submit_many(self, items: Sequence[Buffer], *, source: str | Sequence[str] = "") -> list[Receipt | RefusedError]:
        """Take in many contributions with one commit, each accepted or refused by itself.

        Batches of more than 32 MiB are committed in several parts. If one fails, LedgerError is raised although
        parts before it are in; sending all again gives those the receipts that they have.

        Parameters
        ----------
        items, source
            As in :meth:`submit`, in the order in which they arrived; one source for all, or one for each.

        Returns
        -------
        list
            For each item its receipt, or why it was refused.
        """
        if items and not self.terms.privacy.mode.reads_contributions:
            raise InputError(f"'{self.terms.name}' takes masked reports only: nobody may send it clear numbers")
        return self._take_many(
            in_parts(items, source), "contribution", read_contribution, take_in, self.terms.agreement
        )

    def leave(self, client: str) -> Receipt:
        """Take a client's contribution out, as if it had never joined; what was quarantined of it goes too.

        Its bytes are overwritten in the file, and the write-ahead log is cut. What remains is its enrolment, its last
        version, so that nobody can replay what was sent before, and what the log says. A client that has left
        gets the same receipt again. A client whose masked report waits withdraws that. Who is in a sum cannot leave by
        itself, but the whole batch can, by its name.

        Raises
        ------
        LedgerError
            When it has no contribution; when it is in a sum; or when it has left, but another process reads the file,
            so that old bytes cannot be cut off yet: call this again then.
        """
        with self._database.writing(f"client {client!r} was not taken out") as connection:
            receipt = (
                dissolve(connection, self.terms, client, "it left")
                or withdraw(connection, self.terms, client)
                or take_out(connection, self.terms.agreement, client)
            )
            self.terms = self.terms.at(last_attempt(connection))
        try:
            self._database.erase_log()
        except LedgerError as error:
            raise LedgerError(
                f"client {client!r} has left (entry {receipt.seq}), but bytes of it may still be on the disk, for "
                f"{error}: let it leave again"
            ) from error
        return self.signed(receipt)

    # ---------------------------------------------------------------------------------------------- reading

    def statistics(self, spec: StatisticsSpec | None = None) -> Statistics:
        """Return all contributions that are in, merged, in fixed point.

        Moments that add up come from the running sums, in memory that does not depend on the number of clients.
        Rows of client means are read in the order of the clients' names (by their UTF-8 bytes), each client's as it
        sent them. So the result is the same, bit for bit, whatever the order of arrival.

        Parameters
        ----------
        spec
            What is wanted; all by default.

        Raises
        ------
        MissingMomentError
            When the federation does not collect it.
        """
        wanted = self.terms.spec if spec is None else spec
        if not wanted <= self.terms.spec:
            raise MissingMomentError(
                f"statistics of {wanted} were requested, but the federation '{self.terms.name}' collects "
                f"{self.terms.spec}: ask for less, or found a federation with other terms"
            )
        with self._database.reading(settled=False) as connection:
            self._journal.require_current(connection)
            return read_statistics(connection, self.terms.agreement, wanted)

    def digest(self) -> str:
        """Return the SHA-256 of the state: terms, merged statistics and who is in, without versions and times."""
        with self._database.reading(settled=False) as connection:
            merged = read_statistics(connection, self.terms.agreement, self.terms.spec)
            return state_digest(connection, self.terms, merged)

    def status(self) -> Status:
        """Return who is in, with how much, and what was refused lately."""
        with self._database.reading(settled=False) as connection:
            return read_status(connection, self.terms)

    # ---------------------------------------------------------------------------------------------- the log

    def note(self, event: str, /, **facts: Any) -> Entry:
        """Write into the log what the server did: a round opened, a run started, an evaluation.

        Parameters
        ----------
        event
            What happened; stands in the entry's facts under ``note``.
        facts
            Details that JSON can hold.
        """
        details = {**facts, "note": event}
        if "note" in facts or len(canonical_json(details)) > MOST_NOTE:
            raise InputError(f"a note holds at most {MOST_NOTE} characters of JSON, and no fact that is called 'note'")
        with self._database.writing(f"the note {event!r} was not written") as connection:
            return audit.append(connection, "note", details)

    def audit(self, after: int = 0) -> Iterator[Entry]:
        """Yield the entries of the log in order, those behind a number, those included that are written meanwhile."""
        last = after
        while True:
            with self._database.reading(settled=False) as connection:
                page = list(audit.entries(connection, after=last, at_most=500))
            if not page:
                return
            yield from page
            last = page[-1].seq

    def verify(self, expect: str | None = None) -> Verification:
        """Check every hash of the log, replay it, and compute the running sums anew from the stored contributions.

        Parameters
        ----------
        expect
            A hash that must be in the log: ``chain`` of a receipt, or a ``head`` that was noted elsewhere. Without it,
            a log that was cut off at its end looks like a younger one.
        """
        return verify(self._database, self.terms.agreement, expect, self._journal)

    # ---------------------------------------------------------------------------------------------- snapshots

    def snapshot(self, path: str | os.PathLike[str]) -> str:
        """Copy the ledger as it is now to a new file, with its SHA-256, which is returned, in ``<path>.sha256``."""
        target = Path(path)
        with self._database.reading(settled=False) as connection:
            head = audit.head(connection)
            checksum = write_snapshot(self._database, target)
        facts = {"file": target.name, "checksum": checksum, "bytes": target.stat().st_size, "head": head}
        with self._database.writing(f"the snapshot {target} was made, but not logged") as connection:
            audit.append(connection, "snapshot", facts)
        return checksum

    @classmethod
    def restore(
        cls,
        snapshot: str | os.PathLike[str],
        path: str | os.PathLike[str],
        *,
        journal: str | os.PathLike[str] | None = None,
        departed: Mapping[str, str] | None = None,
        lost_journal: bool = False,
    ) -> Self:
        """Make a ledger from a snapshot, if nothing in it is damaged, and open it; it takes the place of the former.

        What was taken in after the snapshot is not in it: let clients send again whatever they hold a receipt for. What
        the journal tells of is kept: revocations, new keys and what was spent; of those who left, the caller decides.

        Parameters
        ----------
        snapshot
            What :meth:`snapshot` wrote, with its checksum file beside it.
        path
            A new file; nothing is overwritten.
        journal
            Of the ledger that the snapshot was taken of; by default it is looked for in the folder of ``path``.
        departed
            ``"out"`` or ``"in"`` for each client, or batch, that left after the snapshot.
        lost_journal
            Go on without one: nothing more is released under an epsilon; clients notice by the counter in receipts.

        Raises
        ------
        FileFormatError
            When the snapshot is damaged.
        LedgerError
            When there is none, ``path`` exists, the journal is missing, or somebody left of whom nothing was decided.
        """
        source, target = Path(snapshot), Path(path)
        with part_of(target) as part:
            with closing(Restored(part, source, check_snapshot(source, part), target)) as restored:
                restored.keep(None if journal is None else Path(journal), departed or {}, lost=lost_journal)
            put_in_place(part, target)
        return cls(target)
