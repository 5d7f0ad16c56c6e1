"""Drawn worlds for the laws: populations with known moments, features of many classes, and ways to hand them out."""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedmoments.core.observations import Scalar
from fedmoments.core.statistics import FixedPoint, Ledger, Statistics, StatisticsSpec
from fedmoments.errors import InputError, UnknownNameError
from fedmoments.samples import parse_split

__all__ = [
    "ONE_CLASS",
    "ONE_SAMPLE",
    "Finding",
    "Population",
    "class_features",
    "draw_classes",
    "joined",
    "make_population",
    "partition",
    "relative",
]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
#: What a law finds at one place: place, quantity, value.
Finding = tuple[dict[str, Scalar], str, float]

#: Partitions that are not scheme of a split.
ONE_CLASS, ONE_SAMPLE = "one class a client", "one sample a client"
#: Excess kurtosis of the independent coordinates that features are mixed from.
_KURTOSIS = {"gaussian": 0.0, "exponential": 6.0}
#: Numbers that are drawn at a time.
_BATCH = 1 << 21


@dataclass(frozen=True, eq=False)
class Population:
    """Features x = μ + L u of one class, with independent coordinates u of mean 0 and variance 1.

    Parameters
    ----------
    mean
        μ, (d,).
    root
        L, (d, d); the covariance is LLᵀ.
    shape
        Of u: ``gaussian``, or ``exponential`` for skewed features with heavy tails.

    Examples
    --------
    >>> flat = Population(np.zeros(2), np.eye(2))
    >>> flat.error_of_free(5, 3)  # (tr(Σ)² + tr(Σ²))/(K − 1) = 6/4, relative to ‖Σ‖² = 2
    0.8660254037844386
    """

    mean: Floats
    root: Floats
    shape: str = "gaussian"

    def __post_init__(self) -> None:
        if self.shape not in _KURTOSIS:
            raise UnknownNameError("shape of features", self.shape, _KURTOSIS)

    @property
    def dim(self) -> int:
        """Dimensions d."""
        return len(self.mean)

    @property
    def covariance(self) -> Floats:
        """Σ, (d, d)."""
        return np.asarray(self.root @ self.root.T)

    def draw(self, rng: np.random.Generator, n: int) -> Floats:
        """Return n samples, (n, d)."""
        if self.shape == "gaussian":
            plain = rng.standard_normal((n, self.dim))
        else:
            plain = rng.exponential(size=(n, self.dim)) - 1.0
        return np.asarray(plain @ self.root.T + self.mean)

    def error_of_free(self, clients: int, samples: int) -> float:
        """Return the root mean square error of the free covariance, ‖Σ̂−Σ‖, relative to ‖Σ‖ (Frobenius norms).

        √n μ_k are K independent draws with covariance Σ and 1/n of the fourth cumulants of the features, and Σ̂ is
        their sample covariance: E‖Σ̂−Σ‖² = (tr(Σ)² + tr(Σ²))/(K−1) + κ Σ_a (LᵀL)²_aa /(nK), with κ = 0 for Gaussian
        features (their error does not depend on n, nor on how unequal the n_k are) and 6 for exponential ones.

        Parameters
        ----------
        clients
            K.
        samples
            n, the same at every client.
        """
        square = float(np.sum(self.covariance**2))
        spread = (float(np.trace(self.covariance)) ** 2 + square) / (clients - 1)
        tails = _KURTOSIS[self.shape] * float(np.sum(np.sum(self.root**2, axis=0) ** 2)) / (samples * clients)
        return float(np.sqrt((spread + tails) / square))


def make_population(rng: np.random.Generator, dim: int, shape: str = "gaussian") -> Population:
    """Return a population with variances 1, 1/2, …, 1/d along random axes.

    Examples
    --------
    >>> found = make_population(np.random.default_rng(0), 4)
    >>> np.linalg.eigvalsh(found.covariance).round(6)[::-1]
    array([1.      , 0.5     , 0.333333, 0.25    ])
    """
    axes = np.linalg.qr(rng.standard_normal((dim, dim)))[0]
    return Population(rng.standard_normal(dim), axes / np.sqrt(np.arange(1, dim + 1)), shape)


def draw_classes(
    populations: Sequence[Population], sizes: Sequence[int], draws: int, spec: StatisticsSpec, rng: np.random.Generator
) -> Iterator[Statistics]:
    """Yield statistics of a federation in which every class is one more draw of the same class.

    Parameters
    ----------
    populations
        One a client: what its samples are drawn from.
    sizes
        (K,) samples of the class at every client; 0 where a client lacks it.
    draws
        How many classes, in all.
    spec
        What clients measure.
    rng
        Advanced.
    """
    numbers = max(sum(sizes), 1) * populations[0].dim
    batch = max(1, min(draws, _BATCH // numbers))
    for start in range(0, draws, batch):
        n = min(batch, draws - start)
        X = np.concatenate(
            [population.draw(rng, n * size) for population, size in zip(populations, sizes, strict=True)]
        )
        y = np.concatenate([np.repeat(np.arange(n), size) for size in sizes])
        holders = np.repeat(np.arange(len(sizes)), [n * size for size in sizes])
        yield Ledger.of(X, y, holders, spec, n_classes=n, names=range(len(sizes))).statistics()


def class_features(
    rng: np.random.Generator, *, samples: int, dim: int, classes: int, offset: float = 0.0
) -> tuple[Floats, Ints]:
    """Return features (n, d) and labels (n,) of classes with means and covariances of their own.

    Class sizes differ; the last class has a single sample.

    Parameters
    ----------
    rng
        Advanced.
    samples, dim, classes
        n, d and C.
    offset
        How far all features are from the origin, in every dimension.

    Examples
    --------
    >>> X, y = class_features(np.random.default_rng(0), samples=50, dim=3, classes=4)
    >>> X.shape, int((y == 3).sum()), sorted(set(y.tolist()))
    ((50, 3), 1, [0, 1, 2, 3])
    """
    shares = np.arange(1, classes)[::-1] / np.arange(1, classes).sum()
    # Two samples of every other class at least, so that all have a covariance.
    y = np.concatenate([np.repeat(np.arange(classes - 1), 2), [classes - 1]])
    y = rng.permutation(np.concatenate([y, rng.choice(classes - 1, samples - len(y), p=shares)]))
    X = np.empty((samples, dim))
    for label in range(classes):
        X[y == label] = make_population(rng, dim).draw(rng, int((y == label).sum()))
    return X + offset, y.astype(np.int64)


def partition(name: str, y: Ints, clients: int, seed: int) -> Ints:
    """Return who holds which sample, (n,).

    Parameters
    ----------
    name
        A scheme of a split, ``one class a client`` or ``one sample a client``.
    y
        (n,) labels.
    clients
        How many, for schemes that need a number.
    seed
        Of the split.

    Examples
    --------
    >>> partition("one class a client", np.array([0, 2, 0]), 5, 0).tolist()
    [0, 2, 0]
    """
    if name == ONE_CLASS:
        return y
    if name == ONE_SAMPLE:
        return np.arange(len(y))
    split = parse_split(name).apply(y, clients, seed)
    if len(split.dropped):
        raise InputError(
            f"a partition hands out every sample, but '{name}' drops {len(split.dropped)} of {len(y)}: choose a number "
            f"of clients that divides them, not {clients}"
        )
    return split.clients


def joined(
    X: ArrayLike,
    y: Ints,
    holders: Ints,
    spec: StatisticsSpec,
    *,
    n_classes: int,
    order: Iterable[int] | None = None,
    fixed_point: FixedPoint | None = None,
) -> Ledger:
    """Return the ledger of clients that measure one by one and join in some order (by number, by default).

    Examples
    --------
    >>> spec = StatisticsSpec()
    >>> y, holders = np.array([0, 1, 1]), np.array([4, 4, 7])
    >>> joined(np.ones((3, 2)), y, holders, spec, n_classes=2, order=[7, 4]).clients
    (7, 4)
    """
    features = np.asarray(X, np.float64)
    ledger = Ledger(spec, n_classes=n_classes, dim=features.shape[1], fixed_point=fixed_point)
    clients: Iterable[Hashable] = np.unique(holders).tolist() if order is None else order
    for client in clients:
        mine = holders == client
        part = Statistics.of(features[mine], y[mine], spec, n_classes=n_classes, fixed_point=fixed_point)
        ledger.join(client, part)
    return ledger


def relative(measured: ArrayLike, right: ArrayLike, scale: float | None = None) -> float:
    """Return the largest difference of two arrays, relative to a scale: the largest number of the second, by default.

    Examples
    --------
    >>> relative([1.0, 4.5], [1.0, 5.0])
    0.1
    """
    one, other = np.asarray(measured, np.float64), np.asarray(right, np.float64)
    size = float(np.abs(other).max(initial=0.0)) if scale is None else scale
    return float(np.abs(one - other).max(initial=0.0)) / (size or 1.0)
