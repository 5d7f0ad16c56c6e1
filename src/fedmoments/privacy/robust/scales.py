"""Robust yardsticks: how far is far, when some of the numbers are an attacker's.

A distance² r that averages over n samples scatters around s²·(ρ + v + 1/n): 1/n from its own samples, v from those of
the centre that it is measured from, ρ from differences between honest clients that no number of samples averages away.
On the logarithmic scale that is one unknown shift, log s², and the ratio ρ is the one that makes the logarithms most
alike: the median of their absolute deviations from their median (MAD) is least. Medians need an honest majority only,
and nothing depends on the unit of the features.
"""

import math

import numpy as np
from numpy.typing import NDArray

__all__ = ["NORMAL", "excess", "mad", "own_share"]

Floats = NDArray[np.float64]

#: Standard deviation of a normal distribution in units of its median absolute deviation.
NORMAL = 1.4826022185056018
#: Ratios ρ that are tried, as shares of a single sample's variance.
RATIOS = (0.0, *(2.0**power for power in range(-12, 5)))


def mad(values: Floats) -> tuple[float, float]:
    """Return the median, and the standard deviation that the median absolute deviation from it implies.

    Examples
    --------
    >>> centre, spread = mad(np.array([1.0, 2.0, 3.0, 4.0, 1000.0]))
    >>> centre, round(spread, 3)
    (3.0, 1.483)
    """
    centre = float(np.median(values))
    return centre, NORMAL * float(np.median(np.abs(values - centre)))


def excess(distances: Floats, variances: Floats) -> Floats:
    """Return log(r/(s²·(ρ + variance))) of every squared distance, the median being 0: see the module.

    Parameters
    ----------
    distances
        (m,) squared distances r, in the square of any unit; 0 where there is none.
    variances
        (m,) their expectation without differences between clients, v + 1/n, in units of one sample's variance.

    Examples
    --------
    >>> excess(np.array([4.0, 1.0, 0.25, 64.0]), np.array([4.0, 1.0, 0.25, 1.0])).round(3)
    array([0.   , 0.   , 0.   , 4.159])
    """
    if not len(distances):
        return np.zeros(0)
    logs = np.log(np.maximum(distances, np.finfo(np.float64).tiny))
    deviations: Floats = np.zeros(len(logs))
    best = math.inf
    for ratio in RATIOS:
        tried = logs - np.log(ratio + variances)
        centre, spread = mad(tried)
        if spread < best * (1 - 1e-9):
            best, deviations = spread, tried - centre
    return deviations


def own_share(scores: Floats, sizes: Floats, spread: float) -> Floats:
    """Return how ``scores`` (K,), means of ``sizes`` (K,) numbers of spread ``spread``, scatter, as (K,).

    √(a² + spread²/size): the numbers of one client share the part a², which is what the scores scatter beyond spread.

    Examples
    --------
    >>> own_share(np.array([-1.0, 0.0, 1.0]), np.array([4.0, 4.0, 4.0]), 1.0).round(3)
    array([1.483, 1.483, 1.483])
    """
    _, whole = mad(scores)
    shared = max(whole**2 - spread**2 * float(np.median(1.0 / sizes)), 0.0)
    return np.sqrt(shared + spread**2 / sizes)
