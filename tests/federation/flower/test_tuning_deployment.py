"""Tuning over TLS with authenticated nodes: real processes find what one process finds, and go on after a stop."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("flwr")
pytest.importorskip("cryptography")

from tests.federation.flower.tuning_trials import ALLOWED, PLAN, run, settings_of
from tests.waiting import HANG

from fedmoments import load
from fedmoments.federation.deploy.local import prepare_local, run_local, started
from fedmoments.federation.store import FederationStore
from fedmoments.settings.server import ServerSettings
from fedmoments.settings.study import StudySettings

pytestmark = pytest.mark.long

NODES, CLIENTS = 2, 3
TUNING = {**PLAN, "optimiser": "scaffold", "fraction": 0.7, "epochs": 2, "test_every": 3}


def test_tuning_over_tls_finds_what_one_process_finds(features: Path, tmp_path: Path) -> None:
    config = StudySettings(data=f"npz:{features}", clients=(CLIENTS,), splits=("dirichlet:0.5",))
    server = ServerSettings("ledger", heads=("fedcof",), nodes=NODES, deadline=HANG, ttl=2 * HANG, evaluate=False)
    memory = prepare_local(tmp_path / "memory", config, server, nodes=NODES, engine="memory", policy=ALLOWED)
    run_local(memory, "memory")
    expected = run(memory, settings_of(memory, tmp_path / "expected", plan={**TUNING, "rounds": 3}))
    plan = prepare_local(tmp_path / "tls", config, server, nodes=NODES, engine="flower", policy=ALLOWED)
    with started(plan, tls=True) as (running, _):
        running.submit()
        assert running.wait(HANG).succeeded, running.log()
        settings = settings_of(plan, tmp_path / "out", deadline=HANG, ttl=2 * HANG)
        for rounds in (2, 3):  # the second goes on with what the first left, at the server and at the clients
            running.settings = replace(settings, plan={**TUNING, "rounds": rounds})
            running.submit()
            assert running.wait(HANG).succeeded, running.log()
    assert load(tmp_path / "out" / "tuned.safetensors").digest() == expected.classifier.digest()
    document = json.loads((tmp_path / "out" / "tuning.json").read_text("utf-8"))
    assert document["resumed"] == 2
    assert [point["participants"] for point in document["points"]] == [0, 2, 2, 2]
    assert document["points"][-1]["accuracy"] == pytest.approx(expected.tuned.points[-1].accuracy)
    assert document["failures"] == []
    with FederationStore.open(plan.server.ledger) as store:
        assert store.verify().whole
    records = [
        json.loads(line)
        for node in range(NODES)
        for line in (plan.folder / f"node-{node}" / "record.jsonl").read_text("utf-8").splitlines()
    ]
    tuned = [line for line in records if line["event"] == "tuned"]
    assert sorted(line["round"] for line in tuned) == [1, 1, 2, 2, 3, 3]
    assert len(list(plan.folder.glob("node-*/tuning/*/client-*.safetensors"))) == CLIENTS
