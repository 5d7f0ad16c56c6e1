"""Snapshots and start-up kits on their way: whatever was changed is refused in words, or holds what it held before."""

import hashlib
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.hostile import databases
from tests.hostile.mutations import changed_bytes, changed_text

from fedmoments.errors import FedMomentsError
from fedmoments.federation.enrolment.kit import Kit
from fedmoments.federation.store import FederationStore


def _restored(room: Path) -> tuple[Any, ...]:
    """Return all that a snapshot brings back: terms, members with keys, who is in and out, and the sums of all."""
    with FederationStore.restore(
        room / "snap", room / "again", journal=room / "ledger.journal", departed={"ward": "out"}
    ) as store:
        members = [(member.client, member.key.hex, member.node_key, member.status) for member in store.enrolled()]
        parties = [(party.client, party.version) for party in store.status().contributors]
        gone = store._database.rows("SELECT client, version FROM departures ORDER BY client")
        return store.terms.digest, store.digest(), members, parties, gone


@pytest.mark.parametrize("block", range(4))
def test_a_snapshot_that_was_changed_is_refused_or_restores_the_same(block: int, tmp_path: Path) -> None:
    """Its checksum fits in every trial: whoever may write the one may write the other."""
    (tmp_path / "sound").mkdir()
    sound = _restored(databases.laid_out(tmp_path / "sound"))
    ends: Counter[str] = Counter()
    for seed in range(block * 25, block * 25 + 25):
        rng = np.random.default_rng([seed, 77])
        (tmp_path / str(seed)).mkdir()
        room = databases.laid_out(tmp_path / str(seed))
        if rng.integers(3):
            databases._changed_database(room / "snap", rng)
        else:
            (room / "snap").write_bytes(changed_bytes(databases.world()["snap"], rng))
        checksum = hashlib.sha256((room / "snap").read_bytes()).hexdigest()
        (room / "snap.sha256").write_text(f"{checksum}  snap\n")
        try:
            assert _restored(room) == sound, seed
            ends["same"] += 1
        except FedMomentsError:
            ends["refused"] += 1
    assert ends["refused"] > 10


def test_a_kit_that_was_changed_is_refused_or_says_the_same() -> None:
    """Before, one of a hundred damaged kits was read with another name, day, certificate or other terms."""
    sound = databases.kit().to_bytes()
    refused = 0
    for seed in range(600):
        rng = np.random.default_rng([seed, 78])
        if rng.integers(3):
            data = changed_text(sound.decode(), rng).encode("utf-8", "surrogatepass")
        else:
            data = changed_bytes(sound, rng)
        try:
            assert Kit.from_bytes(data).to_bytes() == sound, seed
        except FedMomentsError:
            refused += 1
    assert refused > 500
