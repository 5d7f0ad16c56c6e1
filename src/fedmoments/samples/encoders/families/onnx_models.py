"""``onnx:FILE``: a model in an ONNX file, exported by fedmoments (then all is known) or by anyone.

What it takes is told by its inputs: images (n, 3, height, width); tokens ``input_ids`` of sentences, with a
``tokenizer.json`` beside the file; or rows of numbers (n, columns).
"""

import hashlib
import json
from pathlib import Path
from typing import Any

from fedmoments.errors import FileFormatError, InputError
from fedmoments.extras import require
from fedmoments.samples.encoders.encoder import Encoder
from fedmoments.samples.encoders.entry import EncoderEntry, Options
from fedmoments.samples.encoders.image_loading import IMAGE_OPTIONS, checked_pooling
from fedmoments.samples.encoders.images import IMAGENET, ImagePreprocessing
from fedmoments.samples.encoders.onnx_file import read_description
from fedmoments.samples.encoders.onnx_inputs import TOKEN_INPUTS, OnnxRowEncoder, OnnxTextEncoder, read_tokenizer
from fedmoments.samples.encoders.onnx_runtime import OnnxImageEncoder, session
from fedmoments.samples.encoders.packages import sha256_of_file

__all__ = ["ENCODERS"]

_PREFIX = "onnx:"
#: Tokens of a sentence where the tokenizer does not say.
MAX_TOKENS = 512
#: A limit of tokens beyond it is none: Hugging Face writes 1e30.
LONGEST = 100_000


def _load(argument: str, options: Options) -> Encoder:
    name = _PREFIX + argument
    path = Path(argument).expanduser()
    if not path.is_file():
        raise InputError(f"the encoder '{name}' cannot be loaded: the file {path} does not exist")
    description = read_description(path)
    if description is not None and description.get("kind") == "text":
        return _exported_text(path, name, description, options)
    if description is not None:
        images, pooling = _as_exported(description, options, name)
        weights = description["weights"]
        return OnnxImageEncoder(name, images, pooling=pooling, weights_hash=weights, path=path, **options.run())
    runner = session(path, name)
    inputs = {given.name: given for given in runner.get_inputs()}
    if TOKEN_INPUTS[0] in inputs and inputs.keys() <= set(TOKEN_INPUTS):
        return _text(path, name, options)
    if _takes_rows(list(inputs.values())):
        _refuse(options, name, "rows of numbers", ())
        return OnnxRowEncoder(name, _hash_with_data(path, name), path=path, options=options)
    images = _fitted(runner, name, options)
    pooling = checked_pooling(options, name, ("mean", "max", "cls"))
    weights = _hash_with_data(path, name)
    return OnnxImageEncoder(name, images, pooling=pooling, weights_hash=weights, path=path, **options.run())


def _takes_rows(inputs: list[Any]) -> bool:
    """Say whether the one input is a matrix of numbers."""
    kinds = [(len(given.shape), given.type) for given in inputs]
    return kinds in ([(2, "tensor(float)")], [(2, "tensor(double)")])


def _refuse(options: Options, name: str, takes: str, known: tuple[str, ...]) -> None:
    """Refuse options of images for a model of something else."""
    for option in ("size", "crop", "images", "pooling"):
        if option not in known and getattr(options, option) is not None:
            raise InputError(f"the encoder '{name}' takes {takes}: leave {option} out")


def _text(path: Path, name: str, options: Options) -> OnnxTextEncoder:
    """Return a model of sentences that anyone exported, with the tokenizer beside it."""
    _refuse(options, name, "sentences", ("pooling",))
    pooling = checked_pooling(options, name, ("mean", "cls"))
    tokenizer = _tokenizer_beside(path, name)
    most = _most_tokens(tokenizer, name)
    said = {"strip": True, "tokenizer": sha256_of_file(tokenizer), "max_tokens": most, "pooling": pooling}
    weights = _hash_with_data(path, name)
    return OnnxTextEncoder(
        name, said, weights, path=path, tokenizer=tokenizer, max_tokens=most, pooling=pooling, options=options
    )


def _most_tokens(tokenizer: Path, name: str) -> int:
    """Return how many tokens a sentence may have, as the tokenizer says, or the settings beside it."""
    own = read_tokenizer(tokenizer, name).truncation
    settings = tokenizer.with_name("tokenizer_config.json")
    said = json.loads(settings.read_bytes()).get("model_max_length") if settings.is_file() else None
    known = [int(most) for most in (own and own["max_length"], said) if most and most < LONGEST]
    return min(known, default=MAX_TOKENS)


def _exported_text(path: Path, name: str, description: dict[str, Any], options: Options) -> OnnxTextEncoder:
    """Return a model of sentences as fedmoments exported it; what it does cannot be changed now."""
    _refuse(options, name, "sentences, and was exported as it is", ())
    said = description["preprocessing"]
    tokenizer = _tokenizer_beside(path, name)
    if sha256_of_file(tokenizer) != said["tokenizer"]:
        raise InputError(
            f"{tokenizer} is not the tokenizer that the encoder '{name}' was exported with: put that of "
            f"'{description.get('name')}' beside it"
        )
    return OnnxTextEncoder(
        name, said, description["weights"], path=path, tokenizer=tokenizer, max_tokens=said["max_tokens"],
        pooling=said["pooling"], options=options,
    )  # fmt: skip


def _tokenizer_beside(path: Path, name: str) -> Path:
    """Return the tokenizer of a model: beside it, or in the folder above, as models on the hub have it."""
    places = [folder / "tokenizer.json" for folder in (path.parent, path.parent.parent)]
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        raise InputError(f"the encoder '{name}' takes tokens: put its tokenizer.json into {path.parent}")
    return found


def _as_exported(description: dict[str, Any], options: Options, name: str) -> tuple[ImagePreprocessing, str]:
    """Return how images were prepared and pooled when fedmoments exported the file; it cannot be changed now."""
    if description.get("kind") != "image":
        raise InputError(f"the encoder '{name}' is of another kind: load '{description.get('name')}' by its name")
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
            f"the encoder '{name}' must have one input of images (n, 3, height, width), input_ids of sentences, or one "
            f"input of rows (n, columns), but has {', '.join(f'{tensor.name} {tensor.shape}' for tensor in inputs)}"
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
        description="a model of images, sentences or rows of numbers in an ONNX file",
        load=_load,
        modality="image",
        also=("text", "features"),
        takes=IMAGE_OPTIONS | {"images"},
        runtimes=("onnx",),
        extra="onnx",
        needs=("onnxruntime", "PIL"),
    ),
)
