"""Corrupted samples: through encoders and the cache, lazily, and within bounds."""

import io
import itertools
from collections.abc import Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.samples.encoders.pictures import picture

from fedmoments.errors import InputError, UnknownNameError
from fedmoments.samples import Samples, load_data, sample_digests
from fedmoments.samples.corruptions import corrupt, corrupt_samples, corruption_names
from fedmoments.samples.corruptions import samples as corrupted_samples
from fedmoments.samples.encoders.encoder import Encoder
from fedmoments.samples.encoders.images import ImagePreprocessing
from fedmoments.samples.encoders.pipeline import encode_samples
from fedmoments.samples.encoders.registry import load_encoder

pillow = pytest.importorskip("PIL.Image")
NAMES = corruption_names()


class Pixels(Encoder):
    """The features of an image are its 32 × 32 pixels; it is read as real encoders read it."""

    name = "pixels"
    modality = "image"
    batch_size = 3
    dim = 3 * 32 * 32
    preprocessing = MappingProxyType({"size": 32})
    weights_hash = "w"
    images = ImagePreprocessing(size=32, crop=1.0)

    def prepare(self, sample: Any) -> Any:
        return self.images.prepare(sample)

    def encode(self, batch: Sequence[Any]) -> NDArray[np.float32]:
        return np.stack(batch).reshape(len(batch), -1).astype(np.float32)


def png(image: NDArray[np.uint8]) -> bytes:
    file = io.BytesIO()
    pillow.fromarray(image).save(file, "PNG")
    return file.getvalue()


@pytest.fixture
def photographs(tmp_path: Path) -> Samples:
    """Return a file, bytes and arrays, and a file and bytes that cannot be read."""
    image = picture((32, 32, 3))
    (tmp_path / "good.png").write_bytes(png(image))
    (tmp_path / "bad.png").write_bytes(png(image)[:60])
    items = [tmp_path / "good.png", png(image), image, tmp_path / "bad.png", b"no image", tmp_path / "none.png"]
    return Samples(items, np.array([0, 1, 0, 0, 1, 1]), ("a", "b"), "image", sources=[f"s{i}" for i in range(6)])


def test_images_are_corrupted_before_they_are_prepared(photographs: Samples, tmp_path: Path) -> None:
    found = encode_samples(Pixels(), corrupt_samples(photographs, "fog", 4, seed=5), cache_dir=tmp_path / "cache")
    np.testing.assert_array_equal(found.kept, [0, 1, 2])
    np.testing.assert_array_equal(found.labels, [0, 1, 0])
    for index in range(3):
        wanted = corrupt(picture((32, 32, 3)), "fog", 4, seed=5, index=index).transpose(2, 0, 1)
        np.testing.assert_array_equal(found.features[index], wanted.ravel())
    clean = encode_samples(Pixels(), photographs, cache_dir=tmp_path / "cache")
    assert found.problems == clean.problems
    assert [problem.where for problem in found.problems] == ["s3", "s4", "s5"]


def test_nothing_but_unreadable_files_is_said_as_of_clean_files(photographs: Samples, tmp_path: Path) -> None:
    bad = photographs.take(np.array([3, 5]))
    messages = []
    for samples in (bad, corrupt_samples(bad, "fog", 1)):
        with pytest.raises(InputError) as caught:
            encode_samples(Pixels(), samples, cache_dir=tmp_path / "cache")
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


def test_the_cache_keeps_corruptions_severities_and_seeds_apart(tmp_path: Path) -> None:
    clean = load_data("digits").test.take(np.arange(12))
    variants = [
        clean,
        corrupt_samples(clean, "fog", 1),
        corrupt_samples(clean, "fog", 2),
        corrupt_samples(clean, "snow", 1),
        corrupt_samples(clean, "fog", 1, seed=1),
    ]
    digests = np.concatenate([sample_digests(variant) for variant in variants])
    assert len(np.unique(digests, axis=0)) == 60
    first = [encode_samples(Pixels(), variant, cache_dir=tmp_path) for variant in variants]
    again = [encode_samples(Pixels(), variant, cache_dir=tmp_path) for variant in variants]
    assert [found.computed for found in first] == [12] * 5
    assert [found.computed for found in again] == [0] * 5
    for one, two in zip(first, again, strict=True):
        np.testing.assert_array_equal(one.features, two.features)
    for one, two in itertools.combinations(first, 2):
        assert (one.features != two.features).any(axis=1).all()


def test_taking_some_keeps_what_happened_to_each() -> None:
    clean = load_data("digits").test.take(np.arange(9))
    whole = corrupt_samples(clean, "gaussian-noise", 5)
    some = whole.take(np.array([7, 2]))
    np.testing.assert_array_equal(some.items[0], whole.items[7])
    np.testing.assert_array_equal(some.items[1], whole.items[-7])
    np.testing.assert_array_equal(some.labels, clean.labels[[7, 2]])
    assert len(whole.items[2:5]) == 3
    with pytest.raises(IndexError):
        whole.items[9]


def test_images_are_kept_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corrupted_samples, "_KEPT_BYTES", 200)
    items: Any = corrupt_samples(load_data("digits").test.take(np.arange(9)), "snow", 2).items
    first = [items[i] for i in range(9)]
    for i in range(9):
        np.testing.assert_array_equal(items[i], first[i])
    assert sum(items[i] is first[i] for i in range(9)) == 3  # of 64 bytes each


def test_large_images_are_shrunk_and_grey_and_transparent_arrays_are_taken() -> None:
    large = np.zeros((700, 1100, 3), np.uint8)
    items = [png(large), large, np.zeros((9, 9, 1), np.uint8), np.zeros((9, 9, 4), np.uint8)]
    found = corrupt_samples(Samples(items, np.zeros(4, np.int64), ("a",), "image"), "brightness", 1).items
    assert [image.shape for image in found] == [(512, 805, 3), (512, 805, 3), (9, 9), (9, 9, 3)]


def test_only_images_can_be_corrupted() -> None:
    with pytest.raises(InputError, match="only images can be corrupted, but the samples are text"):
        corrupt_samples(Samples(["a"], np.array([0]), ("a",), "text"), "fog", 1)
    images = load_data("digits").test
    with pytest.raises(UnknownNameError, match="unknown corruption 'frosts'"):
        corrupt_samples(images, "frosts", 1)
    with pytest.raises(InputError, match="severity"):
        corrupt_samples(images, "fog", 0)
    with pytest.raises(InputError, match="seed must be"):
        corrupt_samples(images, "fog", 1, seed=-3)


def test_a_real_encoder_sees_worse_and_worse(tmp_path: Path) -> None:
    """Features move away with severity, and nearest means of clean features recognise fewer corrupted digits."""
    pytest.importorskip("torch")
    encoder = load_encoder("squeezenet-1.1", size=64, threads=1)
    data = load_data("digits")
    train = encode_samples(encoder, data.train.take(np.arange(150)), cache_dir=tmp_path)
    means = np.stack([train.features[train.labels == label].mean(0) for label in range(10)])
    test = data.test.take(np.arange(100))
    clean = encode_samples(encoder, test, cache_dir=tmp_path)
    accuracy, moved = [], []
    for samples in (test, *(corrupt_samples(test, "contrast", severity) for severity in (1, 5))):
        found = encode_samples(encoder, samples, cache_dir=tmp_path)
        assert found.computed == (0 if samples is test else 100)
        moved.append(float(np.linalg.norm(found.features - clean.features, axis=1).mean()))
        distances = ((found.features[:, None] - means) ** 2).sum(-1)
        accuracy.append(float((distances.argmin(1) == found.labels).mean()))
    assert moved[0] == 0 < moved[1] < moved[2]
    assert accuracy[2] < accuracy[0] - 0.1
    assert encode_samples(encoder, test, cache_dir=tmp_path).computed == 0
