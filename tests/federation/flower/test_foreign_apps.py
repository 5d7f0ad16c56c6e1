"""A server that sends code: whatever app bundle it submits, not a line of it runs at a client or at the helper.

The bundles here are those of an attacker who has the server, or merely its port and root certificate, which is all
that Flower asks of whoever submits an app. One has a name of its own, the other has ours. Both try, when they are
imported and when they are called, to write down that they ran and to read every private key.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import HANG

from fedmoments.federation.deploy.app_folder import write_app
from fedmoments.federation.deploy.local import LocalFederation, prepare_local, started
from fedmoments.federation.deploy.nodes import SuperNode
from fedmoments.federation.deploy.serving import Server
from fedmoments.federation.store import FederationStore
from fedmoments.privacy.protection import Agreed
from fedmoments.settings.server import ServerSettings
from fedmoments.settings.study import StudySettings

pytestmark = pytest.mark.long

NODES, CLIENTS = 2, 6

#: Runs when it is imported, and when it is called; tells what it could read.
_CLIENT = """
import os
import pathlib

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp

LOOT = pathlib.Path({loot!r})


def steal(when):
    read = []
    for path in [*LOOT.parent.rglob("*.identity"), *LOOT.parent.rglob("*.helper")]:
        if "PRIVATE KEY" in path.read_text():
            read.append(path.name)
    (LOOT / f"{{when}}-{{os.getpid()}}").write_text(" ".join(sorted(read)))


steal("imported")
app = ClientApp()


@app.query("contribute")
def contribute(message, context):
    steal("called")
    return Message(RecordDict({{"words": ConfigRecord({{"words": "mine"}})}}), reply_to=message)
"""

_SERVER = """
import json
import pathlib
import time

from flwr.app import Message, RecordDict
from flwr.serverapp import ServerApp

app = ServerApp()


@app.main()
def main(grid, context):
    while len(nodes := list(grid.get_node_ids())) < {nodes}:
        time.sleep(0.2)
    messages = [Message(RecordDict({{}}), node, "query.contribute", ttl=900.0) for node in nodes]
    waiting = set(grid.push_messages(messages))
    replies = []
    while waiting:
        for reply in grid.pull_messages(list(waiting)):
            waiting.discard(reply.metadata.reply_to_message_id)
            replies.append(reply.error.reason if reply.has_error() else "RAN")
        time.sleep(0.1)
    pathlib.Path({result!r}).write_text(json.dumps(replies))
"""


@dataclass
class Attacked:
    """A federation with secure sums whose server is somebody else's, and what that somebody got."""

    plan: LocalFederation
    server: Server
    nodes: list[SuperNode]
    loot: Path

    def submit(self, name: str, publisher: str) -> list[str]:
        """Submit a bundle of the attacker's; return what the nodes replied."""
        result = self.loot.parent / f"{name}.json"
        app = write_app(self.loot.parent / f"bundle-{name}")
        (app / "fedmoments_app" / "client_app.py").write_text(_CLIENT.format(loot=str(self.loot)), "utf-8")
        server_app = _SERVER.format(nodes=NODES + 1, result=str(result))
        (app / "fedmoments_app" / "server_app.py").write_text(server_app, "utf-8")
        project = app / "pyproject.toml"
        text = project.read_text("utf-8").replace('name = "fedmoments-app"', f'name = "{name}"')
        project.write_text(text.replace('publisher = "fedmoments"', f'publisher = "{publisher}"'), "utf-8")
        control = self.server.link.control
        status = control.wait_for_run(control.submit_run(app), HANG)
        assert status.succeeded, status.details
        return list(json.loads(result.read_text("utf-8")))


@pytest.fixture(scope="module")
def attacked(features: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    folder = tmp_path_factory.mktemp("attacked")
    config = StudySettings(data=f"npz:{features}", clients=(CLIENTS,), splits=("dirichlet:0.5",))
    settings = ServerSettings("ledger", heads=("fed3r",), deadline=HANG, ttl=2 * HANG, evaluate=False)
    plan = prepare_local(
        folder / "federation",
        config,
        settings,
        nodes=NODES,
        engine="flower",
        policy={"min_count": 1},
        privacy=Agreed(secure="sums"),
    )
    (folder / "loot").mkdir()
    with started(plan, tls=True) as (server, nodes):
        yield Attacked(plan, server, nodes, folder / "loot")


def records(plan: LocalFederation) -> list[dict[str, Any]]:
    paths = [*plan.folder.glob("node-*/record.jsonl"), plan.folder / "helper" / "record.jsonl"]
    return [json.loads(line) for path in paths if path.exists() for line in path.read_text("utf-8").splitlines()]


def test_a_foreign_app_runs_not_a_line_at_clients_and_helper_and_they_say_so(attacked: Attacked) -> None:
    replies = attacked.submit("harmless-statistics", "somebody")
    looted = {path.name: path.read_text("utf-8") for path in attacked.loot.iterdir()}
    assert looted == {}, f"the server's code ran and read {looted}"
    assert len(replies) == NODES + 1
    assert all("'somebody/harmless-statistics'" in reply and "nothing of what was sent" in reply for reply in replies)
    told = [line["sentence"] for line in records(attacked.plan) if line["event"] == "refused app"]
    assert len(told) == NODES + 1
    for node in attacked.nodes:
        assert "refused: the server sent the app 'somebody/harmless-statistics'" in node.text()


def test_a_foreign_app_under_our_name_is_answered_by_ours(attacked: Attacked) -> None:
    replies = attacked.submit("fedmoments-app", "fedmoments")
    looted = {path.name: path.read_text("utf-8") for path in attacked.loot.iterdir()}
    assert looted == {}, f"the server's code ran and read {looted}"
    assert len(replies) == NODES + 1
    assert all("fedmoments.errors.InputError" in reply for reply in replies)  # our app misses its fields


def test_the_parties_stay_usable_after_both(attacked: Attacked) -> None:
    attacked.server.submit()
    status = attacked.server.wait(HANG)
    assert status.succeeded, attacked.server.log()
    with FederationStore.open(attacked.plan.server.ledger) as store:
        assert list(store.status().batches.values()) == [CLIENTS]
    assert not list(attacked.loot.iterdir())
