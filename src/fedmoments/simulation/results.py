"""What a simulation found: one row for every setting and head, one outcome in it for every seed."""

import json
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

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
    """

    clients: int | None
    split: str
    means_per_client: int = 1
    shrinkage: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the setting, ready for JSON."""
        return vars(self).copy()


@dataclass(frozen=True)
class Outcome:
    """What one seed gave.

    Parameters
    ----------
    seed
        Of the split, and of the shares of a class.
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
    """

    seed: int
    accuracy: float | None
    clients: int
    up_floats: int
    up_counts: int
    fit_seconds: float | None
    reason: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the outcome, ready for JSON."""
        return vars(self).copy()


@dataclass(frozen=True)
class Row:
    """One head in one setting, over all seeds.

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
        return statistics.fmean(outcome.up_floats for outcome in self.outcomes) * BYTES_PER_NUMBER

    @property
    def up_bytes_per_client(self) -> float:
        """Bytes that a client with samples sent, mean over clients and seeds."""
        shares = (outcome.up_floats / max(outcome.clients, 1) for outcome in self.outcomes)
        return statistics.fmean(shares) * BYTES_PER_NUMBER

    @property
    def fit_seconds(self) -> float | None:
        """Time of the server's solve, mean over seeds, or None when no seed could be fitted."""
        times = [outcome.fit_seconds for outcome in self.outcomes if outcome.fit_seconds is not None]
        return statistics.fmean(times) if times else None

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why seeds could not be fitted, each reason once."""
        return tuple(dict.fromkeys(outcome.reason for outcome in self.outcomes if outcome.reason))

    def to_dict(self) -> dict[str, Any]:
        """Return the row, ready for JSON."""
        return {
            "head": self.head,
            **self.setting.to_dict(),
            "sends": self.sends,
            "hyper": dict(self.hyper),
            "accuracy": self.accuracy,
            "accuracy_std": self.accuracy_std,
            "up_bytes_per_client": self.up_bytes_per_client,
            "up_bytes_total": self.up_bytes,
            "fit_seconds": self.fit_seconds,
            "reasons": list(self.reasons),
            "seeds": [outcome.to_dict() for outcome in self.outcomes],
        }


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
