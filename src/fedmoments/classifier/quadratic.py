"""Quadratic classifiers: log-densities of Gaussians with a covariance of their own, full, diagonal or low-rank."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas

from fedmoments.classifier.base import Classifier, Floats
from fedmoments.linalg import blocks

__all__ = ["DiagonalClassifier", "LowRankClassifier", "QuadraticClassifier"]

Arrays = Mapping[str, NDArray[np.floating[Any]]]


@dataclass(frozen=True, eq=False, kw_only=True)
class DiagonalClassifier(Classifier, kind="diagonal"):
    """Scores b_c − ½ Σ_j (x_j − μ_cj)²·precision_cj, as two matrix products.

    Parameters
    ----------
    offset
        (d,) subtracted from features and means first, so that the expanded square does not cancel.
    means
        (C, d) class means less the offset.
    precisions
        (C, d) inverse variances.
    bias
        (C,) log-prior plus half the log-precision.
    present, class_names, feature_map, info
        See :class:`fedmoments.classifier.Classifier`.

    Examples
    --------
    >>> clf = DiagonalClassifier(
    ...     offset=np.zeros(1), means=np.array([[0.0], [4.0]]), precisions=np.array([[1.0], [0.25]]),
    ...     bias=np.array([0.0, -0.7]), present=np.array([True, True]),
    ... )
    >>> clf.predict([[1.0], [3.0]])
    array([0, 1])
    """

    offset: NDArray[np.float64]
    means: NDArray[np.float64]
    precisions: NDArray[np.float64]
    bias: NDArray[np.float64]

    @property
    def dim(self) -> int:
        return len(self.offset)

    def _scores(self, Z: Floats, arrays: Arrays) -> Floats:
        return diagonal_scores(Z - arrays["offset"], arrays)


def diagonal_scores(centred: Floats, arrays: Arrays) -> Floats:
    """Return b_c − ½ Σ_j (x_j − μ_cj)²·p_cj by expanding the square: two GEMMs instead of a (n, C, d) array."""
    means, precisions = arrays["means"], arrays["precisions"]
    weighted = means * precisions
    constant = arrays["bias"] - 0.5 * np.einsum("cd,cd->c", means, weighted)
    scores = centred @ weighted.T
    scores -= np.square(centred) @ (0.5 * precisions).T
    scores += constant
    return np.asarray(scores)


@dataclass(frozen=True, eq=False, kw_only=True)
class QuadraticClassifier(Classifier, kind="quadratic"):
    """Scores b_c − ½ ‖T_c (x − offset − μ_c)‖², T_c the inverse Cholesky factor of the class covariance.

    Parameters
    ----------
    offset
        (d,) subtracted from features first.
    whiteners
        T, (C, d, d), lower triangular with T_c Σ_c T_cᵀ = I.
    means
        (C, d) class means less the offset.
    bias
        (C,) log-prior plus log |det T_c|.
    present, class_names, feature_map, info
        See :class:`fedmoments.classifier.Classifier`.

    Examples
    --------
    >>> clf = QuadraticClassifier(
    ...     offset=np.zeros(1), whiteners=np.array([[[1.0]], [[0.5]]]), means=np.array([[0.0], [4.0]]),
    ...     bias=np.array([0.0, -0.7]), present=np.array([True, True]),
    ... )
    >>> clf.predict([[1.0], [3.0]])
    array([0, 1])
    """

    offset: NDArray[np.float64]
    whiteners: NDArray[np.float64]
    means: NDArray[np.float64]
    bias: NDArray[np.float64]

    @property
    def dim(self) -> int:
        return len(self.offset)

    def _scores(self, Z: Floats, arrays: Arrays) -> Floats:
        scores = np.zeros((len(Z), self.n_classes), Z.dtype)
        multiply = blas.strmm if Z.dtype == np.float32 else blas.dtrmm
        for block in blocks(len(Z)):
            columns = np.asfortranarray((Z[block] - arrays["offset"]).T)
            for label in np.flatnonzero(self.present):
                # LAPACK reads the C-ordered T_c as its transpose, upper triangular, and transposes it back.
                centred = columns - arrays["means"][label][:, None]
                white = multiply(1.0, arrays["whiteners"][label].T, centred, lower=0, trans_a=1, overwrite_b=1)
                scores[block, label] = arrays["bias"][label] - 0.5 * np.einsum("dn,dn->n", white, white)
        return scores


@dataclass(frozen=True, eq=False, kw_only=True)
class LowRankClassifier(Classifier, kind="low-rank"):
    """Scores of Gaussians with covariance diag(D_c) + U_c U_cᵀ, by Woodbury, in O(d·r) a class.

    (x−μ)ᵀ(D + UUᵀ)⁻¹(x−μ) = Σ_j (x_j−μ_j)²/D_j − ‖P (x−μ)‖² with P = M⁻¹ᐟ²UᵀD⁻¹ and M = I + UᵀD⁻¹U.

    Parameters
    ----------
    offset
        (d,) subtracted from features and means first.
    means
        (C, d) class means less the offset.
    precisions
        (C, d), 1/D.
    projections
        P, (C, r, d).
    bias
        (C,) log-prior less half the log-determinant.
    present, class_names, feature_map, info
        See :class:`fedmoments.classifier.Classifier`.

    Examples
    --------
    >>> clf = LowRankClassifier(
    ...     offset=np.zeros(1), means=np.array([[0.0], [4.0]]), precisions=np.array([[1.0], [0.25]]),
    ...     projections=np.zeros((2, 1, 1)), bias=np.array([0.0, -0.7]), present=np.array([True, True]),
    ... )
    >>> clf.predict([[1.0], [3.0]])
    array([0, 1])
    """

    offset: NDArray[np.float64]
    means: NDArray[np.float64]
    precisions: NDArray[np.float64]
    projections: NDArray[np.float64]
    bias: NDArray[np.float64]

    @property
    def dim(self) -> int:
        return len(self.offset)

    def _scores(self, Z: Floats, arrays: Arrays) -> Floats:
        scores = np.empty((len(Z), self.n_classes), Z.dtype)
        projections = arrays["projections"]
        n_classes, rank, dim = projections.shape
        flat = projections.reshape(n_classes * rank, dim)
        shift = np.einsum("crd,cd->cr", projections, arrays["means"])
        for block in blocks(len(Z)):
            centred = Z[block] - arrays["offset"]
            inside = (centred @ flat.T).reshape(len(centred), n_classes, rank) - shift
            scores[block] = diagonal_scores(centred, arrays) + 0.5 * np.einsum("ncr,ncr->nc", inside, inside)
        return scores
