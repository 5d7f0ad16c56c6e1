"""What a simulation found: one row for every setting and head, one outcome in it for every seed."""

import json
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from fedmoments.privacy.protection import Protection

__all__ = ["Outcome", "Row", "Setting", "SimulationResult"]

#: Bytes of a number on the wire, as in the papers: FP32.
BYTES_PER_NUMBER = 4


@dataclass(frozen=True)
class Setting:
    """A point of a sweep.

    Parameters
    ----------
    clients
        Number of clients, or None when the data themselves say it (splits ``domain`` and ``id``).
    split
        The scheme as it was typed.
    means_per_client
        Means that a client sends of a class, for heads that use them.
    shrinkage
        For heads that have that hyper-parameter; None leaves each head's own.
    projection
        Dimensions of the public random projection that features are measured behind; None for the features as they
        are.
    protection
        What clients, sums and server do for privacy and against poison.
    budget
        Bytes that the rows of one client may take, as it was typed, for heads on scatter sketches; None leaves these
        their default, and is the setting of all other heads.
    """

    clients: int | None
    split: str
    means_per_client: int = 1
    shrinkage: str | None = None
    projection: int | None = None
    protection: Protection = field(default_factory=Protection)
    budget: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the setting, ready for JSON: ε by itself, whatever else protects as words."""
        plain = {name: value for name, value in vars(self).items() if name != "protection"}
        agreed = self.protection.agreed
        rest = replace(self.protection, agreed=replace(agreed, epsilon=None))
        return {**plain, "epsilon": agreed.epsilon, "privacy": rest.words or None}


@dataclass(frozen=True)
class Outcome:
    """What one seed gave.

    Parameters
    ----------
    seed
        Of the split, of the shares of a class, and of the projection.
    accuracy
        Share of test samples whose class was found; None when the head could not be fitted.
    clients
        How many clients had a sample, and so sent something.
    up_floats, up_counts
        Numbers that all clients together sent.
    fit_seconds
        Time of the server's solve.
    reason
        Why the head could not be fitted.
    notes
        What was fitted in a lesser way than asked for, and why.
    client_seconds
        Time of all clients' own work together, for a baseline. None for a head: its clients measure once for all heads.
    choice
        What a head that chooses for itself has chosen, and why; None for others.
    coded_bytes
        Bytes of all rows that were sent, where they travel in codes of their own; None where numbers have 4 bytes each.
    """

    seed: int
    accuracy: float | None
    clients: int
    up_floats: int
    up_counts: int
    fit_seconds: float | None
    reason: str | None = None
    notes: tuple[str, ...] = ()
    client_seconds: float | None = None
    choice: str | None = None
    coded_bytes: int | None = None

    @property
    def up_bytes(self) -> float:
        """Bytes that all clients together sent, counts and labels left out."""
        return self.up_floats * BYTES_PER_NUMBER if self.coded_bytes is None else self.coded_bytes

    def __post_init__(self) -> None:
        object.__setattr__(self, "notes", tuple(self.notes))  # JSON gives a list

    def to_dict(self) -> dict[str, Any]:
        """Return the outcome, ready for JSON."""
        return {**vars(self), "notes": list(self.notes)}


@dataclass(frozen=True)
class Row:
    """One head, or one baseline, in one setting, over all seeds.

    Examples
    --------
    >>> found = [Outcome(seed, accuracy, 10, 6400, 100, 0.01) for seed, accuracy in enumerate([0.8, 0.9])]
    >>> row = Row("fedcof", Setting(10, "iid"), "counts + client_means", {}, tuple(found))
    >>> round(row.accuracy, 3), round(row.accuracy_std, 3), row.up_bytes, row.up_bytes_per_client
    (0.85, 0.071, 25600.0, 2560.0)
    """

    head: str
    setting: Setting
    sends: str
    hyper: Mapping[str, Any]
    outcomes: tuple[Outcome, ...]
    baseline: bool = False

    @property
    def accuracies(self) -> list[float]:
        """Accuracy of every seed that could be fitted."""
        return [outcome.accuracy for outcome in self.outcomes if outcome.accuracy is not None]

    @property
    def accuracy(self) -> float | None:
        """Mean accuracy, or None when no seed could be fitted."""
        return statistics.fmean(self.accuracies) if self.accuracies else None

    @property
    def accuracy_std(self) -> float | None:
        """Standard deviation over seeds (divided by seeds − 1), or None for fewer than two."""
        return statistics.stdev(self.accuracies) if len(self.accuracies) > 1 else None

    @property
    def up_bytes(self) -> float:
        """Bytes that all clients together sent, mean over seeds."""
        return statistics.fmean(outcome.up_bytes for outcome in self.outcomes)

    @property
    def up_bytes_per_client(self) -> float:
        """Bytes that a client with samples sent, mean over clients and seeds."""
        return statistics.fmean(outcome.up_bytes / max(outcome.clients, 1) for outcome in self.outcomes)

    @property
    def fit_seconds(self) -> float | None:
        """Time of the server's solve, mean over seeds, or None when no seed could be fitted."""
        return _mean(outcome.fit_seconds for outcome in self.outcomes)

    @property
    def client_seconds(self) -> float | None:
        """Time of all clients' own work together, mean over seeds; None for heads."""
        return _mean(outcome.client_seconds for outcome in self.outcomes)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why seeds could not be fitted, each reason once."""
        return tuple(dict.fromkeys(outcome.reason for outcome in self.outcomes if outcome.reason))

    @property
    def notes(self) -> tuple[str, ...]:
        """What seeds fitted in a lesser way than asked for, each note once."""
        return tuple(dict.fromkeys(note for outcome in self.outcomes for note in outcome.notes))

    @property
    def choice(self) -> str | None:
        """What the head chose for itself on the first seed, and why; None if it does not choose."""
        return self.outcomes[0].choice if self.outcomes else None

    def to_dict(self) -> dict[str, Any]:
        """Return the row, ready for JSON."""
        return {
            "head": self.head,
            "baseline": self.baseline,
            **self.setting.to_dict(),
            "sends": self.sends,
            "hyper": dict(self.hyper),
            "accuracy": self.accuracy,
            "accuracy_std": self.accuracy_std,
            "up_bytes_per_client": self.up_bytes_per_client,
            "up_bytes_total": self.up_bytes,
            "fit_seconds": self.fit_seconds,
            "client_seconds": self.client_seconds,
            "reasons": list(self.reasons),
            "notes": list(self.notes),
            "choice": self.choice,
            "seeds": [outcome.to_dict() for outcome in self.outcomes],
        }


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


@dataclass(frozen=True)
class SimulationResult:
    """All rows, and what they were measured on.

    Parameters
    ----------
    data
        Name, sizes, dimension and classes of the features.
    splits
        For every setting of clients and split, and every seed, the split's own report.
    rows
        One for every setting and head.
    seconds
        How long everything took.
    """

    data: Mapping[str, Any]
    splits: tuple[Mapping[str, Any], ...]
    rows: tuple[Row, ...]
    seconds: float

    @property
    def seeds(self) -> int:
        """How many seeds every row has."""
        return len(self.rows[0].outcomes) if self.rows else 0

    def to_dict(self) -> dict[str, Any]:
        """Return everything, ready for JSON."""
        return {
            "data": dict(self.data),
            "seeds": self.seeds,
            "bytes_per_number": BYTES_PER_NUMBER,
            "rows": [row.to_dict() for row in self.rows],
            "splits": [dict(split) for split in self.splits],
            "seconds": self.seconds,
        }

    def to_json(self) -> str:
        """Return everything as JSON text.

        Examples
        --------
        >>> SimulationResult({"name": "toy"}, (), (), 0.5).to_json()[:30]
        '{"data": {"name": "toy"}, "see'
        """
        return json.dumps(self.to_dict(), allow_nan=False, ensure_ascii=False)
