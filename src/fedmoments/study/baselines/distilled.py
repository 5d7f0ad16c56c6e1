"""Students of the clients' ensemble on synthetic features: what DENSE and Co-Boosting share.

In every round the server draws features with intended labels, moves them (:mod:`fedmoments.study.baselines.synthesis`),
and fits a linear student to what the ensemble says of all features so far; the last round fits it to the end.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.classifier import LinearClassifier
from fedmoments.errors import InputError
from fedmoments.study.baselines.baseline import Baseline, Upload, check_number, check_samples
from fedmoments.study.baselines.local_head import DECAY
from fedmoments.study.baselines.server_head import SERVER_DECAY
from fedmoments.study.baselines.synthesis import Labels, Narrow, Synthesis, upload_with_statistics

__all__ = ["Distilled"]

Floats = NDArray[np.float64]
#: Passes over the synthetic features in a round, and in the last one.
PASSES, LAST_PASSES = 20, 100


@dataclass(frozen=True)
class Distilled(Baseline):
    """A baseline that distils the clients' heads into a linear student.

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
    decay, student_decay
        Penalties of the local heads and of the student.
    """

    sends: ClassVar[str] = "a linear head, feature mean and variance"

    samples: int = 4_000
    rounds: int = 8
    steps: int = 5
    step: float = 1.0
    statistics: float = 1.0
    disagreement: float = 1.0
    temperature: float = 1.0
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

    def most_floats(self, dim: int, held: int) -> int:
        return (dim + 1) * held + 2 * dim

    def local(self, X: Floats, y: NDArray[np.int64], *, n_classes: int, seed: int) -> Upload:  # noqa: ARG002
        return upload_with_statistics(*check_samples(X, y, n_classes), n_classes, self.decay)

    def distil(self, workshop: Synthesis, shares: Floats, seed: int) -> tuple[LinearClassifier, Floats]:
        """Return the student in the features' own space, and what clients weigh (K,) in the end.

        Parameters
        ----------
        workshop
            Where features are made from what the clients sent.
        shares
            What clients weigh in the ensemble, (K,), summing to 1.
        seed
            Draws the features.
        """
        rng = np.random.default_rng(seed)
        student: LinearClassifier | None = None
        synthesised: list[Narrow] = []
        for turn in range(self.rounds):
            U, labels = workshop.draw(-(-self.samples // self.rounds), rng)
            U = workshop.improve(U, labels, shares, student, steps=self.steps, step=self.step)
            U, shares = self.after_steps(workshop, U, labels, shares)
            synthesised.append(U)
            student = workshop.distil(
                np.concatenate(synthesised),
                shares,
                student,
                decay=self.student_decay,
                temperature=self.temperature,
                passes=LAST_PASSES if turn == self.rounds - 1 else PASSES,
            )
        if student is None:
            raise InputError(f"a student needs 1 round or more, not {self.rounds}")
        return workshop.in_features(student), shares

    def after_steps(
        self,
        workshop: Synthesis,  # noqa: ARG002 - for those who override it
        U: Narrow,
        labels: Labels,  # noqa: ARG002
        shares: Floats,
    ) -> tuple[Narrow, Floats]:
        """Return features and clients' weights as the student is fitted to them: here, unchanged."""
        return U, shares
