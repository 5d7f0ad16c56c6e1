"""Joining, leaving, revoking, copying, restoring and replaying in any order: nobody who left or was revoked is back."""

from contextlib import suppress
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.hostile.parsers import terms

import fedmoments as fm
from fedmoments.errors import FedMomentsError
from fedmoments.federation.store import FederationStore
from fedmoments.federation.store.journal import journal_of
from fedmoments.wire import IdentityKey, encode

CLIENTS = ("ada", "ben", "cem")


class History:
    """A ledger, and what was promised about it, whatever file it is in now."""

    def __init__(self, room: Path, rng: np.random.Generator) -> None:
        self.room, self.rng, self.path = room, rng, room / "0"
        self.store = FederationStore.create(self.path, terms("gram"))
        self.keys = {client: IdentityKey.generate() for client in CLIENTS}
        for client, key in self.keys.items():
            self.store.enrol(client, key.public)
        self.sent: dict[str, list[bytes]] = {client: [] for client in CLIENTS}
        self.out: set[str] = set()
        self.revoked: set[str] = set()
        self.copies: list[Path] = []

    def contribution(self, client: str, version: int) -> bytes:
        X = self.rng.normal(size=(6, 6))
        X /= np.linalg.norm(X, axis=1, keepdims=True)
        stats = fm.Statistics.of(X, np.arange(6) % 3, self.store.terms.spec, n_classes=3)
        return encode(stats, self.store.terms.agreement, client=client, version=version, key=self.keys[client])

    def join(self, client: str) -> None:
        data = self.contribution(client, len(self.sent[client]) + 1)
        self.sent[client].append(data)
        self.store.submit(data)
        assert client not in self.revoked
        self.out.discard(client)

    def leave(self, client: str) -> None:
        self.store.leave(client)
        self.out.add(client)

    def revoke(self, client: str) -> None:
        self.store.revoke(client)
        self.revoked.add(client)

    def copy(self, _: str) -> None:
        self.copies.append(self.room / f"copy-{len(self.copies)}")
        self.store.snapshot(self.copies[-1])

    def restore(self, _: str) -> None:
        if not self.copies:
            return
        source, target = (
            self.copies[self.rng.integers(len(self.copies))],
            self.room / str(len(list(self.room.iterdir()))),
        )
        self.store.close()
        for size in range(len(self.out) + 1):  # who is not in the copy needs no decision, and is refused one
            for names in combinations(sorted(self.out), size):
                with suppress(FedMomentsError):
                    self.store = FederationStore.restore(
                        source, target, journal=journal_of(self.path), departed=dict.fromkeys(names, "out")
                    )
                    self.path = target
                    return
        self.store = FederationStore.open(self.path)

    def replay(self, client: str) -> None:
        if client in self.out and self.sent[client]:
            self.store.submit(self.sent[client][self.rng.integers(len(self.sent[client]))])
            pytest.fail(f"what {client} sent before it left was taken in again")


@pytest.mark.parametrize("seed", range(8))
def test_law_no_order_brings_anybody_back(tmp_path: Path, seed: int) -> None:
    history = History(tmp_path, np.random.default_rng(seed))
    deeds: list[Any] = [history.join, history.join, history.leave, history.copy, history.restore, history.replay]
    trail = []
    for step in range(18):
        deed = history.revoke if step == 12 else deeds[history.rng.integers(len(deeds))]
        client = CLIENTS[history.rng.integers(len(CLIENTS))]
        trail.append((deed.__name__, client))
        try:
            deed(client)
        except FedMomentsError:
            continue
        here = {party.client for party in history.store.status().contributors}
        assert not here & history.out, trail
    assert history.store.verify().whole, trail
    for client in history.revoked:
        with pytest.raises(FedMomentsError, match="revoked"):
            history.store.submit(history.contribution(client, 99))
    history.store.close()


def test_a_client_that_left_before_a_restore_gets_its_receipt_again(tmp_path: Path) -> None:
    """The restored ledger knows of the departure from the journal alone, which keeps no digest."""
    history = History(tmp_path, np.random.default_rng(0))
    history.copy("")
    history.join("ada")
    history.leave("ada")
    history.restore("")
    assert history.path.name != "0"
    assert history.store.leave("ada").event == "departed"
    history.store.close()
