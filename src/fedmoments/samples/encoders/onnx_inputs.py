"""ONNX models of sentences and of rows of numbers, on onnxruntime."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.errors import InputError
from fedmoments.extras import require
from fedmoments.samples.encoders.batches import encode_in_batches
from fedmoments.samples.encoders.encoder import Encoder, Modality
from fedmoments.samples.encoders.entry import Options
from fedmoments.samples.encoders.families.identity import IdentityEncoder
from fedmoments.samples.encoders.onnx_runtime import session
from fedmoments.samples.encoders.probe import probe_samples
from fedmoments.samples.encoders.text_encoder import TextEncoder

__all__ = ["TOKEN_INPUTS", "OnnxRowEncoder", "OnnxTextEncoder", "read_tokenizer"]

#: Inputs of a model of sentences that are made here; the first is always there.
TOKEN_INPUTS = ("input_ids", "attention_mask", "token_type_ids")
#: Outputs that are features already, the best first.
_FEATURES = ("features", "sentence_embedding", "text_embeds", "pooler_output")


class OnnxTextEncoder(TextEncoder):
    """An encoder of sentences on onnxruntime and ``tokenizers``.

    Parameters
    ----------
    name, preprocessing, weights_hash
        As of :class:`~fedmoments.samples.encoders.text_encoder.TextEncoder`.
    path
        The ONNX file. It takes ``input_ids`` and, if it likes, ``attention_mask`` and ``token_type_ids``, (n, tokens).
        Its output is (n, d), or (n, tokens, d), pooled here.
    tokenizer
        A file ``tokenizer.json``, as Hugging Face writes it.
    max_tokens
        Further tokens are cut off.
    pooling
        Of tokens: ``mean``, of those that are no padding, or ``cls``, the first.
    options
        Device, threads and batch size.
    """

    def __init__(
        self,
        name: str,
        preprocessing: Mapping[str, Any],
        weights_hash: str,
        *,
        path: Path,
        tokenizer: Path,
        max_tokens: int,
        pooling: str,
        options: Options,
    ) -> None:
        self.session = session(path, name, options.device, options.threads)
        self._inputs = {given.name: given for given in self.session.get_inputs()}
        outputs = [output.name for output in self.session.get_outputs()]
        self._output = next((best for best in _FEATURES if best in outputs), outputs[0])
        self._pooling = pooling
        self.tokenizer = read_tokenizer(tokenizer, name)
        length = self._inputs[TOKEN_INPUTS[0]].shape[1]
        fixed = length if isinstance(length, int) else None
        self.tokenizer.enable_truncation(min(max_tokens, fixed or max_tokens))
        self.tokenizer.enable_padding(**_padding(self.tokenizer.padding, fixed))
        super().__init__(name, preprocessing, weights_hash, self._run(["a"]).shape[1], options.batch_size)

    def encode(self, batch: Sequence[Any]) -> NDArray[np.float32]:
        # Neighbours in length share a batch, for less padding: masked tokens do not count, so nothing else changes.
        order = np.argsort([-len(sentence) for sentence in batch], kind="stable")
        features = encode_in_batches([batch[i] for i in order], self.batch_size, self.dim, self._run)
        restored = np.empty_like(features)
        restored[order] = features
        return restored

    def _run(self, sentences: Sequence[str]) -> NDArray[np.float32]:
        tokens = self.tokenizer.encode_batch(list(sentences))
        columns = (
            [each.ids for each in tokens],
            [each.attention_mask for each in tokens],
            [t.type_ids for t in tokens],
        )
        made = {
            name: np.array(rows, np.int32 if self._inputs[name].type == "tensor(int32)" else np.int64)
            for name, rows in zip(TOKEN_INPUTS, columns, strict=True)
            if name in self._inputs
        }
        states: NDArray[Any] = self.session.run([self._output], made)[0]
        if states.ndim not in (2, 3) or len(states) != len(tokens):
            raise InputError(
                f"the encoder '{self.name}' must give (n, d) or (n, tokens, d), but its output '{self._output}' has "
                f"the shape {states.shape} for {len(tokens)} sentences"
            )
        return (_pooled(states, np.array(columns[1]), self._pooling) if states.ndim == 3 else states).astype(np.float32)


def read_tokenizer(path: Path, name: str) -> Any:
    """Return the tokenizer of a file ``tokenizer.json``."""
    tokenizers = require("tokenizers", f"The encoder '{name}'", "text")
    try:
        return tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # tokenizers raises Exception itself
        raise InputError(f"{path} is no tokenizer of the encoder '{name}': {error}") from error


def _padding(own: Mapping[str, Any] | None, fixed: int | None) -> dict[str, Any]:
    """Return how to pad: as the file does, to the longest of a batch, or to the length that the model takes."""
    kept = {key: own[key] for key in ("direction", "pad_id", "pad_type_id", "pad_token") if own and key in own}
    return {**kept, "length": fixed}


def _pooled(states: NDArray[Any], mask: NDArray[Any], pooling: str) -> NDArray[Any]:
    if pooling == "cls":
        return np.asarray(states[:, 0])
    weights = mask[:, : states.shape[1], None].astype(states.dtype)
    return np.asarray((states * weights).sum(axis=1) / weights.sum(axis=1))


class OnnxRowEncoder(Encoder):
    """An encoder of rows of numbers on onnxruntime, such as a network that was trained on tables.

    Parameters
    ----------
    name, weights_hash
        What a user types, and the SHA-256 of the file.
    path
        The ONNX file. It takes one input (n, columns) of float32 or float64, and gives (n, d).
    options
        Device, threads and batch size.
    """

    modality: Modality = "features"

    def __init__(self, name: str, weights_hash: str, *, path: Path, options: Options) -> None:
        self.name, self._hash = name, weights_hash
        self.session = session(path, name, options.device, options.threads)
        self._input = self.session.get_inputs()[0]
        outputs = [output.name for output in self.session.get_outputs()]
        self._output = next((best for best in _FEATURES if best in outputs), outputs[0])
        if not isinstance(self._input.shape[1], int):
            raise InputError(f"the encoder '{name}' does not say how many columns it takes: export it with a number")
        #: A model may have been exported for one size of batch; then the last batch is filled up.
        self._fixed = self._input.shape[0] if isinstance(self._input.shape[0], int) else None
        self.batch_size = self._fixed or options.batch_size or 4096
        self._rows = IdentityEncoder(self._input.shape[1])
        self._dim = int(self._run([np.zeros(self._rows.dim, np.float32)]).shape[1])

    @property
    def dim(self) -> int:
        """Dimension d of the features."""
        return self._dim

    @property
    def preprocessing(self) -> Mapping[str, Any]:
        """What happens to a row before the model: nothing."""
        return {"features": "as given", "columns": self._rows.dim}

    @property
    def weights_hash(self) -> str:
        """SHA-256 of the file."""
        return self._hash

    def probed(self) -> NDArray[np.float32]:
        """Return the features (n, d) of the probe, which are rows of as many columns as it takes."""
        return self.encode([self.prepare(row) for row in probe_samples("features", self._rows.dim)])

    def prepare(self, sample: Any) -> NDArray[np.float32]:
        """Return a row of numbers, checked."""
        return self._rows.prepare(sample)

    def encode(self, batch: Sequence[Any]) -> NDArray[np.float32]:
        """Return the features (len(batch), d)."""
        return encode_in_batches(batch, self.batch_size, self._dim, self._run)

    def _run(self, rows: Sequence[Any]) -> NDArray[np.float32]:
        full = [*rows, *[rows[-1]] * ((self._fixed or len(rows)) - len(rows))]
        given = np.stack(full).astype(np.float64 if self._input.type == "tensor(double)" else np.float32)
        features = np.asarray(self.session.run([self._output], {self._input.name: given})[0])[: len(rows)]
        if features.shape[:1] != (len(rows),) or features.ndim != 2 or features.dtype.kind != "f":
            raise InputError(
                f"the encoder '{self.name}' must give features (n, d), but its output '{self._output}' is "
                f"{features.dtype} of shape {features.shape} for {len(rows)} rows"
            )
        return features.astype(np.float32)
