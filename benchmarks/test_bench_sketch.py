"""A client's scatter sketch from a stream, against a singular value decomposition of all samples and a d × d matrix."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh, svd

from fedmoments.core.linalg import add_gram, new_gram
from fedmoments.core.statistics.scatter_stream import ScatterStream

N, DIM, N_CLASSES, RANK, BATCH = 20_000, 512, 10, 30, 64


def samples() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    rng = np.random.default_rng(0)
    y = rng.integers(0, N_CLASSES, N)
    X = rng.normal(size=(N, DIM)) / np.sqrt(np.arange(1, DIM + 1)) + rng.normal(size=(N_CLASSES, DIM))[y]
    return X, y


def streamed(X: NDArray[np.float64], y: NDArray[np.int64], batch: int, buffer: int | None = None) -> object:
    stream = ScatterStream(DIM, RANK, buffer=buffer)
    for i in range(0, len(X), batch):
        stream.update(X[i : i + batch], y[i : i + batch])
    return stream.factor(RANK)


def centred(X: NDArray[np.float64], y: NDArray[np.int64]) -> NDArray[np.float64]:
    means = np.array([X[y == c].mean(axis=0) for c in range(N_CLASSES)])
    return np.asarray(X - means[y])


def added_up(X: NDArray[np.float64], y: NDArray[np.int64]) -> object:
    """Return the leading part from the second moment of all samples, which cancels where features have an offset."""
    gram, sums = new_gram(DIM), np.zeros((N_CLASSES, DIM))
    for i in range(0, len(X), BATCH):
        add_gram(gram, X[i : i + BATCH])
        np.add.at(sums, y[i : i + BATCH], X[i : i + BATCH])
    add_gram(gram, sums / np.sqrt(np.bincount(y))[:, None], weight=-1.0)
    return eigh(gram, lower=False, subset_by_index=(DIM - RANK, DIM - 1))


def test_a_sketch_from_a_stream_against_the_whole(compare: Callable[..., float]) -> None:
    X, y = samples()
    compare(
        "scatter sketch of a stream, rank 30 of d = 512, to the SVD of all samples",
        lambda: streamed(X, y, BATCH),
        lambda: svd(centred(X, y), full_matrices=False, check_finite=False),
        at_least=1.2,
        rounds=3,
        a_d_by_d_matrix=lambda: added_up(X, y),
        the_same_stream_without_loss=lambda: streamed(X, y, BATCH, DIM),
    )


def test_single_samples_are_not_slow(compare: Callable[..., float]) -> None:
    X, y = samples()
    compare(
        "scatter sketch from single samples to batches of 64",
        lambda: streamed(X, y, 1),
        lambda: streamed(X, y, BATCH),
        at_most=2.0,
        rounds=3,
    )
