"""Ridge regression on random Fourier features of the Fisher space: a kernel of the directions in which classes differ.

1. Clients send what the pooled covariance needs. The server finds the k ≤ C − 1 Fisher directions, makes them
   orthonormal, Q (d, k), and broadcasts them with the width of the kernel: β times the typical distance of two samples
   in these directions, √(2·tr(QᵀΣ_total Q)), which follows from the same statistics.
2. Clients measure φ(Qᵀx), D random Fourier features: client means and a scatter sketch within a budget, or the gram.

In all d dimensions a kernel spends its features on directions in which classes do not differ; in the Fisher space a
thousand do. Orthonormal directions serve as well as ones in which the covariance is the identity (BANKING77: 92.7
against 92.4), and no sample is stretched by them. D = 1000 and β = 0.7 were chosen on BANKING77 / MiniLM (β of 0.5 to
1.5); what it is worth, there and elsewhere, stands in docs/nonlinear.md.

**Law** it is ridge regression behind the public map ``Directions | RandomFourier``.
"""

import math
from dataclasses import dataclass

import numpy as np

from fedmoments.core.gaussian import ClassGaussians, covariance_source
from fedmoments.core.heads.registry import Preset
from fedmoments.core.heads.ridge import Ridge
from fedmoments.core.heads.second_exchange import fisher_directions
from fedmoments.core.maps.base import FeatureMap
from fedmoments.core.maps.directions import Directions
from fedmoments.core.maps.fourier import RandomFourier
from fedmoments.core.statistics import Statistics, StatisticsSpec
from fedmoments.errors import InputError

__all__ = ["PRESETS", "FisherFourier", "typical_distance"]


@dataclass(frozen=True)
class FisherFourier(Ridge):
    """Ridge regression on random Fourier features of the Fisher directions of a first exchange.

    Parameters
    ----------
    scatter, covariance, ridge, intercept, normalize, divisor
        As in :class:`Ridge`.
    shrinkage
        Of the covariance in both exchanges; see :class:`fedmoments.Shrinkage`.
    n_features
        D, how many random features.
    width
        β: of the kernel, in typical distances of two samples in the Fisher directions.
    first
        Where the pooled covariance of the first exchange comes from: ``sketch``, ``free`` or ``exact``.
    map_seed
        Public seed of the random features.

    Examples
    --------
    >>> import fedmoments as fm
    >>> rng = np.random.default_rng(0)
    >>> y = np.arange(400) % 4
    >>> angles = 1.6 * y + 0.2 * rng.normal(size=400)
    >>> X = np.stack([np.cos(angles), np.sin(angles), 0.1 * rng.normal(size=400)], axis=1)
    >>> classifier = fm.fit("fisher-rf", {k: (X[k::5], y[k::5]) for k in range(5)}, n_features=64)
    >>> classifier.dim, float((classifier.predict(X) == y).mean()) > 0.9
    (64, True)
    """

    n_features: int = 1000
    width: float = 0.7
    first: str = "sketch"
    map_seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        covariance_source(self.first)
        if self.n_features < 1 or not 0.0 < self.width < math.inf:
            raise InputError(
                f"n_features must be 1 or more and width positive; {self.n_features} and {self.width} arrived"
            )

    @property
    def pilot_needs(self) -> StatisticsSpec:
        return covariance_source(self.first).pooled_needs

    def mapped_dim(self, dim: int) -> int:  # noqa: ARG002 - as many as there are random features
        return self.n_features

    def feature_map(self, dim: int, pilot: Statistics | None) -> FeatureMap | None:  # noqa: ARG002 - the pilot has it
        if pilot is None:
            raise InputError(
                "the directions and the kernel's width come from the statistics of a first exchange, but none arrived: "
                "fit from features"
            )
        directions = fisher_directions(pilot, self.first, shrinkage=self.shrinkage)
        width = self.width * typical_distance(pilot, directions, self.first)
        return directions | RandomFourier(directions.n_components, self.n_features, width, self.map_seed)


def typical_distance(stats: Statistics, directions: Directions, source: str) -> float:
    """Return √(E‖z − z′‖²) of two samples z in orthonormal directions; 1 where samples do not differ there.

    Parameters
    ----------
    stats
        Of all clients, with what the pooled covariance of ``source`` needs.
    directions, source
        Which directions, and where the covariance comes from.

    Examples
    --------
    >>> X, y = [[0.0, 0.0], [2.0, 0.0], [0.0, 4.0], [2.0, 4.0]], [0, 0, 1, 1]
    >>> stats = Statistics.of(X, y, StatisticsSpec.of("gram"), n_classes=2)
    >>> round(typical_distance(stats, Directions.of(np.eye(2)), "exact"), 6)
    3.162278
    """
    gaussians = ClassGaussians(stats.as_sent() if stats.spec.has_sketch else stats, source)
    Q, scatter = directions.matrix.astype(np.float64), gaussians.scatter
    inside = float(scatter.along(np.ascontiguousarray(Q.T)).sum()) / max(scatter.weight, 1.0)
    away = gaussians.centred_means[stats.classes] @ Q
    between = float((stats.class_counts / stats.n_samples) @ np.einsum("ck,ck->c", away, away))
    total = 2.0 * (inside * (1.0 - len(stats.classes) / stats.n_samples) + between)
    return math.sqrt(total) if total > 0.0 else 1.0


PRESETS = (
    Preset(
        "fisher-rf",
        FisherFourier,
        "ridge on random Fourier features of the Fisher directions, from client means and sketches",
        "new here, after Fed3R and GH-OFL",
        {"scatter": "within", "covariance": "sketch"},
    ),
)
