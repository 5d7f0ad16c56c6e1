"""What comes out of a sum, and how a ledger keeps it."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.statistics import Statistics
from fedmoments.errors import InputError
from fedmoments.privacy.modes.parties import Asked, Batch, Ledger

if TYPE_CHECKING:
    from fedmoments.privacy.modes.central_noise import CentralNoise

__all__ = ["Derived", "Noised", "Opened", "Summed", "parts_of"]

Words = NDArray[np.uint64]


@dataclass(frozen=True, eq=False)
class Opened(ABC):
    """What the sum of a batch gave.

    Parameters
    ----------
    facts
        About it, ready for JSON; ``suppressed``: labels of classes that too few clients hold.
    """

    facts: Mapping[str, Any] = field(default_factory=dict, kw_only=True)

    @abstractmethod
    def keep(self, ledger: Ledger, batch: Batch) -> None:
        """Take it into a ledger in the place of the batch's reports."""

    @property
    @abstractmethod
    def statistics(self) -> Statistics:
        """What heads are fitted from, if this batch is all there is."""


@dataclass(frozen=True, eq=False)
class Summed(Opened):
    """Sums, or rows of groups of clients, in fixed point.

    Parameters
    ----------
    sums
        All of them.
    note
        Under which the facts stand in the log; none if empty.
    """

    sums: Statistics
    note: str = ""

    @property
    def statistics(self) -> Statistics:
        """The sums."""
        return self.sums

    def keep(self, ledger: Ledger, batch: Batch) -> None:
        """Take the sums in as contributions of their own."""
        if self.note:
            ledger.note(self.note, batch=batch.name, **self.facts)
        ledger.keep_sums(batch, parts_of(self.sums, batch.name), source=f"sum of {len(batch.members)} reports")


@dataclass(frozen=True, eq=False)
class Noised(Opened):
    """A vector with the noise of both servers on it; without it there is none.

    Parameters
    ----------
    vector
        (size,) uint64, modulo 2⁶⁴.
    noise, asked
        What was added, and what the vector holds.
    """

    vector: Words
    noise: "CentralNoise"
    asked: Asked

    @property
    def statistics(self) -> Statistics:
        """The sums, repaired so that heads can be fitted from them, in float64."""
        return self.noise.repaired(self.vector, self.asked)

    def keep(self, ledger: Ledger, batch: Batch) -> None:
        """Keep the noised sum, 8 bytes a number."""
        ledger.keep_noised(batch, self.vector.astype("<u8").tobytes())


@dataclass(frozen=True, eq=False)
class Derived(Opened):
    """Statistics that follow from several sums, in float64.

    Parameters
    ----------
    derived
        The statistics.
    second_bytes
        Of one client's report of a second phase.
    acknowledge
        Called when they are in the ledger.
    """

    derived: Statistics
    second_bytes: int
    acknowledge: Callable[[], None]

    @property
    def statistics(self) -> Statistics:
        """The statistics."""
        return self.derived

    def keep(self, ledger: Ledger, batch: Batch) -> None:
        """Keep them beside the running sums, and tell the clients."""
        ledger.keep_scatter(batch, self.derived, second_bytes=self.second_bytes)
        self.acknowledge()


def parts_of(stats: Statistics, name: str) -> dict[str, Statistics]:
    """Return statistics cut into contributions: sums are one, rows of cohorts as many as have one row a class each.

    Examples
    --------
    >>> from fedmoments.core.statistics import StatisticsSpec
    >>> one = Statistics.of([[1.0], [2.0]], [0, 1], StatisticsSpec.of("client_means"), n_classes=2)
    >>> list(parts_of(one + one, "batch-1")), list(parts_of(one.restricted(StatisticsSpec()), "batch-1"))
    (['batch-1.0001', 'batch-1.0002'], ['batch-1'])
    """
    if stats.spec.has_sketch:
        raise InputError(
            f"secure sums open no scatter sketches, but {stats.spec} arrived: cut client means into contributions"
        )
    if not stats.spec.keeps_clients_apart:
        return {name: stats}
    cuts = np.flatnonzero(np.diff(stats.row_labels) <= 0) + 1
    edges = [0, *cuts.tolist(), len(stats.row_labels)]
    parts: dict[str, Statistics] = {}
    for start, stop in pairwise(edges):
        labels, counts = stats.row_labels[start:stop], stats.row_counts[start:stop]
        arrays = {key: np.ascontiguousarray(array[start:stop]) for key, array in stats.arrays.items()}
        index = (labels, counts, arrays, labels, counts)
        part = Statistics(stats.spec, stats.n_classes, stats.dim, *index, stats.fixed_point)
        parts[f"{name}.{len(parts) + 1:04d}"] = part
    return parts
