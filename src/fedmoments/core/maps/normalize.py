"""Row normalisation: z = x / ‖x‖."""

from dataclasses import dataclass

import numpy as np

from fedmoments.core.maps.base import FeatureMap, FloatArray
from fedmoments.core.maps.norms import rescaled

__all__ = ["Normalize"]


@dataclass(frozen=True)
class Normalize(FeatureMap, kind="normalize"):
    """Scale every row (n, d) to Euclidean norm 1: z = x / ‖x‖. A row of zeros stays a row of zeros.

    **Law** normalising twice is normalising once (to rounding, 1e-15), and multiplying x by a positive number changes
    nothing.

    Examples
    --------
    >>> Normalize()([[3.0, 4.0], [0.0, 0.0]]).tolist()
    [[0.6, 0.8], [0.0, 0.0]]
    """

    def _apply(self, X: FloatArray) -> FloatArray:
        Y, lengths, _ = rescaled(X)
        result: FloatArray = Y / np.where(lengths == 0.0, 1.0, lengths)[:, np.newaxis]
        return result
