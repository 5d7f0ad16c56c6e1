"""Runs on real processes: what succeeded is told from what did not, through crashes of every party."""

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.federation.deploy.conftest import SUMMING
from tests.waiting import HANG, until

from fedmoments.errors import DeploymentError
from fedmoments.federation.deploy import FlowerHome, SuperExec, SuperLink, SuperNode
from fedmoments.federation.keys import load_identity, make_authority, make_client, read_card

pytestmark = pytest.mark.long

NOTE = 'it\'s "quoted" = [7] #1.toml'


@dataclass
class Federation:
    link: SuperLink
    executor: SuperExec
    nodes: list[SuperNode]


@pytest.fixture(scope="module")
def federation(
    summing_app: Path,  # installed at the nodes
    tmp_path_factory: pytest.TempPathFactory,
    processes_in: Callable[[Path], list[str]],
) -> Iterator[Federation]:
    """A SuperLink over TLS and two nodes that it knows by their cards."""
    folder = tmp_path_factory.mktemp("federation")
    authority = make_authority(folder / "server", ["localhost"])
    home = FlowerHome(folder / "home")
    with ExitStack() as stack:
        link = stack.enter_context(SuperLink(home, authority=authority, database=folder / "state.db"))
        executor = stack.enter_context(SuperExec(link))
        nodes = []
        for number, name in ((5, "clinic"), (37, "lab")):
            keys = make_client(folder / name, name)
            link.control.register_node(read_card(keys.card).node_key)
            node = SuperNode(
                home,
                f"localhost:{link.port}",
                root_certificates=authority.root,
                key=keys.node,
                config={"number": number, "note": f"{NOTE} {name}"},
                app=SUMMING,
                name=name,
            )
            nodes.append(node.start(wait=False))
            stack.callback(node.stop)
            load_identity(keys.identity)
        for node in nodes:
            node.wait_joined()
        yield Federation(link, executor, nodes)
    assert not processes_in(folder)


def test_a_run_over_tls_with_authenticated_nodes_completes(
    federation: Federation, summing_app: Path, tmp_path: Path
) -> None:
    control, result = federation.link.control, tmp_path / "result"
    run = control.submit_run(summing_app, {"nodes": 2, "result": str(result)})
    watch = [federation.link, federation.executor, *federation.nodes]
    status = control.wait_for_run(run, HANG, watch=watch)
    assert (status.run_id, status.status, status.succeeded) == (run, "finished:completed", True)
    assert result.read_text() == f"2 nodes, total 42\n{NOTE} clinic\n{NOTE} lab"
    assert status.bytes_received > 0
    assert "the total is 42" in control.run_log(run).read_text()


def test_an_app_that_raises_is_a_failure_with_its_reason(
    federation: Federation, summing_app: Path, tmp_path: Path
) -> None:
    control = federation.link.control
    run = control.submit_run(summing_app, {"result": str(tmp_path / "missing" / "result")})
    status = control.wait_for_run(run, HANG)
    assert (status.status, status.finished, status.succeeded) == ("finished:failed", True, False)
    assert "No such file" in status.details


def test_a_run_that_takes_too_long_is_left_and_can_be_stopped(
    federation: Federation, summing_app: Path, tmp_path: Path
) -> None:
    control, started = federation.link.control, tmp_path / "started"
    run = control.submit_run(summing_app, {"pause": 300.0, "started": str(started)})
    until(started.exists)
    with pytest.raises(DeploymentError, match=rf"run {run} was not over after 3 s \(the run is running\)"):
        control.wait_for_run(run, 3)
    control.stop_run(run)
    status = control.wait_for_run(run, HANG)
    assert (status.status, status.succeeded) == ("finished:stopped", False)


def test_a_client_app_that_raises_is_reported_by_name_of_its_error(summing_app: Path, tmp_path: Path) -> None:
    home = FlowerHome(tmp_path / "home")
    with SuperLink(home) as link, SuperExec(link), SuperNode(home, link.address, config={"number": -1}, app=SUMMING):
        run = link.control.submit_run(summing_app, {"nodes": 1, "result": str(tmp_path / "result")})
        status = link.control.wait_for_run(run, HANG)
    assert status.status == "finished:failed"
    assert "ValueError" in status.details
    assert "this node gives nothing" not in status.details, "words that are not ours may tell of the party's files"
    assert not (tmp_path / "result").exists()


def test_a_run_survives_a_superlink_that_is_killed_and_started_again(summing_app: Path, tmp_path: Path) -> None:
    home, started, result = FlowerHome(tmp_path / "home"), tmp_path / "started", tmp_path / "result"
    with ExitStack() as stack:
        link = stack.enter_context(SuperLink(home, database=tmp_path / "state.db"))
        stack.enter_context(SuperExec(link))
        for number in (1, 2):
            stack.enter_context(
                SuperNode(home, link.address, config={"number": number}, app=SUMMING, name=f"node-{number}")
            )
        run = link.control.submit_run(summing_app, {"pause": 8.0, "started": str(started), "result": str(result)})
        until(started.exists)
        link.kill()
        assert link.exit_code == 128 + signal.SIGKILL
        with pytest.raises(DeploymentError, match="flwr list"):
            link.control.run_status(run, timeout=10)
        link.start()
        assert link.control.wait_for_run(run, HANG).succeeded
    assert result.read_text().startswith("2 nodes, total 3")


def test_the_wait_ends_when_a_process_that_it_needs_dies(summing_app: Path, tmp_path: Path) -> None:
    started = tmp_path / "started"
    with SuperLink(FlowerHome(tmp_path / "home")) as link, SuperExec(link) as executor:
        run = link.control.submit_run(summing_app, {"pause": 300.0, "started": str(started)})
        until(started.exists)
        executor.kill()
        with pytest.raises(DeploymentError, match=rf"the SuperExec ended unexpectedly .*run {run} was waiting for it"):
            link.control.wait_for_run(run, HANG, watch=[link, executor])


_OWNER = """
import sys, time
from contextlib import ExitStack
from pathlib import Path
from fedmoments.federation.deploy import FlowerHome, SuperExec, SuperLink, SuperNode
folder, app = Path(sys.argv[1]), sys.argv[2]
home = FlowerHome(folder / "home")
with ExitStack() as stack:
    link = stack.enter_context(SuperLink(home))
    stack.enter_context(SuperExec(link))
    stack.enter_context(SuperNode(home, link.address, config={"number": 1}))
    run = link.control.submit_run(app, {"pause": 300.0, "started": str(folder / "started")})
    link.control.wait_for_run(run, 300)
"""


@pytest.mark.parametrize("death", [signal.SIGKILL, signal.SIGINT])
def test_no_process_of_a_running_federation_survives_its_owner(
    summing_app: Path, tmp_path: Path, processes_in: Callable[[Path], list[str]], death: signal.Signals
) -> None:
    with subprocess.Popen([sys.executable, "-c", _OWNER, tmp_path, summing_app], stderr=subprocess.DEVNULL) as owner:
        try:
            until((tmp_path / "started").exists)
            assert any("flwr-serverapp" in line for line in processes_in(tmp_path))
        finally:
            owner.send_signal(death)
        owner.wait(HANG)
    until(lambda: not processes_in(tmp_path))


def test_flowers_simulation_runs_ten_nodes(summing_app: Path, tmp_path: Path) -> None:
    result = tmp_path / "result"
    with SuperLink(FlowerHome(tmp_path / "home"), simulation=True) as link, SuperExec(link) as executor:
        run = link.control.submit_run(
            summing_app,
            {"nodes": 10, "result": str(result)},
            federation={"num-supernodes": 10, "client-resources-num-cpus": 1, "init-args-num-cpus": 2},
        )
        status = link.control.wait_for_run(run, 180, watch=[link, executor])
    assert status.succeeded
    assert result.read_text().startswith("10 nodes, total 45")
