"""``torch:MODULE:FUNCTION``: any function without arguments that returns an ``nn.Module``; its output is the features.

MODULE is importable (``my_package.networks``) or a file (``networks.py``). The function may also return a pair of the
network and the ``samples.encoders.ImagePreprocessing`` that it was trained with; else ImageNet's is used.
"""

import importlib
import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

from fedmoments.errors import InputError
from fedmoments.extras import require
from fedmoments.samples.encoders.encoder import Encoder
from fedmoments.samples.encoders.entry import EncoderEntry, Options
from fedmoments.samples.encoders.image_loading import IMAGE_OPTIONS, checked_pooling, load_network
from fedmoments.samples.encoders.images import IMAGENET, ImagePreprocessing

__all__ = ["ENCODERS"]

_PREFIX = "torch:"


def _load(argument: str, options: Options) -> Encoder:
    name = _PREFIX + argument
    torch = require("torch", f"The encoder '{name}'", "torch")
    module_name, separator, function_name = argument.rpartition(":")
    if not separator or not module_name or not function_name:
        raise InputError(f"the encoder '{name}' must be written torch:MODULE:FUNCTION, or torch:FILE.py:FUNCTION")
    function = getattr(_module(module_name, name), function_name, None)
    if not callable(function):
        raise InputError(f"the encoder '{name}' names no function: '{module_name}' has no '{function_name}' to call")
    network, images = _network(function(), name, torch)
    pooling = checked_pooling(options, name, ("mean", "max", "cls"))
    return load_network(name, network, options.preprocessing(images), pooling, options)


def _module(name: str, encoder: str) -> ModuleType:
    if not name.endswith(".py"):
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is not None and not f"{name}.".startswith(f"{error.name}."):
                raise  # the module is there, and something that it imports is not
            raise InputError(
                f"the encoder '{encoder}' cannot be loaded: '{name}' cannot be imported; give the path of a .py "
                "file, or put its folder on PYTHONPATH"
            ) from error
    path = Path(name).expanduser()
    spec = importlib.util.spec_from_file_location(f"_fedmoments_encoder_{path.stem}", path)
    if not path.is_file() or spec is None or spec.loader is None:
        raise InputError(f"the encoder '{encoder}' cannot be loaded: the file {path} does not exist")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _network(returned: Any, encoder: str, torch: Any) -> tuple[Any, ImagePreprocessing]:
    network, images = returned if isinstance(returned, tuple) and len(returned) == 2 else (returned, IMAGENET)
    if not isinstance(network, torch.nn.Module) or not isinstance(images, ImagePreprocessing):
        raise InputError(
            f"the function of the encoder '{encoder}' must return an nn.Module, or one and an ImagePreprocessing, "
            f"but returned {type(returned).__name__}"
        )
    return network, images


ENCODERS = (
    EncoderEntry(
        name=_PREFIX,
        argument="MODULE:FUNCTION",
        description="an nn.Module that your own function returns",
        load=_load,
        modality="image",
        takes=IMAGE_OPTIONS | {"images"},
        runtimes=("torch", "onnx"),
        extra="torch",
        needs=("torch", "PIL"),
    ),
)
