"""Samples to features: ahead, in order, in bounded memory, with every flaw named."""

import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedmoments.errors import InputError
from fedmoments.samples.digests import FileDigests, sample_digests
from fedmoments.samples.encoders import pipeline
from fedmoments.samples.encoders.encoder import Encoder
from fedmoments.samples.encoders.pipeline import encode_samples, prepared_batches
from fedmoments.samples.samples import Modality, Problem, Samples


class Fake(Encoder):
    """The feature of a number is the number; those in `bad` cannot be read, those in `infinite` have none."""

    name = "fake"
    modality: Modality = "text"
    batch_size = 5
    dim = 1
    preprocessing = MappingProxyType({})
    weights_hash = "w"

    def __init__(
        self, *, bad: Sequence[int] = (), infinite: Sequence[int] = (), reading: float = 0, computing: float = 0
    ) -> None:
        self.bad, self.infinite, self.reading, self.computing = set(bad), set(infinite), reading, computing
        self.batches: list[list[int]] = []
        self.prepared = 0
        self.threads: set[str] = set()
        self._lock = threading.Lock()

    def probed(self) -> NDArray[np.float32]:
        return np.ones((4, self.dim), np.float32)  # the probe's sentences are none that it can read

    def prepare(self, sample: Any) -> Any:
        number = int(sample)
        time.sleep(self.reading * (number % 3))
        with self._lock:
            self.prepared += 1
            self.threads.add(threading.current_thread().name)
        if number in self.bad:
            raise InputError("it is damaged")
        return number

    def encode(self, batch: Sequence[Any]) -> NDArray[np.float32]:
        time.sleep(self.computing)
        self.batches.append(list(batch))
        return np.array([[np.inf if n in self.infinite else n] for n in batch], dtype=np.float32)


def numbers(n: int) -> Samples:
    items = [str(i) for i in range(n)]
    sources = [f"file{i}.jpg" for i in range(n)]
    return Samples(items, np.arange(n) // 10, tuple(f"c{i}" for i in range((n + 9) // 10)), "text", sources)


@pytest.mark.parametrize("readers", [0, 1, 2, 5])
@pytest.mark.parametrize("batch_size", [None, 1, 7, 1000])
def test_order_is_preserved_however_many_readers(readers: int, batch_size: int | None) -> None:
    encoder = Fake(reading=0.001)
    found = encode_samples(encoder, numbers(43), cache_dir=False, readers=readers, batch_size=batch_size)
    np.testing.assert_array_equal(found.features[:, 0], np.arange(43))
    size = batch_size or 5
    assert [len(batch) for batch in encoder.batches] == [min(size, 43 - start) for start in range(0, 43, size)]
    assert found.computed == 43


def test_samples_that_cannot_be_read_are_named_counted_and_left_out() -> None:
    samples = numbers(40)
    found = encode_samples(Fake(bad=[3, 17], infinite=[20]), samples, cache_dir=False)
    assert found.problems == (
        Problem("file3.jpg", "it is damaged"),
        Problem("file17.jpg", "it is damaged"),
        Problem("file20.jpg", "its features are not all finite"),
    )
    kept = [i for i in range(40) if i not in {3, 17, 20}]
    np.testing.assert_array_equal(found.kept, kept)
    np.testing.assert_array_equal(found.features[:, 0], kept)
    np.testing.assert_array_equal(found.labels, samples.labels[kept])


def test_a_class_that_lost_all_its_samples_is_a_problem() -> None:
    found = encode_samples(Fake(bad=range(10, 20)), numbers(30), cache_dir=False)
    assert found.problems[-1] == Problem("class c1", "none of its samples can be read")
    assert len(found.problems) == 11
    assert found.class_names == ("c0", "c1", "c2")


def test_the_source_s_problems_are_reported_too() -> None:
    samples = numbers(10)
    earlier = Problem("notes.txt", "no image")
    samples = Samples(samples.items, samples.labels, samples.class_names, "text", problems=(earlier,))
    assert encode_samples(Fake(), samples, cache_dir=False).problems == (earlier,)


def test_a_strict_run_stops_at_the_first_and_names_it(tmp_path: Path) -> None:
    encoder = Fake(bad=[12, 14, 33])
    with pytest.raises(InputError, match=r"^file12\.jpg: it is damaged\. This run is strict"):
        encode_samples(encoder, numbers(100), cache_dir=tmp_path, strict=True)
    assert encoder.batches == [list(range(5)), list(range(5, 10))]
    encode_samples(encoder, numbers(100), cache_dir=tmp_path)
    with pytest.raises(InputError, match=r"^file12\.jpg: it is damaged"):  # from the cache, too
        encode_samples(encoder, numbers(100), cache_dir=tmp_path, strict=True)


def test_what_cannot_be_read_is_remembered_until_it_changes(tmp_path: Path) -> None:
    encoder = Fake(bad=[3])
    encode_samples(encoder, numbers(10), cache_dir=tmp_path)
    before = encoder.prepared
    encode_samples(encoder, numbers(10), cache_dir=tmp_path)
    assert encoder.prepared == before


def test_nothing_at_all_that_can_be_read_is_an_error(tmp_path: Path) -> None:
    for cache in (False, tmp_path, tmp_path):
        with pytest.raises(InputError, match=r"none of the 4 samples can be encoded; the first is file0\.jpg"):
            encode_samples(Fake(bad=range(4)), numbers(4), cache_dir=cache)
    with pytest.raises(InputError, match="no samples"):
        encode_samples(Fake(), numbers(0), cache_dir=False)


def test_samples_must_be_of_the_encoder_s_modality() -> None:
    images = Samples(np.zeros((2, 4, 4), np.uint8), np.zeros(2, np.int64), ("a",), "image")
    with pytest.raises(InputError, match="'fake' takes text, but the data are image"):
        encode_samples(Fake(), images, cache_dir=False)


def test_features_of_the_wrong_shape_are_refused() -> None:
    class Wrong(Fake):
        dim = 2

    with pytest.raises(InputError, match=r"must return features of the shape \(5, 2\), but returned \(5, 1\)"):
        encode_samples(Wrong(), numbers(10), cache_dir=False)


def test_reading_goes_on_while_the_model_computes() -> None:
    """Reading takes 0.1 s in one thread and computing 0.2 s: overlapped, far less than both."""
    encoder = Fake(reading=0.001, computing=0.02)
    samples = numbers(100)
    start = time.perf_counter()
    encode_samples(encoder, samples, cache_dir=False, readers=2, batch_size=10)
    overlapped = time.perf_counter() - start
    start = time.perf_counter()
    encode_samples(encoder, samples, cache_dir=False, readers=0, batch_size=10)
    in_turn = time.perf_counter() - start
    assert overlapped < 0.88 * in_turn
    assert any(name.startswith("reader") for name in encoder.threads)


def test_memory_is_bounded_when_the_model_is_slow() -> None:
    encoder = Fake()
    batches = prepared_batches(encoder, [str(i) for i in range(1000)], range(1000), 10, readers=3)
    next(batches)
    time.sleep(0.1)
    assert encoder.prepared <= 10 * (pipeline.AHEAD + 1)
    batches.close()


def test_errors_in_threads_arrive_and_stop_the_reading() -> None:
    class Broken(Fake):
        def prepare(self, sample: Any) -> Any:
            if int(sample) == 23:
                raise ZeroDivisionError("a bug")
            return super().prepare(sample)

    encoder = Broken(reading=0.001)
    with pytest.raises(ZeroDivisionError, match="a bug"):
        encode_samples(encoder, numbers(1000), cache_dir=False)
    assert encoder.prepared < 100
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("reader")]


def test_an_interrupt_stops_quickly() -> None:
    class Interrupted(Fake):
        def encode(self, batch: Sequence[Any]) -> NDArray[np.float32]:
            if 20 in batch:
                raise KeyboardInterrupt
            return super().encode(batch)

    encoder = Interrupted(reading=0.01)
    start = time.perf_counter()
    with pytest.raises(KeyboardInterrupt):
        encode_samples(encoder, numbers(10_000), cache_dir=False)
    assert time.perf_counter() - start < 2
    assert encoder.prepared < 60


def test_progress_starts_ends_and_never_goes_back(tmp_path: Path) -> None:
    for cache in (False, tmp_path, tmp_path):
        seen: list[tuple[int, int]] = []
        encode_samples(
            Fake(bad=[9]),
            numbers(23),
            cache_dir=cache,
            progress=lambda done, total, seen=seen: seen.append((done, total)),  # type: ignore[misc]
        )
        assert {total for _, total in seen} == {23}
        done = [step for step, _ in seen]
        assert done == sorted(done)
        assert done[-1] == 23
    assert done[0] == 23


def test_domains_and_clients_follow_the_samples() -> None:
    plain = numbers(6)
    samples = Samples(
        plain.items,
        plain.labels,
        plain.class_names,
        "text",
        domains=np.array(list("aabbcc")),
        clients=np.arange(6),
    )
    found = encode_samples(Fake(bad=[1]), samples, cache_dir=False)
    assert found.domains is not None
    assert found.clients is not None
    assert found.domains.tolist() == list("abbcc")
    assert found.clients.tolist() == [0, 2, 3, 4, 5]


def test_features_that_are_given_are_not_cached(tmp_path: Path) -> None:
    class Given(Fake):
        modality: Modality = "features"
        dim = 3

        def prepare(self, sample: Any) -> Any:
            return sample

        def encode(self, batch: Sequence[Any]) -> NDArray[np.float32]:
            return np.asarray(batch, dtype=np.float32)

    X = np.arange(30.0).reshape(10, 3)
    found = encode_samples(Given(), Samples(X, np.zeros(10, np.int64), ("a",), "features"), cache_dir=tmp_path)
    np.testing.assert_array_equal(found.features, X)
    assert not list(tmp_path.iterdir())


def test_a_kept_batch_is_the_same_after_an_interruption(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Features may depend on the batch in the last bit: a run that goes on must compute the same batches."""
    monkeypatch.setattr(pipeline, "_STORE_SAMPLES", 10)

    class Interrupted(Fake):
        def encode(self, batch: Sequence[Any]) -> NDArray[np.float32]:
            if len(self.batches) == 5:
                raise KeyboardInterrupt
            return super().encode(batch)

    first, second, whole = Interrupted(bad=[3]), Fake(bad=[3]), Fake(bad=[3])
    with pytest.raises(KeyboardInterrupt):
        encode_samples(first, numbers(53), cache_dir=tmp_path)
    encode_samples(second, numbers(53), cache_dir=tmp_path)
    encode_samples(whole, numbers(53), cache_dir=False)
    assert first.batches + second.batches == whole.batches


# ----------------------------------------------------------------------------------------------------- digests of files


def old_file(path: Path, text: str, *, when: int = 10**18) -> Path:
    path.write_text(text)
    os.utime(path, ns=(when, when))
    return path


def test_unchanged_files_are_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedmoments.samples.digests._SEEN", {})
    paths = [old_file(tmp_path / f"{i}.txt", str(i)) for i in range(5)]
    first = FileDigests(tmp_path / "d.sqlite")
    digests = first.of(paths)
    assert first.files_read == 5
    monkeypatch.setattr("fedmoments.samples.digests._SEEN", {})  # as in another process
    second = FileDigests(tmp_path / "d.sqlite")
    assert second.of(paths) == digests
    assert second.files_read == 0
    old_file(paths[2], "x", when=10**18 + 1)
    assert second.of(paths)[2] != digests[2]
    assert second.files_read == 1


def test_a_file_that_was_written_just_now_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedmoments.samples.digests._SEEN", {})
    path = tmp_path / "a.txt"
    path.write_text("a")
    digests = FileDigests(tmp_path / "d.sqlite")
    for _ in range(2):
        digests.of([path])
    assert digests.files_read == 2


def test_a_file_that_cannot_be_read_has_a_digest_that_changes_when_it_can(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    before = FileDigests().of([path])
    path.write_text("a")
    assert FileDigests().of([path]) != before


@pytest.mark.parametrize("content", [b"not a database, but long enough to be looked at" * 50, b""])
def test_a_damaged_memory_of_digests_is_replaced(tmp_path: Path, content: bytes) -> None:
    path = old_file(tmp_path / "a.txt", "a")
    (tmp_path / "d.sqlite").write_bytes(content)
    assert FileDigests(tmp_path / "d.sqlite").of([path]) == FileDigests().of([path])
    assert FileDigests(tmp_path / "d.sqlite").of([path]) == FileDigests().of([path])


def test_bytes_in_memory_and_in_a_file_have_the_same_digest(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"image")
    on_disk = Samples([tmp_path / "a.bin"], np.zeros(1, np.int64), ("a",), "image")
    in_memory = Samples([b"image"], np.zeros(1, np.int64), ("a",), "image")
    np.testing.assert_array_equal(sample_digests(on_disk), sample_digests(in_memory))
