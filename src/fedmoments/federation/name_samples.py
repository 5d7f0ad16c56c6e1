"""Class names that count as samples: their features, as the terms of a federation hold them.

The features are public: whoever has the encoder and the class list can compute them. They stand in the terms, so that
every party reads what is added to the clients' sums, and a head is the same wherever it is fitted from a ledger.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedmoments.core.maps.base import FeatureMap
from fedmoments.core.maps.packing import packed, unpacked
from fedmoments.core.statistics import Statistics
from fedmoments.errors import InputError

__all__ = ["MOST_NUMBERS", "NameSamples"]

#: Terms with more numbers than this are refused: 16 MiB.
MOST_NUMBERS = 2**22


@dataclass(frozen=True)
class NameSamples:
    """One sample of each of the first n classes: the features of its name. Make it with :meth:`of`.

    Parameters
    ----------
    n
        Number of classes; those that are added to the federation later have no such sample.
    dim
        Dimension of the encoder's features, before the feature map.
    features
        (n, dim) as little-endian float32, row by row, in base64.

    Examples
    --------
    >>> NameSamples.of([[1.0, 2.0], [3.0, 4.0]]).matrix.tolist()
    [[1.0, 2.0], [3.0, 4.0]]
    """

    n: int
    dim: int
    features: str

    def __post_init__(self) -> None:
        sizes = (self.n, self.dim)
        if any(type(size) is not int or size < 1 for size in sizes) or self.n * self.dim > MOST_NUMBERS:
            raise InputError(
                f"features of class names must be at most {MOST_NUMBERS:,} numbers, one row of at least one a class, "
                f"not {self.n!r:.20} rows of {self.dim!r:.20}"
            )
        if not np.isfinite(self.matrix).all():
            raise InputError("features of class names must be finite numbers, but some are not")

    @classmethod
    def of(cls, features: ArrayLike) -> "NameSamples":
        """Return the samples of a matrix (n, dim)."""
        matrix = np.asarray(features)
        if matrix.ndim != 2:
            raise InputError(f"features of class names have the shape (n, d), but {matrix.shape} arrived")
        n, dim = matrix.shape
        return cls(n, dim, packed(matrix))

    @classmethod
    def from_dict(cls, value: Any) -> "NameSamples":
        """Read what :meth:`to_dict` wrote."""
        if not isinstance(value, Mapping) or set(value) != {"n", "dim", "features"}:
            raise InputError("features of class names must have the fields dim, features, n, and no others")
        return cls(**value)

    def to_dict(self) -> dict[str, Any]:
        """Return them ready for JSON."""
        return asdict(self)

    @cached_property
    def matrix(self) -> NDArray[np.float64]:
        """The features, a read-only array of shape (n, dim)."""
        return unpacked(self.features, (self.n, self.dim), "features of class names")

    def added_to(self, received: Statistics, feature_map: FeatureMap | None, seed: int) -> Statistics:
        """Return statistics of clients with those of the names, as if one more party held one sample of each class.

        Parameters
        ----------
        received
            What clients sent, merged; the names are measured in the same moments and the same form.
        feature_map, seed
            Of the terms.

        Examples
        --------
        >>> from fedmoments.core.statistics import StatisticsSpec
        >>> received = Statistics.of([[1.0], [2.0]], [0, 1], StatisticsSpec.of("gram"), n_classes=3)
        >>> NameSamples.of([[5.0], [6.0]]).added_to(received, None, 0).counts.tolist()
        [2, 2, 0]
        """
        mapped = self.matrix if feature_map is None else feature_map(self.matrix)
        own = Statistics.of(
            mapped,
            np.arange(self.n),
            received.spec,
            n_classes=received.n_classes,
            seed=seed,
            fixed_point=received.fixed_point,
        )
        return received + own
