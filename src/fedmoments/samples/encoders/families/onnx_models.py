"""``onnx:FILE``: an image model in an ONNX file, exported by fedmoments (then all is known) or by anyone."""

import hashlib
from pathlib import Path
from typing import Any

from fedmoments.errors import FileFormatError, InputError
from fedmoments.extras import require
from fedmoments.samples.encoders.encoder import Encoder
from fedmoments.samples.encoders.entry import EncoderEntry, Options
from fedmoments.samples.encoders.image_loading import IMAGE_OPTIONS, checked_pooling
from fedmoments.samples.encoders.images import IMAGENET, ImagePreprocessing
from fedmoments.samples.encoders.onnx_file import read_description
from fedmoments.samples.encoders.onnx_runtime import OnnxImageEncoder, session
from fedmoments.samples.encoders.packages import sha256_of_file

__all__ = ["ENCODERS"]

_PREFIX = "onnx:"


def _load(argument: str, options: Options) -> Encoder:
    name = _PREFIX + argument
    path = Path(argument).expanduser()
    if not path.is_file():
        raise InputError(f"the encoder '{name}' cannot be loaded: the file {path} does not exist")
    description = read_description(path)
    if description is not None:
        images, pooling = _as_exported(description, options, name)
        weights = description["weights"]
    else:
        images = _fitted(session(path, name), name, options)
        pooling = checked_pooling(options, name, ("mean", "max", "cls"))
        weights = _hash_with_data(path, name)
    return OnnxImageEncoder(name, images, pooling=pooling, weights_hash=weights, path=path, **options.run())


def _as_exported(description: dict[str, Any], options: Options, name: str) -> tuple[ImagePreprocessing, str]:
    """Return how images were prepared and pooled when fedmoments exported the file; it cannot be changed now."""
    if description.get("kind") != "image":
        raise InputError(f"the encoder '{name}' does not take images: load '{description.get('name')}' by its name")
    images = ImagePreprocessing.from_description(description["preprocessing"])
    pooling = description["preprocessing"]["pooling"]
    if options.preprocessing(images) != images or options.pooling not in (None, pooling):
        raise InputError(
            f"the encoder '{name}' was exported for size {images.size}, crop {images.crop}, pooling {pooling}: "
            "export it again to change these"
        )
    return images, pooling


def _fitted(runner: Any, name: str, options: Options) -> ImagePreprocessing:
    """Return the preparation of images that the model's input takes."""
    shape = _image_input(runner, name).shape
    fixed = [side for side in shape[2:] if isinstance(side, int)]
    images = options.preprocessing(options.images or IMAGENET)
    if fixed and options.size is None and options.images is None:
        images = Options(size=fixed[0], crop=options.crop).preprocessing(images)
    if any(side != images.size for side in fixed):
        raise InputError(f"the encoder '{name}' takes images of {shape[2:]} pixels, but size is {images.size}")
    return images


def _image_input(runner: Any, name: str) -> Any:
    """Return the model's only input; refuse a model that does not take images."""
    inputs = runner.get_inputs()
    shape = inputs[0].shape
    if len(inputs) != 1 or len(shape) != 4 or (isinstance(shape[1], int) and shape[1] != 3):
        raise InputError(
            f"the encoder '{name}' must have one input of images (n, 3, height, width), "
            f"but has {', '.join(f'{tensor.name} {tensor.shape}' for tensor in inputs)}"
        )
    if inputs[0].type not in ("tensor(float)", "tensor(uint8)"):
        raise InputError(f"the encoder '{name}' must take float32 or uint8, but takes {inputs[0].type}")
    return inputs[0]


def _hash_with_data(path: Path, name: str) -> str:
    """Return the SHA-256 of the file, and of the files beside it that hold its weights if it keeps them apart."""
    onnx = require("onnx", f"The encoder '{name}'", "onnx")
    try:
        model = onnx.load(path, load_external_data=False)
    except Exception as error:  # protobuf's own error, of which onnx makes no promise
        raise FileFormatError(f"{path} is not an ONNX file: {error}") from error
    helper = require("onnx.external_data_helper", f"The encoder '{name}'", "onnx")
    beside = {
        helper.ExternalDataInfo(tensor).location
        for tensor in model.graph.initializer
        if helper.uses_external_data(tensor)
    }
    hashes = [sha256_of_file(path), *(sha256_of_file(path.parent / location) for location in sorted(beside))]
    return hashes[0] if len(hashes) == 1 else hashlib.sha256("".join(hashes).encode()).hexdigest()


ENCODERS = (
    EncoderEntry(
        name=_PREFIX,
        argument="FILE",
        description="an image model in an ONNX file",
        load=_load,
        modality="image",
        takes=IMAGE_OPTIONS | {"images"},
        runtimes=("onnx",),
        extra="onnx",
        needs=("onnxruntime", "PIL"),
    ),
)
