"""FedNCM (Legate et al., 2023): the class of the nearest mean.

Cosine rule: w_c = μ_c/‖μ_c‖, b = 0. Euclidean rule: w_c = μ_c, b_c = −½‖μ_c‖².
"""

from dataclasses import dataclass

import numpy as np

from fedmoments.classifier import Classifier, LinearClassifier
from fedmoments.errors import InputError
from fedmoments.gaussian import ClassGaussians
from fedmoments.heads.head import Head, Preset
from fedmoments.statistics import Statistics, StatisticsSpec

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
    def temperature(self) -> float:
        return 0.1 if self.metric == "cosine" else 1.0

    def solve(self, stats: Statistics) -> Classifier:
        gaussians = ClassGaussians(stats)
        means = gaussians.means
        norms = np.linalg.norm(means, axis=1)
        if self.metric == "cosine":
            weights, bias = means / np.where(norms > 0, norms, 1.0)[:, None], np.zeros(len(means))
            return LinearClassifier(weights=weights.T.copy(), bias=bias, present=gaussians.present)
        # Distances do not change when features and means move together: around the global mean, fewer digits cancel.
        centred = means - gaussians.global_mean
        bias = -0.5 * np.einsum("cd,cd->c", centred, centred)
        offset = gaussians.global_mean
        return LinearClassifier(weights=centred.T.copy(), bias=bias, offset=offset, present=gaussians.present)


PRESETS = (Preset("fedncm", NearestMean, "nearest class mean", "FedNCM, Legate et al. 2023"),)
