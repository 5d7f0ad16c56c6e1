"""How strong a severity is at an image's size: the published scales at 32 and at 224 pixels, and in between.

Two scales were published, that of CIFAR-C for images of 32 pixels and that of ImageNet-C for 224. Here a constant is
that of CIFAR-C at a short side of 32 pixels and below, that of ImageNet-C at 224 and above, and in between it goes
along the straight line that joins the two in the logarithms of constant and side. A length (a blur's radius, a
displacement) is treated so as a fraction of the short side: below 32 and above 224 pixels it grows with the image.
"""

import math
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["IMAGENET_SIDE", "SEVERITIES", "SMALL_SIDE", "Five", "Pixels", "length", "luma", "short_side", "strength"]

#: What corruptions work on: (h, w, 1) or (h, w, 3) float32, 0 is black and 1 is white.
Pixels: TypeAlias = NDArray[np.float32]
#: A constant for each severity.
Five: TypeAlias = tuple[float, float, float, float, float]

SEVERITIES = (1, 2, 3, 4, 5)
#: The short sides, in pixels, for which CIFAR-C and ImageNet-C were made.
SMALL_SIDE, IMAGENET_SIDE = 32, 224


def strength(small: Five, large: Five, severity: int, side: int) -> float:
    """Return a constant that is not a length.

    Parameters
    ----------
    small, large
        That of CIFAR-C and that of ImageNet-C for severities 1 to 5, above 0.
    severity
        1 to 5.
    side
        Short side of the image in pixels, at least 1.

    Examples
    --------
    >>> [round(strength((1, 2, 3, 4, 5), (4, 8, 12, 16, 20), 2, side), 3) for side in (8, 32, 96, 224, 500)]
    [2.0, 2.0, 4.375, 8.0, 8.0]
    """
    low, high = math.log(small[severity - 1]), math.log(large[severity - 1])
    way = math.log(side / SMALL_SIDE) / math.log(IMAGENET_SIDE / SMALL_SIDE)
    return math.exp(low + (high - low) * min(1.0, max(0.0, way)))


def length(small: Five, large: Five, severity: int, side: int) -> float:
    """Return a length in pixels of this image; `small` is in pixels of 32, `large` in pixels of 224.

    Examples
    --------
    >>> [round(length((1, 2, 3, 4, 5), (4, 8, 12, 16, 20), 2, side), 3) for side in (8, 32, 224, 448)]
    [0.5, 2.0, 8.0, 16.0]
    """
    at = min(IMAGENET_SIDE, max(SMALL_SIDE, side))  # the side for which the constant is in pixels
    return strength(small, large, severity, side) * side / at


def short_side(pixels: NDArray[Any]) -> int:
    """Return the short side of an image (h, w, c) in pixels."""
    return int(min(pixels.shape[:2]))


def luma(pixels: NDArray[np.float32]) -> Pixels:
    """Return how bright an image (h, w, 1|3) looks, (h, w, 1): 0.299 R + 0.587 G + 0.114 B.

    Examples
    --------
    >>> luma(np.ones((1, 1, 3), np.float32)).tolist()
    [[[1.0]]]
    """
    if pixels.shape[2] == 1:
        return pixels
    red, green, blue = (pixels[:, :, i : i + 1] for i in range(3))
    grey: Pixels = np.float32(0.299) * red + np.float32(0.587) * green + np.float32(0.114) * blue
    return grey
