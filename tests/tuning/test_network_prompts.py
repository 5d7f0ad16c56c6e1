"""Visual prompts: tokens that train alone, travel alone, and stay with the encoder in its file."""

import importlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedmoments as fm
from fedmoments.errors import FileFormatError, InputError
from fedmoments.files import read_tensors, write_tensors
from fedmoments.samples.encoders import load_encoder
from fedmoments.settings.plan import TuningPlan
from fedmoments.settings.study import TuningStudy
from fedmoments.study.jobs.tuning import run_tuning
from fedmoments.tuning.network import NetworkEngine, parameter_count, save_encoder
from fedmoments.tuning.optimisers import make_optimiser
from fedmoments.tuning.start import BIAS, WEIGHTS, Start, start_from

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

SIDE, WIDTH, PATCH = 32, 16, 8
SAID = {"size": {"shortest_edge": SIDE}, "do_center_crop": True, "crop_size": SIDE, "resample": 2}
SMALL = {
    "hidden_size": WIDTH, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
    "image_size": SIDE, "patch_size": PATCH, "initializer_range": 0.3,
}  # fmt: skip
TEXT = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 50}
KINDS = ("ViT", "Dinov2", "CLIP", "Siglip")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    library: Any = importlib.import_module("transformers")
    made = {}
    for kind in KINDS:
        torch.manual_seed(0)
        place = tmp_path_factory.mktemp(kind)
        settings: Any = {"text_config": TEXT, "vision_config": SMALL} if kind in {"CLIP", "Siglip"} else SMALL
        config = getattr(library, f"{kind}Config")(**settings)
        getattr(library, f"{kind}Model")(config).save_pretrained(place)
        (place / "preprocessor_config.json").write_text(json.dumps(SAID))
        made[kind] = place
    return made


def loaded(folders: dict[str, Path], kind: str = "ViT", **options: Any) -> Any:
    return load_encoder(f"transformers-image:{folders[kind]}", threads=1, batch_size=4, **options)


def images(n: int, seed: int) -> tuple[Any, Any]:
    """Return images whose brightness in one channel tells the class."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    pixels = rng.integers(0, 120, (n, 3, SIDE, SIDE))
    pixels[np.arange(n), y] += 40
    return pixels.astype(np.uint8), y


def parts() -> dict[str, Any]:
    X, y = images(16, 0)
    return {"a": (X[:7], y[:7]), "b": (X[7:], y[7:])}


def begun(encoder: Any) -> Start:
    X, y = images(8, 1)
    y[:3] = 1 - y[:3]  # a start that leaves something to learn
    return start_from(fm.fit("fedncm", {"a": (encoder.encode(X), y)}, n_classes=2), "fedncm", temperature=0.1)


def rounds(engine: NetworkEngine, plan: TuningPlan, number: int) -> Any:
    optimiser, arrays = make_optimiser(plan, engine.samples), engine.initial()
    for t in range(1, number + 1):
        arrays = optimiser.step(t, arrays, engine.train(t, arrays, None, engine.clients))
    return arrays


def names_of(arrays: Any) -> list[str]:
    return [name for name in arrays if name not in {WEIGHTS, BIAS}]


@pytest.mark.parametrize("kind", KINDS)
def test_prompts_alone_are_sent_and_learn_and_the_rest_stays(folders: dict[str, Path], kind: str) -> None:
    encoder = loaded(folders, kind)
    before = {name: value.clone() for name, value in encoder.model.state_dict().items()}
    plan = TuningPlan(stage="feat", adapter="prompt:3", lr=0.05, batch_size=0)
    engine = NetworkEngine(plan, begun(encoder), encoder, parts(), parts()["a"])
    (name,) = names_of(engine.initial())
    assert engine.initial()[name].shape == (3, WIDTH)
    assert engine.encoder_parameters == 3 * WIDTH < 0.02 * parameter_count(encoder)
    arrays = rounds(engine, plan, 15)
    first, last = engine.test(engine.initial()), engine.test(arrays)
    assert first is not None
    assert last is not None
    assert last.loss < 0.99 * first.loss
    assert all(torch.equal(value, before[name]) for name, value in encoder.model.state_dict().items())


def test_one_prompt_is_a_token_of_the_library_s_own_network(folders: dict[str, Path]) -> None:
    encoder = loaded(folders)
    engine = NetworkEngine(TuningPlan(stage="feat", adapter="prompt:2"), begun(encoder), encoder, {})
    (name,) = names_of(engine.initial())
    given = np.random.default_rng(0).normal(size=(2, WIDTH)).astype(np.float32)
    X, _ = images(4, 3)
    found = engine.features({name: given}, X)
    model: Any = importlib.import_module("transformers").AutoModel.from_pretrained(folders["ViT"]).eval()
    mean, scale = encoder.model.mean, encoder.model.scale
    with torch.inference_mode():
        tokens = model.embeddings((torch.from_numpy(X).float() - mean) / scale)
        states = torch.cat([tokens[:, :1], torch.from_numpy(given).expand(4, -1, -1), tokens[:, 1:]], dim=1)
        for layer in model.layers if hasattr(model, "layers") else model.encoder.layer:
            out = layer(states)
            states = out[0] if isinstance(out, tuple) else out
        expected = model.layernorm(states)[:, 0].numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    assert np.abs(found - encoder.encode(X)).max() > 1e-3


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_the_file_of_a_tuned_encoder_holds_its_prompts(folders: dict[str, Path], tmp_path: Path, pooling: str) -> None:
    encoder = loaded(folders, pooling=pooling)
    plan = TuningPlan(stage="feat", adapter="prompt:4", lr=0.2)
    engine = NetworkEngine(plan, begun(encoder), encoder, parts())
    arrays, (X, _) = rounds(engine, plan, 2), images(6, 4)
    path = tmp_path / "mine.safetensors"
    save_encoder(path, encoder, engine.plain(arrays))
    again = load_encoder(f"tuned:{path}", threads=1, batch_size=4, trusted=[encoder.name])
    np.testing.assert_allclose(again.encode(X), engine.features(arrays, X), rtol=1e-5, atol=1e-6)
    assert again.fingerprint != encoder.fingerprint
    assert np.abs(again.encode(X) - encoder.encode(X)).max() > 1e-3
    further = NetworkEngine(plan, begun(again), again, parts())  # goes on from them
    (name,) = names_of(further.initial())
    np.testing.assert_array_equal(further.initial()[name], arrays[name])
    save_encoder(tmp_path / "further", again, further.plain(rounds(further, plan, 1)))
    assert load_encoder(f"tuned:{tmp_path / 'further'}", threads=1, trusted=[encoder.name]).dim == WIDTH
    with pytest.raises(InputError, match="was tuned with 4 prompts: take adapter prompt:4"):
        NetworkEngine(TuningPlan(stage="feat", adapter="prompt:2"), begun(again), again, {})
    tensors, header = read_tensors(path, "encoder")
    tensors[next(name for name in tensors if "visual_prompts" in name)] = np.zeros((4, 3), np.float32)
    write_tensors(path, "encoder", tensors, header)
    with pytest.raises(FileFormatError, match="prompts that do not fit its encoder"):
        load_encoder(f"tuned:{path}", threads=1, trusted=[encoder.name])


def test_what_prompts_cannot_be_is_refused() -> None:
    with pytest.raises(InputError, match="prompt:NUMBER such as prompt:8, not 'prompt:0'"):
        TuningPlan(stage="ft", adapter="prompt:0")
    with pytest.raises(InputError, match="stage 'lp' does not train"):
        TuningPlan(adapter="prompt:2")
    encoder = load_encoder("squeezenet-1.1", size=32, threads=1)
    head = fm.fit("fedncm", {"a": (np.eye(2, encoder.dim), [0, 1])})
    with pytest.raises(InputError, match="visual prompts stand beside the patches of a transformer of images"):
        NetworkEngine(TuningPlan(stage="ft", adapter="prompt:2"), start_from(head, "fedncm"), encoder, {})


def test_a_head_is_fitted_behind_the_prompts_that_its_rounds_begin_with(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    wanted = TuningStudy(
        data="digits",
        encoder=f"transformers-image:{folders['ViT']}",
        threads=1,
        clients=(10,),
        splits=("iid",),
        starts=("fed3r",),
        plan={"stage": "ft", "adapter": "prompt:8", "rounds": 0, "lr": 0.01},
        refit=("fed3r",),
        seeds=1,
    )
    found = run_tuning(wanted, cache_dir=tmp_path).document["tuning"]
    (curve,), (head,) = found["curves"], found["heads"]
    first = curve["points"][0]["accuracy"]
    assert first == pytest.approx(curve["refit"]["fed3r"], abs=0.005)
    assert first != head["accuracy"] == curve["probe"]["before"]
    assert first > 0.3  # of ten classes, behind a network of random weights
