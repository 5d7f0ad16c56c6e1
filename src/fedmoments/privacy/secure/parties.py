"""All parties of a federation in one process, each with a key of its own: for simulations and tests."""

import hashlib
from collections.abc import Collection, Hashable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.statistics import Statistics, StatisticsSpec
from fedmoments.errors import InputError
from fedmoments.privacy.secure.context import Context
from fedmoments.privacy.secure.helper import Helper
from fedmoments.privacy.secure.leader import HeldReports, Leader
from fedmoments.privacy.secure.report import Report, make_report, read_report
from fedmoments.privacy.secure.seal import HelperKey
from fedmoments.wire import IdentityKey

__all__ = ["SIMULATED", "LocalParties", "named_statistics"]

Words = NDArray[np.uint64]

#: Context of sums that are simulated.
SIMULATED = Context("simulation", 0, "simulation")


def named_statistics(statistics: Mapping[Any, Statistics]) -> dict[str, Statistics]:
    """Return clients' statistics by name, once they are what one mean a client and class can be added up from.

    Examples
    --------
    >>> from fedmoments.core.statistics import FixedPoint
    >>> one = Statistics.of([[1.0]], [0], StatisticsSpec.of("client_means"), n_classes=1, fixed_point=FixedPoint())
    >>> str(named_statistics({7: one})["7"].spec)
    'counts + sums'
    """
    named: dict[str, Statistics] = {}
    for client, part in statistics.items():
        _check(client, part)
        named[str(client)] = part.restricted(StatisticsSpec())
    if not named or len(named) < len(statistics):
        raise InputError(
            f"{len(statistics)} clients with {len(named)} different names arrived: give one or more, each a name of "
            "its own"
        )
    first = next(iter(named.values()))
    for client, part in named.items():
        mine = (part.n_classes, part.dim, part.fixed_point)
        if mine != (first.n_classes, first.dim, first.fixed_point):
            raise InputError(
                f"client '{client}' measured {mine[0]} classes in {mine[1]} dimensions in {mine[2]}, but others "
                f"{first.n_classes} in {first.dim} in {first.fixed_point}: agree on one form"
            )
    return named


def _check(client: Hashable, part: Statistics) -> None:
    if part.fixed_point is None:
        raise InputError(f"client {client!r} measured in float64, but secure sums are of fixed-point numbers: quantize")
    if part.spec.has_sketch:
        raise InputError(
            f"client {client!r} measured a scatter sketch, which is read by itself and never added up, but secure sums "
            "are of counts and means: measure client_means alone, or 'gram' under secure sums"
        )
    if part.spec.means_per_client > 1:
        raise InputError(
            f"client {client!r} splits classes into {part.spec.means_per_client} means, but under secure sums a client "
            "(or a cohort) has one mean a class: measure with means_per_client=1"
        )


class LocalParties:
    """Clients with identity keys, and a helper that knows them.

    Parameters
    ----------
    clients
        Their names.
    minimum
        Fewest reports of a batch.
    seed
        Makes the same identity keys again, for simulations; None: from the operating system.

    Examples
    --------
    >>> parties = LocalParties(["a", "b", "c"], minimum=2)
    >>> vectors = {name: np.arange(3, dtype=np.uint64) for name in "abc"}
    >>> leader = parties.report(vectors, SIMULATED, dropped={"b"})
    >>> request = leader.request()
    >>> leader.finish(request, parties.helper.sum(request))
    array([0, 2, 4], dtype=uint64)
    """

    def __init__(self, clients: Collection[str], minimum: int, seed: bytes | None = None) -> None:
        self.minimum = minimum
        self._keys = {client: _identity(client, seed) for client in clients}
        self.helper = Helper(HelperKey.generate(), minimum=minimum, members=self.public)

    @property
    def public(self) -> dict[str, str]:
        """Public identity key of every client, 64 hexadecimal digits."""
        return {client: key.public.hex for client, key in self._keys.items()}

    def reports(
        self, vectors: Mapping[str, NDArray[Any]], context: Context, dropped: Collection[str] = ()
    ) -> Iterator[Report]:
        """Yield the report of every client that did not drop out, one at a time, as the leader reads it."""
        dropped = set(dropped)
        unknown = sorted(dropped - set(vectors))
        if unknown:
            raise InputError(f"clients that drop out must have a vector, but {unknown[:3]} have none")
        size = 0
        for client in vectors:
            if client in dropped:
                continue
            vector = vectors[client]
            if size and len(vector) != size:
                raise InputError(
                    f"the vectors of all clients must have one length, but those of {size} and {len(vector)} arrived"
                )
            size = len(vector)
            key, helper = self._keys[client], self.helper.public
            data = make_report(vector, context, client=client, version=1, helper=helper, key=key)
            yield read_report(data, context, size, lambda name: self._keys[name].public)

    def report(self, vectors: Mapping[str, Words], context: Context, dropped: Collection[str] = ()) -> Leader:
        """Let every client that did not drop out report, and return the leader that holds the reports."""
        held, size = HeldReports(), 0
        for report in self.reports(vectors, context, dropped):
            held.take(report)
            size = len(report.masked)
        return Leader(context, size, self.minimum, held)


def _identity(client: str, seed: bytes | None) -> IdentityKey:
    if seed is None:
        return IdentityKey.generate()
    return IdentityKey.from_bytes(hashlib.sha256(hashlib.sha256(seed).digest() + client.encode()).digest())
