"""An ensemble of linear heads, each with its own softmax."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.classifier.base import Classifier, Floats
from fedmoments.errors import InputError

__all__ = ["EnsembleClassifier"]

#: Numbers that the members' scores of one block of samples may take.
BLOCK_NUMBERS = 1 << 21


@dataclass(frozen=True, eq=False, kw_only=True)
class EnsembleClassifier(Classifier, kind="ensemble"):
    """Scores log Σ_k π_k softmax(x·W_k + b_k): the log of probabilities that K linear heads have mixed.

    Parameters
    ----------
    weights
        W, (K, d, C).
    bias
        b, (K, C).
    mixing
        π, (K,), not negative, summing to 1.
    present, class_names, feature_map, info
        See :class:`fedmoments.classifier.Classifier`.

    Examples
    --------
    >>> both = np.array([True, True])
    >>> sure, unsure = np.array([[0.0, 9.0]]), np.array([[1.0, 0.0]])
    >>> clf = EnsembleClassifier(
    ...     weights=np.stack([sure, unsure]), bias=np.zeros((2, 2)), mixing=np.array([0.5, 0.5]), present=both
    ... )
    >>> clf.predict_proba([[1.0], [0.0]]).round(3)
    array([[0.366, 0.634],
           [0.5  , 0.5  ]])
    """

    weights: NDArray[np.float64]
    bias: NDArray[np.float64]
    mixing: NDArray[np.float64]

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.weights.ndim != 3:
            raise InputError(f"an ensemble's weights must have the shape (K, d, C), not {self.weights.shape}")
        members = len(self.weights)
        wanted = {"weights": (members, self.dim, self.n_classes), "bias": (members, self.n_classes)}
        for name, shape in {**wanted, "mixing": (members,)}.items():
            if getattr(self, name).shape != shape or not members:
                raise InputError(
                    f"an ensemble's {name} must have the shape {shape} with one member or more, "
                    f"not {getattr(self, name).shape}"
                )
        if not ((self.mixing >= 0).all() and np.isclose(self.mixing.sum(), 1.0)):
            raise InputError(f"an ensemble's mixing must not be negative and must sum to 1, not to {self.mixing.sum()}")

    @property
    def dim(self) -> int:
        return int(self.weights.shape[1])

    def _scores(self, Z: Floats, arrays: Mapping[str, NDArray[np.floating[Any]]]) -> Floats:
        rows = max(1, BLOCK_NUMBERS // (len(self.mixing) * self.n_classes))
        scores = np.empty((len(Z), self.n_classes), Z.dtype)
        for start in range(0, len(Z), rows):
            scores[start : start + rows] = self._block(Z[start : start + rows], arrays)
        return scores

    def _block(self, Z: Floats, arrays: Mapping[str, NDArray[np.floating[Any]]]) -> Floats:
        members = np.flatnonzero(self.mixing > 0)
        inside = np.empty((len(members), len(Z), self.n_classes), Z.dtype)
        with np.errstate(invalid="ignore"):  # NaN and infinite features are reported by the caller, in words
            for place, member in enumerate(members):
                own = np.matmul(Z, arrays["weights"][member], out=inside[place])
                own += arrays["bias"][member]
                own -= own.max(axis=1, keepdims=True)
                own -= np.log(np.exp(own).sum(axis=1, keepdims=True)) - np.log(arrays["mixing"][member])
            # log Σ exp around the highest member stays finite far from all data, where every probability underflows
            highest = inside.max(axis=0)
            return np.asarray(np.log(np.exp(inside - highest).sum(axis=0)) + highest)
