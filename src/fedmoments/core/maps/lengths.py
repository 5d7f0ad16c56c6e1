"""Whether the length of features varies by itself, so that samples are compared by direction.

The vector of a text is often a mean of word vectors: the more words, the shorter it is. An image excites a network more
or less as a whole. Such a sample is x = s·z with a factor s of its own, which no Gaussian class knows: long samples
spread out every covariance and weigh most in every mean. Scaling x to length 1 removes s; it costs one direction of the
spread.

Length varies without any such factor, too. Of Gaussian samples of class c, ‖x‖² has the variance 2·tr Σ² + 4·μ_cᵀΣμ_c,
so that log ‖x‖ has, to first order,

    v₀ = Σ_c π_c (tr Σ² + 2·μ_cᵀΣμ_c) / (2·(E_c‖x‖²)²).

A client measures tr Σ²/(E‖x‖²)² as the mean of (r_i·r_j)² over samples of two classes, r = (x − μ_c)/√(E_c‖x‖²), and
for μ_cᵀΣμ_c takes how far samples spread along the means of *other* classes, times ‖μ_c‖²: along their own mean they
spread by the factor s, too. All products are of independent samples, so that few of them are right on average, once
divided by 1 − 1/n for each mean of n that was subtracted. A client with a single class cannot tell v₀.

Rows are scaled where log ‖x‖ varies twice as much inside classes as v₀, and by a tenth or more; where classes explain
less than half of its variance, for else the length tells the class; and where v₀ is small enough for its formula: in
few dimensions a direction more or less counts. The variance over v₀ is 9 to 21 with means of word vectors, 2.1 to 4.5
behind SqueezeNet and MobileNetV2, 1.1 behind EfficientNet-Lite0, 0.5 to 1.7 in tables and of Gaussians, and 0 where
features have length 1.

**Laws** multiplying features by a constant, or rotating them, changes nothing; neither does the order of samples.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.maps.norms import rescaled

__all__ = ["Lengths", "lengths_vary"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: How many times as much as of Gaussian classes the logarithm of the length varies, and by how much at least.
TIMES, LEAST = 2.0, 0.1
#: Share of that variance which classes may explain.
EXPLAINED = 0.5
#: v₀ at most: a formula of first order.
FIRST_ORDER = 0.0625
#: Samples of which all pairs are looked at.
MOST_SAMPLES = 512
#: Below every squared length.
TINY = np.finfo(np.float64).tiny


@dataclass(frozen=True)
class Lengths:
    """What one client tells of the lengths of its features: four numbers, and how many samples are behind them.

    Parameters
    ----------
    n_samples
        Samples that are not 0.
    mean, squares
        Of log ‖x‖: the mean, and the sum of squared deviations from it.
    within, dof
        The sum of squared deviations from class means, and its degrees of freedom.
    chance, chance_dof
        v₀, the variance of log ‖x‖ inside Gaussian classes of the same means and spread, and the degrees of freedom
        that it was measured from.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> directions, y = rng.normal(size=(300, 50)) + 0.5, np.arange(300) % 3
    >>> [lengths_vary([Lengths.of(directions * scale, y)]) for scale in (1.0, rng.uniform(0.3, 3.0, (300, 1)))]
    [False, True]
    """

    n_samples: int = 0
    mean: float = 0.0
    squares: float = 0.0
    within: float = 0.0
    dof: int = 0
    chance: float = 0.0
    chance_dof: int = 0

    @classmethod
    def of(cls, X: Floats, y: NDArray[np.generic]) -> "Lengths":
        """Measure features X (n, d) with labels y (n,)."""
        if not X.size:
            return cls()
        scaled, lengths, exponents = rescaled(X)
        alive = lengths > 0.0
        if not alive.any():
            return cls()
        units = exponents[alive] * np.log(2.0)
        logs = np.log(lengths[alive]) + units
        # Of length about 1, so that nothing overflows.
        X = scaled[alive] * np.exp(np.clip(units - logs.mean(), -300.0, 300.0))[:, None]
        _, places, counts = np.unique(np.asarray(y)[alive], return_inverse=True, return_counts=True)
        away = logs - (np.bincount(places, logs) / counts)[places]
        return cls(
            len(logs),
            float(logs.mean()),
            float(np.square(logs - logs.mean()).sum()),
            float(away @ away),
            len(logs) - len(counts),
            *_chance(X, places, logs),
        )


def _chance(X: Floats, places: Ints, logs: Floats) -> tuple[float, int]:
    """Return v₀ of samples X (n, d) of the classes ``places``, and its degrees of freedom; 0 where it is unknown."""
    sizes = np.bincount(places).astype(np.float64)
    dof = sizes - 1.0
    if np.count_nonzero(dof) < 2:
        return 0.0, 0
    means = np.zeros((len(sizes), X.shape[1]))
    np.add.at(means, places, X)
    means /= sizes[:, None]
    away = X - means[places]
    # In units of its own class, so that one long sample does not make other classes seem wide.
    own = np.maximum(np.bincount(places, np.square(X).sum(axis=1)) / sizes, TINY)
    # By content, so that the order of samples does not matter.
    some = np.argsort(logs, kind="stable")[:: -(-len(X) // MOST_SAMPLES)]
    unit = away[some] / np.sqrt(own)[places[some], None]
    worth = (dof / sizes)[places[some]]
    other = places[some][:, None] != places[some]
    pairs = float(np.outer(worth, worth)[other].sum())
    if not pairs > 0.0:  # those that are looked at are of one class
        return 0.0, 0
    square = float(np.square(unit @ unit.T)[other].sum()) / pairs
    lengths = np.square(means).sum(axis=1)
    along = np.square(unit @ (means / np.sqrt(np.maximum(lengths, TINY))[:, None]).T)
    rivals = places[some][:, None] != np.arange(len(sizes))
    spread = float(along[rivals].sum() / np.broadcast_to(worth[:, None], rivals.shape)[rivals].sum())
    noise = np.bincount(places, np.square(away).sum(axis=1)) / np.maximum(dof, 1.0) / sizes
    chance = 0.5 * square + spread * np.maximum(lengths - noise, 0.0) / own
    return float(dof @ chance / dof.sum()), int(dof.sum())


def lengths_vary(told: Iterable[Lengths]) -> bool:
    """Say whether lengths vary by themselves, by what all clients tell.

    Examples
    --------
    >>> one = Lengths(n_samples=100, mean=0.0, squares=9.0, within=8.0, dof=98, chance=0.01, chance_dof=96)
    >>> lengths_vary([one]), lengths_vary([]), lengths_vary([Lengths(100, 0.0, 9.0, 3.0, 98, 0.01, 96)])
    (True, False, False)
    """
    every = [each for each in told if each.n_samples]
    known = sum(each.chance_dof for each in every)
    if not known:
        return False
    within = sum(each.within for each in every) / sum(each.dof for each in every)
    chance = sum(each.chance_dof * each.chance for each in every) / known
    enough = within >= max(TIMES * chance, LEAST**2) and chance <= FIRST_ORDER
    return bool(enough and within >= (1.0 - EXPLAINED) * _variance(every))


def _variance(every: Sequence[Lengths]) -> float:
    """Return the variance of all samples' lengths."""
    sizes = [lengths.n_samples for lengths in every]
    middle = float(np.average([lengths.mean for lengths in every], weights=sizes))
    return float(
        sum(lengths.squares + lengths.n_samples * (lengths.mean - middle) ** 2 for lengths in every) / sum(sizes)
    )
