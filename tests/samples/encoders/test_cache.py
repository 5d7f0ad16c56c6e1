"""The feature cache: computed once, found again, sound or rebuilt."""

import os
import time
from collections.abc import Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedmoments.errors import InputError
from fedmoments.samples.encoders import pipeline
from fedmoments.samples.encoders.encoder import Encoder
from fedmoments.samples.encoders.folders import cache_root
from fedmoments.samples.encoders.pipeline import EncodedSamples, encode_samples
from fedmoments.samples.samples import Samples


class Lengths(Encoder):
    """Features of a text: its length, its first character, and a constant. Texts with 'bad' cannot be read."""

    name = "lengths"
    modality = "text"
    batch_size = 4
    dim = 3
    preprocessing = MappingProxyType({"version": 1})

    def __init__(self, *, weights: str = "w", delay: float = 0.0, constant: float = 7) -> None:
        self.weights, self.delay, self.encoded, self.constant = weights, delay, list[str](), constant

    @property
    def weights_hash(self) -> str:
        return self.weights

    def probed(self) -> NDArray[np.float32]:
        return np.array([[len(self.weights), 1, self.constant]] * 4, np.float32)  # and nothing is counted

    def prepare(self, sample: Any) -> Any:
        text = sample.read_text() if isinstance(sample, Path) else sample
        if "bad" in text:
            raise InputError("it is damaged")
        return text

    def encode(self, batch: Sequence[Any]) -> NDArray[np.float32]:
        time.sleep(self.delay)
        self.encoded.extend(batch)
        return np.array([[len(text), ord(text[0]), self.constant] for text in batch], dtype=np.float32)


def texts(n: int, *, first: int = 0, bad: Sequence[int] = ()) -> Samples:
    items = [f"bad {i}" if i in bad else chr(65 + i % 26) * (i + 1) for i in range(first, first + n)]
    return Samples(items, np.arange(n) % 2, ("even", "odd"), "text")


def expected(samples: Samples) -> NDArray[np.float32]:
    return np.array([[len(t), ord(t[0]), 7] for t in samples.items if "bad" not in t], dtype=np.float32)


def entry(folder: Path) -> Path:
    (found,) = [path.parent for path in folder.glob("features/*/*/*/rows")]
    return found


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "_STORE_SAMPLES", 8)


def run(folder: Path, samples: Samples, **options: Any) -> tuple[EncodedSamples, int]:
    encoder = Lengths(weights=options.pop("weights", "w"))
    found = encode_samples(encoder, samples, cache_dir=folder, **options)
    assert found.computed == len(encoder.encoded)
    return found, len(encoder.encoded)


def test_what_is_found_is_what_was_computed_and_nothing_is_computed_again(tmp_path: Path) -> None:
    samples = texts(30, bad=[3, 4, 29])
    first, computed = run(tmp_path, samples)
    second, again = run(tmp_path, samples)
    assert (computed, again) == (27, 0)
    np.testing.assert_array_equal(first.features, expected(samples))
    np.testing.assert_array_equal(second.features, first.features)
    np.testing.assert_array_equal(second.kept, first.kept)
    assert second.problems == first.problems
    assert [problem.where for problem in first.problems] == ["sample 3", "sample 4", "sample 29"]


def test_features_are_mapped_and_read_only(tmp_path: Path) -> None:
    found, _ = run(tmp_path, texts(10))
    assert isinstance(found.features.base, np.memmap)
    assert type(found.features) is np.ndarray
    assert found.features.dtype == np.float32
    with pytest.raises(ValueError, match="read-only"):
        found.features[0, 0] = 1


def test_another_encoder_or_other_data_are_computed(tmp_path: Path) -> None:
    run(tmp_path, texts(10))
    assert run(tmp_path, texts(10), weights="others")[1] == 10
    changed = texts(10)
    changed.items[5] = "something else"  # type: ignore[index]
    found, computed = run(tmp_path, changed)
    assert computed == 1  # the other nine are known
    np.testing.assert_array_equal(found.features, expected(changed))


def test_samples_known_from_other_entries_are_copied(tmp_path: Path) -> None:
    """The data grew, were reordered or split by another seed: only what is new is computed."""
    run(tmp_path, texts(20, bad=[2]))
    grown = texts(33, bad=[2])
    found, computed = run(tmp_path, grown)
    assert computed == 13
    np.testing.assert_array_equal(found.features, expected(grown))
    shuffled = grown.take(np.random.default_rng(0).permutation(33))
    found, computed = run(tmp_path, shuffled)
    assert computed == 0
    np.testing.assert_array_equal(found.features, expected(shuffled))
    assert [problem.why for problem in found.problems] == ["it is damaged"]


def test_the_order_of_samples_is_the_order_of_rows(tmp_path: Path) -> None:
    forward = texts(12)
    backward = forward.take(np.arange(12)[::-1])
    run(tmp_path, forward)
    found, _ = run(tmp_path, backward)
    np.testing.assert_array_equal(found.features, expected(backward))
    np.testing.assert_array_equal(found.labels, backward.labels)


@pytest.mark.parametrize("size", [0, 1, 12, 100, 200, -1])
def test_truncated_rows_are_computed_again(tmp_path: Path, size: int) -> None:
    samples = texts(30)
    run(tmp_path, samples)
    rows = entry(tmp_path) / "rows"
    os.truncate(rows, size if size >= 0 else rows.stat().st_size - 1)
    found, computed = run(tmp_path, samples)
    assert 0 < computed <= 30
    assert size != -1 or computed == 6  # only the last block, samples 24 to 29
    np.testing.assert_array_equal(found.features, expected(samples))
    assert run(tmp_path, samples)[1] == 0


@pytest.mark.parametrize("name", ["rows", "journal", "items", "about"])
def test_a_byte_that_changed_anywhere_is_noticed(tmp_path: Path, name: str) -> None:
    samples = texts(30, bad=[7])
    run(tmp_path, samples)
    rng = np.random.default_rng(0)
    for _ in range(25):
        path = entry(tmp_path) / name
        data = bytearray(path.read_bytes())
        data[rng.integers(len(data))] ^= int(rng.integers(1, 256))
        path.write_bytes(data)
        found, _ = run(tmp_path, samples)
        np.testing.assert_array_equal(found.features, expected(samples))
        assert [problem.where for problem in found.problems] == ["sample 7"]


@pytest.mark.parametrize("name", ["rows", "journal", "items", "about"])
def test_a_missing_file_is_made_again(tmp_path: Path, name: str) -> None:
    samples = texts(30)
    run(tmp_path, samples)
    (entry(tmp_path) / name).unlink()
    found, _ = run(tmp_path, samples)
    np.testing.assert_array_equal(found.features, expected(samples))
    assert run(tmp_path, samples)[1] == 0


def test_rows_beyond_the_end_are_cut_off(tmp_path: Path) -> None:
    samples = texts(9)
    run(tmp_path, samples)
    with (entry(tmp_path) / "rows").open("ab") as file:
        file.write(b"garbage")
    assert run(tmp_path, samples)[1] == 0
    assert (entry(tmp_path) / "rows").stat().st_size == 9 * 3 * 4


def test_a_run_that_fails_keeps_what_it_settled(tmp_path: Path) -> None:
    class Failing(Lengths):
        def encode(self, batch: Sequence[Any]) -> NDArray[np.float32]:
            if len(self.encoded) >= 20:
                raise KeyboardInterrupt
            return super().encode(batch)

    samples = texts(40)
    with pytest.raises(KeyboardInterrupt):
        encode_samples(Failing(), samples, cache_dir=tmp_path)
    found, computed = run(tmp_path, samples)
    assert computed == 20
    np.testing.assert_array_equal(found.features, expected(samples))


def test_the_second_run_encodes_nothing(tmp_path: Path) -> None:
    """How much faster that is, benchmarks/test_bench_cache.py measures."""
    paths = []
    for i in range(1000):
        paths.append(tmp_path / f"{i}.txt")
        paths[-1].write_text(f"{i} " * 2000)
        os.utime(paths[-1], ns=(10**18, 10**18 + i))
    samples = Samples(paths, np.zeros(1000, np.int64), ("a",), "text")
    slow, again = Lengths(), Lengths()
    first = encode_samples(slow, samples, cache_dir=tmp_path / "cache")
    second = encode_samples(again, samples, cache_dir=tmp_path / "cache")
    np.testing.assert_array_equal(first.features, second.features)
    assert not again.encoded


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.delenv("FEDMOMENTS_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_root() == tmp_path / "xdg" / "fedmoments"
    monkeypatch.setenv("FEDMOMENTS_CACHE", str(tmp_path / "mine"))
    assert cache_root() == tmp_path / "mine"
    encode_samples(Lengths(), texts(3))
    assert list((tmp_path / "mine" / "features").iterdir())
    monkeypatch.delenv("FEDMOMENTS_CACHE")
    monkeypatch.setattr("sys.platform", "darwin")
    assert cache_root().parts[-3:] == ("Library", "Caches", "fedmoments")
    monkeypatch.setattr("sys.platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path))
    assert cache_root() == tmp_path / "fedmoments"


def test_a_cache_that_cannot_be_written_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="set FEDMOMENTS_CACHE to another folder"):
        encode_samples(Lengths(), texts(3), cache_dir=tmp_path / "file")
