"""``timm:NAME``: any image model of timm, pretrained, from the Hugging Face hub; prepared as timm says."""

from typing import Any, Literal

from fedmoments.errors import InputError
from fedmoments.extras import require
from fedmoments.samples.encoders.encoder import Encoder
from fedmoments.samples.encoders.entry import EncoderEntry, Options
from fedmoments.samples.encoders.image_loading import IMAGE_OPTIONS, checked_pooling, load_network
from fedmoments.samples.encoders.images import ImagePreprocessing

__all__ = ["ENCODERS"]

_PREFIX = "timm:"


def _load(argument: str, options: Options) -> Encoder:
    name = _PREFIX + argument
    require("torch", f"The encoder '{name}'", "torch")
    timm = require("timm", f"The encoder '{name}'", "timm")
    try:
        network = timm.create_model(argument, pretrained=True, num_classes=0)
    except (RuntimeError, ValueError, OSError) as error:
        raise InputError(f"timm cannot load '{argument}': {error}") from error
    images = options.preprocessing(_images(timm.data.resolve_model_data_config(network)))
    # Without classes, timm's models pool their features themselves; this is for those that do not.
    pooling = checked_pooling(options, name, ("mean", "max", "cls"))
    return load_network(name, network, images, pooling, options)


def _images(config: dict[str, Any]) -> ImagePreprocessing:
    """Return our form of timm's data configuration."""
    interpolation: Literal["bicubic", "bilinear"] = "bilinear" if config["interpolation"] == "bilinear" else "bicubic"
    return ImagePreprocessing(
        size=config["input_size"][-1],
        crop=config["crop_pct"],
        interpolation=interpolation,
        mean=_on_255(config["mean"]),
        scale=_on_255(config["std"]),
    )


def _on_255(values: tuple[float, ...]) -> tuple[float, float, float]:
    first, second, third = (255 * value for value in values)
    return first, second, third


ENCODERS = (
    EncoderEntry(
        name=_PREFIX,
        argument="NAME",
        description="an image model of timm, from the Hugging Face hub",
        load=_load,
        modality="image",
        takes=IMAGE_OPTIONS | {"images"},
        runtimes=("torch", "onnx"),
        extra="timm",
        needs=("torch", "PIL", "timm"),
    ),
)
