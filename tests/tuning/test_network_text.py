"""Sentence encoders are tuned through their transformer: tokens, pooling and unit length as ever."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmoments.errors import InputError
from fedmoments.samples.encoders import load_encoder
from fedmoments.settings.plan import TuningPlan
from fedmoments.tuning.network import NetworkEngine, forward_flops, parameter_count, prepare_all, save_encoder
from fedmoments.tuning.start import random_start

torch = pytest.importorskip("torch")
pytest.importorskip("sentence_transformers")

SENTENCES = [
    "Where is my card?",
    "I have lost my card and need a new one, please",
    "Top up failed",
    "My top-up did not arrive yet",
    "card",
    "The card that you sent me a week ago has never arrived at my address",
]
LABELS = np.array([0, 0, 1, 1, 0, 0])


@pytest.fixture(scope="module")
def encoder() -> Any:
    return load_encoder("minilm", threads=1)


@pytest.fixture(scope="module")
def engine(encoder: Any) -> NetworkEngine:
    start = random_start(384, np.array([True, True]), seed=0, temperature=0.1)
    prepared = prepare_all(encoder, SENTENCES)
    plan = TuningPlan(stage="feat", lr=0.05, batch_size=4)
    return NetworkEngine(plan, start, encoder, {"a": (prepared, LABELS)}, (prepared, LABELS))


def test_the_network_gives_the_encoders_features(encoder: Any, engine: NetworkEngine) -> None:
    features = engine.features(engine.initial(), SENTENCES)
    np.testing.assert_allclose(features, encoder.encode(SENTENCES), atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(features, axis=1), 1.0, atol=1e-5)
    tokens = encoder.model.tokenizer(SENTENCES)["input_ids"]
    assert engine.memory == 2 * 4 * sum(map(len, tokens))  # to train and to test on


@pytest.mark.slow
def test_training_lowers_the_loss_is_repeatable_and_saves(encoder: Any, engine: NetworkEngine, tmp_path: Path) -> None:
    before = engine.initial()
    assert "encoder/embeddings.word_embeddings.weight" in before
    assert not any("pooler" in name or "head" in name for name in before)
    first, second = (engine.train(1, before, None, ["a"])[0] for _ in range(2))
    assert first.steps == 2
    assert all(np.array_equal(first.arrays[name], second.arrays[name]) for name in before)  # dropout is off
    start, after = engine.test(before), engine.test(dict(first.arrays))
    assert start is not None
    assert after is not None
    assert after.loss < start.loss
    save_encoder(tmp_path / "tuned", encoder, dict(first.arrays))
    loaded = load_encoder(f"tuned:{tmp_path / 'tuned'}", threads=1)
    assert loaded.modality == "text"
    assert loaded.fingerprint != encoder.fingerprint
    np.testing.assert_allclose(loaded.encode(SENTENCES), engine.features(dict(first.arrays), SENTENCES), atol=1e-5)
    assert not np.allclose(loaded.encode(SENTENCES), encoder.encode(SENTENCES), atol=1e-3)
    with pytest.raises(InputError, match="is of text and does not run on ONNX"):
        load_encoder(f"tuned:{tmp_path / 'tuned'}", runtime="onnx")


def test_a_step_is_autograd_through_the_sentence_model(encoder: Any, engine: NetworkEngine) -> None:
    import copy

    model = copy.deepcopy(encoder.model).requires_grad_(True)
    tokens = model.tokenizer(SENTENCES, padding=True, return_tensors="pt")
    start = random_start(384, np.array([True, True]), seed=0, temperature=0.1)
    weights, bias = (torch.tensor(array) for array in start.arrays().values())
    scores = model(dict(tokens))["sentence_embedding"] @ weights + bias
    torch.nn.functional.cross_entropy(scores / 0.1, torch.from_numpy(LABELS)).backward()
    whole = NetworkEngine(TuningPlan(stage="feat", lr=0.05, batch_size=0), start, encoder, {"a": (SENTENCES, LABELS)})
    (update,) = whole.train(1, whole.initial(), None, ["a"])
    body = model[0].auto_model
    for name in ("embeddings.word_embeddings.weight", "encoder.layer.5.output.dense.weight"):
        gradient = body.get_parameter(name).grad
        assert gradient is not None
        change = whole.initial()[f"encoder/{name}"] - update.arrays[f"encoder/{name}"]
        expected = 0.05 * gradient.numpy()
        assert np.abs(change - expected).max() < 1e-3 * np.abs(expected).max() + 1e-7


def test_costs_of_a_transformer_grow_with_its_tokens(encoder: Any) -> None:
    layer = 4 * 384 * 384 + 2 * 384 * 1536
    assert forward_flops(encoder, tokens=16) == 16 * 6 * layer
    assert forward_flops(encoder, tokens=32) == 32 * 6 * layer
    inside = sum(p.numel() for name, p in encoder.model.named_parameters() if "pooler" not in name)
    assert parameter_count(encoder) == inside


def test_static_words_are_refused_with_a_reason() -> None:
    pytest.importorskip("wordllama")
    with pytest.raises(InputError, match="'wordllama' cannot be tuned: it is not a network on torch"):
        parameter_count(load_encoder("wordllama"))
