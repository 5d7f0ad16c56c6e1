"""Whether probabilities can be believed: of answers given with 80 % confidence, 80 % should be right."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.classifier import Classifier
from fedmoments.federation.evaluation import N_BINS, Calibration, LocalEvaluation

__all__ = ["N_BINS", "Calibration", "calibrate"]


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
    return LocalEvaluation.of(classifier, X, y, temperature, n_bins).calibration(temperature)
