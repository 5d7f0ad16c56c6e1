"""The party's side of enrolling: hand the token and the card in, over TLS, to the server that the kit names."""

import json
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

from fedmoments.errors import DeploymentError
from fedmoments.federation.enrolment.kit import Kit, statement
from fedmoments.federation.keys.parties import ClientKeys, load_identity

__all__ = ["enrol_with"]

#: Seconds between two attempts to reach a server that is not there yet, and for one answer.
AGAIN, ANSWER = 5.0, 120.0
#: An answer is a sentence.
MOST_ANSWER = 2**16


def enrol_with(kit: Kit, keys: ClientKeys, *, patience: float, on_absent: Callable[[str], None] | None = None) -> None:
    """Enrol with a kit; the same again, after an answer that was lost, changes nothing.

    Parameters
    ----------
    kit
        What the operator sent.
    keys
        The party's own.
    patience
        Seconds for which a server that does not answer is tried again.
    on_absent
        Called with the reason when it did not answer for the first time.

    Raises
    ------
    DeploymentError
        When the server refuses, or does not answer in time.
    """
    card = keys.card.read_text("utf-8")
    proof = load_identity(keys.identity).sign(statement(kit.terms.id, card)).hex()
    body = json.dumps({"token": kit.token, "card": card, "proof": proof}).encode()
    end = time.monotonic() + patience
    was_told = False
    while True:
        try:
            _ask(kit, body)
        except (OSError, TimeoutError) as error:
            if isinstance(error, ssl.SSLCertVerificationError) or isinstance(
                getattr(error, "reason", None), ssl.SSLCertVerificationError
            ):
                raise DeploymentError(
                    f"{kit.desk} is not the server that this kit belongs to, for its certificate is another: {error}"
                ) from error
            if time.monotonic() + AGAIN > end:
                raise DeploymentError(
                    f"no enrolment server answers at {kit.desk} ({error}): ask the operator whether it runs, and start "
                    "this command again; nothing was sent but the attempt to connect"
                ) from error
            if on_absent and not was_told:
                on_absent(str(error))
                was_told = True
            time.sleep(AGAIN)
        else:
            return


def _ask(kit: Kit, body: bytes) -> None:
    context = ssl.create_default_context(cadata=kit.ca)
    opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context), _NoRedirect())
    request = urllib.request.Request(
        f"https://{kit.desk}/enrol", data=body, headers={"Content-Type": "application/json"}
    )
    try:
        with opener.open(request, timeout=ANSWER) as answer:
            document = _document(answer.read(MOST_ANSWER))
    except urllib.error.HTTPError as error:
        with error:
            said = _document(error.read(MOST_ANSWER)).get("error", error.reason)
        if error.code >= 500:
            raise OSError(f"it answered {error.code}: {str(said)[:500]}") from error
        raise DeploymentError(f"{kit.desk} did not enrol {kit.name!r}: {str(said)[:500]}") from error
    if document.get("enrolled") != kit.name or document.get("federation") != kit.terms.id:
        raise DeploymentError(f"{kit.desk} enrolled somebody else, or to another federation: ask the operator")


def _document(data: bytes) -> dict[str, Any]:
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A token goes to the server that the kit names, and to no other."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Follow no redirect."""
