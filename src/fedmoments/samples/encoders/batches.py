"""Work on many samples at once, but not on too many."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

__all__ = ["encode_in_batches"]

Item = TypeVar("Item")


def encode_in_batches(
    items: Sequence[Item],
    batch_size: int,
    dim: int,
    encode: Callable[[Sequence[Item]], NDArray[Any]],
    workers: int = 1,
) -> NDArray[np.float32]:
    """Return the features (len(items), dim) that ``encode`` gives for at most ``batch_size`` items at a time.

    Parameters
    ----------
    items, batch_size, dim, encode
        What, how many at a time, into how many dimensions, and by what.
    workers
        Threads that encode a batch each.

    Examples
    --------
    >>> encode_in_batches([1, 2, 3], 2, 1, lambda part: np.array(part).reshape(-1, 1), workers=2).ravel().tolist()
    [1.0, 2.0, 3.0]
    """
    features = np.empty((len(items), dim), np.float32)

    def fill(start: int) -> None:
        features[start : start + batch_size] = encode(items[start : start + batch_size])

    starts = range(0, len(items), batch_size)
    if workers == 1 or len(starts) <= 1:
        for start in starts:
            fill(start)
        return features
    with ThreadPoolExecutor(workers, thread_name_prefix="encoder") as pool:
        list(pool.map(fill, starts))
    return features
