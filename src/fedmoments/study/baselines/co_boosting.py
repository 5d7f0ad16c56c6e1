"""Co-Boosting (Dai et al. 2024): hard synthetic samples and the ensemble's weights improve each other.

Clients send what they send in DENSE. Each round the server

1. makes features, the harder for the ensemble the heavier in the loss (see ``study.baselines.synthesis``), and
   moves them once more along the gradient of the ensemble's loss, max over δ of CE(P(u + δ), y);
2. moves the clients' weights against that loss by the sign of its gradient, π ← [π − (μ/K)·sign ∂CE/∂π]₊, and divides
   them by their sum. Probabilities are mixed, so every entry of ∂CE/∂π is negative; what counts is the part along the
   simplex, ∂CE/∂π_k − Σ_j π_j ∂CE/∂π_j = 1 − mean of p_k(y)/P(y): who gives the intended labels more than the ensemble
   does gains, who gives them less loses;
3. fits the student to the boosted ensemble on all features made so far.
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
from fedmoments.study.baselines.sent_heads import client_shares, ensemble_of
from fedmoments.study.baselines.server_head import SERVER_DECAY
from fedmoments.study.baselines.synthesis import Synthesis, upload_with_statistics

__all__ = ["PRESETS", "CoBoosting", "boosted_shares"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class CoBoosting(Baseline):
    """A student of an ensemble whose weights were boosted on hard synthetic features, or that ensemble.

    Parameters
    ----------
    returns
        ``student``, a linear head, or ``ensemble``.
    samples, rounds, steps, step
        As in :class:`fedmoments.study.baselines.dense.Dense`.
    statistics, disagreement
        λ₁ and λ₂ of the loss.
    perturbation
        Length of the last move that makes features harder, in standard deviations of the features.
    weight_step
        μ; weights move once a round, so that a client starting at 1/K ends at (1 ± μ·rounds)/K at most.
    temperature, decay, student_decay
        As in :class:`fedmoments.study.baselines.dense.Dense`.

    Examples
    --------
    >>> X, y = np.array([[0.0], [1.0], [4.0], [5.0]]), np.array([0, 0, 1, 1])
    >>> method = CoBoosting(samples=200, rounds=2)
    >>> uploads = [method.local(X[k::2], y[k::2], n_classes=2, seed=k) for k in range(2)]
    >>> method.combine(uploads, dim=1, seed=0).predict(X)
    array([0, 0, 1, 1])
    """

    sends: ClassVar[str] = "a linear head, feature mean and variance"

    returns: str = "student"
    samples: int = 4_000
    rounds: int = 8
    steps: int = 5
    step: float = 1.0
    statistics: float = 1.0
    disagreement: float = 1.0
    perturbation: float = 0.5
    weight_step: float = 0.1
    temperature: float = 1.0
    decay: float = DECAY
    student_decay: float = SERVER_DECAY

    def __post_init__(self) -> None:
        check_choice("returns", self.returns, ["student", "ensemble"])
        for name in ("samples", "rounds"):
            check_number(name, getattr(self, name), whole=True)
        check_number("steps", self.steps, whole=True, zero=True)
        for name in ("step", "temperature", "decay", "student_decay"):
            check_number(name, getattr(self, name))
        for name in ("statistics", "disagreement", "perturbation", "weight_step"):
            check_number(name, getattr(self, name), zero=True)

    def local(self, X: Floats, y: NDArray[np.int64], *, n_classes: int, seed: int) -> Upload:  # noqa: ARG002
        return upload_with_statistics(*check_samples(X, y, n_classes), n_classes, self.decay)

    def combine(self, uploads: Sequence[Upload], *, dim: int, seed: int) -> Classifier:  # noqa: ARG002
        workshop = Synthesis.of(uploads, statistics=self.statistics, disagreement=self.disagreement, hard=True)
        shares = client_shares(counts_of(uploads), "uniform")
        rng = np.random.default_rng(seed)
        student: LinearClassifier | None = None
        synthesised: list[NDArray[np.float32]] = []
        for turn in range(self.rounds):
            U, labels = workshop.draw(-(-self.samples // self.rounds), rng)
            U = workshop.improve(U, labels, shares, student, steps=self.steps, step=self.step)
            U = workshop.harden(U, labels, shares, length=self.perturbation)
            given = workshop.mixture.of_label(workshop.mixture.mix(U, shares), labels)
            shares = boosted_shares(shares, given, self.weight_step)
            synthesised.append(U)
            student = workshop.distil(
                np.concatenate(synthesised),
                shares,
                student,
                decay=self.student_decay,
                temperature=self.temperature,
                passes=100 if turn == self.rounds - 1 else 20,
            )
        assert student is not None  # noqa: S101 - there is one round or more
        return workshop.in_features(student) if self.returns == "student" else ensemble_of(uploads, shares)


def boosted_shares(shares: Floats, given: NDArray[np.floating], step: float) -> Floats:
    """Return clients' weights (K,) after one step of length step/K by the sign of the gradient along the simplex.

    Parameters
    ----------
    shares
        π, (K,).
    given
        (K, n) probability that each client gives to the intended label of each feature.
    step
        μ.

    Examples
    --------
    >>> boosted_shares(np.array([0.5, 0.5]), np.array([[0.9, 0.8], [0.1, 0.3]]), 0.1)
    array([0.55, 0.45])
    """
    mixed = shares @ given
    informative = mixed >= np.finfo(np.float32).tiny  # what no client gives anything says nothing about who is right
    gain = (
        (given[:, informative] / mixed[informative]).mean(axis=1) - 1.0 if informative.any() else np.zeros(len(shares))
    )
    moved = np.maximum(shares + (step / len(shares)) * np.sign(np.where(np.abs(gain) > 1e-6, gain, 0.0)), 0.0)
    # A step of any length leaves someone a weight, since Σ π·gain = 0: not all who have one lose.
    return np.asarray(moved / moved.sum())


PRESETS: tuple[Preset[Baseline], ...] = (
    Preset("co-boosting", CoBoosting, "student of an ensemble boosted on hard synthetic features", "Dai et al. 2024"),
)
