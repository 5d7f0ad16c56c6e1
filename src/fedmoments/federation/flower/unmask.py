"""Asking the helper: which node it is, and a step of the protocol (:mod:`fedmoments.privacy.modes.messages`).

A request that is repeated gets the same answer, so that a lost reply costs a repetition and nothing else.
"""

import hashlib
import secrets
import time
from collections.abc import Callable

from flwr.serverapp import Grid

from fedmoments.errors import DeploymentError, PrivacyError, RefusedError
from fedmoments.federation.flower.exchange import Exchange, Failure, Reply
from fedmoments.federation.flower.helper import ROLL_CALL
from fedmoments.federation.flower.messages import HELPER, UNMASK, content_of, read_content
from fedmoments.federation.flower.replies import cleaned
from fedmoments.federation.terms import Terms
from fedmoments.privacy.secure.seal import seal
from fedmoments.settings.server import ServerSettings

__all__ = ["RemoteHelper", "find_helper"]

#: Seconds within which nodes must say whether they are the helper.
ANSWER = 60.0
#: How often a step is requested when the helper's node goes away.
MOST_TRIES = 3
#: Seconds between two looks for a helper that went away or has not come yet.
LOOK = 2.0


def find_helper(grid: Grid, settings: ServerSettings, key: str, known: dict[int, str] | None = None) -> int | None:
    """Return the node whose helper has the public key that the terms name; None if there is none.

    Parameters
    ----------
    grid, settings
        Whom to ask, and how.
    key
        64 hexadecimal digits. A node must prove that it has the private half, by opening what was sealed for it:
        otherwise any node could say so, answer nonsense, and spoil a batch.
    known
        What nodes said before, by node; they are not asked again. Filled here.
    """
    said = {} if known is None else known
    seed = secrets.token_bytes(32)
    question = content_of({"helper": key, "sealed": seal(seed, key, ROLL_CALL).hex()})
    proof = hashlib.sha256(seed).hexdigest()
    exchange = Exchange(grid, settings.ttl, settings.poll, 2**16, "helper")

    def take(answer: Reply | Failure) -> None:
        if isinstance(answer, Reply):
            try:
                fields, _ = read_content(answer.content, most_bytes=0)
                says = str(fields.get("helper", ""))[:64]
                said[answer.node] = "another" if says == key and fields.get("proof") != proof else says
            except Exception:  # a node chooses what it sends: then it is not a helper
                said[answer.node] = ""

    new = [node for node in sorted(grid.get_node_ids()) if node not in said]
    exchange.ask(HELPER, dict.fromkeys(new, question))
    exchange.hear(take, until=time.monotonic() + min(ANSWER, settings.deadline))
    here = set(grid.get_node_ids())
    return next((node for node, claimed in said.items() if claimed == key and node in here), None)


class RemoteHelper:
    """The line to the helper at another party: what a mode's :meth:`~fedmoments.privacy.modes.mode.Mode.remote` asks.

    Parameters
    ----------
    grid, settings
        How to reach it.
    terms
        Of the federation.
    find
        Returns its node, or None while it is not there.

    Attributes
    ----------
    opened
        How many steps it answered that it remembers a batch for.
    """

    def __init__(self, grid: Grid, settings: ServerSettings, terms: Terms, find: Callable[[], int | None]) -> None:
        self._grid, self._settings, self._terms, self._find = grid, settings, terms, find
        self.opened = 0

    def wait(self) -> int | None:
        """Return the helper's node, waiting for it as long as for the first nodes; None if it does not come."""
        until = time.monotonic() + self._settings.wait
        while (node := self._find()) is None and time.monotonic() < until:
            time.sleep(min(LOOK, self._settings.poll))
        return node

    def ask(self, step: str, data: bytes, most_bytes: int) -> bytes:
        """Ask until there is an answer, the helper forbids it, or time is over."""
        end, reason = time.monotonic() + self._settings.deadline, "it is not there"
        for _ in range(MOST_TRIES):
            node = self.wait()
            if node is None:
                break
            answer = self._exchange(node, step, data, most_bytes, end)
            if isinstance(answer, Reply):
                payload = self._read(answer, most_bytes)
                self.opened += step not in self._terms.privacy.mode.preparing
                return payload
            reason = cleaned(answer.reason, 500)
            if not answer.passing:
                break
        raise DeploymentError(
            f"the helper with the key {self._terms.privacy.helper[:16]}… did not answer ({reason}): what clients "
            "reported is kept, so start the helper and run again"
        )

    def _exchange(self, node: int, step: str, data: bytes, most_bytes: int, end: float) -> Reply | Failure:
        exchange = Exchange(self._grid, self._settings.ttl, self._settings.poll, most_bytes + 2**16, "helper")
        fields = {"terms": self._terms.to_json(), "step": step, "attempt": self._terms.attempt}
        answers: list[Reply | Failure] = list(exchange.ask(UNMASK, {node: content_of(fields, data)}))
        if not answers:
            exchange.hear(answers.append, until=end)
        return answers[0]

    def _read(self, answer: Reply, most_bytes: int) -> bytes:
        try:
            fields, data = read_content(answer.content, most_bytes=most_bytes)
            refused, forbidden = fields.get("refused"), fields.get("forbidden")
            if refused is not None:
                texts = {name: cleaned(refused[name], 500) for name in ("client", "reason", "sentence")}
        except Exception as error:
            raise DeploymentError(f"the helper's answer is invalid ({type(error).__name__})") from error
        if refused is not None:
            raise RefusedError(texts["reason"], texts["sentence"], texts["client"] or None)
        if forbidden is not None:
            raise PrivacyError(f"the helper refused: {cleaned(forbidden, 1000)}")
        return data
