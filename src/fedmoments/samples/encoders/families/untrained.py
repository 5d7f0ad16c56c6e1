"""``untrained:NAME``: an encoder of another family without what it learnt, to see what pre-training is worth.

All weights are drawn anew, from a public seed: ``untrained:NAME:SEED``, 0 by default. An array with two or more axes is
uniform on ±√(6/m), m being the product of all its axes but the first (the inputs of one output; He et al., 2015, with
variance 2/m); the layer that sees pixels is divided by their root mean square, so that networks which take pixels of
0 … 255 begin at the same scale as others. Biases and running means are 0; scales and running variances are 1; counters
are 0. Numbers come from ``core.maps.randomness.uniforms``, with one stream for every name of an array: the
same bits everywhere. The hash of the weights that result is part of the encoder's fingerprint.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.maps.randomness import uniforms
from fedmoments.errors import FedMomentsError, InputError
from fedmoments.extras import require
from fedmoments.samples.encoders.encoder import Encoder
from fedmoments.samples.encoders.entry import EncoderEntry, Options
from fedmoments.samples.encoders.families.tuned import body_of, renewed
from fedmoments.samples.encoders.image_loading import IMAGE_OPTIONS
from fedmoments.samples.encoders.images import ImagePreprocessing
from fedmoments.samples.encoders.torch_runtime import TorchImageEncoder

__all__ = ["ENCODERS", "drawn_array", "pixel_scale"]

_PREFIX = "untrained:"


def drawn_array(name: str, shape: tuple[int, ...], seed: int) -> NDArray[np.float32]:
    """Return an array of an untrained network.

    Parameters
    ----------
    name
        As the network calls it: ``conv1.weight``.
    shape
        Of the array.
    seed
        Public.

    Examples
    --------
    >>> drawn_array("conv1.bias", (2,), 0).tolist(), drawn_array("bn.weight", (2,), 0).tolist()
    ([0.0, 0.0], [1.0, 1.0])
    >>> bool(abs(drawn_array("conv1.weight", (64, 3, 3, 3), 0)).max() < (6 / 27) ** 0.5)
    True
    """
    last = name.rpartition(".")[2]
    if len(shape) < 2:
        return np.full(shape, 0.0 if last in ("bias", "running_mean") else 1.0, np.float32)
    bound = math.sqrt(6.0 / math.prod(shape[1:]))
    drawn = uniforms(seed, f"untrained/{name}", math.prod(shape))
    return ((2.0 * drawn - 1.0) * bound).astype(np.float32).reshape(shape)


def pixel_scale(images: ImagePreprocessing) -> float:
    """Return the root mean square of what a network sees, for pixels that are uniform on 0 … 255.

    Examples
    --------
    >>> round(pixel_scale(ImagePreprocessing(mean=(127, 127, 127), scale=(128, 128, 128))), 2)
    0.58
    """
    squares = [
        ((127.5 - mean) ** 2 + 255.0**2 / 12) / scale**2 for mean, scale in zip(images.mean, images.scale, strict=True)
    ]
    return math.sqrt(sum(squares) / len(squares))


def _parts(argument: str) -> tuple[str, int]:
    """Return the name of the encoder and the seed; names may have colons themselves."""
    from fedmoments.samples.encoders.registry import find_entry

    name, _, last = argument.rpartition(":")
    if name and last.isascii() and last.isdigit():
        try:
            find_entry(name)
        except FedMomentsError:  # torch:0 is a family and its argument, not a name and a seed
            return argument, 0
        return name, int(last)
    return argument, 0


def _load(argument: str, options: Options) -> Encoder:
    from fedmoments.samples.encoders.registry import find_entry, load_encoder

    torch = require("torch", f"The encoder '{_PREFIX}{argument}'", "torch")
    name, seed = _parts(argument)
    if name.startswith((_PREFIX, "tuned:")):
        raise InputError(f"the encoder '{_PREFIX}{argument}' is invalid: name the encoder that was trained")
    if find_entry(name).modality == "features":
        raise InputError(f"the encoder '{_PREFIX}{argument}' is invalid: '{name}' has no weights to draw anew")
    asked = {key: getattr(options, key) for key in IMAGE_OPTIONS if getattr(options, key) is not None}
    base = load_encoder(name, device=options.device, threads=options.threads, **asked)
    body = body_of(base)
    body.load_state_dict(_drawn(body.state_dict(), base, seed, torch))
    return renewed(_PREFIX + argument, base, body, options)


def _drawn(state: Any, base: Encoder, seed: int, torch: Any) -> dict[str, Any]:
    """Return new weights, by the names of the old ones."""
    weights = {}
    pixels = isinstance(base, TorchImageEncoder)
    for name, old in state.items():
        if not old.is_floating_point():
            weights[name] = torch.zeros_like(old) if name.endswith("num_batches_tracked") else old
            continue
        array = drawn_array(name, tuple(old.shape), seed)
        if pixels and isinstance(base, TorchImageEncoder) and old.ndim == 4 and old.shape[1] == 3:
            array, pixels = (array / pixel_scale(base.images)).astype(np.float32), False
        weights[name] = torch.from_numpy(array).to(old.dtype)
    return weights


ENCODERS = (
    EncoderEntry(
        name=_PREFIX,
        argument="NAME",
        description="another encoder with weights drawn anew (untrained:NAME:SEED), to see what pre-training is worth",
        load=_load,
        modality="image",
        takes=IMAGE_OPTIONS,
        runtimes=("torch", "onnx"),
        extra="torch",
        needs=("torch",),
    ),
)
