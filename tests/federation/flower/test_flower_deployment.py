"""A deployment over TLS with authenticated nodes: what must happen when something goes wrong, and that it happens.

==============================================  ======================================================================
event                                           what must happen
==============================================  ======================================================================
nothing goes wrong                              all 12 clients of 3 nodes are in; the digests are those of one process
a client app raises                             its node is named with the error's text; the round goes on without it
a client app dies before it replies             the node is asked again, and its clients are in exactly once
a client dies after its reply was taken in      what it sent stays in; on a later run it gets the same receipts
a node is killed before it replies and returns  the node is asked again, and its clients are in exactly once
the same, before the SuperLink noticed          the same, in the same round
the SuperLink is killed and started again       the run completes, nothing is lost, nothing counted twice
==============================================  ======================================================================
"""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import HANG, until

from fedmoments.federation.deploy.control import RunStatus
from fedmoments.federation.deploy.local import LocalFederation, prepare_local, run_local, started
from fedmoments.federation.deploy.nodes import InstalledApp, SuperNode
from fedmoments.federation.deploy.serving import Server
from fedmoments.federation.outbox import Outbox
from fedmoments.federation.results import fit_heads
from fedmoments.federation.store import FederationStore
from fedmoments.settings.client import ClientSettings
from fedmoments.settings.server import ServerSettings
from fedmoments.settings.study import StudySettings

pytestmark = pytest.mark.long

NODES, CLIENTS = 3, 12

_FAULTY = '''
"""The client app, with a fault that is armed by a file and happens once."""

import os
import pathlib
import time

from flwr.clientapp import ClientApp

from fedmoments.federation.flower import client_app as real

FAULTS = pathlib.Path({folder!r})
app = ClientApp()


def armed(context, fault):
    name = pathlib.Path(context.node_config["client-config"]).stem
    try:
        (FAULTS / f"{{name}}.{{fault}}").unlink()
    except FileNotFoundError:
        return False
    return True


@app.query("contribute")
def contribute(message, context):
    if armed(context, "raise"):
        raise ValueError("the scanner is broken")
    if armed(context, "die"):
        os._exit(1)
    if armed(context, "wait"):
        (FAULTS / "waiting").touch()
        time.sleep(20)
    return real.contribute(message, context)


@app.query("acknowledge")
def acknowledge(message, context):
    if armed(context, "die-after"):
        os._exit(1)
    return real.acknowledge(message, context)


app.query("evaluate")(real.evaluate)
'''


@dataclass
class Deployment:
    """Processes that run, a folder in which faults are armed, and the ledger of one test."""

    plan: LocalFederation
    server: Server
    nodes: list[SuperNode]
    faults: Path

    def arm(self, node: int, fault: str) -> None:
        (self.faults / f"node-{node}.{fault}").touch()

    def new_ledger(self, name: str) -> str:
        """Return a fresh ledger with the same clients: other terms, so that every outbox starts anew."""
        path = self.plan.folder / f"{name}.db"
        with FederationStore.open(self.plan.server.ledger) as first:
            terms, members = first.terms, first.enrolled()
        with FederationStore.create(path, replace(terms, name=name, nonce=name)) as store:
            for each in members:
                store.enrol(each.client, each.key, each.node_key)
        return str(path)

    def submit(self, ledger: str, **changes: Any) -> None:
        self.server.settings = replace(self.plan.server, ledger=ledger, **changes)
        self.server.submit()

    def run(self, ledger: str, **changes: Any) -> RunStatus:
        self.submit(ledger, **changes)
        return self.server.wait(HANG)


@pytest.fixture(scope="module")
def deployment(features: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    folder = tmp_path_factory.mktemp("tls")
    config = StudySettings(data=f"npz:{features}", clients=(CLIENTS,), splits=("dirichlet:0.5",))
    settings = ServerSettings("ledger", heads=("fedcof",), nodes=NODES, deadline=HANG, ttl=2 * HANG, evaluate=False)
    plan = prepare_local(folder / "federation", config, settings, nodes=NODES, engine="flower", policy={"min_count": 1})
    for node in range(NODES):  # they take part in the federations of several tests
        path = plan.settings_of(node)
        path.write_text(replace(ClientSettings.load(path), federation="").to_toml(), "utf-8")
    faults = folder / "faults"
    faults.mkdir()
    installed = folder / "installed"  # at the nodes: a server could not bring it there
    installed.mkdir()
    (installed / "faulty_client.py").write_text(_FAULTY.format(folder=str(faults)), "utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(installed), prepend=":")
        with started(plan, tls=True, app=InstalledApp("faulty_client:app")) as (server, nodes):
            yield Deployment(plan, server, nodes, faults)


@pytest.fixture(scope="module")
def digest(features: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the same clients give in one process."""
    config = StudySettings(data=f"npz:{features}", clients=(CLIENTS,), splits=("dirichlet:0.5",))
    settings = ServerSettings("ledger", heads=("fedcof",), evaluate=False)
    folder = tmp_path_factory.mktemp("memory") / "federation"
    plan = prepare_local(folder, config, settings, nodes=NODES, engine="memory", policy={"min_count": 1})
    run_local(plan, "memory")
    return fitted(plan.server.ledger)


def fitted(ledger: str) -> str:
    with FederationStore.open(ledger) as store:
        assert store.verify().whole
        return fit_heads(store, ["fedcof"])["fedcof"].classifier.digest()


def events(ledger: str, event: str) -> list[dict[str, Any]]:
    with FederationStore.open(ledger) as store:
        return [entry.details for entry in store.audit() if entry.event == event]


def notes(ledger: str, note: str) -> list[dict[str, Any]]:
    return [details for details in events(ledger, "note") if details["note"] == note]


def test_tls_end_to_end(deployment: Deployment, digest: str, tmp_path: Path) -> None:
    ledger = deployment.new_ledger("plain")
    status = deployment.run(ledger, evaluate=True, out=str(tmp_path / "out"))
    assert status.succeeded, deployment.server.log()
    assert fitted(ledger) == digest
    document = json.loads((tmp_path / "out" / "federation.json").read_text("utf-8"))
    assert document["data"]["test"] == 90
    assert document["rows"][0]["accuracy"] > 0.9
    assert len(events(ledger, "joined")) == CLIENTS
    with FederationStore.open(ledger) as store:
        federation = store.terms.id
    for node in range(NODES):
        with Outbox(deployment.plan.folder / f"node-{node}") as outbox:
            assert outbox.pending(federation) == ()
        record = (deployment.plan.folder / f"node-{node}" / "record.jsonl").read_text("utf-8")
        left = [json.loads(line) for line in record.splitlines() if json.loads(line)["federation"] == federation]
        happened = {"pinned", "audited", "prepared", "sent", "acknowledged", "evaluated"}
        assert {each["event"] for each in left} == happened


def test_a_client_app_that_raises(deployment: Deployment) -> None:
    ledger = deployment.new_ledger("raises")
    deployment.arm(1, "raise")
    status = deployment.run(ledger)
    assert status.succeeded, deployment.server.log()
    assert len(events(ledger, "joined")) == 8
    [failure] = notes(ledger, "node failed")
    assert failure["code"] == 2
    assert "ValueError" in failure["reason"]
    assert "the scanner is broken" not in failure["reason"], "words that are not ours may tell of the party's files"


def test_a_client_app_that_dies_before_it_replies(deployment: Deployment, digest: str) -> None:
    ledger = deployment.new_ledger("dies")
    deployment.arm(2, "die")
    status = deployment.run(ledger)
    assert status.succeeded, deployment.server.log()
    assert len(events(ledger, "joined")) == CLIENTS
    assert len(notes(ledger, "node back")) == 1
    assert fitted(ledger) == digest


def test_a_client_that_dies_after_its_reply(deployment: Deployment, digest: str) -> None:
    ledger = deployment.new_ledger("dies-after")
    deployment.arm(0, "die-after")
    assert deployment.run(ledger).succeeded, deployment.server.log()
    before = {each["client"]: each["digest"] for each in events(ledger, "joined")}
    assert len(before) == CLIENTS
    with FederationStore.open(ledger) as store, Outbox(deployment.plan.folder / "node-0") as outbox:
        waiting = outbox.pending(store.terms.id)
        assert waiting == tuple(f"client-{k:04d}" for k in range(0, CLIENTS, NODES))
    assert deployment.run(ledger).succeeded, deployment.server.log()
    assert {each["client"]: each["digest"] for each in events(ledger, "joined")} == before
    assert not events(ledger, "replaced")
    with FederationStore.open(ledger) as store, Outbox(deployment.plan.folder / "node-0") as outbox:
        assert outbox.pending(store.terms.id) == ()
        seqs = {entry.details["client"]: entry.seq for entry in store.audit() if entry.event == "joined"}
        for client in waiting:
            newest = outbox.newest(store.terms.id, client)
            assert newest is not None
            assert json.loads(newest.receipt or "{}")["seq"] == seqs[client]
    assert fitted(ledger) == digest


def test_a_node_that_is_killed_before_it_replies_and_comes_back(deployment: Deployment, digest: str) -> None:
    ledger = deployment.new_ledger("killed-node")
    deployment.arm(1, "wait")
    (deployment.faults / "waiting").unlink(missing_ok=True)
    deployment.submit(ledger)
    until((deployment.faults / "waiting").exists)
    number, control = deployment.nodes[1].node_id, deployment.server.link.control
    assert number is not None
    deployment.nodes[1].kill()
    until(lambda: control.nodes(timeout=HANG).get(number) != "online", pause=1.0)
    deployment.nodes[1].patience = HANG
    deployment.nodes[1].start()
    status = deployment.server.wait(HANG)
    assert status.succeeded, deployment.server.log()
    assert len(events(ledger, "joined")) == CLIENTS
    assert fitted(ledger) == digest


def test_a_node_that_is_killed_and_back_before_anybody_noticed(deployment: Deployment, digest: str) -> None:
    """The message that it took is gone, and the SuperLink lists it as online all the time: nothing ever fails."""
    ledger = deployment.new_ledger("killed-and-back")
    deployment.arm(2, "wait")
    (deployment.faults / "waiting").unlink(missing_ok=True)
    deployment.submit(ledger)
    until((deployment.faults / "waiting").exists)
    control, node = deployment.server.link.control, deployment.nodes[2]
    number = node.node_id
    assert number is not None
    node.kill()
    node.patience = HANG
    node.start()
    assert control.nodes(timeout=HANG).get(number) == "online"
    begun = time.monotonic()
    status = deployment.server.wait(HANG)
    assert status.succeeded, deployment.server.log()
    assert time.monotonic() - begun < HANG / 2  # it was asked again, long before the deadline of the round
    assert len(events(ledger, "joined")) == CLIENTS
    assert fitted(ledger) == digest


def test_a_superlink_that_is_killed_and_started_again(deployment: Deployment, digest: str) -> None:
    ledger = deployment.new_ledger("killed-link")
    deployment.arm(0, "wait")
    (deployment.faults / "waiting").unlink(missing_ok=True)
    deployment.submit(ledger)
    until((deployment.faults / "waiting").exists)
    deployment.server.link.kill()
    time.sleep(1.0)
    deployment.server.link.start()
    status = deployment.server.wait(HANG)
    assert status.succeeded, deployment.server.log()
    assert len(events(ledger, "joined")) == CLIENTS
    assert fitted(ledger) == digest
