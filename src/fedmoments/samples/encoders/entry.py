"""What the registry knows of an encoder, and the settings that one is loaded with."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from fedmoments.errors import FileFormatError, InputError
from fedmoments.extras import is_installed
from fedmoments.samples.encoders.encoder import Encoder, Modality
from fedmoments.samples.encoders.images import ImagePreprocessing
from fedmoments.samples.encoders.packages import PackagedFile

__all__ = ["EncoderEntry", "Options", "Runtime"]

Runtime = Literal["torch", "onnx"]


@dataclass(frozen=True)
class Options:
    """Everything that an encoder can be loaded with; None is the encoder's own default."""

    size: int | None = None
    crop: float | None = None
    pooling: str | None = None
    images: ImagePreprocessing | None = None
    dim: int | None = None
    runtime: Runtime = "torch"
    device: str = "cpu"
    threads: int | None = None
    batch_size: int | None = None
    cache: str | os.PathLike[str] | None = None
    trusted: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("size", "dim", "threads", "batch_size"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise InputError(f"{name} of an encoder must be a whole number of at least 1, but is {value!r}")
        if self.runtime not in ("torch", "onnx"):
            raise InputError(f"runtime of an encoder must be 'torch' or 'onnx', but is {self.runtime!r}")

    def run(self) -> dict[str, Any]:
        """Return how to run: device, threads and batch size, by name."""
        return {"device": self.device, "threads": self.threads, "batch_size": self.batch_size}

    def preprocessing(self, default: ImagePreprocessing) -> ImagePreprocessing:
        """Return how images are prepared: the default with what was set in its place."""
        chosen = self.images or default
        return ImagePreprocessing(
            size=self.size or chosen.size,
            crop=chosen.crop if self.crop is None else self.crop,
            interpolation=chosen.interpolation,
            channels=chosen.channels,
            mean=chosen.mean,
            scale=chosen.scale,
        )


@dataclass(frozen=True)
class EncoderEntry:
    """An encoder, or a family of encoders, that :func:`fedmoments.samples.encoders.load_encoder` finds by name.

    Parameters
    ----------
    name
        ``efficientnet-lite0``; a family that takes the rest as an argument ends in a colon: ``timm:``.
    argument
        What comes behind the colon, for people: ``NAME``.
    description
        One line.
    load
        Called with the argument (empty for a plain name) and the options.
    modality, also
        What it takes; of a family, what others of it take.
    dim, size
        Dimension of the features and side of the images, where they are known before loading.
    takes
        The options, beyond runtime, device, threads and batch size, that make sense.
    runtimes
        Where it runs: ``torch``, ``onnx``; none for one that needs neither.
    extra, needs
        The extra of fedmoments that brings what it needs, and the top-level modules to look for.
    packages, files
        What carries the weights, ``name==version``, and the files that are checked.
    licence
        Of the weights.
    non_negative
        Whether features are never negative, as behind a ReLU: then the map ``auto`` is the power map.
    varying_length
        Whether the length of features varies by itself, as of means of word vectors: then the map ``auto`` scales
        samples to length 1.
    """

    name: str
    description: str
    load: Callable[[str, Options], Encoder]
    modality: Modality
    argument: str = ""
    dim: int | None = None
    size: int | None = None
    takes: frozenset[str] = frozenset()
    runtimes: tuple[Runtime, ...] = ("torch",)
    extra: str = ""
    needs: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    files: tuple[PackagedFile, ...] = ()
    licence: str = ""
    non_negative: bool = False
    varying_length: bool = False
    also: tuple[Modality, ...] = ()

    @property
    def usage(self) -> str:
        """What a user types."""
        return self.name + self.argument

    @property
    def installed(self) -> bool:
        """Whether the packages that it needs and its weights are there; nothing is imported."""
        return all(is_installed(module) for module in self.needs) and self.weights_present()

    @property
    def remedy(self) -> str:
        """What to type for it to run here: nothing, the extra that lacks, or the weights that do.

        Examples
        --------
        >>> EncoderEntry("pets", "an example", print, "image", extra="torch", needs=("no_such_package",)).remedy
        "pip install 'fedmoments[torch]'"
        """
        lacking = [module for module in self.needs if not is_installed(module)]
        if lacking:
            return f"pip install 'fedmoments[{self.extra}]'" if self.extra else f"pip install {lacking[0]}"
        return "" if self.weights_present() else f"fedmoments encoders install {self.name}"

    def weights_present(self) -> bool:
        """Whether the weights are there, unread."""
        return all(file.find() is not None for file in self.files)

    def weights_sound(self) -> bool:
        """Whether the weights are there and are the ones that were meant."""
        try:
            return all(file.find() is not None and file.verified(self.name) for file in self.files)
        except FileFormatError:
            return False
