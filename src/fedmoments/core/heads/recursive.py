"""Ridge regression that follows clients as they join and leave, without solving from nothing (Fed3R §4.2).

P = (G + λI)⁻¹ is kept. A client with Gram B_k = RᵀR of rank r changes it by Woodbury,

    P ← P ∓ P Rᵀ (I ± R P Rᵀ)⁻¹ R P,

in O(r d²) instead of O(d³). **Law** the weights agree with re-solving from the merged statistics.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.classifier import Classifier, LinearClassifier
from fedmoments.core.gaussian import require
from fedmoments.core.linalg import low_rank_factor, solve_positive
from fedmoments.core.statistics import Statistics, StatisticsSpec
from fedmoments.errors import InputError, MergeError

__all__ = ["RecursiveRidge"]

Floats = NDArray[np.float64]
NEEDS = StatisticsSpec.of("gram")


class RecursiveRidge:
    """Fed3R with an absolute λ, updated client by client.

    Parameters
    ----------
    n_classes, dim
        C, and the dimension d of the features.
    ridge
        λ > 0, absolute.

    Examples
    --------
    >>> model = RecursiveRidge(n_classes=2, dim=2, ridge=0.1)
    >>> first = Statistics.of([[1.0, 0.0], [0.0, 1.0]], [0, 1], NEEDS, n_classes=2)
    >>> second = Statistics.of([[1.0, 0.2]], [0], NEEDS, n_classes=2)
    >>> model.join(first); model.join(second); model.leave(first)
    >>> model.classifier().predict([[1.0, 0.0]])
    array([0])
    """

    def __init__(self, *, n_classes: int, dim: int, ridge: float = 0.01) -> None:
        if not ridge > 0:
            raise InputError(
                f"ridge must be a positive number, because nothing else makes the first solve definite; not {ridge}"
            )
        self.n_classes, self.dim, self.ridge = n_classes, dim, ridge
        self._inverse = np.eye(dim) / ridge
        self._sums = np.zeros((n_classes, dim))
        self._counts = np.zeros(n_classes, np.int64)

    def join(self, contribution: Statistics) -> None:
        """Add a client's statistics (counts, sums, gram)."""
        self._update(contribution, sign=1)

    def leave(self, contribution: Statistics) -> None:
        """Take a client's statistics out again."""
        self._update(contribution, sign=-1)

    def _update(self, contribution: Statistics, *, sign: int) -> None:
        if (contribution.n_classes, contribution.dim) != (self.n_classes, self.dim):
            raise MergeError(
                f"this model has {self.n_classes} classes and {self.dim} dimensions, but statistics of "
                f"{contribution.n_classes} and {contribution.dim} arrived"
            )
        if contribution.n_samples == 0:
            return  # a client without a sample changes nothing
        require(contribution, NEEDS, "RecursiveRidge")
        if sign < 0 and (self._counts < contribution.counts).any():
            raise MergeError("a client cannot leave with more samples of a class than joined: has it joined?")
        rows = low_rank_factor(contribution.gram)
        shared = rows @ self._inverse
        inner = np.eye(len(rows)) + sign * shared @ rows.T
        self._inverse -= sign * shared.T @ solve_positive(inner, shared)
        self._sums += sign * contribution.sums
        self._counts += sign * contribution.counts

    def classifier(self, *, normalize: bool = True) -> Classifier:
        """Return the classifier of all clients that are in: weights (d, C), columns of unit norm if asked."""
        weights = self._inverse @ self._sums.T
        if normalize:
            norms = np.linalg.norm(weights, axis=0)
            weights /= np.where(norms > 0, norms, 1.0)
        return LinearClassifier(weights=weights, bias=np.zeros(self.n_classes), present=self._counts > 0)
