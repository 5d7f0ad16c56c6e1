"""One curve of tuning: a start under an optimiser on one seed, round by round."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from fedmoments.settings.plan import TuningPlan

__all__ = ["Probe", "RoundPoint", "TuningCurve"]


@dataclass(frozen=True)
class RoundPoint:
    """What is known after a round; round 0 is the start.

    Parameters
    ----------
    round
        Number.
    accuracy, loss
        On the test set; None in rounds that were not tested, and where the server has none.
    validation, validation_loss
        On all clients' validation shares; None in rounds without a check.
    train_loss
        Mean over the round's clients of their loss while training, weighted by n_k; None at the start.
    participants
        Clients whose update arrived.
    up, down, up_formula, down_formula
        Bytes of all clients and rounds so far, as messages have them and by formula.
    flops
        Of all clients so far; None where those of the encoder are not known.

    Examples
    --------
    >>> RoundPoint(1, up=3, down=4).total_bytes
    7
    """

    round: int
    accuracy: float | None = None
    loss: float | None = None
    validation: float | None = None
    validation_loss: float | None = None
    train_loss: float | None = None
    participants: int = 0
    up: float = 0
    down: float = 0
    up_formula: float = 0.0
    down_formula: float = 0.0
    flops: float | None = None

    @property
    def total_bytes(self) -> float:
        """Bytes both ways, from the first upload on."""
        return self.up + self.down

    @property
    def formula_bytes(self) -> float:
        """Bytes both ways by formula."""
        return self.up_formula + self.down_formula


@dataclass(frozen=True)
class Probe:
    """Accuracy of ridge regression on the features before tuning and after it."""

    before: float | None = None
    after: float | None = None


@dataclass(frozen=True)
class TuningCurve:
    """One seed of a start under an optimiser.

    Parameters
    ----------
    start, optimiser, seed
        Which run.
    points
        Round by round, the start first.
    plan
        What was run.
    temperature, temperatures
        T of the loss, and the training cross-entropy of each that was tried.
    rates
        Where learning rates were chosen: rates in words -> accuracy on the validation share.
    best_round, stopped
        Of the best check, and why it stopped early; None where neither applies.
    refit, probe
        Accuracy of heads that were fitted anew on the tuned encoder, and of the probe.

    Examples
    --------
    >>> points = tuple(RoundPoint(t, accuracy) for t, accuracy in enumerate((0.5, 0.8, 0.7)))
    >>> TuningCurve("fedcof", "fedavg", 0, points).final_accuracy
    0.7
    >>> TuningCurve("fedcof", "fedavg", 0, points, best_round=1).final_accuracy
    0.8
    """

    start: str
    optimiser: str
    seed: int = 0
    points: tuple[RoundPoint, ...] = ()
    plan: TuningPlan = field(default_factory=TuningPlan)
    temperature: float | None = None
    temperatures: Mapping[str, float] = field(default_factory=dict)
    rates: Mapping[str, float] = field(default_factory=dict)
    best_round: int | None = None
    stopped: str | None = None
    refit: Mapping[str, float | None] = field(default_factory=dict)
    probe: Probe | None = None

    @cached_property
    def tested(self) -> tuple[RoundPoint, ...]:
        """Points with an accuracy."""
        return tuple(point for point in self.points if point.accuracy is not None)

    @property
    def first_accuracy(self) -> float | None:
        """Accuracy before the first round."""
        return next((point.accuracy for point in self.points if point.round == 0), None)

    @property
    def final_accuracy(self) -> float | None:
        """Accuracy of what the run returns: of its best check, or else of the last point that was tested."""
        kept = [point for point in self.tested if self.best_round is None or point.round <= self.best_round]
        return kept[-1].accuracy if kept else None

    @property
    def highest(self) -> RoundPoint | None:
        """The point with the highest accuracy on test samples, the first of equals."""
        return max(self.tested, key=lambda point: point.accuracy or 0.0, default=None)

    @property
    def last(self) -> RoundPoint:
        """The last point."""
        return self.points[-1]

    def reaches(self, target: float) -> RoundPoint | None:
        """Return the first point with an accuracy, None if it never has it."""
        return next((point for point in self.tested if (point.accuracy or 0.0) >= target), None)

    def before(self, number: int) -> RoundPoint | None:
        """Return the last point up to a round."""
        return next((point for point in reversed(self.points) if point.round <= number), None)
