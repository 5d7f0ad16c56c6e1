"""Clipping to a ball: z = x · min(1, R/‖x‖), which bounds what one sample can add to a moment."""

from dataclasses import dataclass

import numpy as np

from fedmoments.core.maps.base import FeatureMap, FloatArray
from fedmoments.core.maps.checks import checked_positive
from fedmoments.core.maps.norms import rescaled

__all__ = ["Clip"]


@dataclass(frozen=True)
class Clip(FeatureMap, kind="clip"):
    """Shorten every row (n, d) that is longer than ``norm`` to that Euclidean norm; keep the others bit for bit.

    Shortened rows end a few roundings, (d + 8)·2⁻⁵², below ``norm``: their norm is never above it. A row that is kept
    has a *computed* norm ≤ ``norm``; its true norm may be above by the rounding of that sum, a fraction of at most
    (d + 2)·2⁻⁵³.

    **Law** clipping twice is clipping once, bit for bit.

    Parameters
    ----------
    norm
        R, in units of the features; finite and above 0.

    Examples
    --------
    >>> Clip(1)([[3.0, 4.0], [0.3, 0.4]]).round(12).tolist()
    [[0.6, 0.8], [0.3, 0.4]]
    """

    norm: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "norm", checked_positive(self.norm, "norm", of="Clip"))

    def _apply(self, X: FloatArray) -> FloatArray:
        Y, lengths, exponents = rescaled(X)
        outside = np.ldexp(lengths, exponents) > self.norm
        if not outside.any():
            return X
        margin = (X.shape[1] + 8) * np.finfo(np.float64).eps
        clipped = X.copy()
        # First to length 1: norm / length may underflow. An infinite row is not hidden: ∞/∞ is NaN.
        clipped[outside] = Y[outside] / lengths[outside, np.newaxis] * (self.norm * (1.0 - margin))
        return clipped
