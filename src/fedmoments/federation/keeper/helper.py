"""Keeping a helper's key: seeds are opened, and rules applied, in one process that speaks to no network.

Were seeds opened here and rules applied elsewhere, whoever had got hold of that other process could have every seed.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedmoments.errors import InputError
from fedmoments.federation.flower.helper import HelperNode
from fedmoments.federation.keeper.line import Line
from fedmoments.federation.outbox.record import Record
from fedmoments.federation.terms import Terms

__all__ = ["HelperKeeper", "KeptHelper"]


class HelperKeeper:
    """Answers the process that works for the helper's node: all that a helper does, and nothing of how.

    Parameters
    ----------
    node
        The helper, with its key, its memory and its rules.
    """

    def __init__(self, node: HelperNode) -> None:
        self._node = node

    def answer(self, what: str, fields: Mapping[str, Any], data: bytes) -> tuple[dict[str, Any], bytes]:
        """Do what is asked, if the helper's rules allow it."""
        match what:
            case "public":
                return {"key": self._node.public}, b""
            case "prove":
                return {"proof": self._node.prove(data)}, b""
            case "step":
                terms = Terms.from_json(fields["terms"]).at(fields["attempt"])
                return {}, self._node.answer(terms, str(fields["step"]), data)
            case "close":
                self._node.close(over=fields["over"] is True)
                return {}, b""
            case "refused":
                self._write_down(str(fields["sentence"]))
                return {}, b""
        raise InputError(f"the keeper of a helper's key does not know what {what[:40]!r} means")

    def _write_down(self, sentence: str) -> None:
        record = Record(Path(self._node.settings.folder) / "record.jsonl")
        record.add("refused app", federation=self._node.settings.federation, sentence=sentence[:1000])
        record.flush()


class KeptHelper:
    """A helper whose key is somewhere else: the keeper does what :class:`HelperNode` does.

    Parameters
    ----------
    line
        To the keeper.
    """

    def __init__(self, line: Line) -> None:
        self._line = line

    @property
    def public(self) -> str:
        """The public key that clients seal for."""
        return str(self._line.ask("public")[0]["key"])

    def prove(self, sealed: bytes) -> str:
        """Return the digest of a seed that was sealed to see whether this is the helper; "" if it does not open."""
        return str(self._line.ask("prove", sealed)[0]["proof"])

    def answer(self, terms: Terms, step: str, data: bytes) -> bytes:
        """Do one step of the protocol."""
        return self._line.ask("step", data, terms=terms.to_json(), attempt=terms.attempt, step=step)[1]

    def close(self, *, over: bool) -> None:
        """Take note that the server's run is over."""
        self._line.ask("close", over=over)
