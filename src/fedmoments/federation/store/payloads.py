"""Contributions as they are kept: the very bytes that a client signed, read again without asking for its key."""

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.maps.canonical import sha256_of_json
from fedmoments.core.statistics import MOMENTS, Layout, Sketches, Statistics, StatisticsSpec
from fedmoments.durable import Connection
from fedmoments.errors import LedgerError, RefusedError
from fedmoments.federation.store.totals import read_totals
from fedmoments.federation.terms import Terms
from fedmoments.wire import Agreement, Contribution, PublicKey, Reason, decode
from fedmoments.wire.contribution import read_measured
from fedmoments.wire.header import HEADER_BYTES, read_header

__all__ = ["keep_payload", "read_statistics", "seal_payloads", "state_digest", "stored", "stored_clients"]


def stored(connection: Connection, agreement: Agreement, client: str) -> Contribution:
    """Return the contribution of a client that is in.

    Its signature was verified when it was taken in, and a key may have been revoked since; now its bytes must be those
    whose digest the ledger noted.

    Raises
    ------
    LedgerError
        When they are not.
    """
    query = "SELECT version, c.digest, data, p.digest FROM contributions AS c JOIN payloads USING (client) "
    query += "LEFT JOIN payload_digests AS p USING (client) WHERE client = ?"
    row = connection.execute(query, (client,)).fetchone()
    if row is None:
        raise LedgerError(f"the contribution of client {client!r} is not in the ledger, which is damaged: run verify")
    version, digest, data, whole = row
    try:
        if not isinstance(data, bytes):
            raise RefusedError(Reason.BODY, "it is not bytes")
        header = read_header(data, agreement)
        body = memoryview(data)[HEADER_BYTES:]
        statistics, withheld = read_measured(header, body, agreement)
    except RefusedError as error:
        raise LedgerError(
            f"the stored contribution of client {client!r} is damaged ({error}): run verify, and restore a snapshot"
        ) from error
    noted = (client, version, digest, header.body_digest)
    if noted != (header.client, header.version, header.digest, hashlib.sha256(body).hexdigest()):
        raise LedgerError(
            f"the stored contribution of client {client!r} is not the one of version {version} and digest {digest} "
            "that the ledger noted: run verify, and restore a snapshot"
        )
    if whole != hashlib.sha256(data).digest():
        raise LedgerError(
            f"the stored contribution of client {client!r} is not what it signed: run verify, and restore a snapshot"
        )
    return Contribution(header, statistics, withheld, len(data))


def keep_payload(connection: Connection, client: str, data: bytes) -> None:
    """Keep the bytes of a contribution that was just noted, and their digest; inside a transaction."""
    connection.execute("INSERT INTO payloads VALUES (?, ?)", (client, data))
    connection.execute("INSERT INTO payload_digests VALUES (?, ?)", (client, hashlib.sha256(data).digest()))


def seal_payloads(connection: Connection, agreement: Agreement) -> None:
    """Note the digests of payloads that have none, if their signature is right; else one that nothing has."""
    rows = connection.execute("SELECT client, key, data FROM payloads JOIN clients USING (client)").fetchall()
    for client, key, data in rows:
        try:
            decode(data, agreement, lambda _, key=key: PublicKey(key))  # type: ignore[misc]
            digest = hashlib.sha256(data).digest()
        except RefusedError:
            digest = b""
        connection.execute("INSERT INTO payload_digests VALUES (?, ?)", (client, digest))


def stored_clients(connection: Connection) -> list[str]:
    """Return the names of all who are in, in the order of their UTF-8 bytes."""
    return [client for (client,) in connection.execute("SELECT client FROM contributions ORDER BY client")]


def read_statistics(connection: Connection, agreement: Agreement, wanted: StatisticsSpec) -> Statistics:
    """Return all contributions that are in, merged; see `FederationStore.statistics`. Inside a transaction."""
    totals = read_totals(connection, agreement, wanted.additive)
    if not wanted.keeps_clients_apart:
        return totals
    spec = wanted.with_plan(agreement.spec.plan)
    apart, index = _read_apart(connection, agreement, spec)
    arrays = {name: totals.raw(name) for name in spec.sent if not MOMENTS[name].layout.apart} | apart
    form, sizes = agreement.fixed_point, (agreement.n_classes, agreement.dim)
    return Statistics(spec, *sizes, totals.classes, totals.class_counts, arrays, fixed_point=form, **index)


def _read_apart(
    connection: Connection, agreement: Agreement, spec: StatisticsSpec
) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Return the moments that are kept apart by client, mean rows and sketches, and the index of their rows."""
    length = connection.execute("SELECT coalesce(sum(mean_rows), 0) FROM contributions").fetchone()[0]
    index: dict[str, Any] = {name: np.zeros(length, np.int64) for name in ("row_labels", "row_counts", "row_owners")}
    apart = [name for name in spec.sent if MOMENTS[name].layout is Layout.ROWS]
    arrays: dict[str, NDArray[Any]] = {
        name: np.zeros((length, MOMENTS[name].width(agreement.dim)), np.int64) for name in apart
    }
    sketches: list[Sketches] = []
    start = 0
    for owner, client in enumerate(stored_clients(connection)):
        part = stored(connection, agreement, client).statistics
        place = slice(start, start + len(part.row_labels))
        index["row_labels"][place], index["row_counts"][place] = part.row_labels, part.row_counts
        index["row_owners"][place] = owner
        for name in apart:
            arrays[name][place] = part.arrays[name]
        if spec.has_sketch:
            sketches.append(part.sketches)
        start = place.stop
    if spec.has_sketch:
        blocks = Sketches.of(sketches, range(len(sketches)), agreement.dim)
        arrays["scatter_sketch"] = blocks.rows
        index |= blocks.index
    return arrays, index


def state_digest(connection: Connection, terms: Terms, merged: Statistics) -> str:
    """Return the SHA-256 of the state: terms, merged statistics and who is in, without versions and times."""
    clients = stored_clients(connection)
    return sha256_of_json({"federation": terms.id, "statistics": merged.digest(), "clients": clients})
