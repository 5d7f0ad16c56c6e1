"""What a head is: hyper-parameters, what statistics it needs, and how it turns them into a classifier."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.classifier import Classifier
from fedmoments.core.classifier.familiar import LEAST_LEVEL, LEAST_SHARE, Familiar
from fedmoments.core.gaussian import ClassGaussians, Shrinkage, covariance_source, require
from fedmoments.core.gaussian.precision import check_any_left
from fedmoments.core.gaussian.scatter import RowScatter
from fedmoments.core.heads.temperature import closed_temperature, drawn_temperature
from fedmoments.core.maps import FeatureMap
from fedmoments.core.statistics import Ledger, Statistics, StatisticsSpec
from fedmoments.core.statistics.arithmetic import feature_exponent, times_power
from fedmoments.errors import InputError

__all__ = ["Head", "familiar_of"]

#: Features from 2^−32 to 2^32 are solved for as they are, others multiplied by a power of two first.
ORDINARY = 32
#: Absolute amounts become no larger than this power of two, and no smaller than its inverse.
MOST_POWER = 256
#: Where variances inside classes come from, the best first.
SPREADS = ("exact", "diagonal", "sketch", "energy", "free", "spherical")
#: Those that know how features vary together, the best first.
TOGETHER = ("exact", "sketch", "energy", "free")


@dataclass(frozen=True)
class Head(ABC):
    """A recipe from statistics to a classifier. Frozen: its fields are its hyper-parameters.

    No hyper-parameter ever enters a statistic, so one upload serves any sweep.

    Examples
    --------
    >>> import fedmoments as fm
    >>> parties = {"a": ([[0.0, 1.0], [1.0, 0.2]], [0, 1]), "b": ([[0.2, 1.1], [0.9, 0.1]], [0, 1])}
    >>> upload = fm.measure(parties, fm.make_head("fed3r").needs)
    >>> [fm.make_head("fed3r", ridge=ridge).fit(upload).predict([[0.0, 1.0]]).item() for ridge in (0.01, 1.0)]
    [0, 0]
    """

    #: Whether fitting takes as long as many other heads together: a covariance a class, or training.
    slow: ClassVar[bool] = False
    #: The public map that features stand behind unless somebody says otherwise: ``none``, or ``auto``.
    map_rule: ClassVar[str] = "none"

    @property
    @abstractmethod
    def needs(self) -> StatisticsSpec:
        """The least statistics that this head can be fitted from."""

    @property
    def apart_needs(self) -> StatisticsSpec:
        """What it is fitted from where clients' sums may be kept apart: no more numbers than :attr:`needs`.

        A head that knows no covariance sees in clients' class means how wide classes are, which its temperature
        depends on; its scores do not. Where clients' sums are only known added up, its temperature is less certain.
        """
        return self.needs

    @abstractmethod
    def solve(self, stats: Statistics) -> Classifier:
        """Return the classifier; ``stats`` hold what :attr:`needs` says."""

    def fit(self, source: Statistics | Ledger) -> Classifier:
        """Fit from merged statistics, or from a ledger.

        Where a scatter sketch has a budget, client means are rounded as they travel within it, unless they have
        travelled already: a head fitted beside the data is the head that a federation fits.

        Raises
        ------
        ClientsPooledError
            When the head needs clients kept apart and they are not; before anything is computed.
        MissingMomentError
            When another moment is missing.
        """
        stats = source.statistics(self.apart_needs) if isinstance(source, Ledger) else source
        suited = self.suited(stats.spec)
        if suited != self:
            return suited.fit(stats)
        require(stats, self.needs, type(self).__name__)
        check_any_left(stats)
        sent = stats.as_sent() if self.needs.has_sketch else stats
        return self._solve_at_any_scale(sent)

    def suited(self, spec: StatisticsSpec) -> "Head":  # noqa: ARG002 - for overriders
        """Return the head that this one is on statistics of that spec: itself, unless it chooses by what they hold."""
        return self

    def _solve_at_any_scale(self, stats: Statistics) -> Classifier:
        """Solve for features of ordinary size: from about 1e±75 on, squares of squares overflow or vanish."""
        exponent = feature_exponent(stats)
        if abs(exponent) > ORDINARY:
            classifier = self.times_power(-exponent)._tempered(times_power(stats, -exponent))
            if classifier.degrees:  # else nobody knows how its arrays grow with the features
                return classifier.for_features_times_power(exponent, self.score_degree(classifier))
        return self._tempered(stats)

    def _tempered(self, stats: Statistics) -> Classifier:
        """Solve, note whose work it is, and give the classifier its temperature."""
        solved = self.solve(stats)
        seen = familiar_of(stats, self.needs)
        classifier = solved.noting(**{"head": type(self).__name__, **solved.info}).knowing(seen)
        if type(classifier).gradients is Classifier.gradients:  # of its own kind: nobody knows its margins
            return classifier
        try:
            temperature = self.temperature_of(classifier, stats)
        except InputError:  # it scores class means as NaN: whoever scores samples with it is told so, by its name
            return classifier
        return classifier.tempered(max(temperature, self.least_temperature(classifier)))

    def temperature_of(self, classifier: Classifier, stats: Statistics) -> float:
        """Return the temperature of the classifier that this head made of these statistics."""
        shrinkage, means = getattr(self, "shrinkage", "automatic"), getattr(self, "means", "measured")
        closed = closed_temperature(classifier, stats, self._spread_source, shrinkage, means=means)
        if self.apart_needs == self.needs:
            return closed
        return drawn_temperature(classifier, stats, self._spread_source, closed)

    @property
    def _spread_source(self) -> str | None:
        """Where the covariance comes from that margins are measured by; None where this head's statistics have none."""
        own = getattr(self, "covariance", None)
        names = [] if own is None else ["exact" if own == "total" else own, "diagonal"]
        known = (name for name in names if covariance_source(name).pooled_needs <= self.needs)
        return next(known, None)

    def times_power(self, exponent: int) -> Self:
        """Return the head that does with features multiplied by 2^exponent what this one does with features.

        Absolute amounts of ``shrinkage`` and ``ridge`` are in squared feature units; a head with other hyper-parameters
        that have a unit overrides this.

        Examples
        --------
        >>> import fedmoments as fm
        >>> fm.make_head("fed3r", ridge=1.0).times_power(-2).ridge
        Shrinkage(kind='absolute', amount=0.0625)
        """
        amounts = {name: Shrinkage.parse(getattr(self, name)) for name in ("shrinkage", "ridge") if hasattr(self, name)}
        scaled: dict[str, Any] = {
            name: Shrinkage("absolute", _times_power(own.amount, 2 * exponent))
            for name, own in amounts.items()
            if own.kind == "absolute"
        }
        return replace(self, **scaled)

    def score_degree(self, classifier: Classifier) -> int:  # noqa: ARG002 - for overriders
        """Return by which power of the features the scores of this head's classifier grow: 0 for log-probabilities."""
        return 0

    def least_temperature(self, classifier: Classifier) -> float:
        """Return below which temperature nothing goes: 1 for log-probabilities, since none is surer than its model."""
        return 1.0 if self.score_degree(classifier) == 0 else 0.0

    @property
    def has_own_map(self) -> bool:
        """Whether features are mapped in a way of this head's own before they are measured."""
        return type(self).feature_map is not Head.feature_map

    @property
    def folds_means(self) -> bool:
        """Whether one free scatter of all clients serves in place of their means."""
        return False

    @property
    def pilot_needs(self) -> StatisticsSpec | None:
        """Statistics of a small first exchange that :meth:`feature_map` needs, or None."""
        return None

    def feature_map(self, dim: int, pilot: Statistics | None) -> FeatureMap | None:  # noqa: ARG002 - for overriders
        """Return the map that clients apply to features of ``dim`` dimensions before they measure, or None."""
        return None

    def agreed_map(
        self, dim: int, measured: Callable[[StatisticsSpec, FeatureMap | None], Statistics]
    ) -> FeatureMap | None:
        """Return the map of this head's own, after the exchanges that it takes to agree on it.

        Parameters
        ----------
        dim
            Dimension of the features.
        measured
            Asks all clients for statistics behind a map, or behind none.
        """
        return self.feature_map(dim, measured(self.pilot_needs, None) if self.pilot_needs is not None else None)

    def mapped_dim(self, dim: int) -> int | None:
        """Return of how many dimensions features are behind this head's own map; None where data decide."""
        return None if self.has_own_map else dim

    def earlier(self, dim: int) -> tuple[tuple[StatisticsSpec, int], ...]:
        """Return what clients send before the last exchange, and of how many dimensions."""
        return () if self.pilot_needs is None else ((self.pilot_needs, dim),)

    def settings(self) -> dict[str, Any]:
        """Return the hyper-parameters as plain values, for tables and file headers."""
        plain = (bool, int, float, str, type(None))
        shallow = {name: getattr(self, name) for name in asdict(self)}
        return {name: value if isinstance(value, plain) else str(value) for name, value in shallow.items()}


def _times_power(amount: float, exponent: int) -> float:
    """Return amount·2^exponent, but no more than so large or small that it is everything or nothing beside features."""
    fraction, own = math.frexp(amount)
    return math.ldexp(fraction, max(min(own + exponent, MOST_POWER), -MOST_POWER))


def familiar_of(stats: Statistics, needs: StatisticsSpec) -> Familiar | None:
    """Return what was seen by a head that needs ``needs``; None where that holds no spread inside classes.

    What else travelled along does not count: one name of a head is one classifier.

    Examples
    --------
    >>> stats = Statistics.of([[0.0], [2.0], [9.0], [11.0]], [0, 0, 1, 1], StatisticsSpec.of("gram"), n_classes=2)
    >>> familiar_of(stats, StatisticsSpec.of("gram")).variances
    array([2.])
    >>> familiar_of(stats, StatisticsSpec()) is None
    True
    """
    source = next((name for name in SPREADS if covariance_source(name).pooled_needs <= needs), None)
    if source is None:
        return None
    gaussians = ClassGaussians(stats, source)
    pooled = gaussians.scatter
    if isinstance(pooled, RowScatter):
        variances = pooled.spread / max(pooled.dof, 1.0)
    else:
        variances = np.diagonal(pooled.scaled(1.0)) / max(pooled.weight, 1.0)
    variances = np.maximum(variances, LEAST_SHARE * float(variances.mean()))
    if not (np.isfinite(variances).all() and (variances > 0).all()) or not np.isfinite(gaussians.means).all():
        return None
    shares = stats.counts / stats.n_samples
    return Familiar(gaussians.means, variances, shares, _level(stats, needs))


def _level(stats: Statistics, needs: StatisticsSpec) -> NDArray[np.float64] | None:
    """Return the variance (1,) of all samples along their mean, where they have a level and it is known."""
    source = next((name for name in TOGETHER if covariance_source(name).pooled_needs <= needs), None)
    if source is None:
        return None
    gaussians = ClassGaussians(stats, source)
    mean, scatter = gaussians.global_mean, gaussians.scatter
    size = float(np.linalg.norm(mean))
    if not (0.0 < size < np.inf and scatter.weight > 0):
        return None
    along = mean / size
    between = stats.counts / stats.n_samples @ np.square(gaussians.centred_means @ along)
    variance = float(scatter.along(along[None])[0]) / scatter.weight + float(between)
    return np.array([variance]) if 0.0 < variance <= (size / LEAST_LEVEL) ** 2 else None
