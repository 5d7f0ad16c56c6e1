"""Work on many samples at once, but not on too many."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

__all__ = ["encode_in_batches"]

Item = TypeVar("Item")


def encode_in_batches(
    items: Sequence[Item], batch_size: int, dim: int, encode: Callable[[Sequence[Item]], NDArray[Any]]
) -> NDArray[np.float32]:
    """Return the features (len(items), dim) that ``encode`` gives for at most ``batch_size`` items at a time.

    Examples
    --------
    >>> encode_in_batches([1, 2, 3], 2, 1, lambda part: np.array(part).reshape(-1, 1)).ravel().tolist()
    [1.0, 2.0, 3.0]
    """
    features = np.empty((len(items), dim), np.float32)
    for start in range(0, len(items), batch_size):
        features[start : start + batch_size] = encode(items[start : start + batch_size])
    return features
