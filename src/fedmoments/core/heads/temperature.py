"""The temperature of a classifier in closed form: what its scores are divided by before they read as log-probabilities.

A class c is mistaken most often for its rival r, the other class with the highest score at the mean μ_c. The margin
m = s_c − s_r has the value g_c at μ_c and, with the gradient Δw_c there, the standard deviation √(Δw_cᵀΣ̃Δw_c) over
samples of c; g (of margins below 0: 0) and σ are their means over classes, weighted by how frequent classes are. ḡ is
the same mean of margins to the average class, s_c(μ_c) − Σ_r π_r s_r(μ_c).

    T = max( σ²/(2g),  d/(d + 64)·(σ²/g + g/10)·√(0.6·ḡ/g) )

- σ²/(2g) is the temperature at which scores *are* the log-densities of Gaussians: 1 for LDA, whose g is ½σ². No honest
  model is surer of itself than that.
- Real features are not Gaussians: classes have parts, tails and wrong labels, and the many weak directions that add up
  to a Mahalanobis distance do not vary independently. Where classes overlap, margins are worth half of what Gaussians
  make of them (σ²/g); where they do not, the odds of a class at its own mean stay near e¹⁰, however far its rival is
  (g/10). In few dimensions Gaussians are nearly right, which the share d/(d + 64) says.
- Where many classes are nearly as close as the rival, all of them take probability from c: ḡ/g is ½ with two classes of
  one size, and about 3 with the 77 of BANKING77.

QDA with an exact covariance of every class is nearer to real features: 0.8·T.

A mean of few samples lies too far out, and samples of its class do not lie around it. Where a head shrinks class means
(:mod:`fedmoments.core.gaussian.class_means`), margins are those at the shrunk ones.

Where the covariance is known by its diagonal, or by one number, features count as independent that are not. How they
vary together is seen in the other class means: those of a third class are not samples of c, but differ from each other
in the directions in which features differ at all. With b the deviation of m over the means of classes other than c and
r, and κ² the variance inside classes over that of class means,

    T = 0.7·(σ_b²/g + g/6),   σ_b² = ½σ² + ½κ²b²      (σ_b = σ with fewer than two other classes).

Without any spread (FedNCM's counts and sums) there is T = g/5 + b²/(10g).

Where clients' class means are kept apart, heads without a covariance between features need not guess how wide classes
are: clients' means, scaled to the spread of samples, are scored as samples (:mod:`fedmoments.core.gaussian
.client_draws`), and T is 1.1 times where these are as sure as they are right, as far as they are many, beside the
closed form (:func:`agreed_temperature`, as for clients' tests). They have been seen by the fit, and their tails are
those of means: hence 1.1.

Naive Bayes and low-rank QDA may score the mean of a class as another one; f is the share of such classes, and e⁴ᶠ·g/5
the temperature of naive Bayes whose covariance is a diagonal. Where one is known, T is the geometric mean of that and
of max(σ²/(2g), ¾·d/(d + 64)·σ). Other heads seldom do so (ridge regression on the classes of iris, one of which lies
between the others); their temperature is f·e⁴ᶠ·g/5 at least.

docs/calibration.md says on which sets these constants were chosen, and has the calibration errors of all heads on
these and on sets that took no part.

**Law** multiplying scores by a constant, or features, changes no probability.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.classifier import Classifier
from fedmoments.core.gaussian import ClassGaussians, Scatter, Shrinkage
from fedmoments.core.gaussian.class_means import believed_means
from fedmoments.core.gaussian.client_draws import ClientDraws

if TYPE_CHECKING:
    from fedmoments.core.statistics import Statistics

__all__ = ["agreed_temperature", "closed_temperature", "drawn_temperature"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Odds of a class at its own mean are e to the power of this, however far away its rival is: with a covariance, with
#: its diagonal at most, and with nothing but class means.
MOST_ODDS, PLAIN_ODDS, BARE_ODDS = 10.0, 6.0, 5.0
#: Dimensions of which Gaussians are half wrong.
FEW_DIMENSIONS = 64.0
#: Margins to the average class, in those to the rival, of features that the constants hold for.
FAR = 0.6
#: Of a covariance that is known by its diagonal: how much warmer than Gaussians, and what margins spread like others.
PLAIN_WARMTH, TOGETHER = 0.7, 0.5
#: Of class means alone: what the squared spread of margins over others counts.
BARE_SPREAD = 0.1
#: Temperature in spreads of classifiers whose margin at a mean says little; by how much one that is wrong at all means
#: is warmer than one that is wrong at none, as a logarithm.
NAIVE_SPREADS, WRONG_MEANS = 0.75, 4.0
#: How much cooler densities are whose classes have exact covariances of their own: they bend with the data.
OWN_COVARIANCES = 0.8
#: Kinds of classifiers that take features for independent, or nearly: the mean of a class may score best as another.
NAIVE = ("diagonal", "low-rank")
#: Sources that know no covariance between features.
DIAGONAL = ("diagonal", "spherical")
#: By how many octaves the closed form is mostly off; how many temperatures are tried between those that were scored.
OFF, BETWEEN = 0.7, 32
#: Temperatures at which draws are scored, as octaves of the closed form.
OCTAVES = np.linspace(-4.0, 4.0, 17)
#: How much warmer than draws samples are, which have longer tails and were not seen.
SEEN = 1.1
#: Classes that are looked at, the most frequent ones: more would change a mean over classes by little.
MOST_CLASSES = 64


def closed_temperature(
    classifier: Classifier,
    stats: "Statistics",
    covariance: str | None,
    shrinkage: Shrinkage | str | float = "automatic",
    scatter: Scatter | None = None,
    *,
    means: str = "measured",
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
    means
        Which class means samples are expected round: see ``core.gaussian.class_means``.

    Examples
    --------
    >>> from fedmoments.core.classifier import LinearClassifier
    >>> from fedmoments.core.statistics import Statistics, StatisticsSpec
    >>> stats = Statistics.of([[0.0], [10.0]], [0, 1], StatisticsSpec(), n_classes=2)
    >>> rule = LinearClassifier(weights=np.array([[-1.0, 1.0]]), bias=np.array([10.0, 0.0]), present=stats.counts > 0)
    >>> round(closed_temperature(rule, stats, None), 3)  # g/5, of margins of 10
    2.0
    """
    if np.count_nonzero(stats.counts) < 2:
        return 1.0
    gaussians = ClassGaussians(stats, covariance or "exact")
    with np.errstate(all="ignore"):  # what overflows gives no temperature, which is checked below
        margins = _Margins.of(classifier, gaussians, _centres(gaussians, means, shrinkage))
        if covariance is None:
            temperature = _of_means(margins)
        elif covariance in DIAGONAL:
            temperature = _of_diagonals(margins, gaussians, naive=classifier.kind in NAIVE)
        else:
            deviations = _deviations(gaussians, scatter or gaussians.scatter, margins.slopes, shrinkage)
            temperature = _of_gaussians(margins, float(margins.weights @ deviations), naive=classifier.kind in NAIVE)
            own = classifier.kind == "quadratic" and covariance == "exact"
            temperature *= OWN_COVARIANCES if own else 1.0
    return temperature if np.isfinite(temperature) and temperature > 0.0 else 1.0


def agreed_temperature(temperature: float, octaves: Floats, sure: Floats, accuracy: float, variance: float) -> float:
    """Return the temperature at which samples are as sure as they were right, as far as that is certain.

    It minimises (c(T) − a)²/v + (log₂(T/T₀)/0.7)²: the closed form T₀ is mostly within 0.7 octaves.

    Parameters
    ----------
    temperature
        T₀.
    octaves, sure
        (k,) temperatures as log₂(T/T₀), ascending, and the mean confidence at each, which decreases; between them it is
        interpolated.
    accuracy, variance
        a, and the variance v of c(T) − a.

    Examples
    --------
    >>> sure = np.array([0.99, 0.9, 0.5])
    >>> agreed_temperature(2.0, np.array([-1.0, 0.0, 1.0]), sure, 0.5, 1e-6), agreed_temperature(
    ...     2.0, np.array([-1.0, 0.0, 1.0]), sure, 0.5, 1e6
    ... )
    (4.0, 2.0)
    """
    tried = np.linspace(octaves[0], octaves[-1], BETWEEN * (len(octaves) - 1) + 1)
    means = np.interp(tried, octaves, np.minimum.accumulate(sure))
    cost = (means - accuracy) ** 2 / variance + (tried / OFF) ** 2
    return float(temperature * 2.0 ** tried[cost.argmin()])


def drawn_temperature(classifier: Classifier, stats: "Statistics", covariance: str | None, temperature: float) -> float:
    """Return what clients' class means say of a temperature; itself where they are not kept apart, or tell nothing.

    Parameters
    ----------
    classifier
        With scores that are linear in the features, which it scores as they were measured.
    stats
        What it was fitted from.
    covariance
        ``diagonal`` or ``spherical`` where the statistics have that, or None.
    temperature
        In closed form.
    """
    if not stats.spec.keeps_clients_apart:
        return temperature
    scatter = None if covariance is None else ClassGaussians(stats, covariance).scatter
    draws = ClientDraws.of(stats, None if scatter is None else scatter.trace * scatter.weight)
    if draws is None:
        return temperature
    scores = classifier.scores(draws.points)
    scores -= scores.max(axis=1, keepdims=True)
    right = scores[np.arange(len(scores)), draws.labels] == 0.0
    sure = np.array([draws.weights @ (1.0 / np.exp(scores / (temperature * 2.0**octave)).sum(1)) for octave in OCTAVES])
    accuracy = (float(draws.weights @ right) * draws.size + 1.0) / (draws.size + 2.0)
    variance = accuracy * (1.0 - accuracy) / draws.size
    return SEEN * agreed_temperature(temperature, OCTAVES, sure, accuracy, variance)


@dataclass(frozen=True, eq=False)
class _Margins:
    """Margins of the m most frequent classes to their rivals.

    Parameters
    ----------
    labels, weights
        (m,) classes and their shares of all that are looked at.
    at_means
        (m, m) margin of class j (column) to its rival at the mean of class i (row).
    others
        (m, m) weights of rows i for column j: 0 where i is j or its rival.
    slopes
        (m, d) gradients of margins at the mean of their class.
    far
        ḡ, the mean margin to the average class.
    """

    labels: Ints
    weights: Floats
    at_means: Floats
    others: Floats
    slopes: Floats
    far: float

    @classmethod
    def of(cls, classifier: Classifier, gaussians: ClassGaussians, centres: Floats) -> Self:
        """Score class means (C, d)."""
        counts = gaussians.counts
        order = np.argsort(-counts, kind="stable")[:MOST_CLASSES]
        labels = order[counts[order] > 0]
        weights = counts[labels] / counts[labels].sum()
        points, places = centres[labels], np.arange(len(labels))
        scores = classifier.scores(points)
        looked_at = scores[:, labels]
        far = float(weights @ (looked_at[places, places] - looked_at @ weights))
        scores[places, labels] = -np.inf
        rivals = scores.argmax(axis=1)
        scores[places, labels] = looked_at[places, places]
        third = (labels[:, None] != labels) & (labels[:, None] != rivals)
        slopes = classifier.gradients(points, labels) - classifier.gradients(points, rivals)
        return cls(labels, weights, looked_at - scores[:, rivals], weights[:, None] * third, slopes, far)

    @property
    def own(self) -> Floats:
        """(m,) margins at the mean of their own class."""
        return np.diagonal(self.at_means)

    @property
    def gap(self) -> float:
        """g, the mean of margins; those below 0 count as 0."""
        return float(self.weights @ np.maximum(self.own, 0.0))

    @property
    def wrong(self) -> float:
        """f, the share of classes whose mean scores best as another."""
        return float(self.weights @ (self.own <= 0.0))

    @property
    def between(self) -> float:
        """b, the mean deviation of margins over the means of other classes; 0 with fewer than two others."""
        several = (self.others > 0.0).sum(axis=0) > 1
        if not several.any():
            return 0.0
        shares = self.others[:, several] / self.others[:, several].sum(axis=0)
        values = self.at_means[:, several]
        deviations = np.sqrt((shares * (values - (shares * values).sum(axis=0)) ** 2).sum(axis=0))
        return float(self.weights[several] @ deviations / self.weights[several].sum())

    @property
    def bare(self) -> float:
        """The temperature of classifiers whose covariance is unknown or of no use."""
        return self.gap / BARE_ODDS * float(np.exp(WRONG_MEANS * self.wrong))


def _centres(gaussians: ClassGaussians, means: str, shrinkage: Shrinkage | str | float) -> Floats:
    """Return the class means (C, d) that samples are expected round."""
    if means == "measured":
        return gaussians.means
    return gaussians.global_mean + believed_means(gaussians, means, shrinkage)


def _of_gaussians(margins: _Margins, spread: float, *, naive: bool) -> float:
    """Return T of margins with the standard deviation ``spread``, in units of scores."""
    gap, share = margins.gap, len(margins.slopes.T) / (len(margins.slopes.T) + FEW_DIMENSIONS)
    least = spread * spread / (2.0 * gap) if gap > 0.0 else 0.0
    if naive or not gap > 0.0:
        plain = max(least, NAIVE_SPREADS * share * spread)
        return float(np.sqrt(plain * margins.bare)) if gap > 0.0 else plain
    crowd = float(np.sqrt(max(FAR * margins.far / gap, 0.0)))
    return max(least, share * (2.0 * least + gap / MOST_ODDS) * crowd, margins.wrong * margins.bare)


def _of_diagonals(margins: _Margins, gaussians: ClassGaussians, *, naive: bool) -> float:
    """Return T where the covariance is known by its diagonal, or by one number."""
    gap = margins.gap
    if naive and gap > 0.0:
        return margins.bare
    scatter, dof = gaussians.class_variances()
    variances = scatter.sum(axis=0) / max(float(dof.sum()), 1.0)
    square = float(margins.weights @ np.sqrt(np.square(margins.slopes) @ variances)) ** 2
    if not gap > 0.0:
        return float(np.sqrt(square))
    centres = gaussians.means[margins.labels]
    away = float(margins.weights @ np.square(centres - margins.weights @ centres).sum(axis=1))
    between = margins.between
    if between > 0.0 and away > 0.0:
        square = (1.0 - TOGETHER) * square + TOGETHER * float(variances.sum()) / away * between**2
    return max(PLAIN_WARMTH * (square / gap + gap / PLAIN_ODDS), margins.wrong * margins.bare)


def _of_means(margins: _Margins) -> float:
    """Return T where class means are all that is known."""
    gap = margins.gap
    return gap / BARE_ODDS + BARE_SPREAD * margins.between**2 / gap if gap > 0.0 else 0.0


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
