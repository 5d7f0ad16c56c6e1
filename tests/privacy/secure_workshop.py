"""A small federation with a leader and a helper, and the plain sums that theirs must equal."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.statistics import Statistics
from fedmoments.errors import RefusedError
from fedmoments.privacy.modes.local import SummedLeader, open_locally
from fedmoments.privacy.modes.parties import Crowd
from fedmoments.privacy.protection import Agreed
from fedmoments.privacy.secure import (
    Context,
    HeldReports,
    Helper,
    HelperKey,
    Leader,
    Report,
    SumRequest,
    make_report,
    read_report,
)
from fedmoments.privacy.secure.helper import Noise
from fedmoments.privacy.secure.parties import LocalParties
from fedmoments.wire import IdentityKey, PublicKey, Reason

Words = NDArray[np.uint64]

CONTEXT = Context("0f" * 32, 3, "1f" * 32)
SIZE = 40


class Workshop:
    """Clients with keys and vectors; ``minimum`` 3 at both servers."""

    def __init__(self, names: Iterable[str] = "abcdefgh", *, path: Path | None = None, known: bool = True) -> None:
        self.keys = {name: IdentityKey.generate() for name in names}
        self.vectors = {name: _random(number) for number, name in enumerate(self.keys)}
        self.secret = HelperKey.generate()
        members = {name: key.public.hex for name, key in self.keys.items()} if known else None
        self.helper = Helper(self.secret, minimum=3, path=path, members=members)
        self.reports: dict[str, Report] = {}

    def data(self, name: str, context: Context = CONTEXT, **change: Any) -> bytes:
        """Return the bytes of a client's report."""
        facts: dict[str, Any] = {"client": name, "version": 1, "helper": self.helper.public, "key": self.keys[name]}
        facts |= change
        return make_report(facts.pop("vector", self.vectors[name]), context, **facts)

    def key_of(self, client: str) -> PublicKey:
        """Know the clients, and nobody else."""
        if client not in self.keys:
            raise RefusedError(Reason.UNKNOWN_CLIENT, f"no client '{client}' is enrolled", client)
        return self.keys[client].public

    def read(self, data: bytes, context: Context = CONTEXT, size: int = SIZE) -> Report:
        """Read a report as the leader does."""
        return read_report(data, context, size, self.key_of)

    def report(self, name: str, context: Context = CONTEXT, **change: Any) -> Report:
        """Return a client's report of a context, made once unless something is changed."""
        if change:
            return self.read(self.data(name, context, **change), context)
        key = f"{name} {context}"
        if key not in self.reports:
            self.reports[key] = self.read(self.data(name, context), context)
        return self.reports[key]

    def request(
        self, names: Iterable[str], blocks: Sequence[tuple[int, int]] = ((0, SIZE),), context: Context = CONTEXT
    ) -> SumRequest:
        """Return a request as a leader without any rule of its own would make it."""
        return asked([self.report(name, context) for name in names], blocks, context)

    def held(self, names: Iterable[str] = ()) -> HeldReports:
        """Return the reports of some clients."""
        held = HeldReports()
        for name in names:
            held.take(self.report(name))
        return held

    def leader(self, names: Iterable[str] = ()) -> Leader:
        """Return a leader that has the reports of some clients."""
        return Leader(CONTEXT, SIZE, 3, self.held(names))

    def plain(self, names: Iterable[str]) -> Words:
        """Return the sum of vectors in the clear, modulo 2⁶⁴."""
        total = np.zeros(SIZE, np.uint64)
        for name in names:
            total = total + self.vectors[name]
        return total

    def unmasked(self, names: Iterable[str], answer: Words) -> Words:
        """Return an answer over all coordinates with the masked vectors added."""
        for name in names:
            answer = answer + self.report(name).masked
        return answer


def asked(
    reports: Iterable[Report], blocks: Sequence[tuple[int, int]] = ((0, SIZE),), context: Context = CONTEXT
) -> SumRequest:
    """Return a request for any reports."""
    return SumRequest(context, [(report.id, report.sealed) for report in reports], blocks)


def _random(number: int) -> Words:
    return np.random.default_rng(number).integers(0, 2**64, SIZE, dtype=np.uint64)


# ---------------------------------------------------------------------------------------------- whole protocols


def secure_sum(
    vectors: Mapping[str, NDArray[Any]],
    context: Context,
    *,
    minimum: int,
    dropped: Collection[str] = (),
    noise: Noise | None = None,
) -> Words:
    """Add up vectors through masking, sealing, signing, unsealing and unmasking, all coordinates at once."""
    parties = LocalParties(vectors, minimum)
    leader = SummedLeader(context, minimum, parties.reports(vectors, context, dropped))
    request = leader.request()
    return leader.finish(request, parties.helper.sum(request, noise=noise))


def run_means(
    parts: Mapping[Any, Statistics],
    agreed: Agreed,
    *,
    seed: int = 0,
    dropped: Collection[str] = (),
    dropped_later: Collection[str] = (),
) -> tuple[Statistics, dict[str, Any]]:
    """Open client means by a mode, all parties in this process; facts name suppressed classes by their labels."""
    opened = open_locally(agreed.mode, Crowd.of(parts, seed), dropped=dropped, dropped_later=dropped_later)
    return opened.statistics, {**opened.facts, "suppressed": tuple(map(int, opened.facts["suppressed"]))}


def run_two_phase(
    parts: Mapping[Any, Statistics], *, batch: int = 3, contributors: int = 3, **more: Any
) -> tuple[Statistics, dict[str, Any]]:
    """Run both phases."""
    return run_means(parts, Agreed(secure="two-phase", batch=batch, contributors=contributors), **more)


def run_cohorts(
    parts: Mapping[Any, Statistics], *, size: int = 10, batch: int = 3, contributors: int = 3, **more: Any
) -> tuple[Statistics, dict[str, Any]]:
    """Run sums inside cohorts."""
    return run_means(parts, Agreed(secure="cohorts", cohort=size, batch=batch, contributors=contributors), **more)
