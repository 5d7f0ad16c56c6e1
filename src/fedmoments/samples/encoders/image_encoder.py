"""What all image encoders share, wherever they run: their preprocessing, dimension and weights."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.samples.encoders.encoder import Encoder, Modality
from fedmoments.samples.encoders.images import ImagePreprocessing
from fedmoments.samples.encoders.probe import probe_pixels

__all__ = ["ImageEncoder", "default_batch_size", "described", "stacked"]


class ImageEncoder(Encoder):
    """An encoder of images; subclasses implement :meth:`encode`.

    Parameters
    ----------
    name
        What a user types to get it again.
    images
        How images are prepared.
    pooling
        How a map of features becomes one vector: ``"mean"``, ``"max"``, or ``"cls"`` for the first token.
    weights_hash
        SHA-256 of the weights.
    dim
        Dimension of the features.
    batch_size
        Images that are encoded at once; by default few large ones, more small ones.
    """

    modality: Modality = "image"

    def __init__(
        self,
        name: str,
        images: ImagePreprocessing,
        *,
        pooling: str,
        weights_hash: str,
        dim: int,
        batch_size: int | None = None,
    ) -> None:
        self.name = name
        self.images = images
        self.pooling = pooling
        self._weights_hash = weights_hash
        self._dim = dim
        self.batch_size = batch_size or default_batch_size(images.size)

    @property
    def dim(self) -> int:
        return self._dim

    @property
    def preprocessing(self) -> Mapping[str, Any]:
        return described(self.images, self.pooling)

    @property
    def weights_hash(self) -> str:
        return self._weights_hash

    def prepare(self, sample: Any) -> NDArray[np.uint8]:
        return self.images.prepare(sample)

    def probed(self) -> NDArray[np.float32]:
        return self.encode(list(probe_pixels(self.images.size)))


def default_batch_size(size: int) -> int:
    """Return how many images to encode at once: as many as 8 of 224 pixels hold, at most 32.

    On one core, torch was 1.5 to 1.8 times as fast with 8 images of 224 pixels as with 32 (the bundled networks);
    at 96 pixels, and on onnxruntime, the size of the batch hardly matters.

    Examples
    --------
    >>> default_batch_size(224), default_batch_size(96), default_batch_size(4096)
    (8, 32, 1)
    """
    return max(1, min(32, 8 * 224**2 // size**2))


def stacked(batch: Sequence[Any]) -> NDArray[np.uint8]:
    """Return prepared images as one array (n, 3, size, size)."""
    array: Any = batch
    return array if isinstance(array, np.ndarray) else np.stack(array)


def described(images: ImagePreprocessing, pooling: str) -> dict[str, Any]:
    """Return the preprocessing of an image encoder, JSON-able."""
    return {**images.describe(), "pooling": pooling}
