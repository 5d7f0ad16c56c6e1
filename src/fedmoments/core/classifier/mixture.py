"""Classes of several modes with one covariance for all: each mode has a linear score, a class adds its modes up."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.classifier.base import Classifier, Floats
from fedmoments.core.linalg import blocks
from fedmoments.errors import InputError

__all__ = ["MixtureClassifier"]

#: Numbers that the modes of one block of samples may take.
BLOCK_NUMBERS = 1 << 21


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class MixtureClassifier(Classifier, kind="mixture"):
    """Scores log Σ over modes j of class c: exp((x − offset)·w_j + b_j).

    **Law** one mode a class is a :class:`LinearClassifier`.

    Parameters
    ----------
    weights
        (d, M) of all modes, those of a class together, classes ascending.
    bias
        (M,).
    labels
        (M,) class of every mode, ascending.
    offset
        (d,) subtracted first.
    present, class_names, feature_map, info, temperature
        See :class:`fedmoments.core.classifier.Classifier`.

    Examples
    --------
    >>> clf = MixtureClassifier(
    ...     weights=np.array([[-4.0, 4.0, 0.0]]), bias=np.array([-8.0, -8.0, 0.0]), labels=np.array([0, 0, 1]),
    ...     offset=np.zeros(1), present=np.array([True, True]),
    ... )
    >>> clf.predict([[-5.0], [0.5], [5.0]])
    array([0, 1, 0])
    """

    weights: NDArray[np.float64]
    bias: NDArray[np.float64]
    labels: NDArray[np.int64]
    offset: NDArray[np.float64]

    degrees = MappingProxyType({"weights": -1, "offset": 1})

    def __post_init__(self) -> None:
        super().__post_init__()
        modes = self.weights.shape[1] if self.weights.ndim == 2 else -1
        if self.bias.shape != (modes,) or self.labels.shape != (modes,) or self.offset.shape != self.weights.shape[:1]:
            raise InputError(
                f"a mixture has weights (d, modes), and bias and labels (modes,), but they have the shapes "
                f"{self.weights.shape}, {self.bias.shape} and {self.labels.shape}"
            )
        held = np.unique(self.labels)
        sound = self.labels.dtype.kind in "iu" and not (np.diff(self.labels) < 0).any()
        if not sound or not np.array_equal(held, np.flatnonzero(self.present)):
            raise InputError("a mixture's labels ascend and name every class that is present, and no other")

    @property
    def dim(self) -> int:
        return len(self.offset)

    @property
    def _starts(self) -> NDArray[np.int64]:
        """First mode of every class that is present."""
        return np.searchsorted(self.labels, np.flatnonzero(self.present))

    def _scores(self, Z: Floats, arrays: Mapping[str, NDArray[np.floating[Any]]]) -> Floats:
        scores = np.zeros((len(Z), self.n_classes), Z.dtype)
        with np.errstate(invalid="ignore"):  # NaN and infinite features are reported by the caller, in words
            for rows in blocks(len(Z), max(1, BLOCK_NUMBERS // len(self.labels))):
                modes = (Z[rows] - arrays["offset"]) @ arrays["weights"] + arrays["bias"]
                peaks = np.maximum.reduceat(modes, self._starts, axis=1)
                modes -= np.repeat(peaks, np.diff(np.append(self._starts, len(self.labels))), axis=1)
                sums = np.add.reduceat(np.exp(modes), self._starts, axis=1)
                scores[rows, self.present] = peaks + np.log(sums)
        return scores

    def gradients(self, Z: Floats, labels: NDArray[np.int64]) -> Floats:
        slopes = np.empty((len(Z), self.dim))
        for row, label in enumerate(labels.tolist()):
            own = self.labels == label
            modes = (Z[row] - self.offset) @ self.weights[:, own] + self.bias[own]
            shares = np.exp(modes - modes.max())
            slopes[row] = self.weights[:, own] @ (shares / shares.sum())
        return slopes
