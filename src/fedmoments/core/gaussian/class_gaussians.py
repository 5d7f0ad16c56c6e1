"""ClassGaussians: a Gaussian description of the classes, whatever it was estimated from.

Heads see counts, means, priors and a covariance; where the covariance came from stays hidden behind its source.

Where samples of a class do not differ (beyond rounding), there is no covariance to scale distances with. The rule is
then the limit of a covariance σ²·I as σ → 0: every Gaussian head becomes the **nearest class mean** by Euclidean
distance, and priors, which distances/σ² outweigh, do not count. :meth:`ClassGaussians.least` is that σ², and a
:class:`fedmoments.errors.FitWarning` says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.floats import is_single
from fedmoments.core.gaussian.precision import (
    CODE_TOLERANCE,
    LEAST_SPREAD,
    TOLERANCE,
    TYPICAL,
    check_digits,
    directions,
    warn_code,
    warn_flat,
    warn_noise,
)
from fedmoments.core.gaussian.scatter import MatrixScatter, Scatter
from fedmoments.core.gaussian.shrinkage import Shrinkage
from fedmoments.core.gaussian.sketch_scatter import SketchScatter
from fedmoments.core.gaussian.sources import CovarianceSource, Sketch, covariance_source
from fedmoments.core.linalg import EPSILON, add_gram, symmetrize_upper
from fedmoments.core.statistics.spec import StatisticsSpec
from fedmoments.core.statistics.statistics import Statistics
from fedmoments.errors import ClientsPooledError, InputError, MissingMomentError, NotEnoughDataError

__all__ = ["ClassGaussians", "check_priors", "prior_scores", "require", "require_classes", "total_scatter"]

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


def prior_scores(counts: NDArray[np.int64], priors: str) -> Floats:
    """Return what a prior adds to the score of every class (C,); 0 for a class without a sample.

    Parameters
    ----------
    counts
        (C,) samples of every class.
    priors
        ``data``: the logarithm of the class's share; ``balanced``: 0.

    Examples
    --------
    >>> prior_scores(np.array([1, 3, 0]), "data").round(4)
    array([-1.3863, -0.2877,  0.    ])
    """
    check_priors(priors)
    if priors == "balanced":
        return np.zeros(len(counts))
    return np.asarray(np.log(np.where(counts > 0, counts / max(int(counts.sum()), 1), 1.0)))


@dataclass(frozen=True)
class ClassGaussians:
    """Counts, means, priors and covariances of C classes in d dimensions.

    A class without a sample has the mean 0; it is never counted and never predicted.

    Parameters
    ----------
    stats
        What was measured.
    source
        Where covariances come from: ``exact``, ``diagonal``, ``spherical``, ``free``, or ``sketch`` and
        ``sketch:SHARE`` (those of classes from labelled rows).

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
    def centred_means(self) -> Floats:
        """(C, d) class means less the global mean; 0 for a class without a sample."""
        return np.asarray(np.where(self.present[:, None], self.means - self.global_mean, 0.0))

    @property
    def log_priors(self) -> Floats:
        """(C,) logarithm of the share of every class; −∞ for a class without a sample."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.counts / self.stats.n_samples))

    def prior_scores(self, priors: str = "data", shrinkage: Shrinkage | str | float = "automatic") -> Floats:
        """Return what a prior adds to the score of every class (C,); 0 for a class without a sample.

        Without a spread inside classes (:meth:`least`), distances outweigh every prior, and all are 0.

        Parameters
        ----------
        priors
            ``data``: classes are as frequent as in the data; ``balanced``: all equally.
        shrinkage
            Of the covariance that distances are measured by: an absolute one is a spread.

        Examples
        --------
        >>> stats = Statistics.of([[0.0], [2.0]], [0, 0], StatisticsSpec(), n_classes=2)
        >>> ClassGaussians(stats).prior_scores("data"), ClassGaussians(stats).prior_scores("balanced")
        (array([0., 0.]), array([0., 0.]))
        """
        return prior_scores(self.counts, "balanced" if self.least(shrinkage) > 0.0 else priors)

    @cached_property
    def scatter(self) -> Scatter:
        """The pooled within-class scatter."""
        require(self.stats, self._source.pooled_needs, f"a pooled covariance of source '{self.source}'")
        key = f"{self.source}, float32" if is_single() else self.source
        kind = "rows" if self._source.name == "free" else "scatter"  # heads on sketches ask for both, one after another
        scatter = self.stats.shared(kind, key, lambda: self._source.pooled(self.stats, self.means))
        if isinstance(scatter, SketchScatter) and scatter.code > CODE_TOLERANCE**2 * scatter.trace / scatter.dim > 0.0:
            warn_code(float(np.sqrt(scatter.code * scatter.dim / scatter.trace)))
        return scatter

    @cached_property
    def flat(self) -> bool:
        """Whether the spread inside classes was measured, and there is none beyond rounding."""
        if self._source.pooled_needs <= self.stats.spec or _holds_free_scatter(self.stats):
            return self.scatter.dof > 0 and self.scatter.trace == 0.0
        if not self._source.variance_needs <= self.stats.spec:
            return False
        scatter, dof = self._source.variances(self.stats, self.means)
        return bool(dof.any()) and not scatter.any()

    def least(self, shrinkage: Shrinkage | str | float = "automatic") -> float:
        """Return σ², the variance that :attr:`flat` classes are given; 0 where they, or the shrinkage, have one.

        It is small against the variance between classes, and 0 where there is none either: then nothing tells classes
        apart.
        """
        own = Shrinkage.parse(shrinkage)
        given = own.kind == "absolute" and own.amount > 0.0
        return self._limit if self.flat and not given else 0.0

    @cached_property
    def _limit(self) -> float:
        away = np.where(self.present[:, None], self.means - self.global_mean, 0.0)
        between = float(self.counts @ np.einsum("cd,cd->c", away, away)) / (self.stats.n_samples * self.stats.dim)
        size = float(np.abs(self.means).max(initial=0.0))
        if between <= self.stats.n_samples * (8 * EPSILON * size) ** 2:
            return 0.0
        warn_flat(self.stats, self.least_deviation)
        return LEAST_SPREAD * between

    @property
    def least_deviation(self) -> float:
        """Standard deviation inside classes, in feature units, below which samples cannot be told from equal ones."""
        return self._source.least_deviation(self.stats, self.means)

    def amounts(self, shrinkage: Shrinkage | str | float, *, trace: float, dof: float) -> tuple[float, float]:
        """Return (keep, add) for a covariance of that trace and degrees of freedom, :meth:`least` included."""
        keep, add = Shrinkage.parse(shrinkage).amounts(trace=trace, dim=self.stats.dim, dof=dof)
        return keep, add + self.least(shrinkage)

    def raw_covariance(self) -> Floats:
        """Return the pooled within-class covariance (d, d) before it is shrunk.

        A free one averages over the classes that two or more rows hold, and divides by *their* N_c − 1.
        """
        scatter = self.scatter
        return symmetrize_upper(scatter.scaled(1.0 / scatter.weight if scatter.weight > 0 else 0.0))

    def pooled_covariance(self, shrinkage: Shrinkage | str | float = "automatic") -> Floats:
        """Return the pooled within-class covariance (d, d), shrunk; :meth:`least` is added where there is none.

        A :class:`~fedmoments.errors.FitWarning` says where rounding has taken digits that its inverse depends on.
        """
        covariance, scatter = self.raw_covariance(), self.scatter
        keep, add = self.amounts(shrinkage, trace=scatter.trace, dof=scatter.dof)
        covariance *= keep
        covariance[np.diag_indices(scatter.dim)] += add
        check_digits(self.stats, covariance, scatter.noise, add)
        return covariance

    def total_covariance(self) -> Floats:
        """Return the covariance (d, d) of all samples around the global mean, divided by N − 1."""
        require(self.stats, StatisticsSpec.of("gram"), "a total covariance")
        scatter, noise = total_scatter(self.stats)
        if ClassGaussians(self.stats, "exact").flat and self.means.any():
            warn_flat(self.stats, self.least_deviation, "that between class means alone decides")
        covariance = symmetrize_upper(scatter.scaled(1.0 / max(scatter.weight, 1.0)))
        check_digits(self.stats, covariance, noise / max(scatter.weight, 1.0), 0.0, "the total covariance")
        return covariance

    def class_covariances(self) -> Iterator[tuple[int, Floats, float]]:
        """Yield (label, covariance (d, d), degrees of freedom) of every class present; zeros where there are none."""
        require_classes(self.stats, self._source.class_needs, f"class covariances of source '{self.source}'")
        for label, scatter, dof in self._source.class_scatters(self.stats, self.means):
            yield label, scatter / max(dof, 1.0) if not self.flat else np.zeros_like(scatter), dof

    def class_variances(self) -> tuple[Floats, Floats]:
        """Return the scatter's diagonal (C, d), not yet divided, and degrees of freedom (C,) of every class."""
        require_classes(self.stats, self._source.variance_needs, f"class variances of source '{self.source}'")
        scatter, dof = self._source.variances(self.stats, self.means)
        return (np.zeros_like(scatter) if self.flat else scatter), dof

    @cached_property
    def class_dof(self) -> Floats:
        """(C,) degrees of freedom of every class covariance; 0 for a class that has the pooled one."""
        require_classes(self.stats, self._source.variance_needs, f"class variances of source '{self.source}'")
        return self._source.class_dof(self.stats, self.means)

    @property
    def class_trace(self) -> float:
        """Sum of the traces of all class scatters."""
        if isinstance(self._source, Sketch):  # known without them
            return self.scatter.trace * self.scatter.weight
        return float(self.class_variances()[0].sum())

    def check_variances(self, variances: Floats, divisors: Floats) -> None:
        """Warn where rounding has taken digits from variances of classes that densities are computed with.

        Parameters
        ----------
        variances
            (C, d), pooled and shrunk.
        divisors
            (C,) what divided the scatter of a class; 0 for a class without a variance of its own.
        """
        own = divisors > 0
        noise = directions(self.stats) * self._class_noise[own] / divisors[own, None]
        shares = noise / np.maximum(variances[own], np.finfo(np.float64).tiny)
        if shares.max(initial=0.0) > TOLERANCE:
            warn_noise(self.stats, float(shares.max()), "the variances of a class")

    def check_class(self, label: int, covariance: Floats, add: float) -> None:
        """Warn where rounding has taken digits from a class covariance (d, d), shrunk by ``add``·I."""
        noise = float(self._class_noise[label].max(initial=0.0)) / max(int(self.counts[label]) - 1, 1)
        check_digits(self.stats, covariance, noise, add, f"the covariance of class {label}")

    @cached_property
    def _class_noise(self) -> Floats:
        """What rounding leaves (C, d) of the scatter of every class, in dimensions that vary."""
        varied = self.class_variances()[0] > 0
        return np.asarray(np.where(varied, TYPICAL * self._source.variance_rounding(self.stats), 0.0))

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
        return self.amounts(shrink, trace=class_trace if shrink.kind == "blend" else trace, dof=dof)


def total_scatter(stats: Statistics) -> tuple[MatrixScatter, float]:
    """Return the scatter of all samples around the global mean, and what rounding leaves of its eigenvalues.

    It is Σ x xᵀ − N μ_g μ_gᵀ, added up from that inside classes and that of their means: the latter loses no digit.
    Where rounding hides the spread inside classes in some dimensions, what is left may be singular, and tells classes
    apart too well: a :class:`~fedmoments.errors.FitWarning` says so.

    Parameters
    ----------
    stats
        With the gram.

    Examples
    --------
    >>> stats = Statistics.of([[0.0], [2.0], [4.0]], [0, 0, 1], StatisticsSpec.of("gram"), n_classes=2)
    >>> total_scatter(stats)[0].matrix.round(12)
    array([[8.]])
    """
    gaussians = ClassGaussians(stats, "exact")
    within = gaussians.scatter
    matrix = within.scaled(1.0)
    away = gaussians.means[stats.classes] - gaussians.global_mean
    add_gram(matrix, away * np.sqrt(stats.class_counts)[:, None])
    total = MatrixScatter(symmetrize_upper(matrix), float(max(stats.n_samples - 1, 0)))
    if isinstance(within, MatrixScatter) and not gaussians.flat and within.hidden > TOLERANCE:
        warn_noise(stats, within.hidden, "the total scatter")
    hidden = stats.n_samples * gaussians.least_deviation**2 if gaussians.flat else 0.0
    return total, max(within.noise * within.weight, hidden)
