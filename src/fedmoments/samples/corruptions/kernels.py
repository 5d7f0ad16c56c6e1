"""Blurring and reading between pixels, for lengths that may be far below one pixel.

An image is read linearly between its pixels, so a kernel (a disc, a streak, a bell) is the average of the image over
that shape however small it is: on an 8 × 8 digit a blur of a tenth of a pixel still blurs by that much. Beyond its
border an image goes on as its mirror image.
"""

import math
from functools import lru_cache
from typing import Any

import numpy as np
import scipy.fft
from numpy.typing import NDArray
from scipy.ndimage import correlate1d
from scipy.special import ndtr

from fedmoments.samples.corruptions.scale import Pixels

__all__ = ["bell_kernel", "blur_with", "disc_kernel", "gaussian_blurred", "read_at", "resized", "streak_kernel"]

#: Points a pixel, along each axis, of which a disc or a streak is made.
_POINTS = 8


def _splat(y: NDArray[np.float64], x: NDArray[np.float64], weights: NDArray[np.float64], reach: int) -> Pixels:
    """Return the kernel (2 reach + 1)² of weighted points (k,): a point's weight goes to the four pixels around it."""
    side = 2 * reach + 1
    top, left = np.floor(y), np.floor(x)
    down, right = y - top, x - left
    first = ((top + reach) * side + (left + reach)).astype(np.intp)
    kernel = np.zeros(side * side + side + 1)
    for step, share in (
        (0, (1 - down) * (1 - right)),
        (1, (1 - down) * right),
        (side, down * (1 - right)),
        (side + 1, down * right),
    ):
        kernel += np.bincount(first + step, weights * share, len(kernel))
    square: NDArray[np.float64] = kernel[: side * side].reshape(side, side)
    return np.asarray(square / square.sum(), np.float32)


def _middles(count: int) -> NDArray[np.float64]:
    """Return the middles of `count` equal parts of 0 to 1."""
    return (np.arange(count) + 0.5) / count


@lru_cache(maxsize=64)
def disc_kernel(radius: float) -> Pixels:
    """Return the kernel of a lens that is out of focus, a disc of `radius` pixels: (2k + 1, 2k + 1), sum 1.

    Examples
    --------
    >>> disc_kernel(0.25).astype(float).round(2).tolist()
    [[0.0, 0.05, 0.0], [0.05, 0.8, 0.05], [0.0, 0.05, 0.0]]
    """
    line = radius * (2 * _middles(2 * max(16, math.ceil(radius * _POINTS))) - 1)
    y, x = (axis.ravel() for axis in np.meshgrid(line, line, indexing="ij"))
    inside = y**2 + x**2 <= radius**2
    kernel = _splat(y[inside], x[inside], np.ones(int(inside.sum())), math.ceil(radius) + 1)
    if not kernel[0].any() and not kernel[:, 0].any() and not kernel[-1].any() and not kernel[:, -1].any():
        kernel = np.ascontiguousarray(kernel[1:-1, 1:-1])
    kernel.setflags(write=False)
    return kernel


def streak_kernel(reach: float, sigma: float, angle: float) -> Pixels:
    """Return the kernel of a motion: a half bell of width `sigma` pixels along a line of `reach` pixels, sum 1.

    Parameters
    ----------
    reach
        Length of the line in pixels; it begins at the centre.
    sigma
        Standard deviation, in pixels, of the bell that fades along the line.
    angle
        Direction in degrees, 0 to the right, 90 down.

    Examples
    --------
    >>> streak_kernel(2.0, 1e9, 0.0).astype(float).round(2).tolist()[2]
    [0.0, 0.0, 0.25, 0.5, 0.25]
    """
    t = reach * _middles(max(16, math.ceil(reach * _POINTS)))
    turn = math.radians(angle)
    return _splat(t * math.sin(turn), t * math.cos(turn), np.exp(-0.5 * (t / sigma) ** 2), math.ceil(reach))


def bell_kernel(sigma: float) -> NDArray[np.float64]:
    """Return the weights (2k + 1,) of a Gaussian blur of `sigma` pixels along one axis, sum 1.

    With X ~ N(0, σ²), the pixel at j weighs E[max(0, 1 − |X − j|)], the second difference of E[max(0, j − X)].

    Examples
    --------
    >>> bell_kernel(0.1).round(3).tolist()
    [0.04, 0.92, 0.04]
    """
    reach = math.ceil(4 * sigma)
    j = np.arange(-reach - 1, reach + 2) / sigma
    excess = sigma * (j * ndtr(j) + np.exp(-0.5 * j**2) / math.sqrt(2 * math.pi))
    weights = np.maximum(np.diff(excess, n=2), 0)
    kernel: NDArray[np.float64] = weights / weights.sum()
    return kernel


def gaussian_blurred(pixels: Pixels, sigma: float) -> Pixels:
    """Return an image (h, w, c), blurred by `sigma` pixels along both axes."""
    bell = bell_kernel(sigma)
    blurred: Pixels = correlate1d(correlate1d(pixels, bell, axis=0, mode="reflect"), bell, axis=1, mode="reflect")
    return blurred


def blur_with(pixels: Pixels, kernel: Pixels) -> Pixels:
    """Return the convolution of an image (h, w, c) with a kernel (2k + 1, 2k + 1), by the fast Fourier transform.

    Examples
    --------
    >>> blur_with(np.ones((2, 3, 1), np.float32), disc_kernel(1.5)).round(6).ravel().tolist()
    [1.0, 1.0, 1.0, 1.0, 1.0, 1.0]
    """
    height, width = pixels.shape[:2]
    reach = kernel.shape[0] // 2
    wide = np.pad(pixels, ((reach, reach), (reach, reach), (0, 0)), mode="symmetric")
    # What wraps around reaches only the margin, which is cut off: no room for it is needed.
    shape = tuple(scipy.fft.next_fast_len(n, real=True) for n in wide.shape[:2])
    product = scipy.fft.rfft2(wide.transpose(2, 0, 1), shape) * scipy.fft.rfft2(kernel, shape)
    whole = scipy.fft.irfft2(product, shape)[:, 2 * reach : 2 * reach + height, 2 * reach : 2 * reach + width]
    return np.ascontiguousarray(whole.transpose(1, 2, 0), dtype=np.float32)


def read_at(pixels: Pixels, y: NDArray[Any], x: NDArray[Any]) -> Pixels:
    """Return an image (h, w, c), read at rows y and columns x (both (h', w')), (h', w', c).

    Places beyond the border are mirrored into the image.

    Examples
    --------
    >>> pair = np.array([[[0.0], [1.0]]], np.float32)
    >>> read_at(pair, np.zeros((1, 3)), np.array([[0.25, 1.0, -0.75]])).ravel().tolist()
    [0.25, 1.0, 0.0]
    """
    height, width, channels = pixels.shape
    flat = pixels.reshape(-1, channels)
    (top, bottom, down), (left, right, along) = _neighbours(y, height), _neighbours(x, width)
    down, along = np.expand_dims(down, -1), np.expand_dims(along, -1)
    above: Pixels = flat[top * width + left] * (1 - along) + flat[top * width + right] * along
    below: Pixels = flat[bottom * width + left] * (1 - along) + flat[bottom * width + right] * along
    between: Pixels = above * (1 - down) + below * down
    return between


def resized(pixels: Pixels, rows: NDArray[Any], columns: NDArray[Any]) -> Pixels:
    """Return an image (h, w, c), read at every pair of `rows` (h',) and `columns` (w',): (h', w', c).

    Examples
    --------
    >>> resized(np.array([[[0.0], [1.0]]], np.float32), np.zeros(1), np.array([0, 0.5, 1])).ravel().tolist()
    [0.0, 0.5, 1.0]
    """
    top, bottom, down = _neighbours(rows, pixels.shape[0])
    tall: Pixels = pixels[top] * (1 - down[:, None, None]) + pixels[bottom] * down[:, None, None]
    left, right, along = _neighbours(columns, pixels.shape[1])
    resampled: Pixels = tall[:, left] * (1 - along[:, None]) + tall[:, right] * along[:, None]
    return resampled


def _neighbours(places: NDArray[Any], size: int) -> tuple[NDArray[np.intp], NDArray[np.intp], Pixels]:
    """Return the pixels before and after places along an axis, and how far along from one to the other each is."""
    before = np.floor(places)
    share = (places - before).astype(np.float32)
    first = before.astype(np.intp)
    return _mirrored(first, size), _mirrored(first + 1, size), share


def _mirrored(index: NDArray[np.intp], size: int) -> NDArray[np.intp]:
    turned = index % (2 * size)
    return np.minimum(turned, 2 * size - 1 - turned)
