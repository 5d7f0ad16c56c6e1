"""A server that waits for nobody forever: headers arrive in time, and connections are so many at most.

uvicorn closes a connection that is silent after an answer, but not one that never began a request, or that sends its
header a byte at a time. Here each has some seconds for the header of a request. Where there are too many connections,
the one that has waited longest with its header is closed for the next, so that who sends a request at once is served.
"""

import asyncio
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    import uvicorn

__all__ = ["CONNECTIONS", "HEADER", "patient_server"]

#: Seconds in which the header of a request must have arrived, and connections at the same time.
HEADER, CONNECTIONS = 10.0, 512
#: What a connection is told that is closed before its request arrived.
LATE = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


def patient_server(
    app: Any, *, header: float = HEADER, connections: int = CONNECTIONS, **options: Any
) -> "uvicorn.Server":
    """Return a server of an ASGI application.

    Parameters
    ----------
    app
        The application.
    header
        Seconds for the header of each request.
    connections
        Most connections at the same time.
    options
        Further ones of ``uvicorn.Config``.
    """
    import uvicorn

    usual = {"log_level": "warning", "server_header": False, "ws": "none"}
    return uvicorn.Server(uvicorn.Config(app, http=_patient(header, connections), **{**usual, **options}))


def _patient(header: float, most: int) -> type[asyncio.Protocol]:
    """Return uvicorn's protocol with limits; connections of one such class are counted together."""
    from uvicorn.protocols.http.auto import AutoHTTPProtocol

    return type("Patient", (_Patience, AutoHTTPProtocol), {"header": header, "most": most, "waiting": {}})


class _Patience(asyncio.Protocol):
    """What is added to uvicorn's protocol, which is the next class in line."""

    header: float
    most: int
    waiting: ClassVar[dict[Any, asyncio.TimerHandle]]  # those without a whole header, the first of them first
    connections: set[Any]
    cycle: Any
    transport: Any

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._wait()
        if len(self.connections) > self.most:
            next(iter(self.waiting), self)._close()

    def data_received(self, data: bytes) -> None:
        before = self.cycle
        super().data_received(data)
        if self.cycle is not before:
            self._arrived()
        elif before is None or before.response_complete:
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._arrived()
        super().connection_lost(exc)

    def _wait(self) -> None:
        if self not in self.waiting and not self.transport.is_closing():
            self.waiting[self] = asyncio.get_running_loop().call_later(self.header, self._close)

    def _arrived(self) -> None:
        if timer := self.waiting.pop(self, None):
            timer.cancel()

    def _close(self) -> None:
        self._arrived()
        self.connections.discard(self)
        self.transport.write(LATE)
        self.transport.close()
