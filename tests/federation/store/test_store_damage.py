"""Damage is noticed before it is used: no bit of what is fitted, taken out or answered with flips in silence."""

import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmoments.errors import FedMomentsError, LedgerError
from fedmoments.federation.store import FederationStore
from fedmoments.federation.store.tree import subtree_of
from fedmoments.federation.transparency.merkle import root_of

Federations = Callable[..., Any]


def flip(path: Path, table: str, column: str, where: str, rng: np.random.Generator) -> None:
    """Flip one bit of a blob behind the ledger's back, as a failing disk does."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        query = f"SELECT {column} FROM {table} WHERE {where} LIMIT 1"
        data = bytearray(connection.execute(query).fetchone()[0])
        bit = int(rng.integers(8 * len(data)))
        data[bit // 8] ^= 1 << bit % 8
        connection.execute(f"UPDATE {table} SET {column} = ? WHERE {where}", (bytes(data),))


def test_no_flipped_bit_of_a_running_sum_is_fitted_or_built_upon(federation: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    with federation.store(tmp_path / "ledger", "abc") as store:
        store.submit_many([federation.data(client) for client in "ab"])
        store.snapshot(tmp_path / "sound")
    silent = []
    for trial in range(30):
        moment = ("sums", "gram", "counts")[trial % 3]
        path = tmp_path / f"ledger {trial}"
        for file in tmp_path.glob("ledger*"):
            if " " not in file.name:
                shutil.copyfile(file, tmp_path / file.name.replace("ledger", path.name))
        with closing(sqlite3.connect(path)) as connection:
            query = "SELECT label FROM totals WHERE moment = ? ORDER BY label"
            label = [row[0] for row in connection.execute(query, (moment,))][-1]
        flip(path, "totals", "data", f"moment = '{moment}' AND label = {label}", rng)
        with FederationStore.open(path) as damaged:
            uses: dict[str, Callable[[], object]] = {
                "fitting": damaged.statistics,
                "leaving": lambda damaged=damaged: [damaged.leave(client) for client in "ab"],  # type: ignore[misc]
            }
            for name, use in uses.items():
                try:
                    use()
                except LedgerError as error:
                    if "is not what was written" in str(error):
                        continue
                silent.append((trial, moment, name))
    assert silent == []


@pytest.mark.parametrize(
    "statement", ["DELETE FROM totals", "DELETE FROM sum_digests", "UPDATE sum_digests SET digest=x''"]
)
def test_a_sum_that_is_lost_or_has_no_digest_is_not_fitted_from(
    statement: str, federation: Any, store: FederationStore
) -> None:
    store.submit(federation.data("a"))
    with closing(sqlite3.connect(store.path, isolation_level=None)) as connection:
        connection.execute(f"{statement} WHERE moment = 'gram'")
    with pytest.raises(LedgerError, match="the ledger is damaged, and nothing is computed from it"):
        store.statistics()
    assert not store.verify().whole


def test_a_flipped_bit_of_a_contribution_stops_leaving_and_fitting(federation: Any, store: FederationStore) -> None:
    rng = np.random.default_rng(6)
    store.submit_many([federation.data(client) for client in "ab"])
    with closing(sqlite3.connect(store.path)) as connection:
        sound = connection.execute("SELECT data FROM payloads WHERE client = 'a'").fetchone()[0]
    for _ in range(20):
        flip(store.path, "payloads", "data", "client = 'a'", rng)
        for use in (lambda: store.leave("a"), store.statistics, lambda: list(store.contributions())):
            with pytest.raises(FedMomentsError, match="contribution of client 'a'"):
                use()
        with closing(sqlite3.connect(store.path, isolation_level=None)) as connection:
            connection.execute("UPDATE payloads SET data = ? WHERE client = 'a'", (sound,))
    store.leave("a")
    assert store.verify().whole


def test_a_receipt_is_not_given_from_an_entry_that_changed(federation: Any, store: FederationStore) -> None:
    receipt = store.submit(federation.data("a"))
    with closing(sqlite3.connect(store.path, isolation_level=None)) as connection:
        connection.execute("UPDATE audit SET time = '2000' WHERE seq = ?", (receipt.seq,))
    with pytest.raises(LedgerError, match=f"entry {receipt.seq} of the log"):
        store.submit(federation.data("a"))
    with closing(sqlite3.connect(store.path, isolation_level=None)) as connection:
        connection.execute("UPDATE meta SET value = 'x' WHERE name = 'head'")
    with pytest.raises(LedgerError, match="noted as its head"):
        store.submit(federation.data("b"))


# -------------------------------------------------------------------------------------------------- older ledgers


def as_of_version_2(path: Path) -> None:
    """Make of a ledger what the release before this one would have written."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.executescript(
            "DROP TABLE sum_digests; DROP TABLE payload_digests; DROP TABLE tree; PRAGMA user_version=2"
        )
        connection.execute("DELETE FROM meta WHERE name NOT IN ('terms', 'head', 'accountant', 'cohorts')")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    path.with_name(f"{path.name}.journal").unlink(missing_ok=True)


@pytest.fixture
def old(federation: Any, tmp_path: Path) -> Path:
    path = tmp_path / "old"
    with federation.store(path, "abcd") as store:
        store.submit_many([federation.data(client) for client in "abc"])
        store.leave("c")
        store.revoke("d")
    as_of_version_2(path)
    return path


def test_a_ledger_of_the_first_build_is_brought_up(federation: Any, old: Path) -> None:
    for _ in range(2):
        with FederationStore.open(old) as store:
            assert store.verify().whole
            entries = list(store.audit())
            with store._database.reading() as connection:
                root = root_of(subtree_of(connection), len(entries))
            assert len(root) == 32
            assert store.submit(federation.data("a")).seq <= len(entries)
    with FederationStore.open(old) as store:
        store.leave("a")
        assert store.verify().whole


def test_a_sum_that_was_damaged_in_the_first_build_is_found_when_it_is_used(federation: Any, old: Path) -> None:
    flip(old, "totals", "data", "moment = 'gram'", np.random.default_rng(7))
    with FederationStore.open(old) as store:
        with pytest.raises(LedgerError, match="running sum of 'gram'"):
            store.statistics()
        assert not store.verify().whole


def test_an_old_ledger_with_a_damaged_contribution_opens_and_says_so(federation: Any, old: Path) -> None:
    flip(old, "payloads", "data", "client = 'a'", np.random.default_rng(8))
    with FederationStore.open(old) as store:
        with pytest.raises(LedgerError):
            store.statistics()
        assert any("client 'a'" in problem for problem in store.verify().problems)


# -------------------------------------------------------------------------------------------------- read-only media


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("a disk that is read-only takes the right to mount one")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize("kind", ["closed", "killed", "first build", "snapshot"])
def test_a_ledger_on_read_only_media_can_be_audited(kind: str, federation: Any, disk: Path, tmp_path: Path) -> None:
    path = disk / "ledger"
    store = federation.store(tmp_path / "ledger", "abc")
    store.submit_many([federation.data(client) for client in "ab"])
    state, head = store.digest(), store.status().head
    if kind == "snapshot":
        store.snapshot(tmp_path / "copy")
    if kind != "killed":
        store.close()
    if kind == "first build":
        as_of_version_2(tmp_path / "ledger")
    source = "copy" if kind == "snapshot" else "ledger"
    for file in tmp_path.glob(f"{source}*"):
        if file.is_file():
            shutil.copyfile(file, disk / file.name.replace(source, "ledger"))
    store.close()
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    before = {file.name: file.read_bytes() for file in disk.iterdir()}
    with FederationStore.open(path) as audited:
        assert audited.verify(expect=head).whole
        assert (audited.digest(), audited.status().clients) == (state, 2)
        with pytest.raises(LedgerError, match="lies where nothing can be written"):
            audited.leave("a")
    assert {file.name: file.read_bytes() for file in disk.iterdir()} == before
