"""The live page: a federation at this moment, for a browser, a terminal and a monitor. It only reads.

==============  ==================================================================================================
``/``           the page
``/events``     server-sent events: parts of the page that changed
``/metrics``    numbers in Prometheus' text format
``/health``     200 while the ledger can be read, 503 otherwise
==============  ==================================================================================================

On this machine nobody is asked who they are, but requests under another name than this machine's are refused (a web
page elsewhere cannot read it by renaming itself). Elsewhere it speaks TLS and wants a token, which the address that is
printed holds once and a cookie afterwards.
"""

import asyncio
import json
import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

import fedmoments
from fedmoments.errors import FedMomentsError
from fedmoments.federation.deploy.gate import Gate
from fedmoments.federation.deploy.metrics import metrics_text
from fedmoments.federation.deploy.viewing import Viewer
from fedmoments.pages.live_view import LiveView, page_of, sections_of

__all__ = ["LivePage", "server_metrics"]

#: Seconds between two looks, and after which a stream says that it is there.
LOOK, BEAT = 1.0, 15.0


class LivePage:
    """The application of the live page.

    Parameters
    ----------
    ledger, home
        The federation's, and that of Flower's processes.
    token
        What visitors must have; empty: those of this machine need none.
    """

    def __init__(self, ledger: Path, home: Path, token: str = "") -> None:
        self._viewer, self.token = Viewer(ledger, home), token
        self._one = asyncio.Lock()

    @staticmethod
    def new_token() -> str:
        """Return a token for visitors from elsewhere."""
        return secrets.token_urlsafe(24)

    @property
    def app(self) -> Starlette:
        """The application."""
        routes = [
            Route("/", self._page),
            Route("/events", self._events),
            Route("/metrics", self._metrics),
            Route("/health", self._health),
        ]
        return Starlette(routes=routes, middleware=[Middleware(Gate, token=self.token)])

    async def _view(self) -> LiveView:
        async with self._one:
            return await asyncio.to_thread(self._viewer.look)

    async def _page(self, _: Request) -> Response:
        page = page_of(await self._view(), version=fedmoments.__version__)
        return Response(page, media_type="text/html", headers={"Cache-Control": "no-store"})

    async def _events(self, request: Request) -> Response:
        return StreamingResponse(
            self._parts(request), media_type="text/event-stream", headers={"Cache-Control": "no-store"}
        )

    async def _parts(self, request: Request) -> AsyncIterator[str]:
        sent: dict[str, str] = {}
        last: LiveView | None = None
        quiet = 0.0
        while not await request.is_disconnected():
            view = await self._view()
            parts = sent if view is last else await asyncio.to_thread(sections_of, view)
            last = view
            changed = {name: body for name, body in parts.items() if sent.get(name) != body}
            sent = parts
            quiet = 0.0 if changed else quiet + LOOK
            if changed:
                yield f"event: parts\ndata: {json.dumps(changed)}\n\n"
            elif quiet >= BEAT:
                quiet = 0.0
                yield ": here\n\n"
            await asyncio.sleep(LOOK)

    async def _metrics(self, _: Request) -> Response:
        return PlainTextResponse(
            metrics_text(server_metrics(await self._view())), media_type="text/plain; version=0.0.4"
        )

    async def _health(self, _: Request) -> Response:
        try:
            view = await self._view()
        except FedMomentsError as error:
            return JSONResponse({"status": "failed", "problem": str(error)}, 503)
        return JSONResponse({"status": "ready", "federation": view.federation, "phase": view.phase})


def server_metrics(view: LiveView) -> dict[str, Any]:
    """Return the numbers that a monitor gets of a server."""
    return {
        "fedmoments_parties": ("gauge", {("state", state): n for state, n in view.states.items()}),
        "fedmoments_clients_in": ("gauge", view.clients),
        "fedmoments_samples_in": ("gauge", view.samples),
        "fedmoments_bytes_in": ("gauge", view.bytes),
        "fedmoments_classes": ("gauge", view.n_classes),
        "fedmoments_classes_covered": ("gauge", view.covered),
        "fedmoments_rounds_closed_total": ("counter", len(view.rounds)),
        "fedmoments_refused_total": ("counter", view.refused),
        "fedmoments_accuracy": ("gauge", {("head", head): n for head, n in view.accuracy.items() if n is not None}),
    }
