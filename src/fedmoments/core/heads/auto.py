"""``gh-auto``: LDA or QDA, chosen from the statistics alone.

1. Do class covariances differ by more than chance? They are compared with the pooled one in the Fisher subspace, where
   classes are told apart, and in the full space (``core.gaussian.equality``). If chance would make them differ
   as much once in a thousand times or more often, in both, the answer is LDA: a linear classifier.
2. Otherwise it is QDA, pooled by direction (:mod:`fedmoments.core.gaussian.graded`): half in Fisher directions, almost
   wholly elsewhere.

What is *not* decided is whether to trust QDA without pooling. First and second moments cannot tell: on
CIFAR-10/SqueezeNet, samples of Gaussians with the measured covariances would be classified without an error, real ones
are in 39 of 100 cases. The classifier's notes say what was ``chosen`` and by which ``criterion``.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.classifier import Classifier, LinearClassifier, QuadraticClassifier
from fedmoments.core.gaussian import ClassGaussians, FisherSubspace, Shrinkage, covariance_source
from fedmoments.core.gaussian.equality import CovarianceEquality
from fedmoments.core.gaussian.graded import graded_whiteners
from fedmoments.core.gaussian.pooling import pooled_amounts
from fedmoments.core.heads.head import Head
from fedmoments.core.heads.registry import Preset
from fedmoments.core.linalg import solve_positive
from fedmoments.core.statistics import Statistics, StatisticsSpec
from fedmoments.errors import InputError

__all__ = ["PRESETS", "Auto"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Auto(Head):
    """LDA where class covariances are equal as far as one can tell, QDA pooled by direction where they differ.

    Parameters
    ----------
    covariance
        ``exact`` (class grams) or ``free`` (client means): what chance alone does is known of full covariances.
    shrinkage
        Of the pooled covariance, and by the same amounts of every class covariance.
    chance
        QDA is chosen where equal covariances would differ as much with less than this probability; 0 is always LDA, 1
        nearly always QDA.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> y = np.arange(300) % 2
    >>> equal, wider = rng.normal(size=(300, 2)) + 3 * y[:, None], rng.normal(size=(300, 2)) * (1 + 2 * y[:, None])
    >>> for X in (equal, wider):
    ...     stats = Statistics.of(X, y, StatisticsSpec.of("class_grams"), n_classes=2)
    ...     print(Auto().fit(stats).info["chosen"])
    lda
    qda
    """

    slow = True

    covariance: str = "exact"
    shrinkage: Shrinkage | str | float = "automatic"
    chance: float = 1e-3

    def __post_init__(self) -> None:
        Shrinkage.parse(self.shrinkage)
        if self.covariance not in ("exact", "free"):
            raise InputError(f"covariance is exact or free for gh-auto; '{self.covariance}' arrived")
        if not 0.0 <= self.chance <= 1.0:
            raise InputError(f"chance is a probability from 0 to 1; {self.chance} arrived")

    @property
    def needs(self) -> StatisticsSpec:
        return covariance_source(self.covariance).class_needs

    def solve(self, stats: Statistics) -> Classifier:
        gaussians = ClassGaussians(stats, self.covariance)
        inside, everywhere = self._tests(gaussians)
        quadratic = min(inside.chance, everywhere.chance) < self.chance
        classifier = self._quadratic(gaussians) if quadratic else self._linear(gaussians)
        criterion = (
            f"class covariances differ {inside.ratio:.3g} times as much as by chance in the Fisher subspace "
            f"(p = {inside.chance:.2g}) and {everywhere.ratio:.3g} times in all dimensions "
            f"(p = {everywhere.chance:.2g}); QDA where p < {self.chance:g}"
        )
        return classifier.noting(chosen="qda" if quadratic else "lda", criterion=criterion)

    def _tests(self, gaussians: ClassGaussians) -> tuple[CovarianceEquality, CovarianceEquality]:
        """Compare class covariances in the Fisher subspace and in the full space."""
        pooled = _mean_by_freedom(gaussians)
        keep, add = pooled_amounts(gaussians, self.shrinkage)
        fisher = FisherSubspace.of(gaussians, within=keep * pooled + add * np.eye(len(pooled)))
        inside = ((fisher.covariance(own), dof) for _, own, dof in gaussians.class_covariances())
        everywhere = ((own, dof) for _, own, dof in gaussians.class_covariances())
        return (
            CovarianceEquality.of(inside, fisher.covariance(pooled)),
            CovarianceEquality.of(everywhere, pooled),
        )

    def _linear(self, gaussians: ClassGaussians) -> Classifier:
        present, means = gaussians.present, gaussians.centred_means
        weights = solve_positive(gaussians.pooled_covariance(self.shrinkage), means.T)
        bias = gaussians.prior_scores("data", self.shrinkage) - 0.5 * np.einsum("cd,dc->c", means, weights)
        return LinearClassifier(weights=weights, bias=bias, offset=gaussians.global_mean, present=present)

    def _quadratic(self, gaussians: ClassGaussians) -> Classifier:
        whiteners, log_precision = graded_whiteners(gaussians, self.shrinkage)
        return QuadraticClassifier(
            offset=gaussians.global_mean,
            means=gaussians.centred_means,
            whiteners=whiteners,
            bias=gaussians.prior_scores("data", self.shrinkage) + log_precision,
            present=gaussians.present,
        )


def _mean_by_freedom(gaussians: ClassGaussians) -> Floats:
    """Return the mean of class covariances, weighted by degrees of freedom: what chance is measured around.

    Of exact covariances it is the pooled one; the pooled free one is weighted by N_c − 1, not by K_c − 1.
    """
    mean, total = np.zeros((gaussians.stats.dim, gaussians.stats.dim)), 0.0
    for _, covariance, dof in gaussians.class_covariances():
        mean += dof * covariance
        total += dof
    return mean / max(total, 1.0)


PRESETS = (Preset("gh-auto", Auto, "LDA or QDA, chosen from the statistics", "new here, after GH-OFL and Friedman"),)
