"""How far a share that was counted may lie from the true one."""

import math

__all__ = ["wilson"]

#: Standard deviations of a normal distribution that hold 95 % of it.
Z95 = 1.959963984540054


def wilson(right: int, samples: int) -> tuple[float, float]:
    """Return the interval of 95 % of a share by Wilson's score: it never leaves [0, 1], and serves few samples, too.

    Examples
    --------
    >>> [round(end, 3) for end in wilson(9, 10)], wilson(0, 0)
    ([0.596, 0.982], (0.0, 1.0))
    """
    if not samples:
        return 0.0, 1.0
    share, spare = right / samples, Z95**2 / samples
    middle = (share + spare / 2) / (1 + spare)
    half = Z95 / (1 + spare) * (math.sqrt(share * (1 - share) / samples + spare / (4 * samples)))
    return max(middle - half, 0.0), min(middle + half, 1.0)
