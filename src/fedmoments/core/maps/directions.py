"""Features in a few orthonormal directions that somebody computed and all parties know: z = xQ, QᵀQ = I.

A server that has learned where classes differ (``core.gaussian.fisher``) may ask for statistics in those directions
alone. Whoever applies the map trusts nobody for it: columns are checked to be orthonormal, so that no sample is
stretched or singled out by scale, and they are few.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from fedmoments.core.maps.base import FeatureMap, FloatArray
from fedmoments.core.maps.checks import checked_count
from fedmoments.core.maps.packing import packed, unpacked
from fedmoments.errors import InputError

__all__ = ["MOST_DIRECTIONS", "Directions"]

#: More columns than this are refused, as are more than go in.
MOST_DIRECTIONS = 256
#: Columns of float32 are orthonormal up to this.
TOLERANCE = 1e-4


@dataclass(frozen=True)
class Directions(FeatureMap, kind="directions"):
    """Project rows (n, d) on k orthonormal columns: (n, k). Make one with :meth:`of`.

    Parameters
    ----------
    input_dim
        d, the number of feature columns.
    n_components
        k, from 1 to :data:`MOST_DIRECTIONS` and d.
    columns
        Q (d, k) as little-endian float32, row by row, in base64.

    Examples
    --------
    >>> Directions.of([[3.0], [4.0]])([[3.0, 4.0]]).round(6).tolist()
    [[5.0]]
    >>> Directions(2, 1, Directions.of([[1.0], [0.0]]).columns)([[7.0, 9.0]]).tolist()
    [[7.0]]
    """

    input_dim: int
    n_components: int
    columns: str

    def __post_init__(self) -> None:
        d, k = (checked_count(value, name, of="Directions") for name, value in self._sizes())
        if k > min(d, MOST_DIRECTIONS):
            raise InputError(
                f"Directions has at most {MOST_DIRECTIONS} columns, and no more than the {d} that go in, but got {k}"
            )
        Q = self.matrix
        if not np.isfinite(Q).all() or np.abs(Q.T @ Q - np.eye(k)).max() > TOLERANCE:
            raise InputError(
                "the columns of Directions must be orthonormal, so that no sample is stretched, but these are not: "
                "make the map with Directions.of"
            )

    def _sizes(self) -> tuple[tuple[str, int], ...]:
        return ("input_dim", self.input_dim), ("n_components", self.n_components)

    @classmethod
    def of(cls, basis: npt.ArrayLike) -> "Directions":
        """Return the map to the span of the columns of a basis (d, k), made orthonormal; their order is kept.

        The first column of the basis is, up to its length, the first direction, and so on (Gram and Schmidt).
        """
        given = np.asarray(basis, np.float64)
        if given.ndim != 2 or not given.size:
            raise InputError(f"a basis of directions has the shape (d, k), but {given.shape} arrived")
        lengths = np.linalg.norm(given, axis=0)
        columns, upper = np.linalg.qr(given / np.where(lengths > 0, lengths, 1.0))
        if np.abs(np.diagonal(upper)).min() < TOLERANCE or given.shape[1] > given.shape[0]:
            raise InputError("the columns of a basis of directions must not depend on each other, but these do")
        signed = columns * np.sign(np.diagonal(upper))
        d, k = given.shape
        return cls(d, k, packed(signed))

    @cached_property
    def matrix(self) -> FloatArray:
        """Q, a read-only array of shape (input_dim, n_components)."""
        return unpacked(self.columns, (self.input_dim, self.n_components), "the columns of Directions")

    @property
    def is_linear(self) -> bool:
        """True."""
        return True

    def required_dim(self) -> int:
        """Tell the number of columns: ``input_dim``."""
        return self.input_dim

    def _apply(self, X: FloatArray) -> FloatArray:
        return X @ self.matrix

    def _width(self, _d: int, /) -> int:
        return self.n_components

    def _arrays(self) -> tuple[FloatArray, ...]:
        return (self.matrix,)
