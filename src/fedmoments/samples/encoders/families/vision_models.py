"""``transformers-image:`` and ``open_clip:``: image models of these libraries, such as CLIP, SigLIP and DINOv2.

CLIP and SigLIP give their projected image features; other models their last states, pooled: the first token of
transformers (``cls``), or a mean. Images are cropped to a square as the model's own preparation says; where that
squeezes an image instead (SigLIP), the centre square is taken.
"""

from pathlib import Path
from typing import Any, Literal

from fedmoments.errors import InputError
from fedmoments.extras import require
from fedmoments.samples.encoders.encoder import Encoder
from fedmoments.samples.encoders.entry import EncoderEntry, Options
from fedmoments.samples.encoders.image_loading import IMAGE_OPTIONS, checked_pooling, load_network
from fedmoments.samples.encoders.images import IMAGENET, ImagePreprocessing
from fedmoments.samples.encoders.text_encoder import is_local, quiet_loading

__all__ = ["ENCODERS"]

_TRANSFORMERS, _CLIP = "transformers-image:", "open_clip:"
_BILINEAR = 2  # Pillow's number of it, which configurations hold; 3 is bicubic


def _load_transformers(argument: str, options: Options) -> Encoder:
    name = _TRANSFORMERS + argument
    require("torch", f"The encoder '{name}'", "text")
    library = require("transformers", f"The encoder '{name}'", "text")
    from fedmoments.samples.encoders.modules.vision import VisionStates

    local = is_local(argument, name)
    source = str(Path(argument).expanduser()) if local else argument
    asked = {"local_files_only": local, "trust_remote_code": False}  # None asks at the terminal, and runs what came
    with quiet_loading(name):
        # Its settings alone: the processor itself would import torchvision.
        said = library.image_processing_base.ImageProcessingMixin.get_image_processor_dict(
            source, local_files_only=local
        )[0]
        model = library.AutoModel.from_pretrained(source, **asked)
    if not hasattr(model, "get_image_features") and model.main_input_name != "pixel_values":
        raise InputError(f"the encoder '{name}' takes {model.main_input_name}, not images: texts are transformers:NAME")
    images = options.preprocessing(_images(name, said))
    pooling = checked_pooling(options, name, ("cls", "mean", "max"))
    if options.pooling is None and _gives_maps(model):
        pooling = "mean"
    return load_network(name, VisionStates(model.float().eval()), images, pooling, options)


def _gives_maps(model: Any) -> bool:
    """Say whether a network's last states are a map (n, d, h, w), of which no token is the first."""
    return not hasattr(model.config, "num_attention_heads") and not hasattr(model, "get_image_features")


def _images(name: str, said: dict[str, Any]) -> ImagePreprocessing:
    """Return our form of a processor's settings."""
    resized, cropped = _side(said.get("size")), _side(said.get("crop_size"))
    if not said.get("do_center_crop", cropped is not None):
        cropped = None
    size = cropped or resized
    if size is None:
        raise InputError(f"the encoder '{name}' does not say how large its images are: give a size")
    if said.get("do_rescale", True) and abs(float(said.get("rescale_factor", 1 / 255)) * 255 - 1) > 1e-6:
        raise InputError(f"the encoder '{name}' scales pixels by {said['rescale_factor']}, which is not 1/255")
    normal = said.get("do_normalize", True)
    interpolation: Literal["bicubic", "bilinear"] = "bilinear" if said.get("resample") == _BILINEAR else "bicubic"
    return ImagePreprocessing(
        size=size,
        crop=min(1.0, size / resized) if resized else 1.0,
        interpolation=interpolation,
        mean=_on_255(said.get("image_mean"), IMAGENET.mean) if normal else (0.0, 0.0, 0.0),
        scale=_on_255(said.get("image_std"), IMAGENET.scale) if normal else (255.0, 255.0, 255.0),
    )


def _side(size: Any) -> int | None:
    """Return the side in any of the ways in which configurations say it."""
    if isinstance(size, dict):
        size = size.get("shortest_edge") or size.get("height")
    return int(size) if size else None


def _on_255(values: Any, default: tuple[float, float, float]) -> tuple[float, float, float]:
    if values is None:
        return default
    first, second, third = (255.0 * float(value) for value in values)
    return first, second, third


def _load_clip(argument: str, options: Options) -> Encoder:
    name = _CLIP + argument
    require("torch", f"The encoder '{name}'", "torch")
    library = require("open_clip", f"The encoder '{name}'", "open-clip")
    from fedmoments.samples.encoders.modules.vision import ClipImages

    architecture, _, weights = argument.partition("/") if not argument.startswith("hf-hub:") else (argument, "", "")
    try:
        model = library.create_model(architecture, pretrained=weights or None)
    except (RuntimeError, ValueError, OSError) as error:
        raise InputError(f"open_clip cannot load '{argument}' (typed as ARCHITECTURE/WEIGHTS): {error}") from error
    said = getattr(model.visual, "preprocess_cfg", {})
    side = said.get("size") or model.visual.image_size
    images = ImagePreprocessing(
        size=int(side[0] if isinstance(side, tuple | list) else side),
        crop=1.0,
        interpolation="bilinear" if said.get("interpolation") == "bilinear" else "bicubic",
        mean=_on_255(said.get("mean"), IMAGENET.mean),
        scale=_on_255(said.get("std"), IMAGENET.scale),
    )
    pooling = checked_pooling(options, name, ("mean", "max", "cls"))
    return load_network(name, ClipImages(model.float().eval()), options.preprocessing(images), pooling, options)


ENCODERS = (
    EncoderEntry(
        name=_TRANSFORMERS,
        argument="NAME_OR_PATH",
        description="an image model of transformers (CLIP, SigLIP, DINOv2, ViT), from a folder or the Hugging Face hub",
        load=_load_transformers,
        modality="image",
        takes=IMAGE_OPTIONS | {"images"},
        runtimes=("torch", "onnx"),
        extra="text",
        needs=("torch", "PIL", "transformers"),
    ),
    EncoderEntry(
        name=_CLIP,
        argument="ARCHITECTURE/WEIGHTS",
        description="the image side of a model of open_clip, which needs torchvision",
        load=_load_clip,
        modality="image",
        takes=IMAGE_OPTIONS | {"images"},
        runtimes=("torch", "onnx"),
        extra="open-clip",
        needs=("torch", "PIL", "open_clip", "torchvision"),
    ),
)
