"""The temperature of a classifier in closed form: what its scores are divided by before they read as log-probabilities.

A class c is mistaken most often for its rival r, the other class with the highest score at the mean μ_c. The margin
m = s_c − s_r has the value g_c at μ_c and, with the gradient Δw_c there, the standard deviation √(Δw_cᵀΣ̃Δw_c) over
samples of c; g and σ are their means over classes, weighted by how frequent classes are.

    T = max( σ²/(2g),  τ·σ ),    τ = ¾·d/(d + 64)

- σ²/(2g) is the temperature at which scores *are* the log-densities of Gaussians: 1 for LDA, whose g is ½σ². No honest
  model is surer of itself than that.
- τ·σ measures margins in their own standard deviations. Real features are no Gaussians: classes have parts, tails and
  wrong labels, and the many weak directions that add up to a Mahalanobis distance do not vary independently. Their
  number makes the difference: of 64 pixels (scikit-learn's digits) the best T is 0.3·σ, of 256 to 1280 features 0.5 to
  1·σ, while T itself runs from 1 to 17 for LDA and is 0.02 for ridge on unit-length features.

The constants were chosen on digits, BANKING77 and CIFAR-10; docs/heads.md has the calibration errors on all sets.

Without a covariance (FedNCM's counts and sums) T = g/5: of the heads that have one, g/T is 2 to 10.

**Law** multiplying scores by a constant, or features, changes no probability.
"""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.classifier import Classifier
from fedmoments.core.gaussian import ClassGaussians, Scatter, Shrinkage

if TYPE_CHECKING:
    from fedmoments.core.statistics import Statistics

__all__ = ["closed_temperature"]

Floats = NDArray[np.float64]

#: τ in many dimensions, and the number of dimensions that halves it.
SPREADS = 0.75
FEW_DIMENSIONS = 64.0
#: Margin of a class mean against its rival, in temperatures, where no spread is known.
PLAIN_MARGIN = 5.0
#: Classes that are looked at, the most frequent ones: more would change a mean over classes by little.
MOST_CLASSES = 64


def closed_temperature(
    classifier: Classifier,
    stats: "Statistics",
    covariance: str | None,
    shrinkage: Shrinkage | str | float = "automatic",
    scatter: Scatter | None = None,
) -> float:
    """Return the temperature of a classifier that was fitted from statistics; 1 where they do not tell.

    Parameters
    ----------
    classifier
        Scores features as they were measured (no feature map).
    stats
        What it was fitted from.
    covariance
        Source of the covariance that margins are measured by, or None.
    shrinkage
        Of that covariance.
    scatter
        In place of that source's pooled scatter, where the classifier was made of another one.

    Examples
    --------
    >>> from fedmoments.core.classifier import LinearClassifier
    >>> from fedmoments.core.statistics import Statistics, StatisticsSpec
    >>> stats = Statistics.of([[0.0], [10.0]], [0, 1], StatisticsSpec(), n_classes=2)
    >>> rule = LinearClassifier(weights=np.array([[-1.0, 1.0]]), bias=np.array([10.0, 0.0]), present=stats.counts > 0)
    >>> closed_temperature(rule, stats, None)
    2.0
    """
    gaussians = ClassGaussians(stats, covariance or "exact")
    order = np.argsort(-stats.counts, kind="stable")[:MOST_CLASSES]
    labels = order[stats.counts[order] > 0]
    weights = stats.counts[labels] / stats.counts[labels].sum()
    if np.count_nonzero(stats.counts) < 2:
        return 1.0
    with np.errstate(all="ignore"):  # what overflows gives no temperature, which is checked below
        scores = classifier.scores(gaussians.means[labels])
        own = scores[np.arange(len(labels)), labels]
        scores[np.arange(len(labels)), labels] = -np.inf
        rivals = scores.argmax(axis=1)
        gap = float(weights @ np.maximum(own - scores.max(axis=1), 0.0))
        if covariance is None:
            temperature = gap / PLAIN_MARGIN
        else:
            points = gaussians.means[labels]
            slopes = classifier.gradients(points, labels) - classifier.gradients(points, rivals)
            spread = float(weights @ _deviations(gaussians, scatter or gaussians.scatter, slopes, shrinkage))
            share = SPREADS * stats.dim / (stats.dim + FEW_DIMENSIONS)
            temperature = max(spread * spread / (2.0 * gap) if gap > 0.0 else 0.0, share * spread)
    return temperature if np.isfinite(temperature) and temperature > 0.0 else 1.0


def _deviations(
    gaussians: ClassGaussians, scatter: Scatter, slopes: Floats, shrinkage: Shrinkage | str | float
) -> Floats:
    """Return σ (m,) along gradients (m, d) of margins; 0 where classes have no spread.

    The covariance before shrinkage has too little spread in the directions that an inverse prefers, the shrunk one of
    few degrees of freedom too much: a variance is the geometric mean of both.
    """
    if scatter.dof <= 0 or scatter.weight <= 0 or scatter.trace <= 0.0:
        return np.zeros(len(slopes))
    keep, add = gaussians.amounts(shrinkage, trace=scatter.trace, dof=scatter.dof)
    raw = np.maximum(scatter.along(slopes), 0.0) / scatter.weight
    shrunk = keep * raw + add * np.einsum("md,md->m", slopes, slopes)
    return np.asarray((raw * shrunk) ** 0.25)
