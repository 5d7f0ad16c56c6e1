"""A small web server of our own in a thread: the desk, the live page, metrics."""

import logging
import socket
import ssl
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from fedmoments.errors import DeploymentError, InputError
from fedmoments.extras import require
from fedmoments.federation.deploy.network import joined, reachable
from fedmoments.handover.serving.patience import patient_server

__all__ = ["Web", "parse_address"]

#: Seconds that requests under way have when it stops; streams of events never end by themselves.
GRACE = 1


class Web:
    """Serves an ASGI application until it is closed; a context manager.

    Parameters
    ----------
    app
        A Starlette application.
    host, port
        Where to listen; port 0 takes a free one.
    certificate, key
        Files, to speak TLS; None: plain HTTP.
    what
        What it is, for messages.

    Raises
    ------
    DeploymentError
        When nobody can listen there.
    """

    def __init__(
        self,
        app: Any,
        host: str,
        port: int,
        *,
        certificate: Path | None = None,
        key: Path | None = None,
        what: str = "the page",
    ) -> None:
        require("uvicorn", what.capitalize(), "flower")
        try:
            self._socket = socket.create_server(
                (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=128
            )
        except (OSError, OverflowError) as error:
            raise DeploymentError(
                f"{what} cannot listen at {joined(host, port)} ({error}): choose another port"
            ) from error
        self.port: int = self._socket.getsockname()[1]
        self.scheme = "http" if certificate is None else "https"
        self.address = joined(reachable(host), self.port)
        self._server = patient_server(
            app,
            log_level="error",
            access_log=False,
            ssl_certfile=certificate,
            ssl_keyfile=key,
            date_header=False,
            lifespan="off",
            loop="asyncio",
            timeout_keep_alive=10,
            timeout_graceful_shutdown=GRACE,
        )
        try:
            self._server.config.load()
        except (OSError, ssl.SSLError) as error:
            self._socket.close()
            raise DeploymentError(f"{what} cannot use its certificate {certificate} ({error})") from error
        logging.getLogger("uvicorn.error").addFilter(_says_something)
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._socket]}, daemon=True)

    @property
    def url(self) -> str:
        """Where this machine reaches it."""
        return f"{self.scheme}://{self.address}"

    def __enter__(self) -> Self:
        self._thread.start()
        while self._thread.is_alive() and not self._server.started:
            time.sleep(0.005)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.should_exit = True
        self._thread.join(GRACE + 10)
        self._socket.close()


def _says_something(record: logging.LogRecord) -> bool:
    """Leave out that a watcher's connection was cut when the server stopped: nobody can do anything about it."""
    return "graceful shutdown" not in record.getMessage()


def parse_address(text: str, port: int = 0) -> tuple[str, int]:
    """Return host and port of what was typed: ``HOST:PORT``, ``HOST`` or ``PORT``.

    Examples
    --------
    >>> parse_address("8000"), parse_address("0.0.0.0:80"), parse_address("[::1]"), parse_address("")
    (('127.0.0.1', 8000), ('0.0.0.0', 80), ('::1', 0), ('127.0.0.1', 0))
    """
    host, colon, digits = text.rpartition(":") if not text.endswith("]") else (text, "", "")
    if not colon and digits.isdigit():
        host = ""
    elif not colon:
        host, digits = text, str(port)
    if not digits.isdigit() or int(digits) > 65535:
        raise InputError(f"an address is HOST:PORT, HOST or PORT, not '{text}'")
    return host.strip("[]") or "127.0.0.1", int(digits)
