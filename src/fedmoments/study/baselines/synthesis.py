"""Synthetic features from local heads and feature statistics, without data: what DENSE and Co-Boosting make.

Clients send mean and variance of their features, which stand in for the BatchNorm statistics of a network. The server
pools them exactly, m = Σ n_k m_k / N and v = Σ n_k (v_k + (m_k − m)²) / N, and works in u with x = m + √v ⊙ u, so that
nothing depends on the features' scale. Features start as u ~ N(0, I) with an intended label y each and take steps of
one length against the gradient of

    ω_y·CE(P, y)  +  λ₁·(mean ū² + mean (var u − 1)²)  −  λ₂·ω·KL(P ‖ Q)

P what the ensemble says, Q what the student says. DENSE has ω_y = 1 and ω = 1 where the two disagree on the label
(boundary support), else 0; Co-Boosting has ω_y = 1 − P_y, the harder the heavier, and ω = 1.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.classifier import LinearClassifier
from fedmoments.study.baselines.baseline import Upload, classes_held, counts_of
from fedmoments.study.baselines.head_mixture import LEAST, HeadMixture, Mixed
from fedmoments.study.baselines.local_head import fit_local_head
from fedmoments.study.baselines.sent_heads import read_heads
from fedmoments.study.baselines.server_head import fit_server_head

__all__ = ["Synthesis", "pooled_statistics", "upload_with_statistics"]

Floats = NDArray[np.float64]
Narrow = NDArray[np.float32]
Labels = NDArray[np.int64]


def upload_with_statistics(X: Floats, y: Labels, n_classes: int, decay: float) -> Upload:
    """Return a client's head with mean and variance (d,) of its features.

    Examples
    --------
    >>> upload_with_statistics(np.array([[0.0], [2.0]]), np.array([0, 1]), 3, 1e-4).arrays["variance"]
    array([1.])
    """
    head = fit_local_head(X, y, n_classes=n_classes, decay=decay)
    statistics = {"mean": X.mean(axis=0), "variance": X.var(axis=0)}
    return Upload({**head.arrays(), **statistics}, np.bincount(y, minlength=n_classes))


def pooled_statistics(uploads: Sequence[Upload]) -> tuple[Floats, Floats]:
    """Return mean and standard deviation (d,) of all clients' features together.

    Examples
    --------
    >>> parts = np.array([[0.0], [2.0]]), np.array([[4.0], [4.0], [5.0]])
    >>> sent = [upload_with_statistics(X, np.zeros(len(X), int), 1, 1e-4) for X in parts]
    >>> mean, deviation = pooled_statistics(sent)
    >>> bool(np.isclose(mean, 3.0)), bool(np.isclose(deviation, np.std([0, 2, 4, 4, 5])))
    (True, True)
    """
    sizes = counts_of(uploads).sum(axis=1)
    shares = sizes / sizes.sum()
    means = np.stack([upload.arrays["mean"] for upload in uploads])
    variances = np.stack([upload.arrays["variance"] for upload in uploads])
    mean = shares @ means
    return mean, np.sqrt(shares @ (variances + np.square(means - mean)))


@dataclass(frozen=True, eq=False)
class Synthesis:
    """The server's workshop: an ensemble, its coordinates, and steps of features in them.

    Parameters
    ----------
    mixture
        The clients' heads in u.
    present
        (C,) classes that some client holds.
    statistics, disagreement
        λ₁ and λ₂.
    hard
        Co-Boosting's weights instead of DENSE's.
    """

    mixture: HeadMixture
    present: NDArray[np.bool_]
    statistics: float
    disagreement: float
    hard: bool = False

    @classmethod
    def of(
        cls, uploads: Sequence[Upload], *, statistics: float, disagreement: float, hard: bool = False
    ) -> "Synthesis":
        """Return the workshop for what clients sent."""
        mixture = HeadMixture(read_heads(uploads), *pooled_statistics(uploads))
        return cls(mixture, classes_held(uploads), statistics, disagreement, hard)

    def draw(self, n: int, rng: np.random.Generator) -> tuple[Narrow, Labels]:
        """Return n fresh features (n, d), in u, and intended labels: every present class as often, in random order."""
        labels = rng.permutation(np.resize(rng.permutation(np.flatnonzero(self.present)), n))
        return rng.standard_normal((n, len(self.mixture.offset)), dtype=np.float32), labels

    def improve(
        self, U: Narrow, labels: Labels, shares: Floats, student: LinearClassifier | None, *, steps: int, step: float
    ) -> Narrow:
        """Return features after ``steps`` steps of length ``step`` against the gradient."""
        for _ in range(steps):
            mixed = self.mixture.mix(U, shares)
            slope = self._slope(U, labels, mixed, shares, student)
            U = U - np.float32(step) * _unit(slope)
        return U

    def _slope(
        self, U: Narrow, labels: Labels, mixed: Mixed, shares: Floats, student: LinearClassifier | None
    ) -> Narrow:
        """Return the gradient of the loss with respect to U, times the number of features."""
        P, rows = mixed.probabilities, np.arange(len(U))
        by_probability = np.zeros_like(P)
        chosen = P[rows, labels]
        by_probability[rows, labels] = -(1.0 - chosen if self.hard else np.float32(1.0)) / chosen
        direct = self._away_from_statistics(U)
        if student is not None and self.disagreement > 0:
            Q, weights = student.predict_proba(U).astype(np.float32), student.weights.astype(np.float32)
            differ = np.ones(len(U), bool) if self.hard else P.argmax(axis=1) != Q.argmax(axis=1)
            weight = (self.disagreement * differ).astype(np.float32)[:, None]
            # −KL(P‖Q) = Σ P (log Q − log P), by P and by the student's scores
            by_probability -= weight * (np.log(P) - np.log(np.maximum(Q, LEAST)) + 1.0)
            direct += weight * ((P - Q) @ weights.T)
        return np.asarray(direct + self.mixture.pull(mixed, by_probability, shares))

    def _away_from_statistics(self, U: Narrow) -> Narrow:
        mean, variance = U.mean(axis=0), U.var(axis=0)
        pull = 2.0 * mean + 4.0 * (variance - 1.0) * (U - mean)
        return np.asarray(pull * np.float32(self.statistics / U.shape[1]))

    def harden(self, U: Narrow, labels: Labels, shares: Floats, *, length: float) -> Narrow:
        """Return features one step of ``length`` further *along* the gradient of CE(P, y): harder for the ensemble."""
        mixed = self.mixture.mix(U, shares)
        rows = np.arange(len(U))
        by_probability = np.zeros_like(mixed.probabilities)
        by_probability[rows, labels] = -1.0 / mixed.probabilities[rows, labels]
        slope = self.mixture.pull(mixed, by_probability, shares)
        return U + np.float32(length) * _unit(slope)

    def distil(
        self,
        U: Narrow,
        shares: Floats,
        student: LinearClassifier | None,
        *,
        decay: float,
        temperature: float,
        passes: int,
    ) -> LinearClassifier:
        """Return a student, in u, whose probabilities match the ensemble's; from an earlier student, or from zero."""
        teacher = np.log(self.mixture.probabilities(U, shares))
        return fit_server_head(
            U,
            present=self.present,
            teacher=teacher,
            start=student,
            decay=decay,
            temperature=temperature,
            passes=passes,
        )

    def in_features(self, student: LinearClassifier) -> LinearClassifier:
        """Return a student in u as one of features x."""
        scale = np.where(self.mixture.scale > 0, self.mixture.scale, np.inf)[:, None]
        bias = student.bias if student.offset is None else student.bias - student.offset @ student.weights
        return LinearClassifier(
            weights=student.weights / scale, bias=bias, offset=self.mixture.offset, present=self.present
        )


def _unit(slope: Narrow) -> Narrow:
    """Return rows of length 1; a row of zeros stays one."""
    length = np.sqrt(np.einsum("nd,nd->n", slope, slope))
    return np.asarray(slope / np.where(length > 0, length, 1.0)[:, None])
