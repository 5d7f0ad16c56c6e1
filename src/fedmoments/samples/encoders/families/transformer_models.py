"""``transformers:NAME_OR_PATH``: any text model of that library, pooled over tokens: their mean, or the first (CLS)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from fedmoments.errors import InputError
from fedmoments.extras import require
from fedmoments.samples.encoders.batches import encode_in_batches
from fedmoments.samples.encoders.encoder import Encoder
from fedmoments.samples.encoders.entry import EncoderEntry, Options
from fedmoments.samples.encoders.image_loading import checked_pooling
from fedmoments.samples.encoders.text_encoder import TextEncoder, is_local, quiet_loading, tokenizer_hash
from fedmoments.samples.encoders.torch_runtime import chosen_device, hash_of_state, inference

__all__ = ["ENCODERS", "TransformerEncoder"]

_PREFIX = "transformers:"
_FALLBACK_TOKENS = 512
_UNLIMITED = 1_000_000  # tokenizers without a limit claim 10³⁰


class TransformerEncoder(TextEncoder):
    """A transformer whose last hidden states are pooled over the tokens of a sentence.

    Parameters
    ----------
    name
        What a user types to get it again.
    model, tokenizer
        Of the library ``transformers``.
    pooling
        ``"mean"`` over the tokens that are not padding, or ``"cls"``, the first.
    device, threads, batch_size
        As of the other encoders on torch.
    """

    def __init__(
        self,
        name: str,
        model: Any,
        tokenizer: Any,
        *,
        pooling: Literal["mean", "cls"],
        device: str = "cpu",
        threads: int | None = None,
        batch_size: int | None = None,
    ) -> None:
        self.device = chosen_device(device)
        self.model = model.float().eval().requires_grad_(requires_grad=False).to(self.device)
        self.tokenizer = tokenizer
        self.pooling: Literal["mean", "cls"] = pooling
        self.threads = threads
        self.max_tokens = _limit(model, tokenizer)
        preprocessing = {
            "strip": True,
            "tokenizer": tokenizer_hash(tokenizer),
            "max_tokens": self.max_tokens,
            "pooling": pooling,
        }
        dim = int(self._run(["word"]).shape[1])
        super().__init__(name, preprocessing, hash_of_state(model.state_dict()), dim, batch_size)

    def encode(self, batch: Sequence[Any]) -> NDArray[np.float32]:
        return encode_in_batches(batch, self.batch_size, self.dim, self._run)

    def _run(self, sentences: Sequence[str]) -> NDArray[np.float32]:
        from fedmoments.samples.encoders.modules.sentences import pool_tokens

        tokens = self.tokenizer(
            list(sentences), padding=True, truncation=True, max_length=self.max_tokens, return_tensors="pt"
        ).to(self.device)
        with inference(self.device, self.threads):
            states = self.model(**tokens).last_hidden_state
            features: NDArray[np.float32] = pool_tokens(states, tokens["attention_mask"], self.pooling).cpu().numpy()
        return features


def _limit(model: Any, tokenizer: Any) -> int:
    """Return how many tokens the tokenizer and the model can take."""
    limits = [tokenizer.model_max_length, getattr(model.config, "max_position_embeddings", None)]
    known = [int(limit) for limit in limits if limit and 0 < limit < _UNLIMITED]
    return min(known, default=_FALLBACK_TOKENS)


def _load(argument: str, options: Options) -> Encoder:
    name = _PREFIX + argument
    require("torch", f"The encoder '{name}'", "text")
    library = require("transformers", f"The encoder '{name}'", "text")
    pooling = cast("Literal['mean', 'cls']", checked_pooling(options, name, ("mean", "cls")))
    local = is_local(argument, name)
    source = str(Path(argument).expanduser()) if local else argument
    asked = {"local_files_only": local, "trust_remote_code": False}  # None asks at the terminal, and runs what came
    with quiet_loading(name):
        tokenizer = library.AutoTokenizer.from_pretrained(source, **asked)
        model = library.AutoModel.from_pretrained(source, **asked)
    if model.config.is_encoder_decoder:
        model = model.get_encoder()
    if tokenizer.pad_token is None:
        if tokenizer.eos_token is None:
            raise InputError(f"the encoder '{name}' has a tokenizer without a padding or an end token")
        tokenizer.pad_token = tokenizer.eos_token
    tokenizer.padding_side = "right"  # the first token must be the sentence's first
    return TransformerEncoder(name, model, tokenizer, pooling=pooling, **options.run())


ENCODERS = (
    EncoderEntry(
        name=_PREFIX,
        argument="NAME_OR_PATH",
        description="a text model of transformers, mean or CLS pooling, from a folder or the Hugging Face hub",
        load=_load,
        modality="text",
        takes=frozenset({"pooling"}),
        extra="text",
        needs=("torch", "transformers"),
    ),
)
