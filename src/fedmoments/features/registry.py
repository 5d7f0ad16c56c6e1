"""All encoders by name: those of every file in ``families``, and of installed third-party packages.

A family file declares ``ENCODERS``, a tuple of :class:`~fedmoments.features.EncoderEntry`. A third-party package adds
its own through the entry-point group ``fedmoments.encoders``, each entry point naming such a tuple or a single entry.
"""

import importlib
import os
import pkgutil
from collections.abc import Mapping
from functools import cache as cached
from importlib.metadata import entry_points

from fedmoments.errors import InputError, UnknownNameError
from fedmoments.features.encoder import Encoder
from fedmoments.features.entry import EncoderEntry, Options, Runtime
from fedmoments.features.images import ImagePreprocessing

__all__ = ["DEFAULT_IMAGE_ENCODER", "DEFAULT_TEXT_ENCODER", "encoder_names", "encoders", "find_entry", "load_encoder"]

DEFAULT_IMAGE_ENCODER = "efficientnet-lite0"
DEFAULT_TEXT_ENCODER = "minilm"
ENTRY_POINTS = "fedmoments.encoders"
_SOMETIMES = ("size", "crop", "pooling", "images", "dim")


@cached
def encoders() -> Mapping[str, EncoderEntry]:
    """Return all entries by name: plain names first, then families (``timm:``), in alphabetical order each.

    Examples
    --------
    >>> entry = encoders()["efficientnet-lite0"]
    >>> entry.dim, entry.size, entry.extra
    (1280, 224, 'torch')
    >>> encoders()["timm:"].usage
    'timm:NAME'
    """
    found: list[EncoderEntry] = []
    package = importlib.import_module("fedmoments.features.families")
    for module in pkgutil.iter_modules(package.__path__, "fedmoments.features.families."):
        found.extend(getattr(importlib.import_module(module.name), "ENCODERS", ()))
    for entry_point in entry_points(group=ENTRY_POINTS):
        loaded = entry_point.load()
        found.extend([loaded] if isinstance(loaded, EncoderEntry) else loaded)
    table: dict[str, EncoderEntry] = {}
    for entry in sorted(found, key=lambda entry: (entry.name.endswith(":"), entry.name)):
        if entry.name in table:
            raise InputError(f"two encoders call themselves '{entry.name}': rename or uninstall one of them")
        table[entry.name] = entry
    return table


def encoder_names() -> tuple[str, ...]:
    """Return what a user can type: names, and families with what comes behind their colon.

    Examples
    --------
    >>> [name for name in encoder_names() if "sentence" in name or "lite" in name]
    ['efficientnet-lite0', 'sentence-transformers:NAME_OR_PATH']
    """
    return tuple(entry.usage for entry in encoders().values())


def find_entry(name: str) -> EncoderEntry:
    """Return the entry that a name, with or without an argument, belongs to.

    Examples
    --------
    >>> find_entry("timm:resnet18").usage
    'timm:NAME'
    >>> find_entry("mobilenet")
    Traceback (most recent call last):
    fedmoments.errors.UnknownNameError: unknown encoder 'mobilenet': did you mean 'mobilenet-v2'? Known are: ...
    """
    family, colon, argument = name.partition(":")
    entry = encoders().get(family + colon)
    if entry is None:
        raise UnknownNameError("encoder", name, encoder_names())
    if colon and not argument:
        raise InputError(f"the encoder '{name}' lacks what comes behind the colon: write {entry.usage}")
    return entry


def load_encoder(
    name: str,
    *,
    size: int | None = None,
    crop: float | None = None,
    pooling: str | None = None,
    images: ImagePreprocessing | None = None,
    dim: int | None = None,
    runtime: Runtime = "torch",
    device: str = "cpu",
    threads: int | None = None,
    batch_size: int | None = None,
    cache: str | os.PathLike[str] | None = None,
) -> Encoder:
    """Load an encoder.

    Parameters
    ----------
    name
        One of :func:`encoder_names`.
    size
        Side of the images in pixels; 224 by default.
    crop
        Fraction of an image's short side that is kept; 0.875 by default.
    pooling
        How many vectors become one: ``"mean"`` or ``"max"`` for images, ``"mean"`` or ``"cls"`` for ``transformers:``.
    images
        The whole preparation of images, for ``onnx:``, ``torch:`` and ``timm:``; size and crop are set on top.
    dim
        Dimension of the features, for ``identity``.
    runtime
        ``"torch"``, or ``"onnx"``: exported once, kept in the cache, run by onnxruntime. Not part of the fingerprint.
    device
        ``"cpu"``, or another that the runtime offers: ``"cuda"``, ``"cuda:1"``, ``"mps"``.
    threads
        On a CPU; None leaves the runtime's own number. On a machine that has other work, one or two are faster.
    batch_size
        Samples that are encoded at once.
    cache
        Folder for ONNX exports: below it, ``onnx/``. By default the environment variable FEDMOMENTS_CACHE, or the
        platform's cache folder.

    Raises
    ------
    UnknownNameError
        When there is no such encoder.
    MissingExtraError
        When a package that it needs is not installed; MissingWeightsError when its weights are not.
    InputError
        When a setting makes no sense for it.

    Examples
    --------
    >>> load_encoder("identity", dim=3).fingerprint == load_encoder("identity", dim=4).fingerprint
    False
    >>> load_encoder("identity", dim=3, size=224)
    Traceback (most recent call last):
    fedmoments.errors.InputError: the encoder 'identity' takes no size: it takes dim
    """
    options = Options(size, crop, pooling, images, dim, runtime, device, threads, batch_size, cache)
    entry = find_entry(name)
    for option in _SOMETIMES:
        if getattr(options, option) is not None and option not in entry.takes:
            takes = ", ".join(sorted(entry.takes)) or "none of " + ", ".join(_SOMETIMES)
            raise InputError(f"the encoder '{name}' takes no {option}: it takes {takes}")
    if runtime == "onnx" and entry.runtimes == ("torch",):
        able = [other.usage for other in encoders().values() if "onnx" in other.runtimes]
        raise InputError(f"the encoder '{name}' does not run on ONNX: use runtime 'torch'; {', '.join(able)} do")
    return entry.load(name.partition(":")[2], options)
