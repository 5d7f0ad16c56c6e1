"""A tiny Flower app, and the law that no test leaves a process behind."""

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fedmoments.federation.deploy.guard import descendants
from fedmoments.federation.deploy.nodes import InstalledApp

_PROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "summing"
version = "1.0.0"
description = "Asks every node for a number, and sums them."
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "tests"

[tool.flwr.app.components]
serverapp = "summing.server:app"
clientapp = "summing.client:app"

[tool.flwr.app.config]
nodes = 2
result = ""
started = ""
pause = 0.0
"""

_SERVER = """
import time
from pathlib import Path

from flwr.app import Message, RecordDict
from flwr.serverapp import ServerApp

app = ServerApp()


@app.main()
def main(grid, context):
    config, end = context.run_config, time.monotonic() + 900
    if config["started"]:
        Path(config["started"]).touch()
    time.sleep(config["pause"])
    while len(nodes := list(grid.get_node_ids())) < config["nodes"]:
        if time.monotonic() > end:
            raise RuntimeError(f"only {len(nodes)} nodes are there")
        time.sleep(0.2)
    waiting = set(grid.push_messages([Message(RecordDict({}), node, "query.number", ttl=900.0) for node in nodes]))
    notes, total = [], 0
    while waiting:
        if time.monotonic() > end:
            raise RuntimeError(f"{len(waiting)} nodes did not answer")
        for reply in grid.pull_messages(list(waiting)):
            waiting.discard(reply.metadata.reply_to_message_id)
            if reply.has_error():
                raise RuntimeError(f"a node failed: {reply.error.reason}")
            total += reply.content["answer"]["number"]
            notes.append(reply.content["answer"]["note"])
        time.sleep(0.1)
    print("the total is", total, flush=True)
    Path(config["result"]).write_text("\\n".join([f"{len(nodes)} nodes, total {total}", *sorted(notes)]))
"""

_CLIENT = """
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()


@app.query("number")
def number(message, context):
    config = context.node_config
    number = config["number"] if "number" in config else config["partition-id"]
    if number < 0:
        raise ValueError("this node gives nothing")
    answer = ConfigRecord({"number": number, "note": config.get("note", "")})
    return Message(RecordDict({"answer": answer}), reply_to=message)
"""


#: What answers at the nodes: installed there, for nothing of a bundle runs at a node.
SUMMING = InstalledApp("summing.client:app", "tests/summing")


@pytest.fixture(scope="session")
def summing_app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder that ``flwr run`` takes, and that processes started from now on can import from."""
    folder = tmp_path_factory.mktemp("app")
    (folder / "summing").mkdir()
    for name, text in {
        "pyproject.toml": _PROJECT,
        "summing/__init__.py": "",
        "summing/server.py": _SERVER,
        "summing/client.py": _CLIENT,
    }.items():
        (folder / name).write_text(text.lstrip())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
        yield folder


def _processes_in(folder: Path) -> list[str]:
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (entry / "cwd").readlink().is_relative_to(folder):
                found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return found


@pytest.fixture(scope="session")
def processes_in() -> Callable[[Path], list[str]]:
    """Command lines of all processes that run in or below a folder, whoever their parents are."""
    return _processes_in


@pytest.fixture(autouse=True)
def nothing_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that leaves a process below this one, or in its folder.

    What fixtures of a wider scope started is there before the test; they look after themselves.
    """
    before = set(descendants(os.getpid()))
    yield
    old = before.union(*map(descendants, before))
    left = [pid for pid in descendants(os.getpid()) if pid not in old]
    assert not left, f"left behind: {left}"
    tmp_path: Path | None = request.node.funcargs.get("tmp_path")
    assert tmp_path is None or not _processes_in(tmp_path)
