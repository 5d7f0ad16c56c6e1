"""One client's samples under the terms of a federation: what its rules choose among, and what is measured."""

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.linalg import blocks
from fedmoments.core.statistics import Accumulator, Statistics
from fedmoments.federation.outbox.differences import sample_keys
from fedmoments.federation.terms import Terms
from fedmoments.privacy.rare_values import Shown, repeated_classes

__all__ = ["Held"]


@dataclass(frozen=True, eq=False)
class Held:
    """One client's features (n, d), as the encoder gives them, and labels (n,), in the order of the terms' classes.

    Examples
    --------
    >>> held = Held(np.array([[1.0], [1.0], [2.0], [3.0]]), np.array([0, 0, 1, 1]))
    >>> held.repeated(fewest=2), len(held.take(held.y == 1).keys())
    ([0], 24)
    """

    X: NDArray[np.floating[Any]]
    y: NDArray[np.int64]

    def digest(self) -> str:
        """Return the SHA-256 of features and labels."""
        sha = hashlib.sha256(f"{self.X.dtype.str}{self.X.shape}".encode())
        sha.update(np.ascontiguousarray(self.X).data)
        sha.update(self.y.tobytes())
        return sha.hexdigest()

    def keys(self) -> bytes:
        """Return what tells these samples apart, 12 bytes each."""
        return sample_keys(self.X, self.y)

    def take(self, mask: NDArray[np.bool_]) -> "Held":
        """Return some of the samples."""
        return self if mask.all() else Held(self.X[mask], self.y[mask])

    def repeated(self, fewest: int) -> list[int]:
        """Return the classes of which fewer than ``fewest`` samples differ."""
        return repeated_classes(self.X, self.y, fewest)

    def shown(self, terms: Terms, fewest: int) -> Shown:
        """Return the features behind the terms' map, without values that fewer than ``fewest`` of a class have."""
        return Shown(self.X, self.y, terms.fingerprint.feature_map, terms.spec.moments, fewest)

    def measured(self, terms: Terms, shown: Shown) -> Statistics:
        """Return the statistics of these samples, as they are shown."""
        accumulator = Accumulator(terms.spec, n_classes=len(terms.classes), dim=terms.dim, seed=terms.seed)
        for block in blocks(len(self.y)):
            accumulator.update(shown[block], self.y[block])
        return accumulator.statistics()
