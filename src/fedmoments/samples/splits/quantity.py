"""Splits that do not look at labels: iid, with equal sizes, Dirichlet sizes, or sizes from a file."""

from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedmoments.errors import InputError
from fedmoments.samples.splits.draws import (
    Seed,
    apportion,
    check_alpha,
    check_count,
    even_sizes,
    generator,
    log_dirichlet,
    shuffle,
)
from fedmoments.samples.splits.scheme import Parameter, Request, Scheme, alpha, count
from fedmoments.samples.splits.split import Split

__all__ = ["by_client_sizes", "iid", "quantity_skew"]

#: Digits of the largest size of a client that a file may name.
LONGEST = 15


def iid(n: int, n_clients: int, seed: Seed) -> Split:
    """Shuffle the samples and give every client as many; sizes differ by at most one. Nothing is dropped.

    Parameters
    ----------
    n
        Number of samples, at least 1.
    n_clients
        Number of clients, at least 1. With more clients than samples the last are empty.
    seed
        A whole number, or a generator (which is advanced). Independent of the numpy release.

    Returns
    -------
    Split
        The client of every sample.

    Examples
    --------
    >>> iid(10, n_clients=3, seed=0).sizes.tolist()
    [4, 3, 3]
    """
    n, n_clients = check_count(n, "n"), check_count(n_clients, "n_clients")
    return Split(_by_sizes(generator(seed), even_sizes(n, n_clients)), n_clients, "iid")


def quantity_skew(n: int, n_clients: int, alpha: float, seed: Seed, *, min_size: int = 0) -> Split:
    """Shuffle the samples and give the clients shares drawn from Dir(α): labels iid, sizes skewed. Nothing is dropped.

    Parameters
    ----------
    n
        Number of samples, at least 1.
    n_clients
        Number of clients K, at least 1.
    alpha
        Concentration, above 0: small values let few clients have nearly all.
    seed
        A whole number, or a generator (which is advanced). Independent of the numpy release.
    min_size
        Samples that every client has before the others are shared, at most n/K.

    Returns
    -------
    Split
        The client of every sample.

    Examples
    --------
    >>> split = quantity_skew(1000, n_clients=10, alpha=0.5, seed=0, min_size=5)
    >>> int(split.sizes.sum()), bool(split.sizes.min() >= 5)
    (1000, True)
    """
    n, n_clients = check_count(n, "n"), check_count(n_clients, "n_clients")
    alpha = check_alpha(alpha, zero=False)
    min_size = check_count(min_size, "min_size", least=0)
    rest = n - n_clients * min_size
    if rest < 0:
        raise InputError(
            f"min_size must be at most n / n_clients = {n // n_clients}, but is {min_size}: "
            f"{n_clients} clients of {min_size} need {n_clients * min_size} samples and there are {n}"
        )
    rng = generator(seed)
    sizes = min_size + apportion(rest, log_dirichlet(rng, alpha, n_clients))
    scheme = f"quantity:{alpha:.15g}" + (f":{min_size}" if min_size else "")
    return Split(_by_sizes(rng, sizes), n_clients, scheme)


def by_client_sizes(n: int, sizes: ArrayLike, seed: Seed) -> Split:
    """Shuffle the samples and give the clients shares in proportion to given sizes. Nothing is dropped.

    Parameters
    ----------
    n
        Number of samples, at least 1. Where it is the sum of the sizes, every client has its size exactly.
    sizes
        (K,) whole numbers, not all 0: samples of the clients of another federation, such as a data set's own users.
    seed
        A whole number, or a generator (which is advanced). Independent of the numpy release.

    Returns
    -------
    Split
        The client of every sample.

    Examples
    --------
    >>> by_client_sizes(8, [18, 2, 20], seed=0).sizes.tolist()
    [4, 0, 4]
    """
    n, given = check_count(n, "n"), np.asarray(sizes)
    if given.ndim != 1 or given.dtype.kind not in "iu" or not given.size or given.min() < 0 or not given.any():
        raise InputError("sizes of clients must be whole numbers of 0 or more in one list, not all of them 0")
    with np.errstate(divide="ignore"):
        shares = np.log(given.astype(np.float64))
    return Split(_by_sizes(generator(seed), apportion(n, shares)), len(given), "sizes")


def _by_sizes(rng: np.random.Generator, sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Assign shuffled samples to clients of given sizes."""
    clients = np.empty(int(sizes.sum()), dtype=np.int64)
    clients[shuffle(rng, len(clients))] = np.repeat(np.arange(len(sizes)), sizes)
    return clients


def _iid(request: Request) -> Split:
    return iid(len(request.y), request.n_clients, request.seed)


def _quantity(request: Request, concentration: float, min_size: int) -> Split:
    return quantity_skew(len(request.y), request.n_clients, concentration, request.seed, min_size=min_size)


def _sizes_in(text: str) -> NDArray[np.int64]:
    """Read the sizes of clients from a file: a whole number a line, below a title or none."""
    path = Path(text).expanduser()
    if not path.is_file():
        raise InputError(f"there is no file {text}: it should have the size of a client on each line")
    lines = [line.strip() for line in path.read_text(encoding="utf-8-sig").splitlines() if line.strip()]
    numbers = lines[1:] if lines and not lines[0].isdecimal() else lines
    for place, line in enumerate(numbers, start=1 + len(lines) - len(numbers)):
        if not line.isdecimal() or len(line) > LONGEST:
            raise InputError(f"line {place} of {text} is {line[:40]!r}, not the size of a client, a whole number")
    return np.array([int(line) for line in numbers], dtype=np.int64)


def _sizes(request: Request, sizes: NDArray[np.int64]) -> Split:
    return by_client_sizes(len(request.y), sizes, request.seed)


SPLITS = (
    Scheme("iid", "shuffled, in equal parts", (), _iid),
    Scheme(
        "quantity", "iid, with Dirichlet sizes", (alpha(zero=False), count("MIN_SIZE", least=0, default=0)), _quantity
    ),
    Scheme(
        "sizes",
        "iid, with clients' sizes from a file",
        (Parameter("PATH", _sizes_in, rest=True),),
        _sizes,
        finds_clients=lambda *_: True,
    ),
)
