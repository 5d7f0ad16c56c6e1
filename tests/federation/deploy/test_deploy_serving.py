"""Serving a ledger: only those who are enrolled may join, and only one server at a time."""

from pathlib import Path

import pytest

from fedmoments import StatisticsSpec
from fedmoments.errors import InputError
from fedmoments.federation import Terms
from fedmoments.federation.deploy import FlowerHome
from fedmoments.federation.deploy.serving import serve
from fedmoments.federation.keys import make_authority, make_client, read_card
from fedmoments.federation.store import FederationStore
from fedmoments.samples.fingerprint import Fingerprint
from fedmoments.settings.server import ServerSettings

pytestmark = pytest.mark.long


def test_who_is_revoked_is_admitted_no_more_and_a_ledger_is_served_once(tmp_path: Path) -> None:
    authority = make_authority(tmp_path / "keys", ["localhost"])
    cards = [read_card(make_client(tmp_path / "keys", name).card) for name in ("clinic", "lab")]
    fingerprint = Fingerprint("none", "none", None, ("cat", "dog"))
    terms = Terms("pets", {"name": "identity", "options": {}}, fingerprint, 2, StatisticsSpec())
    with FederationStore.create(tmp_path / "ledger.db", terms) as store:
        store.enrol_many((card.name, card.identity, card.node_key) for card in cards)
    settings, home = ServerSettings(str(tmp_path / "ledger.db"), heads=("fedncm",)), FlowerHome(tmp_path / "home")
    with serve(settings, home, authority=authority) as server:
        first = server.link.control.nodes()
        with pytest.raises(InputError, match="another server runs"), serve(settings, home, authority=authority):
            pass
    with FederationStore.open(tmp_path / "ledger.db") as store:
        store.revoke("lab")
    with serve(settings, home, authority=authority) as server:
        second = server.link.control.nodes()
    assert sorted(first.values()) == ["registered", "registered"]
    assert sorted(second.values()) == ["registered", "unregistered"]  # Flower lists who was admitted once
    assert set(second) == set(first)
