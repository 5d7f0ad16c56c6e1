"""Tuned encoders as files: what is written, what loads again, and what is refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmoments.errors import FileFormatError, InputError, MergeError
from fedmoments.files import read_tensors, write_tensors
from fedmoments.samples.encoders import load_encoder
from fedmoments.samples.encoders.torch_runtime import hash_of_state
from fedmoments.settings.plan import TuningPlan
from fedmoments.tuning.network import NetworkEngine, forward_flops, parameter_count, prepare_all, save_encoder
from fedmoments.tuning.start import random_start

torch = pytest.importorskip("torch")

SIZE = 40


@pytest.fixture(scope="module")
def encoder() -> Any:
    return load_encoder("squeezenet-1.1", size=SIZE, crop=1.0, pooling="max", threads=1)


@pytest.fixture(scope="module")
def tuned(encoder: Any, tmp_path_factory: Any) -> Any:
    """Return an engine, the arrays after a round, images, and the file."""
    X = np.random.default_rng(0).integers(0, 256, (6, 3, SIZE, SIZE)).astype(np.uint8)
    start = random_start(encoder.dim, np.array([True, True]), seed=0, temperature=10.0)
    engine = NetworkEngine(TuningPlan(stage="ft", lr=1e-2), start, encoder, {"a": (X, np.arange(6) % 2)})
    arrays = dict(engine.train(1, engine.initial(), None, ["a"])[0].arrays)
    path = tmp_path_factory.mktemp("tuned") / "encoder.safetensors"
    save_encoder(path, encoder, arrays)
    return engine, arrays, X, path


def test_a_saved_encoder_gives_the_features_of_the_engine_under_a_fingerprint_of_its_own(
    encoder: Any, tuned: Any
) -> None:
    engine, arrays, X, path = tuned
    loaded = load_encoder(f"tuned:{path}", threads=1)
    assert np.array_equal(loaded.encode(X), engine.features(arrays, X))
    assert np.array_equal(encoder.encode(X), engine.features(engine.initial(), X))
    assert not np.allclose(loaded.encode(X), encoder.encode(X))
    assert loaded.name == f"tuned:{path}"
    assert loaded.preprocessing == encoder.preprocessing
    assert loaded.weights_hash == hash_of_state(loaded.model.body.state_dict())  # type: ignore[attr-defined]
    assert loaded.fingerprint != encoder.fingerprint
    assert load_encoder(f"tuned:{path}").fingerprint == loaded.fingerprint


def test_the_encoder_that_was_tuned_stays_as_it_was(encoder: Any, tuned: Any) -> None:
    _, _, X, _ = tuned
    fresh = load_encoder("squeezenet-1.1", size=SIZE, crop=1.0, pooling="max", threads=1)
    assert np.array_equal(encoder.encode(X), fresh.encode(X))
    assert not any(parameter.requires_grad for parameter in encoder.model.parameters())


def test_a_tuned_encoder_can_be_tuned_again_without_the_file_it_came_from(
    encoder: Any, tuned: Any, tmp_path: Path
) -> None:
    engine, arrays, X, path = tuned
    once = load_encoder(f"tuned:{path}", threads=1)
    start = random_start(once.dim, np.array([True, True]), seed=1, temperature=10.0)
    again = NetworkEngine(TuningPlan(stage="feat", lr=1e-2), start, once, {"a": (X, np.arange(6) % 2)})
    assert np.array_equal(again.features(again.initial(), X), engine.features(arrays, X))
    more = dict(again.train(1, again.initial(), None, ["a"])[0].arrays)
    save_encoder(tmp_path / "twice", once, more)
    assert read_tensors(tmp_path / "twice", "encoder")[1]["base"] == "squeezenet-1.1"
    twice = load_encoder(f"tuned:{tmp_path / 'twice'}", threads=1)
    assert np.array_equal(twice.encode(X), again.features(more, X))
    assert len({encoder.fingerprint, once.fingerprint, twice.fingerprint}) == 3


def test_a_tuned_encoder_runs_on_onnx_with_the_same_fingerprint(tuned: Any, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    _, _, X, path = tuned
    on_torch = load_encoder(f"tuned:{path}", threads=1)
    on_onnx = load_encoder(f"tuned:{path}", runtime="onnx", threads=1, cache=tmp_path)
    assert on_onnx.fingerprint == on_torch.fingerprint
    np.testing.assert_allclose(on_onnx.encode(X), on_torch.encode(X), rtol=1e-3, atol=1e-2)


def test_what_is_not_a_tuned_encoder_is_refused(encoder: Any, tuned: Any, tmp_path: Path) -> None:
    _, arrays, _, path = tuned
    with pytest.raises(InputError, match=r"the file .*missing does not exist"):
        load_encoder(f"tuned:{tmp_path / 'missing'}")
    with pytest.raises(InputError, match="was tuned with size 40"):
        load_encoder(f"tuned:{path}", size=64)
    assert load_encoder(f"tuned:{path}", size=SIZE, pooling="max", threads=1).dim == 512
    with pytest.raises(InputError, match="nothing of the encoder"):
        save_encoder(tmp_path / "head", encoder, {n: a for n, a in arrays.items() if n.startswith("head")})
    with pytest.raises(FileFormatError, match="the network has no such array"):
        save_encoder(tmp_path / "other", encoder, {"encoder/conv11.bias": np.zeros(3, np.float32)})
    with pytest.raises(FileFormatError, match=r"the network has shape \(64,\)"):
        save_encoder(tmp_path / "other", encoder, {"encoder/conv1.bias": np.zeros(3, np.float32)})
    tensors, header = read_tensors(path, "encoder")
    write_tensors(tmp_path / "changed", "encoder", tensors, {**header, "fingerprint": "0" * 64})
    with pytest.raises(MergeError, match="weights or preprocessing differ"):
        load_encoder(f"tuned:{tmp_path / 'changed'}")
    write_tensors(tmp_path / "nameless", "encoder", tensors, {"options": {}})
    with pytest.raises(FileFormatError, match="does not say which encoder was tuned"):
        load_encoder(f"tuned:{tmp_path / 'nameless'}")
    write_tensors(tmp_path / "kind", "classifier", tensors, header)
    with pytest.raises(FileFormatError, match="holds 'classifier'"):
        load_encoder(f"tuned:{tmp_path / 'kind'}")


def test_simulations_and_predictions_use_a_tuned_encoder(
    encoder: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, images, out = tmp_path / "encoder.safetensors", tmp_path / "images", tmp_path / "run"
    save_encoder(path, encoder, {"encoder/conv1.bias": encoder.model.body.conv1.bias.numpy() + 1})
    _pictures(images)
    monkeypatch.setenv("FEDMOMENTS_CACHE", str(tmp_path / "cache"))
    given = ("--encoder", f"tuned:{path}", "--clients", "2", "--split", "iid", "--heads", "fedncm", "--seeds", "1")
    found = _run("simulate", f"folder:{images}", *given, "--out", str(out), "--json")
    told = json.loads(found.stdout)["data"]["encoder"]
    assert told["name"] == f"tuned:{path}"
    assert told["fingerprint"] == load_encoder(f"tuned:{path}").fingerprint
    (head,) = (out / "heads").iterdir()
    pictures = [next((images / name).iterdir()) for name in ("bright", "dark")]
    predicted = json.loads(_run("predict", str(head), *map(str, pictures), "--json").stdout)["predictions"]
    assert [each["class"] for each in predicted] == ["bright", "dark"]


def _run(*words: str) -> Any:
    from click.testing import CliRunner

    from fedmoments.cli.app import app

    found = CliRunner().invoke(app, list(words))
    assert found.exit_code == 0, found.output
    return found


def _pictures(folder: Path) -> None:
    """Write bright and dark images, a folder a class."""
    from PIL import Image

    rng = np.random.default_rng(0)
    for name, low in (("dark", 0), ("bright", 150)):
        (folder / name).mkdir(parents=True)
        for number in range(10):
            pixels = rng.integers(low, low + 100, (SIZE, SIZE, 3)).astype(np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{number}.png")


def test_costs_are_those_of_the_architectures() -> None:
    # A 3 × 3 convolution of 224 pixels with stride 2 and 64 outputs, without padding, by hand, is the first of many.
    squeeze = load_encoder("squeezenet-1.1", threads=1)
    first = 64 * 111 * 111 * 27
    assert first < forward_flops(squeeze) < 400e6
    mobile = load_encoder("mobilenet-v2", threads=1)
    assert 299e6 < forward_flops(mobile) < 334e6
    assert parameter_count(mobile) == 2_223_872  # torchvision's 3,504,872 less 1,281,000 of the classifier
    assert forward_flops(load_encoder("mobilenet-v2", size=96, threads=1)) < 0.2 * forward_flops(mobile)
    with pytest.raises(InputError, match="cannot be tuned"):
        forward_flops(load_encoder("identity", dim=3))


def test_flops_of_a_small_network_are_counted_by_hand(tmp_path: Path) -> None:
    (tmp_path / "nets.py").write_text(
        "from torch import nn\n"
        "def net():\n"
        "    return nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 8, 1, groups=2), nn.Flatten(),\n"
        "                         nn.Linear(8 * 32 * 32, 5))\n"
    )
    encoder = load_encoder(f"torch:{tmp_path / 'nets.py'}:net", size=32, threads=1)
    pixels = 32 * 32
    assert forward_flops(encoder) == pixels * 4 * 27 + pixels * 8 * 2 + 8 * pixels * 5
    assert parameter_count(encoder) == 4 * 27 + 4 + 8 * 2 + 8 + 8 * pixels * 5 + 5


def test_a_network_of_a_function_is_tuned_and_loads_again(tmp_path: Path) -> None:
    (tmp_path / "nets.py").write_text(
        "import torch\nfrom torch import nn\n"
        "def net():\n"
        "    torch.manual_seed(0)\n"
        "    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.5), nn.ReLU())\n"
    )
    encoder = load_encoder(f"torch:{tmp_path / 'nets.py'}:net", size=32, threads=1)
    X = np.random.default_rng(0).integers(0, 256, (5, 3, 32, 32)).astype(np.uint8)
    start = random_start(4, np.array([True, True]), seed=0)
    plan = TuningPlan(stage="ft", lr=0.1, batchnorm="averaged", batch_size=2)
    engine = NetworkEngine(plan, start, encoder, {"a": (X, [0, 1, 0, 1, 0])})
    first, second = (engine.train(1, engine.initial(), None, ["a"])[0].arrays for _ in range(2))
    assert all(np.array_equal(first[name], second[name]) for name in first)  # dropout is off
    save_encoder(tmp_path / "tuned", encoder, dict(first))
    loaded = load_encoder(f"tuned:{tmp_path / 'tuned'}", trusted=[encoder.name], threads=1)
    assert np.array_equal(loaded.encode(list(X)), engine.features(dict(first), X))


def test_samples_are_prepared_once_and_a_bad_one_is_named(encoder: Any) -> None:
    raw = [np.full((8, 8), value, np.uint8) for value in range(5)]
    found = prepare_all(encoder, raw)
    assert isinstance(found, np.ndarray)
    assert found.shape == (5, 3, SIZE, SIZE)
    assert all(np.array_equal(found[i], encoder.prepare(raw[i])) for i in range(5))
    with pytest.raises(InputError, match="sample 3 cannot be trained on"):
        prepare_all(encoder, [*raw[:3], b"no image"])
