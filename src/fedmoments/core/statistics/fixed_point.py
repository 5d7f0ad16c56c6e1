"""The canonical form of a merged statistic: int64 with a public power-of-two scale per moment.

A number v of a moment of degree g is stored as round(v · 2^bits(g)). With ‖x‖ ≤ R and at most N samples in the whole
federation no entry of a sum can exceed N·R^g, so the most bits with N·R^g·2^bits ≤ 2⁶² are used and **no sum of valid
contributions can overflow**. That bound is checked on every contribution and on every merge. Integer sums do not
depend on the order of the summands, and subtracting undoes adding, bit for bit.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.errors import FixedPointOverflowError, InputError

__all__ = ["SLACK", "FixedPoint"]

#: Sums stay within ±2⁶², one bit short of int64, so that even a doubled sum can be recognised instead of wrapping.
RANGE_BITS = 62
#: Norms outside would leave fourth moments no digits at all.
MIN_NORM, MAX_NORM = 1e-12, 1e12
#: Features that were normalised in float32 exceed a bound by rounding: by this share a sum may exceed its bound. Sums
#: of at most 2⁶²·(1 + SLACK) still fit int64.
SLACK = 1e-5
#: Finer than this no float64 feature is known to need.
MAX_BITS = 52


@dataclass(frozen=True)
class FixedPoint:
    """A public agreement on range and resolution.

    Parameters
    ----------
    norm_bound
        R: every feature vector has a Euclidean norm of at most R (in the features' own unit).
    max_samples
        N: the whole federation has at most this many samples.

    Examples
    --------
    >>> form = FixedPoint(norm_bound=1.0, max_samples=1_000_000)
    >>> form.bits(1), form.resolution(1)
    (42, 2.2737367544323206e-13)
    """

    norm_bound: float = 1024.0
    max_samples: int = 2**24

    def __post_init__(self) -> None:
        if not MIN_NORM <= self.norm_bound <= MAX_NORM:
            raise InputError(f"norm_bound must be a number from {MIN_NORM:g} to {MAX_NORM:g}, not {self.norm_bound}")
        if self.max_samples < 1:
            raise InputError(f"max_samples must be 1 or more, not {self.max_samples}")

    def bits(self, degree: int) -> int:
        """Return how many bits stand behind the binary point for a moment that grows as ‖x‖^degree."""
        bound = math.log2(self.max_samples) + degree * math.log2(self.norm_bound)
        return min(MAX_BITS, math.floor(RANGE_BITS - bound))

    def resolution(self, degree: int) -> float:
        """Return the distance of neighbouring numbers, 2^−bits."""
        return math.ldexp(1.0, -self.bits(degree))

    def quantize(
        self, values: NDArray[np.float64], degree: int, counts: NDArray[np.int64], what: str
    ) -> NDArray[np.int64]:
        """Round sums over ``counts`` samples to int64, refusing any that the norm bound forbids.

        Parameters
        ----------
        values
            (…) sums of powers of features.
        degree
            Power of the features.
        counts
            How many samples each value sums over; broadcasts against ``values``.
        what
            Name of the moment, for the message.
        """
        allowed = counts * self.norm_bound**degree * (1 + SLACK)
        by_row = values.ndim > 0 and (np.ndim(counts) == 0 or np.shape(counts)[-1] == 1)
        largest = _largest(values) if by_row else np.abs(values)
        excess = largest > allowed
        if excess.any():
            worst = float(largest[excess].max())
            raise FixedPointOverflowError(
                f"moment '{what}' holds {worst:.6g}, more than its count times norm_bound**{degree} allows "
                f"(norm_bound={self.norm_bound:g}): agree on a larger norm_bound, or clip features to it"
            )
        scaled = values * math.ldexp(1.0, self.bits(degree))  # exact, and faster than numpy's ldexp
        return np.rint(scaled, out=scaled).astype(np.int64)

    def dequantize(self, values: NDArray[Any], degree: int) -> NDArray[np.float64]:
        """Return the float64 numbers that the integers stand for."""
        return values.astype(np.float64) * math.ldexp(1.0, -self.bits(degree))

    def check_total(self, total: int) -> None:
        """Refuse a merged statistic of more samples than were agreed on."""
        if total > self.max_samples:
            raise FixedPointOverflowError(
                f"together these contributions hold {total} samples, more than the agreed max_samples="
                f"{self.max_samples}: agree on a larger one and measure again"
            )


def _largest(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the largest size of a number in every row, (…, w) -> (…, 1), without a copy of the rows."""
    high: NDArray[np.float64] = values.max(axis=-1, initial=0.0, keepdims=True)
    low: NDArray[np.float64] = values.min(axis=-1, initial=0.0, keepdims=True)
    return np.asarray(np.maximum(high, -low))
