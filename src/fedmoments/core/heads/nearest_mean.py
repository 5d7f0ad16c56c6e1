"""FedNCM (Legate et al., 2023): the class of the nearest mean.

Cosine rule: w_c = μ_c/‖μ_c‖, b = 0. Euclidean rule: w_c = μ_c, b_c = −½‖μ_c‖².
"""

from dataclasses import dataclass

import numpy as np

from fedmoments.core.classifier import Classifier, LinearClassifier
from fedmoments.core.gaussian import ClassGaussians
from fedmoments.core.gaussian.precision import MEANS_ONLY, TOLERANCE, check_means, warn_noise
from fedmoments.core.heads.head import Head
from fedmoments.core.heads.registry import Preset
from fedmoments.core.linalg import EPSILON
from fedmoments.core.statistics import Statistics, StatisticsSpec
from fedmoments.errors import InputError

__all__ = ["PRESETS", "NearestMean"]


@dataclass(frozen=True)
class NearestMean(Head):
    """Nearest class mean.

    Parameters
    ----------
    metric
        ``cosine`` (FedNCM) or ``euclidean``.

    Examples
    --------
    >>> stats = Statistics.of([[2.0, 0.0], [0.0, 1.0]], [0, 1], StatisticsSpec(), n_classes=2)
    >>> NearestMean().fit(stats).predict([[3.0, 2.0]])
    array([0])
    """

    metric: str = "cosine"

    def __post_init__(self) -> None:
        if self.metric not in ("cosine", "euclidean"):
            raise InputError(f"metric must be 'cosine' or 'euclidean', not '{self.metric}'")

    @property
    def needs(self) -> StatisticsSpec:
        return StatisticsSpec()

    @property
    def apart_needs(self) -> StatisticsSpec:
        return StatisticsSpec.of("client_means")

    def score_degree(self, classifier: Classifier) -> int:  # noqa: ARG002
        return 1 if self.metric == "cosine" else 2

    def solve(self, stats: Statistics) -> Classifier:
        gaussians = ClassGaussians(stats)
        means = gaussians.means
        norms = np.linalg.norm(means, axis=1)
        away = float(np.square(gaussians.centred_means[gaussians.present]).sum(axis=1).mean())
        check_means(stats, away)
        if self.metric == "cosine":
            self._check_angles(gaussians, away)
            weights, bias = means / np.where(norms > 0, norms, 1.0)[:, None], np.zeros(len(means))
            return LinearClassifier(weights=weights.T.copy(), bias=bias, present=gaussians.present)
        # Distances do not change when features and means move together: around the global mean, fewer digits cancel.
        centred = means - gaussians.global_mean
        bias = -0.5 * np.einsum("cd,cd->c", centred, centred)
        offset = gaussians.global_mean
        return LinearClassifier(weights=centred.T.copy(), bias=bias, offset=offset, present=gaussians.present)

    @staticmethod
    def _check_angles(gaussians: ClassGaussians, away: float) -> None:
        """Warn where class means lie so far from the origin that scores round away what their angles differ by.

        Parameters
        ----------
        gaussians
            Of the classes.
        away
            Mean squared distance of class means from the global mean.
        """
        # Of vectors μ + δ, scores differ by about ‖δ‖²/‖μ‖; a sum of d products of ‖μ‖ in all rounds by 8ε·‖μ‖, and
        # points may lie closer to a boundary than means do.
        rounding = 8 * EPSILON * float(gaussians.global_mean @ gaussians.global_mean)
        if 0.0 < away * TOLERANCE < MEANS_ONLY * rounding:
            warn_noise(gaussians.stats, rounding / away, "what the angles of class means differ by")


PRESETS = (Preset("fedncm", NearestMean, "nearest class mean", "FedNCM, Legate et al. 2023"),)
