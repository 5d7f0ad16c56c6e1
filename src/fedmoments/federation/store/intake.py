"""Taking in and taking out: what one transaction does to contributions, running sums and log together."""

from collections.abc import Iterable
from typing import Any

from fedmoments.durable import Connection
from fedmoments.errors import FixedPointOverflowError, LedgerError, RefusedError
from fedmoments.federation.store.arrivals import Arrival, answer_each
from fedmoments.federation.store.audit import append, entry
from fedmoments.federation.store.departures import come_back, depart, departed_version
from fedmoments.federation.store.members import key_of
from fedmoments.federation.store.payloads import keep_payload, stored
from fedmoments.federation.store.receipt import Receipt
from fedmoments.federation.store.totals import Change, total_samples
from fedmoments.wire import Agreement, Contribution, Reason, decode
from fedmoments.wire.header import Buffer

__all__ = ["read_contribution", "take_in", "take_out"]


def read_contribution(connection: Connection, agreement: Agreement, data: Buffer) -> Contribution:
    """Decode a contribution, with the keys of those who are enrolled."""
    return decode(data, agreement, lambda client: key_of(connection, client))


def take_in(
    connection: Connection, agreement: Agreement, arrivals: Iterable[Arrival[Contribution]]
) -> list[Receipt | RefusedError]:
    """Take in each contribution or refuse and log it, all inside one transaction; return the answers in order."""
    intake = _Intake(connection, agreement)
    answers = answer_each(connection, arrivals, intake.take)
    intake.finish()
    return answers


class _Intake:
    """Contributions that are taken in by one transaction: each by itself, the running sums once at the end.

    Parameters
    ----------
    connection
        The ledger's, inside a transaction.
    agreement
        What the contributions were decoded with.
    """

    def __init__(self, connection: Connection, agreement: Agreement) -> None:
        self._connection, self._agreement = connection, agreement
        self._change = Change(agreement.spec)
        self._samples = total_samples(connection)

    def take(self, contribution: Contribution, data: Buffer, source: str) -> Receipt:
        """Take in one contribution, or return the receipt that it already has.

        Parameters
        ----------
        contribution
            Decoded, its signature verified.
        data
            The bytes that it was decoded from.
        source
            Where it came from, for the log.

        Raises
        ------
        RefusedError
            When it must not be taken in; nothing was changed then.
        """
        client, version = contribution.client, contribution.version
        key_of(self._connection, client)  # it may have been revoked since it was decoded
        query = "SELECT version, digest, seq, samples FROM contributions WHERE client = ?"
        current = self._connection.execute(query, (client,)).fetchone()
        if current is not None and type(current[0]) is not int:
            raise LedgerError(
                f"client {client!r} is in with a version {current[0]!r}: the ledger is damaged; run verify"
            )
        if current is not None and (version, contribution.digest) == current[:2]:
            return Receipt.of(self._agreement.federation, entry(self._connection, current[2]))
        self._require_new(contribution, current)
        samples = self._samples + contribution.statistics.n_samples - (current[3] if current else 0)
        try:
            self._agreement.fixed_point.check_total(samples)
        except FixedPointOverflowError as error:
            raise RefusedError(Reason.OVERFLOW, str(error), client) from error
        if current is not None:
            self._change.add(stored(self._connection, self._agreement, client).statistics, sign=-1)
        self._change.add(contribution.statistics)
        self._samples = samples
        return self._write(contribution, data, source, former=current[0] if current else None)

    def finish(self) -> None:
        """Bring the running sums up to date; nothing may be taken afterwards."""
        self._change.apply(self._connection)

    def _require_new(self, contribution: Contribution, current: tuple[int, str, int, int] | None) -> None:
        client, version = contribution.client, contribution.version
        if current is not None and version == current[0]:
            raise RefusedError(
                Reason.CONFLICT,
                f"client {client!r} has contributed version {version} with the digest {current[1]}, but another "
                f"content ({contribution.digest}) arrived under the same version: a new content needs a higher version",
                client,
            )
        last = current[0] if current else departed_version(self._connection, client)[0]
        if version <= last:
            state = "is in" if current else "was the last one before it left"
            raise RefusedError(
                Reason.REPLAYED,
                f"of client {client!r} version {last} {state}, but version {version} arrived: "
                f"contribute again with version {last + 1}",
                client,
            )

    def _write(self, contribution: Contribution, data: Buffer, source: str, *, former: int | None) -> Receipt:
        stats, withheld = contribution.statistics, contribution.withheld
        facts: dict[str, Any] = {
            "client": contribution.client,
            "version": contribution.version,
            "digest": contribution.digest,
            "moments": list(stats.spec.sent),
            "bytes": len(data),
            "classes": len(stats.classes),
            "samples": stats.n_samples,
            "withheld": {"classes": withheld.classes, "samples": withheld.samples},
            "source": source[:1000],
        }
        if former is None:
            new = append(self._connection, "joined", facts)
        else:
            new = append(self._connection, "replaced", facts | {"former": former})
            self._connection.execute("DELETE FROM contributions WHERE client = ?", (contribution.client,))
        self._connection.execute(
            "INSERT INTO contributions VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                contribution.client,
                contribution.version,
                contribution.digest,
                new.seq,
                len(data),
                stats.n_samples,
                len(stats.classes),
                len(stats.row_labels),
                withheld.classes,
                withheld.samples,
            ),
        )
        keep_payload(self._connection, contribution.client, bytes(data))
        come_back(self._connection, contribution.client)
        return Receipt.of(self._agreement.federation, new)


def take_out(connection: Connection, agreement: Agreement, client: str) -> Receipt:
    """Remove all of a client's contribution inside a transaction; a client that left gets the same receipt again."""
    query = "SELECT version, digest FROM contributions WHERE client = ?"
    row = connection.execute(query, (client,)).fetchone()
    if row is None:
        gone = connection.execute("SELECT seq FROM departures WHERE client = ?", (client,)).fetchone()
        if gone is None:
            raise LedgerError(f"client {client!r} cannot leave, for it has no contribution in this ledger")
        return Receipt.of(agreement.federation, entry(connection, gone[0]))
    change = Change(agreement.spec)
    change.add(stored(connection, agreement, client).statistics, sign=-1)
    change.apply(connection)
    new = append(connection, "left", {"client": client, "version": row[0], "digest": row[1]})
    connection.execute("DELETE FROM contributions WHERE client = ?", (client,))
    connection.execute("DELETE FROM quarantine WHERE client = ?", (client,))
    depart(connection, [(client, row[0])], new.seq)
    return Receipt.of(agreement.federation, new)
