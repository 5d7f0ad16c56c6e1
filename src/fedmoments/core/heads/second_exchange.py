"""QDA after a second exchange: class covariances in the Fisher directions that the first exchange told, exact.

1. Clients send what the pooled covariance needs (client means and scatter sketches, or client means alone, or a gram).
   The server finds the Fisher directions V (d, k), k ≤ C − 1, and broadcasts them.
2. Clients send Σ_{i∈k,c} (Vᵀx)(Vᵀx)ᵀ and Σ Vᵀx of every class: C·k(k+3)/2 numbers. They add up, so that secure sums
   mask them and central noise protects them like any other class grams.

What is broadcast is the feature map :class:`~fedmoments.core.maps.Directions`, orthonormal and bounded, so that the
second exchange *is* a federation behind that map: terms, policies, secure sums, costs and records are those of any
other. Its statistics are one more release.

**Law** with all C − 1 directions and covariances of full rank in both exchanges, it is QDA in the Fisher subspace of
the exact class grams.
"""

from dataclasses import dataclass

import numpy as np

from fedmoments.core.classifier import Classifier
from fedmoments.core.gaussian import ClassGaussians, FisherSubspace, Pooling, Shrinkage, covariance_source
from fedmoments.core.gaussian.class_gaussians import check_priors, require
from fedmoments.core.gaussian.fisher import parse_directions
from fedmoments.core.heads.head import Head
from fedmoments.core.heads.qda import Qda
from fedmoments.core.heads.registry import Preset
from fedmoments.core.maps.base import FeatureMap
from fedmoments.core.maps.directions import MOST_DIRECTIONS, Directions
from fedmoments.core.statistics import Statistics, StatisticsSpec
from fedmoments.errors import InputError

__all__ = ["PRESETS", "SecondExchange"]


@dataclass(frozen=True)
class SecondExchange(Head):
    """Gaussian classes with a covariance each, measured in the Fisher directions of a first exchange.

    Parameters
    ----------
    first
        Where the pooled covariance of the first exchange comes from: ``sketch``, ``free`` or ``exact``.
    directions
        How many Fisher directions are broadcast; see :func:`fedmoments.core.gaussian.fisher.parse_directions`.
    shrinkage, pooling, priors
        As in :class:`fedmoments.core.heads.qda.Qda`.

    Examples
    --------
    >>> import fedmoments as fm
    >>> rng = np.random.default_rng(0)
    >>> y = np.arange(300) % 3
    >>> X = rng.normal(size=(300, 8)) * (1.0 + y[:, None]) + 3.0 * np.eye(3, 8)[y]
    >>> classifier = fm.fit("qda-exchange", {k: (X[k::5], y[k::5]) for k in range(5)})
    >>> classifier.feature_map.n_components, float((classifier.predict(X) == y).mean()) > 0.7
    (2, True)
    """

    first: str = "sketch"
    directions: str | int = MOST_DIRECTIONS
    shrinkage: Shrinkage | str | float = "automatic"
    pooling: Pooling | str | float = "automatic"
    priors: str = "data"

    def __post_init__(self) -> None:
        check_priors(self.priors)
        Shrinkage.parse(self.shrinkage)
        Pooling.parse(self.pooling)
        covariance_source(self.first)
        parse_directions(self.directions)

    @property
    def needs(self) -> StatisticsSpec:
        return StatisticsSpec.of("class_grams")

    @property
    def pilot_needs(self) -> StatisticsSpec:
        return covariance_source(self.first).pooled_needs

    def feature_map(self, dim: int, pilot: Statistics | None) -> FeatureMap | None:  # noqa: ARG002 - the pilot has it
        if pilot is None:
            raise InputError(
                "the directions of the second exchange come from the statistics of a first one, but none arrived: fit "
                "from features, or make the map with fisher_directions from a ledger"
            )
        return fisher_directions(pilot, self.first, shrinkage=self.shrinkage, directions=self.directions)

    def solve(self, stats: Statistics) -> Classifier:
        inner = Qda("exact", self.shrinkage, self.pooling, subspace="fisher", directions="all", priors=self.priors)
        return inner.solve(stats)


def fisher_directions(
    stats: Statistics,
    source: str = "sketch",
    *,
    shrinkage: Shrinkage | str | float = "automatic",
    directions: str | int = MOST_DIRECTIONS,
) -> Directions:
    """Return the Fisher directions of a federation's statistics as a map that clients can apply.

    Parameters
    ----------
    stats
        Of all clients, with what the pooled covariance of ``source`` needs.
    source
        Where that comes from: ``sketch``, ``free`` or ``exact``.
    shrinkage, directions
        Of the pooled covariance, and how many to keep, at most :data:`~fedmoments.core.maps.MOST_DIRECTIONS`.

    Examples
    --------
    >>> X, y = [[0.0, 0.0, 1.0], [2.0, 0.1, 0.0], [0.1, 5.0, 0.0], [2.0, 5.1, 1.0]], [0, 0, 1, 1]
    >>> stats = Statistics.of(X, y, StatisticsSpec.of("gram"), n_classes=2)
    >>> fisher_directions(stats, "exact").matrix.shape
    (3, 1)
    """
    require(stats, covariance_source(source).pooled_needs, "the directions of a second exchange")
    sent = stats.as_sent() if stats.spec.has_sketch else stats
    fisher = FisherSubspace.of(ClassGaussians(sent, source), shrinkage=shrinkage, directions=directions)
    if not fisher.dim:  # one class, or classes that do not differ: any direction tells as much
        return Directions.of(np.eye(stats.dim, 1))
    return Directions.of(fisher.basis[:, :MOST_DIRECTIONS])


PRESETS = (
    Preset(
        "qda-exchange",
        SecondExchange,
        "QDA in Fisher directions, in which clients send class grams in a second exchange",
        "new here, after FedCOF and GH-OFL",
    ),
)
