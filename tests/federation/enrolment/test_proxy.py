"""Enrolling through a proxy that the environment names: a real one on this machine, which sees bytes of TLS only."""

import socket
import socketserver
import threading
from pathlib import Path
from typing import Any, ClassVar

import pytest
from tests.federation.enrolment.test_kits import Place
from tests.waiting import until

from fedmoments.errors import DeploymentError
from fedmoments.federation.enrolment.asking import enrol_with
from fedmoments.federation.keys import make_client


class _Connect(socketserver.StreamRequestHandler):
    """One tunnel: CONNECT HOST:PORT, then bytes both ways."""

    asked: ClassVar[list[str]] = []
    seen: ClassVar[list[bytes]] = []
    ended: ClassVar[list[str]] = []

    def handle(self) -> None:
        method, target, _ = self.rfile.readline().decode().split()
        while self.rfile.readline().strip():
            pass
        self.asked.append(f"{method} {target}")
        host, _, port = target.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=60) as there:
            self.wfile.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            back = threading.Thread(target=self._copy, args=(there, self.connection, False), daemon=True)
            back.start()
            self._copy(self.connection, there, True)
            back.join(60)
        self.ended.append(target)

    def _copy(self, source: socket.socket, target: socket.socket, keep: bool) -> None:
        try:
            while data := source.recv(65536):
                if keep:
                    self.seen.append(data)
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:  # the other side has closed
            return


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Any:
    _Connect.asked, _Connect.seen, _Connect.ended = [], [], []
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Connect) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for name in ("HTTPS_PROXY", "https_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{server.server_address[1]}")
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        yield _Connect
        server.shutdown()


def test_a_party_enrols_through_the_proxy_that_the_environment_names(proxy: Any, tmp_path: Path) -> None:
    place = Place(tmp_path / "server")
    with place.web:
        kit = place.kit()
        enrol_with(kit, make_client(tmp_path / "party", "clinic"), patience=0)
        until(lambda: proxy.ended)
    assert place.enrolled() == ["clinic"]
    assert proxy.asked == [f"CONNECT localhost:{place.web.port}"]
    assert kit.token.encode() not in b"".join(proxy.seen)


def test_a_proxy_that_is_not_there_is_named_as_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTPS_PROXY", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    place = Place(tmp_path / "server")
    with place.web, pytest.raises(DeploymentError, match="nobody enrols"):
        enrol_with(place.kit(), make_client(tmp_path / "party", "clinic"), patience=0)
