"""The three ImageNet encoders: they know photographs, run alike on torch and ONNX, and have lasting fingerprints."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from skimage import data as untyped_data
from sklearn.datasets import load_digits

from fedmoments.errors import InputError
from fedmoments.samples.encoders import Encoder, load_encoder
from fedmoments.samples.encoders.onnx_runtime import OnnxImageEncoder
from fedmoments.samples.encoders.torch_runtime import TorchImageEncoder
from fedmoments.samples.sources.registry import load_data

data: Any = untyped_data
NAMES = ("efficientnet-lite0", "mobilenet-v2", "squeezenet-1.1")
DIMENSIONS = {"efficientnet-lite0": 1280, "mobilenet-v2": 1280, "squeezenet-1.1": 512}
ESPRESSO, TRIPOD = 967, 872
TABBY, TIGER_CAT, EGYPTIAN_CAT = 281, 282, 285

# A fingerprint decides who may merge with whom: a change here shuts out everybody with features of an older release.
FINGERPRINTS = {
    ("efficientnet-lite0", 224): "93f158276fa3d4bd7abb25a4c619198b1505909fd2e766d1d451f5915b5010c4",
    ("efficientnet-lite0", 96): "8cb6f571978a939f1087527e335b852d7a4cb16187c053b27e675951284696b3",
    ("mobilenet-v2", 224): "18945de6b9c092b3b1fd58abfbc63c0964acfa5fceb80a4bb22ad9d444420e2c",
    ("mobilenet-v2", 96): "895f7b34600821e99f9eaf0b187d1f75b5288afaca4ed516a35dedf1d421e56c",
    ("squeezenet-1.1", 224): "ff984a5791441c4896512734995a581a4c0a0e6227452f6128d6c13de50b6e40",
    ("squeezenet-1.1", 96): "4be232caee6f3b1312dc0a2db58f83433afc43c9889eebd66b7bb9cdd45d87f1",
}


@cache
def on_torch(name: str, size: int = 224) -> TorchImageEncoder:
    encoder = load_encoder(name, size=size, threads=1)
    assert isinstance(encoder, TorchImageEncoder)
    return encoder


@pytest.fixture(scope="module")
def exports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("exports")


def photographs(encoder: Encoder) -> list[Any]:
    return [encoder.prepare(image) for image in (data.coffee(), data.camera(), data.chelsea())]


@pytest.mark.parametrize("name", NAMES)
def test_an_imagenet_encoder_recognises_espresso_tripod_and_cat(name: str) -> None:
    encoder = on_torch(name)
    scores = encoder.classify(photographs(encoder))
    assert scores.shape == (3, 1000)
    coffee, camera, chelsea = scores.argmax(1)
    assert coffee == ESPRESSO
    assert camera == TRIPOD
    assert chelsea == (TIGER_CAT if name == "efficientnet-lite0" else EGYPTIAN_CAT)
    assert {TABBY, TIGER_CAT, EGYPTIAN_CAT} == set(np.argsort(-scores[2])[:3])


@pytest.mark.parametrize("name", NAMES)
def test_an_encoder_gives_features_of_its_dimension_the_same_each_time(name: str) -> None:
    encoder = on_torch(name)
    batch = photographs(encoder)
    features = encoder.encode(batch)
    assert features.shape == (3, DIMENSIONS[name]) == (3, encoder.dim)
    assert features.dtype == np.float32
    np.testing.assert_array_equal(encoder.encode(batch), features)
    assert np.linalg.norm(features[0] - features[1]) > 1
    assert encoder.encode([]).shape == (0, encoder.dim)


@pytest.mark.parametrize(("name", "size"), [*((name, 224) for name in NAMES), (NAMES[0], 96)])
def test_onnx_gives_the_features_of_torch(name: str, size: int, exports: Path) -> None:
    torch_encoder = on_torch(name, size)
    onnx_encoder = load_encoder(name, size=size, runtime="onnx", threads=1, cache=exports)
    assert isinstance(onnx_encoder, OnnxImageEncoder)
    assert onnx_encoder.fingerprint == torch_encoder.fingerprint
    assert onnx_encoder.weights_hash == torch_encoder.weights_hash
    batch = photographs(torch_encoder)
    np.testing.assert_allclose(onnx_encoder.encode(batch), torch_encoder.encode(batch), atol=1e-3, rtol=0)
    assert onnx_encoder.encode([]).shape == (0, onnx_encoder.dim)


@pytest.mark.parametrize(("name", "size"), FINGERPRINTS)
def test_fingerprints_are_frozen(name: str, size: int) -> None:
    assert on_torch(name, size).fingerprint == FINGERPRINTS[name, size]


def test_digits_are_encoded_at_96_pixels() -> None:
    encoder = on_torch("efficientnet-lite0", 96)
    digits, labels = load_digits(return_X_y=True)
    images = (digits[:60].reshape(-1, 8, 8) * (255 / 16)).astype(np.uint8)
    features = encoder.encode([encoder.prepare(image) for image in images])
    assert features.shape == (60, 1280)
    nearest = _nearest_means(features[:40], labels[:40], features[40:])
    assert (nearest == labels[40:60]).mean() > 0.6


def _nearest_means(known: NDArray[Any], labels: NDArray[Any], unknown: NDArray[Any]) -> NDArray[Any]:
    means = np.stack([known[labels == c].mean(0) for c in range(10)])
    nearest: NDArray[Any] = np.argmin(((unknown[:, None] - means) ** 2).sum(2), 1)
    return nearest


def test_the_size_of_batches_does_not_matter() -> None:
    whole = on_torch("squeezenet-1.1", 96)
    parts = load_encoder("squeezenet-1.1", size=96, threads=1, batch_size=2)
    batch = photographs(whole)
    assert parts.batch_size == 2
    np.testing.assert_allclose(parts.encode(batch), whole.encode(batch), atol=1e-4)
    array: Any = np.stack(batch)
    np.testing.assert_array_equal(whole.encode(array), whole.encode(batch))


@pytest.mark.parametrize("name", ["efficientnet-lite0", "mobilenet-v2", "squeezenet-1.1"])
@pytest.mark.parametrize("size", [96, 224])
def test_features_depend_on_the_image_alone_not_on_neighbours_order_or_threads(name: str, size: int) -> None:
    images = list(load_data("digits").train.items[:19])
    order = np.random.default_rng(0).permutation(len(images))
    reference: NDArray[np.float32] | None = None
    for threads in (1, 2, 3):
        encoder = load_encoder(name, size=size, threads=threads)
        prepared = [encoder.prepare(image) for image in images]
        whole = encoder.encode(prepared)
        reference = whole if reference is None else reference
        np.testing.assert_array_equal(whole, reference)
        shuffled = encoder.encode([prepared[place] for place in order])
        np.testing.assert_array_equal(shuffled, whole[order])
        apart = [encoder.encode(prepared[start:stop]) for start, stop in ((0, 1), (1, 6), (6, 19))]
        np.testing.assert_array_equal(np.concatenate(apart), whole)


def test_threads_are_put_back() -> None:
    import torch

    before = torch.get_num_threads()
    encoder = load_encoder("squeezenet-1.1", size=96, threads=before + 1)
    encoder.encode(photographs(encoder))
    assert torch.get_num_threads() == before
    assert not torch.is_inference_mode_enabled()


def test_padding_follows_the_size_of_the_images() -> None:
    """TensorFlow's padding is asymmetric and depends on the size: one that computes it as it goes is the referee."""
    import torch
    from efficientnet_lite_pytorch import EfficientNet  # type: ignore[import-untyped]

    encoder = load_encoder("efficientnet-lite0", size=101, threads=1)
    assert isinstance(encoder, TorchImageEncoder)
    referee = EfficientNet.from_name("efficientnet-lite0", image_size=None).eval()
    referee.load_state_dict(encoder.model.body.net.state_dict())
    pixels = encoder.prepare(data.coffee())
    with torch.inference_mode():
        x = (torch.from_numpy(pixels)[None].float() - 127) / 128
        expected = referee.extract_features(x).mean((2, 3)).numpy()
    np.testing.assert_allclose(encoder.encode([pixels]), expected, atol=1e-4)


def test_max_pooling_is_the_maximum_of_the_map(exports: Path) -> None:
    import torch

    encoder = load_encoder("squeezenet-1.1", size=96, pooling="max", threads=1)
    assert isinstance(encoder, TorchImageEncoder)
    batch = photographs(encoder)
    with torch.inference_mode():
        x = encoder.images.normalize(np.stack(batch))
        expected = encoder.model.body(torch.from_numpy(x)).numpy().max((2, 3))
    np.testing.assert_allclose(encoder.encode(batch), expected, rtol=1e-4, atol=1e-4)
    onnx = load_encoder("squeezenet-1.1", size=96, pooling="max", runtime="onnx", threads=1, cache=exports)
    np.testing.assert_allclose(onnx.encode(batch), expected, rtol=1e-4, atol=1e-3)


def test_the_fingerprint_follows_size_crop_and_pooling_but_not_how_it_runs() -> None:
    base = on_torch("squeezenet-1.1", 96)
    settings: list[dict[str, Any]] = [{"size": 128}, {"crop": 1.0}, {"pooling": "max"}]
    others = [load_encoder("squeezenet-1.1", **{"size": 96, **setting}).fingerprint for setting in settings]
    assert len({base.fingerprint, *others}) == 4
    assert load_encoder("squeezenet-1.1", size=96, threads=2, batch_size=5).fingerprint == base.fingerprint


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"pooling": "cls"}, "mean or max"),
        ({"dim": 3}, "takes no dim"),
        ({"size": 16}, "32 to 4096"),
        ({"threads": 0}, "threads"),
        ({"batch_size": -1}, "batch_size"),
        ({"runtime": "tensorflow"}, "runtime"),
        ({"device": "abacus"}, "cannot use the device 'abacus'"),
        ({"device": "meta"}, "cannot use the device 'meta'"),
        ({"device": "tpu", "runtime": "onnx"}, "cannot use the device 'tpu'"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], reason: str, exports: Path) -> None:
    with pytest.raises(InputError, match=reason):
        load_encoder("squeezenet-1.1", **{"size": 96, "cache": exports, **settings})


def test_the_larger_lite_recognises_the_photographs_too() -> None:
    encoder = on_torch("efficientnet-lite2", 260)
    coffee, camera, chelsea = encoder.classify(photographs(encoder)).argmax(1)
    assert (coffee, camera) == (ESPRESSO, TRIPOD)
    assert chelsea in (TABBY, TIGER_CAT, EGYPTIAN_CAT)
    assert encoder.dim == 1280
