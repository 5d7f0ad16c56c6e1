"""Linear rules from class means and a shared covariance: LDA, ridge on the within scatter, nearest mean.

They are those of the heads of these names, made from parts: a head that tries many of them shares one factorisation.
With Σ̃ the shrunk covariance, μ_g = Σ π_c μ_c and N samples:

- LDA: W = Σ̃⁻¹(μ_c − μ_g), b_c = −½ (μ_c − μ_g)ᵀΣ̃⁻¹(μ_c − μ_g) + log π_c, around μ_g;
- ridge: W ∝ (A + N μ_g μ_gᵀ)⁻¹μ_c with unit columns, A the shrunk within scatter; see :func:`around_mean`;
- total ridge: W ∝ (Σ x xᵀ + λI)⁻¹μ_c with unit columns, which is A = Σ x xᵀ − N μ_g μ_gᵀ + λI;
- nearest mean: W = μ_c/‖μ_c‖.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

__all__ = ["Centres", "LinearRule", "around_mean", "lda_rule", "nearest_rule", "ridge_rule"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Centres:
    """Where classes lie and how frequent they are.

    Parameters
    ----------
    means
        (C, d), 0 for a class without a sample.
    shares
        π (C,), 0 for a class without a sample.

    Examples
    --------
    >>> Centres(np.array([[0.0], [4.0]]), np.array([0.75, 0.25])).middle
    array([1.])
    """

    means: Floats
    shares: Floats

    @property
    def present(self) -> NDArray[np.bool_]:
        """(C,) whether a class has a sample."""
        return np.asarray(self.shares > 0)

    @cached_property
    def middle(self) -> Floats:
        """μ_g (d,), the mean of all samples."""
        return np.asarray(self.shares @ self.means)

    @cached_property
    def columns(self) -> Floats:
        """μ_1 − μ_g … μ_C − μ_g and μ_g, (d, C + 1): what every rule is solved for; 0 for a class without a sample."""
        centred = np.where(self.present[:, None], self.means - self.middle, 0.0)
        return np.asfortranarray(np.vstack([centred, self.middle]).T)


@dataclass(frozen=True)
class LinearRule:
    """Scores (x − offset)·W + b; −∞ for a class without a sample.

    Parameters
    ----------
    weights
        W (d, C).
    bias
        b (C,).
    present
        (C,) whether a class can be predicted.
    offset
        (d,) subtracted first, or None.

    Examples
    --------
    >>> rule = LinearRule(np.array([[1.0, 2.0]]), np.array([0.5, 0.0]), np.array([True, False]), np.array([1.0]))
    >>> rule.scores(np.array([[3.0]]))
    array([[ 2.5, -inf]])
    """

    weights: Floats
    bias: Floats
    present: NDArray[np.bool_]
    offset: Floats | None = None

    def scores(self, X: Floats) -> Floats:
        """Return scores (n, C) of features (n, d)."""
        centred = X if self.offset is None else X - self.offset
        return np.asarray(np.where(self.present, centred @ self.weights + self.bias, -np.inf))


def lda_rule(centres: Centres, solved: Floats, priors: str = "data") -> LinearRule:
    """Return LDA.

    Parameters
    ----------
    centres
        Class means and shares.
    solved
        (d, C + 1), Σ̃⁻¹ times :attr:`Centres.columns`.
    priors
        ``data`` or ``balanced``.

    Examples
    --------
    >>> centres = Centres(np.array([[0.0], [4.0]]), np.array([0.5, 0.5]))
    >>> lda_rule(centres, centres.columns / 2.0).scores(np.array([[2.0], [3.0]])).argmax(axis=1)
    array([0, 1])
    """
    weights = solved[:, :-1]
    bias = -0.5 * np.einsum("dc,dc->c", centres.columns[:, :-1], weights)
    if priors == "data":
        bias += np.log(np.where(centres.present, centres.shares, 1.0))
    return LinearRule(weights, bias, centres.present, centres.middle)


def ridge_rule(centres: Centres, solved: Floats, n_samples: float) -> LinearRule:
    """Return ridge regression, columns of unit norm.

    Parameters
    ----------
    centres
        Class means and shares.
    solved
        (d, C + 1), A⁻¹ times :attr:`Centres.columns`, A the shrunk within scatter, or the total scatter around the
        mean with its ridge.
    n_samples
        N, samples behind A.

    Examples
    --------
    >>> centres = Centres(np.eye(2), np.array([0.5, 0.5]))
    >>> ridge_rule(centres, centres.columns / 3.0, 2.0).weights.round(3)
    array([[ 0.99 , -0.141],
           [-0.141,  0.99 ]])
    """
    weights = np.where(centres.present, around_mean(solved, centres.middle, n_samples), 0.0)
    return LinearRule(_unit_columns(weights), np.zeros(len(centres.shares)), centres.present)


def around_mean(solved: Floats, middle: Floats, n_samples: float) -> Floats:
    """Return (A + N μ_g μ_gᵀ)⁻¹μ_c (d, C) from what A alone was solved for, by Sherman and Morrison.

    With δ_c = μ_c − μ_g, it is A⁻¹δ_c + A⁻¹μ_g · (1 − N μ_gᵀA⁻¹δ_c)/(1 + N μ_gᵀA⁻¹μ_g). Neither the matrix with
    N μ_g μ_gᵀ nor A⁻¹μ_c appears: features may lie 10⁸ times their spread from the origin, and no digit cancels.

    Parameters
    ----------
    solved
        (d, C + 1), A⁻¹δ_c of every class, then A⁻¹μ_g.
    middle
        μ_g (d,).
    n_samples
        N.

    Examples
    --------
    >>> A, mean, deltas = np.diag([1.0, 4.0]), np.array([2.0, 0.0]), np.array([[1.0, -1.0], [1.0, -1.0]])
    >>> weights = around_mean(np.linalg.solve(A, np.column_stack([deltas, mean])), mean, 3.0)
    >>> np.allclose((A + 3.0 * np.outer(mean, mean)) @ weights, mean[:, None] + deltas)
    True
    """
    inside, towards = solved[:, :-1], solved[:, -1]
    share = (1.0 - n_samples * (middle @ inside)) / (1.0 + n_samples * float(middle @ towards))
    return np.asarray(inside + np.outer(towards, share))


def nearest_rule(centres: Centres) -> LinearRule:
    """Return the rule of the nearest mean by angle.

    Examples
    --------
    >>> nearest_rule(Centres(np.array([[0.0, 2.0], [3.0, 4.0]]), np.array([0.5, 0.5]))).weights
    array([[0. , 0.6],
           [1. , 0.8]])
    """
    return LinearRule(_unit_columns(centres.means.T), np.zeros(len(centres.shares)), centres.present)


def _unit_columns(weights: Floats) -> Floats:
    norms = np.linalg.norm(weights, axis=0)
    return np.asarray(weights / np.where(norms > 0, norms, 1.0))
