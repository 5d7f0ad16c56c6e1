"""Random ReLU layers: h = √(2/w)·max(xB, 0), B ∈ ℝ^{d×w} with entries N(0, 1) from a public seed.

`ReluBeside` puts h beside x, so that one gram tells all about both; `ReluResidual` adds h·Ω to x, with an Ω that
somebody solved for and all parties know. The residual is linear in what stands beside x: a layer that was measured can
be added without measuring it again. Both are homogeneous: features times a constant give the same times that constant.
"""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from fedmoments.core.maps.base import FeatureMap, FloatArray
from fedmoments.core.maps.checks import checked_count, checked_seed
from fedmoments.core.maps.packing import packed, unpacked
from fedmoments.core.maps.randomness import GENERATOR, checked_generator, standard_normals
from fedmoments.errors import InputError

__all__ = ["ReluBeside", "ReluResidual"]


@dataclass(frozen=True)
class ReluBeside(FeatureMap, kind="relu_beside"):
    """Map rows x (n, d) to (x, h), (n, d + w).

    Parameters
    ----------
    input_dim
        d.
    n_features
        w, random features beside x.
    seed
        Public; 0 ≤ seed < 2⁶³. Each layer of a chain needs its own.
    generator
        As of `RandomFourier`.

    Examples
    --------
    >>> layer = ReluBeside(input_dim=2, n_features=3, seed=0)
    >>> layer([[0.0, 0.0]]).tolist()
    [[0.0, 0.0, 0.0, 0.0, 0.0]]
    >>> bool(np.allclose(layer([[2.0, 4.0]]), 2 * layer([[1.0, 2.0]])))
    True
    """

    input_dim: int
    n_features: int
    seed: int
    generator: str = field(default=GENERATOR, kw_only=True, repr=False)

    def __post_init__(self) -> None:
        name = type(self).__name__
        object.__setattr__(self, "input_dim", checked_count(self.input_dim, "input_dim", of=name))
        object.__setattr__(self, "n_features", checked_count(self.n_features, "n_features", of=name))
        object.__setattr__(self, "seed", checked_seed(self.seed, of=name))
        checked_generator(self.generator, of=name)

    @cached_property
    def matrix(self) -> FloatArray:
        """√(2/w)·B, a read-only array of shape (input_dim, n_features), drawn column by column."""
        normals = standard_normals(self.seed, "relu", self.n_features * self.input_dim)
        normals *= np.sqrt(2.0 / self.n_features)
        normals.setflags(write=False)
        return normals.reshape(self.n_features, self.input_dim).T

    def hidden(self, X: FloatArray) -> FloatArray:
        """Return h (n, w)."""
        return np.asarray(np.maximum(X @ self.matrix, 0.0))

    def required_dim(self) -> int:
        """Tell the number of columns: ``input_dim``."""
        return self.input_dim

    def _apply(self, X: FloatArray) -> FloatArray:
        return np.hstack([X, self.hidden(X)])

    def _width(self, d: int, /) -> int:
        return d + self.n_features

    def _arrays(self) -> tuple[FloatArray, ...]:
        return (self.matrix,)


@dataclass(frozen=True)
class ReluResidual(FeatureMap, kind="relu_residual"):
    """Map rows x (n, d) to x + h·Ω, (n, d). Make one with :meth:`of`.

    Parameters
    ----------
    input_dim, n_features, seed, generator
        As of :class:`ReluBeside`.
    columns
        Ω (w, d) as little-endian float32, row by row, in base64.

    Examples
    --------
    >>> layer = ReluBeside(input_dim=2, n_features=3, seed=0)
    >>> residual = ReluResidual.of(layer, np.zeros((3, 2)))
    >>> residual([[1.0, 2.0]]).tolist()
    [[1.0, 2.0]]
    """

    input_dim: int
    n_features: int
    seed: int
    columns: str = field(repr=False)
    generator: str = field(default=GENERATOR, kw_only=True, repr=False)

    def __post_init__(self) -> None:
        if not np.isfinite(self.weights).all() or self.layer.n_features != self.n_features:
            raise InputError("the weights of ReluResidual must be finite: make the map with ReluResidual.of")

    @classmethod
    def of(cls, layer: ReluBeside, weights: FloatArray) -> "ReluResidual":
        """Return the layer with weights Ω (w, d), rounded to float32."""
        return cls(layer.input_dim, layer.n_features, layer.seed, packed(weights), generator=layer.generator)

    @cached_property
    def layer(self) -> ReluBeside:
        """The random part."""
        return ReluBeside(self.input_dim, self.n_features, self.seed, generator=self.generator)

    @cached_property
    def weights(self) -> FloatArray:
        """Ω, a read-only array of shape (n_features, input_dim)."""
        return unpacked(self.columns, (self.n_features, self.input_dim), "the weights of ReluResidual")

    def required_dim(self) -> int:
        """Tell the number of columns: ``input_dim``."""
        return self.input_dim

    def _apply(self, X: FloatArray) -> FloatArray:
        return np.asarray(X + self.layer.hidden(X) @ self.weights)

    def _arrays(self) -> tuple[FloatArray, ...]:
        return (self.layer.matrix, self.weights)
