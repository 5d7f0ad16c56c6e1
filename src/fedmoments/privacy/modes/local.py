"""All parties of a sum in this process: masks, seals and signatures as between several, only the network is missing.

A simulation sits down with this instead of a ledger and remote parties; the mode is the same and does the same.
"""

import hashlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from fedmoments.errors import InputError, PrivacyError
from fedmoments.privacy.modes.parties import Crowd, Ledger, Sitting
from fedmoments.privacy.secure.broadcast import Broadcast
from fedmoments.privacy.secure.context import Context
from fedmoments.privacy.secure.leader import Leader
from fedmoments.privacy.secure.parties import LocalParties, named_statistics
from fedmoments.privacy.secure.report import Report
from fedmoments.privacy.secure.request import SumRequest

if TYPE_CHECKING:
    from fedmoments.privacy.modes.mode import Mode
    from fedmoments.privacy.modes.opened import Opened

__all__ = ["SummedLeader", "open_locally"]

Words = NDArray[np.uint64]


class _Envelopes(dict[str, tuple[str, bytes]]):
    """Client -> id and envelope of its report; the masked vectors are gone."""

    @property
    def present(self) -> dict[str, str]:
        return {client: self[client][0] for client in sorted(self)}

    def envelopes(self, names: Sequence[str]) -> list[bytes]:
        sealed = dict(self.values())
        return [sealed[name] for name in names]

    def masked(self, name: str) -> Words:
        raise InputError(f"the masked vector of report {name[:12]}… was added up and not kept")


class SummedLeader(Leader):
    """A leader that adds masked vectors up as they arrive and keeps none, so that memory does not grow with clients.

    Parameters
    ----------
    context, minimum
        As of a :class:`~fedmoments.privacy.secure.leader.Leader`.
    reports
        All of them; sums are over all.
    """

    def __init__(self, context: Context, minimum: int, reports: Iterable[Report]) -> None:
        kept, self._total = _Envelopes(), np.zeros(0, np.uint64)
        for report in reports:
            self._total = np.add(self._total, report.masked, out=self._total) if kept else report.masked.copy()
            kept[report.client] = (report.id, report.sealed)
        super().__init__(context, len(self._total), minimum, kept)

    def finish(self, request: SumRequest, answer: NDArray[Any]) -> Words:
        """Return the sum of all clients' vectors at the blocks of a request."""
        if sorted(request.ids) != sorted(self.present.values()):
            raise InputError("reports that were added up as they came are opened all together, or not at all")
        return np.asarray(answer + np.concatenate([self._total[start:stop] for start, stop in request.blocks]))


@dataclass(frozen=True)
class _Second:
    """Reports of a second phase."""

    leader: Leader

    def acknowledge(self) -> None:
        """Nobody waits for it here."""


@dataclass(frozen=True)
class _Room:
    """The leader's room: what it wrote down, and how it hears clients a second time."""

    crowd: Crowd
    parties: LocalParties
    absent: Collection[str] = ()

    def cohort_draw(self) -> tuple[bytes, dict[str, str]]:
        return hashlib.sha256(b"leader" + self.crowd.randomness).digest(), self.parties.public

    def second(self, broadcast: Broadcast, clients: frozenset[str]) -> _Second:
        heard = Broadcast.from_bytes(broadcast.to_bytes())
        vectors = {client: heard.vector(self.crowd.parts[client]) for client in clients}
        return _Second(self.parties.report(vectors, heard.context(self.crowd.asked.context), self.absent))


def open_locally(
    mode: "Mode", crowd: Crowd, *, dropped: Collection[str] = (), dropped_later: Collection[str] = ()
) -> "Opened":
    """Run the whole protocol of a mode with two servers in this process.

    Parameters
    ----------
    mode, crowd
        How to add up, and whose numbers.
    dropped, dropped_later
        Clients that never report, and that report in a first phase only.

    Raises
    ------
    PrivacyError
        When fewer clients than a batch report, or a rule of the mode or its helper forbids the sum.
    """
    if mode.opens_parts:
        crowd = replace(crowd, parts=named_statistics(crowd.parts))
    asked, least = crowd.asked, mode.agreed.batch
    there = len(set(crowd.parts) - set(dropped))
    if there < least:
        raise PrivacyError(f"a batch must have {least} reports or more, but {there} of {len(crowd.parts)} reported")
    parties = LocalParties(crowd.parts, least, crowd.randomness)
    gate = mode.gate(parties.helper, asked, minimum=least, randomness=crowd.randomness)
    room = _Room(crowd, parties, dropped_later)
    sitting = Sitting(asked, cast("Ledger", room), None, gate, room.second, lambda _: None)
    with parties.helper:
        mode.prepare(sitting)
        if mode.opens_parts:
            leader = parties.report(crowd.vectors, asked.context, dropped)
        else:
            leader = SummedLeader(asked.context, least, parties.reports(crowd.vectors, asked.context, dropped))
        return mode.open(replace(sitting, reports=leader))
