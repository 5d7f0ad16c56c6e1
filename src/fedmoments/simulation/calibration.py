"""Whether probabilities can be believed: of answers given with 80 % confidence, 80 % should be right."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.classifier import Classifier
from fedmoments.linalg import blocks

__all__ = ["Calibration", "calibrate"]

N_BINS = 15


@dataclass(frozen=True, eq=False)
class Calibration:
    """A reliability diagram: answers by confidence, in equal bins from 0 to 1.

    The three sums are additive over test sets, so parties can add theirs up.

    Parameters
    ----------
    counts
        (bins,) answers in every bin.
    confidences, hits
        (bins,) sum of confidences, and number of right answers.
    temperature
        Scores were divided by it before the softmax.

    Examples
    --------
    >>> found = Calibration(np.array([0, 10]), np.array([0.0, 9.0]), np.array([0, 8]), 1.0)
    >>> round(found.expected_error, 3)
    0.1
    """

    counts: NDArray[np.int64]
    confidences: NDArray[np.float64]
    hits: NDArray[np.int64]
    temperature: float

    @property
    def expected_error(self) -> float:
        """Expected calibration error: |confidence − accuracy|, averaged over answers."""
        return float(np.abs(self.confidences - self.hits).sum() / max(int(self.counts.sum()), 1))

    def to_dict(self) -> dict[str, Any]:
        """Return the diagram, ready for JSON."""
        edges = np.linspace(0.0, 1.0, len(self.counts) + 1)
        bins = [
            {
                "low": float(edges[i]),
                "high": float(edges[i + 1]),
                "count": int(count),
                "confidence": float(self.confidences[i] / count) if count else None,
                "accuracy": float(self.hits[i] / count) if count else None,
            }
            for i, count in enumerate(self.counts)
        ]
        return {"bins": bins, "ece": self.expected_error, "temperature": self.temperature}


def calibrate(
    classifier: Classifier, X: NDArray[Any], y: NDArray[np.int64], *, temperature: float = 1.0, n_bins: int = N_BINS
) -> Calibration:
    """Return how well confidence fits accuracy on features X (n, d) with labels y (n,).

    Examples
    --------
    >>> from fedmoments.classifier import LinearClassifier
    >>> made = LinearClassifier(weights=np.eye(2), bias=np.zeros(2), present=np.array([True, True]))
    >>> calibrate(made, np.array([[9.0, 0.0]]), np.array([0])).hits.sum()
    np.int64(1)
    """
    counts, hits = np.zeros(n_bins, np.int64), np.zeros(n_bins, np.int64)
    confidences = np.zeros(n_bins)
    for block in blocks(len(X)):
        proba = classifier.predict_proba(X[block], temperature=temperature)
        best = proba.max(axis=1).astype(np.float64)
        place = np.minimum((best * n_bins).astype(np.int64), n_bins - 1)
        counts += np.bincount(place, minlength=n_bins)
        hits += np.bincount(place[proba.argmax(axis=1) == y[block]], minlength=n_bins)
        confidences += np.bincount(place, weights=best, minlength=n_bins)
    return Calibration(counts, confidences, hits, temperature)
