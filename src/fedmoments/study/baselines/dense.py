"""DENSE (Zhang et al. 2022): a student distilled from the clients' ensemble on synthetic samples, without data.

Clients send their head, and mean and variance of their features. In rounds, the server makes features that the ensemble
is sure of, that keep to the statistics and on which student and ensemble disagree (see
``study.baselines.synthesis``), and fits a linear student to the ensemble's probabilities on all features made
so far, KL(ensemble ‖ student). The ensemble averages probabilities: an average of scores, as in the paper, is for
linear heads nothing but ``head-average``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.classifier import Classifier, LinearClassifier
from fedmoments.core.heads import Preset
from fedmoments.study.baselines.baseline import Baseline, Upload
from fedmoments.study.baselines.checks import check_choice, check_number, check_samples, counts_of
from fedmoments.study.baselines.local_head import DECAY
from fedmoments.study.baselines.sent_heads import client_shares
from fedmoments.study.baselines.server_head import SERVER_DECAY
from fedmoments.study.baselines.synthesis import Synthesis, upload_with_statistics

__all__ = ["PRESETS", "Dense"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Dense(Baseline):
    """A linear student of the clients' ensemble.

    Parameters
    ----------
    samples
        Synthetic features in all.
    rounds
        Turns of making features and fitting the student.
    steps, step
        Steps that features take, and their length in standard deviations of the features.
    statistics, disagreement
        λ₁ and λ₂ of the loss.
    temperature
        Of the distillation.
    weighting
        What clients weigh in the ensemble: ``uniform`` or by ``samples``.
    decay, student_decay
        Penalties of the local heads and of the student.

    Examples
    --------
    >>> X, y = np.array([[0.0], [1.0], [4.0], [5.0]]), np.array([0, 0, 1, 1])
    >>> method = Dense(samples=200, rounds=2)
    >>> uploads = [method.local(X[k::2], y[k::2], n_classes=2, seed=k) for k in range(2)]
    >>> method.combine(uploads, dim=1, seed=0).predict(X)
    array([0, 0, 1, 1])
    """

    sends: ClassVar[str] = "a linear head, feature mean and variance"

    samples: int = 4_000
    rounds: int = 8
    steps: int = 5
    step: float = 1.0
    statistics: float = 1.0
    disagreement: float = 0.5
    temperature: float = 1.0
    weighting: str = "uniform"
    decay: float = DECAY
    student_decay: float = SERVER_DECAY

    def __post_init__(self) -> None:
        for name in ("samples", "rounds"):
            check_number(name, getattr(self, name), whole=True)
        check_number("steps", self.steps, whole=True, zero=True)
        for name in ("step", "temperature", "decay", "student_decay"):
            check_number(name, getattr(self, name))
        for name in ("statistics", "disagreement"):
            check_number(name, getattr(self, name), zero=True)
        check_choice("weighting", self.weighting, ["uniform", "samples"])

    def local(self, X: Floats, y: NDArray[np.int64], *, n_classes: int, seed: int) -> Upload:  # noqa: ARG002
        return upload_with_statistics(*check_samples(X, y, n_classes), n_classes, self.decay)

    def combine(self, uploads: Sequence[Upload], *, dim: int, seed: int) -> Classifier:  # noqa: ARG002
        workshop = Synthesis.of(uploads, statistics=self.statistics, disagreement=self.disagreement)
        shares = client_shares(counts_of(uploads), self.weighting)
        rng = np.random.default_rng(seed)
        student: LinearClassifier | None = None
        synthesised: list[NDArray[np.float32]] = []
        for turn in range(self.rounds):
            U, labels = workshop.draw(-(-self.samples // self.rounds), rng)
            synthesised.append(workshop.improve(U, labels, shares, student, steps=self.steps, step=self.step))
            student = workshop.distil(
                np.concatenate(synthesised),
                shares,
                student,
                decay=self.student_decay,
                temperature=self.temperature,
                passes=100 if turn == self.rounds - 1 else 20,
            )
        assert student is not None  # noqa: S101 - there is one round or more
        return workshop.in_features(student)


PRESETS: tuple[Preset[Baseline], ...] = (
    Preset("dense", Dense, "student of the client ensemble on synthetic features", "DENSE (Zhang et al. 2022)"),
)
