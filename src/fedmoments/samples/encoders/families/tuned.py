"""``tuned:FILE``: an encoder of another family with weights that tuning has changed.

The file names the encoder that it was tuned from, which is loaded as ever and checked by its fingerprint; then all
parameters and running values that features depend on are put in. The hash of the weights that result is part of the new
encoder's fingerprint: its features are never mixed with those of the encoder that it came from.
"""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.errors import FileFormatError, InputError
from fedmoments.extras import require
from fedmoments.files import Header, read_tensors, write_tensors
from fedmoments.samples.encoders.encoder import Encoder
from fedmoments.samples.encoders.entry import EncoderEntry, Options
from fedmoments.samples.encoders.families.sentence_models import SentenceEncoder
from fedmoments.samples.encoders.families.transformer_models import TransformerEncoder
from fedmoments.samples.encoders.image_loading import IMAGE_OPTIONS, load_network
from fedmoments.samples.encoders.images import ImagePreprocessing
from fedmoments.samples.encoders.torch_runtime import TorchImageEncoder, hash_of_state

__all__ = ["ENCODERS", "base_of", "body_of", "renewed", "write_tuned"]

_PREFIX = "tuned:"
#: What of an encoder's options a file keeps.
_KEPT = frozenset({"images", "size", "crop", "pooling"})
_KIND = "encoder"


def body_of(encoder: Encoder) -> Any:
    """Return the torch network whose parameters, by its own names, an encoder's features depend on.

    Raises
    ------
    InputError
        When the encoder has none: then it cannot be tuned.

    Examples
    --------
    >>> from fedmoments.samples.encoders import load_encoder
    >>> body_of(load_encoder("identity", dim=3))
    Traceback (most recent call last):
    fedmoments.errors.InputError: the encoder 'identity' cannot be tuned: it is not a network on torch. ...
    """
    if isinstance(encoder, TorchImageEncoder):
        return encoder.model.body
    if isinstance(encoder, TransformerEncoder):
        return encoder.model
    if isinstance(encoder, SentenceEncoder):
        return _transformer_of(encoder)
    raise InputError(
        f"the encoder '{encoder.name}' cannot be tuned: it is not a network on torch. Image encoders and transformers "
        "of text with runtime 'torch' can; given features, static word vectors and ONNX files have no gradients: "
        "only the head behind them can be tuned (stage lp)"
    )


def write_tuned(path: Any, encoder: Encoder, state: Mapping[str, NDArray[Any]]) -> None:
    """Write tuned weights as a file that ``tuned:FILE`` loads.

    Parameters
    ----------
    path
        The file.
    encoder
        The encoder that was tuned: of any family that has a torch network, ``tuned:`` itself included.
    state
        Arrays that take the place of the network's own, by its names; the others stay.

    Examples
    --------
    >>> import tempfile
    >>> from fedmoments.samples.encoders import load_encoder
    >>> encoder = load_encoder("squeezenet-1.1", size=32, threads=1)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_tuned(Path(folder, "mine"), encoder, {"conv1.bias": np.zeros(64, np.float32)})
    ...     load_encoder(f"tuned:{folder}/mine", threads=1).model.body.conv1.bias.abs().max().item()
    0.0
    """
    own = {name: tensor.detach().cpu().numpy() for name, tensor in body_of(encoder).state_dict().items()}
    own |= {name: array for name, array in state.items() if _is_prompts(name)}
    _check_names(path, state, own)
    floating = {name: array for name, array in own.items() if array.dtype.kind == "f"}
    tensors = {name: np.ascontiguousarray(state.get(name, array), array.dtype) for name, array in floating.items()}
    write_tensors(path, _KIND, tensors, _origin(encoder))


def _origin(encoder: Encoder) -> Header:
    """Return what loads the encoder that was tuned first of all, and what it must be."""
    if encoder.name.startswith(_PREFIX):
        return read_tensors(_file(encoder.name), _KIND)[1]
    options: dict[str, Any] = {}
    if isinstance(encoder, TorchImageEncoder):
        options = {"images": encoder.images.describe(), "pooling": encoder.pooling}
    elif isinstance(encoder, TransformerEncoder):
        options = {"pooling": encoder.pooling}
    return {
        "base": encoder.name,
        "options": options,
        "weights": encoder.weights_hash,
        "fingerprint": encoder.fingerprint,
        "behaviour": encoder.behaviour.to_text(),
        "dim": encoder.dim,
    }


def _transformer_of(encoder: SentenceEncoder) -> Any:
    """Return the transformer of a sentence model; modules behind it must have nothing to learn."""
    body = encoder.model[0].auto_model
    inside = {id(parameter) for parameter in body.parameters()}
    outside = [name for name, parameter in encoder.model.named_parameters() if id(parameter) not in inside]
    prompt = (encoder.model.prompts or {}).get(encoder.model.default_prompt_name or "", "")
    if outside or prompt:
        what = f"the layer {outside[0]} behind its transformer" if outside else f"the prompt {prompt!r}"
        raise InputError(
            f"the encoder '{encoder.name}' cannot be tuned: it has {what}. Of sentence-transformers only models that "
            "are a transformer with pooling and normalisation can be; minilm is one"
        )
    return body


def _check_names(path: Any, state: Mapping[str, Any], own: Mapping[str, NDArray[Any]]) -> None:
    for name, array in state.items():
        if name not in own or own[name].shape != array.shape:
            has = f"shape {own[name].shape}" if name in own else "no such array"
            raise FileFormatError(
                f"{path}: the tuned weights hold '{name}' of shape {array.shape}, but the network has {has}: they "
                "belong to another encoder"
            )


def _is_prompts(name: str) -> bool:
    from fedmoments.samples.encoders.modules.prompts import PROMPTS

    return name.rpartition(".")[2] == PROMPTS


def _add_prompts(path: Path, body: Any, tensors: Mapping[str, NDArray[Any]]) -> None:
    """Give a plain network the prompts that a file holds, if it holds any."""
    from fedmoments.samples.encoders.modules.prompts import add_prompts

    torch = require("torch", f"The encoder '{_PREFIX}{path}'", "torch")
    for name, array in tensors.items():
        if _is_prompts(name):
            try:
                add_prompts(body, torch.from_numpy(array))
            except InputError as error:
                raise FileFormatError(f"{path} holds prompts that do not fit its encoder: {error}") from error


def _file(name: str) -> Path:
    path = Path(name.removeprefix(_PREFIX)).expanduser()
    if not path.is_file():
        raise InputError(f"the encoder '{name}' cannot be loaded: the file {path} does not exist")
    return path


def _load(argument: str, options: Options) -> Encoder:
    name = _PREFIX + argument
    path = _file(name)
    tensors, header = read_tensors(path, _KIND)
    torch = require("torch", f"The encoder '{name}'", "torch")
    base = _base(path, header, options)
    body = body_of(base)
    _add_prompts(path, body, tensors)
    _check_names(path, tensors, {key: value.numpy() for key, value in body.cpu().state_dict().items()})
    body.load_state_dict({key: torch.from_numpy(array) for key, array in tensors.items()}, strict=False)
    return renewed(name, base, body, options)


def base_of(path: Path, header: Header | None = None, *, trusted: Collection[str] = (), **run: Any) -> Encoder:
    """Return the encoder that a tuned one began with, preprocessing included, refusing other weights.

    Parameters
    ----------
    path
        File of the tuned encoder.
    header
        Of that file, if it was read already.
    trusted
        Encoders that the file may name beside those that are known by plain names.
    run
        Device, threads and the like.
    """
    from fedmoments.samples.encoders.registry import find_entry, load_encoder, require_trusted

    header = read_tensors(path, _KIND)[1] if header is None else header
    try:
        base, given = header["base"], dict(header["options"])
        entry = find_entry(require_trusted(base, trusted, f"the notes in {path}", families=(_PREFIX,)))
        if "images" in given:
            images = ImagePreprocessing.from_description(given.pop("images"))
            given |= {"images": images} if "images" in entry.takes else {"size": images.size, "crop": images.crop}
    except (KeyError, TypeError, ValueError) as error:
        raise FileFormatError(f"{path} does not say which encoder was tuned: {error}") from error
    unknown = set(given) - _KEPT
    if unknown:
        raise FileFormatError(f"{path} was tuned with options that no encoder has: {', '.join(sorted(unknown))}")
    encoder = load_encoder(base, trusted=trusted, **given, **run)
    encoder.require_same({**header, "name": base}, f"{path} was tuned from")
    return encoder


def _base(path: Path, header: Header, options: Options) -> Encoder:
    """Return the encoder that was tuned, refusing other options than it was tuned with."""
    encoder = base_of(path, header, trusted=options.trusted, device=options.device, threads=options.threads)
    asked = {key: getattr(options, key) for key in ("size", "crop", "pooling") if getattr(options, key) is not None}
    for key, value in asked.items():
        if encoder.preprocessing.get(key) != value:
            raise InputError(
                f"the encoder '{_PREFIX}{path}' was tuned with {key} {encoder.preprocessing.get(key)}, which is part "
                f"of it: {key} {value} needs another tuning"
            )
    return encoder


def renewed(name: str, base: Encoder, body: Any, options: Options) -> Encoder:
    """Return the encoder under its new name and hash, now that the network has its new weights."""
    if isinstance(base, TorchImageEncoder):
        return load_network(name, body, base.images, base.pooling, options)
    if options.runtime == "onnx":
        raise InputError(f"the encoder '{name}' is of text and does not run on ONNX: use runtime 'torch'")
    if isinstance(base, TransformerEncoder):
        return TransformerEncoder(name, body, base.tokenizer, pooling=base.pooling, **options.run())
    if isinstance(base, SentenceEncoder):
        weights, given = hash_of_state(body.state_dict()), base.preprocessing
        run = {"threads": options.threads, "batch_size": options.batch_size}
        base.model.to(options.device)
        return SentenceEncoder(name, given, weights, model=base.model, **run)
    raise InputError(f"the encoder '{name}' cannot be loaded: {base.name} is not a network on torch")


ENCODERS = (
    EncoderEntry(
        name=_PREFIX,
        argument="FILE",
        description="an encoder of images or text that was tuned here, with its new weights",
        load=_load,
        modality="image",
        takes=IMAGE_OPTIONS,
        runtimes=("torch", "onnx"),
        extra="torch",
        needs=("torch",),
    ),
)
