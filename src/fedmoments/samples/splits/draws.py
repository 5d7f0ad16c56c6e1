"""Random draws for the splits: the same on every numpy release.

numpy keeps the raw stream of a bit generator fixed for good, but lets the streams of the distributions (gamma,
multinomial, permutation …) change between releases. So everything here is made from uniform numbers alone, and an
integer seed always means PCG64: a split stays the same when numpy is upgraded.

Dirichlet proportions stay in logarithms until they are used. For α = 0.001 most of the proportions are below
1e-308; as numbers they would be zero, and a client that may take only from those classes would divide zero by zero.
"""

import math
from numbers import Integral, Real

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedmoments.errors import InputError

__all__ = [
    "Seed",
    "apportion",
    "check_alpha",
    "check_count",
    "check_keys",
    "even_sizes",
    "generator",
    "log_dirichlet",
    "multinomial",
    "shuffle",
]


def check_count(value: object, what: str, *, least: int = 1) -> int:
    """Return a whole number that is at least `least`.

    Examples
    --------
    >>> check_count(3, "n_clients")
    3
    >>> check_count(0, "n_clients")
    Traceback (most recent call last):
    ...
    fedmoments.errors.InputError: n_clients must be a whole number of at least 1, but is 0
    """
    if isinstance(value, bool | np.bool_) or not isinstance(value, Integral) or int(value) < least:
        raise InputError(f"{what} must be a whole number of at least {least}, but is {value!r}")
    return int(value)


def check_alpha(value: object, *, zero: bool) -> float:
    """Return a Dirichlet concentration: finite and positive, or zero too where a scheme gives it a meaning.

    Examples
    --------
    >>> check_alpha(1, zero=False)
    1.0
    >>> check_alpha(-0.5, zero=True)
    Traceback (most recent call last):
    ...
    fedmoments.errors.InputError: alpha must be a finite number of at least 0, but is -0.5: take 0.1 for strong skew...
    """
    if not isinstance(value, bool | np.bool_) and isinstance(value, Real):
        alpha = float(value)
        if math.isfinite(alpha) and (alpha > 0 or (zero and alpha == 0)):
            return alpha
    allowed = "of at least 0" if zero else "above 0"
    raise InputError(
        f"alpha must be a finite number {allowed}, but is {value!r}: take 0.1 for strong skew, 100 for almost none"
    )


def check_keys(values: ArrayLike, what: str) -> NDArray[np.generic]:
    """Return one key (class label, domain or user id) a sample: a one-dimensional array of whole numbers or text.

    Parameters
    ----------
    values
        (n,), n ≥ 1, whole numbers or text; object arrays that hold only text (pandas) are welcome.
    what
        What the keys are, for the message.

    Returns
    -------
    NDArray
        (n,), of an integer, boolean or text type.

    Examples
    --------
    >>> check_keys([0.5, 1.0], "labels")
    Traceback (most recent call last):
    ...
    fedmoments.errors.InputError: labels must be whole numbers or text, one a sample, but their type is float64: ...
    """
    keys: NDArray[np.generic] = np.asarray(values)
    if keys.ndim != 1 or len(keys) == 0:
        raise InputError(f"{what} must have the shape (n,) with n ≥ 1, one a sample, but have the shape {keys.shape}")
    if keys.dtype.kind in "OT":
        items = keys.tolist()
        if all(isinstance(item, str) for item in items):
            return np.asarray(items, dtype=np.str_)
    if keys.dtype.kind not in "biuU":
        raise InputError(
            f"{what} must be whole numbers or text, one a sample, but their type is {keys.dtype}: convert them first"
        )
    return keys


Seed = int | np.random.Generator

# Beyond these a Dirichlet draw is indistinguishable from its limit: a vertex, or equal shares.
_LEAST_ALPHA, _MOST_ALPHA = 1e-300, 1e12


def generator(seed: Seed) -> np.random.Generator:
    """Return the generator that was given, or a PCG64 generator for a whole number of at least 0.

    Examples
    --------
    >>> generator(7).random() == generator(7).random()
    True
    """
    if isinstance(seed, np.random.Generator):
        return seed
    return np.random.Generator(np.random.PCG64(check_count(seed, "seed", least=0)))


def shuffle(rng: np.random.Generator, n: int) -> NDArray[np.int64]:
    """Return a random permutation of 0 … n−1, (n,).

    Examples
    --------
    >>> sorted(shuffle(generator(0), 4).tolist())
    [0, 1, 2, 3]
    """
    return np.argsort(rng.random(n), kind="stable").astype(np.int64, copy=False)


def log_dirichlet(rng: np.random.Generator, alpha: float, size: int) -> NDArray[np.float64]:
    """Draw from the symmetric Dirichlet distribution; return logarithms, up to a common constant.

    log Gamma(α) = log Gamma(α + 1) + log(U) / α (Marsaglia and Tsang 2000, section 6), which never underflows.

    Parameters
    ----------
    rng
        Where the uniform numbers come from.
    alpha
        Concentration, above 0.
    size
        Number of proportions.

    Returns
    -------
    NDArray[np.float64]
        (size,), finite. The largest is 0.

    Examples
    --------
    >>> logs = log_dirichlet(generator(0), 0.001, 5)
    >>> bool(np.isfinite(logs).all()), float(logs.max())
    (True, 0.0)
    """
    alpha = min(max(alpha, _LEAST_ALPHA), _MOST_ALPHA)
    logs = _log_gamma(rng, alpha + 1, size) + np.log1p(-rng.random(size)) / alpha
    out: NDArray[np.float64] = logs - logs.max()
    return out


def _log_gamma(rng: np.random.Generator, shape: float, size: int) -> NDArray[np.float64]:
    """Logarithms of Gamma(shape ≥ 1) draws by Marsaglia and Tsang's rejection, which accepts 95 % or more."""
    d = shape - 1 / 3
    c = 1 / np.sqrt(9 * d)
    out = np.empty(size)
    open_ = np.arange(size)
    while len(open_):
        u = rng.random((3, len(open_)))
        normal = np.sqrt(-2 * np.log1p(-u[0])) * np.cos(2 * np.pi * u[1])
        step = c * normal
        inside = step > -1
        log_v = 3 * np.log1p(np.where(inside, step, 0))
        # d·(1 − v + log v), with v − 1 expanded: for large α the difference of v and 1 would be lost.
        bound = normal**2 / 2 + d * (log_v - step * (3 + step * (3 + step)))
        accepted = inside & (np.log1p(-u[2]) <= bound)
        out[open_[accepted]] = np.log(d) + log_v[accepted]
        open_ = open_[~accepted]
    return out


def multinomial(rng: np.random.Generator, n: int, logs: NDArray[np.float64]) -> NDArray[np.int64]:
    """Draw `n` times from proportions given as logarithms, (c,); return how often each came, (c,).

    Examples
    --------
    >>> multinomial(generator(0), 10, np.array([-1e5, -2e5])).tolist()
    [10, 0]
    """
    cumulative = np.cumsum(np.exp(logs - logs.max()))
    picks = np.searchsorted(cumulative, rng.random(n) * cumulative[-1], side="right")
    return np.bincount(np.minimum(picks, len(logs) - 1), minlength=len(logs)).astype(np.int64, copy=False)


def apportion(n: int, logs: NDArray[np.float64]) -> NDArray[np.int64]:
    """Share `n` things by proportions given as logarithms, (k,): cumulative shares, rounded; the sum is exactly `n`.

    Examples
    --------
    >>> apportion(10, np.log([0.25, 0.25, 0.5])).tolist()
    [2, 3, 5]
    """
    cumulative = np.cumsum(np.exp(logs - logs.max()))
    bounds = np.rint(cumulative / cumulative[-1] * n).astype(np.int64)
    shares: NDArray[np.int64] = np.diff(bounds, prepend=0)
    return shares


def even_sizes(n: int, parts: int) -> NDArray[np.int64]:
    """Share `n` things among `parts`, (parts,), as evenly as can be: sizes differ by at most one.

    Examples
    --------
    >>> even_sizes(7, 3).tolist()
    [3, 2, 2]
    """
    return n // parts + (np.arange(parts) < n % parts).astype(np.int64)
