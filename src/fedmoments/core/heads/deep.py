"""Deep analytic heads: random ReLU layers whose weights are solved one after the other, one upload each, no gradient.

Layer t begins with features z_{t−1} (z₀ = x). Clients measure the gram of (z_{t−1}, h_t), h_t = √(2/w)·max(z_{t−1}B_t,
0) with a public random B_t. From that gram alone the server solves ridge regression W of one-hot labels on z_{t−1}, and
then, as DeepAFL does (Li et al., 2025: residual blocks in closed form), the residual Ω_t that lowers its loss most:

    min_Ω ‖Y − (z + hΩ)W‖² + γ-weighted ‖Ω‖²,     Ω = U [ (UᵀHᵀ(Y − zW)WᵀV)_ij / (λ_i θ_j + γ) ] Vᵀ

with HᵀH = UΛUᵀ and WWᵀ = VΘVᵀ. It broadcasts Ω_t, z_t = z_{t−1} + h_tΩ_t, and so on. The last layer is ridge regression
on (z, h) itself. One layer is ridge regression on x and w random features beside it.

**Law** every layer is made of sums: any partition of the samples gives the same head. **Law** features times a
constant give the same predictions. What it is worth stands in docs/nonlinear.md.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.cross_validation import gcv_ridge
from fedmoments.core.heads.head import ORDINARY
from fedmoments.core.heads.registry import Preset
from fedmoments.core.heads.ridge import Ridge
from fedmoments.core.linalg import solve_positive
from fedmoments.core.maps.base import FeatureMap, compose
from fedmoments.core.maps.relu_layer import ReluBeside, ReluResidual
from fedmoments.core.statistics import Statistics, StatisticsSpec
from fedmoments.core.statistics.arithmetic import feature_exponent, times_power
from fedmoments.errors import InputError

__all__ = ["PRESETS", "DeepRidge", "residual_weights"]

Floats = NDArray[np.float64]

#: γ as a share of the mean of λ_i θ_j.
DAMPING = 1e-2


@dataclass(frozen=True)
class DeepRidge(Ridge):
    """Ridge regression on top of random ReLU layers that were solved for one after the other.

    Parameters
    ----------
    scatter, covariance, shrinkage, ridge, intercept, normalize, divisor
        As in :class:`Ridge`.
    layers
        How many, and so how many uploads.
    width
        w, random features of a layer.
    map_seed
        Public seed of the first layer; others follow.

    Examples
    --------
    >>> import fedmoments as fm
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(400, 3))
    >>> y = (X[:, 0] * X[:, 1] > 0).astype(int)          # no linear rule tells them apart
    >>> classifier = fm.fit("deep-ridge", {k: (X[k::5], y[k::5]) for k in range(5)}, layers=2, width=64)
    >>> float((classifier.predict(X) == y).mean()) > 0.9
    True
    """

    layers: int = 3
    width: int = 512
    map_seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.layers < 1 or self.width < 1:
            raise InputError(f"there is 1 layer or more of width 1 or more; {self.layers} and {self.width} arrived")

    def mapped_dim(self, dim: int) -> int:
        return dim + self.width

    def feature_map(self, dim: int, pilot: Statistics | None) -> FeatureMap | None:  # noqa: ARG002 - none is needed
        return ReluBeside(dim, self.width, self.map_seed)

    def agreed_map(
        self, dim: int, measured: Callable[[StatisticsSpec, FeatureMap | None], Statistics]
    ) -> FeatureMap | None:
        before: list[FeatureMap] = []
        for number in range(1, self.layers):
            layer = ReluBeside(dim, self.width, self.map_seed + number - 1)
            stats = measured(StatisticsSpec.of("gram"), compose(*before, layer))
            before.append(ReluResidual.of(layer, residual_weights(stats, dim)))
        return compose(*before, ReluBeside(dim, self.width, self.map_seed + self.layers - 1))

    def earlier(self, dim: int) -> tuple[tuple[StatisticsSpec, int], ...]:
        return ((StatisticsSpec.of("gram"), dim + self.width),) * (self.layers - 1)


def residual_weights(stats: Statistics, dim: int) -> Floats:
    """Return Ω (w, dim) of a layer from the gram of (z, h), z being the first ``dim`` columns.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> z, labels = rng.normal(size=(50, 2)), np.arange(50) % 2
    >>> layer = ReluBeside(2, 4, seed=0)
    >>> residual_weights(Statistics.of(layer(z), labels, StatisticsSpec.of("gram"), n_classes=2), 2).shape
    (4, 2)
    """
    exponent = feature_exponent(stats)  # Ω does not change with the scale of features: squares of squares must exist
    if abs(exponent) > ORDINARY:
        stats = times_power(stats, -exponent)
    gram, right = stats.gram, stats.sums.T
    inner, cross, hidden = gram[:dim, :dim], gram[dim:, :dim], gram[dim:, dim:]
    penalty = gcv_ridge(inner, right[:dim].copy(), energy=float(stats.n_samples), n_samples=stats.n_samples)
    penalised = np.array(inner, order="F")
    penalised[np.diag_indices(dim)] += penalty
    W = np.asarray(solve_positive(penalised, right[:dim].copy()))
    hidden_values, U = np.linalg.eigh(hidden)
    weight_values, V = np.linalg.eigh(W @ W.T)
    products = np.maximum(hidden_values, 0.0)[:, None] * np.maximum(weight_values, 0.0)
    # The mean over the directions in which W is not 0: at most as many as classes.
    gamma = DAMPING * float(products.mean()) * dim / max(len(stats.classes), 1)
    if gamma <= 0.0:  # nothing to learn from: features or labels do not differ
        return np.zeros((len(hidden), dim))
    left = U.T @ ((right[dim:] - cross @ W) @ (W.T @ V))
    return np.asarray(U @ (left / (products + gamma)) @ V.T)


PRESETS = (
    Preset(
        "deep-ridge",
        DeepRidge,
        "ridge on random ReLU layers, solved one after the other, an upload each",
        "new here, after AFL and DeepAFL",
    ),
)
