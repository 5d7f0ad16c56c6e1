"""The log: whole, replayable, bounded; and every change behind the ledger's back is found."""

import dataclasses
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from fedmoments.errors import FileFormatError, InputError, RefusedError
from fedmoments.federation.store import FederationStore, Receipt, refusals
from fedmoments.wire import IdentityKey

Tamper = Callable[[sqlite3.Connection], object]


def tampered(store: FederationStore, change: Tamper) -> None:
    """Change the file as somebody would who does not use the store; rules of the schema do not hold him up."""
    with closing(sqlite3.connect(store.path, isolation_level=None)) as connection:
        connection.execute("PRAGMA foreign_keys=OFF")
        change(connection)


def flip(table: str, column: str, where: str) -> Tamper:
    """Return what flips one bit in the middle of a blob."""

    def change(connection: sqlite3.Connection) -> None:
        rowid, data = connection.execute(f"SELECT rowid, {column} FROM {table} WHERE {where}").fetchone()
        place = len(data) // 2
        changed = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
        connection.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (changed, rowid))

    return change


def sql(*statements: str) -> Tamper:
    return lambda connection: [connection.execute(statement) for statement in statements]


@pytest.fixture
def history(federation: Any, store: FederationStore) -> FederationStore:
    """A store with something of everything: a and b are in, c left, d conflicted, e was refused."""
    store.submit_many([federation.data(client) for client in "abcd"], source="node 1")
    store.submit(federation.data("b", 2, content=7))
    store.leave("c")
    store.submit_many([federation.data("d", 1, content=8), federation.data("e")])
    store.revoke("d")
    store.note("round closed", number=1, clients=["a", "b"])
    return store


def test_the_log_tells_everything_and_verifies(history: FederationStore) -> None:
    entries = list(history.audit())
    assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
    assert [entry.event for entry in entries] == [
        "created",
        *["enrolled"] * 4,
        *["joined"] * 4,
        "replaced",
        "left",
        "quarantined",
        *["refused"] * 2,
        "revoked",
        "note",
    ]
    assert entries[0].previous == history.terms.id
    assert entries[-1].details == {"note": "round closed", "number": 1, "clients": ["a", "b"]}
    found = history.verify()
    assert found.whole
    assert found.problems == ()
    assert (found.entries, found.clients, found.head) == (len(entries), 3, entries[-1].hash)


@pytest.mark.parametrize(
    ("change", "part", "words"),
    [
        (flip("totals", "data", "moment = 'sums'"), "replay", "running sum of 'sums' for label"),
        (flip("totals", "data", "moment = 'gram'"), "replay", "running sum of 'gram' for label -1"),
        (flip("totals", "data", "moment = 'counts'"), "replay", "running sum of 'counts'"),
        (sql("DELETE FROM totals WHERE moment = 'sums'"), "replay", "running sum of 'sums' .* is missing"),
        (sql("INSERT INTO totals VALUES ('sums', 99, x'00')"), "replay", "label 99"),
        (flip("payloads", "data", "client = 'a'"), "replay", "contribution of client 'a'"),
        (sql("UPDATE payloads SET data = substr(data, 1, 250)"), "replay", "contribution of client 'a' is damaged"),
        (
            sql(
                "CREATE TABLE t AS SELECT * FROM payloads WHERE client IN ('a', 'b')",
                "UPDATE payloads SET data = (SELECT data FROM t WHERE client = 'b') WHERE client = 'a'",
                "UPDATE payloads SET data = (SELECT data FROM t WHERE client = 'a') WHERE client = 'b'",
            ),
            "replay",
            "client 'a' is not the one of version 1",
        ),
        (sql("DELETE FROM payloads WHERE client = 'a'"), "replay", "contribution of client 'a' is not in"),
        (sql("DELETE FROM contributions WHERE client = 'a'"), "replay", "contribution of client 'a' is absent"),
        (sql("UPDATE contributions SET samples = samples + 1"), "replay", "what is noted of the contribution"),
        (sql("UPDATE contributions SET version = 9 WHERE client = 'a'"), "replay", "client 'a'"),
        (sql("UPDATE departures SET version = 0"), "replay", "departure of client 'c'"),
        (sql("DELETE FROM departures"), "replay", "departure of client 'c' is absent"),
        (sql("UPDATE clients SET status = 'enrolled'"), "replay", "enrolment of client 'd'"),
        (sql("UPDATE clients SET key = zeroblob(32) WHERE client = 'a'"), "replay", "enrolment of client 'a'"),
        (
            sql("UPDATE audit SET facts = replace(facts, '12', '13') WHERE seq = 6"),
            "chain",
            "entry 6 .joined. does not",
        ),
        (sql("UPDATE audit SET time = '2000' WHERE seq = 1"), "chain", "entry 1 .created. does not have the hash"),
        (sql("UPDATE audit SET facts = '{' WHERE seq = 6"), "chain", "entry 6 .joined. cannot be understood"),
        (sql("UPDATE audit SET hash = 'x' WHERE seq = 8"), "chain", "entry 9 does not follow"),
        (sql("DELETE FROM audit WHERE seq = 8"), "chain", "entry 8 is missing"),
        (sql("DELETE FROM audit WHERE seq = 1"), "chain", "entry 1 is missing"),
        (sql("DELETE FROM audit WHERE seq > 14"), "chain", "its end is missing"),
        (
            sql(
                "UPDATE audit SET seq = -1 WHERE seq = 6",
                "UPDATE audit SET seq = 6 WHERE seq = 7",
                "UPDATE audit SET seq = 7 WHERE seq = -1",
            ),
            "chain",
            "entry 6 does not follow",
        ),
        (sql("UPDATE meta SET value = 'x' WHERE name = 'head'"), "chain", "was noted as its head"),
        (sql("DELETE FROM meta WHERE name = 'head'"), "chain", "was noted as its head"),
    ],
)
def test_verify_finds_every_change(history: FederationStore, change: Tamper, part: str, words: str) -> None:
    tampered(history, change)
    found = history.verify()
    assert not found.whole
    assert not (found.chain_whole if part == "chain" else found.replay_equal)
    assert any(re.search(words, problem) for problem in found.problems), found.problems


def test_a_log_that_was_cut_consistently_is_known_by_a_receipt(federation: Any, history: FederationStore) -> None:
    receipt = history.submit(federation.data("b", 3))
    history.note("later")
    head = history.verify().head
    assert history.verify(expect=head).whole
    cut = sql(
        f"DELETE FROM audit WHERE seq > {receipt.seq}",
        f"DELETE FROM tree WHERE (place + 1) << level > {receipt.seq}",
        f"UPDATE meta SET value = '{receipt.chain}' WHERE name = 'head'",
    )
    tampered(history, cut)
    assert history.verify().whole
    assert history.verify(expect=receipt.chain).whole
    found = history.verify(expect=head)
    assert not found.chain_whole
    assert head in found.problems[0]


@pytest.mark.parametrize("table", ["audit", "payloads", "totals"])
def test_a_damaged_page_is_a_finding_and_no_crash(table: str, federation: Any, tmp_path: Path) -> None:
    path = tmp_path / "other"
    with federation.store(path, "ab") as store:
        store.submit(federation.data("a"))
    with closing(sqlite3.connect(path)) as connection:
        query = "SELECT rootpage FROM sqlite_master WHERE name = ?"
        page = connection.execute(query, (table,)).fetchone()[0]
    with path.open("r+b") as file:
        file.seek((page - 1) * 4096)
        file.write(b"\xff" * 64)
    with FederationStore.open(path) as store:
        found = store.verify()
        assert not found.whole
        assert "the file is damaged" in found.problems[0]


def test_notes_cannot_pass_for_other_events(store: FederationStore) -> None:
    entry = store.note("joined", client="a", version=1)
    assert entry.event == "note"
    assert store.verify().whole
    with pytest.raises(InputError, match="called 'note'"):
        store.note("x", note="y")
    with pytest.raises(InputError, match="at most"):
        store.note("x", text="y" * 100_000)
    with pytest.raises(InputError, match="JSON"):
        store.note("x", value=float("nan"))
    assert store.verify().entries == entry.seq


def refuse(store: FederationStore, data: bytes, source: str) -> None:
    with pytest.raises(RefusedError):
        store.submit(data, source=source)


def refused(store: FederationStore) -> list[dict[str, Any]]:
    return [entry.details for entry in store.audit() if entry.event == "refused"]


def test_the_same_refusal_is_logged_once_a_minute(
    federation: Any, store: FederationStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1e9
    monkeypatch.setattr("time.time", lambda: now)
    for _ in range(20):
        refuse(store, b"rubbish", "node 1")
    refuse(store, b"rubbish", "node 2")
    stranger = federation.data("stranger")
    for name in ("stranger", "other", "third"):
        refuse(store, federation.data(name), "node 1")  # names that are not enrolled are not told apart
    assert [(facts["reason"], facts["source"], facts["times"]) for facts in refused(store)] == [
        ("truncated", "node 1", 1),
        ("truncated", "node 2", 1),
        ("unknown-client", "node 1", 1),
    ]
    now += 61
    refuse(store, b"rubbish", "node 1")
    assert refused(store)[-1] == {
        "reason": "truncated",
        "sentence": refused(store)[0]["sentence"],
        "source": "node 1",
        "bytes": 7,
        "times": 21,
    }
    now -= 10_000  # a clock that was put back does not silence the log
    refuse(store, stranger, "node 1")
    assert refused(store)[-1]["times"] == 4
    store.submit(federation.data("a", 2))
    refuse(store, federation.data("a", 1), "node 1")
    refuse(store, federation.data("a", 2, content=99), "node 1")
    assert [facts.get("client") for facts in refused(store)][-2:] == ["a", "a"]
    status = store.status()
    assert status.refused == 20 + 1 + 3 + 1 + 1 + 1 + 1
    assert [entry.details["reason"] for entry in status.last_refusals][:2] == ["conflict", "replayed"]
    assert store.verify().whole


def test_refusals_cannot_fill_the_log(store: FederationStore, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter(range(10**6))
    monkeypatch.setattr("time.time", lambda: 1e9 + 100.0 * next(ticks))
    monkeypatch.setattr(refusals, "ENTRIES_PER_SOURCE", 5)
    monkeypatch.setattr(refusals, "MOST_COUNTERS", 3)
    for number in range(20):
        refuse(store, b"rubbish" * number, "node 1")
    assert len(refused(store)) == 5
    for number in range(20):
        refuse(store, b"rubbish", f"made up {number}")
    sources = [facts["source"] for facts in refused(store)]
    assert sources == ["node 1"] * 5 + ["made up 0", "made up 1"] + ["others"] * 5
    assert store.status().refused == 40
    with closing(sqlite3.connect(store.path)) as connection:
        assert connection.execute("SELECT count(*) FROM refusals").fetchone()[0] == 4


def test_the_quarantine_is_bounded(federation: Any, store: FederationStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.submit(federation.data("a"))
    size = len(federation.data("a", content=1, samples=30))
    monkeypatch.setattr(refusals, "MOST_QUARANTINED", 3)
    for number in range(5):
        refuse(store, federation.data("a", content=number), "node 1")
    assert store.status().quarantined == 3
    entries = [entry.details for entry in store.audit() if entry.event == "quarantined"]
    assert [len(facts["dropped"]) for facts in entries] == [0, 0, 0, 1, 1]
    assert entries[3]["dropped"] == [entries[0]["digest"]]
    monkeypatch.setattr(refusals, "QUARANTINE_BYTES", 2 * size)
    refuse(store, federation.data("a", content=1, samples=31), "node 1")
    assert store.status().quarantined <= 2
    monkeypatch.setattr(refusals, "QUARANTINE_BYTES", 100)
    refuse(store, federation.data("a", content=1, samples=32), "node 1")
    last = [entry.details for entry in store.audit() if entry.event == "quarantined"][-1]
    assert last["kept"] is False
    assert store.verify().whole


def test_status_says_who_is_in_and_what_is_missing(federation: Any, history: FederationStore) -> None:
    status = history.status()
    assert (status.name, status.federation) == ("test", federation.terms.id)
    assert [(item.client, item.version) for item in status.contributors] == [("a", 1), ("b", 2), ("d", 1)]
    assert (status.clients, status.enrolled, status.revoked, status.left) == (3, 3, 1, 1)
    assert status.samples == 36 == int(history.statistics().n_samples)
    assert status.class_counts == tuple(history.statistics().counts)
    assert status.classes_covered == len(history.statistics().classes)
    assert status.bytes == sum(item.bytes for item in status.contributors)
    assert (status.quarantined, status.refused) == (1, 2)
    assert (status.entries, status.head) == (history.verify().entries, history.verify().head)


def test_a_receipt_from_elsewhere_is_checked() -> None:
    receipt = Receipt("ab" * 32, "a", 1, "cd" * 32, 7, "ef" * 32, "joined", "2030-01-01T00:00:00.000Z")
    for text in ("", "[]", "{}", receipt.to_json().replace('"version":1', '"version":true'), receipt.to_json()[:-1]):
        with pytest.raises(FileFormatError):
            Receipt.from_json(text)
    with pytest.raises(dataclasses.FrozenInstanceError):
        receipt.seq = 8  # type: ignore[misc]


def test_two_names_may_share_a_key(federation: Any, store: FederationStore) -> None:
    key = IdentityKey.generate()
    for name in ("partition 1", "partition 2"):
        store.enrol(name, key.public)
        federation.keys[name] = key
        store.submit(federation.data(name))
    assert store.status().clients == 2
