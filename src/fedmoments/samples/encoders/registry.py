"""All encoders by name: built in, of installed packages, and registered at run time.

A family file declares ``ENCODERS``, a tuple of ``samples.encoders.EncoderEntry``. A third-party package adds its own
through the entry-point group ``fedmoments.encoders``, each entry point naming an entry, a tuple of entries, or an
encoder (a class that is made without arguments, or an object).
"""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import Any, TypeVar

from fedmoments.errors import InputError, PolicyError, UnknownNameError
from fedmoments.registry import Registry, first_line, scan
from fedmoments.samples.encoders.encoder import Encoder
from fedmoments.samples.encoders.entry import EncoderEntry, Options, Runtime
from fedmoments.samples.encoders.images import ImagePreprocessing

__all__ = [
    "DEFAULT_IMAGE_ENCODER",
    "DEFAULT_TEXT_ENCODER",
    "encoder_names",
    "encoders",
    "find_entry",
    "load_encoder",
    "register_encoder",
    "require_trusted",
]

DEFAULT_IMAGE_ENCODER = "efficientnet-lite0"
DEFAULT_TEXT_ENCODER = "minilm"
_SOMETIMES = ("size", "crop", "pooling", "images", "dim")
Given = TypeVar("Given", bound=EncoderEntry | Encoder | type[Encoder])


def _accept(given: Any, name: str | None) -> EncoderEntry:
    if isinstance(given, EncoderEntry):
        return given
    kind = given if isinstance(given, type) else type(given)
    if not issubclass(kind, Encoder):
        raise InputError("it must be an EncoderEntry, or an Encoder: a class that is made without arguments, or one")

    def load(_argument: str, _options: Options) -> Encoder:
        encoder: Encoder = given() if isinstance(given, type) else given
        return encoder

    typed = name or getattr(given, "name", None) or kind.__name__
    return EncoderEntry(str(typed), first_line(kind), load, given.modality, runtimes=())


_ENCODERS: Registry[EncoderEntry] = Registry(
    "encoder",
    group="fedmoments.encoders",
    accept=_accept,
    built_in=scan("fedmoments.samples.encoders.families", "ENCODERS"),
    order=lambda entry: entry.name.endswith(":"),
)


def register_encoder(encoder: Given, name: str | None = None) -> Given:
    """Make an encoder known by name in this process; also a class decorator.

    Parameters
    ----------
    encoder
        An :class:`EncoderEntry`, an encoder, or a class of encoders that is made without arguments.
    name
        What users type; the encoder's own name by default. An entry has its own.

    Examples
    --------
    >>> from fedmoments.samples.encoders.families.identity import IdentityEncoder
    >>> _ = register_encoder(IdentityEncoder(3), "three")
    >>> load_encoder("three").dim
    3
    >>> encoders().remove("three")
    """
    _ENCODERS.register(encoder, name)
    return encoder


def encoders() -> Registry[EncoderEntry]:
    """Return all entries by name: plain names first, then families (``timm:``), in alphabetical order each.

    Examples
    --------
    >>> entry = encoders()["efficientnet-lite0"]
    >>> entry.dim, entry.size, entry.extra
    (1280, 224, 'torch')
    >>> encoders()["timm:"].usage
    'timm:NAME'
    """
    return _ENCODERS


def encoder_names() -> tuple[str, ...]:
    """Return what a user can type: names, and families with what comes behind their colon.

    Examples
    --------
    >>> [name for name in encoder_names() if "sentence" in name or "lite" in name]
    ['efficientnet-lite0', 'efficientnet-lite2', 'sentence-transformers:NAME_OR_PATH']
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


def require_trusted(name: object, trusted: Collection[str], whose: str, *, families: Collection[str] = ()) -> str:
    """Return the name of an encoder that arrived, in a file or a message, if it may be loaded.

    Whoever names an encoder with a colon names code (``torch:os:abort``), a path or a download on the machine that
    loads it. So one that arrived must be known by a plain name, built in or brought by an installed package, or the
    user must have named it on this machine.

    Parameters
    ----------
    name
        What arrived.
    trusted
        What the user named.
    whose
        Where it arrived, for the message.
    families
        Families that are harmless there: ``tuned:`` in a file of this machine, which leads to weights alone.

    Raises
    ------
    PolicyError
        When it may not be loaded; nothing of it was.

    Examples
    --------
    >>> require_trusted("minilm", (), "the terms")
    'minilm'
    >>> require_trusted("torch:os:abort", (), "the terms")
    Traceback (most recent call last):
    fedmoments.errors.PolicyError: the terms name the encoder 'torch:os:abort', ... --trust-encoder 'torch:os:abort'
    """
    if not isinstance(name, str):
        raise InputError(f"{whose} name an encoder by {type(name).__name__}, but a text was expected")
    family, colon, _ = name.partition(":")
    if name in trusted or f"{family}{colon}" in families or (not colon and name in encoders()):
        return name
    raise PolicyError(
        f"{whose} name the encoder {name!r:.200}, which is a function, a file or a download on the machine that loads "
        "it, not an encoder that fedmoments knows by name: nothing of it was loaded. Find out what it does; if you "
        f"want it to run here, name it yourself: --trust-encoder {name!r:.200}"
    )


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
    trusted: Collection[str] = (),
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
    trusted
        Encoders that a file which is loaded (``tuned:``) may name beside those that are known by plain names.

    Raises
    ------
    UnknownNameError
        When there is no such encoder.
    MissingExtraError
        When a package that it needs is not installed; MissingWeightsError when its weights are not.
    InputError
        When a setting is invalid for it.

    Examples
    --------
    >>> load_encoder("identity", dim=3).fingerprint == load_encoder("identity", dim=4).fingerprint
    False
    >>> load_encoder("identity", dim=3, size=224)
    Traceback (most recent call last):
    fedmoments.errors.InputError: the encoder 'identity' takes no size: it takes dim
    """
    options = Options(size, crop, pooling, images, dim, runtime, device, threads, batch_size, cache, tuple(trusted))
    entry = find_entry(name)
    for option in _SOMETIMES:
        if getattr(options, option) is not None and option not in entry.takes:
            takes = ", ".join(sorted(entry.takes)) or "none of " + ", ".join(_SOMETIMES)
            raise InputError(f"the encoder '{name}' takes no {option}: it takes {takes}")
    if runtime == "onnx" and entry.runtimes == ("torch",):
        able = [other.usage for other in encoders().values() if "onnx" in other.runtimes]
        raise InputError(f"the encoder '{name}' does not run on ONNX: use runtime 'torch'; {', '.join(able)} do")
    return entry.load(name.partition(":")[2], options)
