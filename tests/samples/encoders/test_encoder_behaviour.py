"""What an encoder does: the probe is the same everywhere, runtimes agree on it, and other networks do not."""

from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedmoments.core.heads import make_head
from fedmoments.errors import FileFormatError, InputError, MergeError
from fedmoments.federation.drawing_up import draw_up_terms
from fedmoments.federation.flower.holdings import Holdings
from fedmoments.samples.encoders import Encoder, load_encoder
from fedmoments.samples.encoders.pipeline import encode_samples
from fedmoments.samples.encoders.probe import SAMPLES, TOLERANCE, Behaviour, probe_pixels, probe_samples
from fedmoments.samples.samples import Samples
from fedmoments.settings.client import ClientSettings
from fedmoments.settings.samples import Encoding

NETWORK = """
import torch
from torch import nn

def network():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2), ACTIVATION, nn.Conv2d(16, 32, 3, stride=2), ACTIVATION, POOL, nn.Flatten()
    )
"""
RELU = {"ACTIVATION": "nn.ReLU()", "POOL": "nn.AdaptiveAvgPool2d(1)"}
OTHERS: dict[str, dict[str, str]] = {
    "hardtanh": {"ACTIVATION": "nn.Hardtanh()"},
    "leaky": {"ACTIVATION": "nn.LeakyReLU(0.01)"},
    "none": {"ACTIVATION": "nn.Identity()"},
    "pooling": {"POOL": "nn.AdaptiveMaxPool2d(1)"},
    "gain": {"ACTIVATION": "nn.Threshold(0.05, 0.0)"},
}
FINITE = arrays(np.float64, (SAMPLES, 100), elements=st.integers(-(10**6), 10**6).map(lambda number: number / 997))


def written(path: Path, **changes: str) -> Path:
    text = NETWORK
    for name, code in {**RELU, **changes}.items():
        text = text.replace(name, code)
    path.write_text(text)
    return path


def load(path: Path, **options: Any) -> Encoder:
    return load_encoder(f"torch:{path}:network", size=48, **{"threads": 1, **options})


def test_the_probe_is_the_same_bits_everywhere() -> None:
    assert sha256(probe_pixels(96).tobytes()).hexdigest()[:16] == "2cf714ac80a9576b"
    assert sha256("\n".join(probe_samples("text", 1)).encode()).hexdigest()[:16] == "9ae906e42d7afcc9"
    assert sha256(np.array(probe_samples("features", 7), "<f8").tobytes()).hexdigest()[:16] == "55b1a81ffb6f7c25"
    fold = Behaviour.of(np.arange(SAMPLES * 9, dtype=np.float64).reshape(SAMPLES, 9))
    assert fold.digest[:16] == "5e37fb72545e9704"
    with pytest.raises(InputError, match="no probe of the modality 'sound'"):
        probe_samples("sound", 1)


@given(FINITE)
def test_a_behaviour_agrees_with_itself_as_text_and_with_itself_rounded(features: Any) -> None:
    behaviour = Behaviour.of(features)
    assert Behaviour.from_text(behaviour.to_text()) == behaviour
    assert behaviour.agrees(behaviour)
    assert behaviour.difference(Behaviour.of(features.astype(np.float32))) < 1e-4 < TOLERANCE


@given(FINITE, st.floats(1.01, 1e3))
def test_the_scale_counts(features: Any, factor: float) -> None:
    one, other = Behaviour.of(features), Behaviour.of(factor * features)
    assert one.agrees(other) == (one.scale == 0.0)
    assert one.difference(other) == other.difference(one)


def test_what_is_not_finite_agrees_only_with_its_like() -> None:
    whole = np.ones((SAMPLES, 70))
    holed = whole.copy()
    holed[1, 3] = np.nan
    broken = Behaviour.of(holed)
    assert broken.agrees(Behaviour.of(holed))
    assert not broken.agrees(Behaviour.of(whole))
    assert Behaviour.of(np.zeros((SAMPLES, 3))).agrees(Behaviour.of(np.zeros((SAMPLES, 3))))
    assert not Behaviour.of(np.zeros((SAMPLES, 3))).agrees(Behaviour.of(np.full((SAMPLES, 3), 1e-9)))


@pytest.mark.parametrize(
    "text", [None, 7, "", "1 nan AAAA", "1 1.0 AAAA", "1 -1e0 AAAA", "2 1e0 AAAA", "1 1e0 A" * 999]
)
def test_a_text_that_is_no_behaviour_is_refused(text: object) -> None:
    with pytest.raises(FileFormatError, match="an encoder's behaviour must be a text of version 1"):
        Behaviour.from_text(text)


def test_features_that_are_given_have_a_behaviour_too() -> None:
    assert load_encoder("identity", dim=5).behaviour.agrees(load_encoder("identity", dim=5).behaviour)


@pytest.mark.parametrize("name", ["squeezenet-1.1", "minilm"])
def test_runtimes_threads_and_batches_agree(name: str) -> None:
    options: dict[str, Any] = {"size": 96} if name == "squeezenet-1.1" else {}
    first = load_encoder(name, threads=1, **options)
    for how in ({"threads": 2}, {"batch_size": 1}, {"batch_size": 3, "threads": 2}, {"runtime": "onnx", "threads": 1}):
        other = load_encoder(name, **options, **how)
        assert first.behaviour.difference(other.behaviour) <= TOLERANCE / 20, how


@pytest.mark.parametrize("other", OTHERS)
def test_equal_weights_in_another_network_are_far_outside(tmp_path: Path, other: str) -> None:
    one, changed = load(written(tmp_path / "a.py")), load(written(tmp_path / "b.py", **OTHERS[other]))
    assert one.fingerprint == changed.fingerprint
    assert one.behaviour.difference(changed.behaviour) > 3 * TOLERANCE
    assert one.behaviour.agrees(load(tmp_path / "a.py", runtime="onnx", cache=tmp_path).behaviour)


def photographs(n: int) -> Samples:
    rng = np.random.default_rng(3)
    items = list(rng.integers(0, 256, (n, 48, 48, 3)).astype(np.uint8))
    return Samples(items, np.arange(n) % 2, ("cat", "dog"), "image")


def test_features_of_a_network_whose_code_changed_are_computed_anew(tmp_path: Path) -> None:
    path, samples, cache = tmp_path / "net.py", photographs(6), tmp_path / "cache"
    before = encode_samples(load(written(path)), samples, cache_dir=cache)
    assert before.computed == 6
    changed = load(written(path, **OTHERS["hardtanh"]))
    after = encode_samples(changed, samples, cache_dir=cache)
    assert after.computed == 6
    np.testing.assert_array_equal(after.features, changed.encode([changed.prepare(item) for item in samples.items]))
    assert np.abs(after.features - before.features).max() > 0.01
    again = load(written(path))
    for encoder in (again, load(path, runtime="onnx", cache=tmp_path)):  # both runtimes share what was computed
        found = encode_samples(encoder, samples, cache_dir=cache)
        assert found.computed == 0
        np.testing.assert_array_equal(found.features, before.features)


def test_an_export_of_a_network_whose_code_changed_is_made_anew(tmp_path: Path) -> None:
    path, batch = tmp_path / "net.py", list(probe_pixels(48))
    before = load(written(path), runtime="onnx", cache=tmp_path).encode(batch)
    changed = written(path, **OTHERS["hardtanh"])
    after = load(changed, runtime="onnx", cache=tmp_path).encode(batch)
    np.testing.assert_allclose(after, load(changed).encode(batch), atol=1e-5)
    assert np.abs(after - before).max() > 0.01


def test_two_parties_with_different_networks_are_not_merged(tmp_path: Path) -> None:
    from PIL import Image

    for name, shade in (("cat", 10), ("dog", 200)):
        for part in ("train", "test"):
            (tmp_path / "photos" / part / name).mkdir(parents=True)
            for number in range(2):
                grey = Image.fromarray(np.full((48, 48, 3), shade + number, np.uint8))
                grey.save(tmp_path / "photos" / part / name / f"{number}.png")
    path = written(tmp_path / "net.py")
    encoder = load(path)
    terms = draw_up_terms("pets", Encoding(encoder.name, size=48), encoder, ("cat", "dog"), ["fedncm"])
    data = f"folder:{tmp_path / 'photos'}"
    assert terms.encoder_note.items() < encoder.note({"size": 48}).items()
    mine: dict[str, Any] = {"data": data, "key_seed": "1", "trust": (encoder.name,)}
    Holdings(ClientSettings(name="a", **mine), terms)
    other = draw_up_terms("pets", Encoding(encoder.name, size=48), load(path, runtime="onnx", cache=tmp_path),
                          ("cat", "dog"), ["fedncm"])  # fmt: skip
    Holdings(ClientSettings(name="a", **mine), other)  # the server runs on ONNX, this client on torch
    written(path, **OTHERS["hardtanh"])
    with pytest.raises(MergeError) as caught:
        Holdings(ClientSettings(name="b", **mine), terms)
    message = str(caught.value)
    assert "the moments of this client must not be merged with those of the federation's terms" in message
    assert "in behaviour\n  behaviour: the networks behave differently: on the same probe their features" in message
    assert "use the same code of the network" in message
    with pytest.raises(MergeError, match=r"fitted behind the encoder .* behaves differently"):
        load(path).require_same(encoder.note({}), "this classifier was fitted behind")


def test_a_classifier_is_not_used_behind_another_network(tmp_path: Path) -> None:
    from fedmoments.handover.model import encoder_of

    encoder = load(written(tmp_path / "net.py"))
    features = np.random.default_rng(0).normal(size=(8, encoder.dim))
    from fedmoments import Statistics

    stats = Statistics.of(features, np.arange(8) % 2, make_head("fedncm").needs, n_classes=2)
    classifier = make_head("fedncm").fit(stats).noting(encoder=encoder.note({"size": 48}))
    assert encoder_of(classifier, trusted=[encoder.name], threads=1).dim == encoder.dim
    written(tmp_path / "net.py", **OTHERS["leaky"])
    with pytest.raises(MergeError, match="behaves differently"):
        encoder_of(classifier, trusted=[encoder.name], threads=1)
