"""How well a classifier does on features it has not seen, and whether its probabilities can be believed."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.classifier import Classifier
from fedmoments.core.linalg import blocks
from fedmoments.federation.evaluation import N_BINS, Calibration, Confusion, Evaluation, LocalEvaluation
from fedmoments.samples.features import Samples

__all__ = ["N_BINS", "Calibration", "Confusion", "Evaluation", "calibrate", "evaluate", "predict_blocks"]


def predict_blocks(classifier: Classifier, X: NDArray[Any]) -> NDArray[np.int64]:
    """Return predicted labels (n,) of X (n, d), a block of samples at a time, so that a wide map needs little memory.

    Examples
    --------
    >>> from fedmoments.core.classifier import LinearClassifier
    >>> made = LinearClassifier(weights=np.eye(2), bias=np.zeros(2), present=np.array([True, True]))
    >>> predict_blocks(made, np.array([[0.0, 1.0]]))
    array([1])
    """
    found = [classifier.predict(X[block]) for block in blocks(len(X))]
    return np.concatenate(found) if found else np.zeros(0, np.int64)


def evaluate(classifier: Classifier, samples: Samples) -> Evaluation:
    """Compare predictions with labels, which must be from 0 to C − 1 of the classifier.

    Examples
    --------
    >>> from fedmoments.core.classifier import LinearClassifier
    >>> made = LinearClassifier(weights=np.eye(2), bias=np.zeros(2), present=np.array([True, True]))
    >>> evaluate(made, Samples(np.array([[0.0, 1.0], [2.0, 1.0]]), np.array([1, 1]))).accuracy
    0.5
    """
    n = classifier.n_classes
    cells = samples.y * n + predict_blocks(classifier, samples.X)
    return Evaluation(classifier.class_names, np.bincount(cells, minlength=n * n).reshape(n, n))


def calibrate(
    classifier: Classifier, X: NDArray[Any], y: NDArray[np.int64], *, temperature: float = 1.0, n_bins: int = N_BINS
) -> Calibration:
    """Return how well confidence fits accuracy on features X (n, d) with labels y (n,).

    Examples
    --------
    >>> from fedmoments.core.classifier import LinearClassifier
    >>> made = LinearClassifier(weights=np.eye(2), bias=np.zeros(2), present=np.array([True, True]))
    >>> calibrate(made, np.array([[9.0, 0.0]]), np.array([0])).hits.sum()
    np.int64(1)
    """
    return LocalEvaluation.of(classifier, X, y, temperature, n_bins).calibration(temperature)
