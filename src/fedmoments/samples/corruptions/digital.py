"""Digital: what cameras, editors and codecs do to an image."""

import io

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter

from fedmoments.extras import require
from fedmoments.samples.corruptions.corruption import Corruption
from fedmoments.samples.corruptions.kernels import read_at
from fedmoments.samples.corruptions.scale import Pixels, short_side, strength

__all__ = ["contrast", "elastic_transform", "from_bytes", "jpeg_compression", "pixelate", "saturate", "to_bytes"]


def to_bytes(pixels: Pixels) -> NDArray[np.uint8]:
    """Return values of 0 to 1 as bytes 0 to 255, rounded; what lies outside is clipped.

    Examples
    --------
    >>> to_bytes(np.array([-1, 0.5, 2], np.float32)).tolist()
    [0, 128, 255]
    """
    return np.asarray(np.rint(np.clip(pixels, 0, 1) * np.float32(255)), np.uint8)


def from_bytes(image: NDArray[np.uint8]) -> Pixels:
    """Return bytes 0 to 255 as float32 of 0 to 1.

    Examples
    --------
    >>> from_bytes(np.array([0, 255], np.uint8)).tolist()
    [0.0, 1.0]
    """
    return image.astype(np.float32) / np.float32(255)


def contrast(pixels: Pixels, severity: int, rng: np.random.Generator) -> Pixels:
    """Pull every channel towards its mean; 0.75, 0.5, 0.4, 0.3, 0.15 of the contrast is left at 32 pixels.

    At 224 it is 0.4, 0.3, 0.2, 0.1, 0.05.

    Examples
    --------
    >>> contrast(np.array([[[0.0], [1.0]]], np.float32), 2, np.random.default_rng(0)).round(2).ravel().tolist()
    [0.25, 0.75]
    """
    del rng
    left = strength((0.75, 0.5, 0.4, 0.3, 0.15), (0.4, 0.3, 0.2, 0.1, 0.05), severity, short_side(pixels))
    mean = pixels.mean(axis=(0, 1), keepdims=True, dtype=np.float64).astype(np.float32)
    flattened: Pixels = mean + (pixels - mean) * np.float32(left)
    return flattened


def saturate(pixels: Pixels, severity: int, rng: np.random.Generator) -> Pixels:
    """Change a pixel's saturation S (of hue, saturation and value) to a S + b; 1 and 2 fade colours, 3 to 5 glare.

    a is 0.3, 0.1, 1.5, 2, 2.5 at 32 pixels and 0.3, 0.1, 2, 5, 20 at 224; b is 0, 0, 0, 0.1, 0.2. A grey pixel has no
    hue that could grow stronger and stays as it is, so a grey image is not changed at all. (In the published data such
    pixels turn red, the hue that counts as 0.)

    Examples
    --------
    >>> pink = np.array([[[1.0, 0.5, 0.5]]], np.float32)
    >>> saturate(pink, 1, np.random.default_rng(0)).astype(float).round(2).ravel().tolist()
    [1.0, 0.85, 0.85]
    """
    del rng
    factor = strength((0.3, 0.1, 1.5, 2, 2.5), (0.3, 0.1, 2, 5, 20), severity, short_side(pixels))
    value = pixels.max(axis=2, keepdims=True)
    spread = value - pixels.min(axis=2, keepdims=True)
    saturation = spread / np.maximum(value, np.float32(1e-6))
    wanted = np.clip(saturation * np.float32(factor) + np.float32((0, 0, 0, 0.1, 0.2)[severity - 1]), 0, 1)
    saturated: Pixels = value - (value - pixels) * (wanted / np.maximum(saturation, np.float32(1e-6)))
    return saturated


def pixelate(pixels: Pixels, severity: int, rng: np.random.Generator) -> Pixels:
    """Shrink, then enlarge again, by averages over boxes.

    Sides shrink to 0.95, 0.9, 0.85, 0.75, 0.65 of their pixels (rounded down) at 32 and to 0.6, 0.5, 0.4, 0.3, 0.25 at
    224. Needs Pillow.

    Examples
    --------
    >>> pixelate(np.ones((9, 9, 1), np.float32), 5, np.random.default_rng(0)).shape
    (9, 9, 1)
    """
    del rng
    height, width = pixels.shape[:2]
    left = strength((0.95, 0.9, 0.85, 0.75, 0.65), (0.6, 0.5, 0.4, 0.3, 0.25), severity, short_side(pixels))
    pillow = require("PIL.Image", "The corruption 'pixelate'", "torch")
    box = pillow.Resampling.BOX
    image = pillow.fromarray(_plain(to_bytes(pixels)))
    image = image.resize((max(1, int(width * left)), max(1, int(height * left))), box).resize((width, height), box)
    return from_bytes(np.asarray(image)).reshape(pixels.shape)


def jpeg_compression(pixels: Pixels, severity: int, rng: np.random.Generator) -> Pixels:
    """Store as JPEG of quality 80, 65, 58, 50, 40 at 32 pixels and 25, 18, 15, 10, 7 at 224, and read back.

    Needs Pillow; another version of its JPEG library may round otherwise.

    Examples
    --------
    >>> jpeg_compression(np.ones((9, 9, 3), np.float32), 5, np.random.default_rng(0)).shape
    (9, 9, 3)
    """
    del rng
    quality = round(strength((80, 65, 58, 50, 40), (25, 18, 15, 10, 7), severity, short_side(pixels)))
    pillow = require("PIL.Image", "The corruption 'jpeg-compression'", "torch")
    file = io.BytesIO()
    pillow.fromarray(_plain(to_bytes(pixels))).save(file, "JPEG", quality=quality)
    with pillow.open(file) as image:
        return from_bytes(np.asarray(image)).reshape(pixels.shape)


def elastic_transform(pixels: Pixels, severity: int, rng: np.random.Generator) -> Pixels:
    """Shift pixels along a smooth random field: rubber that is stretched and pressed.

    The field is random numbers under a bell, which is 6, 6, 6, 4, 3 per cent of the short side wide at 32 pixels and 1
    at 224. Its root mean square along each axis is 0.3, 0.45, 0.7, 1.3, 1.7 per cent at 32 and 0.2, 0.26, 0.33, 0.47,
    0.8 at 224: the published fields at severities 3 to 5. The published random affine shift is left out, because it
    is largest where the severity is least; severities 1 and 2, which are little else, are weaker fields here.

    Examples
    --------
    >>> elastic_transform(np.ones((9, 9, 1), np.float32), 5, np.random.default_rng(0)).round(3).min().item()
    1.0
    """
    height, width = pixels.shape[:2]
    side = short_side(pixels)
    share = strength((0.003, 0.0045, 0.007, 0.013, 0.017), (0.002, 0.0026, 0.0033, 0.0047, 0.008), severity, side)
    field = rng.uniform(-1, 1, (2, height, width))
    width_of_bell = side * strength((0.06, 0.06, 0.06, 0.04, 0.03), (0.01,) * 5, severity, side)
    field = gaussian_filter(field, (0, width_of_bell, width_of_bell), mode="reflect", truncate=3)
    field *= share * side / max(float(np.sqrt(np.mean(field**2))), 1e-12)
    return read_at(pixels, np.arange(height)[:, None] + field[0], np.arange(width)[None, :] + field[1])


def _plain(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return (h, w, 1) as (h, w), which is what Pillow takes."""
    return np.ascontiguousarray(image[:, :, 0] if image.shape[2] == 1 else image)


CORRUPTIONS = (
    Corruption("contrast", "digital", contrast),
    Corruption("elastic-transform", "digital", elastic_transform),
    Corruption("pixelate", "digital", pixelate),
    Corruption("jpeg-compression", "digital", jpeg_compression),
    Corruption("saturate", "digital", saturate),
)
