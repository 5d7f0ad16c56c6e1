"""FedNCM (Legate et al., 2023): the class of the nearest mean.

Cosine rule: w_c = μ_c/‖μ_c‖, b = 0. Euclidean rule: w_c = μ_c, b_c = −½‖μ_c‖².
"""

from dataclasses import dataclass

import numpy as np

from fedmoments.core.classifier import Classifier, LinearClassifier
from fedmoments.core.gaussian import ClassGaussians
from fedmoments.core.gaussian.precision import TOLERANCE, warn_noise
from fedmoments.core.heads.head import Head
from fedmoments.core.heads.preset import Preset
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

    def score_degree(self, classifier: Classifier) -> int:  # noqa: ARG002
        return 1 if self.metric == "cosine" else 2

    def solve(self, stats: Statistics) -> Classifier:
        gaussians = ClassGaussians(stats)
        means = gaussians.means
        norms = np.linalg.norm(means, axis=1)
        if self.metric == "cosine":
            self._check_angles(gaussians)
            weights, bias = means / np.where(norms > 0, norms, 1.0)[:, None], np.zeros(len(means))
            return LinearClassifier(weights=weights.T.copy(), bias=bias, present=gaussians.present)
        # Distances do not change when features and means move together: around the global mean, fewer digits cancel.
        centred = means - gaussians.global_mean
        bias = -0.5 * np.einsum("cd,cd->c", centred, centred)
        offset = gaussians.global_mean
        return LinearClassifier(weights=centred.T.copy(), bias=bias, offset=offset, present=gaussians.present)

    @staticmethod
    def _check_angles(gaussians: ClassGaussians) -> None:
        """Warn where class means lie so far from the origin that scores round away what their angles differ by."""
        present, length = gaussians.means[gaussians.present], float(np.linalg.norm(gaussians.global_mean))
        away = float(np.square(present - gaussians.global_mean).sum(axis=1).mean())
        # Of vectors μ + δ, scores differ by about ‖δ‖²/‖μ‖; a sum of d products of ‖μ‖ in all rounds by 8ε·‖μ‖.
        if 0.0 < away * TOLERANCE < 8 * EPSILON * length**2:
            warn_noise(gaussians.stats, 8 * EPSILON * length**2 / away, "what the angles of class means differ by")


PRESETS = (Preset("fedncm", NearestMean, "nearest class mean", "FedNCM, Legate et al. 2023"),)
