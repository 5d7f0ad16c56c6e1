"""WordLlama: the mean of static token vectors; no network at all, thousands of sentences a second. d = 256.

Only the two data files of the package are used: its loader looks for one of them in a folder that its wheel does not
have, and then asks the internet.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.extras import require
from fedmoments.samples.encoders.encoder import Encoder
from fedmoments.samples.encoders.entry import EncoderEntry, Options
from fedmoments.samples.encoders.packages import PackagedFile
from fedmoments.samples.encoders.text_encoder import TextEncoder

__all__ = ["ENCODERS"]

_NAME = "wordllama"
_PACKAGE = "wordllama==0.4.0.post1"
_WEIGHTS = PackagedFile(
    _PACKAGE,
    "wordllama",
    "weights/l2_supercat_256.safetensors",
    "64b47a2dc493cb8e85944076601189739852d7b64e0e1eedcb1937a251cd9fd5",
)
_TOKENIZER = PackagedFile(
    _PACKAGE,
    "wordllama",
    "tokenizers/l2_supercat_tokenizer_config.json",
    "93248f2a9ec36c7b35f700a033d5f36228aae48db61aee31007fa49062cdeb68",
)
_DIM = 256
_PREPROCESSING = {"strip": True, "tokenizer": _TOKENIZER.sha256, "max_tokens": None, "pooling": "mean"}


class _StaticWords(TextEncoder):
    def __init__(self, weights: Path, tokenizer: Path, batch_size: int | None) -> None:
        tokenizers = require("tokenizers", f"The encoder '{_NAME}'", "text")
        numpy = require("safetensors.numpy", f"The encoder '{_NAME}'", "text")
        self.vectors = numpy.load_file(weights)["embedding.weight"].astype(np.float32)  # (vocabulary, 256)
        self.tokenizer = tokenizers.Tokenizer.from_file(str(tokenizer))
        self.tokenizer.no_padding()
        self.tokenizer.no_truncation()
        super().__init__(_NAME, _PREPROCESSING, _WEIGHTS.sha256, _DIM, batch_size or 1024)

    def encode(self, batch: Sequence[Any]) -> NDArray[np.float32]:
        features = np.zeros((len(batch), self.dim), np.float32)
        for row, tokens in enumerate(self.tokenizer.encode_batch(list(batch), add_special_tokens=False)):
            if tokens.ids:
                features[row] = self.vectors[np.minimum(tokens.ids, len(self.vectors) - 1)].mean(0)
        return features


def _load(_argument: str, options: Options) -> Encoder:
    return _StaticWords(_WEIGHTS.verified(_NAME), _TOKENIZER.verified(_NAME), options.batch_size)


ENCODERS = (
    EncoderEntry(
        name=_NAME,
        description="WordLlama, mean of static token vectors: the fastest for text",
        load=_load,
        modality="text",
        dim=_DIM,
        runtimes=(),
        extra="text",
        needs=("tokenizers", "safetensors"),
        packages=(_PACKAGE,),
        files=(_WEIGHTS, _TOKENIZER),
        licence="MIT",
        varying_length=True,
    ),
)
