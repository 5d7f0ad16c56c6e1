"""How far coordinates of a class are from a Gaussian: skewness and excess kurtosis from sums of powers.

With m_g = (1/N) Σ (x−μ)^g of one class and one coordinate, skewness is m₃/m₂^1.5 and excess kurtosis m₄/m₂² − 3; both
are 0 for a Gaussian. GH-OFL (App. D, Table 9) reports mean, median and 90th percentile of their absolute values over
all classes and dimensions. A sample of a Gaussian does not have exactly 0 either: with n samples E|skewness| is about
√(2/π · 6(n−2)/((n+1)(n+3))), and that of the kurtosis likewise, so what chance alone shows is reported beside them.

Raw sums of powers cancel: of features around 1000 with a spread of 1, Σx⁴ spends 12 of its 16 digits on the offset. The
sums are moved to the class mean r by repeated differences, U_j ← U_{j+1} − r·U_j from U = (N, Σx, Σx², Σx³, Σx⁴), which
after g steps leave Σ(x−r)^g in U₀ and lose fewer digits than the binomial sum. What the sums themselves lost cannot be
brought back: an error bound of every coordinate says where nothing can be said, and such coordinates are left out and
counted, as are those that do not vary.
"""

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.gaussian import require
from fedmoments.core.linalg import EPSILON
from fedmoments.core.statistics import Statistics, StatisticsSpec

__all__ = ["Gaussianity", "Shapes", "Tail", "coordinate_shapes", "gaussianity"]

Floats = NDArray[np.float64]

NEEDS = StatisticsSpec.of("class_squares", "class_thirds", "class_fourths")

#: Kurtosis is a constant of fewer samples than this (−2 of two, −1.5 of three), whatever they are.
FEWEST = 4
#: A coordinate is left out where rounding may have moved its skewness or kurtosis by more than this share of 1 + |it|.
TOLERANCE = 0.01
#: Bars of a histogram; what is beyond the 99th percentile is counted in one number.
BARS = 24

_ORDERS = (2, 3, 4)


@dataclass(frozen=True, eq=False)
class Shapes:
    """Skewness and excess kurtosis, coordinate by coordinate, of the classes present.

    Parameters
    ----------
    skewness, kurtosis
        (p, d); NaN where they are not known.
    errors
        (p, d) bound of the rounding error of both, relative to 1 + |value|; infinite where nothing varies.
    constant, lost
        (p, d) whether a coordinate does not vary, and whether it varies but its digits were lost in the sums.
    """

    skewness: Floats
    kurtosis: Floats
    errors: Floats
    constant: NDArray[np.bool_]
    lost: NDArray[np.bool_]


def coordinate_shapes(stats: Statistics) -> Shapes:
    """Return the shape of every coordinate of every class that has at least four samples; NaN for other classes.

    Parameters
    ----------
    stats
        Class squares, thirds and fourths.

    Examples
    --------
    >>> x = np.array([[0.0], [0.0], [0.0], [8.0]])
    >>> stats = Statistics.of(x, [0, 0, 0, 0], NEEDS, n_classes=1)
    >>> shapes = coordinate_shapes(stats)
    >>> float(shapes.skewness[0, 0].round(6)), float(shapes.kurtosis[0, 0].round(6))
    (1.154701, -0.666667)
    """
    require(stats, NEEDS, "skewness and kurtosis")
    n = stats.class_counts[:, None].astype(np.float64)
    names = ("sums", "class_squares", "class_thirds", "class_fourths")
    powers = [stats.class_array(name) for name in names]
    second, third, fourth = _central_sums(n, powers)
    noise = _noise(stats, n, powers)
    enough = np.broadcast_to(n >= FEWEST, second.shape)
    constant = enough & (second <= noise[0])
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        variance = np.where(enough & ~constant, second / n, np.nan)
        skewness = third / n / variance**1.5
        kurtosis = fourth / n / variance**2 - 3.0
        share = noise[0] / n / variance
        skew_error = noise[1] / n / variance**1.5 + 1.5 * np.abs(skewness) * share
        kurt_error = noise[2] / n / variance**2 + 2.0 * np.abs(kurtosis + 3.0) * share
        errors = np.maximum(skew_error / (1 + np.abs(skewness)), kurt_error / (1 + np.abs(kurtosis)))
    errors = np.where(np.isfinite(errors), errors, np.inf)
    lost = enough & ~constant & (errors > TOLERANCE)
    known = enough & ~constant & ~lost
    return Shapes(np.where(known, skewness, np.nan), np.where(known, kurtosis, np.nan), errors, constant, lost)


def _central_sums(n: Floats, powers: list[Floats]) -> list[Floats]:
    """Return Σ(x−μ)², Σ(x−μ)³ and Σ(x−μ)⁴, each (p, d), from Σx, Σx², Σx³ and Σx⁴."""
    mean = powers[0] / n
    rows: list[Any] = [n, *powers]
    central = []
    for _ in powers:
        rows = [higher - mean * lower for lower, higher in pairwise(rows)]
        central.append(rows[0])
    return central[1:]


def _noise(stats: Statistics, n: Floats, powers: list[Floats]) -> list[Floats]:
    """Return how far rounding may have moved the sums of :func:`_central_sums`, each (p, d).

    Every term binom(g, j)·|r|^(g−j)·Σ|x|^j is at most binom(g, j)·Σ|x|^g (Hölder), and Σ|x|³ at most √(Σx²·Σx⁴). The
    errors of the sums are independent, and grow with √n: together √(Σ_j binom²) = √binom(2g, g) times ½·ε·√n·Σ|x|^g.
    Fixed point adds half a unit of the last place for every contribution: as many as rows, or no more than samples.
    """
    first, squares, _, fourths = powers
    size = [squares, np.sqrt(np.maximum(squares, 0.0) * np.maximum(fourths, 0.0)), fourths]
    noise = [
        0.5 * EPSILON * np.sqrt(math.comb(2 * g, g) * n) * np.abs(total) for g, total in zip(_ORDERS, size, strict=True)
    ]
    form = stats.fixed_point
    if form is None:
        return noise
    mean = np.abs(first / n)
    several = n
    if stats.spec.keeps_clients_apart:
        held_by = np.bincount(stats.row_labels, minlength=stats.n_classes)[stats.classes]
        several = held_by[:, None].astype(np.float64)
    half = [0.5 * form.resolution(degree) * np.sqrt(several) for degree in (1, 2, 3, 4)]
    return [
        floats + sum(math.comb(g, j) * mean ** (g - j) * half[j - 1] for j in range(1, g + 1))
        for g, floats in zip(_ORDERS, noise, strict=True)
    ]


@dataclass(frozen=True, eq=False)
class Tail:
    """Absolute values of one shape (skewness or excess kurtosis), summed up; NaN where none is known.

    Parameters
    ----------
    mean, median, p90
        Over all classes and dimensions.
    by_chance
        About what the mean would be if every coordinate were Gaussian, with as many samples.
    by_class
        (C, 3) mean, median and 90th percentile over the dimensions of every class.
    edges, counts, beyond
        Histogram: (b + 1,) edges from 0, (b,) coordinates between them, and how many are beyond the last edge.
    """

    mean: float
    median: float
    p90: float
    by_chance: float
    by_class: Floats
    edges: Floats
    counts: NDArray[np.int64]
    beyond: int

    undefined: ClassVar[tuple[str, ...]] = ("mean", "median", "p90", "by_chance")  # NaN where none is known


@dataclass(frozen=True, eq=False)
class Gaussianity:
    """How far from Gaussian the classes are.

    Parameters
    ----------
    skewness, kurtosis
        Absolute values, over classes and dimensions.
    coordinates
        How many (class, dimension) pairs that is.
    constant, lost
        Pairs left out because they do not vary, or because the sums had lost their digits to an offset.
    too_few
        Classes left out because they have fewer than four samples.
    """

    skewness: Tail
    kurtosis: Tail
    coordinates: int
    constant: int
    lost: int
    too_few: int


def gaussianity(stats: Statistics) -> Gaussianity:
    """Return how far from Gaussian the classes are, from sums of powers alone.

    Parameters
    ----------
    stats
        Class squares, thirds and fourths.

    Examples
    --------
    >>> x = np.random.default_rng(0).normal(size=(2000, 5))
    >>> shapes = gaussianity(Statistics.of(x, np.arange(2000) % 2, NEEDS, n_classes=2))
    >>> shapes.coordinates, shapes.skewness.mean < 0.1, gaussianity(
    ...     Statistics.of(np.exp(x), np.arange(2000) % 2, NEEDS, n_classes=2)).skewness.mean > 2
    (10, True, True)
    """
    shapes = coordinate_shapes(stats)
    n = stats.class_counts.astype(np.float64)
    known = np.isfinite(shapes.skewness)
    weights = known.sum(axis=1)
    return Gaussianity(
        skewness=_tail(np.abs(shapes.skewness), stats, _chance_skewness(n), weights),
        kurtosis=_tail(np.abs(shapes.kurtosis), stats, _chance_kurtosis(n), weights),
        coordinates=int(known.sum()),
        constant=int(shapes.constant.sum()),
        lost=int(shapes.lost.sum()),
        too_few=int((n < FEWEST).sum()),
    )


def _chance_skewness(n: Floats) -> Floats:
    """Return about E|skewness| of n samples of a Gaussian: normal, with the exact variance."""
    n = np.maximum(n, FEWEST)
    return np.asarray(np.sqrt(2.0 / np.pi * 6.0 * (n - 2) / ((n + 1) * (n + 3))))


def _chance_kurtosis(n: Floats) -> Floats:
    """Return about E|excess kurtosis| of n samples of a Gaussian."""
    n = np.maximum(n, FEWEST)
    variance = 24.0 * n * (n - 2) * (n - 3) / ((n + 1) ** 2 * (n + 3) * (n + 5))
    return np.asarray(np.sqrt(2.0 / np.pi * (variance + (6.0 / (n + 1)) ** 2)))


def _tail(values: Floats, stats: Statistics, chance: Floats, weights: NDArray[np.integer]) -> Tail:
    by_class = np.full((stats.n_classes, 3), np.nan)
    for label, row in zip(stats.classes.tolist(), values, strict=True):
        mine = row[np.isfinite(row)]
        if mine.size:
            by_class[label] = _three(mine)
    known = values[np.isfinite(values)]
    if not known.size:
        nothing = float("nan")
        return Tail(nothing, nothing, nothing, nothing, by_class, np.zeros(1), np.zeros(0, np.int64), 0)
    edges = _edges(float(np.quantile(known, 0.99)))
    counts, _ = np.histogram(known, bins=edges)
    by_chance = float(np.average(chance, weights=weights))
    return Tail(*_three(known), by_chance, by_class, edges, counts, int((known > edges[-1]).sum()))


def _three(values: Floats) -> tuple[float, float, float]:
    median, p90 = np.quantile(values, (0.5, 0.9))
    return float(values.mean()), float(median), float(p90)


def _edges(reach: float) -> Floats:
    """Return about as many equal steps as there are bars from 0 to at least ``reach``, each of a round width."""
    rough = max(reach, np.finfo(np.float64).tiny) / BARS
    size = 10.0 ** np.floor(np.log10(rough))
    step = float(next(factor * size for factor in (1.0, 2.0, 2.5, 5.0, 10.0) if factor * size >= rough * (1 - 1e-9)))
    return np.asarray(step * np.arange(int(np.ceil(reach / step * (1 - 1e-9))) + 1 if reach > 0 else 2))
