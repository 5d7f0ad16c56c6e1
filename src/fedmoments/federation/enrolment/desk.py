"""The desk of a server that runs: a party hands in its token and its card, and is enrolled and admitted at once.

One route, ``POST /enrol``, over TLS with the server's certificate. The body is JSON of ``token``, ``card`` (the text of
``NAME.card``) and ``proof``, a signature of the identity key on the card: nobody enrols a key that is not its own.
"""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from fedmoments.errors import FedMomentsError, InputError, PolicyError, reading
from fedmoments.federation.enrolment.invitations import Invitations
from fedmoments.federation.enrolment.kit import statement
from fedmoments.federation.keys.parties import Card, card_of
from fedmoments.federation.store import FederationStore

__all__ = ["Desk"]

#: A card and a token are a kilobyte, which arrives within seconds.
MOST_BODY, ARRIVAL = 2**14, 10.0


class Desk:
    """Takes tokens in.

    Parameters
    ----------
    ledger
        The federation's.
    admit
        Lets the holder of a transport key join the server that runs.
    say
        Called with what happened, in a sentence.
    """

    def __init__(self, ledger: Path, admit: Callable[[str], None], say: Callable[[str], None] | None = None) -> None:
        self._ledger, self._admit, self._say = ledger, admit, say or (lambda _: None)
        self._one = asyncio.Lock()
        self.enrolled = self.refused = 0

    @property
    def app(self) -> Starlette:
        """The application."""
        return Starlette(routes=[Route("/enrol", self._enrol, methods=["POST"])])

    async def _enrol(self, request: Request) -> Response:
        try:
            token, card, text, proof = _asked(await _body(request))
            async with self._one:  # one at a time: each starts a command of Flower's
                federation = await asyncio.to_thread(self._take, token, card, text, proof)
        except PolicyError as error:
            self.refused += 1
            return JSONResponse({"error": str(error)}, 403)
        except InputError as error:
            self.refused += 1
            return JSONResponse({"error": str(error)}, 400)
        except FedMomentsError as error:
            self._say(f"somebody who has a token could not be enrolled: {error}")
            return JSONResponse({"error": str(error)}, 409)
        self.enrolled += 1
        return JSONResponse({"enrolled": card.name, "federation": federation})

    def _take(self, token: str, card: Card, text: str, proof: bytes) -> str:
        with FederationStore.open(self._ledger) as store:
            if not card.identity.verify(proof, statement(store.terms.id, text)):
                raise PolicyError(f"the proof is not by the identity key on the card of {card.name!r}")
            with Invitations(self._ledger, store.terms.id) as invitations:
                invitations.use(card, token)
            store.enrol(card.name, card.identity, card.node_key)
            federation = store.terms.id
        self._admit(card.node_key)
        self._say(f"{card.name} enrolled with its kit")
        return federation


async def _body(request: Request) -> bytes:
    data = b""
    try:
        async with asyncio.timeout(ARRIVAL):
            async for part in request.stream():
                data += part
                if len(data) > MOST_BODY:
                    raise InputError(f"a request has at most {MOST_BODY:,} bytes")
    except TimeoutError as error:
        raise InputError(f"a request arrives within {ARRIVAL:.0f} seconds") from error
    except ClientDisconnect as error:
        raise InputError("the request ended before its body did") from error
    return data


def _asked(body: bytes) -> tuple[str, Card, str, bytes]:
    """Return token, card, the card's text and the proof that a body holds."""
    with reading("this is not a request to be enrolled"):
        content: Any = json.loads(body)
        token, text, proof = (content[key] for key in ("token", "card", "proof"))
        if not all(isinstance(part, str) for part in (token, text, proof)):
            raise InputError("token, card and proof must be texts")
        return token, card_of(text.encode()), text, bytes.fromhex(proof)
