"""Prepared samples, held in memory in the form that networks take: images as bytes, sentences as tokens.

An image of side s takes 3·s² bytes, a sentence of t tokens 4·t: 1,300 images of 64 pixels are 16 MB.

Tuned encoders as files, which ``--encoder tuned:FILE`` loads; see ``samples.encoders.families.tuned``.

What a network costs: multiply-adds of a forward pass, and parameters that are trained.

A convolution with c outputs of h × w, g groups, cᵢ inputs and a kernel a × b takes c·h·w·(cᵢ/g)·a·b multiply-adds, a
linear layer outputs × inputs for every row. Biases, normalisation, activations, pooling, embeddings and the products
inside attention are not counted. A step of training is charged three forward passes.
"""

import os
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fedmoments.errors import InputError
from fedmoments.extras import require
from fedmoments.samples.encoders.encoder import Encoder
from fedmoments.samples.encoders.families.sentence_models import SentenceEncoder
from fedmoments.samples.encoders.families.transformer_models import TransformerEncoder
from fedmoments.samples.encoders.families.tuned import write_tuned
from fedmoments.samples.encoders.image_encoder import stacked
from fedmoments.samples.encoders.pipeline import prepared_batches
from fedmoments.tuning.engine import AVERAGED, Arrays

__all__ = ["Held", "Prepared", "forward_flops", "held", "parameter_count", "prepare_all", "save_encoder"]


_PREFIX = "encoder/"


def save_encoder(path: str | os.PathLike[str], encoder: Encoder, arrays: Arrays) -> None:
    """Write the encoder that tuning has found; the head's arrays are left out.

    Parameters
    ----------
    path
        The file; it appears whole or not at all.
    encoder
        The encoder that was tuned.
    arrays
        Parameters as an engine takes them: ``encoder/…``, and ``averaged/encoder/…`` where running values are averaged.

    Raises
    ------
    InputError
        When there is nothing of an encoder among the arrays, or something of another one.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from fedmoments.samples.encoders import load_encoder
    >>> encoder = load_encoder("squeezenet-1.1", size=32, threads=1)
    >>> changed = {"encoder/conv1.bias": encoder.model.body.conv1.bias.numpy() + 1}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_encoder(Path(folder, "mine.safetensors"), encoder, changed)
    ...     tuned = load_encoder(f"tuned:{folder}/mine.safetensors", threads=1)
    >>> tuned.preprocessing == encoder.preprocessing, tuned.fingerprint == encoder.fingerprint
    (True, False)
    """
    names = {name: name.removeprefix(AVERAGED) for name in arrays}
    state = {bare.removeprefix(_PREFIX): arrays[name] for name, bare in names.items() if bare.startswith(_PREFIX)}
    if not state:
        raise InputError(
            f"nothing of the encoder '{encoder.name}' was tuned: no name of the {len(arrays)} begins with '{_PREFIX}' "
            "(stage lp trains the head alone)"
        )
    write_tuned(path, encoder, state)


def forward_flops(encoder: Encoder, *, tokens: int = 16) -> float:
    """Return the multiply-adds of encoding one sample.

    Parameters
    ----------
    encoder
        One with a torch network.
    tokens
        Length of a sentence; images have the encoder's size.

    Examples
    --------
    >>> from fedmoments.samples.encoders import load_encoder
    >>> round(forward_flops(load_encoder("mobilenet-v2", threads=1)) / 1e6)
    299
    """
    torch = require("torch", "Counting operations", "torch")
    from fedmoments.tuning.network.modules.networks import network_of, taking_part

    network = network_of(encoder)
    counted = 0.0

    def count(module: Any, _inputs: Any, output: Any) -> None:
        nonlocal counted
        weight = module.weight
        if isinstance(module, torch.nn.Linear):
            counted += output.numel() * weight.shape[1]
        else:  # (outputs, inputs/groups, kernel …)
            counted += output.numel() * weight[0].numel()

    kinds = (torch.nn.Conv1d, torch.nn.Conv2d, torch.nn.Conv3d, torch.nn.Linear)
    used = {id(parameter) for parameter in taking_part(network).values()}
    layers = [layer for layer in network.modules() if isinstance(layer, kinds) and id(layer.weight) in used]
    hooks = [layer.register_forward_hook(count) for layer in layers]
    try:
        with torch.inference_mode():
            network(*network.trial(tokens))
    finally:
        for hook in hooks:
            hook.remove()
    return counted


def parameter_count(encoder: Encoder) -> int:
    """Return b, the numbers that tuning trains and sends: those that features depend on, without running values.

    Examples
    --------
    >>> from fedmoments.samples.encoders import load_encoder
    >>> parameter_count(load_encoder("squeezenet-1.1", size=32, threads=1))
    722496
    """
    require("torch", "Counting parameters", "torch")
    from fedmoments.tuning.network.modules.networks import network_of, taking_part

    return sum(parameter.numel() for parameter in taking_part(network_of(encoder)).values())


Ints = NDArray[np.int64]
#: Samples as an encoder's ``prepare`` gives them: in a list, or images in one array (n, 3, size, size).
Prepared = Sequence[Any] | NDArray[Any]


class Held(Protocol):
    """Samples of one party."""

    def __len__(self) -> int: ...

    @property
    def nbytes(self) -> int:
        """Bytes that they take."""

    def batch(self, rows: Ints) -> tuple[NDArray[Any], ...]:
        """Return what the network takes of some samples."""

    def groups(self, size: int, rows: Ints | None = None) -> list[Ints]:
        """Return batches to test in: all rows, or the given ones, each once."""


class _Pixels:
    def __init__(self, images: NDArray[np.uint8]) -> None:
        self._images = images

    def __len__(self) -> int:
        return len(self._images)

    @property
    def nbytes(self) -> int:
        return self._images.nbytes

    def batch(self, rows: Ints) -> tuple[NDArray[Any], ...]:
        return (self._images[rows],)

    def groups(self, size: int, rows: Ints | None = None) -> list[Ints]:
        return _cut(np.arange(len(self)) if rows is None else rows, size)


class _Tokens:
    def __init__(self, ids: Sequence[NDArray[np.int32]], padding: int) -> None:
        self._ids, self._padding = ids, padding

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def nbytes(self) -> int:
        return sum(ids.nbytes for ids in self._ids)

    def batch(self, rows: Ints) -> tuple[NDArray[Any], ...]:
        chosen = [self._ids[row] for row in rows]
        longest = max(len(tokens) for tokens in chosen)
        ids = np.full((len(chosen), longest), self._padding, np.int64)
        mask = np.zeros_like(ids)
        for row, tokens in enumerate(chosen):
            ids[row, : len(tokens)] = tokens
            mask[row, : len(tokens)] = 1
        return ids, mask

    def groups(self, size: int, rows: Ints | None = None) -> list[Ints]:
        # Neighbours in length share a batch, for less padding.
        chosen = np.arange(len(self)) if rows is None else rows
        order = np.argsort([-len(self._ids[row]) for row in chosen], kind="stable")
        return _cut(chosen[order], size)


def _cut(rows: Ints, size: int) -> list[Ints]:
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def held(encoder: Encoder, prepared: Prepared) -> Held:
    """Return prepared samples (of ``encoder.prepare``) in the form that its network takes.

    Examples
    --------
    >>> from fedmoments.samples.encoders import load_encoder
    >>> encoder = load_encoder("squeezenet-1.1", size=32, threads=1)
    >>> samples = held(encoder, np.zeros((5, 3, 32, 32), np.uint8))
    >>> len(samples), samples.nbytes, [rows.tolist() for rows in samples.groups(3)]
    (5, 15360, [[0, 1, 2], [3, 4]])
    """
    if encoder.modality == "text":
        return _Tokens(*_tokens(encoder, list(prepared)))
    given: Any = prepared
    return _Pixels(stacked(given) if len(prepared) else np.zeros((0, 3, 1, 1), np.uint8))


def prepare_all(encoder: Encoder, items: Any, *, readers: int = 2) -> Prepared:
    """Prepare samples once, for an engine: images become one array of bytes, sentences a list.

    Parameters
    ----------
    encoder
        Whose ``prepare`` it is.
    items
        n samples.
    readers
        Threads that read.

    Raises
    ------
    InputError
        When one cannot be read: names its place. Leave such samples out before.

    Examples
    --------
    >>> from fedmoments.samples.encoders import load_encoder
    >>> encoder = load_encoder("squeezenet-1.1", size=32, threads=1)
    >>> prepare_all(encoder, [np.zeros((8, 8), np.uint8)] * 4).shape
    (4, 3, 32, 32)
    """
    n = len(items)
    image: NDArray[np.uint8] | None = None
    sentences: list[Any] = []
    for batch in prepared_batches(encoder, items, range(n), 256, readers):
        if batch.bad:
            place = min(batch.bad)
            raise InputError(f"sample {place} cannot be trained on: {batch.bad[place]}. Leave it out")
        if encoder.modality == "text":
            sentences += batch.inputs
            continue
        if image is None:
            image = np.empty((n, *batch.inputs[0].shape), np.uint8)
        image[batch.places] = batch.inputs
    return sentences if image is None else image


def _tokens(encoder: Encoder, sentences: Sequence[str]) -> tuple[list[NDArray[np.int32]], int]:
    """Return the tokens of every sentence, cut to what the model takes, and the token that fills up."""
    if isinstance(encoder, SentenceEncoder):
        tokenizer, limit = encoder.model.tokenizer, encoder.model.max_seq_length
    elif isinstance(encoder, TransformerEncoder):
        tokenizer, limit = encoder.tokenizer, encoder.max_tokens
    else:
        raise InputError(f"the encoder '{encoder.name}' cannot be tuned: it has no tokens")
    if not len(sentences):
        return [], 0
    encoded = tokenizer(list(sentences), padding=False, truncation=True, max_length=limit)["input_ids"]
    return [np.array(ids, np.int32) for ids in encoded], int(tokenizer.pad_token_id or 0)
