"""Ridge regression onto targets, W = (Sₓₓ + λI)⁻¹ Sₓₜ around the means: numbers, or marks of several labels.

All of it follows from the gram of features and targets together (``core.targets.joint``): S is the scatter of
z = (x, t) around its mean, b = t̄ − x̄W is not penalised, and

    R²_j = 1 − (S_tt − 2 wᵀSₓₜ + wᵀSₓₓw)_jj / (S_tt)_jj

is that of the samples it was fitted to. Automatic λ minimises generalised cross-validation of all targets, each
divided by its standard deviation, so that the unit of a target decides nothing.

**Law** for every partition of the samples it is ridge regression on all of them in one place.

Several labels are as many targets of 0 and 1. Thresholds follow from the same sums: scores of samples with and
without a label have the means m₁ and m₀ and a common variance σ² (all known), so that

    θ = (m₁ + m₀)/2 + σ²/(m₁ − m₀)·log((N − N₁)/N₁)

makes the fewest errors if scores are Gaussian, and the midpoint (without the logarithm) finds more of rare labels.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.classifier.targets import MultiLabel, Regression
from fedmoments.core.cross_validation import gcv_ridge
from fedmoments.core.gaussian import Shrinkage
from fedmoments.core.gaussian.class_gaussians import total_scatter
from fedmoments.core.heads.registry import Preset
from fedmoments.core.linalg import solve_positive
from fedmoments.core.statistics import Statistics
from fedmoments.core.targets.head import TargetHead
from fedmoments.errors import InputError

__all__ = ["PRESETS", "MultiLabelRidge", "RidgeRegression"]

Floats = NDArray[np.float64]
#: Words for thresholds of labels.
THRESHOLDS = ("errors", "midpoint")


@dataclass(frozen=True)
class _Solved:
    """Weights (d, m), constants (m,), means of features (d,), the scatter blocks, and λ."""

    weights: Floats
    bias: Floats
    mean: Floats
    cross: Floats
    explained: Floats
    spread: Floats
    amount: float


@dataclass(frozen=True)
class RidgeRegression(TargetHead):
    """Ridge regression onto numbers.

    Parameters
    ----------
    targets
        As in :class:`TargetHead`.
    ridge
        λ: ``automatic`` (generalised cross-validation), a number (absolute), or ``relative:r`` for r·tr(Sₓₓ)/d.

    Examples
    --------
    >>> import fedmoments as fm
    >>> X = np.random.default_rng(0).normal(size=(40, 3))
    >>> T = X @ [[1.0, 0.0], [0.0, 2.0], [0.0, 0.0]] + [5.0, -1.0]
    >>> model = fm.fit("ridge-regression", {k: (X[k::4], T[k::4]) for k in range(4)}, class_names=["rent", "price"])
    >>> model.predict([[1.0, 1.0, 0.0]]).round(3), np.round(model.info["r_squared"], 6).tolist()
    (array([[6., 1.]]), [1.0, 1.0])
    """

    ridge: Shrinkage | str | float = "automatic"

    def __post_init__(self) -> None:
        super().__post_init__()
        if Shrinkage.parse(self.ridge).kind == "blend":
            raise InputError(f"ridge is automatic, none, a number, absolute:λ or relative:r, not '{self.ridge}'")

    def solve(self, stats: Statistics) -> Regression:
        solved = _solved(stats, self.targets, self.ridge)
        return Regression(
            weights=solved.weights, bias=solved.bias, offset=solved.mean, present=np.ones(self.targets, np.bool_)
        ).noting(ridge=solved.amount, r_squared=[float(share) for share in _shares(solved)])


@dataclass(frozen=True)
class MultiLabelRidge(RidgeRegression):
    """Ridge regression onto labels, 0 or 1, of which a sample has any number; each has a threshold of its own.

    Parameters
    ----------
    targets, ridge
        As in :class:`RidgeRegression`.
    threshold
        ``errors`` (fewest errors if scores are Gaussian), ``midpoint`` (of the two means of scores: finds more of rare
        labels), or a number.

    Examples
    --------
    >>> MultiLabelRidge(threshold="midpoint").needs.sent
    ('sums', 'gram')
    """

    threshold: str | float = "errors"

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.threshold, str) and self.threshold not in THRESHOLDS:
            raise InputError(f"threshold is {', '.join(THRESHOLDS)} or a number; '{self.threshold}' arrived")

    def solve(self, stats: Statistics) -> MultiLabel:  # type: ignore[override]  # marks, not numbers
        solved = _solved(stats, self.targets, self.ridge)
        sums = stats.sums[0, -self.targets :]
        return MultiLabel(
            weights=solved.weights,
            bias=solved.bias,
            offset=solved.mean,
            present=np.ones(self.targets, np.bool_),
            thresholds=self._thresholds(solved, sums, stats.n_samples),
        ).noting(ridge=solved.amount, r_squared=[float(share) for share in _shares(solved)])

    def _thresholds(self, solved: _Solved, sums: Floats, n: int) -> Floats:
        """Return θ (m,); above every score where a label is never given, below where always."""
        if not isinstance(self.threshold, str):
            return np.full(self.targets, float(self.threshold))
        marked = np.clip(sums / n, 0.0, 1.0)
        apart = marked * (1.0 - marked) * n  # the scatter of a label of 0 and 1
        sound = (apart > 0) & (solved.spread > 0)
        # Σ (t − t̄)(ŝ − s̄) = N·π(1−π)(m₁ − m₀)
        gap = np.where(sound, solved.cross / np.where(sound, apart, 1.0), 0.0)
        middle = marked + gap * (0.5 - marked)
        variance = np.maximum(solved.explained / n - marked * (1.0 - marked) * gap**2, 0.0)
        told = sound & (gap > 0)
        if self.threshold == "errors":
            odds = np.log(np.where(told, (1.0 - marked) / np.where(told, marked, 1.0), 1.0))
            middle = middle + np.where(told, variance / np.where(told, gap, 1.0) * odds, 0.0)
        return np.where(told, middle, np.where(marked > 0.5, -np.inf, np.inf))


def _solved(stats: Statistics, m: int, ridge: Shrinkage | str | float) -> _Solved:
    """Return ridge regression of the last ``m`` columns onto the others."""
    n, d = stats.n_samples, stats.dim - m
    mean = stats.sums[0] / n
    scatter = total_scatter(stats)[0].matrix
    inner, right = np.array(scatter[:d, :d], order="F"), np.array(scatter[:d, d:])
    spread = np.maximum(np.diagonal(scatter)[d:], 0.0)
    amount = _amount(Shrinkage.parse(ridge), inner, right, spread, n)
    penalised = inner.copy(order="F")
    penalised[np.diag_indices(d)] += amount
    weights = np.asarray(solve_positive(penalised, right))
    cross = np.einsum("dm,dm->m", weights, right)
    explained = np.einsum("dm,dm->m", weights, inner @ weights)
    return _Solved(weights, mean[d:].copy(), mean[:d].copy(), cross, explained, spread, amount)


def _amount(penalty: Shrinkage, inner: Floats, right: Floats, spread: Floats, n: int) -> float:
    """Return λ."""
    if penalty.kind != "automatic":
        return penalty.amounts(trace=float(np.trace(inner)), dim=len(inner), dof=float(n))[1]
    scales = np.sqrt(np.where(spread > 0, spread / n, 1.0))
    energy = float((spread / scales**2).sum())
    return gcv_ridge(inner, right / scales, energy=energy, n_samples=n)


def _shares(solved: _Solved) -> Floats:
    """Return R² (m,) of the samples that it was fitted to; 0 where a target does not vary."""
    left = solved.spread - 2.0 * solved.cross + solved.explained
    return np.where(solved.spread > 0, 1.0 - left / np.where(solved.spread > 0, solved.spread, 1.0), 0.0)


PRESETS = (
    Preset(
        "ridge-regression", RidgeRegression, "ridge regression onto numbers, with R²", "new here, after Fed3R and AFL"
    ),
    Preset(
        "multi-label",
        MultiLabelRidge,
        "ridge regression onto labels of which a sample has any number",
        "new here, after Fed3R and AFL",
    ),
)
