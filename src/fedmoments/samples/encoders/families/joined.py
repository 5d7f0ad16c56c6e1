"""``join:A+B``: features of several text encoders side by side, each at unit length. d is the sum of theirs.

Encoders err in different places: a head on both is often better than on either, at the bytes of both.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.errors import InputError
from fedmoments.samples.encoders.encoder import Encoder
from fedmoments.samples.encoders.entry import EncoderEntry, Options
from fedmoments.samples.encoders.text_encoder import TextEncoder

__all__ = ["ENCODERS"]

_PREFIX = "join:"


class _Joined(TextEncoder):
    def __init__(self, name: str, parts: Sequence[Encoder], batch_size: int | None) -> None:
        self._parts = tuple(parts)
        preprocessing = {"joined": [dict(part.preprocessing) for part in parts], "normalised": True}
        weights = "+".join(part.weights_hash for part in parts)
        size = batch_size or min(part.batch_size for part in parts)
        super().__init__(name, preprocessing, weights, sum(part.dim for part in parts), size)

    def encode(self, batch: Sequence[Any]) -> NDArray[np.float32]:
        every = [np.asarray(part.encode([part.prepare(each) for each in batch]), np.float64) for part in self._parts]
        lengths = [np.linalg.norm(features, axis=1, keepdims=True) for features in every]
        scaled = [each / np.maximum(length, 1e-12) for each, length in zip(every, lengths, strict=True)]
        return np.concatenate(scaled, axis=1).astype(np.float32)


def _load(argument: str, options: Options) -> Encoder:
    from fedmoments.samples.encoders.registry import load_encoder

    names = argument.split("+")
    if len(names) < 2 or len(set(names)) < len(names) or not all(names):
        raise InputError(
            f"'{_PREFIX}{argument}' must name two or more different encoders: join:minilm+use-multilingual"
        )
    how = {"device": options.device, "threads": options.threads, "cache": options.cache, "trusted": options.trusted}
    parts = [load_encoder(name, **how) for name in names]  # type: ignore[arg-type]
    for part in parts:
        if part.modality != "text":
            raise InputError(f"'{_PREFIX}{argument}' joins encoders of text, but {part.name} takes {part.modality}")
    return _Joined(_PREFIX + argument, parts, options.batch_size)


ENCODERS = (
    EncoderEntry(
        name=_PREFIX,
        argument="A+B",
        description="features of several text encoders side by side: join:minilm+use-multilingual",
        load=_load,
        modality="text",
        runtimes=(),
    ),
)
