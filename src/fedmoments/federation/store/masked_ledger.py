"""The ledger's part that knows who sent what: clear contributions one by one, masked reports, batches, noised sums."""

import hashlib
import json
import secrets
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.statistics import Statistics
from fedmoments.core.statistics.files import pack_statistics, unpack_statistics
from fedmoments.durable import Connection, DurableFile
from fedmoments.errors import InputError, LedgerError, NotEnoughDataError, RefusedError
from fedmoments.federation.keys.rotation import Rotation
from fedmoments.federation.store import batches as table
from fedmoments.federation.store import masked, releases
from fedmoments.federation.store.arrivals import Arrival, in_parts
from fedmoments.federation.store.attempts import given_up
from fedmoments.federation.store.audit import append
from fedmoments.federation.store.batches import Batch
from fedmoments.federation.store.journal import Journal
from fedmoments.federation.store.masked import Waiting, stored_envelope, stored_report
from fedmoments.federation.store.members import enrolled, key_of, retired_keys, rotate
from fedmoments.federation.store.payloads import read_statistics, state_digest, stored, stored_clients
from fedmoments.federation.store.receipt import Receipt
from fedmoments.federation.store.refusals import record_refusal
from fedmoments.federation.store.releases import Release
from fedmoments.federation.store.showing import ShownLog
from fedmoments.federation.terms import Terms
from fedmoments.privacy.secure.cohort_draw import NONCE_BYTES
from fedmoments.privacy.secure.leader import Leader
from fedmoments.wire import Reason
from fedmoments.wire.header import Buffer
from fedmoments.wire.withdrawal import read_withdrawal

__all__ = ["BatchReports", "MaskedLedger"]

Words = NDArray[np.uint64]

#: Reports of so many bytes together are kept in memory while a batch is added up; more are read again when needed.
CACHE_BYTES = 2**28
Content = TypeVar("Content")
Rules = TypeVar("Rules")


class MaskedLedger(ShownLog):
    """What a ledger does with contributions one by one and with masked reports; see :class:`FederationStore`."""

    _database: DurableFile
    _journal: Journal
    terms: Terms

    def contributions(self) -> Iterator[tuple[str, Statistics]]:
        """Yield each client that is in with its statistics, in order of name, one at a time."""
        with self._database.reading() as connection:
            self._journal.require_current(connection)
            clients = stored_clients(connection)
        for client in clients:
            with self._database.reading() as connection:
                part = stored(connection, self.terms.agreement, client).statistics
            yield client, part  # outside, so that whoever takes it may use the ledger

    def rotate(self, rotation: Rotation) -> None:
        """Give a client a new identity key that its old one signed; the same again changes nothing.

        Raises
        ------
        RefusedError
            When nobody of that name is enrolled, or it was revoked.
        LedgerError
            When the key that is enrolled did not sign the new one, or the new one was revoked or replaced.
        """
        with self._database.writing(f"client {rotation.client!r} kept its key") as connection:
            rotate(connection, rotation, retired_keys(connection, self._journal.lines()))

    def withdraw(self, data: Buffer, *, source: str = "") -> Receipt | RefusedError:
        """Take out what a client sent, by its own signed word (:mod:`fedmoments.wire.withdrawal`).

        Parameters
        ----------
        data, source
            What arrived, and from where, for the log.

        Returns
        -------
        Receipt | RefusedError
            The receipt of the departure, the same one again if it has left; or why it was refused.
        """
        try:
            with self._database.reading(settled=False) as connection:
                asked = read_withdrawal(data, partial(key_of, connection))
                held = "SELECT client, version FROM contributions UNION SELECT client, version FROM reports"
                row = connection.execute(
                    f"SELECT max(version) FROM ({held}) WHERE client = ? GROUP BY client",  # noqa: S608 - constant
                    (asked.client,),
                ).fetchone()
            if asked.federation != self.terms.id:
                raise RefusedError(Reason.FEDERATION, "this withdrawal is from another federation", asked.client)
            if row is not None and row[0] > asked.version:
                raise RefusedError(
                    Reason.REPLAYED,
                    f"client {asked.client!r} withdraws version {asked.version}, but {row[0]} is in: withdraw that",
                    asked.client,
                )
            return self.leave(asked.client)
        except RefusedError as error:
            refused = error
        except LedgerError as error:
            refused = RefusedError(Reason.CONFLICT, str(error), asked.client)
        with self._database.writing("a refusal was not noted") as connection:
            record_refusal(connection, refused, source=source, size=len(data))
        return refused

    def departed(self, client: str) -> int | None:
        """Return the last version of a client that left and has not come back; None of others."""
        with self._database.reading(settled=False) as connection:
            row = connection.execute("SELECT version FROM departures WHERE client = ?", (client[:64],)).fetchone()
        return None if row is None else int(row[0])

    @abstractmethod
    def leave(self, client: str) -> Receipt:
        """Take a client's contribution out, as if it had never joined."""

    def holders(self) -> list[tuple[str, dict[int, int]]]:
        """Return who holds what: each client's samples by label; reads all contributions, one at a time."""
        with self._database.reading() as connection:
            holders = []
            for client in stored_clients(connection):
                part = stored(connection, self.terms.agreement, client).statistics
                holders.append((client, dict(zip(part.classes.tolist(), part.class_counts.tolist(), strict=True))))
            return holders

    def report_many(self, items: Sequence[Buffer], *, source: str | Sequence[str] = "") -> list[Receipt | RefusedError]:
        """Take in many masked reports with one commit, each accepted or refused by itself.

        Parameters
        ----------
        items, source
            As in :meth:`FederationStore.submit_many`; items are what `make_report` made.

        Returns
        -------
        list
            For each item its receipt (event ``reported``), or why it was refused. The same report again gets the same
            receipt; another one under the same version is refused.
        """
        return self._take_many(in_parts(items, source), "report", masked.read_masked, masked.take_reports, self.terms)

    def _take_many(
        self,
        parts: Iterable[list[tuple[Buffer, str]]],
        what: str,
        read: Callable[[Connection, Rules, Buffer], Content],
        take: Callable[[Connection, Rules, list[Arrival[Content]]], list[Receipt | RefusedError]],
        rules: Rules,
    ) -> list[Receipt | RefusedError]:
        """Read and take in what arrived, a transaction for each part."""
        answers: list[Receipt | RefusedError] = []
        for part in parts:
            with self._database.reading(settled=False) as connection:  # read before others have to wait
                arrivals = [Arrival.of(data, source, partial(read, connection, rules)) for data, source in part]
            lost = f"the {what} was" if len(part) == 1 else f"{len(part)} {what}s were"
            advice = "free space or repair the disk, then send it again"
            with self._database.writing(f"{lost} not taken in", advice) as connection:
                answers += take(connection, rules, arrivals)
        return [answer if isinstance(answer, RefusedError) else self.signed(answer) for answer in answers]

    def waiting(self) -> tuple[Waiting, ...]:
        """Return the reports that are in no batch yet, in order of their clients' names."""
        with self._database.reading() as connection:
            return masked.waiting(connection)

    def reported(self) -> Iterator[tuple[str, Words]]:
        """Yield the clients whose reports are in no batch, and their vectors, (size,) uint64, one at a time."""
        for report in self.waiting():
            with self._database.reading() as connection:
                self._journal.require_current(connection)
                found = masked.stored_report(connection, self.terms, report.report)
            yield found.client, found.masked

    def open_batch(self, reports: Sequence[str], plan: Mapping[str, Any]) -> Batch:
        """Put waiting reports into a batch: from now on they can be neither replaced nor withdrawn.

        Parameters
        ----------
        reports
            Their ids.
        plan
            What the sums depend on beside the reports; JSON can hold it. It stands in the log.
        """
        with self._database.writing("no batch was opened") as connection:
            return table.open_batch(connection, reports, plan)

    def batches(self) -> tuple[Batch, ...]:
        """Return all batches in the order in which they were opened."""
        with self._database.reading() as connection:
            return table.batches(connection)

    def leader(self, batch: Batch) -> Leader:
        """Return the leader that adds up a batch which was not collected yet."""
        terms = self.terms
        reports = BatchReports(self._database, terms, batch)
        return Leader(terms.context, terms.layout.size, terms.privacy.batch, reports)

    def keep_sums(self, batch: Batch, sums: Mapping[str, Statistics], *, source: str = "") -> None:
        """Take the sums of a batch in as contributions and erase its masked reports, with one commit.

        Raises
        ------
        RefusedError
            When a sum is such as no data have; nothing was changed then.
        """
        with self._database.writing(f"the sums of {batch.name} were not taken in") as connection:
            table.keep_sums(connection, self.terms, batch, sums, source)
        self._erase()

    def keep_noised(self, batch: Batch, noised: bytes) -> None:
        """Keep the noised sum of a batch, 8 bytes a number, and erase its masked reports, with one commit.

        Raises
        ------
        PrivacyError
            When the budget does not allow it; nothing was changed then.
        """
        with self._database.writing(f"the noised sum of {batch.name} was not taken in") as connection:
            releases.keep_released(connection, self.terms, batch, noised)
        self._erase()

    def keep_scatter(self, batch: Batch, stats: Statistics, *, second_bytes: int = 0) -> None:
        """Keep what two phases gave of a batch, statistics in float64, and erase its masked reports.

        Parameters
        ----------
        batch, stats
            Whose, and what.
        second_bytes
            Of one client's report of the second phase, which is not kept.
        """
        with self._database.writing(f"what {batch.name} gave was not taken in") as connection:
            facts = {"samples": stats.n_samples, "classes": len(stats.classes), "second_bytes": second_bytes}
            table.keep_result(connection, batch, pack_statistics(stats), facts)
            connection.execute("UPDATE reports SET bytes = bytes + ? WHERE batch = ?", (second_bytes, batch.name))
        self._erase()

    def scatter(self) -> Statistics:
        """Return what two phases gave.

        Raises
        ------
        NotEnoughDataError
            When they are not over yet.
        """
        with self._database.reading() as connection:
            self._journal.require_current(connection)
            results = table.results_of(connection)
        if not results:
            raise NotEnoughDataError(f"both phases of '{self.terms.name}' are not over: nothing can be fitted yet")
        return unpack_statistics(next(iter(results.values())), "what two phases gave")

    def release(self) -> Release:
        """Return the noised statistics that all is fitted from under an epsilon.

        Those of the present state are made and charged once; asking again returns the same and costs nothing.

        Raises
        ------
        PrivacyError
            When there is no release of this state, and the budget does not allow one.
        NotEnoughDataError
            When nothing is in, or nothing stands out of the noise.
        """
        with self._database.writing("nothing was released") as connection:
            terms = self.terms
            if not terms.privacy.mode.noise.is_on:
                raise InputError(f"the terms of '{terms.name}' have no epsilon: there is nothing to noise")
            state, merged = "", None
            if terms.privacy.mode.reads_contributions:
                merged = read_statistics(connection, terms.agreement, terms.spec)
                state = state_digest(connection, terms, merged)
            former = releases.read_release(connection, terms, state)
            if former is not None:
                return former
            if merged is None or not merged.n_samples:
                raise NotEnoughDataError(f"nothing is in the ledger of '{terms.name}' that could be released")
            return releases.release(connection, terms, state, merged)

    def reopen(self, batch: str, without: Sequence[str], reason: str) -> None:
        """Undo a batch that the helper refused: its reports wait again, but those of some clients are taken out."""
        with self._database.writing(f"the batch {batch} was not undone") as connection:
            table.reopen(connection, batch, without, reason)

    def cohort_draw(self) -> tuple[bytes, dict[str, str]]:
        """Return the server's nonce for cohorts, and the identity key of every client that may be in one.

        Both are written down when they are first asked for, and are the same from then on: whoever could draw again
        could choose who is with whom.
        """
        with self._database.writing("no cohorts were drawn") as connection:
            row = connection.execute("SELECT value FROM meta WHERE name = 'cohorts'").fetchone()
            if row is not None:
                known = json.loads(row[0])
                return bytes.fromhex(known["nonce"]), dict(known["roster"])
            keys = {member.client: member.key.hex for member in enrolled(connection) if member.status == "enrolled"}
            nonce = secrets.token_bytes(NONCE_BYTES)
            value = json.dumps({"nonce": nonce.hex(), "roster": keys})
            connection.execute("INSERT INTO meta VALUES ('cohorts', ?)", (value,))
            append(connection, "cohorts", {"clients": len(keys), "digest": hashlib.sha256(value.encode()).hexdigest()})
            return nonce, keys

    def given_up(self) -> list[str]:
        """Return the clients that are asked again, for the attempt of the terms, because their batch was given up."""
        with self._database.reading() as connection:
            return given_up(connection)

    def _erase(self) -> None:
        """Cut the write-ahead log, so that erased bytes are gone from it too; while others read, at their next end."""
        with suppress(LedgerError):
            self._database.erase_log()


class BatchReports:
    """What a :class:`~fedmoments.privacy.secure.Leader` adds up: reports whose batch was written down before.

    Parameters
    ----------
    file, terms
        Of the ledger.
    batch
        Which reports; requests follow from it, after a crash as before.
    """

    def __init__(self, file: DurableFile, terms: Terms, batch: Batch) -> None:
        self._file, self._terms, self._batch = file, terms, batch
        self._keeps = len(batch.members) * 8 * terms.layout.size <= CACHE_BYTES
        self._masked: dict[str, Words] = {}

    @property
    def present(self) -> Mapping[str, str]:
        """Report id of every client of the batch, by client."""
        return dict(self._batch.members)

    def envelopes(self, names: Sequence[str]) -> list[bytes]:
        """Return the envelopes of reports: all that the helper gets of them."""
        with self._file.reading() as connection:
            return [stored_envelope(connection, name) for name in names]

    def masked(self, name: str) -> Words:
        """Return the masked vector of a report whose batch was not collected yet."""
        if name in self._masked:
            return self._masked[name]
        with self._file.reading() as connection:
            masked = stored_report(connection, self._terms, name).masked
        if self._keeps:
            self._masked[name] = masked
        return masked
