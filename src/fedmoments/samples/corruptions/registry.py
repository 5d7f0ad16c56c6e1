"""Corruptions by name: what there is, and :func:`corrupt`, which applies one to an image.

They are built in (the ``CORRUPTIONS`` of every file of this room), of installed packages (entry points of the group
``fedmoments.corruptions``), or registered at run time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedmoments.errors import InputError
from fedmoments.registry import Registry, scan
from fedmoments.samples.corruptions import digital
from fedmoments.samples.corruptions.corruption import Corruption
from fedmoments.samples.corruptions.scale import SEVERITIES
from fedmoments.samples.splits.draws import check_count

__all__ = ["check_corruption", "corrupt", "corruption_names", "families", "register_corruption"]

Given = TypeVar("Given")
_FAMILIES = ("noise", "blur", "weather", "digital")


def _accept(given: Any, name: str | None) -> Corruption:
    if isinstance(given, Corruption):
        return given
    if not callable(given):
        raise InputError("it must be a Corruption, or a function (pixels, severity, generator) -> pixels")
    return Corruption(name or given.__name__.replace("_", "-"), "other", given)


def _ours() -> list[Corruption]:
    """Return ours as they were published: a family is a file, and files are read by name."""
    corruptions: list[Corruption] = scan("fedmoments.samples.corruptions", "CORRUPTIONS")()
    return sorted(corruptions, key=lambda corruption: _FAMILIES.index(corruption.family))


_CORRUPTIONS: Registry[Corruption] = Registry(
    "corruption",
    group="fedmoments.corruptions",
    accept=_accept,
    built_in=_ours,
    order=None,
)


def register_corruption(corruption: Given, name: str | None = None) -> Given:
    """Make a corruption known by name in this process; also a decorator of a function.

    Parameters
    ----------
    corruption
        A :class:`~fedmoments.samples.corruptions.corruption.Corruption`, or a function of pixels (h, w, 1 or 3) in
        float32 from 0 to 1, a severity from 1 to 5 and a generator, that returns pixels of the same shape.
    name
        What users type; by default the corruption's, or the function's (``my_rain`` is typed ``my-rain``).

    Examples
    --------
    >>> @register_corruption
    ... def darkness(pixels, severity, rng):
    ...     return pixels / np.float32(1 + severity)
    >>> corrupt(np.full((4, 4), 200, np.uint8), "darkness", 1).max()
    np.uint8(100)
    >>> _CORRUPTIONS.remove("darkness")
    """
    _CORRUPTIONS.register(corruption, name)
    return corruption


def corruption_names() -> tuple[str, ...]:
    """Return the names of all corruptions, family by family.

    Examples
    --------
    >>> len(corruption_names()), corruption_names()[0]
    (19, 'gaussian-noise')
    """
    return tuple(_CORRUPTIONS)


def families() -> Mapping[str, tuple[str, ...]]:
    """Return the names of the corruptions of each family: noise, blur, weather, digital; ``other`` are not ours.

    Examples
    --------
    >>> families()["weather"]
    ('snow', 'frost', 'fog', 'brightness', 'spatter')
    """
    members: dict[str, list[str]] = {}
    for name, corruption in _CORRUPTIONS.items():
        members.setdefault(corruption.family, []).append(name)
    return {family: tuple(names) for family, names in members.items()}


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
    corrupted = _CORRUPTIONS[name].apply(pixels, int(severity), _generator(seed, name, severity, index))
    return np.ascontiguousarray(digital.to_bytes(corrupted).reshape(image.shape))


def check_corruption(name: str, severity: int) -> None:
    """Raise what :func:`corrupt` raises when there is no such corruption or severity.

    Examples
    --------
    >>> check_corruption("fog", 6)
    Traceback (most recent call last):
    fedmoments.errors.InputError: severity of the corruption 'fog' must be a whole number from 1 (weak) to 5 (strong),
    but is 6
    """
    _CORRUPTIONS.find(str(name))
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
