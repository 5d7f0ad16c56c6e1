"""An image to corrupt, and the sizes that it is made in."""

import numpy as np
from numpy.typing import NDArray

SHAPES = ((8, 8), (8, 8, 3), (96, 96), (96, 96, 3), (61, 97, 3))


def picture(shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """Return an image with edges, slopes and colours; as uint8."""
    y, x = np.meshgrid(np.linspace(0, 1, shape[0]), np.linspace(0, 1, shape[1]), indexing="ij")
    disc = (y - 0.4) ** 2 + (x - 0.55) ** 2 < 0.08
    grey = 0.2 + 0.3 * x + 0.15 * np.sin(9 * y) + 0.3 * disc
    if len(shape) == 2:
        return np.asarray(np.rint(255 * np.clip(grey, 0, 1)), np.uint8)
    colours = np.stack([grey, 0.7 * grey + 0.1 * y, 0.5 * grey + 0.2 * (1 - x)], axis=2)
    return np.asarray(np.rint(255 * np.clip(colours, 0, 1)), np.uint8)
