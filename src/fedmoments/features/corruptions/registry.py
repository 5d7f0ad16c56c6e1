"""Corruptions by name: what there is, and :func:`corrupt`, which applies one to an image."""

import hashlib
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedmoments.data.checks import check_count
from fedmoments.errors import InputError, UnknownNameError
from fedmoments.features.corruptions import blur, digital, noise, weather
from fedmoments.features.corruptions.scale import SEVERITIES, Pixels

__all__ = ["check_corruption", "corrupt", "corruption_names", "families"]

_Corruption: TypeAlias = Callable[[Pixels, int, np.random.Generator], Pixels]

_FAMILIES: Mapping[str, Mapping[str, _Corruption]] = {
    "noise": {
        "gaussian-noise": noise.gaussian_noise,
        "shot-noise": noise.shot_noise,
        "impulse-noise": noise.impulse_noise,
        "speckle-noise": noise.speckle_noise,
    },
    "blur": {
        "defocus-blur": blur.defocus_blur,
        "glass-blur": blur.glass_blur,
        "motion-blur": blur.motion_blur,
        "zoom-blur": blur.zoom_blur,
        "gaussian-blur": blur.gaussian_blur,
    },
    "weather": {
        "snow": weather.snow,
        "fog": weather.fog,
        "brightness": weather.brightness,
        "spatter": weather.spatter,
    },
    "digital": {
        "contrast": digital.contrast,
        "elastic-transform": digital.elastic_transform,
        "pixelate": digital.pixelate,
        "jpeg-compression": digital.jpeg_compression,
        "saturate": digital.saturate,
    },
}
_ALL: Mapping[str, _Corruption] = {name: each for family in _FAMILIES.values() for name, each in family.items()}


def corruption_names() -> tuple[str, ...]:
    """Return the names of all corruptions, family by family.

    Examples
    --------
    >>> len(corruption_names()), corruption_names()[0]
    (18, 'gaussian-noise')
    """
    return tuple(_ALL)


def families() -> Mapping[str, tuple[str, ...]]:
    """Return the names of the corruptions of each family: noise, blur, weather, digital.

    Examples
    --------
    >>> families()["weather"]
    ('snow', 'fog', 'brightness', 'spatter')
    """
    return MappingProxyType({family: tuple(members) for family, members in _FAMILIES.items()})


def corrupt(image: NDArray[np.uint8], name: str, severity: int, *, seed: int = 0, index: int = 0) -> NDArray[np.uint8]:
    """Corrupt an image; the same call gives the same pixels.

    Parameters
    ----------
    image
        (h, w) or (h, w, 3) uint8, at least one pixel; it is left as it is. A grey image stays grey.
    name
        One of :func:`corruption_names`.
    severity
        1 (weak) to 5 (strong).
    seed
        At least 0.
    index
        The image's place in its data set, at least 0: images are corrupted independently of each other.

    Returns
    -------
    NDArray[np.uint8]
        A new array of the same shape.

    Raises
    ------
    UnknownNameError
        When no corruption has that name.
    InputError
        When severity, seed, index or image are not what they must be.

    Examples
    --------
    >>> grey = np.full((32, 32), 128, np.uint8)
    >>> noisy = corrupt(grey, "gaussian-noise", 3)
    >>> noisy.shape, noisy.dtype.name, 15 < float(noisy.std()) < 25
    ((32, 32), 'uint8', True)
    >>> bool((corrupt(grey, "gaussian-noise", 3, index=1) == noisy).all())
    False
    """
    check_corruption(name, severity)
    check_count(seed, "seed", least=0)
    check_count(index, "index", least=0)
    pixels = digital.from_bytes(_checked(image))
    found = _ALL[name](pixels, int(severity), _generator(seed, name, severity, index))
    return np.ascontiguousarray(digital.to_bytes(found).reshape(image.shape))


def check_corruption(name: str, severity: int) -> None:
    """Raise what :func:`corrupt` raises when there is no such corruption or severity.

    Examples
    --------
    >>> check_corruption("fog", 6)
    Traceback (most recent call last):
    fedmoments.errors.InputError: severity of the corruption 'fog' must be a whole number from 1 (weak) to 5 (strong),
    but is 6
    """
    if str(name) not in _ALL:
        raise UnknownNameError("corruption", str(name), _ALL)
    level: object = severity
    if isinstance(level, bool | np.bool_) or not isinstance(level, int | np.integer) or level not in SEVERITIES:
        raise InputError(
            f"severity of the corruption '{name}' must be a whole number from 1 (weak) to 5 (strong), but is {level!r}"
        )


def _checked(image: object) -> NDArray[np.uint8]:
    """Return an image as (h, w, 1) or (h, w, 3)."""
    if not isinstance(image, np.ndarray) or image.dtype != np.uint8:
        arrived = f"an array of {image.dtype}" if isinstance(image, np.ndarray) else type(image).__name__
        raise InputError(
            f"an image to corrupt must be an array of uint8, 0–255, but is {arrived}: decode, scale and convert it "
            "first"
        )
    if image.size == 0 or not (image.ndim == 2 or (image.ndim == 3 and image.shape[2] == 3)):
        raise InputError(
            f"an image to corrupt must be (h, w) or (h, w, 3) and not empty, but is {image.shape}: convert it to grey "
            "or RGB first"
        )
    return image[:, :, None] if image.ndim == 2 else image


def _generator(seed: int, name: str, severity: int, index: int) -> np.random.Generator:
    text = f"fedmoments corruption {int(seed)} {name} {int(severity)} {int(index)}"
    return np.random.default_rng(int.from_bytes(hashlib.sha256(text.encode()).digest(), "little"))
