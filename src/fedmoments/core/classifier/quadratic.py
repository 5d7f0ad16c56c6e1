"""Quadratic classifiers: log-densities of Gaussians with a covariance of their own, full, diagonal or low-rank.

Each may live in a subspace: with a ``basis`` (d, k) features are (x − offset)·basis before anything else, and all other
arrays have k dimensions instead of d. A linear term w_c·z on top of a Gaussian score is not a classifier of a new kind,
because −½ (z−μ)ᵀP(z−μ) + w·z = −½ (z−μ′)ᵀP(z−μ′) + w·μ + ½ wᵀP⁻¹w with μ′ = μ + P⁻¹w; :meth:`plus_linear` moves it in.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, solve_triangular

from fedmoments.core.classifier.base import Classifier, Floats
from fedmoments.core.linalg import blocks

__all__ = ["DiagonalClassifier", "LowRankClassifier", "QuadraticClassifier"]

Arrays = Mapping[str, NDArray[np.floating[Any]]]

#: Numbers that the inner products of one block of samples may take.
BLOCK_NUMBERS = 1 << 22
#: Beyond this number and its inverse, float32 precisions leave no room for squares of features.
SINGLE = 2.0**80


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
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
    basis
        (d, k) of the subspace, or None.
    present, class_names, feature_map, info
        See :class:`fedmoments.core.classifier.Classifier`.

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
    basis: NDArray[np.float64] | None = None

    degrees = MappingProxyType({"offset": 1, "means": 1, "precisions": -2, "basis": -1})

    @property
    def dim(self) -> int:
        return len(self.offset)

    def plus_linear(self, weights: NDArray[np.float64]) -> Self:
        """Return the classifier with z·weights (k, C) added to its scores; z are the centred features it squares."""
        moved = weights.T / self.precisions
        extra = np.einsum("kc,ck->c", weights, self.means + 0.5 * moved)
        return replace(self, means=self.means + moved, bias=self.bias + extra)

    @cached_property
    def _single(self) -> bool:
        """Whether squares of features, and precisions, are numbers of float32 far from its ends."""
        peak = float(np.abs(self.precisions[self.present]).max(initial=0.0))
        return 1.0 / SINGLE < peak < SINGLE

    def gradients(self, Z: Floats, labels: NDArray[np.int64]) -> Floats:
        away = _away(self, Z, labels)
        return _outside(self, -self.precisions[labels] * away)

    def _scores(self, Z: Floats, arrays: Arrays) -> Floats:
        if Z.dtype == np.float32 and not self._single:
            wide = dict(self.arrays())
            return diagonal_scores(_centred(Z.astype(np.float64), wide), wide).astype(np.float32)
        return diagonal_scores(_centred(Z, arrays), arrays)


def _away(classifier: "Gaussian", Z: Floats, labels: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return z − μ_c (n, k) of features (n, d) and the class (n,) that is requested each of them."""
    arrays = {name: array for name, array in classifier.arrays() if name in ("offset", "basis")}
    return np.asarray(_centred(np.asarray(Z, np.float64), arrays) - classifier.means[labels])


def _outside(classifier: "Gaussian", slopes: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return gradients in the subspace (n, k) as gradients in the full space (n, d)."""
    return slopes if classifier.basis is None else np.asarray(slopes @ classifier.basis.T)


def _centred(Z: Floats, arrays: Arrays) -> Floats:
    """Return features less the offset, in the subspace if there is one."""
    centred = Z - arrays["offset"]
    return np.asarray(centred @ arrays["basis"]) if "basis" in arrays else centred


def diagonal_scores(centred: Floats, arrays: Arrays) -> Floats:
    """Return b_c − ½ Σ_j (x_j − μ_cj)²·p_cj by expanding the square: two GEMMs instead of a (n, C, d) array."""
    means, precisions = arrays["means"], arrays["precisions"]
    weighted = means * precisions
    constant = arrays["bias"] - 0.5 * np.einsum("cd,cd->c", means, weighted)
    scores = centred @ weighted.T
    scores -= np.square(centred) @ (0.5 * precisions).T
    scores += constant
    return np.asarray(scores)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
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
    basis
        (d, k) of the subspace, or None.
    present, class_names, feature_map, info
        See :class:`fedmoments.core.classifier.Classifier`.

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
    basis: NDArray[np.float64] | None = None

    degrees = MappingProxyType({"offset": 1, "means": 1, "whiteners": -1, "basis": -1})

    @property
    def dim(self) -> int:
        return len(self.offset)

    def plus_linear(self, weights: NDArray[np.float64]) -> Self:
        """Return the classifier with z·weights (k, C) added to its scores; z are the centred features it whitens."""
        means, bias = self.means.copy(), self.bias.copy()
        for label in np.flatnonzero(self.present):
            whitener, slope = self.whiteners[label], weights[:, label]
            half = solve_triangular(whitener, slope, lower=True, trans="T")
            bias[label] += slope @ means[label] + 0.5 * half @ half
            means[label] += solve_triangular(whitener, half, lower=True)
        return replace(self, means=means, bias=bias)

    def gradients(self, Z: Floats, labels: NDArray[np.int64]) -> Floats:
        away = _away(self, Z, labels)
        for row, label in enumerate(labels.tolist()):
            away[row] = -self.whiteners[label].T @ (self.whiteners[label] @ away[row])
        return _outside(self, away)

    def _scores(self, Z: Floats, arrays: Arrays) -> Floats:
        scores = np.zeros((len(Z), self.n_classes), Z.dtype)
        multiply = blas.strmm if Z.dtype == np.float32 else blas.dtrmm
        for block in blocks(len(Z)):
            columns = np.asfortranarray(_centred(Z[block], arrays).T)
            for label in np.flatnonzero(self.present):
                # LAPACK reads the C-ordered T_c as its transpose, upper triangular, and transposes it back.
                centred = columns - arrays["means"][label][:, None]
                white = multiply(1.0, arrays["whiteners"][label].T, centred, lower=0, trans_a=1, overwrite_b=1)
                scores[block, label] = arrays["bias"][label] - 0.5 * np.einsum("dn,dn->n", white, white)
        return scores


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
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
    basis
        (d, k) of the subspace, or None.
    present, class_names, feature_map, info
        See :class:`fedmoments.core.classifier.Classifier`.

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
    basis: NDArray[np.float64] | None = None

    degrees = MappingProxyType({"offset": 1, "means": 1, "precisions": -2, "projections": -1, "basis": -1})

    @property
    def dim(self) -> int:
        return len(self.offset)

    def plus_linear(self, weights: NDArray[np.float64]) -> Self:
        """Return the classifier with z·weights (k, C) added to its scores; z are the centred features it squares."""
        means, bias = self.means.copy(), self.bias.copy()
        for label in np.flatnonzero(self.present):
            slope, P = weights[:, label], self.projections[label]
            # Σw = Dw + D Pᵀ (I − P D Pᵀ)⁻¹ P Dw, where I − P D Pᵀ has the eigenvalues of M⁻¹: all above 0.
            straight = slope / self.precisions[label]
            values, vectors = np.linalg.eigh((P / self.precisions[label]) @ P.T)
            along = P.T @ (vectors / np.maximum(1.0 - values, np.finfo(np.float64).eps))
            moved = straight + along @ (vectors.T @ (P @ straight)) / self.precisions[label]
            bias[label] += slope @ (means[label] + 0.5 * moved)
            means[label] += moved
        return replace(self, means=means, bias=bias)

    def gradients(self, Z: Floats, labels: NDArray[np.int64]) -> Floats:
        away = _away(self, Z, labels)
        slopes = -self.precisions[labels] * away
        for row, label in enumerate(labels.tolist()):
            slopes[row] += self.projections[label].T @ (self.projections[label] @ away[row])
        return _outside(self, slopes)

    def _scores(self, Z: Floats, arrays: Arrays) -> Floats:  # noqa: ARG002 - those of float64 whatever arrives
        # Two large numbers are subtracted: in float32 nothing is left of a covariance with a condition of 1e8.
        exact = dict(self.arrays())
        scores = np.empty((len(Z), self.n_classes), Z.dtype)
        projections = exact["projections"]
        n_classes, rank, dim = projections.shape
        flat = projections.reshape(n_classes * rank, dim)
        shift = np.einsum("crd,cd->cr", projections, exact["means"])
        for block in blocks(len(Z), max(BLOCK_NUMBERS // max(n_classes * rank, 1), 1)):
            centred = _centred(Z[block].astype(np.float64), exact)
            inside = (centred @ flat.T).reshape(len(centred), n_classes, rank) - shift
            scores[block] = diagonal_scores(centred, exact) + 0.5 * np.einsum("ncr,ncr->nc", inside, inside)
        return scores


Gaussian = DiagonalClassifier | QuadraticClassifier | LowRankClassifier
