"""A key that was revoked or replaced stays out under every name, whatever was restored since."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fedmoments.core.statistics import StatisticsSpec
from fedmoments.errors import LedgerError
from fedmoments.federation.keys.rotation import Rotation
from fedmoments.federation.store import FederationStore
from fedmoments.federation.terms import Terms
from fedmoments.samples.fingerprint import Fingerprint
from fedmoments.wire import IdentityKey

STOLEN, NEW, OTHER = (IdentityKey.generate() for _ in range(3))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[FederationStore]:
    fingerprint = Fingerprint("none", "none", None, ("cat", "dog"))
    terms = Terms("pets", {"name": "identity", "options": {}}, fingerprint, 2, StatisticsSpec())
    with FederationStore.create(tmp_path / "ledger", terms) as store:
        store.snapshot(tmp_path / "before")
        store.enrol("clinic", STOLEN.public)
        store.enrol("lab", OTHER.public)
        yield store


def revoked(store: FederationStore) -> None:
    store.revoke("clinic")


def replaced(store: FederationStore) -> None:
    store.rotate(Rotation.signed("clinic", STOLEN, NEW.public))


@pytest.mark.parametrize("retire", [revoked, replaced])
@pytest.mark.parametrize("name", ["annex", "Clinic", "clinic\u200d2", "сlinic"])
@pytest.mark.parametrize("restored", [False, True])
def test_a_retired_key_stays_out_under_every_name(
    retire: Callable[[FederationStore], None], name: str, restored: bool, store: FederationStore, tmp_path: Path
) -> None:
    retire(store)
    name = name.replace("\u200d", " ")
    if restored:
        with FederationStore.restore(tmp_path / "before", tmp_path / "again") as again:
            assert "lab" not in [member.client for member in again.enrolled()]  # the snapshot is older than all of it
            require_refused(again, name)
            assert again.verify().whole
    else:
        require_refused(store, name)
        assert store.verify().whole


def require_refused(store: FederationStore, name: str) -> None:
    with pytest.raises(LedgerError, match="revoked or replaced in this federation, which is final under every name"):
        store.enrol(name, STOLEN.public)
    fresh = IdentityKey.generate()
    store.enrol(name, fresh.public)
    with pytest.raises(LedgerError, match="final under every name"):
        store.rotate(Rotation.signed(name, fresh, STOLEN.public))
    assert STOLEN.public not in [member.key for member in store.enrolled() if member.status == "enrolled"]


def test_a_replaced_key_of_a_client_that_a_snapshot_lacks_does_not_come_back(
    store: FederationStore, tmp_path: Path
) -> None:
    replaced(store)
    with FederationStore.restore(tmp_path / "before", tmp_path / "again") as again:
        with pytest.raises(LedgerError, match="final under every name"):
            again.enrol("clinic", STOLEN.public)
        again.enrol("clinic", NEW.public)


def test_revoking_a_key_revokes_it_under_all_its_names(store: FederationStore) -> None:
    store.enrol("annex", STOLEN.public)
    store.revoke("clinic")
    states = {member.client: member.status for member in store.enrolled()}
    assert states == {"annex": "revoked", "clinic": "revoked", "lab": "enrolled"}
    assert store.verify().whole
