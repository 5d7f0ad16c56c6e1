"""Centring by a public vector: z = x − v."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from fedmoments.core.maps.base import FeatureMap, FloatArray
from fedmoments.errors import InputError

__all__ = ["Offset"]


@dataclass(frozen=True, init=False)
class Offset(FeatureMap, kind="offset"):
    """Subtract a vector that all parties know from every row: z = x − v.

    It keeps Σxxᵀ − N μμᵀ from cancelling when features lie far from the origin. The vector is part of the description,
    hence public: never use one party's private mean.

    Parameters
    ----------
    vector : array of shape (d,)
        v, in units of the features; finite. It is kept as a tuple of floats.

    Examples
    --------
    >>> Offset([1.0, 2.0])([[1.0, 5.0]]).tolist()
    [[0.0, 3.0]]
    """

    vector: tuple[float, ...]
    is_linear = True

    def __init__(self, vector: npt.ArrayLike) -> None:
        try:
            values = np.asarray(vector)
        except ValueError as error:  # numpy refuses lists of unequal lengths
            raise InputError(f"the vector of Offset must have shape (features,): {error}") from error
        if values.dtype.kind not in "fiu" or values.ndim != 1 or values.size == 0:
            raise InputError(
                "the vector of Offset must be real numbers of shape (features,), at least one, "
                f"but got dtype {values.dtype} and shape {values.shape}"
            )
        values = values.astype(np.float64) + 0.0  # -0.0 becomes 0.0: equal maps have equal fingerprints
        if not np.isfinite(values).all():
            where = int(np.flatnonzero(~np.isfinite(values))[0])
            raise InputError(f"the vector of Offset must be finite, but got {values[where]} at position {where}")
        object.__setattr__(self, "vector", tuple(values.tolist()))

    @cached_property
    def array(self) -> FloatArray:
        """The vector as a read-only array of shape (d,)."""
        array = np.array(self.vector, dtype=np.float64)
        array.setflags(write=False)
        return array

    def required_dim(self) -> int:
        """Tell the number of columns: the length of the vector."""
        return len(self.vector)

    def _apply(self, X: FloatArray) -> FloatArray:
        return X - self.array

    def _arrays(self) -> tuple[FloatArray, ...]:
        return (self.array,)
