"""The file: made whole or not at all, recognised, copied and brought back."""

import hashlib
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from fedmoments.errors import FileFormatError, LedgerError
from fedmoments.federation.store import FederationStore


def test_a_ledger_is_never_made_over_another_file(federation: Any, tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    path.write_bytes(b"precious")
    with pytest.raises(LedgerError, match="exists and is not overwritten"):
        FederationStore.create(path, federation.terms)
    assert path.read_bytes() == b"precious"
    path.rename(tmp_path / "ledger-wal")
    with pytest.raises(LedgerError, match="ledger-wal exists"):
        FederationStore.create(path, federation.terms)
    assert [file.name for file in tmp_path.iterdir()] == ["ledger-wal"]
    with pytest.raises(LedgerError, match="cannot be written"):
        FederationStore.create(tmp_path / "no such folder" / "ledger", federation.terms)


def test_the_file_keeps_its_terms_and_its_settings(federation: Any, tmp_path: Path) -> None:
    path = tmp_path / "led ger?#%41"
    with FederationStore.create(path, federation.terms) as store:
        assert store.terms.id == federation.terms.id
        values = {
            name: store._database.connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("journal_mode", "synchronous", "secure_delete", "foreign_keys")
        }
    assert values == {"journal_mode": "wal", "synchronous": 2, "secure_delete": 1, "foreign_keys": 1}
    assert sorted(file.name for file in tmp_path.iterdir()) == [path.name, f"{path.name}.journal", f"{path.name}.key"]
    with FederationStore.open(path) as store:
        assert store.terms == federation.terms
    store.close()
    with pytest.raises(LedgerError, match="was closed"):
        store.digest()


def test_what_is_no_ledger_is_not_opened(federation: Any, tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="there is no ledger"):
        FederationStore.open(tmp_path / "nothing")
    text = tmp_path / "text"
    text.write_text("not a database, but long enough to be read as the header of one " * 100)
    with pytest.raises(FileFormatError, match="is no ledger, or is damaged"):
        FederationStore.open(text)
    other = tmp_path / "other"
    with closing(sqlite3.connect(other)) as connection:
        connection.execute("CREATE TABLE t (x)")
    with pytest.raises(FileFormatError, match="but no ledger"):
        FederationStore.open(other)
    path = tmp_path / "ledger"
    federation.store(path).close()
    for statement, words in (
        ("UPDATE meta SET value = '{}' WHERE name = 'terms'", "not terms of a federation"),
        ("DELETE FROM meta WHERE name = 'terms'", "lacks the terms"),
        ("PRAGMA user_version=5", "tables of version 5, but this release opens version 4"),
    ):
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute(statement)
        with pytest.raises(FileFormatError, match=words):
            FederationStore.open(path)


def test_looking_at_a_snapshot_does_not_change_it(federation: Any, store: FederationStore, tmp_path: Path) -> None:
    """`ledger verify` and `status` of a snapshot wrote into it: its checksum was wrong, and it was not restored."""
    store.submit(federation.data("a"))
    snapshot = tmp_path / "snapshot"
    store.snapshot(snapshot)
    before, names = snapshot.read_bytes(), {file.name for file in tmp_path.iterdir()}
    with FederationStore.open(snapshot) as copy:
        assert copy.verify().whole
        assert copy.status().clients == 1
        with pytest.raises(LedgerError, match="or is a snapshot"):
            copy.submit(federation.data("b"))
    assert snapshot.read_bytes() == before
    assert {file.name for file in tmp_path.iterdir()} == names
    store.close()
    tmp_path.joinpath("ledger.sha256").write_text("a checksum of somebody's own")
    with FederationStore.open(tmp_path / "ledger") as live:  # a ledger is no snapshot, whatever lies beside it
        live.submit(federation.data("b"))


def test_a_snapshot_is_one_sound_file_that_can_be_restored(
    federation: Any, store: FederationStore, tmp_path: Path
) -> None:
    first = store.submit(federation.data("a"))
    store.submit(federation.data("b"))
    state, head = store.digest(), store.verify().head
    snapshot = tmp_path / "snapshot"
    checksum = store.snapshot(snapshot)
    assert hashlib.sha256(snapshot.read_bytes()).hexdigest() == checksum
    subprocess.run(["sha256sum", "--check", "--quiet", "snapshot.sha256"], cwd=tmp_path, check=True)
    entry = list(store.audit())[-1]
    assert entry.event == "snapshot"
    assert entry.details == {
        "file": "snapshot",
        "checksum": checksum,
        "bytes": snapshot.stat().st_size,
        "head": head,
    }
    later = store.submit(federation.data("c"))
    names = {file.name for file in tmp_path.iterdir()}
    assert names == {
        "ledger",
        "ledger-wal",
        "ledger-shm",
        "ledger.journal",
        "ledger.key",
        "snapshot",
        "snapshot.sha256",
    }
    with FederationStore.restore(snapshot, tmp_path / "restored") as restored:
        assert restored.digest() == state
        assert list(restored.audit())[-1].event == "restored"
        assert restored.verify(expect=first.chain).whole
        assert restored.verify(expect=head).whole
        assert not restored.verify(expect=later.chain).whole
        assert restored.submit(federation.data("a")).to_json() == first.to_json()
        restored.submit(federation.data("c"))
        assert restored.digest() == store.digest()
    assert {file.name for file in tmp_path.iterdir()} == {*names, "restored", "restored.journal", "restored.key"}


def test_a_snapshot_holds_one_moment_while_others_write(federation: Any, tmp_path: Path) -> None:
    clients = [f"c{number}" for number in range(30)]
    with federation.store(tmp_path / "ledger", clients) as store, FederationStore.open(tmp_path / "ledger") as other:
        for number, client in enumerate(clients):
            other.submit(federation.data(client))
            if number % 10 == 5:
                store.snapshot(tmp_path / f"snapshot {number}")
    for number in (5, 15, 25):
        with FederationStore.restore(tmp_path / f"snapshot {number}", tmp_path / f"back {number}") as back:
            assert back.status().clients == number + 1


def test_nothing_is_overwritten_by_snapshots(federation: Any, store: FederationStore, tmp_path: Path) -> None:
    store.submit(federation.data("a"))
    snapshot = tmp_path / "snapshot"
    store.snapshot(snapshot)
    before = snapshot.read_bytes()
    for path in (snapshot, tmp_path / "ledger"):
        with pytest.raises(LedgerError, match="exists and is not overwritten"):
            store.snapshot(path)
        with pytest.raises(LedgerError, match="exists and is not overwritten"):
            FederationStore.restore(snapshot, path)
    with pytest.raises(LedgerError, match="cannot be written"):
        store.snapshot(tmp_path / "no such folder" / "snapshot")
    assert snapshot.read_bytes() == before
    assert store.verify().whole


def test_a_damaged_snapshot_is_not_restored(federation: Any, store: FederationStore, tmp_path: Path) -> None:
    store.submit(federation.data("a"))
    snapshot, target = tmp_path / "snapshot", tmp_path / "restored"
    checksum_file = tmp_path / "snapshot.sha256"
    store.snapshot(snapshot)
    sound, noted = snapshot.read_bytes(), checksum_file.read_text()

    def refused(words: str, kind: type[Exception] = FileFormatError) -> None:
        with pytest.raises(kind, match=words):
            FederationStore.restore(snapshot, target)
        assert not [file for file in tmp_path.iterdir() if "restored" in file.name]

    damaged = bytearray(sound)
    damaged[len(damaged) // 2] ^= 1
    snapshot.write_bytes(damaged)
    refused("is damaged: its SHA-256 is")
    snapshot.write_bytes(sound[:-4096])
    checksum_file.write_text(hashlib.sha256(sound[:-4096]).hexdigest())
    refused("damaged")
    snapshot.write_bytes(sound)
    with closing(sqlite3.connect(snapshot)) as connection:
        connection.execute("UPDATE totals SET data = zeroblob(length(data))")
        connection.commit()
    checksum_file.write_text(hashlib.sha256(snapshot.read_bytes()).hexdigest())
    refused("does not hold a valid ledger: the running sum")
    checksum_file.unlink()
    refused("lacks its checksum")
    snapshot.unlink()
    refused("there is no snapshot", LedgerError)
    snapshot.write_bytes(sound)
    checksum_file.write_text(noted)
    FederationStore.restore(snapshot, target).close()
