"""The size of the features behind statistics, and statistics of features multiplied by a power of two.

Heads square what statistics hold, some of them twice: from features of about 10^±75 on, that overflows or vanishes. A
power of two moves all numbers to where they do not, and changes no digit of them.
"""

import math
from dataclasses import replace

import numpy as np

from fedmoments.core.linalg import packed_diagonal
from fedmoments.core.statistics.moments import moment
from fedmoments.core.statistics.statistics import Statistics
from fedmoments.errors import InputError

__all__ = ["feature_exponent", "times_power"]

#: Numbers below this power of two are so near the end of float64 that their smaller neighbours lose digits.
LEAST_EXPONENT = -1000


def feature_exponent(stats: Statistics) -> int:
    """Return the power of two, e, next to the largest feature: sums of degree g are about N·2^(g·e); 0 without any.

    Raises
    ------
    InputError
        When a moment overflowed float64, or vanishes in it.

    Examples
    --------
    >>> from fedmoments.core.statistics.spec import StatisticsSpec
    >>> feature_exponent(Statistics.of([[1000.0, 1.0]], [0], StatisticsSpec.of("gram"), n_classes=1))
    10
    """
    exponents = [_exponent(stats, name) for name in stats.arrays if moment(name).degree > 0]
    exponent = max((own for own in exponents if own is not None), default=0)
    highest = max((moment(name).degree for name in stats.arrays), default=0)
    if highest > 1 and highest * exponent < LEAST_EXPONENT:
        raise InputError(
            f"features of size 2^{exponent} are so small that moments of degree {highest} vanish in float64: "
            "multiply them by a constant first"
        )
    return exponent


def _exponent(stats: Statistics, name: str) -> int | None:
    """Return the exponent of the features behind one moment; None where all of it is 0."""
    array, degree = stats.arrays[name], moment(name).degree
    entries = packed_diagonal(array) if name in ("gram", "class_grams") else array
    peak = max(float(entries.max(initial=0)), -float(entries.min(initial=0)))
    if not math.isfinite(peak):
        raise InputError(
            f"the moment '{name}' holds NaN or infinity: features were so large that it overflowed float64; "
            "multiply them by a constant first"
        )
    if peak == 0.0:
        return None
    bits = stats.fixed_point.bits(degree) if stats.fixed_point and array.dtype == np.int64 else 0
    return (math.frexp(peak / max(stats.n_samples, 1))[1] - bits) // degree


def times_power(stats: Statistics, exponent: int) -> Statistics:
    """Return the statistics, in float64, that features multiplied by 2^exponent would have: no digit changes.

    Examples
    --------
    >>> from fedmoments.core.statistics.spec import StatisticsSpec
    >>> half = times_power(Statistics.of([[3.0]], [0], StatisticsSpec.of("gram"), n_classes=1), -1)
    >>> half.sums, half.gram
    (array([[1.5]]), array([[2.25]]))
    """
    wide = stats.to_float()
    arrays = {name: np.ldexp(array, moment(name).degree * exponent) for name, array in wide.arrays.items()}
    return replace(wide, arrays=arrays, sketch_residuals=np.ldexp(wide.sketch_residuals, 2 * exponent))
