"""Asking the helper: which node it is, and the steps of the protocol, as if it were in this process.

A request that is repeated gets the same answer, so that a lost reply costs a repetition and nothing else.
"""

import hashlib
import secrets
import time
from collections.abc import Callable, Sequence

import numpy as np
from flwr.serverapp import Grid
from numpy.typing import NDArray

from fedmoments.errors import DeploymentError, PrivacyError, RefusedError
from fedmoments.federation.terms import Terms
from fedmoments.flower.exchange import Exchange, Failure, Reply
from fedmoments.flower.helper import ROLL_CALL
from fedmoments.flower.messages import HELPER, UNMASK, content_of, read_content
from fedmoments.flower.replies import cleaned
from fedmoments.flower.settings import ServerSettings
from fedmoments.privacy.secure import Context, SumRequest
from fedmoments.privacy.secure.broadcast import Broadcast
from fedmoments.privacy.secure.cohort_draw import NONCE_BYTES, Roster
from fedmoments.privacy.secure.seal import seal
from fedmoments.wire import pack_bundle, unpack_bundle

__all__ = ["RemoteHelper", "find_helper"]

Words = NDArray[np.uint64]

#: Seconds within which nodes must say whether they are the helper.
ANSWER = 60.0
#: Sums that are asked for together have about so many bytes, questions and answers.
MESSAGE_BYTES = 2**25
#: How often a step is asked for when the helper's node goes away.
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
                words, _ = read_content(answer.content, most_bytes=0)
                says = str(words.get("helper", ""))[:64]
                said[answer.node] = "another" if says == key and words.get("proof") != proof else says
            except Exception:  # a node chooses what it sends: then it is no helper
                said[answer.node] = ""

    new = [node for node in sorted(grid.get_node_ids()) if node not in said]
    exchange.ask(HELPER, dict.fromkeys(new, question))
    exchange.hear(take, until=time.monotonic() + min(ANSWER, settings.deadline))
    here = set(grid.get_node_ids())
    return next((node for node, found in said.items() if found == key and node in here), None)


class RemoteHelper:
    """The helper at another party; it has the methods of the helpers in :mod:`fedmoments.privacy.secure`.

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

    # ---------------------------------------------------------------------------------------------- steps

    def sum(self, request: SumRequest) -> Words:
        """Return the masks of a batch, added up, with the helper's noise on them where the terms ask for noise."""
        return self._numbers(self._ask("sum", request.to_bytes(), 8 * request.size), request.size)

    def draw(self, context: Context, roster: Roster, commitment: bytes) -> bytes:
        """Return the helper's nonce for cohorts."""
        self._require_own(context)
        nonce = self._ask("draw", pack_bundle([commitment, roster.to_bytes()]), NONCE_BYTES)
        if len(nonce) != NONCE_BYTES:
            raise DeploymentError(f"the helper's nonce must have {NONCE_BYTES} bytes, but {len(nonce)} arrived")
        return nonce

    def reveal(self, context: Context, nonce: bytes) -> tuple[tuple[str, ...], ...]:
        """Return the cohorts that the helper deals."""
        self._require_own(context)
        return _groups(self._ask("reveal", nonce, self._settings.bundle_bytes))

    def admit(self, context: Context, envelopes: Sequence[bytes]) -> tuple[tuple[str, ...], ...]:
        """Return the ids of the reports of every cohort of those who are present."""
        self._require_own(context)
        return _groups(self._ask("admit", pack_bundle(list(envelopes)), self._settings.bundle_bytes))

    def learn(self, request: SumRequest, masked: Words) -> Words:
        """Return the masks of the contributors of a group."""
        return self.learn_many([request], [masked])[0]

    def learn_many(self, requests: Sequence[SumRequest], masked: Sequence[Words]) -> list[Words]:
        """Return the masks of the contributors of many groups, in as few messages as their bytes allow."""
        pairs = [(one.to_bytes(), sums.astype("<u8").tobytes()) for one, sums in zip(requests, masked, strict=True)]
        return self._many("learn", requests, pairs)

    def open(self, request: SumRequest) -> Words:
        """Return the masks of classes over groups."""
        return self.open_many([request])[0]

    def open_many(self, requests: Sequence[SumRequest]) -> list[Words]:
        """Return the masks of many sums of classes, in as few messages as their bytes allow."""
        return self._many("open", requests, [(request.to_bytes(),) for request in requests])

    def _many(self, step: str, requests: Sequence[SumRequest], pieces: Sequence[tuple[bytes, ...]]) -> list[Words]:
        found: list[Words] = []
        while len(found) < len(requests):
            start, stop, size = len(found), len(found), 0
            while stop < len(requests) and (stop == start or size < MESSAGE_BYTES):
                size += sum(map(len, pieces[stop])) + 8 * requests[stop].size
                stop += 1
            total = sum(request.size for request in requests[start:stop])
            data = pack_bundle([piece for some in pieces[start:stop] for piece in some])
            numbers = self._numbers(self._ask(step, data, 8 * total), total)
            edges = np.cumsum([request.size for request in requests[start:stop]])[:-1]
            found += np.split(numbers, edges)
        return found

    def second(self, request: SumRequest, first: Context, broadcast: Broadcast) -> Words:
        """Return the masks of the second of two phases."""
        self._require_own(first)
        data = pack_bundle([request.to_bytes(), broadcast.to_bytes()])
        return self._numbers(self._ask("second", data, 8 * request.size), request.size)

    # ---------------------------------------------------------------------------------------------- asking

    def _ask(self, step: str, data: bytes, most_bytes: int) -> bytes:
        """Ask until there is an answer, the helper forbids it, or time is over."""
        end, reason = time.monotonic() + self._settings.deadline, "it is not there"
        for _ in range(MOST_TRIES):
            node = self.wait()
            if node is None:
                break
            answer = self._exchange(node, step, data, most_bytes, end)
            if isinstance(answer, Reply):
                found = self._read(answer, most_bytes)
                self.opened += step not in ("draw", "reveal")
                return found
            reason = cleaned(answer.reason, 500)
            if not answer.passing:
                break
        raise DeploymentError(
            f"the helper with the key {self._terms.privacy.helper[:16]}… did not answer ({reason}): what clients "
            "reported is kept, so start the helper and run again"
        )

    def _exchange(self, node: int, step: str, data: bytes, most_bytes: int, end: float) -> Reply | Failure:
        exchange = Exchange(self._grid, self._settings.ttl, self._settings.poll, most_bytes + 2**16, "helper")
        words = {"terms": self._terms.to_json(), "step": step}
        found: list[Reply | Failure] = list(exchange.ask(UNMASK, {node: content_of(words, data)}))
        if not found:
            exchange.hear(found.append, until=end)
        return found[0]

    def _read(self, answer: Reply, most_bytes: int) -> bytes:
        try:
            words, data = read_content(answer.content, most_bytes=most_bytes)
            refused, forbidden = words.get("refused"), words.get("forbidden")
            if refused is not None:
                texts = {name: cleaned(refused[name], 500) for name in ("client", "reason", "sentence")}
        except Exception as error:
            raise DeploymentError(f"the helper's answer makes no sense ({type(error).__name__})") from error
        if refused is not None:
            raise RefusedError(texts["reason"], texts["sentence"], texts["client"] or None)
        if forbidden is not None:
            raise PrivacyError(f"the helper refused: {cleaned(forbidden, 1000)}")
        return data

    def _numbers(self, data: bytes, size: int) -> Words:
        if len(data) != 8 * size:
            raise DeploymentError(f"the helper answered with {len(data)} bytes, but {8 * size} were asked for")
        return np.frombuffer(data, "<u8").astype(np.uint64)

    def _require_own(self, context: Context) -> None:
        if context != self._terms.context:
            raise PrivacyError("cohorts are dealt for the context of the terms, and for no other")


def _groups(data: bytes) -> tuple[tuple[str, ...], ...]:
    try:
        parts = unpack_bundle(data, max_bytes=len(data), max_items=2**20)
        return tuple(tuple(bytes(part).decode().split("\n")) for part in parts)
    except (RefusedError, UnicodeDecodeError) as error:
        raise DeploymentError(f"the helper's answer makes no sense: {cleaned(error, 200)}") from error
