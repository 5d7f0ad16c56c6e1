"""Who may read a page of numbers: visitors with its token or, without one, whoever calls this machine by its own name.

A web page elsewhere can give its own name this machine's address, and would then read what its visitor's machine shows:
the name that was requested tells.
"""

import hmac
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from fedmoments.federation.deploy.network import is_loopback

__all__ = ["COOKIE", "Gate"]

COOKIE = "fedmoments"


class Gate:
    """Lets in who has the token or, without one, who speaks to this machine by its own name."""

    def __init__(self, app: Any, token: str) -> None:
        self._app, self._token = app, token

    async def __call__(
        self, scope: Any, receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]
    ) -> None:
        request = Request(scope, receive)
        await (self._answer(request) or self._app)(scope, receive, send)

    def _answer(self, request: Request) -> Response | None:
        if not self._token:
            if is_loopback((request.url.hostname or "").strip("[]")):
                return None
            return PlainTextResponse("this page is for this machine: ask for it at 127.0.0.1\n", 403)
        bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
        given = request.query_params.get("token") or request.cookies.get(COOKIE) or bearer
        if not hmac.compare_digest(given.encode(), self._token.encode()):
            return PlainTextResponse("this page needs the token that 'server run' printed\n", 403)
        if "token" not in request.query_params:
            return None
        answer = RedirectResponse(f"/{request.url.path.lstrip('/')}", 303)  # of "//elsewhere" a browser makes a host
        answer.set_cookie(COOKIE, self._token, httponly=True, samesite="strict", secure=request.url.scheme == "https")
        return answer
