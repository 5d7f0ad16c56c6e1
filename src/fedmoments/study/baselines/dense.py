"""DENSE (Zhang et al. 2022): a student distilled from the clients' ensemble on synthetic samples, without data.

Clients send their head, and mean and variance of their features. In rounds, the server makes features that the ensemble
is sure of, that keep to the statistics and on which student and ensemble disagree (see
``study.baselines.synthesis``), and fits a linear student to the ensemble's probabilities on all features made
so far, KL(ensemble ‖ student). The ensemble averages probabilities: an average of scores, as in the paper, is for
linear heads nothing but ``head-average``.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from fedmoments.core.classifier import Classifier
from fedmoments.core.heads import Preset
from fedmoments.study.baselines.baseline import Baseline, Upload, check_choice, counts_of
from fedmoments.study.baselines.distilled import Distilled
from fedmoments.study.baselines.sent_heads import client_shares
from fedmoments.study.baselines.synthesis import Synthesis

__all__ = ["PRESETS", "Dense"]


@dataclass(frozen=True)
class Dense(Distilled):
    """A linear student of the clients' ensemble.

    Parameters
    ----------
    samples, rounds, steps, step, statistics, disagreement, temperature, decay, student_decay
        As in :class:`fedmoments.study.baselines.distilled.Distilled`.
    weighting
        What clients weigh in the ensemble: ``uniform`` or by ``samples``.

    Examples
    --------
    >>> import numpy as np
    >>> X, y = np.array([[0.0], [1.0], [4.0], [5.0]]), np.array([0, 0, 1, 1])
    >>> method = Dense(samples=200, rounds=2)
    >>> uploads = [method.local(X[k::2], y[k::2], n_classes=2, seed=k) for k in range(2)]
    >>> method.combine(uploads, dim=1, seed=0).predict(X)
    array([0, 0, 1, 1])
    """

    disagreement: float = 0.5
    weighting: str = "uniform"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("weighting", self.weighting, ["uniform", "samples"])

    def combine(self, uploads: Sequence[Upload], *, dim: int, seed: int) -> Classifier:  # noqa: ARG002
        workshop = Synthesis.of(uploads, statistics=self.statistics, disagreement=self.disagreement)
        student, _ = self.distil(workshop, client_shares(counts_of(uploads), self.weighting), seed)
        return student


PRESETS: tuple[Preset[Baseline], ...] = (
    Preset("dense", Dense, "student of the client ensemble on synthetic features", "DENSE (Zhang et al. 2022)"),
)
