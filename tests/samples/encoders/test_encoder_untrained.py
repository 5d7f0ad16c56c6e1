"""Encoders without their training: the same bits everywhere, another fingerprint, and all that other encoders can."""

import hashlib
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmoments.core.maps.randomness import uniforms
from fedmoments.errors import InputError, UnknownNameError
from fedmoments.samples.encoders import load_encoder
from fedmoments.samples.encoders.families.tuned import body_of, write_tuned
from fedmoments.samples.encoders.families.untrained import drawn_array, pixel_scale
from fedmoments.samples.encoders.images import ImagePreprocessing

# Frozen: weights that another party draws must be these, with every version.
HASHES = {
    "squeezenet-1.1": "e9b3e7cf91ce90a48175dc681c3e878c5154044784ce5b64fc105ab30864edb1",
    "squeezenet-1.1:1": "d2e89e743025707825586ba28e7f1f28e670b7fe71ec6b634078b77dd75d66f0",
    "efficientnet-lite0": "2b6d2b6a959178421aceead1f9e3b0cd0bd923ef7a09757ff3128ddbe1b1154b",
    "mobilenet-v2": "962ba11bd79f6cdd460a9616339c717a8a3828b68bb13514a1ff102ee973254c",
}


def test_arrays_are_drawn_by_the_rule_and_frozen() -> None:
    array = drawn_array("conv1.weight", (4, 3, 2, 2), 7)
    naive = [(2 * u - 1) * math.sqrt(6 / 12) for u in uniforms(7, "untrained/conv1.weight", 48).tolist()]
    np.testing.assert_array_equal(array.reshape(-1), np.array(naive, np.float32))
    digest = hashlib.sha256(array.astype("<f4").tobytes()).hexdigest()
    assert digest == "a12ad8524573e822be174a3ec9324c57ea08719abeea8f0fd57508891173e9f2"
    assert not np.array_equal(array, drawn_array("conv1.weight", (4, 3, 2, 2), 8))
    assert not np.array_equal(array, drawn_array("conv2.weight", (4, 3, 2, 2), 7))
    large = drawn_array("w", (500, 200), 0)
    assert float(large.var()) == pytest.approx(2 / 200, rel=0.02)


def test_arrays_of_one_axis() -> None:
    for name, value in {"a.bias": 0, "a.running_mean": 0, "a.weight": 1, "a.running_var": 1, "gamma": 1}.items():
        assert drawn_array(name, (3,), 0).tolist() == [value] * 3


def test_the_scale_of_pixels_is_that_of_uniform_ones() -> None:
    images = ImagePreprocessing(mean=(103.939, 116.779, 123.68), scale=(1, 2, 3))
    pixels = (np.arange(100_000) + 0.5) / 100_000 * 255
    naive = np.mean([((pixels - m) / s) ** 2 for m, s in zip(images.mean, images.scale, strict=True)]) ** 0.5
    assert pixel_scale(images) == pytest.approx(naive, rel=1e-6)


@pytest.mark.parametrize("name", HASHES)
def test_weights_are_frozen(name: str) -> None:
    pytest.importorskip("torch")
    encoder = load_encoder(f"untrained:{name}", size=32, threads=1)
    assert encoder.weights_hash == HASHES[name]
    assert encoder.name == f"untrained:{name}"
    trained = load_encoder(name.removesuffix(":1"), size=32, threads=1)
    assert (encoder.dim, encoder.preprocessing) == (trained.dim, trained.preprocessing)
    assert encoder.fingerprint != trained.fingerprint


def test_nothing_is_left_of_the_training_and_features_have_a_sane_scale() -> None:
    torch = pytest.importorskip("torch")
    images: Any = np.random.default_rng(0).integers(0, 256, (4, 3, 64, 64)).astype(np.uint8)
    for name in ("squeezenet-1.1", "efficientnet-lite0", "mobilenet-v2"):
        trained, untrained = (
            load_encoder(name, size=64, threads=1),
            load_encoder(f"untrained:{name}", size=64, threads=1),
        )
        old = body_of(trained).state_dict()
        for key, new in body_of(untrained).state_dict().items():
            assert not torch.equal(new, old[key]) or new.ndim < 2 or not new.numel(), key
        spread = float(untrained.encode(images).std())
        assert 0.2 < spread < 20, name


def test_the_same_on_onnx(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    images: Any = np.random.default_rng(0).integers(0, 256, (2, 3, 32, 32)).astype(np.uint8)
    both = [
        load_encoder("untrained:squeezenet-1.1", size=32, threads=1, runtime=runtime, cache=tmp_path)
        for runtime in ("torch", "onnx")
    ]
    assert both[0].fingerprint == both[1].fingerprint
    one, other = (np.asarray(encoder.encode(images), np.float64) for encoder in both)
    np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_tuned_from_an_untrained_one(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    encoder = load_encoder("untrained:squeezenet-1.1:3", size=32, threads=1)
    write_tuned(tmp_path / "mine", encoder, {"conv1.bias": np.ones(64, np.float32)})
    tuned = load_encoder(f"tuned:{tmp_path / 'mine'}", trusted=[encoder.name], threads=1)
    assert body_of(tuned).conv1.bias.min().item() == 1.0
    assert body_of(tuned).conv1.weight.equal(body_of(encoder).conv1.weight)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("untrained:", "lacks what comes behind the colon"),
        ("untrained:squeezenet", "did you mean 'squeezenet-1.1'"),
        ("untrained:squeezenet-1.1:x", "unknown encoder"),
        ("untrained:identity", "has no weights to draw anew"),
        ("untrained:untrained:squeezenet-1.1", "name the encoder that was trained"),
        ("untrained:tuned:somewhere", "name the encoder that was trained"),
        ("untrained:wordllama", "not a network on torch"),
    ],
)
def test_what_has_no_training_to_lose_is_refused(name: str, words: str) -> None:
    pytest.importorskip("torch")
    with pytest.raises((InputError, UnknownNameError), match=words):
        load_encoder(name)
