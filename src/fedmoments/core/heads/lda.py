"""Linear discriminant analysis: W = Σ̃⁻¹μ_c, b_c = −½ μ_cᵀΣ̃⁻¹μ_c + log π_c.

GH-LDA takes the exact pooled within-class covariance, FedCGS the *total* covariance /(N−1) without shrinkage, and
``lda-free`` FedCOF's free covariance: LDA from client means alone. ``lda-sketch`` takes that of scatter sketches.

A prior moves a decision by as much as the covariance is large. The free covariance is too large where clients differ in
more than their labels (100 times on PACS with one domain a client), and priors then decide alone: 17 % with the priors
of the data, 79 % with balanced ones. So presets on free covariances have balanced priors.
That from sketches has an exact trace, and 85.5 % with either; ``lda-sketch`` has the priors of the data.

Where samples of a class do not differ, LDA is the nearest class mean (``core.gaussian.class_gaussians``).
"""

from dataclasses import dataclass

import numpy as np

from fedmoments.core.classifier import Classifier, LinearClassifier
from fedmoments.core.gaussian import ClassGaussians, Shrinkage, covariance_source
from fedmoments.core.gaussian.class_gaussians import check_priors, prior_scores
from fedmoments.core.gaussian.class_means import believed_means, check_means
from fedmoments.core.heads.head import Head
from fedmoments.core.heads.registry import Preset
from fedmoments.core.linalg import solve_positive
from fedmoments.core.statistics import Statistics, StatisticsSpec

__all__ = ["PRESETS", "Lda"]


@dataclass(frozen=True)
class Lda(Head):
    """Gaussian classes with one covariance for all.

    Parameters
    ----------
    covariance
        ``exact``, ``diagonal``, ``spherical``, ``free``, ``energy``, ``robust``, ``sketch``, ``sketch:SHARE``, or
        ``total`` (FedCGS).
    shrinkage
        See :class:`fedmoments.Shrinkage`; GH-OFL's default is ``blend:0.05``. The total covariance is not shrunk.
    priors
        ``data``: classes are as frequent as in the data; ``balanced``: all equally.
    means
        ``measured``; or ``shrunk`` towards the mean of all samples by as much as noise has put each apart: see
        ``core.gaussian.class_means``.

    Examples
    --------
    >>> X, y = np.array([[0.0, 0.0], [2.0, 0.1], [0.1, 5.0], [2.0, 5.1]]), [0, 0, 1, 1]
    >>> stats = Statistics.of(X, y, StatisticsSpec.of("gram"), n_classes=2)
    >>> Lda().fit(stats).predict([[1.0, 1.0], [1.0, 4.0]])
    array([0, 1])
    """

    covariance: str = "exact"
    shrinkage: Shrinkage | str | float = "automatic"
    priors: str = "data"
    means: str = "measured"

    def __post_init__(self) -> None:
        Shrinkage.parse(self.shrinkage)
        check_priors(self.priors)
        check_means(self.means)
        if self.covariance != "total":
            covariance_source(self.covariance)

    @property
    def needs(self) -> StatisticsSpec:
        if self.covariance == "total":
            return StatisticsSpec.of("gram")
        return covariance_source(self.covariance).pooled_needs

    @property
    def folds_means(self) -> bool:
        return self.covariance == "free"

    def least_temperature(self, classifier: Classifier) -> float:
        # the spread between classes makes log-densities of the total covariance too small
        return 0.0 if self.covariance == "total" else super().least_temperature(classifier)

    def solve(self, stats: Statistics) -> Classifier:
        total = self.covariance == "total"
        gaussians = ClassGaussians(stats, "exact" if total else self.covariance)
        covariance = gaussians.total_covariance() if total else gaussians.pooled_covariance(self.shrinkage)
        # Scores do not change when features and means move together: around the global mean, fewer digits cancel.
        means = believed_means(gaussians, self.means, self.shrinkage)
        weights = solve_positive(covariance, means.T)
        # The total covariance holds the spread between classes: it does not vanish where that inside them does.
        priors = (
            prior_scores(stats.counts, self.priors) if total else gaussians.prior_scores(self.priors, self.shrinkage)
        )
        bias = priors - 0.5 * np.einsum("cd,dc->c", means, weights)
        return LinearClassifier(weights=weights, bias=bias, offset=gaussians.global_mean, present=gaussians.present)


PRESETS = (
    Preset("gh-lda", Lda, "LDA on the exact pooled covariance", "GH-OFL"),
    Preset(
        "lda-free",
        Lda,
        "LDA on the free covariance of client means",
        "new here, after FedCOF",
        {"covariance": "free", "priors": "balanced"},
    ),
    Preset(
        "lda-energy",
        Lda,
        "LDA on free covariances scaled to the exact trace of every class",
        "new here, after FedCOF",
        {"covariance": "energy"},
    ),
    Preset(
        "fedcgs",
        Lda,
        "LDA on the total covariance, no shrinkage",
        "FedCGS",
        {"covariance": "total", "shrinkage": "none"},
    ),
    Preset(
        "lda-sketch",
        Lda,
        "LDA on the covariance from client means and scatter sketches",
        "new here, after FedCOF",
        {"covariance": "sketch"},
    ),
)
