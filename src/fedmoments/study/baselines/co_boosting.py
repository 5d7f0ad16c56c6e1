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

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.classifier import Classifier
from fedmoments.core.heads import Preset
from fedmoments.study.baselines.baseline import Baseline, Upload, check_choice, check_number, counts_of
from fedmoments.study.baselines.distilled import Distilled
from fedmoments.study.baselines.sent_heads import client_shares, ensemble_of
from fedmoments.study.baselines.synthesis import Labels, Narrow, Synthesis

__all__ = ["PRESETS", "CoBoosting", "boosted_shares"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class CoBoosting(Distilled):
    """A student of an ensemble whose weights were boosted on hard synthetic features, or that ensemble.

    Parameters
    ----------
    returns
        ``student``, a linear head, or ``ensemble``.
    perturbation
        Length of the last move that makes features harder, in standard deviations of the features.
    weight_step
        μ; weights move once a round, so that a client starting at 1/K ends at (1 ± μ·rounds)/K at most.
    samples, rounds, steps, step, statistics, disagreement, temperature, decay, student_decay
        As in :class:`fedmoments.study.baselines.distilled.Distilled`.

    Examples
    --------
    >>> X, y = np.array([[0.0], [1.0], [4.0], [5.0]]), np.array([0, 0, 1, 1])
    >>> method = CoBoosting(samples=200, rounds=2)
    >>> uploads = [method.local(X[k::2], y[k::2], n_classes=2, seed=k) for k in range(2)]
    >>> method.combine(uploads, dim=1, seed=0).predict(X)
    array([0, 0, 1, 1])
    """

    returns: str = "student"
    perturbation: float = 0.5
    weight_step: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("returns", self.returns, ["student", "ensemble"])
        for name in ("perturbation", "weight_step"):
            check_number(name, getattr(self, name), zero=True)

    def combine(self, uploads: Sequence[Upload], *, dim: int, seed: int) -> Classifier:  # noqa: ARG002
        workshop = Synthesis.of(uploads, statistics=self.statistics, disagreement=self.disagreement, hard=True)
        student, shares = self.distil(workshop, client_shares(counts_of(uploads), "uniform"), seed)
        return student if self.returns == "student" else ensemble_of(uploads, shares)

    def after_steps(self, workshop: Synthesis, U: Narrow, labels: Labels, shares: Floats) -> tuple[Narrow, Floats]:
        """Return features that are harder, and the weights of clients after one step on them."""
        U = workshop.harden(U, labels, shares, length=self.perturbation)
        given = workshop.mixture.of_label(workshop.mixture.mix(U, shares), labels)
        return U, boosted_shares(shares, given, self.weight_step)


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
