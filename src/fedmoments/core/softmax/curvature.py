"""The curvature of a softmax loss, from some of its samples, and a preconditioner for it.

A sample with features z (and a 1 for the bias) and probabilities p curves the loss by (diag p − ppᵀ) ⊗ zzᵀ. A product
with it costs as much as a gradient, so it is taken over some of the samples: a direction need not be exact.

The preconditioner is block-diagonal, one (k+1, k+1) block a class. The exact block of class c, Σ_i p_ic(1−p_ic) zzᵀ,
would cost C passes. Samples that are most likely of class y lie close together, so that their part of it is taken as a
multiple of one matrix, G_y = Σ_{i∈y} p_iy(1−p_iy) zzᵀ:

    B_c = Σ_y r_yc G_y,    r_yc = Σ_{i∈y} p_ic(1−p_ic) / Σ_{i∈y} p_iy(1−p_iy).

Where blocks would cost more than they save (many dimensions, few samples), the diagonal of the curvature is used.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.linalg import blocks

__all__ = ["Curvature"]

Floats = NDArray[np.floating[Any]]
Wide = NDArray[np.float64]

#: Most numbers in all blocks of a preconditioner.
MOST_BLOCK_FLOATS = 1 << 24
#: Share of its mean diagonal entry that is added to a preconditioner, for directions that no sample has seen.
RIDGE = 1e-4
#: Least mean diagonal entry, as a share of the features' mean square: probabilities of 0 and 1 bend nothing.
LEAST_BEND = 1e-6
#: Rows that are multiplied at once.
ROWS = 2048


@dataclass(eq=False)
class Curvature:
    """The mean curvature over samples that were kept, for weights and bias stacked to (k+1, C).

    Parameters
    ----------
    decay
        Penalty on ½‖W‖², which curves too.
    parts
        (m, k) features, (C, m) probabilities and their share of the loss, for each part that was kept.
    n_samples
        How many samples they are; one with two voices comes in two parts.
    free_bias
        Whether the bias may change.

    Examples
    --------
    >>> curvature = Curvature(0.0, [(np.array([[1.0]]), np.array([[0.5], [0.5]]), 1.0)], 1)
    >>> curvature.product(np.array([[1.0, 0.0], [0.0, 0.0]]))
    array([[ 0.25, -0.25],
           [ 0.25, -0.25]])
    """

    decay: float
    parts: list[tuple[Floats, Floats, float]] = field(default_factory=list)
    n_samples: int = 0
    free_bias: bool = True

    @cached_property
    def _stacked(self) -> tuple[Floats, Floats, Floats]:
        """Features (n, k+1) with a 1 for a free bias, probabilities (C, n) and shares (n,) of all parts."""
        Z = np.concatenate([part[0] for part in self.parts])
        Z = np.concatenate([Z, np.full((len(Z), 1), self.free_bias, Z.dtype)], axis=1)
        P = np.concatenate([part[1] for part in self.parts], axis=1)
        return Z, P, np.concatenate([np.full(len(part[0]), part[2], Z.dtype) for part in self.parts])

    def product(self, direction: Wide) -> Wide:
        """Return the curvature times a direction (k+1, C)."""
        Z, P, shares = self._stacked
        narrow = direction.T.astype(Z.dtype)
        total = np.zeros(narrow.shape)
        for rows in blocks(len(Z), ROWS):
            change, p = narrow @ Z[rows].T, P[:, rows]
            change -= np.einsum("cm,cm->m", p, change)
            change *= p
            change *= shares[rows]
            total += change @ Z[rows]
        product = total.T / self.n_samples
        product[:-1] += self.decay * direction[:-1]
        return np.asarray(product)

    def preconditioner(self) -> Callable[[Wide], Wide]:
        """Return what multiplies (k+1, C) by an approximate inverse."""
        Z, P, _ = self._stacked
        size, n_classes = Z.shape[1], len(P)
        if n_classes * size**2 > MOST_BLOCK_FLOATS or size**2 > len(Z):
            diagonal = self._diagonal()
            return lambda gradient: gradient / diagonal
        inverses = np.linalg.inv(self._blocks())
        return lambda gradient: np.asarray((inverses @ gradient.T[:, :, None])[:, :, 0].T)

    def _diagonal(self) -> Wide:
        Z, P, shares = self._stacked
        diagonal = np.square(Z).T @ (P * (1.0 - P) * shares).T / self.n_samples
        diagonal[:-1] += self.decay
        return np.asarray(diagonal + self._ridge(diagonal), np.float64)

    def _ridge(self, diagonal: Floats) -> float:
        """Return what is added to every diagonal entry."""
        Z, _, shares = self._stacked
        most = float(np.einsum("nk,nk,n->", Z, Z, shares, dtype=np.float64)) / (Z.shape[1] * self.n_samples)
        return RIDGE * _positive(max(float(diagonal.mean()), LEAST_BEND * most))

    def _blocks(self) -> Wide:
        Z, P, shares = self._stacked
        size, n_classes = Z.shape[1], len(P)
        spread = P * (1.0 - P) * shares
        likely = P.argmax(axis=0)
        order = np.argsort(likely, kind="stable")
        bounds = np.searchsorted(likely[order], np.arange(n_classes + 1))
        grams = np.zeros((n_classes, size, size))
        ratios = np.zeros((n_classes, n_classes))
        for label, (start, stop) in enumerate(pairwise(bounds)):
            rows = order[start:stop]
            near, mine = Z[rows], spread[label, rows]
            grams[label] = (near * mine[:, None]).T @ near
            ratios[label] = spread[:, rows].sum(axis=1) / _positive(float(mine.sum()))
        curvature = (ratios.T @ grams.reshape(n_classes, -1)).reshape(grams.shape) / self.n_samples
        diagonals = np.einsum("cii->ci", curvature)
        diagonals[:, :-1] += self.decay
        diagonals += self._ridge(diagonals)
        return np.asarray(curvature)


def _positive(number: float) -> float:
    return number if number > 0 else 1.0
