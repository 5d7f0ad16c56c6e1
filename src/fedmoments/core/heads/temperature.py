"""The temperature of a classifier in closed form: what its scores are divided by before they read as log-probabilities.

A class c is mistaken most often for its rival r, the other class with the highest score at the mean μ_c. The margin
m = s_c − s_r has the value g_c at μ_c and, with the gradient Δw_c there, the standard deviation √(Δw_cᵀΣ̃Δw_c) over
samples of c; g and σ are their means over classes, weighted by how frequent classes are.

    T = max( σ²/(2g),  d/(d + 64)·(σ²/g + g/10) )

- σ²/(2g) is the temperature at which scores *are* the log-densities of Gaussians: 1 for LDA, whose g is ½σ². No honest
  model is surer of itself than that.
- Real features are no Gaussians: classes have parts, tails and wrong labels, and the many weak directions that add up
  to a Mahalanobis distance do not vary independently. Where classes overlap, margins are worth half of what Gaussians
  make of them (σ²/g); where they do not, the odds of a class at its own mean stay near e¹⁰, however far its rival is
  (g/10). In few dimensions Gaussians are nearly right, which the share d/(d + 64) says.

Where the covariance is known by its diagonal, or by one number, features count as independent that are not: their
margins spread by √(1 + d/50) more, and T = max(½·σ·√(1 + d/50), g/6). Without any spread (FedNCM's counts and sums) the
variance of a feature is taken to be that of class means around the origin, Σ_c π_c‖μ_c‖²/d: features that are not
negative spread as much as they are large, and those of unit length as much as means are short of 1. Naive Bayes and
low-rank QDA may score the mean of a class as another one, so that g says little: T = max(σ²/(2g), ¾·d/(d + 64)·σ), and
½·d/(d + 64)·σ·√(1 + d/50) where the diagonal alone is known.

The constants were chosen on BANKING77, CIFAR-10, digits (pixels), Office-Caltech (SqueezeNet), the domains of PACS and
breast cancer; docs/calibration.md has the calibration errors of all heads on these and on sets that took no part.

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

#: Odds of a class at its own mean are e to the power of this, however far away its rival is.
MOST_ODDS = 10.0
#: Dimensions of which Gaussians are half wrong.
FEW_DIMENSIONS = 64.0
#: The same odds, and features that vary together, where the covariance is known by its diagonal at most.
PLAIN_ODDS = 6.0
TOGETHER = 50.0
#: Temperatures in spreads: of such a covariance, and of classifiers whose margin at a mean says nothing.
PLAIN_SPREADS = 0.5
NAIVE_SPREADS = 0.75
#: Kinds of classifiers that take features for independent, or nearly: the mean of a class may score best as another.
NAIVE = ("diagonal", "low-rank")
#: Sources that know no covariance between features.
DIAGONAL = ("diagonal", "spherical")
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
    >>> round(closed_temperature(rule, stats, None), 3)  # ½·√(50·4·(1 + 1/50))
    7.141
    """
    gaussians = ClassGaussians(stats, covariance or "exact")
    order = np.argsort(-stats.counts, kind="stable")[:MOST_CLASSES]
    labels = order[stats.counts[order] > 0]
    weights = stats.counts[labels] / stats.counts[labels].sum()
    if np.count_nonzero(stats.counts) < 2:
        return 1.0
    with np.errstate(all="ignore"):  # what overflows gives no temperature, which is checked below
        points = gaussians.means[labels]
        scores = classifier.scores(points)
        own = scores[np.arange(len(labels)), labels]
        scores[np.arange(len(labels)), labels] = -np.inf
        rivals = scores.argmax(axis=1)
        gap = float(weights @ np.maximum(own - scores.max(axis=1), 0.0))
        slopes = classifier.gradients(points, labels) - classifier.gradients(points, rivals)
        if covariance is not None and covariance not in DIAGONAL:
            spread = float(weights @ _deviations(gaussians, scatter or gaussians.scatter, slopes, shrinkage))
            temperature = _of_gaussians(classifier, gap, spread)
        else:
            variances = _variances(gaussians, covariance)[labels]
            plain = np.sqrt(np.einsum("md,md->m", slopes * slopes, variances) * (1.0 + stats.dim / TOGETHER))
            temperature = _of_diagonals(classifier, gap, weights, plain)
    return temperature if np.isfinite(temperature) and temperature > 0.0 else 1.0


def _share(dim: int) -> float:
    return dim / (dim + FEW_DIMENSIONS)


def _of_gaussians(classifier: Classifier, gap: float, spread: float) -> float:
    """Return T of margins with the mean ``gap`` and standard deviation ``spread``, in units of scores."""
    least = spread * spread / (2.0 * gap) if gap > 0.0 else 0.0
    if classifier.kind in NAIVE or not gap > 0.0:
        return max(least, NAIVE_SPREADS * _share(classifier.dim) * spread)
    return max(least, _share(classifier.dim) * (2.0 * least + gap / MOST_ODDS))


def _of_diagonals(classifier: Classifier, gap: float, weights: Floats, spreads: Floats) -> float:
    """Return T where the covariance is known by its diagonal at most; spreads (m,) of margins, weights (m,)."""
    seen = spreads > 0.0
    typical = float(np.exp(weights[seen] @ np.log(spreads[seen]) / weights[seen].sum())) if seen.any() else 0.0
    if classifier.kind in NAIVE:
        return PLAIN_SPREADS * _share(classifier.dim) * typical
    return max(PLAIN_SPREADS * typical, gap / PLAIN_ODDS)


def _variances(gaussians: ClassGaussians, covariance: str | None) -> Floats:
    """Return variances (C, d) inside classes, or a guess of them from class means alone."""
    if covariance is None:
        shares = gaussians.counts / gaussians.stats.n_samples
        size = float(shares @ np.einsum("cd,cd->c", gaussians.means, gaussians.means))
        return np.full(gaussians.means.shape, size / gaussians.stats.dim)
    scatter, dof = gaussians.class_variances()
    pooled = scatter.sum(axis=0) / max(float(dof.sum()), 1.0)
    return np.asarray(np.broadcast_to(pooled, scatter.shape))


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
