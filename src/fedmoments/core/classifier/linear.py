"""Linear classifiers: nearest means, ridge, LDA."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.classifier.base import Classifier, Floats

__all__ = ["LinearClassifier"]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class LinearClassifier(Classifier, kind="linear"):
    """Scores (x − offset)·W + b.

    Parameters
    ----------
    weights
        W, (d, C).
    bias
        b, (C,).
    offset
        (d,) subtracted first, so that features far from the origin lose no digits in float32; or None.
    present, class_names, feature_map, info
        See :class:`fedmoments.core.classifier.Classifier`.

    Examples
    --------
    >>> both = np.array([True, True])
    >>> clf = LinearClassifier(weights=np.eye(2), bias=np.zeros(2), present=both, class_names=("a", "b"))
    >>> clf.predict_names([[0.2, 0.1], [0.0, 3.0]])
    ['a', 'b']
    >>> clf.predict_proba([[1.0, 1.0]])
    array([[0.5, 0.5]])
    """

    weights: NDArray[np.float64]
    bias: NDArray[np.float64]
    offset: NDArray[np.float64] | None = None

    degrees = MappingProxyType({"weights": -1, "offset": 1})

    @property
    def dim(self) -> int:
        return len(self.weights)

    def gradients(self, Z: Floats, labels: NDArray[np.int64]) -> Floats:  # noqa: ARG002 - the same everywhere
        return np.asarray(self.weights.T[labels])

    def _scores(self, Z: Floats, arrays: Mapping[str, NDArray[np.floating[Any]]]) -> Floats:
        centred = Z - arrays["offset"] if "offset" in arrays else Z
        return np.asarray(centred @ arrays["weights"] + arrays["bias"])
