"""``sentence-transformers:NAME_OR_PATH``: any model of that library, from a folder or the Hugging Face hub."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.extras import require
from fedmoments.samples.encoders.encoder import Encoder
from fedmoments.samples.encoders.entry import EncoderEntry, Options
from fedmoments.samples.encoders.text_encoder import TextEncoder, is_local, quiet_loading, tokenizer_hash
from fedmoments.samples.encoders.torch_runtime import chosen_device, hash_of_state, inference

__all__ = ["ENCODERS", "SentenceEncoder", "load_sentence_model"]

_PREFIX = "sentence-transformers:"


class SentenceEncoder(TextEncoder):
    """A model of sentence-transformers, with its own pooling and normalisation.

    Parameters
    ----------
    name, preprocessing, weights_hash, batch_size
        As of :class:`~fedmoments.samples.encoders.text_encoder.TextEncoder`.
    model
        A ``SentenceTransformer``.
    threads
        On a CPU; None leaves torch's own number.
    """

    def __init__(
        self,
        name: str,
        preprocessing: Mapping[str, Any],
        weights_hash: str,
        *,
        model: Any,
        threads: int | None = None,
        batch_size: int | None = None,
    ) -> None:
        self.model = model.eval().requires_grad_(requires_grad=False)
        self.threads = threads
        # The method was renamed in sentence-transformers 5.4; encoding a word asks neither.
        dim = int(self._run(["word"]).shape[1])
        super().__init__(name, preprocessing, weights_hash, dim, batch_size)

    def encode(self, batch: Sequence[Any]) -> NDArray[np.float32]:
        return self._run(batch) if len(batch) else np.empty((0, self.dim), np.float32)

    def _run(self, sentences: Sequence[str]) -> NDArray[np.float32]:
        with inference(self.model.device, self.threads):
            features = self.model.encode(
                list(sentences), batch_size=self.batch_size, show_progress_bar=False, convert_to_numpy=True
            )
        return np.asarray(features, np.float32)


def load_sentence_model(source: str, name: str, device: str, *, local: bool) -> Any:
    """Return a ``SentenceTransformer``; a local one without a word to the network."""
    library = require("sentence_transformers", f"The encoder '{name}'", "text")
    with quiet_loading(name):
        _require_known_modules(Path(source) / "modules.json")
        return library.SentenceTransformer(
            source, device=str(chosen_device(device)), local_files_only=local, trust_remote_code=False
        )


def _require_known_modules(file: Path) -> None:
    """Refuse a folder whose parts are code of its own, which older releases of the library run unasked."""
    if not file.is_file():
        return
    parts = json.loads(file.read_text("utf-8"))
    kinds = [str(part["type"]) for part in parts]
    foreign = [kind for kind in kinds if not kind.startswith("sentence_transformers.")]
    if foreign:
        raise ValueError(
            f"{file} names the module '{foreign[0]}', which is not of sentence-transformers, and is not run"
        )


def _load(argument: str, options: Options) -> Encoder:
    name = _PREFIX + argument
    local = is_local(argument, name)
    source = str(Path(argument).expanduser()) if local else argument
    model = load_sentence_model(source, name, options.device, local=local)
    prompt = (model.prompts or {}).get(model.default_prompt_name or "", "")
    preprocessing = {
        "strip": True,
        "tokenizer": tokenizer_hash(model.tokenizer),
        "max_tokens": model.max_seq_length,
        "prompt": prompt,
        "modules": [_described(module) for module in model],
    }
    weights = hash_of_state(model.state_dict())
    return SentenceEncoder(
        name, preprocessing, weights, model=model, threads=options.threads, batch_size=options.batch_size
    )


def _described(module: Any) -> dict[str, Any]:
    """Return a module's kind, and how it pools if it does."""
    mode = getattr(module, "pooling_mode", None)
    if mode is None and hasattr(module, "get_pooling_mode_str"):
        mode = module.get_pooling_mode_str()
    return {"kind": type(module).__name__, **({} if mode is None else {"pooling": str(mode)})}


ENCODERS = (
    EncoderEntry(
        name=_PREFIX,
        argument="NAME_OR_PATH",
        description="a model of sentence-transformers, from a folder or the Hugging Face hub",
        load=_load,
        modality="text",
        extra="text",
        needs=("torch", "sentence_transformers"),
    ),
)
