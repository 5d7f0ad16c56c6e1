"""A party takes out what it sent, by its own signed word; who has left is told so, and how to come back."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cryptography")
pytest.importorskip("flwr")

from tests.federation.living import Party, enrol, held, new_ledger, write_features

from fedmoments.errors import RefusedError
from fedmoments.federation.flower.client_app import app
from fedmoments.federation.flower.collect import Collection
from fedmoments.federation.flower.grid import InProcessGrid, _identify
from fedmoments.federation.flower.node import identity_of
from fedmoments.federation.outbox import Outbox
from fedmoments.federation.store import FederationStore
from fedmoments.settings.server import ServerSettings
from fedmoments.wire import IdentityKey
from fedmoments.wire.withdrawal import DOMAIN, Withdrawal, make_withdrawal, read_withdrawal

CLASSES = ("cat", "dog")


@pytest.fixture
def world(tmp_path: Path) -> tuple[Path, Party, Party]:
    ledger = tmp_path / "ledger"
    new_ledger(ledger, CLASSES, ("fedcof", "fed3r"))
    both = [
        Party(name, tmp_path / name, str(write_features(tmp_path / f"{name}.npz", {"cat": 6, "dog": 7}, len(name))))
        for name in ("clinic", "lab")
    ]
    enrol(ledger, *both)
    return ledger, both[0], both[1]


def collect(ledger: Path, party: Party) -> Any:
    """Run one round of the server's own collection with one node, which runs the real app."""
    _identify()
    path = party.folder.parent / f"{party.name}.toml"
    path.write_text(party.settings.to_toml())
    with FederationStore.open(ledger) as store:
        grid = InProcessGrid(app, [{"client-config": str(path)}])
        settings = ServerSettings(str(ledger), deadline=20.0, poll=0.01)
        return Collection(grid, store, settings, number=1).run([1])


def departure(party: Party, ledger: Path) -> Any:
    with FederationStore.open(ledger) as store, Outbox(party.folder) as outbox:
        return outbox.departure(store.terms.id, party.name)


def withdraw(party: Party, ledger: Path) -> None:
    with FederationStore.open(ledger) as store, Outbox(party.folder) as outbox:
        outbox.withdraw(store.terms.id, party.name)
        assert outbox.pending(store.terms.id) == (party.name,)


def test_after_a_withdrawal_the_ledger_is_as_if_the_party_had_never_joined(world: Any) -> None:
    ledger, clinic, lab = world
    collect(ledger, lab)
    without = held(ledger)
    collect(ledger, clinic)
    assert held(ledger) != without
    withdraw(clinic, ledger)
    report = collect(ledger, clinic)
    assert (report.accepted, report.refused) == (1, ())
    assert held(ledger) == without
    assert held(ledger).raw("client_means").tobytes() == without.raw("client_means").tobytes()
    assert departure(clinic, ledger) == (1, True, True)
    assert collect(ledger, clinic).accepted == 0  # it stays away, without a complaint
    with FederationStore.open(ledger) as store:
        assert store.verify().whole
        assert [entry.event for entry in store.audit()][-2:].count("left") == 1


def test_a_party_that_was_taken_out_is_told_and_how_to_come_back(world: Any) -> None:
    ledger, clinic, _ = world
    collect(ledger, clinic)
    before = held(ledger)
    with FederationStore.open(ledger) as store:
        store.leave("clinic")
    report = collect(ledger, clinic)
    assert "rejoin" in report.refused[0].sentence
    assert departure(clinic, ledger) == (1, True, False)
    offer = clinic.offer(_terms(ledger))
    assert "fedmoments rejoin" in offer.declined[0]["why"]
    with Outbox(clinic.folder) as outbox:
        outbox.rejoin(_terms(ledger).id, "clinic", above=1)
    assert departure(clinic, ledger) is None
    assert collect(ledger, clinic).accepted == 1
    assert held(ledger) == before
    with FederationStore.open(ledger) as store:
        assert [each.version for each in store.status().contributors] == [2]


def test_a_withdrawal_of_before_does_not_take_out_who_came_back(world: Any) -> None:
    ledger, clinic, _ = world
    collect(ledger, clinic)
    old = make_withdrawal(Withdrawal(_terms(ledger).id, "clinic", 1), identity_of(clinic.settings, "clinic"))
    withdraw(clinic, ledger)
    collect(ledger, clinic)
    with Outbox(clinic.folder) as outbox:
        outbox.rejoin(_terms(ledger).id, "clinic", above=1)
    collect(ledger, clinic)
    with FederationStore.open(ledger) as store:
        answer = store.withdraw(old)
        assert isinstance(answer, RefusedError)
        assert answer.reason == "replayed"
        assert [each.version for each in store.status().contributors] == [2]


def _terms(ledger: Path) -> Any:
    with FederationStore.open(ledger) as store:
        return store.terms


def test_only_the_party_itself_can_withdraw(world: Any) -> None:
    ledger, clinic, lab = world
    collect(ledger, clinic)
    other = identity_of(lab.settings, "lab")
    with FederationStore.open(ledger) as store:
        federation = store.terms.id
        own = identity_of(clinic.settings, "clinic")
        for data, reason in (
            (make_withdrawal(Withdrawal(federation, "clinic", 1), other), "bad-signature"),
            (make_withdrawal(Withdrawal("ab" * 32, "clinic", 1), own), "wrong-federation"),
            (make_withdrawal(Withdrawal(federation, "nobody", 1), own), "unknown-client"),
            (make_withdrawal(Withdrawal(federation, "lab", 1), other), "conflict"),
            (bytes(64) + DOMAIN + b"{}", "malformed-body"),
            (bytes(64) + DOMAIN + b"[" * 900, "malformed-body"),
            (b"", "not-a-contribution"),
        ):
            answer = store.withdraw(data)
            assert isinstance(answer, RefusedError)
            assert answer.reason == reason
        assert store.status().clients == 1
        assert store.status().refused == 7


def test_a_withdrawal_says_one_thing_in_one_way() -> None:
    key = IdentityKey.generate()
    data = make_withdrawal(Withdrawal("ab" * 32, "clinic", 1), key)
    assert read_withdrawal(data, lambda _: key.public) == Withdrawal("ab" * 32, "clinic", 1)
    spaced = data[64:].replace(b",", b", ")
    with pytest.raises(RefusedError):
        read_withdrawal(key.sign(spaced) + spaced, lambda _: key.public)
    for text in (b'{"client":"a/b","federation":"","version":1}', b'{"client":"a","federation":"","version":true}'):
        whole = DOMAIN + text
        with pytest.raises(RefusedError):
            read_withdrawal(key.sign(whole) + whole, lambda _: key.public)
