"""A data set's images, corrupted: decoded and corrupted when they are requested, before an encoder prepares them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.errors import InputError
from fedmoments.extras import require
from fedmoments.samples.corruptions.registry import check_corruption, corrupt
from fedmoments.samples.encoders.images import open_image
from fedmoments.samples.samples import Chosen, Samples
from fedmoments.samples.splits.draws import check_count

__all__ = ["LARGEST", "CorruptedImages", "corrupt_samples"]

#: An image whose short side has more pixels is first shrunk to so many: about what encoders look at.
LARGEST = 512
#: Corrupted images are kept up to so many bytes: the cache of features reads samples twice, to name and to encode them.
_KEPT_BYTES = 128 * 2**20


class CorruptedImages(Sequence[Any]):
    """Images of a sequence, each decoded and corrupted when it is requested.

    An image that cannot be decoded comes as it is: the encoder that is given it says why it cannot be read.

    Parameters
    ----------
    items
        n images: paths, bytes of image files, or arrays of uint8.
    name, severity, seed
        As :func:`~fedmoments.samples.corruptions.corrupt` takes them; an image's index is its place here.

    Examples
    --------
    >>> images = CorruptedImages([np.zeros((8, 8), np.uint8)] * 2, "fog", 1, seed=0)
    >>> len(images), images[1].shape, bool((images[0] == images[1]).all())
    (2, (8, 8), False)
    """

    def __init__(self, items: Sequence[Any] | NDArray[Any], name: str, severity: int, *, seed: int = 0) -> None:
        check_corruption(name, severity)
        self._items, self._name, self._severity = items, name, int(severity)
        self._seed = check_count(seed, "seed", least=0)
        self._kept: dict[int, NDArray[np.uint8]] = {}
        self._kept_bytes = 0

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return Chosen(self, np.arange(len(self))[place])
        place = range(len(self))[place]
        kept = self._kept.get(place)
        if kept is not None:
            return kept
        item = self._items[place]
        try:
            image = _decoded(item)
        except (InputError, OSError):
            return item
        pixels = corrupt(image, self._name, self._severity, seed=self._seed, index=place)
        pixels.setflags(write=False)
        if self._kept_bytes + pixels.nbytes <= _KEPT_BYTES:
            self._kept_bytes += pixels.nbytes
            self._kept[place] = pixels
        return pixels


def corrupt_samples(samples: Samples, name: str, severity: int, *, seed: int = 0) -> Samples:
    """Return the same samples, their images corrupted before an encoder prepares them.

    Labels, names, domains and clients stay. Images are decoded and corrupted when they are requested, as upright RGB
    of all their pixels (a short side above 512 is first shrunk to 512); arrays (h, w) and (h, w, 1) stay grey. The
    features of corrupted images are cached under the content of the corrupted pixels, so they are never confused with
    those of clean images or of another corruption, severity or seed, whatever changes in the code that made them. The
    price is that images are corrupted again in every run, even when their features are found in the cache.

    Parameters
    ----------
    samples
        n images, as :func:`~fedmoments.samples.load_data` brings them, usually a test part.
    name
        One of :func:`~fedmoments.samples.corruptions.corruption_names`.
    severity
        1 (weak) to 5 (strong).
    seed
        At least 0. What happens to an image depends on it and on the image's place among `samples`: take some of the
        corrupted samples, and each is what it was among all.

    Returns
    -------
    Samples
        n samples for :func:`~fedmoments.samples.encoders.pipeline.encode_samples`.

    Raises
    ------
    UnknownNameError
        When no corruption has that name.
    InputError
        When the samples are not images, or severity or seed are not what they must be.

    Examples
    --------
    >>> digits = Samples(np.zeros((2, 8, 8), np.uint8), np.array([0, 1]), ("zero", "one"), "image")
    >>> foggy = corrupt_samples(digits, "fog", 3)
    >>> len(foggy), foggy.items[0].shape, bool(foggy.items[0].any())
    (2, (8, 8), True)
    """
    if samples.modality != "image":
        raise InputError(f"only images can be corrupted, but the samples are {samples.modality}: choose image data")
    return replace(samples, items=CorruptedImages(samples.items, name, severity, seed=seed))


def _decoded(item: Any) -> NDArray[np.uint8]:
    """Return an image as an encoder sees it, but whole: upright RGB (h, w, 3) uint8, or grey (h, w)."""
    pillow = require("PIL.Image", "Reading images", "torch")
    image = open_image(item, pillow, enough=2 * LARGEST)
    short = min(image.size)
    if short > LARGEST:
        size = tuple(max(1, round(side * LARGEST / short)) for side in image.size)
        image = image.resize(size, pillow.Resampling.BICUBIC, reducing_gap=2.0)
    grey = isinstance(item, np.ndarray) and (item.ndim == 2 or item.shape[2] == 1)
    return np.asarray(image)[:, :, 0] if grey else np.asarray(image)
