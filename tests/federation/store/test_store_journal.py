"""What was promised outlives every copy of the ledger: departures, revocations and releases, whatever is restored."""

import json
import shutil
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmoments.core.maps import Normalize
from fedmoments.core.statistics import FixedPoint, Statistics
from fedmoments.errors import FileFormatError, InputError, LedgerError, PrivacyError, RefusedError
from fedmoments.federation.store import FederationStore
from fedmoments.privacy.protection import Agreed

Federations = Callable[..., Any]


def journal_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.journal")


def put_back(copy: Path, path: Path) -> None:
    """Put an older file in a ledger's place by hand, as somebody does who does not use restore."""
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    shutil.copyfile(copy, path)


@pytest.fixture
def later(federation: Any, tmp_path: Path) -> Path:
    """A ledger of which a snapshot was taken; then c left, d was revoked, and e came."""
    path = tmp_path / "ledger"
    with federation.store(path, "abcde") as store:
        store.submit_many([federation.data(client) for client in "abcd"])
        store.snapshot(tmp_path / "snapshot")
        store.leave("c")
        store.revoke("d")
        store.submit(federation.data("e"))
    return path


def test_a_restore_asks_about_everybody_who_left(federation: Any, later: Path, tmp_path: Path) -> None:
    target = tmp_path / "restored"
    with pytest.raises(LedgerError, match=r"holds what was taken out since: 'c' \(.*--departed NAME=out"):
        FederationStore.restore(tmp_path / "snapshot", target)
    for decisions, words in (({"a": "out"}, "those who left after"), ({"c": "maybe"}, "'out' or 'in'")):
        with pytest.raises(InputError, match=words):
            FederationStore.restore(tmp_path / "snapshot", target, departed=decisions)
    assert not target.exists()
    assert not journal_of(target).exists()
    with FederationStore.restore(tmp_path / "snapshot", target, departed={"c": "out"}) as store:
        assert [entry.client for entry in store.status().contributors] == ["a", "b", "d"]
        with pytest.raises(RefusedError, match="replayed"):
            store.submit(federation.data("c"))
        assert store.verify().whole
        store.submit(federation.data("c", 2))


def test_who_comes_back_is_logged(later: Path, tmp_path: Path) -> None:
    with FederationStore.restore(tmp_path / "snapshot", tmp_path / "restored", departed={"c": "in"}) as store:
        assert [entry.client for entry in store.status().contributors] == ["a", "b", "c", "d"]
        assert list(store.audit())[-1].details["returned"] == ["c"]
        assert store.verify().whole
    assert json.loads(journal_of(later).read_text().splitlines()[-1])["event"] == "restored"


def test_revocations_outlive_a_restore(federation: Any, later: Path, tmp_path: Path) -> None:
    with FederationStore.restore(tmp_path / "snapshot", tmp_path / "restored", departed={"c": "out"}) as store:
        with pytest.raises(RefusedError, match="revoked"):
            store.submit(federation.data("d", 2))
        with pytest.raises(LedgerError, match="was revoked, which is final"):
            store.enrol("d", federation.key("d").public)


def test_a_client_that_was_enrolled_and_revoked_after_the_snapshot_stays_out(federation: Any, tmp_path: Path) -> None:
    with federation.store(tmp_path / "ledger", "a") as store:
        store.snapshot(tmp_path / "snapshot")
        store.enrol("thief", federation.key("thief").public)
        store.revoke("thief")
    with FederationStore.restore(tmp_path / "snapshot", tmp_path / "restored") as store:
        with pytest.raises(LedgerError, match="was revoked, which is final"):
            store.enrol("thief", federation.key("thief").public)
        assert store.verify().whole


def test_an_older_file_that_is_put_back_by_hand_is_not_used(federation: Any, later: Path, tmp_path: Path) -> None:
    put_back(tmp_path / "snapshot", later)
    with FederationStore.open(later) as store:
        for use in (store.statistics, lambda: store.submit(federation.data("e")), lambda: store.leave("a")):
            with pytest.raises(LedgerError, match=r"older than its journal .*left 'c'; .*revoked 'd'"):
                use()
        assert store.status().clients == 4
        assert any("older than its journal" in problem for problem in store.verify().problems)


def test_only_one_of_two_copies_goes_on(federation: Any, later: Path, tmp_path: Path) -> None:
    with FederationStore.restore(tmp_path / "snapshot", tmp_path / "restored", departed={"c": "out"}) as restored:
        restored.leave("a")
        with FederationStore.open(later) as former, pytest.raises(LedgerError, match="restored in its place"):
            former.leave("b")
        assert restored.verify().whole


@pytest.fixture
def noised(federation_of: Federations, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A federation with room for one release."""
    federation = federation_of("gram")
    terms = federation.terms
    fingerprint = replace(terms.fingerprint, feature_map=Normalize())
    agreed = Agreed(epsilon=1.0, delta=1e-5)
    federation.terms = replace(terms, fingerprint=fingerprint, fixed_point=FixedPoint(1.0, 10**6), privacy=agreed)

    def statistics(content: int, samples: int = 12) -> Statistics:
        rng = np.random.default_rng([content, samples])
        X = rng.normal(size=(samples, 8))
        X /= np.linalg.norm(X, axis=1, keepdims=True)
        stats = Statistics.of(X, rng.integers(5, size=samples), federation.terms.spec, n_classes=5)
        return stats.quantized(federation.terms.fixed_point)

    monkeypatch.setattr(federation, "statistics", statistics)
    return federation


def fill(federation: Any, store: FederationStore, clients: str) -> None:
    store.submit_many([federation.data(client) for client in clients])


def test_a_spent_budget_never_comes_back(noised: Any, tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    with noised.store(path, "abcd") as store:
        fill(noised, store, "ab")
        store.snapshot(tmp_path / "snapshot")
        store.release()
        spent = store.status().spent
        assert spent is not None
        assert spent["releases"] == 1
    with FederationStore.restore(tmp_path / "snapshot", tmp_path / "restored") as restored:
        again = restored.status().spent
        assert again is not None
        assert (again["epsilon"], again["releases"]) == (spent["epsilon"], 1)
        with pytest.raises(PrivacyError, match="was agreed on and 1 release"):
            restored.release()
        assert restored.verify().whole


def test_a_journal_that_was_deleted_closes_the_budget_and_is_noticed(noised: Any, tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    with noised.store(path, "abcd") as store:
        fill(noised, store, "a")
        store.snapshot(tmp_path / "snapshot")
        store.release()
        last = store.submit(noised.data("b"))
    assert last.counter == 1
    journal_of(path).unlink()
    with FederationStore.open(path) as store, pytest.raises(LedgerError, match=r"journal .* is not there"):
        store.release()
    put_back(tmp_path / "snapshot", path)
    with FederationStore.open(path) as store, pytest.raises(LedgerError, match=r"journal .* is not there"):
        store.release()
    with pytest.raises(LedgerError, match="--lost-journal"):
        FederationStore.restore(tmp_path / "snapshot", tmp_path / "restored")
    with FederationStore.restore(tmp_path / "snapshot", tmp_path / "restored", lost_journal=True) as restored:
        with pytest.raises(PrivacyError, match="restored without its journal"):
            restored.release()
        assert restored.verify().whole
        assert list(restored.audit())[-1].details["lost"] is True
        assert restored.submit(noised.data("b")).counter == 1  # the client holds one with 1, for another entry


@pytest.mark.parametrize("damage", ["cut", "changed", "swapped", "foreign"])
def test_a_journal_that_was_changed_is_refused(damage: str, federation: Any, later: Path, tmp_path: Path) -> None:
    place = journal_of(later)
    lines = place.read_text().splitlines(keepends=True)
    assert len(lines) == 2
    changed = {
        "cut": lines[:1],
        "changed": [lines[0].replace('"c', '"a'), lines[1]],
        "swapped": lines[::-1],
        "foreign": [lines[0].replace(federation.terms.id, "ab" * 32), lines[1]],
    }[damage]
    place.write_text("".join(changed))
    with FederationStore.open(later) as store, pytest.raises((LedgerError, FileFormatError), match="journal"):
        store.leave("a")


def test_the_journal_is_its_owners_alone_and_holds_no_numbers(federation: Any, later: Path) -> None:
    assert stat.S_IMODE(journal_of(later).stat().st_mode) == 0o600
    events = [json.loads(line)["event"] for line in journal_of(later).read_text().splitlines()]
    assert events == ["left", "revoked"]


KILLED = """
import os, sys
from fedmoments.federation.store import FederationStore, journal
flush = journal.Journal.flush
def killed(self):
    flush(self)
    os._exit(9)  # between the journal's line and the commit
journal.Journal.flush = killed
store = FederationStore.open(sys.argv[1])
getattr(store, sys.argv[2])(*sys.argv[3:])
"""


@pytest.mark.parametrize("what", [["leave", "a"], ["revoke", "a"]])
def test_what_a_kill_left_undone_is_made_up_for(what: list[str], federation: Any, tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    with federation.store(path, "ab") as store:
        store.submit_many([federation.data(client) for client in "ab"])
    died = subprocess.run([sys.executable, "-c", KILLED, str(path), *what], check=False)
    assert died.returncode == 9
    with closing(sqlite3.connect(path)) as connection:
        assert not connection.execute("SELECT 1 FROM audit WHERE event IN ('left', 'revoked')").fetchall()
    with FederationStore.open(path) as store:
        store.note("anything")
        events = [entry.event for entry in store.audit()]
        assert events[-2:] == ["left" if what[0] == "leave" else "revoked", "note"]
        assert store.verify().whole
        store.leave("b")
    assert len(journal_of(path).read_text().splitlines()) == 2


def test_a_release_that_a_kill_cut_off_is_charged(noised: Any, tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    with noised.store(path, "ab") as store:
        fill(noised, store, "ab")
    assert subprocess.run([sys.executable, "-c", KILLED, str(path), "release"], check=False).returncode == 9
    with FederationStore.open(path) as store:
        with pytest.raises(PrivacyError, match="1 release"):
            store.release()
        store.note("anything")
        spent = store.status().spent
        assert spent is not None
        assert spent["releases"] == 1
        assert store.verify().whole


def test_a_full_disk_writes_no_half_line(federation: Any, tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    with federation.store(path, "ab") as store:
        store.submit_many([federation.data(client) for client in "ab"])
        store.leave("a")
        with journal_of(path).open("ab") as file:
            file.write(b'{"seq": 2, "cut off by a ki')
        store.leave("b")
        assert store.verify().whole
    assert len(journal_of(path).read_text().splitlines()) == 2


def test_an_old_ledgers_journal_is_made_of_its_log(federation: Any, later: Path, tmp_path: Path) -> None:
    journal_of(later).unlink()
    with closing(sqlite3.connect(later, isolation_level=None)) as connection:
        connection.execute("DELETE FROM meta WHERE name IN ('counter', 'journal')")
    with FederationStore.open(later) as store:
        store.note("anything")
        assert store.submit(federation.data("c", 2)).counter == 2
    assert [json.loads(line)["event"] for line in journal_of(later).read_text().splitlines()] == ["left", "revoked"]


def test_a_restore_that_fails_leaves_the_former_ledger_in_use(federation: Any, later: Path, tmp_path: Path) -> None:
    (tmp_path / "taken").write_bytes(b"precious")
    for target, decisions in ((tmp_path / "taken", {"c": "out"}), (tmp_path / "free", {})):
        with pytest.raises(LedgerError):
            FederationStore.restore(tmp_path / "snapshot", target, departed=decisions)
    with FederationStore.open(later) as store:
        store.leave("a")
        assert store.verify().whole
