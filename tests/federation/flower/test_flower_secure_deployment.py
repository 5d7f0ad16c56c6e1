"""Secure sums over TLS with real processes: three nodes of clients, one of the helper, each with a key of its own."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.waiting import HANG

from fedmoments.federation.deploy.local import LocalFederation, prepare_local, run_local, started
from fedmoments.federation.outbox import Outbox
from fedmoments.federation.results import fit_heads
from fedmoments.federation.store import FederationStore
from fedmoments.privacy.protection import Agreed
from fedmoments.settings.server import ServerSettings
from fedmoments.settings.study import StudySettings

pytestmark = pytest.mark.long

NODES, CLIENTS = 3, 12


def prepared(features: Path, folder: Path, engine: str, agreed: Agreed, heads: tuple[str, ...]) -> LocalFederation:
    config = StudySettings(data=f"npz:{features}", clients=(CLIENTS,), splits=("dirichlet:0.5",))
    settings = ServerSettings("ledger", heads=heads, deadline=HANG, ttl=2 * HANG, out=str(folder / "out"))
    place = folder / "federation"
    secure = agreed.secure is not None
    rules = {"min_count": 1, "require_secure": secure, "allow_evaluation": secure}
    return prepare_local(place, config, settings, nodes=NODES, engine=engine, policy=rules, privacy=agreed)


def accuracy(plan: LocalFederation, head: str, features: Path) -> float:
    """Return the accuracy of the head that the ledger gives, on all test samples."""
    with FederationStore.open(plan.server.ledger) as store, np.load(features) as arrays:
        classifier = fit_heads(store, [head])[head].classifier
        return float((classifier.predict(arrays["x_test"]) == arrays["y_test"]).mean())


def fitted(plan: LocalFederation, head: str) -> str:
    with FederationStore.open(plan.server.ledger) as store:
        assert store.verify().whole
        return fit_heads(store, [head])[head].classifier.digest()


def test_secure_sums_over_tls_are_the_clear_ones_bit_for_bit(features: Path, tmp_path: Path) -> None:
    clear = prepared(features, tmp_path / "clear", "memory", Agreed(), ("fed3r",))
    run_local(clear, "memory")
    plan = prepared(features, tmp_path / "secure", "flower", Agreed(secure="sums"), ("fed3r",))
    with started(plan) as (server, nodes):
        helper = nodes[-1]
        helper.stop()  # nobody can add up without it, but all that clients send is kept
        server.settings = replace(plan.server, wait=20.0)
        server.submit()
        assert not server.wait(HANG).succeeded
        with FederationStore.open(plan.server.ledger) as store:
            assert len(store.status().waiting) == CLIENTS
        helper.patience = HANG
        helper.start()
        server.settings = plan.server
        server.submit()
        status = server.wait(HANG)
        assert status.succeeded, server.log()
    assert fitted(plan, "fed3r") == fitted(clear, "fed3r")
    document = json.loads((tmp_path / "secure" / "out" / "federation.json").read_text("utf-8"))
    assert document["privacy"]["mode"] == "secure sums"
    assert accuracy(plan, "fed3r", features) > 0.95
    # What clients tell of it is rounded by chance, up or down by 5 answers of 90 at every one that holds few.
    assert document["rows"][0]["accuracy"] == pytest.approx(accuracy(plan, "fed3r", features), abs=0.2)
    assert document["federation"]["failures"] == []
    with FederationStore.open(plan.server.ledger) as store:
        assert list(store.status().batches.values()) == [CLIENTS]
        federation = store.terms.id
    for node in range(NODES):
        with Outbox(plan.folder / f"node-{node}") as outbox:
            assert outbox.pending(federation) == ()
    record = [json.loads(line) for line in (plan.folder / "helper" / "record.jsonl").read_text("utf-8").splitlines()]
    # Which classes enough clients hold, then the sum of these, then the sum of tests.
    steps = [(entry["step"], entry.get("reports")) for entry in record]
    assert steps == [("learn", None), ("open", CLIENTS), ("tested", CLIENTS)]


@pytest.mark.parametrize("mode", ["cohorts", "two-phase"])
def test_client_means_behind_masks_over_tls(features: Path, tmp_path: Path, mode: str) -> None:
    agreed = Agreed(secure=mode, cohort=4) if mode == "cohorts" else Agreed(secure=mode)
    head = "fedncm" if mode == "cohorts" else "fedcof"  # cohorts may leave one row a class, too few for fedcof
    plan = prepared(features, tmp_path, "flower", agreed, ("fedcof", "fedncm") if mode == "cohorts" else ("fedcof",))
    run_local(plan)
    assert fitted(plan, head)
    document = json.loads((tmp_path / "out" / "federation.json").read_text("utf-8"))
    assert document["rows"][-1]["head"] == head
    assert document["rows"][-1]["clients"] == CLIENTS
    assert accuracy(plan, head, features) > 0.95
    assert document["rows"][-1]["accuracy"] == pytest.approx(accuracy(plan, head, features), abs=0.2)
