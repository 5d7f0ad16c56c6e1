"""What a journal says, done again in a ledger that lacks it: after a kill, or after an older one was restored."""

import json
from collections.abc import Mapping, Sequence

from fedmoments.durable import Connection
from fedmoments.errors import InputError, LedgerError
from fedmoments.federation.store.audit import Entry, append, redoing
from fedmoments.federation.store.batches import dissolve
from fedmoments.federation.store.departures import depart, departed_version
from fedmoments.federation.store.intake import take_out
from fedmoments.federation.store.masked import withdraw
from fedmoments.federation.store.releases import charge_again
from fedmoments.federation.terms import Terms

__all__ = ["IN", "OUT", "departures_in", "redo", "require_decided"]

#: What may become of a client that left after a snapshot was taken: it stays out, or is brought back.
OUT, IN = "out", "in"


def redo(connection: Connection, terms: Terms, line: Entry) -> None:
    """Do what a line says, unless it was done; inside a transaction. Nothing that is done twice counts twice."""
    facts = line.details
    with redoing(connection):
        if line.event in ("left", "withdrawn"):
            _depart(connection, terms, facts["client"], facts["version"])
        elif line.event == "dissolved":
            _dissolve(connection, terms, facts["batch"], facts["members"])
        elif line.event == "revoked":
            _revoke(connection, facts["client"], facts["key"], facts["node_key"])
        elif line.event == "rotated":
            _rotate(connection, facts)
        elif line.event == "spent":
            charge_again(connection, terms, facts["number"], facts["ratio"], facts["what"])


def departures_in(connection: Connection, lines: Sequence[Entry]) -> dict[str, str]:
    """Return who left by these lines and is in this ledger with what it took out, and when it left; by name."""
    departed: dict[str, str] = {}
    for line in lines:
        facts = line.details
        if line.event in ("left", "withdrawn") and _version_in(connection, facts["client"]) in range(
            1, facts["version"] + 1
        ):
            departed[facts["client"]] = line.time
        elif line.event == "dissolved" and any(
            _version_in(connection, client) in range(1, version + 1) for client, version in facts["members"]
        ):
            departed[facts["batch"]] = line.time
    return departed


def require_decided(departed: Mapping[str, str], decisions: Mapping[str, str]) -> None:
    """Refuse until it is said of each who left what becomes of it, and of nobody else.

    Raises
    ------
    LedgerError
        When somebody is left out.
    InputError
        When a decision is of nobody who left, or is neither ``out`` nor ``in``.

    Examples
    --------
    >>> require_decided({"clinic": "2030-01-01"}, {"clinic": "out"})
    >>> require_decided({"clinic": "2030-01-01"}, {})
    Traceback (most recent call last):
    fedmoments.errors.LedgerError: the snapshot holds what was taken out since: 'clinic' (2030-01-01). ...
    """
    for name, decision in decisions.items():
        if name not in departed or decision not in (OUT, IN):
            known = ", ".join(map(repr, departed)) or "nobody"
            raise InputError(
                f"departed is for those who left after the snapshot ({known}), each '{OUT}' or '{IN}', not "
                f"{name!r}: {decision!r}"
            )
    undecided = [f"{name!r} ({time})" for name, time in departed.items() if name not in decisions]
    if undecided:
        raise LedgerError(
            f"the snapshot holds what was taken out since: {', '.join(undecided)}. Say for each what becomes of it: "
            f"'--departed NAME={OUT}' takes it out again, '--departed NAME={IN}' brings it back, for which you need "
            "its consent; both are logged"
        )


def _version_in(connection: Connection, client: str) -> int:
    """Return the version of a client's contribution or report that is in; 0 if there is none."""
    query = "SELECT max(version) FROM (SELECT version FROM contributions WHERE client = :client UNION ALL "
    query += "SELECT version FROM reports WHERE client = :client)"
    return int(connection.execute(query, {"client": client}).fetchone()[0] or 0)


def _depart(connection: Connection, terms: Terms, client: str, version: int) -> None:
    """Take a client out that is in with this version or an older one, and take none of them again."""
    held = _version_in(connection, client)
    if held > version or not connection.execute("SELECT 1 FROM clients WHERE client = ?", (client,)).fetchone():
        return
    if held:
        batch = connection.execute("SELECT batch FROM reports WHERE client = ?", (client,)).fetchone()
        if batch is not None and batch[0] is not None:
            dissolve(connection, terms, batch[0], "a client of it had left")
        elif withdraw(connection, terms, client) is None:
            take_out(connection, terms.agreement, client)
    if departed_version(connection, client)[0] < version:
        new = append(connection, "departed", {"client": client, "version": version})
        depart(connection, [(client, version)], new.seq)


def _dissolve(connection: Connection, terms: Terms, batch: str, members: Sequence[tuple[str, int]]) -> None:
    if connection.execute("SELECT 1 FROM batches WHERE batch = ? AND status != 'left'", (batch,)).fetchone():
        dissolve(connection, terms, batch, "it had left")
    for client, version in members:
        _depart(connection, terms, client, version)


def _revoke(connection: Connection, client: str, key: str, node_key: str | None) -> None:
    row = connection.execute("SELECT status FROM clients WHERE client = ?", (client,)).fetchone()
    if row is None or row[0] != "revoked":
        connection.execute(
            "INSERT INTO clients VALUES (?, ?, ?, 'revoked') ON CONFLICT DO UPDATE SET status = 'revoked'",
            (client, bytes.fromhex(key), node_key),
        )
        append(connection, "revoked", {"client": client, "key": key, "node_key": node_key})


def _rotate(connection: Connection, facts: Mapping[str, str]) -> None:
    row = connection.execute("SELECT key FROM clients WHERE client = ?", (facts["client"],)).fetchone()
    if row is not None and row[0].hex() == facts["former"]:
        values = (bytes.fromhex(facts["key"]), facts["node_key"], facts["client"])
        connection.execute("UPDATE clients SET key = ?, node_key = ? WHERE client = ?", values)
        append(connection, "rotated", json.loads(json.dumps(dict(facts))))
