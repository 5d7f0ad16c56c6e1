"""A real CONNECT proxy on this machine, which sees addresses and bytes of TLS, and nothing else."""

import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["NAME", "Proxy", "proxy_variables", "running_proxy"]

#: A name that no resolver knows: only the proxy finds this machine behind it.
NAME = "fed.example.test"


class Proxy(socketserver.ThreadingTCPServer):
    """What was asked of it, which bytes went to servers, and which tunnels have ended."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Tunnel)
        self.asked: list[str] = []
        self.seen: list[bytes] = []
        self.ended: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Tunnel(socketserver.StreamRequestHandler):
    """One tunnel: CONNECT HOST:PORT, then bytes both ways."""

    server: Proxy

    def handle(self) -> None:
        method, target, _ = self.rfile.readline().decode().split()
        while self.rfile.readline().strip():
            pass
        self.server.asked.append(f"{method} {target}")
        host, _, port = target.rpartition(":")
        try:
            there = socket.create_connection(("127.0.0.1" if host == NAME else host, int(port)), timeout=60)
        except OSError:
            self.wfile.write(b"HTTP/1.1 502 Bad Gateway\r\n\r\n")
            return
        with there:
            there.settimeout(None)  # a node waits long for its next message
            self.wfile.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            back = threading.Thread(target=self._copy, args=(there, self.connection, False), daemon=True)
            back.start()
            self._copy(self.connection, there, True)
            back.join(60)
        self.server.ended.append(target)

    def _copy(self, source: socket.socket, target: socket.socket, keep: bool) -> None:
        try:
            while data := source.recv(65536):
                if keep:
                    self.server.seen.append(data)
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:  # the other side has closed
            return


@contextmanager
def running_proxy() -> Iterator[Proxy]:
    """Run one, and stop it at the end."""
    with Proxy() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server
        finally:
            server.shutdown()


def proxy_variables(url: str) -> dict[str, str]:
    """Return what names a proxy in an environment."""
    return {"HTTPS_PROXY": url, "https_proxy": url}
