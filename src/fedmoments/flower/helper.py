"""The helper's node: what the second server of secure sums does when the first one asks. Knows nothing of Flower.

It holds the key that opens the seeds of masked reports, and a memory of what it unmasked, for ever. It answers for one
federation, whose terms its operator read, and it never measures or contributes anything.
"""

import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.deploy.helper_keys import load_helper_key
from fedmoments.deploy.keys import read_card
from fedmoments.errors import InputError, PolicyError, PrivacyError, RefusedError
from fedmoments.federation.outbox.record import Record
from fedmoments.federation.terms import Terms
from fedmoments.jobs.settings import from_values, read_toml, to_toml, with_values
from fedmoments.privacy.dp import noise_vector
from fedmoments.privacy.secure.broadcast import Broadcast
from fedmoments.privacy.secure.cohort_draw import Roster
from fedmoments.privacy.secure.cohort_helper import CohortHelper
from fedmoments.privacy.secure.envelope import Envelope, read_envelope
from fedmoments.privacy.secure.helper import Helper
from fedmoments.privacy.secure.request import SumRequest
from fedmoments.privacy.secure.threshold import ThresholdHelper
from fedmoments.privacy.secure.two_phase_helper import TwoPhaseHelper
from fedmoments.wire import Reason, pack_bundle, unpack_bundle

__all__ = ["ROLL_CALL", "STEPS", "HelperNode", "HelperSettings"]

#: The steps of each way to add up.
STEPS = {
    "sums": ("sum",),
    "cohorts": ("draw", "reveal", "admit", "learn", "open"),
    "two-phase": ("learn", "open", "second"),
}
#: What seeds are sealed for by which a helper is known.
ROLL_CALL = b"fedmoments helper roll call 1\n"
#: Caps on what the leader may send in one message.
MOST_BYTES, MOST_ENVELOPES = 2**28, 2**20

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class HelperSettings:
    """The helper's own settings.

    Parameters
    ----------
    folder
        Where its memory and its record are kept. Never restore the memory from a backup, and never delete it while the
        key is in use: what it forgot could be asked for again.
    key
        File of its private key, ``NAME.helper``.
    federation
        Id of the federation whose terms its operator read; it answers no other.
    minimum
        Fewest reports that a sum may be over, whatever the terms say; the larger of both counts.
    members
        Files (``NAME.card``) of the clients that its operator knows to be real; reports of others are refused.
    anybody
        Whether to do without them: then nobody's signature is checked, and a leader that makes up clients can see the
        numbers of one that is real. For trials.
    """

    folder: str
    key: str
    federation: str
    minimum: int = 3
    members: tuple[str, ...] = ()
    anybody: bool = False

    def __post_init__(self) -> None:
        if not self.folder or not self.key or not self.federation:
            raise InputError("a helper needs a folder, the file of its key, and the id of its federation")
        if self.minimum < 2:
            raise InputError(f"minimum of a helper must be 2 or more, not {self.minimum}: a sum of one hides nothing")
        if bool(self.members) == self.anybody:
            raise InputError(
                "a helper must know which clients are real, or a leader that makes up clients can see the numbers "
                "of one that is: give their cards (members, --member), or, for a trial, say that anybody will do "
                "(--anybody)"
            )

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "HelperSettings":
        """Read a helper's settings file; paths in it are relative to its folder."""
        settings = from_values(cls, read_toml(path), str(path))
        base = Path(path).resolve().parent
        places: dict[str, Any] = {name: str(base / getattr(settings, name)) for name in ("folder", "key")}
        places["members"] = [str(base / card) for card in settings.members]
        return with_values(settings, places, str(path))

    def to_toml(self) -> str:
        """Return the settings as TOML."""
        plain = {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}
        return to_toml({k: v for k, v in plain.items() if v not in ("", [], False)})


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
            One of :data:`STEPS`.
        data
            What the step is about: see :class:`fedmoments.flower.unmask.RemoteHelper`, which writes it.

        Raises
        ------
        PolicyError
            When the terms are not those that the helper's operator read.
        PrivacyError, RefusedError
            When a rule forbids the answer, or one report is unsound.
        """
        self.require(terms)
        steps = STEPS[str(terms.privacy.secure)]
        if step not in steps:
            raise PrivacyError(
                f"secure {terms.privacy.secure} have the steps {', '.join(steps)}, but not {step[:40]!r}"
            )
        place = Path(self.settings.folder)
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        least = max(self.settings.minimum, terms.privacy.batch)
        helper = Helper(self._key, minimum=least, path=place / "memory.db", members=self._members())
        try:
            if step == "sum":
                answer = self._sum(helper, terms, data)
            elif terms.privacy.secure == "cohorts":
                answer = self._cohorts(helper, terms, step, data)
            else:
                answer = self._two_phases(helper, terms, step, data)
        finally:
            helper.close()
        self._write_down(terms, step, data, answer)
        return answer

    def require(self, terms: Terms) -> None:
        """Refuse terms that the operator did not read, or that name another helper."""
        agreed = terms.privacy
        if terms.id != self.settings.federation:
            raise PolicyError(
                f"this helper answers the federation {self.settings.federation[:16]}…, but was asked for "
                f"{terms.id[:16]}… ('{terms.name}'): let its operator read those terms first"
            )
        if agreed.helper != self.public:
            raise PolicyError(
                f"the terms of '{terms.name}' name the helper {agreed.helper[:16]}…, but this one has the key "
                f"{self.public[:16]}…: start it with the key that the terms name"
            )
        if agreed.secure != "sums" and self.settings.minimum > agreed.batch:
            raise PolicyError(
                f"the terms of '{terms.name}' allow sums over {agreed.batch} clients, but this helper opens none over "
                f"fewer than {self.settings.minimum} (minimum): lower that, or agree on larger batches"
            )

    def _members(self) -> Mapping[str, str] | None:
        cards = [read_card(path) for path in self.settings.members]
        return {card.name: card.identity.hex for card in cards} if cards else None

    def _sum(self, helper: Helper, terms: Terms, data: bytes) -> bytes:
        request = _request(data, terms)
        noise: Callable[[Ints], Ints] | None = None
        if terms.privacy.epsilon is not None:

            def noise(coordinates: Ints) -> Ints:
                return noise_vector(terms.layout, terms.fixed_point, terms.privacy)[coordinates]

        return helper.sum(request, noise=noise).astype("<u8").tobytes()

    def _cohorts(self, helper: Helper, terms: Terms, step: str, data: bytes) -> bytes:
        agreed = terms.privacy
        dealer = CohortHelper(
            helper,
            terms.layout,
            size=agreed.cohort,
            batch=max(self.settings.minimum, agreed.batch),
            contributors=agreed.contributors,
            path=Path(self.settings.folder) / "cohorts.db",
        )
        try:
            return self._step(dealer, terms, step, data)
        finally:
            dealer.close()

    def _step(self, dealer: CohortHelper, terms: Terms, step: str, data: bytes) -> bytes:
        context = terms.context
        if step in ("learn", "open"):
            return _gate(dealer, terms, step, data)
        if step == "draw":
            commitment, members = _pieces(data, 2)
            roster = Roster.from_bytes(members)
            self._require_known(roster)
            return dealer.draw(context, roster, commitment)
        if step == "reveal":
            return _names(dealer.reveal(context, data))
        envelopes = _pieces(data)
        for sealed in envelopes:  # a seed that does not open must be known before who is present is fixed
            self._require_opens(read_envelope(sealed, context))
        return _names(dealer.admit(context, envelopes))

    def _require_opens(self, envelope: Envelope) -> None:
        try:
            self._key.open(envelope.sealed, envelope.info)
        except PrivacyError as error:
            sentence = f"report of client '{envelope.client}': {error}"
            raise RefusedError(Reason.BODY, sentence, envelope.client) from error

    def _two_phases(self, helper: Helper, terms: Terms, step: str, data: bytes) -> bytes:
        place = Path(self.settings.folder) / "phases.db"
        gate = TwoPhaseHelper(helper, terms.layout, terms.privacy.contributors, place)
        try:
            if step != "second":
                return _gate(gate, terms, step, data)
            asked, told = _pieces(data, 2)
            broadcast = Broadcast.from_bytes(told)
            return gate.second(SumRequest.from_bytes(asked), terms.context, broadcast).astype("<u8").tobytes()
        finally:
            gate.close()

    def _require_known(self, roster: Roster) -> None:
        known = self._members()
        unknown = [name for name, key in roster.members if known is not None and known.get(name) != key]
        if unknown:
            raise PrivacyError(
                f"the leader's roster holds clients that this helper's operator does not know: {', '.join(unknown[:5])}"
                ": give their cards to the helper (members), or let the leader leave them out"
            )

    def _write_down(self, terms: Terms, step: str, data: bytes, answer: bytes) -> None:
        facts: dict[str, Any] = {"federation": terms.id, "name": terms.name, "step": step, "bytes": len(answer)}
        if step in ("sum", "open"):
            asked = [SumRequest.from_bytes(each) for each in ([data] if step == "sum" else _pieces(data))]
            facts |= {"sums": len(asked), "reports": len({name for request in asked for name in request.ids})}
            facts |= {"numbers": sum(request.size for request in asked)}
        self._record.add("answered", **facts, digest=hashlib.sha256(data).hexdigest())
        self._record.flush()


def _gate(gate: ThresholdHelper | CohortHelper, terms: Terms, step: str, data: bytes) -> bytes:
    """Answer how many clients hold a class, or open classes that enough of them hold; for many groups at once."""
    pieces = _pieces(data)
    if step == "open":
        found = [gate.open(_request(asked, terms)) for asked in pieces]
    else:
        pairs = zip(pieces[::2], pieces[1::2], strict=True)
        found = [gate.learn(_request(asked, terms), np.frombuffer(masked, "<u8")) for asked, masked in pairs]
    return b"".join(each.astype("<u8").tobytes() for each in found)


def _request(data: bytes, terms: Terms) -> SumRequest:
    request = SumRequest.from_bytes(data)
    if request.context != terms.context:
        raise PrivacyError("the request is for another federation, round or fingerprint than the terms beside it")
    if request.blocks and request.blocks[-1][1] > terms.layout.size:
        raise PrivacyError(f"a vector of these terms has {terms.layout.size} numbers, and more were asked for")
    return request


def _pieces(data: bytes, n: int | None = None) -> list[bytes]:
    pieces = [bytes(each) for each in unpack_bundle(data, max_bytes=MOST_BYTES, max_items=MOST_ENVELOPES)]
    if n is not None and len(pieces) != n:
        raise InputError(f"{n} pieces were to arrive, but {len(pieces)} did: use the same release on both servers")
    return pieces


def _names(groups: tuple[tuple[str, ...], ...]) -> bytes:
    return pack_bundle(["\n".join(group).encode() for group in groups])
