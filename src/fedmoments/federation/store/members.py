"""Who may contribute: the enrolled clients and their keys.

A key that was revoked, or that another took the place of, is *retired*: nobody is enrolled with it again, under any
name, whatever was restored since.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass

from fedmoments.durable import Connection
from fedmoments.errors import InputError, LedgerError, RefusedError, reading
from fedmoments.federation.keys.rotation import Rotation
from fedmoments.federation.store.audit import Entry, append
from fedmoments.wire import PublicKey, Reason, check_client_id

__all__ = ["Enrolled", "enrol", "enrolled", "key_of", "retired_keys", "revoke", "rotate"]

#: Longest line of a transport key that is taken for one.
MOST_NODE_KEY = 4096


@dataclass(frozen=True)
class Enrolled:
    """A client that was enrolled.

    Parameters
    ----------
    client
        Its name.
    key
        Its identity key, with which it signs contributions.
    node_key
        OpenSSH public key line of the node that carries them, if that was told.
    status
        ``"enrolled"`` or ``"revoked"``.

    Examples
    --------
    >>> Enrolled("clinic", PublicKey(bytes([3, *bytes(31)])), None, "enrolled").status
    'enrolled'
    """

    client: str
    key: PublicKey
    node_key: str | None
    status: str


def retired_keys(connection: Connection, journal: Iterable[Entry]) -> frozenset[str]:
    """Return the keys that nobody may be enrolled with, by ledger, log and journal, each of which may be the older one.

    Parameters
    ----------
    connection
        The ledger's.
    journal
        The lines beside it.
    """
    logged = connection.execute("SELECT facts FROM audit WHERE event IN ('revoked', 'rotated')")
    facts = [*(json.loads(row[0]) for row in logged), *(line.details for line in journal)]
    keys = {str(told.get("former", told.get("key", ""))) for told in facts}  # a journal tells of keys in these two only
    keys |= {key.hex() for (key,) in connection.execute("SELECT key FROM clients WHERE status = 'revoked'")}
    return frozenset(keys - {""})


def enrol(
    connection: Connection, client: str, key: PublicKey, node_key: str | None, retired: frozenset[str] = frozenset()
) -> None:
    """Enrol a client inside a transaction, unless its key is retired; see `FederationStore.enrol`."""
    check_client_id(client)
    if node_key is not None and not (0 < len(node_key) <= MOST_NODE_KEY and node_key.isprintable()):
        raise InputError(
            f"the node_key of client {client!r} must be one line of an OpenSSH public key, "
            f"not {node_key[:80]!r} ({len(node_key)} characters)"
        )
    row = connection.execute("SELECT key, node_key, status FROM clients WHERE client = ?", (client,)).fetchone()
    if row is not None:
        known, known_node, status = row
        if status != "enrolled":
            raise LedgerError(f"client {client!r} was revoked, which is final: enrol it under another name")
        if known != key.raw:
            raise LedgerError(
                f"client {client!r} is enrolled with the key {known.hex()}, and not with {key.hex}: if the key was "
                "lost or stolen, revoke the client and enrol it under another name"
            )
        if node_key in (None, known_node):
            return
        if known_node is not None:
            raise LedgerError(
                f"client {client!r} is enrolled on the node with the key {known_node!r}, and not {node_key!r}: revoke "
                "the client and enrol it under another name"
            )
    else:
        _require_live(client, key, retired)
    connection.execute(
        "INSERT INTO clients VALUES (?, ?, ?, 'enrolled') ON CONFLICT DO UPDATE SET node_key = excluded.node_key",
        (client, key.raw, node_key),
    )
    append(connection, "enrolled", {"client": client, "key": key.hex, "node_key": node_key})


def _require_live(client: str, key: PublicKey, retired: frozenset[str]) -> None:
    if key.hex in retired:
        raise LedgerError(
            f"client {client!r} cannot have the key {key.hex}: it was revoked or replaced in this federation, which is "
            "final under every name; make new keys ('fedmoments keys client') and enrol their card"
        )


def rotate(connection: Connection, rotation: Rotation, retired: frozenset[str] = frozenset()) -> None:
    """Give a client a new key that its old one signed, inside a transaction; see `FederationStore.rotate`."""
    client = rotation.client
    known = key_of(connection, client)
    if known == rotation.key:
        return
    if not rotation.is_signed_by(known):
        raise LedgerError(
            f"client {client!r} is enrolled with the key {known.hex}, which did not sign the new key "
            f"{rotation.key.hex}: if the key was lost or stolen, revoke the client and enrol it under another name"
        )
    _require_live(client, rotation.key, retired)
    connection.execute("UPDATE clients SET key = ? WHERE client = ?", (rotation.key.raw, client))
    row = connection.execute("SELECT node_key FROM clients WHERE client = ?", (client,)).fetchone()
    facts = {"client": client, "former": known.hex, "key": rotation.key.hex, "node_key": row[0]}
    append(connection, "rotated", {**facts, "signature": rotation.signature.hex()})


def revoke(connection: Connection, client: str) -> None:
    """Revoke a client inside a transaction; see `FederationStore.revoke`."""
    row = connection.execute("SELECT status, key, node_key FROM clients WHERE client = ?", (client,)).fetchone()
    if row is None:
        raise LedgerError(f"client {client!r} cannot be revoked, for nobody of that name is enrolled")
    others = connection.execute("SELECT client, node_key FROM clients WHERE key = ? AND status = 'enrolled'", (row[1],))
    for name, node_key in others.fetchall():  # whoever has the key speaks under all of its names
        connection.execute("UPDATE clients SET status = 'revoked' WHERE client = ?", (name,))
        append(connection, "revoked", {"client": name, "key": row[1].hex(), "node_key": node_key})


def enrolled(connection: Connection) -> tuple[Enrolled, ...]:
    """Return all who were ever enrolled, in order of name; sums of batches are not clients."""
    rows = connection.execute(
        "SELECT client, key, node_key, status FROM clients WHERE client NOT IN (SELECT client FROM parts) "
        "ORDER BY client"
    )
    return tuple(Enrolled(client, PublicKey(key), node_key, status) for client, key, node_key, status in rows)


def key_of(connection: Connection, client: str) -> PublicKey:
    """Return the key of a client that may contribute.

    Raises
    ------
    RefusedError
        When nobody of that name is enrolled, or it was revoked.
    """
    row = connection.execute("SELECT key, status FROM clients WHERE client = ?", (client,)).fetchone()
    if row is None:
        raise RefusedError(
            Reason.UNKNOWN_CLIENT,
            f"no client called {client!r} is enrolled in this federation: let its operator enrol your public key",
            client,
        )
    if row[1] != "enrolled":
        raise RefusedError(
            Reason.REVOKED_CLIENT,
            f"client {client!r} was revoked and contributes no more: ask the federation's operator",
            client,
        )
    with reading(f"the stored key of client {client!r} is damaged: run verify, and restore a snapshot"):
        return PublicKey(row[0])
