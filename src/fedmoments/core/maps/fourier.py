"""Random Fourier features (Rahimi and Recht, 2007) for the RBF kernel k(x, x′) = exp(−‖x−x′‖² / 2σ²).

z = √(2/D)·cos(xω + u), ω ∈ ℝ^{d×D} with entries N(0, σ⁻²), u ~ U[0, 2π)^D, so that E zᵀz′ = k(x, x′).

**Law** the error of the Gram matrix ZZᵀ against the kernel falls as 1/√D.

Fed3R-RF uses D = 5,000 or 10,000 and σ = 1000 on raw features; `median_bandwidth` chooses σ from statistics.
"""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from fedmoments.core.maps.base import FeatureMap, FloatArray
from fedmoments.core.maps.checks import checked_count, checked_positive, checked_seed
from fedmoments.core.maps.randomness import GENERATOR, checked_generator, standard_normals, uniforms

__all__ = ["RandomFourier"]


@dataclass(frozen=True)
class RandomFourier(FeatureMap, kind="random_fourier"):
    """Map rows (n, d) to D cosines whose inner products approximate the RBF kernel.

    With one seed, the frequencies and phases for fewer features are the first of those for more.

    Parameters
    ----------
    input_dim
        d, the number of feature columns.
    n_features
        D, the number of columns that come out.
    bandwidth
        σ, in units of the features; finite and above 0.
    seed
        Public; 0 ≤ seed < 2⁶³.
    generator
        How numbers are drawn from the seed (`fedmoments.core.maps.randomness`); part of the description.

    Examples
    --------
    >>> fourier = RandomFourier(input_dim=2, n_features=20_000, bandwidth=1.0, seed=0)
    >>> Z = fourier([[0.0, 0.0], [1.0, 0.0]])
    >>> Z.shape
    (2, 20000)
    >>> abs(float(Z[0] @ Z[1]) - float(np.exp(-0.5))) < 0.02
    True
    """

    input_dim: int
    n_features: int
    bandwidth: float
    seed: int
    generator: str = field(default=GENERATOR, kw_only=True, repr=False)

    def __post_init__(self) -> None:
        name = type(self).__name__
        object.__setattr__(self, "input_dim", checked_count(self.input_dim, "input_dim", of=name))
        object.__setattr__(self, "n_features", checked_count(self.n_features, "n_features", of=name))
        object.__setattr__(self, "bandwidth", checked_positive(self.bandwidth, "bandwidth", of=name))
        object.__setattr__(self, "seed", checked_seed(self.seed, of=name))
        checked_generator(self.generator, of=name)

    @cached_property
    def frequencies(self) -> FloatArray:
        """The ω, a read-only array of shape (input_dim, n_features), drawn column by column.

        In radians per unit of the features.
        """
        normals = standard_normals(self.seed, "fourier/frequencies", self.n_features * self.input_dim)
        normals /= self.bandwidth
        normals.setflags(write=False)
        return normals.reshape(self.n_features, self.input_dim).T

    @cached_property
    def phases(self) -> FloatArray:
        """The u, a read-only array of shape (n_features,), in radians, 0 ≤ u < 2π."""
        phases = uniforms(self.seed, "fourier/phases", self.n_features)
        phases *= 2.0 * np.pi
        phases.setflags(write=False)
        return phases

    def required_dim(self) -> int:
        """Tell the number of columns: ``input_dim``."""
        return self.input_dim

    def _apply(self, X: FloatArray) -> FloatArray:
        Z = X @ self.frequencies
        Z += self.phases
        np.cos(Z, out=Z)  # in place: Z is by far the largest array here
        Z *= np.sqrt(2.0 / self.n_features)
        return Z

    def _width(self, _d: int, /) -> int:
        return self.n_features

    def _arrays(self) -> tuple[FloatArray, ...]:
        return (self.frequencies, self.phases)
