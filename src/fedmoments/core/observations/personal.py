"""Personal heads: how the clients of a simulated federation fare with classifiers of their own."""

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import ClassVar

from fedmoments.core.observations.observation import ACCURACY, Observation

__all__ = ["Personal", "PersonalOutcome", "PersonalRow"]

_FIGURES = ("accuracy", "client_accuracy", "gains", "losses")


@dataclass(frozen=True)
class PersonalOutcome:
    """What one seed gave.

    Parameters
    ----------
    seed
        Of the federation.
    tested_clients, tests
        Clients that have test samples, and how many samples they have together.
    accuracy, client_accuracy
        Share of all clients' test samples that are right, and the mean of the clients' accuracies.
    gains, losses
        Shares of these clients that do better, and worse, than with the federation's own head.
    reason
        Why there are no figures.
    """

    seed: int
    tested_clients: int
    tests: int
    accuracy: float | None = None
    client_accuracy: float | None = None
    gains: float | None = None
    losses: float | None = None
    reason: str | None = None


@dataclass(frozen=True)
class PersonalRow:
    """One variant of one head in one setting, over all seeds.

    Examples
    --------
    >>> outcomes = tuple(PersonalOutcome(seed, 5, 100, 0.8 + seed / 10, 0.7, 0.5, 0.1) for seed in (0, 1))
    >>> row = PersonalRow("fedncm", "labels", 10, "iid", outcomes)
    >>> round(row.accuracy, 3), round(row.spread, 3), row.gains
    (0.85, 0.071, 0.5)
    """

    head: str
    variant: str
    clients: int | None
    split: str
    outcomes: tuple[PersonalOutcome, ...]

    derived: ClassVar[tuple[str, ...]] = (*_FIGURES, "spread", "reason")

    def _mean(self, name: str) -> float | None:
        values = [getattr(outcome, name) for outcome in self.outcomes]
        return None if None in values else fmean(values)

    @property
    def accuracy(self) -> float | None:
        """Mean accuracy over seeds, or None where a seed has none."""
        return self._mean("accuracy")

    @property
    def client_accuracy(self) -> float | None:
        """Mean over seeds of the clients' mean accuracy."""
        return self._mean("client_accuracy")

    @property
    def gains(self) -> float | None:
        """Share of clients that do better than with the federation's own head."""
        return self._mean("gains")

    @property
    def losses(self) -> float | None:
        """Share of clients that do worse than with the federation's own head."""
        return self._mean("losses")

    @property
    def spread(self) -> float | None:
        """Standard deviation of the accuracy over seeds, or None for fewer than two."""
        known = [outcome.accuracy for outcome in self.outcomes if outcome.accuracy is not None]
        return stdev(known) if len(known) > 1 else None

    @property
    def reason(self) -> str | None:
        """Why there are no figures."""
        return next((outcome.reason for outcome in self.outcomes if outcome.reason), None)

    @property
    def observations(self) -> Iterator[Observation]:
        """All figures of every seed."""
        where = {"head": self.head, "variant": self.variant, "clients": self.clients, "split": self.split}
        seeds = tuple(outcome.seed for outcome in self.outcomes)
        names = {"accuracy": ACCURACY, "client_accuracy": "accuracy, mean of clients"}
        names |= {"gains": "clients that gain", "losses": "clients that lose"}
        for name in _FIGURES:
            values = tuple(getattr(outcome, name) for outcome in self.outcomes)
            yield Observation(where, values, names[name], self.reason, seeds)


@dataclass(frozen=True)
class Personal:
    """All variants of all heads: weights of local means that were tried, and the share that clients held out."""

    rows: tuple[PersonalRow, ...]
    betas: tuple[str, ...] = ()
    held_out: float = 0.0
