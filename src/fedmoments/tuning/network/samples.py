"""Prepared samples, held in memory in the form that networks take: images as bytes, sentences as tokens.

An image of side s takes 3·s² bytes, a sentence of t tokens 4·t: 1,300 images of 64 pixels are 16 MB.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fedmoments.errors import InputError
from fedmoments.samples.encoders.encoder import Encoder
from fedmoments.samples.encoders.families.sentence_models import SentenceEncoder
from fedmoments.samples.encoders.families.transformer_models import TransformerEncoder
from fedmoments.samples.encoders.image_encoder import stacked
from fedmoments.samples.encoders.pipeline import prepared_batches

__all__ = ["Held", "Prepared", "held", "prepare_all"]

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
