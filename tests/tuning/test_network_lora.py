"""Low-rank adapters: they begin as nothing, train alone, and end as the weights of a plain encoder."""

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedmoments as fm
from fedmoments.errors import InputError
from fedmoments.samples.encoders import load_encoder
from fedmoments.settings.plan import TuningPlan
from fedmoments.tuning.network import NetworkEngine, parameter_count, prepare_all, save_encoder
from fedmoments.tuning.optimisers import make_optimiser
from fedmoments.tuning.start import BIAS, WEIGHTS, Start, start_from

torch = pytest.importorskip("torch")

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "the", "small", "large", "cat", "dog", "sees"]
ANIMALS = ("cat", "dog")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT of two small layers, with a tokenizer of eleven words."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    transformers: Any = importlib.import_module("transformers")
    place = tmp_path_factory.mktemp("bert")
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", None, [("[CLS]", 2), ("[SEP]", 3)])
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", model_max_length=10
    ).save_pretrained(place)
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(WORDS), hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=12,
    )  # fmt: skip
    transformers.BertModel(config).save_pretrained(place)
    return place


@pytest.fixture(scope="module")
def encoder(folder: Path) -> Any:
    return load_encoder(f"transformers:{folder}", threads=1)


def sentences(n: int, seed: int) -> tuple[list[str], np.ndarray]:
    rng = np.random.default_rng(seed)
    y = rng.integers(2, size=n)
    return [f"{rng.choice(['a', 'the'])} {rng.choice(['small', 'large'])} {ANIMALS[label]}" for label in y], y


@pytest.fixture(scope="module")
def parts(encoder: Any) -> dict[str, Any]:
    texts, y = sentences(24, 0)
    return {f"clinic {k}": (prepare_all(encoder, texts[k::2]), y[k::2]) for k in range(2)}


@pytest.fixture(scope="module")
def start(encoder: Any) -> Start:
    texts, y = sentences(12, 1)
    y[:4] = 1 - y[:4]  # a start that leaves something to learn
    return start_from(fm.fit("fedncm", {"a": (encoder.encode(texts), y)}, n_classes=2), "fedncm", temperature=0.02)


def rounds(engine: NetworkEngine, plan: TuningPlan, number: int) -> Any:
    optimiser, arrays = make_optimiser(plan, engine.samples), engine.initial()
    for t in range(1, number + 1):
        arrays = optimiser.step(t, arrays, engine.train(t, arrays, optimiser.control(arrays), engine.clients))
    return arrays


def test_law_fresh_adapters_change_no_feature_to_the_last_bit(encoder: Any, parts: Any, start: Start) -> None:
    samples = parts["clinic 0"][0]
    adapted = NetworkEngine(TuningPlan(stage="ft", adapter="lora:2"), start, encoder, parts)
    plain = NetworkEngine(TuningPlan(stage="ft"), start, encoder, parts)
    np.testing.assert_array_equal(
        adapted.features(adapted.initial(), samples), plain.features(plain.initial(), samples)
    )


def test_adapters_alone_are_sent_and_are_few(encoder: Any, parts: Any, start: Start) -> None:
    engine = NetworkEngine(TuningPlan(stage="ft", adapter="lora:2"), start, encoder, parts)
    names = set(engine.initial())
    assert all("lora_" in name for name in names - {WEIGHTS, BIAS})
    # query, key, value and output of 16 × 16, then 32 × 16 and 16 × 32, in two layers: rank · (in + out) each
    assert engine.encoder_parameters == 2 * 2 * (4 * 32 + 2 * 48)
    assert engine.encoder_parameters < 0.3 * parameter_count(encoder)
    feat = NetworkEngine(TuningPlan(stage="feat", adapter="lora:2"), start, encoder, parts)
    assert set(feat.initial()) == names - {WEIGHTS, BIAS}


@pytest.mark.parametrize(("stage", "lr"), [("ft", 3e-4), ("feat", 0.02)])
def test_adapters_learn_and_the_rest_of_the_encoder_stays(
    stage: str, lr: float, encoder: Any, parts: Any, start: Start
) -> None:
    plan = TuningPlan(stage=stage, adapter="lora:4", lr=lr, batch_size=4)
    engine = NetworkEngine(plan, start, encoder, parts, parts["clinic 1"])
    before = {name: value.clone() for name, value in encoder.model.state_dict().items()}
    frozen = {n: p.detach().clone() for n, p in engine._model.network.named_parameters() if "lora_" not in n}
    arrays = rounds(engine, plan, 15)
    first, last = engine.test(engine.initial()), engine.test(arrays)
    assert first is not None
    assert last is not None
    assert last.loss < 0.97 * first.loss
    for name, parameter in engine._model.network.named_parameters():
        if "lora_" not in name:
            assert torch.equal(parameter, frozen[name])
    assert all(torch.equal(value, before[name]) for name, value in encoder.model.state_dict().items())


def test_merged_weights_are_a_plain_encoder_with_the_same_features(
    folder: Path, encoder: Any, parts: Any, start: Start, tmp_path: Path
) -> None:
    plan = TuningPlan(stage="feat", adapter="lora:3", lr=0.2, batch_size=4)
    engine = NetworkEngine(plan, start, encoder, parts)
    arrays = rounds(engine, plan, 3)
    samples = parts["clinic 0"][0]
    tuned = engine.features(arrays, samples)
    path = tmp_path / "mine.safetensors"
    save_encoder(path, encoder, engine.plain(arrays))
    again = load_encoder(f"tuned:{path}", threads=1, trusted=[encoder.name])
    np.testing.assert_allclose(again.encode(list(samples)), tuned, atol=1e-5)
    assert np.abs(tuned - encoder.encode(list(samples))).max() > 1e-3


def test_what_adapters_cannot_be_is_refused(encoder: Any, parts: Any, start: Start) -> None:
    with pytest.raises(InputError, match="adapter must be none, lora:RANK"):
        TuningPlan(stage="ft", adapter="lora")
    with pytest.raises(InputError, match="stage 'lp' does not train"):
        TuningPlan(adapter="lora:2")
    with pytest.raises(InputError, match="adapters of rank 17 are more than the layer"):
        NetworkEngine(TuningPlan(stage="ft", adapter="lora:17"), start, encoder, parts)
    images = load_encoder("squeezenet-1.1", size=32, threads=1)
    head = fm.fit("fedncm", {"a": (np.eye(2, images.dim), [0, 1])})
    with pytest.raises(InputError, match="beside linear layers, as transformers have them"):
        NetworkEngine(TuningPlan(stage="ft", adapter="lora:2"), start_from(head, "fedncm"), images, {})


def test_dropout_is_the_encoders_own_by_seed_and_off_in_tests(encoder: Any, parts: Any, start: Start) -> None:
    plan = TuningPlan(stage="feat", lr=0.02, dropout=True)
    runs = [NetworkEngine(each, start, encoder, parts, parts["clinic 1"]) for each in
            (plan, plan, TuningPlan(stage="feat", lr=0.02))]  # fmt: skip
    state = torch.random.get_rng_state()
    ends = [engine.train(1, engine.initial(), None, ["clinic 0"])[0] for engine in runs]
    assert torch.equal(state, torch.random.get_rng_state())
    for name in ends[0].arrays:
        np.testing.assert_array_equal(ends[0].arrays[name], ends[1].arrays[name])
    assert any(not np.array_equal(ends[0].arrays[name], ends[2].arrays[name]) for name in ends[0].arrays)
    other = runs[0].train(2, runs[0].initial(), None, ["clinic 0"])[0]
    assert other.loss != ends[0].loss
    assert runs[0].test(runs[0].initial()) == runs[2].test(runs[2].initial())


@pytest.mark.slow
def test_minilm_learns_with_adapters_for_a_fiftieth_of_the_bytes() -> None:
    minilm = load_encoder("minilm", threads=1)
    texts = [f"{how} {what}" for how in ("please", "now", "can you", "I want to") for what in
             ("block my card", "cancel the card", "send money abroad", "wire cash to France")]  # fmt: skip
    y = np.tile([0, 0, 1, 1], 4)
    held = {"a": (prepare_all(minilm, texts[::2]), y[::2]), "b": (prepare_all(minilm, texts[1::2]), y[1::2])}
    features = {name: (minilm.encode(list(part)), labels) for name, (part, labels) in held.items()}
    begun = start_from(fm.fit("fedncm", features, n_classes=2), "fedncm", temperature=0.3)
    plan = TuningPlan(stage="feat", adapter="lora:4", lr=0.05, batch_size=8)
    engine = NetworkEngine(plan, begun, minilm, held, held["a"])
    arrays = rounds(engine, plan, 3)
    first, last = engine.test(engine.initial()), engine.test(arrays)
    assert first is not None
    assert last is not None
    assert last.loss < first.loss
    assert 50 * engine.encoder_parameters < parameter_count(minilm)
