"""The helper's node: what the second server of secure sums does when the first one asks. Knows nothing of Flower.

It holds the key that opens the seeds of masked reports, and a permanent memory of what it unmasked. It answers for one
federation, whose terms its operator read, and it never measures or contributes anything.
"""

import hashlib
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from fedmoments.errors import PolicyError, PrivacyError
from fedmoments.federation.keys.helper import load_helper_key
from fedmoments.federation.keys.parties import read_card
from fedmoments.federation.outbox.record import Record
from fedmoments.federation.terms import Terms
from fedmoments.privacy.modes.messages import requests_of
from fedmoments.privacy.secure.helper import Helper
from fedmoments.settings.helper import HelperSettings

__all__ = ["FINISHED", "ROLL_CALL", "HelperNode"]

#: File in a party's folder that says: the server has closed the federation's run.
FINISHED = "finished"
#: What seeds are sealed for by which a helper is known.
ROLL_CALL = b"fedmoments helper roll call 1\n"


class HelperNode:
    """Answers the leader of one federation.

    Parameters
    ----------
    settings
        The helper's own.
    """

    def __init__(self, settings: HelperSettings) -> None:
        self.settings = settings
        self._key = load_helper_key(settings.key)
        self._record = Record(Path(settings.folder) / "record.jsonl")

    @property
    def public(self) -> str:
        """The public key that clients seal for."""
        return self._key.public

    def prove(self, sealed: bytes) -> str:
        """Return the digest of a seed that was sealed to see whether this node has the helper's key; "" if it has not.

        What is sealed for a report does not open here: it was sealed for another purpose.
        """
        try:
            return hashlib.sha256(self._key.open(sealed, ROLL_CALL)).hexdigest()
        except PrivacyError:
            return ""

    def answer(self, terms: Terms, step: str, data: bytes) -> bytes:
        """Do one step of the protocol.

        Parameters
        ----------
        terms
            Of the federation that the leader asks for.
        step
            One of those that the terms' mode has.
        data
            What the step is about: see :mod:`fedmoments.privacy.modes.messages`.

        Raises
        ------
        PolicyError
            When the terms are not those that the helper's operator read.
        PrivacyError, RefusedError
            When a rule forbids the answer, or one report is unsound.
        """
        self.require(terms)
        mode = terms.privacy.mode
        mode.check_step(step)
        place = Path(self.settings.folder)
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        least = max(self.settings.minimum, terms.privacy.batch)
        memory, members = place / "memory.db", self._members()
        with (
            Helper(self._key, minimum=least, path=memory, members=members, once=mode.opens_once) as helper,
            closing(mode.gate(helper, terms, minimum=least, folder=place)) as gate,
        ):
            answer = mode.answer(gate, terms, step, data)
        self._write_down(terms, step, data, answer)
        return answer

    def close(self, *, over: bool) -> None:
        """Leave a file that lets the node's starter stop it, if the server's run is over."""
        if over:
            Path(self.settings.folder, FINISHED).touch()

    def require(self, terms: Terms) -> None:
        """Refuse terms that the operator did not read, or that name another helper."""
        agreed = terms.privacy
        if terms.id != self.settings.federation:
            raise PolicyError(
                f"this helper answers the federation {self.settings.federation[:16]}…, but was requested "
                f"{terms.id[:16]}… ('{terms.name}'): let its operator read those terms first"
            )
        if agreed.helper != self.public:
            raise PolicyError(
                f"the terms of '{terms.name}' name the helper {agreed.helper[:16]}…, but this one has the key "
                f"{self.public[:16]}…: start it with the key that the terms name"
            )
        agreed.mode.check_helper(terms, self.settings.minimum)

    def _members(self) -> Mapping[str, str] | None:
        cards = [read_card(path) for path in self.settings.members]
        return {card.name: card.identity.hex for card in cards} if cards else None

    def _write_down(self, terms: Terms, step: str, data: bytes, answer: bytes) -> None:
        facts: dict[str, Any] = {"federation": terms.id, "name": terms.name, "step": step, "bytes": len(answer)}
        if requests := requests_of(step, data):
            facts |= {"sums": len(requests), "reports": len({name for request in requests for name in request.ids})}
            facts |= {"numbers": sum(request.size for request in requests)}
        self._record.add("answered", **facts, digest=hashlib.sha256(data).hexdigest())
        self._record.flush()
