"""Rows of results: one for every setting and method, one outcome in it for every seed."""

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedmoments.core.observations.codec import from_plain, to_plain
from fedmoments.core.observations.observation import ACCURACY, Observation
from fedmoments.errors import FileFormatError
from fedmoments.settings.setting import SWEPT, Setting

__all__ = ["BYTES_PER_NUMBER", "Outcome", "Row", "plain_moments"]

#: Bytes of a number on the wire, as in the papers: FP32.
BYTES_PER_NUMBER = 4
#: What a row holds in a document besides: it follows from its seeds.
_DERIVED = (
    *("accuracy", "accuracy_std", "up_bytes_per_client", "up_bytes_total", "fit_seconds", "client_seconds"),
    *("reasons", "notes", "choice"),
)

#: Name of a moment -> what it is, for somebody who has not read the papers.
PLAIN = {
    "sums": "class sums",
    "class_norms": "sums of squared lengths",
    "class_squares": "sums of squares",
    "class_thirds": "sums of third powers",
    "class_fourths": "sums of fourth powers",
    "client_means": "class means",
    "scatter_sketch": "a sketch of the spread",
    "gram": "one matrix",
    "class_grams": "one matrix per class",
}


@dataclass(frozen=True)
class Outcome:
    """What one seed gave.

    Parameters
    ----------
    seed
        Of the split, of the shares of a class, and of the projection; 0 where nothing is drawn.
    accuracy
        Share of test samples whose class was found; None when the head could not be fitted.
    clients
        How many clients had a sample, and so sent something.
    up_floats, up_counts
        Numbers that all clients together sent; 0 where their bytes alone are known.
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
    float64
        Why its statistics were measured in float64, not in fixed point as a deployed federation measures; None where
        they are in fixed point.
    hits
        A bit for every test sample, whether its class was found: what two methods are compared by, sample by sample.
    digest
        SHA-256 of the classifier, where that was looked at or saved.
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
    float64: str | None = None
    hits: bytes = b""
    digest: str | None = None

    @property
    def up_bytes(self) -> float:
        """Bytes that all clients together sent, counts and labels left out."""
        return self.up_floats * BYTES_PER_NUMBER if self.coded_bytes is None else self.coded_bytes


@dataclass(frozen=True)
class Row:
    """One head, or one baseline, in one setting, over all seeds.

    Parameters
    ----------
    head
        Name of the method.
    setting
        Where it was measured.
    sends
        What a client sends for it.
    hyper
        Its hyper-parameters.
    outcomes
        One for every seed, at least one.
    baseline
        Whether it is none of the heads.
    detail
        Which one of the details beside the rows is of it; None for none.

    Examples
    --------
    >>> outcomes = [Outcome(seed, accuracy, 10, 6400, 100, 0.01) for seed, accuracy in enumerate([0.8, 0.9])]
    >>> row = Row("fedcof", Setting(10, "iid"), "counts + client_means", {}, tuple(outcomes))
    >>> round(row.accuracy, 3), round(row.accuracy_std, 3), row.up_bytes_total, row.up_bytes_per_client
    (0.85, 0.071, 25600.0, 2560.0)
    >>> Row.from_dict(row.to_dict()) == row
    True
    """

    head: str
    setting: Setting
    sends: str
    hyper: Mapping[str, Any]
    outcomes: tuple[Outcome, ...]
    baseline: bool = False
    detail: int | None = None

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
    def up_bytes_total(self) -> float:
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
        return self.outcomes[0].choice

    @property
    def observations(self) -> tuple[Observation, ...]:
        """What was measured: accuracy, bytes and seconds of every seed, at the setting."""
        where = {"head": self.head, **self.setting.to_dict()}
        seeds = tuple(outcome.seed for outcome in self.outcomes)
        reason = "; ".join(self.reasons) or None
        sent = [outcome.up_bytes for outcome in self.outcomes]
        clients = [max(outcome.clients, 1) for outcome in self.outcomes]
        return (
            Observation(where, tuple(outcome.accuracy for outcome in self.outcomes), ACCURACY, reason, seeds),
            Observation(where, tuple(sent), "up, total", None, seeds, "bytes"),
            Observation(where, tuple(s / c for s, c in zip(sent, clients, strict=True)), "up", None, seeds, "bytes"),
            Observation(
                where, tuple(outcome.fit_seconds for outcome in self.outcomes), "fit", reason, seeds, "seconds"
            ),
        )

    def only_right(self, other: "Row") -> tuple[float | None, ...]:
        """Return, for every seed, how many test samples this method is right on and the other one wrong."""
        theirs = {outcome.seed: outcome.hits for outcome in other.outcomes}
        pairs = [(outcome.hits, theirs.get(outcome.seed, b"")) for outcome in self.outcomes]
        bits = [tuple(np.frombuffer(hits, np.uint8) for hits in pair) for pair in pairs]
        return tuple(
            float(np.unpackbits(mine & ~others).sum()) if len(mine) and len(mine) == len(others) else None
            for mine, others in bits
        )

    def flattened(self) -> dict[str, Any]:
        """Return what a document holds of the row: its setting beside its figures, and what follows from its seeds."""
        own = {name: getattr(self, name) for name in ("head", "baseline", "sends", "hyper", "detail", *_DERIVED)}
        return {**own, **self.setting.to_dict(), "seeds": self.outcomes}

    @staticmethod
    def nested(plain: Mapping[str, Any], whose: str) -> dict[str, Any]:
        """Return the fields that :meth:`flattened` wrote; what follows from the seeds is not believed."""
        if not plain.get("seeds"):
            raise FileFormatError(f"{whose} holds a row without 'seeds', which its figures are of: {str(plain)[:80]}")
        own = {name: value for name, value in plain.items() if name not in {*SWEPT, *_DERIVED, "seeds"}}
        setting = {name: value for name, value in plain.items() if name in SWEPT}
        return {**own, "setting": setting, "outcomes": plain["seeds"]}

    def to_dict(self) -> dict[str, Any]:
        """Return the row ready for JSON."""
        return dict(to_plain(self))

    @classmethod
    def from_dict(cls, plain: Any, whose: str = "the document") -> "Row":
        """Read what :meth:`to_dict` wrote.

        Raises
        ------
        FileFormatError
            When anything is missing, unknown or of another type.
        """
        return from_plain(cls, plain, whose)


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def plain_moments(moments: str) -> str:
    """Return what a client sends in plain words.

    Examples
    --------
    >>> plain_moments("counts + client_means + scatter_sketch (budget means)")
    'counts, class means, a sketch of the spread'
    """
    names = moments.partition(" (")[0].split(" + ")
    return ", ".join(PLAIN.get(name, name.replace("_", " ")) for name in names)
