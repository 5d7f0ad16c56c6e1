"""What a source of covariances is."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.gaussian.precision import DEAD, noise_of_rows
from fedmoments.core.gaussian.scatter import Scatter
from fedmoments.core.statistics.spec import StatisticsSpec
from fedmoments.core.statistics.statistics import Statistics

__all__ = ["CovarianceSource"]

Floats = NDArray[np.float64]


class CovarianceSource(ABC):
    """One way to get within-class scatters from statistics; stateless."""

    name: ClassVar[str]

    @property
    @abstractmethod
    def pooled_needs(self) -> StatisticsSpec:
        """What the pooled scatter needs."""

    @property
    @abstractmethod
    def class_needs(self) -> StatisticsSpec:
        """What one scatter a class needs."""

    @property
    @abstractmethod
    def variance_needs(self) -> StatisticsSpec:
        """What one variance a class and dimension needs."""

    @abstractmethod
    def pooled(self, stats: Statistics, means: Floats) -> Scatter:
        """Return the pooled within-class scatter; ``means`` (C, d) are the class means."""

    @abstractmethod
    def class_scatters(self, stats: Statistics, means: Floats) -> Iterator[tuple[int, Floats, float]]:
        """Yield (label, (d, d) scatter, degrees of freedom) of every class present."""

    @abstractmethod
    def variances(self, stats: Statistics, means: Floats) -> tuple[Floats, Floats]:
        """Return the scatter's diagonal (C, d) and degrees of freedom (C,) of every class."""

    def class_dof(self, stats: Statistics, means: Floats) -> Floats:
        """Return the degrees of freedom (C,) of every class; 0 where it has no covariance of its own."""
        return self.variances(stats, means)[1]

    def variance_rounding(self, stats: Statistics) -> Floats:
        """Return what rounding leaves (C, d) of the scatter's diagonal."""
        return np.zeros((stats.n_classes, stats.dim))

    def least_deviation(self, stats: Statistics, means: Floats) -> float:
        """Return the standard deviation inside classes below which samples cannot be told from equal ones."""
        return DEAD * float(np.sqrt(noise_of_rows(stats, means) / (stats.n_samples * stats.dim)))
