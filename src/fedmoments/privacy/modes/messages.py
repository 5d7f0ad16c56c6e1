"""Questions to the helper as bytes, and its answers: both ends of the line in one place, without a word on networks.

:class:`Remote` has the methods of the helpers in :mod:`fedmoments.privacy.secure`, and asks for each step by its name;
:func:`answer` does a step with the real ones. A request that is repeated gets the same answer, so that a lost one costs
a repetition and nothing else.

========  ===========================================  ==========================================
step      what is asked                                what is answered
========  ===========================================  ==========================================
sum       a request                                    masks, with the helper's noise if there is
draw      the leader's commitment, the roster          the helper's nonce
reveal    the leader's nonce                           names of every cohort
admit     envelopes of all who are present             report ids of every cohort
learn     requests, each with masked contributors      masks of contributors
open      requests                                     masks of classes
second    a request, the broadcast                     masks of the second phase
tested    a request for results of tests               masks of those
========  ===========================================  ==========================================
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.errors import DeploymentError, InputError, PrivacyError, RefusedError
from fedmoments.privacy.secure.broadcast import Broadcast
from fedmoments.privacy.secure.cohort_draw import NONCE_BYTES, Roster
from fedmoments.privacy.secure.context import Context, tests_of
from fedmoments.privacy.secure.request import SumRequest
from fedmoments.wire import pack_bundle, unpack_bundle

if TYPE_CHECKING:
    from fedmoments.privacy.modes.parties import Asked

__all__ = ["TESTED", "Ask", "Remote", "add_tested", "answer", "requests_of"]

Words = NDArray[np.uint64]
#: Asks for a step with these bytes, and returns the answer, of so many bytes at most.
Ask = Callable[[str, bytes, int], bytes]

#: Sums that are requested together have about so many bytes, questions and answers.
MESSAGE_BYTES = 2**25
#: The step by which masked results of tests on held-out samples are added up.
TESTED = "tested"
#: Caps on what the leader may send in one message.
MOST_BYTES, MOST_ENVELOPES = 2**28, 2**20


class Remote:
    """The helper at another party; it has the methods of the helpers in :mod:`fedmoments.privacy.secure`.

    Parameters
    ----------
    asked
        What is added up.
    ask
        Carries a step to the helper.
    most_bytes
        Cap on a list of names that the helper answers with.
    """

    def __init__(self, asked: "Asked", ask: Ask, most_bytes: int) -> None:
        self._asked, self._ask, self._most = asked, ask, most_bytes

    def sum(self, request: SumRequest) -> Words:
        """Return the masks of a batch, added up, with the helper's noise on them where noise was agreed on."""
        return self._numbers("sum", request.to_bytes(), request.size)

    def draw(self, context: Context, roster: Roster, commitment: bytes) -> bytes:
        """Return the helper's nonce for cohorts."""
        self._require_own(context, self._asked.context.drawing)
        nonce = self._ask("draw", pack_bundle([commitment, roster.to_bytes()]), NONCE_BYTES)
        if len(nonce) != NONCE_BYTES:
            raise DeploymentError(f"the helper's nonce must have {NONCE_BYTES} bytes, but {len(nonce)} arrived")
        return nonce

    def reveal(self, context: Context, nonce: bytes) -> tuple[tuple[str, ...], ...]:
        """Return the cohorts that the helper deals."""
        self._require_own(context, self._asked.context.drawing)
        return _groups(self._ask("reveal", nonce, self._most))

    def admit(self, context: Context, envelopes: Sequence[bytes]) -> tuple[tuple[str, ...], ...]:
        """Return the ids of the reports of every cohort of those who are present."""
        self._require_own(context)
        return _groups(self._ask("admit", pack_bundle(list(envelopes)), self._most))

    def learn(self, request: SumRequest, masked: Words) -> Words:
        """Return the masks of the contributors of a group."""
        return self.learn_many([request], [masked])[0]

    def learn_many(self, requests: Sequence[SumRequest], masked: Sequence[Words]) -> list[Words]:
        """Return the masks of the contributors of many groups, in as few messages as their bytes allow."""
        pairs = [(one.to_bytes(), _bytes(sums)) for one, sums in zip(requests, masked, strict=True)]
        return self._many("learn", requests, pairs)

    def open(self, request: SumRequest) -> Words:
        """Return the masks of classes over groups."""
        return self.open_many([request])[0]

    def open_many(self, requests: Sequence[SumRequest]) -> list[Words]:
        """Return the masks of many sums of classes, in as few messages as their bytes allow."""
        return self._many("open", requests, [(request.to_bytes(),) for request in requests])

    def second(self, request: SumRequest, first: Context, broadcast: Broadcast) -> Words:
        """Return the masks of the second of two phases."""
        self._require_own(first)
        return self._numbers("second", pack_bundle([request.to_bytes(), broadcast.to_bytes()]), request.size)

    def _many(self, step: str, requests: Sequence[SumRequest], pieces: Sequence[tuple[bytes, ...]]) -> list[Words]:
        masks: list[Words] = []
        while len(masks) < len(requests):
            start, stop, size = len(masks), len(masks), 0
            while stop < len(requests) and (stop == start or size < MESSAGE_BYTES):
                size += sum(map(len, pieces[stop])) + 8 * requests[stop].size
                stop += 1
            data = pack_bundle([piece for some in pieces[start:stop] for piece in some])
            numbers = self._numbers(step, data, sum(request.size for request in requests[start:stop]))
            edges = np.cumsum([request.size for request in requests[start:stop]])[:-1]
            masks += np.split(numbers, edges)
        return masks

    def _numbers(self, step: str, data: bytes, size: int) -> Words:
        numbers = self._ask(step, data, 8 * size)
        if len(numbers) != 8 * size:
            raise DeploymentError(f"the helper answered with {len(numbers)} bytes, but {8 * size} were requested")
        return np.frombuffer(numbers, "<u8").astype(np.uint64)

    def _require_own(self, context: Context, own: Context | None = None) -> None:
        if context != (own or self._asked.context):
            raise PrivacyError("cohorts are dealt for the context of the terms, and for no other")


def _groups(data: bytes) -> tuple[tuple[str, ...], ...]:
    try:
        parts = unpack_bundle(data, max_bytes=len(data), max_items=MOST_ENVELOPES)
        return tuple(tuple(bytes(part).decode().split("\n")) for part in parts)
    except (RefusedError, UnicodeDecodeError) as error:  # no word of theirs reaches a log
        raise DeploymentError(f"the helper's answer is invalid ({type(error).__name__})") from error


# -------------------------------------------------------------------------------------------------- the helper's end


def answer(gate: Any, asked: "Asked", step: str, data: bytes) -> bytes:
    """Do one step with a helper of :mod:`fedmoments.privacy.secure`, and return its answer as bytes.

    Parameters
    ----------
    gate
        What the mode made of the helper; it has the method of the step.
    asked
        What is added up: other requests are refused.
    step, data
        What :class:`Remote` sent.
    """
    return _ANSWERS[step](gate, asked, data)


def requests_of(step: str, data: bytes) -> list[SumRequest]:
    """Return the requests of a step that opens sums; none of others."""
    pieces = {"sum": lambda: [data], TESTED: lambda: [data], "open": lambda: _pieces(data)}
    return [SumRequest.from_bytes(piece) for piece in pieces.get(step, list)()]


def add_tested(helper: Any, asked: "Asked", data: bytes) -> bytes:
    """Return the masks of results of tests, added up by a :class:`~fedmoments.privacy.secure.helper.Helper`."""
    request = SumRequest.from_bytes(data)
    if request.context.federation != tests_of(asked.context.federation):
        raise PrivacyError("the request is not for results of tests of the federation of the terms beside it")
    return _bytes(helper.sum(request))


def _sum(gate: Any, asked: "Asked", data: bytes) -> bytes:
    return _bytes(gate.sum(_request(data, asked)))


def _draw(gate: Any, asked: "Asked", data: bytes) -> bytes:
    commitment, members = _pieces(data, 2)
    nonce: bytes = gate.draw(asked.context.drawing, Roster.from_bytes(members), commitment)
    return nonce


def _reveal(gate: Any, asked: "Asked", data: bytes) -> bytes:
    return _names(gate.reveal(asked.context.drawing, data))


def _admit(gate: Any, asked: "Asked", data: bytes) -> bytes:
    return _names(gate.admit(asked.context, _pieces(data)))


def _learn(gate: Any, asked: "Asked", data: bytes) -> bytes:
    pieces = _pieces(data)
    requests = [_request(piece, asked) for piece in pieces[::2]]
    return b"".join(map(_bytes, gate.learn_many(requests, [np.frombuffer(piece, "<u8") for piece in pieces[1::2]])))


def _open(gate: Any, asked: "Asked", data: bytes) -> bytes:
    return b"".join(map(_bytes, gate.open_many([_request(piece, asked) for piece in _pieces(data)])))


def _second(gate: Any, asked: "Asked", data: bytes) -> bytes:
    request, broadcast = _pieces(data, 2)
    masks = gate.second(SumRequest.from_bytes(request), asked.context, Broadcast.from_bytes(broadcast))
    return _bytes(masks)


_ANSWERS: dict[str, Callable[[Any, "Asked", bytes], bytes]] = {
    "sum": _sum,
    "draw": _draw,
    "reveal": _reveal,
    "admit": _admit,
    "learn": _learn,
    "open": _open,
    "second": _second,
}


def _bytes(numbers: Words) -> bytes:
    return numbers.astype("<u8").tobytes()


def _request(data: bytes, asked: "Asked") -> SumRequest:
    request = SumRequest.from_bytes(data)
    if request.context != asked.context:
        raise PrivacyError("the request is for another federation, round or fingerprint than the terms beside it")
    if request.blocks and request.blocks[-1][1] > asked.layout.size:
        raise PrivacyError(f"a vector of these terms has {asked.layout.size} numbers, and more were requested")
    return request


def _pieces(data: bytes, n: int | None = None) -> list[bytes]:
    pieces = [bytes(piece) for piece in unpack_bundle(data, max_bytes=MOST_BYTES, max_items=MOST_ENVELOPES)]
    if n is not None and len(pieces) != n:
        raise InputError(f"{n} pieces were to arrive, but {len(pieces)} did: use the same release on both servers")
    return pieces


def _names(groups: tuple[tuple[str, ...], ...]) -> bytes:
    return pack_bundle(["\n".join(group).encode() for group in groups])
