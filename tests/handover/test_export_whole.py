"""Encoder, feature map and head in one file: pixels and token ids give the probabilities that 'predict' gives."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedmoments as fm
from fedmoments.errors import InputError, MergeError
from fedmoments.handover.export import export
from fedmoments.samples.encoders import load_encoder

CLASSES = ["dark", "light", "noise"]


@pytest.fixture(scope="module")
def images() -> Any:
    return load_encoder("efficientnet-lite0", size=64, threads=1)


def pictures() -> tuple[list[Any], list[int]]:
    """Return small pictures of three kinds."""
    rng = np.random.default_rng(0)
    flat = [np.full((70, 80, 3), level, np.uint8) for level in (0, 20, 40, 60, 190, 210, 230, 255)]
    noise = [rng.integers(0, 256, (70, 80, 3), np.uint8) for _ in range(4)]
    return flat + noise, [0] * 4 + [1] * 4 + [2] * 4


def fitted(encoder: Any, samples: list[Any], labels: list[int], names: list[str]) -> tuple[fm.Classifier, Any]:
    prepared = [encoder.prepare(sample) for sample in samples]
    features = encoder.encode(prepared).astype(np.float64)
    classifier = fm.fit("lda-free", {"a": (features[::2], labels[::2]), "b": (features[1::2], labels[1::2])},
                        class_names=names)  # fmt: skip
    return classifier.noting(encoder=encoder.note({})), prepared


def test_pixels_go_in_and_the_label_comes_out(images: Any, tmp_path: Path) -> None:
    import onnxruntime
    import torch

    classifier, prepared = fitted(images, *pictures(), CLASSES)
    ours = classifier.predict_proba(images.encode(prepared))
    graph = export(classifier, "onnx", tmp_path / "model.onnx", encoder=images)[0]
    session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    label, shares = session.run(["label", "probabilities"], {"pixels": np.stack(prepared)})
    assert label.tolist() == classifier.predict(images.encode(prepared)).tolist()
    assert np.abs(shares - ours).max() < 1e-4
    preprocessing = json.loads(session.get_modelmeta().custom_metadata_map["preprocessing"])
    assert (preprocessing["size"], preprocessing["interpolation"]) == (64, "bicubic")

    program = export(classifier, "torch", tmp_path / "model.pt2", encoder=images)[0]
    traced, _, familiar = torch.export.load(program).module()(torch.from_numpy(np.stack(prepared)))
    assert np.abs(traced.numpy() - ours).max() < 1e-4
    assert np.abs(familiar.numpy() - classifier.familiarity(images.encode(prepared))).max() < 1e-4


def test_another_encoder_than_the_one_it_was_fitted_behind_is_refused(images: Any, tmp_path: Path) -> None:
    classifier, _ = fitted(images, *pictures(), CLASSES)
    other = load_encoder("efficientnet-lite0", size=96, threads=1)
    with pytest.raises(MergeError, match="was fitted behind the encoder efficientnet-lite0"):
        export(classifier, "onnx", tmp_path / "model.onnx", encoder=other)


def test_scikit_learn_takes_features_alone(images: Any, tmp_path: Path) -> None:
    classifier, _ = fitted(images, *pictures(), CLASSES)
    with pytest.raises(InputError, match="takes features: export the head alone"):
        export(classifier, "sklearn", tmp_path / "model.joblib", encoder=images)


def test_sentences_go_in_as_token_ids(tmp_path: Path) -> None:
    import onnxruntime
    from tokenizers import Tokenizer

    encoder = load_encoder("minilm", threads=1)
    sentences = ["my card was stolen", "I lost my card", "what is the exchange rate", "how many euros for a dollar"]
    classifier, prepared = fitted(encoder, sentences, [0, 0, 1, 1], ["card", "rate"])
    files = export(classifier, "huggingface", tmp_path / "model", encoder=encoder)
    assert [path.name for path in files] == [
        "config.json", "model.safetensors", "preprocessor_config.json", "README.md", "encoder.onnx", "tokenizer.json",
    ]  # fmt: skip
    tokenizer = Tokenizer.from_file(str(tmp_path / "model/tokenizer.json"))
    tokenizer.no_padding()
    session = onnxruntime.InferenceSession(tmp_path / "model/encoder.onnx", providers=["CPUExecutionProvider"])
    graph = export(classifier, "onnx", tmp_path / "model.onnx", encoder=encoder)[0]
    whole = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    ours = classifier.predict_proba(encoder.encode(prepared))
    for sentence, expected in zip(prepared, ours, strict=True):
        tokens = tokenizer.encode(sentence)
        given = {
            "input_ids": np.array([tokens.ids], np.int64),
            "attention_mask": np.array([tokens.attention_mask], np.int64),
            "token_type_ids": np.array([tokens.type_ids], np.int64),
        }
        features = session.run(["features"], given)[0]
        assert np.abs(classifier.predict_proba(features) - expected).max() < 1e-3
        assert np.abs(whole.run(["probabilities"], given)[0] - expected).max() < 1e-3
