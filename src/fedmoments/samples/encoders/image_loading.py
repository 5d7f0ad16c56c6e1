"""The way that every image family takes from a torch network to an encoder on the runtime that was requested."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedmoments.errors import InputError
from fedmoments.extras import require
from fedmoments.samples.encoders.encoder import Encoder, fingerprint_of
from fedmoments.samples.encoders.entry import EncoderEntry, Options
from fedmoments.samples.encoders.image_encoder import described
from fedmoments.samples.encoders.images import ImagePreprocessing
from fedmoments.samples.encoders.onnx_export import cached_export
from fedmoments.samples.encoders.onnx_runtime import OnnxImageEncoder
from fedmoments.samples.encoders.packages import PackagedFile
from fedmoments.samples.encoders.torch_runtime import TorchImageEncoder, hash_of_state

__all__ = ["IMAGE_OPTIONS", "PackagedImages", "checked_pooling", "load_network"]

IMAGE_OPTIONS = frozenset({"size", "crop", "pooling"})


@dataclass(frozen=True)
class PackagedImages:
    """An image encoder whose weights travel in a package.

    Parameters
    ----------
    name
        Of the encoder.
    file
        Its weights.
    dim
        Dimension of the features.
    images
        Its own preparation of images.
    build
        Makes the network, weights loaded, from the weights file and the size of the images. The network has a method
        ``scores`` from its maps to ImageNet scores.
    """

    name: str
    file: PackagedFile
    dim: int
    images: ImagePreprocessing
    build: Callable[[Path, int], Any]

    def load(self, _argument: str, options: Options) -> Encoder:
        """Load the encoder; on ONNX, neither torch nor the weights are touched once it was exported."""
        images = options.preprocessing(self.images)
        pooling = checked_pooling(options, self.name, ("mean", "max"))
        if options.runtime == "torch":
            return self._on_torch(images, pooling, options)
        fingerprint = fingerprint_of(self.file.sha256, described(images, pooling), self.dim)
        path = cached_export(fingerprint, lambda: self._on_torch(images, pooling, Options(threads=1)), options.cache)
        weights = self.file.sha256
        return OnnxImageEncoder(self.name, images, pooling=pooling, weights_hash=weights, path=path, **options.run())

    def entry(
        self, description: str, licence: str, *, needs: tuple[str, ...] = (), code: tuple[str, ...] = ()
    ) -> EncoderEntry:
        """Return what the registry knows of it.

        Parameters
        ----------
        description, licence
            In a line each.
        needs, code
            Modules that it imports besides torch and Pillow, and packages of code besides that of the weights.
        """
        return EncoderEntry(
            name=self.name,
            description=description,
            load=self.load,
            modality="image",
            dim=self.dim,
            size=self.images.size,
            takes=IMAGE_OPTIONS,
            runtimes=("torch", "onnx"),
            extra="torch",
            needs=("torch", "PIL", *needs),
            packages=(*code, self.file.package),
            files=(self.file,),
            licence=licence,
            non_negative=True,
        )

    def _on_torch(self, images: ImagePreprocessing, pooling: str, options: Options) -> TorchImageEncoder:
        require("torch", f"The encoder '{self.name}'", "torch")
        from fedmoments.samples.encoders.modules.pixels import PixelModel

        network = self.build(self.file.verified(self.name), images.size)
        model = PixelModel(network, images, pooling, network.scores)
        weights = self.file.sha256
        return TorchImageEncoder(self.name, images, pooling=pooling, weights_hash=weights, model=model, **options.run())


def load_network(name: str, network: Any, images: ImagePreprocessing, pooling: str, options: Options) -> Encoder:
    """Return an encoder of any torch network, on torch or exported to ONNX; its weights are hashed here."""
    from fedmoments.samples.encoders.modules.pixels import PixelModel

    weights = hash_of_state(network.state_dict())
    model = PixelModel(network, images, pooling)
    encoder = TorchImageEncoder(name, images, pooling=pooling, weights_hash=weights, model=model, **options.run())
    if options.runtime == "torch":
        return encoder
    path = cached_export(encoder.fingerprint, lambda: encoder, options.cache, encoder.behaviour)
    return OnnxImageEncoder(name, images, pooling=pooling, weights_hash=weights, path=path, **options.run())


def checked_pooling(options: Options, name: str, allowed: tuple[str, ...]) -> str:
    """Return the pooling that was requested, or the first that is allowed.

    Examples
    --------
    >>> checked_pooling(Options(pooling="sum"), "mobilenet-v2", ("mean", "max"))
    Traceback (most recent call last):
    fedmoments.errors.InputError: pooling of the encoder 'mobilenet-v2' must be mean or max, but is 'sum'
    """
    pooling = options.pooling or allowed[0]
    if pooling not in allowed:
        raise InputError(f"pooling of the encoder '{name}' must be {' or '.join(allowed)}, but is '{pooling}'")
    return pooling
