"""How far a share that was counted may lie from the true one."""

import math

__all__ = ["ERRORS", "standard_error", "wilson"]

#: Standard deviations of a normal distribution that hold 95 % of it.
Z95 = 1.959963984540054
#: Standard errors within which two accuracies are not told apart.
ERRORS = 2.0


def wilson(right: int, samples: int, rounding: float = 0.0) -> tuple[float, float]:
    """Return the interval of 95 % of a share by Wilson's score: it never leaves [0, 1], and serves few samples, too.

    Parameters
    ----------
    right, samples
        What was counted.
    rounding
        Variance of chance that right answers were rounded by: both ends move by as much as that may be.

    Examples
    --------
    >>> [round(end, 3) for end in wilson(9, 10)], wilson(0, 0)
    ([0.596, 0.982], (0.0, 1.0))
    >>> [round(end, 3) for end in wilson(90, 100)], [round(end, 3) for end in wilson(90, 100, 9.0)]
    ([0.826, 0.945], [0.767, 1.0])
    """
    if not samples:
        return 0.0, 1.0
    share, spare, chance = right / samples, Z95**2 / samples, Z95 * math.sqrt(rounding) / samples
    middle = (share + spare / 2) / (1 + spare)
    half = Z95 / (1 + spare) * (math.sqrt(share * (1 - share) / samples + spare / (4 * samples)))
    return max(middle - half - chance, 0.0), min(middle + half + chance, 1.0)


def standard_error(share: float, samples: int, deviation: float = 0.0, seeds: int = 1) -> float:
    """Return √(m(1 − m)/n + s²/k) of an accuracy m on n test samples, with a deviation s over k seeds.

    Examples
    --------
    >>> round(standard_error(0.9, 10_000), 4), round(standard_error(0.9, 10_000, 0.02, 4), 4)
    (0.003, 0.0104)
    """
    inside = min(max(share, 0.0), 1.0)
    return math.sqrt(inside * (1.0 - inside) / samples + deviation**2 / max(seeds, 1))
