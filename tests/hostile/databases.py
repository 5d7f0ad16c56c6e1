"""Files that a party keeps, or is handed as a whole: ledgers, snapshots, journals, notebooks, outboxes, splits.

Each parser changes values in any table, or bytes anywhere, makes the checksum right again and uses the file as the
product would: to fit, to verify, to show, to restore, to send.
"""

import base64
import hashlib
import json
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from tests.hostile.mutations import HOSTILE, changed_bytes, changed_text
from tests.hostile.parsers import CARD, X, Y, _repacked, parser, terms

import fedmoments as fm
from fedmoments.core.maps.canonical import sha256_of_json
from fedmoments.errors import FedMomentsError
from fedmoments.federation.drawing_up import amend_terms
from fedmoments.federation.enrolment.kit import Kit, check_stricter, statement
from fedmoments.federation.keys.parties import make_authority
from fedmoments.federation.outbox import Outbox
from fedmoments.federation.own_memory import FORGOTTEN, HELD_OUT, remembered_data
from fedmoments.federation.results import fit_heads
from fedmoments.federation.store import FederationStore
from fedmoments.federation.store.journal import journal_of
from fedmoments.federation.terms import Terms
from fedmoments.federation.transparency.heads import LogHead
from fedmoments.federation.transparency.notebook import Noted
from fedmoments.samples.splits.split import Split
from fedmoments.settings.client import ClientSettings
from fedmoments.settings.policy import PolicyRules
from fedmoments.wire import IdentityKey, encode
from fedmoments.wire.withdrawal import DOMAIN, Withdrawal, read_withdrawal

Rng = np.random.Generator
#: Values of a cell that SQLite can hold.
CELLS = [value for value in HOSTILE if isinstance(value, str | float | bytes | None) and "\ud800" not in str(value)]
CELLS += [0, 1, -1, 2**62, b"", b"\x00" * 32, b"x" * 4096]


@cache
def world() -> dict[str, bytes]:
    """Return the files of a federation of which a client left and one was revoked."""
    sent = b""
    with tempfile.TemporaryDirectory() as name:
        room, agreed = Path(name), terms("gram")
        with FederationStore.create(room / "ledger", agreed) as store, Outbox(room / "box") as outbox:
            for place, client in enumerate(("clinic", "lab", "ward")):
                key = IdentityKey.generate()
                store.enrol(client, key.public)
                mine = np.arange(len(Y)) % 3 == place
                stats = fm.Statistics.of(X[mine] / 4, Y[mine], agreed.spec, n_classes=3)

                def make(version: int, stats: Any = stats, client: str = client, key: IdentityKey = key) -> bytes:
                    return encode(stats, store.terms.agreement, client=client, version=version, key=key)

                sent = outbox.prepare(store.terms, client, "source", make)
                outbox.acknowledge(store.submit(sent).to_json())
            store.snapshot(room / "snap")
            store.leave("ward")
            store.revoke("lab")
            heads = [store.show([1])["head"]]
        noted = b"".join(Noted(LogHead.from_json(text)).to_line() for text in heads)
        files = {str(path.relative_to(room)): path.read_bytes() for path in room.rglob("*") if path.is_file()}
        return {**files, "heads.jsonl": noted, "sent": sent}


def laid_out(room: Path) -> Path:
    for name, data in world().items():
        (room / name).parent.mkdir(parents=True, exist_ok=True)
        (room / name).write_bytes(data)
    (room / "again.key").write_bytes(world()["ledger.key"])  # of the ledger that a snapshot is restored to
    for key in room.glob("*.key"):
        key.chmod(0o600)
    return room


def _changed_database(path: Path, rng: Rng) -> None:
    """Change one to three cells of any table, or delete or double a row."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA ignore_check_constraints = 1")
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for _ in range(int(rng.integers(1, 4))):
            table = str(rng.choice(tables))
            columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
            rows = connection.execute(f"SELECT * FROM {table}").fetchall()
            if not rows:
                continue
            row, at = rows[rng.integers(len(rows))], int(rng.integers(len(columns)))
            where = " AND ".join(f"{column} IS ?" for column in columns)
            value: Any = CELLS[rng.integers(len(CELLS))]
            if isinstance(row[at], bytes) and row[at] and rng.integers(2):
                value = changed_bytes(row[at], rng)
            elif isinstance(row[at], str) and row[at].startswith("{") and rng.integers(2):
                value = changed_text(row[at], rng).encode("utf-8", "replace").decode("utf-8", "replace")
            try:
                if rng.integers(5) == 0:
                    connection.execute(f"DELETE FROM {table} WHERE {where}", row)
                else:
                    connection.execute(f"UPDATE {table} SET {columns[at]} = ? WHERE {where}", (value, *row))
            except (sqlite3.IntegrityError, OverflowError):
                continue
        connection.commit()


def use(store: FederationStore, rng: Rng) -> Any:
    """Do with a ledger what its operator does, in any order."""
    deeds: list[Callable[[], Any]] = [
        store.verify,
        store.status,
        store.digest,
        store.enrolled,
        lambda: list(store.audit()),
        lambda: store.show([1], 0),
        lambda: fit_heads(store, ["fed3r"]),
        lambda: list(store.contributions()),
        lambda: store.leave("clinic"),
        lambda: store.submit_many([world()["sent"]]),
    ]
    for place in rng.permutation(len(deeds)):
        deeds[place]()


@parser
def ledgers(rng: Rng) -> Any:
    with tempfile.TemporaryDirectory() as name:
        room = laid_out(Path(name))
        if rng.integers(3):
            _changed_database(room / "ledger", rng)
        else:
            (room / "ledger").write_bytes(changed_bytes(world()["ledger"], rng))
        with FederationStore.open(room / "ledger") as store:
            return use(store, rng)


@parser
def snapshots(rng: Rng) -> Any:
    """A snapshot whose checksum fits: whoever may write the one may write the other."""
    with tempfile.TemporaryDirectory() as name:
        room = laid_out(Path(name))
        if rng.integers(3):
            _changed_database(room / "snap", rng)
        else:
            (room / "snap").write_bytes(changed_bytes(world()["snap"], rng))
        checksum = hashlib.sha256((room / "snap").read_bytes()).hexdigest()
        (room / "snap.sha256").write_text(f"{checksum}  snap\n")
        decided = {"ward": "out"} if rng.integers(2) else {}
        with FederationStore.restore(
            room / "snap", room / "again", journal=room / "ledger.journal", departed=decided
        ) as store:
            return use(store, rng)


@parser
def checksums(rng: Rng) -> Any:
    with tempfile.TemporaryDirectory() as name:
        room = laid_out(Path(name))
        (room / "snap.sha256").write_bytes(changed_bytes(world()["snap.sha256"], rng))
        with FederationStore.restore(
            room / "snap", room / "again", journal=room / "ledger.journal", departed={"ward": "out"}
        ) as store:
            return use(store, rng)


@parser
def journals(rng: Rng) -> Any:
    with tempfile.TemporaryDirectory() as name:
        room = laid_out(Path(name))
        lines = world()["ledger.journal"].split(b"\n")
        at = int(rng.integers(len(lines) - 1))
        how = rng.integers(4)
        if how == 0:
            del lines[at]
        elif how == 1:
            lines[at] = changed_text(lines[at].decode(), rng).encode("utf-8", "surrogatepass")
        elif how == 2:
            lines = [changed_bytes(b"\n".join(lines), rng)]
        else:
            lines.insert(at, lines[int(rng.integers(len(lines)))])
        journal_of(room / "ledger").write_bytes(b"\n".join(lines))
        if rng.integers(2):
            with FederationStore.open(room / "ledger") as store:
                return use(store, rng)
        with FederationStore.restore(
            room / "snap", room / "again", journal=room / "ledger.journal", departed={"ward": "out"}
        ) as store:
            return use(store, rng)


@parser
def outboxes(rng: Rng) -> Any:
    with tempfile.TemporaryDirectory() as name:
        room = laid_out(Path(name))
        if rng.integers(3):
            _changed_database(room / "box" / "outbox.db", rng)
        else:
            (room / "box" / "outbox.db").write_bytes(changed_bytes(world()["box/outbox.db"], rng))
        with Outbox(room / "box") as outbox:
            agreed = _terms_of(room)
            for federation, client in outbox.federations():
                found = (
                    outbox.newest(federation, client),
                    outbox.sources(federation, client),
                    outbox.pending(federation),
                )
                assert found
            outbox.sent(agreed, "clinic")
            return outbox.prepare(agreed, "clinic", "source", lambda _: b"nothing")


@cache
def _agreed() -> str:
    with tempfile.TemporaryDirectory() as name:
        room = laid_out(Path(name))
        with FederationStore.open(room / "ledger") as store:
            return store.terms.to_json()


def _terms_of(_: Path) -> Terms:
    return Terms.from_json(_agreed())


@parser
def notebooks(rng: Rng) -> Any:
    from fedmoments.federation.transparency.notebook import Notebook, compare

    with tempfile.TemporaryDirectory() as name:
        path = Path(name, "heads.jsonl")
        line = changed_text(world()["heads.jsonl"].decode(), rng).encode("utf-8", "surrogatepass")
        path.write_bytes(line + b"\n")
        return compare(Notebook(path).noted())


@parser
def splits(rng: Rng) -> Any:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name, "split")
        Split(np.arange(30) % 3, 3, "by hand").save(path)
        path.write_bytes(_repacked(path.read_bytes(), "split", rng))
        split = Split.load(path)
        return split.n_clients, split.digest()


@cache
def kit() -> Kit:
    """Return a sound kit."""
    with tempfile.TemporaryDirectory() as name:
        root = make_authority(name, ["localhost"]).root.read_text()
    token = base64.urlsafe_b64encode(bytes(range(32))).decode()
    return Kit("clinic", "localhost:9092", "localhost:9093", root, terms("gram"), token, "2030-01-01T00:00:00+00:00")


def resealed(data: bytes) -> bytes:
    """Return a kit with the digest of what it holds: whoever changes it on purpose writes that, too."""
    with suppress(ValueError, RecursionError, FedMomentsError):
        document = json.loads(data)
        if isinstance(document, dict) and document.pop("digest", None) is not None:
            return json.dumps({**document, "digest": sha256_of_json(document)}).encode()
    return data


@parser
def kits(rng: Rng) -> Any:
    data = changed_text(kit().to_bytes().decode(), rng).encode("utf-8", "surrogatepass")
    read = Kit.from_bytes(resealed(data))
    check_stricter(read.policy)
    return read.to_bytes(), statement(read.terms.id, "card")


@parser
def rules_of_kits(rng: Rng) -> Any:
    """Whatever rules a kit proposes, none is looser than the built-in ones."""
    names = list(asdict(PolicyRules()))
    policy = {str(rng.choice(names)): HOSTILE[rng.integers(len(HOSTILE))] for _ in range(int(rng.integers(1, 3)))}
    read = Kit.from_bytes(resealed(replace(kit(), policy={}).to_bytes().replace(b'"policy": {}', _json(policy))))
    rules, own = PolicyRules.from_dict(read.policy), PolicyRules()
    assert rules.min_count >= own.min_count
    assert rules.max_heads <= own.max_heads
    assert (rules.tuning, rules.allow_evaluation, rules.maps) == (own.tuning, own.allow_evaluation, own.maps)
    return rules


def _json(policy: dict[str, Any]) -> bytes:
    return b'"policy": ' + json.dumps(policy).encode("utf-8", "surrogatepass")


@parser
def requests_to_enrol(rng: Rng) -> Any:
    from fedmoments.federation.enrolment.desk import _asked

    body = json.dumps({"token": "x" * 44, "card": CARD, "proof": "00" * 64})
    return _asked(changed_text(body, rng).encode("utf-8", "surrogatepass"))


@parser
def withdrawals(rng: Rng) -> Any:
    key = IdentityKey.generate()
    word = Withdrawal("ab" * 32, "clinic", 1)
    text = DOMAIN + changed_text(json.dumps(asdict(word)), rng).encode("utf-8", "surrogatepass")
    return read_withdrawal(key.sign(text) + text, lambda _: key.public)


@cache
def _amended() -> str:
    key = IdentityKey.generate()
    first = replace(terms("gram"), server=key.public.hex)
    return amend_terms(amend_terms(first, ["yak"], key), ["emu", "gnu"], key).to_json()


@parser
def amended_terms(rng: Rng) -> Any:
    read = Terms.from_json(changed_text(_amended(), rng))
    return [stage.id for stage in read.stages], read.digest


@parser
def memories_of_samples(rng: Rng) -> Any:
    with tempfile.TemporaryDirectory() as name:
        room = Path(name)
        np.savez(room / "own.npz", x_train=X.astype(np.float32), y_train=Y)
        own = ClientSettings(data=f"npz:{room / 'own.npz'}", folder=str(room), name="clinic", key_seed="s")
        remembered_data(own, keep=True)
        digest = json.loads((room / HELD_OUT).read_text())["held_out"][0]
        held = changed_text((room / HELD_OUT).read_text(), rng).encode("utf-8", "surrogatepass")
        (room / (HELD_OUT if rng.integers(2) else FORGOTTEN)).write_bytes(held)
        if rng.integers(2):
            (room / FORGOTTEN).write_bytes(changed_bytes(f"{digest} row 3\n".encode(), rng))
        return remembered_data(own, keep=False)
