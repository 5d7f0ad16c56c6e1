"""Whoever must not come in does not, and is told why in a sentence and within a bounded time."""

import copy
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.waiting import HANG

from fedmoments.errors import DeploymentError, InputError
from fedmoments.federation.deploy import Control, FlowerHome, SuperExec, SuperLink, SuperNode
from fedmoments.federation.deploy.network import choose_port, is_healthy
from fedmoments.federation.keys import make_authority, make_client


@pytest.fixture(scope="module")
def link(tmp_path_factory: pytest.TempPathFactory, processes_in: Callable[[Path], list[str]]) -> Iterator[SuperLink]:
    folder = tmp_path_factory.mktemp("link")
    with SuperLink(FlowerHome(folder / "home"), authority=make_authority(folder / "keys", [])) as link:
        yield link
    assert not processes_in(folder)


def test_it_is_well_for_those_who_know_its_root_only(link: SuperLink, tmp_path: Path) -> None:
    assert is_healthy(link.address, link.root_certificates)
    assert not is_healthy(link.address, make_authority(tmp_path, []).root)
    assert not is_healthy(link.address, None)


def test_an_unregistered_key_is_refused(link: SuperLink, tmp_path: Path) -> None:
    key = make_client(tmp_path, "stranger").node
    node = SuperNode(FlowerHome(tmp_path / "home"), link.address, root_certificates=link.root_certificates, key=key)
    with pytest.raises(DeploymentError, match=r"was refused by .*\(Flower's code 2004\): .*register the public key"):
        node.start()
    assert not node.alive
    assert "Exit Code: 305" in node.text()


def test_a_node_without_a_key_is_refused(link: SuperLink, tmp_path: Path) -> None:
    node = SuperNode(FlowerHome(tmp_path / "home"), link.address, root_certificates=link.root_certificates)
    with pytest.raises(DeploymentError, match=r"was refused by .*\(Flower's code 2001\): .*has no key"):
        node.start()
    assert not node.alive


def test_plaintext_to_the_tls_port_gives_up_when_its_time_is_over(link: SuperLink, tmp_path: Path) -> None:
    node = SuperNode(FlowerHome(tmp_path / "home"), link.address, timeout=6)
    with pytest.raises(DeploymentError, match=r"not ready after 6 s and was stopped \(it could not join the SuperLink"):
        node.start()
    assert not node.alive


def test_a_server_that_is_not_there_is_said_to_be_not_there(link: SuperLink, tmp_path: Path) -> None:
    nowhere = f"localhost:{choose_port('127.0.0.1')}"
    node = SuperNode(FlowerHome(tmp_path / "home"), nowhere, root_certificates=link.root_certificates, timeout=6)
    with pytest.raises(DeploymentError, match=r"could not join .*nobody answers there .*'fedmoments server run'"):
        node.start()
    assert not node.alive


def test_a_server_that_the_root_did_not_certify_is_not_trusted(link: SuperLink, tmp_path: Path) -> None:
    stranger = make_authority(tmp_path / "stranger", [])
    key = make_client(tmp_path, "clinic").node
    node = SuperNode(FlowerHome(tmp_path / "home"), link.address, root_certificates=stranger.root, key=key)
    with pytest.raises(DeploymentError, match=r"(?i)could not join.*(\n.*)*certificate"):
        node.start()
    control = Control(FlowerHome(tmp_path / "home"), link.address, stranger.root)
    with pytest.raises(DeploymentError, match=f"flwr supernode at {link.address} failed"):
        control.nodes(timeout=HANG)


def test_a_key_that_others_can_read_does_not_start_a_node(tmp_path: Path) -> None:
    keys = make_client(tmp_path, "clinic")
    keys.node.chmod(0o644)
    with pytest.raises(InputError, match="chmod 600"):
        SuperNode(FlowerHome(tmp_path), "localhost:1", root_certificates=keys.card, key=keys.node)
    authority = make_authority(tmp_path / "keys", [])
    authority.key.chmod(0o640)
    with pytest.raises(InputError, match="chmod 600"):
        SuperLink(FlowerHome(tmp_path), authority=authority)


def test_a_key_is_not_shown_without_tls(tmp_path: Path) -> None:
    key = make_client(tmp_path, "clinic").node
    with pytest.raises(InputError, match="over TLS only"):
        SuperNode(FlowerHome(tmp_path), "localhost:1", key=key)


def test_without_certificates_only_this_machine_is_served(tmp_path: Path) -> None:
    for host in ("0.0.0.0", "::", "192.0.2.1", "fed.example.org"):
        with pytest.raises(InputError, match=r"plain HTTP.*127\.0\.0\.1 or localhost"):
            SuperLink(FlowerHome(tmp_path), host=host)


def test_an_executor_without_the_secret_gets_no_work(link: SuperLink, tmp_path: Path) -> None:
    thief = copy.copy(link)
    thief.home = FlowerHome(tmp_path / "home")
    thief.secret = tmp_path / "guess"
    thief.secret.write_bytes(b"guess")
    executor = SuperExec(thief).start()
    assert executor.wait(HANG) is not None
    with pytest.raises(DeploymentError, match="the SuperExec ended unexpectedly"):
        executor.check()


def test_a_second_superlink_does_not_take_the_port(link: SuperLink, tmp_path: Path) -> None:
    with pytest.raises(DeploymentError, match=rf"cannot listen at 127.0.0.1:{link.port}"):
        SuperLink(FlowerHome(tmp_path), port=link.port)


def test_a_superlink_that_cannot_start_says_why(tmp_path: Path) -> None:
    authority = make_authority(tmp_path / "keys", [])
    authority.certificate.write_text("no certificate")
    link = SuperLink(FlowerHome(tmp_path / "home"), authority=authority)
    with pytest.raises(
        DeploymentError, match=r"the SuperLink ended unexpectedly with exit code 1.*(\n.*)*(?i:ssl|pem)"
    ):
        link.start()
    assert not link.alive


def test_a_node_whose_port_was_taken_meanwhile_says_so(link: SuperLink, tmp_path: Path) -> None:
    node = SuperNode(FlowerHome(tmp_path / "home"), link.address, root_certificates=link.root_certificates)
    with socket.socket() as other:
        other.bind(("127.0.0.1", node.port))
        other.listen()
        with pytest.raises(DeploymentError, match=r"the SuperNode .* could not join .*(\n.*)*address already in use"):
            node.start()
    assert not node.alive


def test_nobody_answering_is_an_error_in_bounded_time(tmp_path: Path) -> None:
    with pytest.raises(DeploymentError, match=r"127\.0\.0\.1:9"):
        Control(FlowerHome(tmp_path), "127.0.0.1:9").nodes(timeout=10)


def test_what_flower_refuses_is_said(link: SuperLink, summing_app: Path, tmp_path: Path) -> None:
    with pytest.raises(DeploymentError, match=r"flwr list at .* failed: \[code: 16\] Run ID not found\.$"):
        link.control.run_status(7)
    with pytest.raises(DeploymentError, match=r"flwr run .* failed: .*pyproject.toml"):
        link.control.submit_run(tmp_path)
    with pytest.raises(DeploymentError, match=r"flwr run .* failed: .*Invalid run configuration"):
        link.control.submit_run(summing_app, {"undeclared": 1})
    with pytest.raises(DeploymentError, match=r"flwr supernode .* failed"):
        link.control.register_node("ssh-rsa nonsense")


@pytest.mark.long
def test_the_same_key_joins_once(link: SuperLink, tmp_path: Path) -> None:
    keys = make_client(tmp_path, "clinic")
    number = link.control.register_node(keys.node_public.read_text())
    assert link.control.register_node(keys.node_public.read_text()) is None
    home = FlowerHome(tmp_path / "home")
    first, second = (
        SuperNode(home, link.address, root_certificates=link.root_certificates, key=keys.node, name=name)
        for name in ("first", "second")
    )
    with first:
        assert first.node_id == number
        with pytest.raises(DeploymentError, match=r"Flower's code 2004\).*one node a key"):
            second.start()
        assert number is not None
        assert link.control.nodes()[number] == "online"
    assert link.control.nodes()[number] == "offline"
