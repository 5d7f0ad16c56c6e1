"""ClassGaussians: a Gaussian description of the classes, whatever it was estimated from.

Heads see counts, means, priors and a covariance; where the covariance came from stays hidden behind its source.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fedmoments.errors import ClientsPooledError, InputError, MissingMomentError, NotEnoughDataError
from fedmoments.gaussian.scatter import Scatter
from fedmoments.gaussian.shrinkage import Shrinkage
from fedmoments.gaussian.sources import CovarianceSource, covariance_source
from fedmoments.linalg import new_gram, symmetrize_upper
from fedmoments.statistics.spec import StatisticsSpec
from fedmoments.statistics.statistics import Statistics

__all__ = ["ClassGaussians", "check_priors", "require", "require_classes"]

Floats = NDArray[np.float64]

#: What the free covariance of every class is made of.
ROWS = StatisticsSpec.of("client_means")


def _holds_free_scatter(stats: Statistics) -> bool:
    """Whether the pooled free scatter is held in place of the client means that it is made of."""
    return "free_scatter" in stats.spec.moments and not stats.spec.keeps_clients_apart


def require(stats: Statistics, needs: StatisticsSpec, who: str) -> None:
    """Refuse statistics that lack what ``who`` needs, before anything is computed.

    Where client means are needed, the pooled free scatter will do: :func:`require_classes` is for those who need more.
    """
    if stats.n_samples == 0:
        raise NotEnoughDataError(f"{who} cannot be fitted from no sample at all: no client contributed any")
    if needs <= stats.spec or (_holds_free_scatter(stats) and needs <= stats.spec | ROWS):
        return
    if needs.keeps_clients_apart and not stats.spec.keeps_clients_apart:
        raise ClientsPooledError(
            f"{who} needs client means that are kept apart, but these statistics hold only {stats.spec}: pooled, every "
            "client mean is lost and the covariance would be zero. Measure with the spec "
            f"'{needs}' and fit from the ledger or from merged statistics."
        )
    raise MissingMomentError(
        f"{who} needs {needs}, but these statistics hold {stats.spec}: measure again with what is missing"
    )


def require_classes(stats: Statistics, needs: StatisticsSpec, who: str) -> None:
    """Refuse statistics that lack what ``who`` needs for every class by itself: a pooled scatter is not enough."""
    require(stats, needs, who)
    if needs.keeps_clients_apart and _holds_free_scatter(stats):
        raise ClientsPooledError(
            f"{who} needs the client means of every class, but these statistics ({stats.spec}) hold one free scatter "
            "pooled over all classes, as two-phase secure sums make it: choose a head on the pooled covariance (fedcof,"
            " lda-free), or secure sums inside cohorts, which keep rows"
        )


def check_priors(priors: str) -> None:
    """Refuse what is neither ``data`` nor ``balanced``."""
    if priors not in ("data", "balanced"):
        raise InputError(f"priors is data or balanced; '{priors}' arrived")


@dataclass(frozen=True)
class ClassGaussians:
    """Counts, means, priors and covariances of C classes in d dimensions.

    A class without a sample has the mean 0 and the log-prior −∞; it is never counted and never predicted.

    Parameters
    ----------
    stats
        What was measured.
    source
        Where covariances come from: ``exact``, ``diagonal``, ``spherical``, ``free``, or ``sketch`` and
        ``sketch:SHARE`` (pooled alone).

    Examples
    --------
    >>> X, y = np.array([[0.0, 0.0], [2.0, 0.0], [4.0, 1.0], [6.0, 3.0]]), np.array([0, 0, 1, 1])
    >>> stats = Statistics.of(X, y, StatisticsSpec.of("gram"), n_classes=2)
    >>> gaussians = ClassGaussians(stats, "exact")
    >>> gaussians.means
    array([[1., 0.],
           [5., 2.]])
    >>> gaussians.pooled_covariance("none")
    array([[2., 1.],
           [1., 1.]])
    """

    stats: Statistics
    source: str = "exact"

    def __post_init__(self) -> None:
        covariance_source(self.source)

    @property
    def _source(self) -> CovarianceSource:
        return covariance_source(self.source)

    @property
    def counts(self) -> NDArray[np.int64]:
        """(C,) samples of every class."""
        return self.stats.counts

    @property
    def present(self) -> NDArray[np.bool_]:
        """(C,) whether a class has a sample."""
        return np.asarray(self.stats.counts > 0)

    @cached_property
    def means(self) -> Floats:
        """(C, d) class means."""
        return np.asarray(self.stats.sums / np.maximum(self.counts, 1)[:, None])

    @cached_property
    def global_mean(self) -> Floats:
        """(d,) mean of all samples."""
        return np.asarray(self.stats.sums.sum(axis=0) / self.stats.n_samples)

    @property
    def log_priors(self) -> Floats:
        """(C,) logarithm of the share of every class; −∞ for a class without a sample."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.counts / self.stats.n_samples))

    def prior_scores(self, priors: str = "data") -> Floats:
        """Return what a prior adds to the score of every class (C,); 0 for a class without a sample.

        Parameters
        ----------
        priors
            ``data``: classes are as frequent as in the data; ``balanced``: all equally.

        Examples
        --------
        >>> stats = Statistics.of([[0.0], [2.0]], [0, 0], StatisticsSpec(), n_classes=2)
        >>> ClassGaussians(stats).prior_scores("data"), ClassGaussians(stats).prior_scores("balanced")
        (array([0., 0.]), array([0., 0.]))
        """
        check_priors(priors)
        return np.asarray(
            np.where(self.present, self.log_priors, 0.0) if priors == "data" else np.zeros(len(self.counts))
        )

    @cached_property
    def scatter(self) -> Scatter:
        """The pooled within-class scatter."""
        require(self.stats, self._source.pooled_needs, f"a pooled covariance of source '{self.source}'")
        return self._source.pooled(self.stats, self.means)

    def pooled_covariance(self, shrinkage: Shrinkage | str | float = "automatic") -> Floats:
        """Return the pooled within-class covariance (d, d), shrunk.

        A free one averages over the classes that two or more rows hold, and divides by *their* N_c − 1.
        """
        scatter = self.scatter
        matrix = new_gram(scatter.dim)
        if scatter.weight > 0:
            scatter.add_to(matrix, 1.0 / scatter.weight)
        keep, add = Shrinkage.parse(shrinkage).amounts(trace=scatter.trace, dim=scatter.dim, dof=scatter.dof)
        matrix *= keep
        matrix[np.diag_indices(scatter.dim)] += add
        return symmetrize_upper(matrix)

    def total_covariance(self) -> Floats:
        """Return the covariance (d, d) of all samples around the global mean, divided by N − 1."""
        require(self.stats, StatisticsSpec.of("gram"), "a total covariance")
        n = self.stats.n_samples
        return np.asarray((self.stats.gram - n * np.outer(self.global_mean, self.global_mean)) / max(n - 1, 1))

    def class_covariances(self) -> Iterator[tuple[int, Floats, float]]:
        """Yield (label, covariance (d, d), degrees of freedom) of every class present; zeros where there are none."""
        require_classes(self.stats, self._source.class_needs, f"class covariances of source '{self.source}'")
        for label, scatter, dof in self._source.class_scatters(self.stats, self.means):
            yield label, scatter / max(dof, 1.0), dof

    def class_variances(self) -> tuple[Floats, Floats]:
        """Return the scatter's diagonal (C, d), not yet divided, and degrees of freedom (C,) of every class."""
        require_classes(self.stats, self._source.variance_needs, f"class variances of source '{self.source}'")
        return self._source.variances(self.stats, self.means)

    @cached_property
    def _class_scale(self) -> tuple[float, float]:
        """The trace of the covariance pooled over classes, and the mean degrees of freedom of a class."""
        scatter, dof = self.class_variances()
        total = float(dof.sum())
        return (float(scatter.sum()) / total, total / np.count_nonzero(dof)) if total > 0 else (0.0, 0.0)

    def class_shrinkage(self, shrinkage: Shrinkage | str | float, class_trace: float) -> tuple[float, float]:
        """Return (keep, add) for the covariance of one class.

        Automatic and relative shrinkage add the *same* amount to every class, measured against the covariance pooled
        over classes and the mean degrees of freedom of a class: amounts that differ from class to class move the
        log-determinants against each other (on BANKING77, QDA falls from 93.9 % to 75.2 % that way). A blend keeps each
        class's own trace, as in GH-OFL.

        Parameters
        ----------
        shrinkage
            Kind and amount.
        class_trace
            Trace of this class's covariance.
        """
        shrink = Shrinkage.parse(shrinkage)
        trace, dof = self._class_scale
        return shrink.amounts(trace=class_trace if shrink.kind == "blend" else trace, dim=self.stats.dim, dof=dof)
