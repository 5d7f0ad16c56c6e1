"""Images as a client trains on them: mirrored, and cropped at random as ImageNet's networks were trained.

Fed3R (Appendix C) trains with the augmentation that its network was pre-trained with: a crop of 8 to 100 % of the
area with sides of 3:4 to 4:3, scaled back to the encoder's size, and a mirror image half of the time. Crops are of
the prepared image. Every draw follows from the plan's seed, the round and the client; images that are tested are left
alone.
"""

import numpy as np
from numpy.typing import NDArray

__all__ = ["augmented"]

Pixels = NDArray[np.uint8]

#: Of a crop: least share of the area, and largest ratio of its sides.
_LEAST_AREA, _MOST_RATIO = 0.08, 4 / 3


def augmented(images: Pixels, how: frozenset[str], rng: np.random.Generator) -> Pixels:
    """Return images (n, 3, s, s) after what ``how`` names: ``crop``, ``flip``.

    Examples
    --------
    >>> images = np.arange(2 * 3 * 4 * 4, dtype=np.uint8).reshape(2, 3, 4, 4)
    >>> seen = augmented(images, frozenset({"flip"}), np.random.default_rng(3))
    >>> [bool((a == b).all() or (a == b[..., ::-1]).all()) for a, b in zip(seen, images, strict=True)]
    [True, True]
    """
    made = images.copy()
    if "crop" in how:
        made = np.stack([_cropped(image, rng) for image in made]) if len(made) else made
    if "flip" in how:
        mirrored = rng.random(len(made)) < 0.5
        made[mirrored] = made[mirrored][..., ::-1]
    return made


def _cropped(image: Pixels, rng: np.random.Generator) -> Pixels:
    """Return a random part of an image in its own size, between neighbouring pixels by two straight lines."""
    size = image.shape[-1]
    area = rng.uniform(_LEAST_AREA, 1.0) * size * size
    ratio = np.exp(rng.uniform(-np.log(_MOST_RATIO), np.log(_MOST_RATIO)))
    height, width = (min(float(size), np.sqrt(area * stretch)) for stretch in (ratio, 1.0 / ratio))
    top, left = rng.uniform(0.0, size - height), rng.uniform(0.0, size - width)
    rows, columns = (_places(start, length, size) for start, length in ((top, height), (left, width)))
    pixels = image.astype(np.float32)
    (low, high, share), (west, east, part) = rows, columns
    tall = pixels[:, low] * (1.0 - share)[:, None] + pixels[:, high] * share[:, None]
    whole = tall[:, :, west] * (1.0 - part) + tall[:, :, east] * part
    return np.asarray(np.rint(whole), np.uint8)


def _places(start: float, length: float, size: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]:
    """Return the two pixels between which each pixel of a scaled stretch lies, and how near it is to the second."""
    centres = np.clip(start + (np.arange(size) + 0.5) * length / size - 0.5, 0.0, size - 1.0)
    low = np.floor(centres).astype(np.int64)
    return low, np.minimum(low + 1, size - 1), (centres - low).astype(np.float32)
