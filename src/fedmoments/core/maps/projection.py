"""Gaussian random projection: z = xR with R ∈ ℝ^{d×k}, entries independent N(0, 1/k).

E‖xR‖² = ‖x‖², and the variance of ‖xR‖²/‖x‖² is 2/k (Johnson and Lindenstrauss, 1984).

**Law** sketch-then-aggregate = aggregate-then-sketch: A^z = AR, B^z = RᵀBR, S_c^z = RᵀS_cR, D_c^z = diag(S_c^z).
"""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from fedmoments.core.maps.base import FeatureMap, FloatArray
from fedmoments.core.maps.checks import checked_count, checked_seed
from fedmoments.core.maps.randomness import GENERATOR, checked_generator, standard_normals
from fedmoments.errors import InputError

__all__ = ["RandomProjection", "make_projection"]


@dataclass(frozen=True)
class RandomProjection(FeatureMap, kind="random_projection"):
    """Project rows (n, d) to (n, k) by a Gaussian matrix that all parties draw from one public seed.

    With one seed, the matrix for fewer components is, but for its scale, the first columns of that for more. Two
    projections in one chain need two seeds, else the second repeats the numbers of the first.

    Parameters
    ----------
    input_dim
        d, the number of feature columns.
    n_components
        k, the number of columns that come out.
    seed
        Public; 0 ≤ seed < 2⁶³.
    generator
        How numbers are drawn from the seed (`fedmoments.core.maps.randomness`). Part of the description, so that maps
        drawn in another way never share a fingerprint.

    Examples
    --------
    >>> projection = RandomProjection(input_dim=64, n_components=16, seed=0)
    >>> projection(np.ones((5, 64))).shape
    (5, 16)
    >>> projection.matrix.shape
    (64, 16)
    """

    input_dim: int
    n_components: int
    seed: int
    generator: str = field(default=GENERATOR, kw_only=True, repr=False)
    is_linear = True

    def __post_init__(self) -> None:
        name = type(self).__name__
        object.__setattr__(self, "input_dim", checked_count(self.input_dim, "input_dim", of=name))
        object.__setattr__(self, "n_components", checked_count(self.n_components, "n_components", of=name))
        object.__setattr__(self, "seed", checked_seed(self.seed, of=name))
        checked_generator(self.generator, of=name)

    @cached_property
    def matrix(self) -> FloatArray:
        """R, a read-only array of shape (input_dim, n_components), drawn column by column."""
        normals = standard_normals(self.seed, "projection", self.n_components * self.input_dim)
        normals /= np.sqrt(float(self.n_components))
        normals.setflags(write=False)
        return normals.reshape(self.n_components, self.input_dim).T

    def required_dim(self) -> int:
        """Tell the number of columns: ``input_dim``."""
        return self.input_dim

    def _apply(self, X: FloatArray) -> FloatArray:
        return X @ self.matrix

    def _width(self, _d: int, /) -> int:
        return self.n_components

    def _arrays(self) -> tuple[FloatArray, ...]:
        return (self.matrix,)


def make_projection(
    n_components: int | None, dim: int, seed: int, *, without: str = "ask for 'full'"
) -> RandomProjection | None:
    """Return the public projection of ``dim`` dimensions to no more, or None for the features as they are.

    Parameters
    ----------
    n_components
        Dimensions behind it, from 1 to ``dim``.
    dim
        Dimension of the features.
    seed
        Public; draws the projection.
    without
        How one asks for the features as they are, for the sentence of a refusal.

    Examples
    --------
    >>> make_projection(16, 64, seed=3)
    RandomProjection(input_dim=64, n_components=16, seed=3)
    >>> make_projection(65, 64, seed=3)
    Traceback (most recent call last):
    fedmoments.errors.InputError: a projection has no more dimensions than the features, which have 64; 65 were ...
    """
    if n_components is None:
        return None
    if n_components > dim:
        raise InputError(
            f"a projection has no more dimensions than the features, which have {dim}; {n_components} were requested: "
            f"ask for 1 to {dim}, or {without} for the features as they are"
        )
    return RandomProjection(dim, n_components, seed)
