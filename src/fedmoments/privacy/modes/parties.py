"""What a mode meets: what is requested, the ledger, the other parties. Terms, ledgers, runs and simulations fit."""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.statistics import FixedPoint, Statistics, StatisticsSpec
from fedmoments.errors import InputError
from fedmoments.privacy.dense import DenseLayout
from fedmoments.privacy.secure.broadcast import Broadcast
from fedmoments.privacy.secure.context import Context
from fedmoments.privacy.secure.leader import Leader
from fedmoments.privacy.secure.parties import SIMULATED

if TYPE_CHECKING:
    from fedmoments.wire import Agreement

__all__ = [
    "Asked",
    "Batch",
    "Crowd",
    "HeadAsked",
    "Ledger",
    "SecondReports",
    "Sitting",
    "TermsLike",
    "Waiting",
]

Words = NDArray[np.uint64]


class Asked(Protocol):
    """What is added up: of the terms of a federation, or of one head in a simulation."""

    @property
    def spec(self) -> StatisticsSpec: ...

    @property
    def layout(self) -> DenseLayout: ...

    @property
    def fixed_point(self) -> FixedPoint: ...

    @property
    def context(self) -> Context: ...

    @property
    def classes(self) -> Sequence[str]: ...


@dataclass(frozen=True)
class HeadAsked:
    """What clients of a simulation send for one head; see :class:`Asked`."""

    spec: StatisticsSpec
    fixed_point: FixedPoint
    context: Context
    classes: Sequence[str]
    dim: int

    @cached_property
    def layout(self) -> DenseLayout:
        """Where the numbers of a client stand."""
        return DenseLayout(self.spec.additive, len(self.classes), self.dim)


class TermsLike(Asked, Protocol):
    """The terms of a federation, as far as a mode reads them."""

    @property
    def name(self) -> str: ...

    @property
    def rows(self) -> str: ...

    @property
    def fingerprint(self) -> Any: ...

    @property
    def agreement(self) -> "Agreement": ...


class Batch(Protocol):
    """Reports that are added up together."""

    @property
    def name(self) -> str: ...

    @property
    def status(self) -> str: ...

    @property
    def members(self) -> Sequence[tuple[str, str]]: ...


class Waiting(Protocol):
    """A report that waits for a sum."""

    @property
    def client(self) -> str: ...

    @property
    def report(self) -> str: ...


class Ledger(Protocol):
    """What a mode reads from and writes to a ledger."""

    terms: Any

    def status(self) -> Any: ...

    def reported(self) -> Iterator[tuple[str, Words]]: ...

    def submit_many(self, items: Sequence[Any], *, source: Any = "") -> list[Any]: ...

    def report_many(self, items: Sequence[Any], *, source: Any = "") -> list[Any]: ...

    def waiting(self) -> Sequence[Waiting]: ...

    def batches(self) -> Sequence[Any]: ...

    def cohort_draw(self) -> tuple[bytes, dict[str, str]]: ...

    def note(self, what: str, /, **facts: Any) -> Any: ...

    def keep_sums(self, batch: Any, sums: Mapping[str, Statistics], *, source: str = "") -> None: ...

    def keep_noised(self, batch: Any, noised: bytes) -> None: ...

    def keep_scatter(self, batch: Any, stats: Statistics, *, second_bytes: int = 0) -> None: ...

    def statistics(self) -> Statistics: ...

    def release(self) -> Any: ...

    def scatter(self) -> Statistics: ...


class SecondReports(Protocol):
    """Reports of a second phase."""

    @property
    def leader(self) -> Leader: ...

    def acknowledge(self) -> None: ...


@dataclass(frozen=True, eq=False)
class Sitting:
    """The leader's surroundings while it adds up a batch.

    Parameters
    ----------
    terms, ledger
        What is added up, and where reports are.
    reports
        Of the batch; None while nobody has reported.
    helper
        In this process or at another party: what :meth:`Mode.gate` or :meth:`Mode.remote` made.
    second
        Tells clients what a first phase gave, and returns what all of them report.
    say
        Tells people what happened.
    """

    terms: Asked
    ledger: Ledger
    reports: Leader | None
    helper: Any
    second: Callable[[Broadcast, frozenset[str]], SecondReports]
    say: Callable[[str], None]

    @property
    def leader(self) -> Leader:
        """The reports of the batch."""
        if self.reports is None:
            raise InputError("nothing can be added up before anybody has reported")
        return self.reports


@dataclass(frozen=True, eq=False)
class Crowd:
    """All clients of a simulated federation.

    Parameters
    ----------
    asked
        What is added up.
    parts
        Client -> what it measured, in fixed point; made when it is requested.
    merged
        Returns the sum of all parts, in memory that need not grow with the clients.
    seed
        Draws what public randomness draws in a deployed federation. Masks and noise never follow from it.
    """

    asked: Asked
    parts: Mapping[str, Statistics]
    merged: Callable[[], Statistics]
    seed: int = 0

    @classmethod
    def of(cls, parts: Mapping[Any, Statistics], seed: int = 0) -> "Crowd":
        """Return clients that measured this, in fixed point, with labels for class names.

        Examples
        --------
        >>> from fedmoments.privacy.protection import Agreed
        >>> form, spec = FixedPoint(norm_bound=8.0, max_samples=1000), StatisticsSpec.of("gram")
        >>> one = Statistics.of([[1.0, 2.0], [3.0, 4.0]], [0, 1], spec, n_classes=2, fixed_point=form)
        >>> crowd = Crowd.of({"a": one, "b": one, "c": one})
        >>> Agreed(secure="sums").mode.simulated(crowd).statistics == one + one + one
        True
        """
        first = next(iter(parts.values()))
        names = [str(label) for label in range(first.n_classes)]
        asked = HeadAsked(first.spec, first.fixed_point or FixedPoint(), SIMULATED, names, first.dim)
        return cls(asked, parts, lambda: Statistics.merge(parts.values()), seed)

    @property
    def randomness(self) -> bytes:
        """What stands for public randomness, and for the clients' keys."""
        return hashlib.sha256(f"cohorts {self.seed}".encode()).digest()

    @property
    def vectors(self) -> "Vectors":
        """Client -> its dense vector, made when it is requested."""
        return Vectors(self.parts, self.asked.layout)


@dataclass(frozen=True)
class Vectors(Mapping[str, Words]):
    """Client -> its dense vector, made when it is requested."""

    parts: Mapping[str, Statistics]
    layout: DenseLayout

    def __getitem__(self, client: str) -> Words:
        return self.layout.pack(self.parts[client])

    def __iter__(self) -> Iterator[str]:
        return iter(self.parts)

    def __len__(self) -> int:
        return len(self.parts)
