"""Blur: a lens out of focus, frosted glass, a camera that moves or zooms, a bell. Lengths grow with the image."""

import numpy as np

from fedmoments.samples.corruptions.corruption import Corruption
from fedmoments.samples.corruptions.kernels import (
    blur_with,
    disc_kernel,
    gaussian_blurred,
    read_at,
    resized,
    streak_kernel,
)
from fedmoments.samples.corruptions.scale import Pixels, length, short_side, strength

__all__ = ["defocus_blur", "gaussian_blur", "glass_blur", "motion_blur", "zoom_blur"]

#: Exposures that a zoom blur averages.
_EXPOSURES = 11


def defocus_blur(pixels: Pixels, severity: int, rng: np.random.Generator) -> Pixels:
    """Average over a disc: a lens that is out of focus.

    Its radius in pixels is 0.3, 0.4, 0.5, 1, 1.5 at 32 and 3, 4, 6, 8, 10 at 224. The published second blur, against
    the jagged edge of a disc made of whole pixels, has no counterpart: the disc's edge is smooth here.

    Examples
    --------
    >>> point = np.zeros((9, 9, 1), np.float32)
    >>> point[4, 4] = 1
    >>> round(float(defocus_blur(point, 5, np.random.default_rng(0)).max()), 2)
    0.67
    """
    del rng
    side = short_side(pixels)
    return blur_with(pixels, disc_kernel(length((0.3, 0.4, 0.5, 1, 1.5), (3, 4, 6, 8, 10), severity, side)))


def glass_blur(pixels: Pixels, severity: int, rng: np.random.Generator) -> Pixels:
    """Blur, read every pixel at a random place nearby, blur again: frosted glass.

    The blur is 0.05, 0.25, 0.4, 0.25, 0.4 pixels wide at 32 and 0.7, 0.9, 1, 1.1, 1.5 at 224. The place is uniform in
    a square that reaches 1, 1, 1, 1.4, 1.4 pixels to each side at 32 and 1.4, 2, 3.5, 4.2, 5.7 at 224: the published
    reach times the root of the published number of rounds, because all rounds are done at once here, which takes
    milliseconds instead of seconds.

    Examples
    --------
    >>> glass_blur(np.ones((9, 9, 1), np.float32), 5, np.random.default_rng(0)).round(3).min().item()
    1.0
    """
    height, width = pixels.shape[:2]
    side = short_side(pixels)
    sigma = length((0.05, 0.25, 0.4, 0.25, 0.4), (0.7, 0.9, 1, 1.1, 1.5), severity, side)
    reach = length((1, 1, 1, 2**0.5, 2**0.5), (2**0.5, 2, 12**0.5, 18**0.5, 32**0.5), severity, side)
    y = np.arange(height)[:, None] + rng.uniform(-reach, reach, (height, width))
    x = np.arange(width)[None, :] + rng.uniform(-reach, reach, (height, width))
    return gaussian_blurred(read_at(gaussian_blurred(pixels, sigma), y, x), sigma)


def motion_blur(pixels: Pixels, severity: int, rng: np.random.Generator) -> Pixels:
    """Average along a line that fades, at a random angle within 45° of the horizontal: a camera that moves.

    The line is twice the published radius long, in pixels 12, 12, 12, 16, 18 at 32 and 20, 30, 30, 30, 40 at 224, and
    the bell along which it fades is 1, 1.5, 2, 2, 2.5 wide at 32 and 3, 5, 8, 12, 15 at 224.

    Examples
    --------
    >>> motion_blur(np.ones((9, 9, 1), np.float32), 5, np.random.default_rng(0)).round(3).min().item()
    1.0
    """
    side = short_side(pixels)
    reach = length((12, 12, 12, 16, 18), (20, 30, 30, 30, 40), severity, side)
    sigma = length((1, 1.5, 2, 2, 2.5), (3, 5, 8, 12, 15), severity, side)
    return blur_with(pixels, streak_kernel(min(reach, 4 * sigma), sigma, rng.uniform(-45, 45)))


def zoom_blur(pixels: Pixels, severity: int, rng: np.random.Generator) -> Pixels:
    """Average eleven exposures while the lens zooms in on the centre.

    The last is enlarged by 5, 10, 15, 20, 25 % at 32 pixels and by 10, 15, 20, 24, 28 % at 224.

    Examples
    --------
    >>> zoom_blur(np.ones((9, 9, 1), np.float32), 5, np.random.default_rng(0)).round(3).min().item()
    1.0
    """
    del rng
    most = strength((0.05, 0.10, 0.15, 0.20, 0.25), (0.10, 0.15, 0.20, 0.24, 0.28), severity, short_side(pixels))
    rows, columns = (np.arange(n) - (n - 1) / 2 for n in pixels.shape[:2])
    total = np.zeros_like(pixels)
    for zoom in np.linspace(1, 1 + most, _EXPOSURES):
        total += resized(pixels, rows / zoom + (len(rows) - 1) / 2, columns / zoom + (len(columns) - 1) / 2)
    return total / np.float32(_EXPOSURES)


def gaussian_blur(pixels: Pixels, severity: int, rng: np.random.Generator) -> Pixels:
    """Average under a bell, in pixels 0.4, 0.6, 0.7, 0.8, 1 wide at 32 and 1, 2, 3, 4, 6 at 224.

    Examples
    --------
    >>> gaussian_blur(np.ones((9, 9, 1), np.float32), 5, np.random.default_rng(0)).round(3).min().item()
    1.0
    """
    del rng
    return gaussian_blurred(pixels, length((0.4, 0.6, 0.7, 0.8, 1), (1, 2, 3, 4, 6), severity, short_side(pixels)))


CORRUPTIONS = (
    Corruption("defocus-blur", "blur", defocus_blur),
    Corruption("glass-blur", "blur", glass_blur),
    Corruption("motion-blur", "blur", motion_blur),
    Corruption("zoom-blur", "blur", zoom_blur),
    Corruption("gaussian-blur", "blur", gaussian_blur),
)
