"""Masked reports, batches and releases in the ledger: exactly once each, whatever arrives, and the log explains all."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest

from fedmoments.core.maps import Normalize
from fedmoments.core.statistics import FixedPoint, Statistics, StatisticsSpec
from fedmoments.errors import InputError, LedgerError, PrivacyError, RefusedError
from fedmoments.federation.store import Batch, FederationStore, Receipt
from fedmoments.federation.store.masked_ledger import BatchReports
from fedmoments.federation.terms import Terms
from fedmoments.privacy.modes.opened import Opened
from fedmoments.privacy.modes.parties import Sitting
from fedmoments.privacy.protection import Agreed
from fedmoments.privacy.secure import Helper, HelperKey, make_report
from fedmoments.privacy.secure.broadcast import Broadcast
from fedmoments.samples.fingerprint import Fingerprint
from fedmoments.wire import IdentityKey, encode

CLIENTS = ("a", "b", "c", "d")


def _never(broadcast: Broadcast, clients: frozenset[str]) -> NoReturn:
    raise AssertionError("plain sums have one phase")


class World:
    """Four clients, a helper, and terms."""

    def __init__(self, **agreed: Any) -> None:
        self.helper = Helper(HelperKey.generate(), minimum=2)
        self.keys = {name: IdentityKey.generate() for name in CLIENTS}
        privacy = Agreed(secure="sums", batch=2, helper=self.helper.public, **agreed)
        bound = 1.0 if privacy.epsilon else 16.0
        feature_map = Normalize() if privacy.epsilon else None
        fingerprint = Fingerprint("none", "none", feature_map, ("cat", "dog"))
        spec, form = StatisticsSpec.of("gram"), FixedPoint(bound, 10**4)
        self.terms = Terms("pets", {"name": "identity", "options": {}}, fingerprint, 3, spec, form, privacy=privacy)
        rng = np.random.default_rng(1)
        self.stats = {}
        for name in CLIENTS:
            X = rng.normal(size=(20, 3))
            X /= np.linalg.norm(X, axis=1, keepdims=True)
            self.stats[name] = Statistics.of(X, np.arange(20) % 2, spec, n_classes=2, fixed_point=form)

    def report(self, client: str, version: int = 1) -> bytes:
        vector = self.terms.layout.pack(self.stats[client])
        public, key = self.terms.privacy.helper, self.keys[client]
        return make_report(vector, self.terms.context, client=client, version=version, helper=public, key=key)

    def opened(self, store: FederationStore, batch: Batch) -> Opened:
        """Add up a batch as a server does, with the helper in this process."""
        mode = self.terms.privacy.mode
        gate = mode.gate(self.helper, self.terms, minimum=2)
        return mode.open(Sitting(self.terms, store, store.leader(batch), gate, _never, print))


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def store(world: World, tmp_path: Path) -> Iterator[FederationStore]:
    with FederationStore.create(tmp_path / "ledger", world.terms) as made:
        made.enrol_many((name, key.public, None) for name, key in world.keys.items())
        yield made


def refusal(answers: list[Receipt | RefusedError]) -> str:
    [answer] = answers
    assert isinstance(answer, RefusedError)
    return f"{answer.reason}: {answer.sentence}"


def test_a_report_is_taken_in_once_and_its_repetition_writes_nothing(world: World, store: FederationStore) -> None:
    data = world.report("a")
    [receipt] = store.report_many([data])
    assert isinstance(receipt, Receipt)
    assert (receipt.event, receipt.version) == ("reported", 1)
    entries = store.status().entries
    assert store.report_many([data]) == [receipt]
    assert store.status().entries == entries
    assert "conflict" in refusal(store.report_many([world.report("a")]))
    [second] = store.report_many([world.report("a", version=2)])
    assert isinstance(second, Receipt)
    assert "replayed" in refusal(store.report_many([data]))
    assert store.verify(expect=receipt.chain).whole


def test_reports_of_strangers_and_changed_ones_are_refused(world: World, store: FederationStore) -> None:
    data = world.report("a")
    assert "wrong-digest" in refusal(store.report_many([data[:-1] + bytes([data[-1] ^ 1])]))
    assert "truncated" in refusal(store.report_many([data[:-1]]))
    other = World()
    assert "wrong-federation" in refusal(store.report_many([other.report("a")]))
    store.revoke("b")
    assert "revoked-client" in refusal(store.report_many([world.report("b")]))
    assert store.waiting() == ()
    assert store.verify().whole


def test_a_sum_stands_in_the_place_of_its_clients_and_their_reports_are_erased(
    world: World, store: FederationStore
) -> None:
    reports = [world.report(name) for name in CLIENTS]
    store.report_many(reports)
    batch = store.open_batch([each.report for each in store.waiting()], {"why": "test"})
    assert store.waiting() == ()
    assert "part of the sum" in refusal(store.report_many([world.report("a", version=2)]))
    opened = world.opened(store, batch)
    opened.keep(store, batch)
    assert store.statistics() == Statistics.merge(world.stats.values())
    with pytest.raises(LedgerError, match="not in the ledger"):
        store.leader(batch).request()
    with pytest.raises(LedgerError, match="not in the ledger"):
        BatchReports(store._database, store.terms, batch).masked(batch.reports[0])
    with pytest.raises(LedgerError, match="is not taken in again"):
        opened.keep(store, batch)
    assert store.verify().whole
    raw = b"".join(path.read_bytes() for path in store.path.parent.glob("ledger*"))
    assert all(report[-32:] not in raw for report in reports)


def test_a_leader_that_crashed_asks_again_what_it_asked(world: World, tmp_path: Path) -> None:
    with FederationStore.create(tmp_path / "ledger", world.terms) as store:
        store.enrol_many((name, key.public, None) for name, key in world.keys.items())
        store.report_many([world.report(name) for name in CLIENTS])
        batch = store.open_batch([waiting.report for waiting in store.waiting()][:3], {})
        request = store.leader(batch).request()
        world.helper.sum(request)  # the answer is lost with the leader
    with FederationStore.open(tmp_path / "ledger") as store:
        assert "part of the sum" in refusal(store.report_many([world.report("a", version=2)]))
        store.report_many([world.report("d", version=2)])
        [batch] = [batch for batch in store.batches() if batch.status == "asked"]
        leader = store.leader(batch)
        again = leader.request()
        assert again == request
        plain = sum(world.terms.layout.pack(world.stats[name]) for name in "abc")
        assert np.array_equal(leader.finish(again, world.helper.sum(again)), plain)


def test_a_report_under_another_reports_id_is_refused(world: World, store: FederationStore) -> None:
    first = world.report("a")
    store.report_many([first])
    name = store.waiting()[0].report
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("secrets.token_bytes", lambda n: bytes.fromhex(name) if n == len(name) // 2 else os.urandom(n))
        assert "conflict" in refusal(store.report_many([world.report("b")]))
    assert [waiting.client for waiting in store.waiting()] == ["a"]


def test_a_batch_of_what_does_not_wait_is_not_opened(world: World, store: FederationStore) -> None:
    store.report_many([world.report("a")])
    with pytest.raises(LedgerError, match="2 reports were to be added up, but 1 of them wait"):
        store.open_batch([store.waiting()[0].report, "ab" * 16], {})
    with pytest.raises(LedgerError, match="0 of them wait"):
        store.open_batch([], {})


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE reports SET version = 7 WHERE client = 'a'",
        "UPDATE reports SET data = x'00' WHERE client = 'a'",
        "UPDATE reports SET data = NULL WHERE client = 'a'",
        "UPDATE reports SET data = NULL WHERE batch IS NULL",
        "DELETE FROM reports WHERE client = 'a'",
        "UPDATE batches SET status = 'collected'",
        "UPDATE reports SET batch = NULL",
    ],
)
def test_verify_finds_damage_in_reports_and_batches(world: World, store: FederationStore, damage: str) -> None:
    store.report_many([world.report(name) for name in CLIENTS])
    store.open_batch([each.report for each in store.waiting()][:3], {})
    assert store.verify().whole
    with closing(sqlite3.connect(store.path, isolation_level=None)) as connection:
        connection.execute(damage)
    assert not store.verify().replay_equal


def test_a_ledger_of_the_first_version_is_opened_and_brought_up(world: World, tmp_path: Path) -> None:
    terms = replace(world.terms, privacy=Agreed())
    path = tmp_path / "old"
    with FederationStore.create(path, terms) as store:
        store.enrol("a", world.keys["a"].public)
        data = encode(world.stats["a"], terms.agreement, client="a", version=1, key=world.keys["a"])
        receipt = store.submit(data)
        state = store.digest()
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for table in ("reports", "parts", "releases", "batches", "sum_digests", "payload_digests", "tree"):
            connection.execute(f"DROP TABLE {table}")
        connection.execute("PRAGMA user_version=1")
    with FederationStore.open(path) as store:
        assert store.digest() == state
        assert store.submit(data) == receipt
        assert store.verify(expect=receipt.chain).whole
    with FederationStore.open(path) as store:
        assert store.status().waiting == ()


def test_terms_without_privacy_have_the_id_that_they_always_had(world: World) -> None:
    clear = replace(world.terms, privacy=Agreed())
    assert "privacy" not in clear.to_dict()
    assert Terms.from_json(world.terms.to_json()) == world.terms
    assert Terms.from_json(world.terms.to_json()).id != clear.id
    for wrong in ('"privacy":{}', '"privacy":{"secure":null}', '"privacy":{"epsilom":1}', '"privacy":[]'):
        with pytest.raises(Exception, match="not terms of a federation"):
            Terms.from_json(clear.to_json()[:-1] + f",{wrong}}}")


def test_terms_whose_noise_would_hide_less_than_they_say_are_refused(world: World) -> None:
    with pytest.raises(InputError, match="must be scaled to length 1"):
        replace(world.terms, privacy=Agreed(epsilon=1.0))
    noisy = World(epsilon=1.0).terms
    with pytest.raises(InputError, match="clipped to 2"):
        replace(noisy, privacy=replace(noisy.privacy, clip=2.0))
    with pytest.raises(InputError, match="helper's public key"):
        replace(noisy, privacy=replace(noisy.privacy, helper="no key"))


def test_a_release_is_made_once_for_a_state_and_charged_once(world: World, tmp_path: Path) -> None:
    noisy = World(epsilon=2.0)
    terms = replace(noisy.terms, privacy=replace(noisy.terms.privacy, secure=None, helper="", batch=3))
    with FederationStore.create(tmp_path / "noisy", terms) as store:
        store.enrol_many((name, key.public, None) for name, key in noisy.keys.items())
        for name in CLIENTS[:3]:
            store.submit(encode(noisy.stats[name], terms.agreement, client=name, version=1, key=noisy.keys[name]))
        first = store.release()
        assert np.array_equal(store.release().noisy, first.noisy)
        exact = terms.layout.pack(store.statistics())
        assert not np.array_equal(first.noisy, exact)
        store.submit(encode(noisy.stats["d"], terms.agreement, client="d", version=1, key=noisy.keys["d"]))
        with pytest.raises(PrivacyError, match="would bring"):
            store.release()
        store.leave("d")
        assert np.array_equal(store.release().noisy, first.noisy)
        spent = store.status().spent
        assert spent is not None
        assert spent["releases"] == 1
        assert store.verify().whole
        with closing(sqlite3.connect(store.path, isolation_level=None)) as connection:
            connection.execute("DELETE FROM meta WHERE name = 'accountant'")
        with pytest.raises(LedgerError, match="no account of them"):
            store.status()
        assert "0 releases, but the log of 1" in store.verify().problems[0]


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE meta SET value = replace(value, '\"ratio\": ', '\"ratio\": 1') WHERE name = 'accountant'",
        "UPDATE releases SET facts = '{}'",
        "UPDATE releases SET data = zeroblob(length(data))",
        "DELETE FROM releases",
    ],
)
def test_verify_finds_damage_in_releases_and_their_account(tmp_path: Path, damage: str) -> None:
    noisy = World(epsilon=2.0)
    terms = replace(noisy.terms, privacy=replace(noisy.terms.privacy, secure=None, helper="", batch=3))
    with FederationStore.create(tmp_path / "noisy", terms) as store:
        store.enrol("a", noisy.keys["a"].public)
        store.submit(encode(noisy.stats["a"], terms.agreement, client="a", version=1, key=noisy.keys["a"]))
        store.release()
        assert store.verify().whole
        with closing(sqlite3.connect(store.path, isolation_level=None)) as connection:
            connection.execute(damage)
        assert not store.verify().replay_equal


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE reports SET data = x'00' WHERE client = 'a'",
        "UPDATE reports SET report = 'ab' WHERE client = 'a'",
        "UPDATE reports SET bytes = 1 WHERE client = 'a'",
        "DELETE FROM parts",
        "UPDATE batches SET plan = '{}'",
    ],
)
def test_verify_finds_damage_in_what_was_added_up(world: World, store: FederationStore, damage: str) -> None:
    store.report_many([world.report(name) for name in CLIENTS])
    batch = store.open_batch([each.report for each in store.waiting()], {"why": "test"})
    world.opened(store, batch).keep(store, batch)
    assert store.verify().whole
    with closing(sqlite3.connect(store.path, isolation_level=None)) as connection:
        connection.execute(damage)
    assert not store.verify().replay_equal


def test_an_account_of_another_budget_than_that_of_the_terms_releases_nothing(tmp_path: Path) -> None:
    noisy = World(epsilon=2.0)
    terms = replace(noisy.terms, privacy=replace(noisy.terms.privacy, secure=None, helper="", batch=3))
    with FederationStore.create(tmp_path / "noisy", terms) as store:
        store.enrol_many((name, key.public, None) for name, key in noisy.keys.items())
        for name in CLIENTS[:2]:
            store.submit(encode(noisy.stats[name], terms.agreement, client=name, version=1, key=noisy.keys[name]))
            if name == "a":
                store.release()
        with closing(sqlite3.connect(store.path, isolation_level=None)) as connection:
            connection.execute("UPDATE meta SET value = replace(value, '2.0', '9.0') WHERE name = 'accountant'")
        with pytest.raises(LedgerError, match=r"budget of ε = 9 .* terms agree on 2"):
            store.release()
