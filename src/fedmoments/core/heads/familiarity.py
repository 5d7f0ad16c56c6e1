"""What a head has seen: the means and variances of its statistics, for the classifier that it fits."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.classifier.familiar import LEAST_LEVEL, LEAST_SHARE, Familiar
from fedmoments.core.gaussian import ClassGaussians, covariance_source
from fedmoments.core.gaussian.scatter import RowScatter

if TYPE_CHECKING:
    from fedmoments.core.statistics import Statistics, StatisticsSpec

__all__ = ["familiar_of"]

#: Where variances inside classes come from, the best first.
SOURCES = ("exact", "diagonal", "sketch", "energy", "free", "spherical")
#: Those that know how features vary together, the best first.
TOGETHER = ("exact", "sketch", "energy", "free")


def familiar_of(stats: "Statistics", needs: "StatisticsSpec") -> Familiar | None:
    """Return what was seen by a head that needs ``needs``; None where that holds no spread inside classes.

    What else travelled along does not count: one name of a head is one classifier.

    Examples
    --------
    >>> from fedmoments.core.statistics import Statistics, StatisticsSpec
    >>> stats = Statistics.of([[0.0], [2.0], [9.0], [11.0]], [0, 0, 1, 1], StatisticsSpec.of("gram"), n_classes=2)
    >>> familiar_of(stats, StatisticsSpec.of("gram")).variances
    array([2.])
    >>> familiar_of(stats, StatisticsSpec()) is None
    True
    """
    source = next((name for name in SOURCES if covariance_source(name).pooled_needs <= needs), None)
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


def _level(stats: "Statistics", needs: "StatisticsSpec") -> NDArray[np.float64] | None:
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
