"""The bandwidth of an RBF kernel from statistics alone.

The median heuristic sets σ to the median distance between two samples. Distances are not in the statistics, but their
mean square is: over all pairs of distinct samples,

    mean ‖x − x′‖² = 2·tr(Σ_total),    Σ_total = (Σxxᵀ − N μμᵀ)/(N − 1),    tr Σxxᵀ = Σ‖x‖²,

and in many dimensions distances concentrate, so that the median is close to the root of that mean. The convention here
is **σ = √(2·tr Σ_total)**, without a further factor ½: at σ, a typical pair has kernel value exp(−½) = 0.61.
"""

import math

import numpy as np
import numpy.typing as npt

from fedmoments.errors import InputError, NotEnoughDataError

__all__ = ["median_bandwidth"]


def median_bandwidth(counts: npt.ArrayLike, sums: npt.ArrayLike, squared_norm_total: float) -> float:
    """Estimate σ for `RandomFourier`: the root mean square distance of two distinct samples.

    Parameters
    ----------
    counts : int, or array of shape (C,)
        N, or the samples of each class; at least 2 in all.
    sums : array of shape (d,) or (C, d)
        Σx over all samples, or of each class; in units of the features.
    squared_norm_total
        Σ‖x‖² over all samples: the trace of the gram, or the sum of all class squares.

    Returns
    -------
    float
        σ, in units of the features (of what goes into `RandomFourier`: measure after the maps before it).

    Notes
    -----
    Σ‖x‖² − ‖Σx‖²/N loses digits when features lie far from the origin; use `Offset` first. When nothing but rounding
    is left, or all samples are equal, this raises NotEnoughDataError.

    Examples
    --------
    >>> X = np.array([[0.0, 0.0], [3.0, 4.0]])  # one pair, at distance 5
    >>> median_bandwidth(len(X), X.sum(axis=0), float((X**2).sum()))
    5.0
    """
    count, total = _totals(counts, sums)
    squares = float(squared_norm_total)
    if not (math.isfinite(squares) and squares >= 0):
        raise InputError(f"squared_norm_total must be a finite number of at least 0, but got {squared_norm_total!r}")
    if count < 2:
        raise NotEnoughDataError(f"the bandwidth needs at least 2 samples in all, but counts sum to {count:g}")
    scatter = squares - float(total @ total) / count
    rounding = (total.size + count) * np.finfo(np.float64).eps * squares
    if abs(scatter) <= min(rounding, 1e-6 * squares):
        raise NotEnoughDataError(
            "the samples do not differ from each other beyond rounding, so they give no bandwidth: "
            "pass a bandwidth by hand, or subtract a public vector with Offset if features lie far from the origin"
        )
    if scatter < 0:
        raise InputError(
            f"squared_norm_total is {squares:g}, less than ‖sums‖²/N = {float(total @ total) / count:g}, which no "
            "samples have; the three must be measured on the same samples, after the same feature map"
        )
    return math.sqrt(2.0 * scatter / (count - 1))


def _totals(counts: npt.ArrayLike, sums: npt.ArrayLike) -> tuple[float, npt.NDArray[np.float64]]:
    numbers = np.asarray(counts, dtype=np.float64)
    vectors = np.asarray(sums, dtype=np.float64)
    if numbers.ndim > 1 or not np.isfinite(numbers).all() or (numbers < 0).any():
        raise InputError(
            f"counts must be a number of samples or one for each class, finite and at least 0, "
            f"but got shape {numbers.shape} with values {numbers.ravel()[:5].tolist()} …"
        )
    if vectors.ndim not in (1, 2) or vectors.shape[-1] == 0 or not np.isfinite(vectors).all():
        raise InputError(f"sums must be finite, of shape (d,) or (C, d), but got shape {vectors.shape}")
    return float(numbers.sum()), vectors if vectors.ndim == 1 else vectors.sum(axis=0)
