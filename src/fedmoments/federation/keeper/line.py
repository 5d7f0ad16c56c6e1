"""The line between the keeper and those who ask it: one end of a socket pair each, without a name or a path.

A question is a word with a few fields as JSON, and bytes; so is an answer. What the keeper refuses is raised at the
other end as the same error.
"""

import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from multiprocessing.connection import Connection
from typing import Any

from fedmoments.errors import FedMomentsError, InputError, PolicyError, PrivacyError, RefusedError

__all__ = ["Answer", "Line", "serve"]

#: Cap on one question or answer: half a million sealed seeds.
MOST_BYTES = 2**29
_ERRORS: dict[str, type[FedMomentsError]] = {"policy": PolicyError, "privacy": PrivacyError, "input": InputError}

#: Takes a word, fields and bytes; returns fields and bytes.
Answer = Callable[[str, Mapping[str, Any], bytes], tuple[Mapping[str, Any], bytes]]


class Line:
    """The end of those who ask.

    Parameters
    ----------
    descriptor
        One end of a socket pair.

    Examples
    --------
    >>> import socket, threading
    >>> here, there = socket.socketpair()
    >>> answering = threading.Thread(target=serve, args=(there.detach(), lambda what, fields, data: (fields, data * 2)))
    >>> answering.start()
    >>> line = Line(here.detach())
    >>> line.ask("double", b"ab", number=7)
    ({'number': 7}, b'abab')
    >>> line.close()
    >>> answering.join()
    """

    def __init__(self, descriptor: int) -> None:
        self._connection = Connection(descriptor)

    @staticmethod
    @lru_cache(maxsize=1)
    def at(descriptor: int) -> "Line":
        """Return the line at a descriptor of this process, opened once."""
        return Line(descriptor)

    def ask(self, what: str, data: bytes = b"", **fields: Any) -> tuple[dict[str, Any], bytes]:
        """Ask, and return the answer, or raise what the keeper refused with."""
        self._connection.send_bytes(_packed({"what": what, "fields": fields}, data))
        head, body = _unpacked(self._connection.recv_bytes(MOST_BYTES))
        if "refused" in head:
            raise RefusedError(*head["refused"])
        if "error" in head:
            raise _ERRORS[head["kind"]](head["error"])
        return head["fields"], body

    def close(self) -> None:
        """Hang up."""
        self._connection.close()


def serve(descriptor: int, answer: Answer) -> None:
    """Answer at one end of a socket pair until the other hangs up."""
    with Connection(descriptor) as connection:
        while True:
            try:
                question = connection.recv_bytes(MOST_BYTES)
            except (EOFError, OSError):  # hung up, killed in the middle of a word, or over the cap
                return
            try:
                connection.send_bytes(_answered(question, answer))
            except OSError:
                return


def _answered(question: bytes, answer: Answer) -> bytes:
    try:
        head, data = _unpacked(question)
        fields, body = answer(str(head["what"]), dict(head["fields"]), data)
    except RefusedError as error:
        return _packed({"refused": [error.reason, error.sentence, error.client]})
    except FedMomentsError as error:
        kinds = [kind for kind, wanted in _ERRORS.items() if isinstance(error, wanted)]
        return _packed({"kind": [*kinds, "input"][0], "error": str(error)})
    except Exception as error:  # whoever asks may be broken, or nest brackets without end: the keeper stays
        return _packed({"kind": "input", "error": f"the keeper of the key cannot do that: {type(error).__name__}"})
    return _packed({"fields": dict(fields)}, body)


def _packed(head: Mapping[str, Any], data: bytes = b"") -> bytes:
    return json.dumps(head).encode("ascii") + b"\n" + data


def _unpacked(message: bytes) -> tuple[dict[str, Any], bytes]:
    head, _, data = message.partition(b"\n")
    return json.loads(head), data
