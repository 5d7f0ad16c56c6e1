"""What a head for targets is: a head whose last columns are what is predicted."""

from abc import abstractmethod
from dataclasses import dataclass

from fedmoments.core.classifier import Classifier
from fedmoments.core.gaussian import require
from fedmoments.core.heads.head import Head
from fedmoments.core.statistics import Ledger, Statistics, StatisticsSpec
from fedmoments.errors import InputError

__all__ = ["TargetHead"]


@dataclass(frozen=True)
class TargetHead(Head):
    """A recipe from the gram of features and targets to what predicts targets.

    Parameters
    ----------
    targets
        m, how many of the last columns are targets; ``fit`` counts them where it gets data.
    """

    targets: int = 1

    def __post_init__(self) -> None:
        if self.targets < 1:
            raise InputError(f"there is 1 target or more; targets={self.targets} arrived")

    @property
    def needs(self) -> StatisticsSpec:
        return StatisticsSpec.of("gram")

    def fit(self, source: Statistics | Ledger) -> Classifier:
        stats = source.statistics() if isinstance(source, Ledger) else source
        require(stats, self.needs, type(self).__name__)
        if stats.n_classes != 1 or stats.dim <= self.targets:
            raise InputError(
                f"statistics for {type(self).__name__} hold one class and more columns than the {self.targets} "
                f"targets, but these hold {stats.n_classes} classes and {stats.dim} columns: measure features and "
                "targets together, by fedmoments.with_targets or measure --targets"
            )
        return self.solve(stats).noting(head=type(self).__name__)

    @abstractmethod
    def solve(self, stats: Statistics) -> Classifier:
        """Return what predicts targets, from statistics of one class whose last columns are targets."""
