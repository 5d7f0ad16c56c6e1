"""The small rows beside the tables: verify names every one that was changed, and a snapshot names no paths."""

import hashlib
import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.federation.store.test_store_masked import CLIENTS, World

from fedmoments.errors import FedMomentsError, FileFormatError, LedgerError
from fedmoments.federation.store import FederationStore
from fedmoments.federation.store.journal import journal_of
from fedmoments.federation.store.showing import key_of_ledger
from fedmoments.wire import encode


def _masked(path: Path) -> None:
    """A ledger of masked reports of which one batch was given up, and one client left since."""
    world = World()
    with FederationStore.create(path, world.terms) as store:
        store.enrol_many((name, key.public, None) for name, key in world.keys.items())
        store.report_many([world.report(name) for name in CLIENTS])
        batch = store.open_batch([each.report for each in store.waiting()], {"why": "test"})
        store.leave(batch.name)
        store.cohort_draw()


def _noised(path: Path) -> None:
    """A ledger of which something was released, with a snapshot beside it."""
    world = World(epsilon=2.0)
    terms = replace(world.terms, privacy=replace(world.terms.privacy, secure=None, helper="", batch=3))
    with FederationStore.create(path, terms) as store:
        store.enrol_many((name, key.public, None) for name, key in world.keys.items())
        for name in "ab":
            store.submit(encode(world.stats[name], terms.agreement, client=name, version=1, key=world.keys[name]))
        store.release()
        store.leave("a")
        store.snapshot(path.with_name("snapshot"))


def _closed(path: Path) -> None:
    """A ledger that was restored without its journal."""
    _noised(path.with_name("former"))
    journal_of(path.with_name("former")).unlink()
    FederationStore.restore(path.with_name("snapshot"), path, lost_journal=True).close()


LEDGERS: dict[str, Callable[[Path], None]] = {"masked": _masked, "noised": _noised, "closed": _closed}


def _rows(path: Path) -> dict[str, str]:
    with closing(sqlite3.connect(path)) as connection:
        return dict(connection.execute("SELECT name, value FROM meta").fetchall())


def _changes(value: str) -> Iterator[str | None]:
    """Yield what a row may hold instead; None: it is gone."""
    flipped = value[:-1] + chr(ord(value[-1]) ^ 1) if value else "1"
    yield from (new for new in ("x", "", "0", "null", "[]", value + " ", flipped, None) if new != value)


@pytest.mark.parametrize("kind", LEDGERS)
def test_verify_names_every_small_row_that_was_changed(kind: str, tmp_path: Path) -> None:
    (tmp_path / "sound").mkdir()
    path = tmp_path / "sound" / "ledger"
    LEDGERS[kind](path)
    with FederationStore.open(path) as store:
        assert store.verify().problems == ()
    silent, n_tried = [], 0
    trials = [(name, new) for name, value in _rows(path).items() for new in _changes(value)]
    for number, (name, new) in enumerate([*trials, ("redoing", ""), ("home", "/etc/x"), ("else", "x")]):
        copy = tmp_path / str(number) / "ledger"
        shutil.copytree(path.parent, copy.parent)
        with closing(sqlite3.connect(copy, isolation_level=None)) as connection:
            connection.execute("DELETE FROM meta WHERE name = ?", (name,))
            if new is not None:
                connection.execute("INSERT INTO meta VALUES (?, ?)", (name, new))
        n_tried += 1
        try:
            with FederationStore.open(copy) as store:
                if store.verify().whole:
                    silent.append((name, new))
        except FedMomentsError:  # it does not even open, and says why
            continue
    assert n_tried > 50
    assert silent == []


def test_the_sentence_says_which_row_and_what_the_log_says(tmp_path: Path) -> None:
    _noised(tmp_path / "ledger")
    with closing(sqlite3.connect(tmp_path / "ledger", isolation_level=None)) as connection:
        connection.execute("UPDATE meta SET value = ? WHERE name = 'server_key'", ("ab" * 32,))
        connection.execute("INSERT INTO meta VALUES ('closed', '')")
    with FederationStore.open(tmp_path / "ledger") as store:
        problems = store.verify().problems
    assert any(problem.startswith("the note 'server_key' is 'abab") for problem in problems)
    assert any("by the log the ledger was never restored without its journal" in problem for problem in problems)


def test_a_ledger_in_which_the_digest_of_the_departed_is_missing_takes_nobody_in(
    federation: Any, store: FederationStore
) -> None:
    store.submit(federation.data("a"))
    store.leave("a")
    with closing(sqlite3.connect(store.path, isolation_level=None)) as connection:
        connection.execute("DELETE FROM meta WHERE name = 'departures'")
        connection.execute("DELETE FROM departures")
    with pytest.raises(LedgerError, match="who left is not what was written"):
        store.submit(federation.data("a"))


# -------------------------------------------------------------------------------------------------- paths


def _claim_home(snapshot: Path, home: Path) -> None:
    """Make a snapshot of version 3 that says where its ledger was, with a checksum that is right."""
    with closing(sqlite3.connect(snapshot, isolation_level=None)) as connection:
        connection.execute("INSERT OR REPLACE INTO meta VALUES ('home', ?)", (str(home),))
        connection.execute("PRAGMA user_version=3")
    checksum = hashlib.sha256(snapshot.read_bytes()).hexdigest()
    snapshot.with_name(f"{snapshot.name}.sha256").write_text(f"{checksum}  {snapshot.name}\n")


def test_a_snapshot_tells_nobody_where_its_ledger_was(federation: Any, store: FederationStore, tmp_path: Path) -> None:
    store.submit(federation.data("a"))
    store.snapshot(tmp_path / "snapshot")
    assert str(tmp_path).encode() not in (tmp_path / "snapshot").read_bytes()


def test_no_path_in_a_snapshot_is_followed(federation: Any, tmp_path: Path) -> None:
    """Before, a journal and a private key at any path that a snapshot named were read, and linked beside the ledger."""
    for name in ("theirs", "ours"):
        (tmp_path / name).mkdir()
    with federation.store(tmp_path / "theirs" / "ledger", "ab") as store:
        store.submit_many([federation.data(client) for client in "ab"])
        store.snapshot(tmp_path / "ours" / "snapshot")
        store.leave("a")
    snapshot, target = tmp_path / "ours" / "snapshot", tmp_path / "ours" / "restored"
    _claim_home(snapshot, tmp_path / "theirs" / "ledger")
    with pytest.raises(LedgerError, match="--journal FILE"):
        FederationStore.restore(snapshot, target)
    assert {file.name for file in target.parent.iterdir()} == {"snapshot", "snapshot.sha256"}
    given = journal_of(tmp_path / "theirs" / "ledger")  # what the operator says is followed
    with FederationStore.restore(snapshot, target, journal=given, departed={"a": "out"}) as store:
        assert store.status().clients == 1
        assert store.verify().whole
        assert "home" not in _rows(target)


def test_a_restore_takes_the_journal_of_its_federation_only(
    federation: Any, federation_of: Callable[..., Any], tmp_path: Path
) -> None:
    other = federation_of("gram")
    with other.store(tmp_path / "other", "a") as store:
        store.submit(other.data("a"))
    with federation.store(tmp_path / "ledger", "ab") as store:
        store.snapshot(tmp_path / "snapshot")
    with FederationStore.restore(tmp_path / "snapshot", tmp_path / "restored") as store:
        assert store.verify().whole
    assert journal_of(tmp_path / "restored").samefile(journal_of(tmp_path / "ledger"))
    assert key_of_ledger(tmp_path / "restored").samefile(key_of_ledger(tmp_path / "ledger"))


def test_two_journals_that_go_on_are_a_question(federation: Any, tmp_path: Path) -> None:
    with federation.store(tmp_path / "ledger", "ab") as store:
        store.submit_many([federation.data(client) for client in "ab"])
        store.leave("b")
        store.snapshot(tmp_path / "snapshot")
        shutil.copyfile(journal_of(store.path), tmp_path / "old copy.journal")
        store.leave("a")
    with pytest.raises(LedgerError, match="say with '--journal FILE' which one"):
        FederationStore.restore(tmp_path / "snapshot", tmp_path / "restored")
    given = journal_of(tmp_path / "ledger")
    with pytest.raises(LedgerError, match="'a'"):
        FederationStore.restore(tmp_path / "snapshot", tmp_path / "restored", journal=given)


def test_a_key_that_is_not_the_ledgers_does_not_come_to_sign(federation: Any, tmp_path: Path) -> None:
    with federation.store(tmp_path / "ledger", "a") as store:
        store.snapshot(tmp_path / "snapshot")
    key_of_ledger(tmp_path / "ledger").unlink()
    with federation.store(tmp_path / "another", "a"):
        pass
    with pytest.raises(LedgerError, match="journal of the ledger is not at"):
        FederationStore.restore(tmp_path / "snapshot", tmp_path / "restored")
    with (
        FederationStore.restore(tmp_path / "snapshot", tmp_path / "restored", lost_journal=True) as store,
        pytest.raises(LedgerError, match="which signs receipts"),
    ):
        store.signing_key  # noqa: B018


def test_a_damaged_note_of_attempts_is_told_in_words(tmp_path: Path) -> None:
    _masked(tmp_path / "ledger")
    assert json.loads(_rows(tmp_path / "ledger")["attempts"])["attempt"] == 1
    with closing(sqlite3.connect(tmp_path / "ledger", isolation_level=None)) as connection:
        connection.execute("UPDATE meta SET value = '[]' WHERE name = 'attempts'")
    with pytest.raises(FileFormatError, match="noted of attempts is damaged"):
        FederationStore.open(tmp_path / "ledger")
