"""Noise: independent from pixel to pixel and from channel to channel; a grey image stays grey.

Noise is of the pixels of the image as it is stored. An encoder that shrinks a large image averages part of it away,
which is why the published scale is larger for large images.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.samples.corruptions.corruption import Corruption
from fedmoments.samples.corruptions.scale import Pixels, short_side, strength

__all__ = ["gaussian_noise", "impulse_noise", "shot_noise", "speckle_noise"]


def gaussian_noise(pixels: Pixels, severity: int, rng: np.random.Generator) -> Pixels:
    """Add N(0, σ²) to every value: the noise of a sensor in poor light.

    σ is 0.04, 0.06, 0.08, 0.09, 0.10 at 32 pixels and 0.08, 0.12, 0.18, 0.26, 0.38 at 224, white being 1.

    Examples
    --------
    >>> grey = np.full((64, 64, 1), 0.5, np.float32)
    >>> round(float(gaussian_noise(grey, 1, np.random.default_rng(0)).std()), 2)
    0.05
    """
    sigma = strength((0.04, 0.06, 0.08, 0.09, 0.10), (0.08, 0.12, 0.18, 0.26, 0.38), severity, short_side(pixels))
    return pixels + np.float32(sigma) * rng.standard_normal(pixels.shape, np.float32)


def shot_noise(pixels: Pixels, severity: int, rng: np.random.Generator) -> Pixels:
    """Count photons: x becomes Poisson(p x) / p, of variance x / p.

    p photons make white: 500, 250, 100, 75, 50 at 32 pixels and 60, 25, 12, 5, 3 at 224.

    Examples
    --------
    >>> bool((shot_noise(np.zeros((4, 4, 1), np.float32), 5, np.random.default_rng(0)) == 0).all())
    True
    """
    photons = strength((500, 250, 100, 75, 50), (60, 25, 12, 5, 3), severity, short_side(pixels))
    counts: NDArray[Any] = rng.poisson(pixels.astype(np.float64) * photons)
    return (counts / photons).astype(np.float32)


def impulse_noise(pixels: Pixels, severity: int, rng: np.random.Generator) -> Pixels:
    """Turn a share of the values black or white, as likely as each other: salt and pepper.

    The share is 0.01, 0.02, 0.03, 0.05, 0.07 at 32 pixels and 0.03, 0.06, 0.09, 0.17, 0.27 at 224. At least one value
    is hit, however small the image.

    Examples
    --------
    >>> grey = np.full((64, 64, 1), 0.5, np.float32)
    >>> np.unique(impulse_noise(grey, 1, np.random.default_rng(0))).tolist()
    [0.0, 0.5, 1.0]
    """
    share = strength((0.01, 0.02, 0.03, 0.05, 0.07), (0.03, 0.06, 0.09, 0.17, 0.27), severity, short_side(pixels))
    draws = rng.random(pixels.shape)
    hit = draws < max(share, float(draws.min()) + 1e-12)
    salt = rng.random(pixels.shape) < 0.5
    noisy: Pixels = np.where(hit, salt.astype(np.float32), pixels)
    return noisy


def speckle_noise(pixels: Pixels, severity: int, rng: np.random.Generator) -> Pixels:
    """Multiply every value by 1 + N(0, σ²): noise that grows with brightness.

    σ is 0.06, 0.10, 0.12, 0.16, 0.20 at 32 pixels and 0.15, 0.20, 0.35, 0.45, 0.60 at 224.

    Examples
    --------
    >>> bool((speckle_noise(np.zeros((4, 4, 1), np.float32), 5, np.random.default_rng(0)) == 0).all())
    True
    """
    sigma = strength((0.06, 0.10, 0.12, 0.16, 0.20), (0.15, 0.20, 0.35, 0.45, 0.60), severity, short_side(pixels))
    return pixels * (1 + np.float32(sigma) * rng.standard_normal(pixels.shape, np.float32))


CORRUPTIONS = (
    Corruption("gaussian-noise", "noise", gaussian_noise),
    Corruption("shot-noise", "noise", shot_noise),
    Corruption("impulse-noise", "noise", impulse_noise),
    Corruption("speckle-noise", "noise", speckle_noise),
)
