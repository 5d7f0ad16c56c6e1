"""From samples to features: read ahead while the model computes, keep what was computed, report what cannot be read.

Threads prepare the next batches (Pillow decodes without Python's global lock) while the calling thread runs the model.
At most `AHEAD` batches are ready or under way, whatever the size of the data.
"""

import os
import time
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from fedmoments.errors import InputError
from fedmoments.samples.digests import FileDigests, sample_digests
from fedmoments.samples.encoders.cache import Known, feature_folder, open_entry
from fedmoments.samples.encoders.encoder import Encoder
from fedmoments.samples.encoders.families.identity import IdentityEncoder
from fedmoments.samples.samples import Problem, Samples
from fedmoments.samples.splits.draws import check_count

__all__ = ["EncodedSamples", "Progress", "encode_samples", "prepared_batches"]

Progress = Callable[[int, int], None]

#: Batches that are prepared before they are needed.
AHEAD = 3
#: Samples that a thread prepares in one go: small, so that all threads work on the batch that is needed next.
_PIECE = 4
#: What is computed is stored after so many samples or seconds, whichever comes first: a kill loses no more.
_STORE_SAMPLES, _STORE_SECONDS = 512, 2.0
_MOST_AT_ONCE = 8192


@dataclass(frozen=True, eq=False)
class EncodedSamples:
    """Features of those samples that could be encoded.

    Parameters
    ----------
    features
        (r, d) float32, read-only; mapped from the cache, where there is one.
    labels
        (r,) int64.
    kept
        (r,) int64: which of the n samples these are, ascending.
    problems
        What is missing: what the source left out, what could not be read, and classes that lost all their samples.
    class_names
        C names.
    domains, clients, groups
        (r,), where the data have them.
    computed
        How many samples were encoded now, rather than found in the cache.
    """

    features: NDArray[np.float32]
    labels: NDArray[np.int64]
    kept: NDArray[np.int64]
    problems: tuple[Problem, ...]
    class_names: tuple[str, ...]
    domains: NDArray[Any] | None = None
    clients: NDArray[Any] | None = None
    computed: int = 0
    groups: NDArray[Any] | None = None

    def __len__(self) -> int:
        return len(self.labels)


def encode_samples(
    encoder: Encoder,
    samples: Samples,
    *,
    cache_dir: str | os.PathLike[str] | Literal[False] | None = None,
    batch_size: int | None = None,
    readers: int = 2,
    progress: Progress | None = None,
    strict: bool = False,
) -> EncodedSamples:
    """Encode samples, or find their features in the cache.

    A run that is interrupted goes on where it stopped when it is started again; two runs at once share the work, in
    that the second waits for the first. Samples that cannot be read are left out, reported, and not tried again until
    they change.

    Parameters
    ----------
    encoder
        What encodes; samples must be of its modality.
    samples
        n samples.
    cache_dir
        Folder of the cache; the user's by default, see ``samples.encoders.folders``. False does without. Features
        that come as features are never cached.
    batch_size
        Samples that are handed to the encoder at once; as many as it works on at the same time by default.
    readers
        Threads that prepare samples; 0 prepares in the calling thread.
    progress
        Called with the number of settled samples and with n, first and after every batch.
    strict
        Whether the first sample that cannot be read is an error.

    Returns
    -------
    EncodedSamples
        Features and labels of the samples that could be read, in order.

    Raises
    ------
    InputError
        When samples and encoder do not fit, no sample can be read, or, if `strict`, one cannot.
    """
    if samples.modality != encoder.modality:
        raise InputError(
            f"the encoder '{encoder.name}' takes {encoder.modality}, but the data are {samples.modality}: choose an "
            f"encoder for {samples.modality}"
        )
    if not len(samples):
        raise InputError("there are no samples to encode")
    size = check_count(encoder.batch_size * encoder.parallel if batch_size is None else batch_size, "batch_size")
    given = encoder.modality == "features"
    job = _Job(encoder, samples, size, 0 if given else check_count(readers, "readers", least=0), progress, strict)
    if isinstance(encoder, IdentityEncoder) and isinstance(samples.items, np.ndarray):
        return job.result(_Given(samples.items, encoder.dim))
    if cache_dir is False or given:
        store = _Memory(len(samples), encoder.dim)
        job.fill(store, Known({}, {}))
        return job.result(store)
    folder = feature_folder(cache_dir)
    digests = sample_digests(samples, FileDigests(folder / "digests.sqlite"))
    is_and_does = encoder.fingerprint, encoder.behaviour
    with open_entry(folder, *is_and_does, digests, encoder.dim, encoder_name=encoder.name) as entry:
        job.check(entry.bad)
        job.fill(entry, Known({}, {}) if entry.complete else entry.known_elsewhere())
        return job.result(entry)


@dataclass(frozen=True, eq=False)
class Prepared:
    """A batch: the places of its samples, what the model takes of each, and why some cannot be prepared."""

    places: list[int]
    inputs: list[Any]
    bad: dict[int, str]


def prepared_batches(
    encoder: Encoder, items: Sequence[Any] | NDArray[Any], places: Sequence[int], batch_size: int, readers: int = 2
) -> Generator[Prepared, None, None]:
    """Prepare samples in batches, ahead of their use and in order.

    Parameters
    ----------
    encoder
        Whose `prepare` is called.
    items
        n samples.
    places
        Which of them, in order.
    batch_size
        Samples a batch; fewer when some cannot be prepared.
    readers
        Threads; 0 prepares in the calling thread when a batch is requested.

    Yields
    ------
    Prepared
        A batch. Errors other than InputError and OSError are raised here; then, and when the iterator is closed, no
        further sample is begun.
    """
    batches = [places[start : start + batch_size] for start in range(0, len(places), batch_size)]
    if not readers:
        yield from (_prepare(encoder, items, batch) for batch in batches)
        return
    pool = ThreadPoolExecutor(readers, thread_name_prefix="reader")
    waiting: deque[list[Future[Prepared]]] = deque()
    try:
        for batch in batches:
            pieces = [batch[start : start + _PIECE] for start in range(0, len(batch), _PIECE)]
            waiting.append([pool.submit(_prepare, encoder, items, piece) for piece in pieces])
            if len(waiting) > AHEAD:
                yield _joined(waiting.popleft())
        while waiting:
            yield _joined(waiting.popleft())
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _prepare(encoder: Encoder, items: Sequence[Any] | NDArray[Any], places: Sequence[int]) -> Prepared:
    good: list[int] = []
    inputs: list[Any] = []
    bad: dict[int, str] = {}
    for place in places:
        try:
            inputs.append(encoder.prepare(items[place]))
            good.append(place)
        except (InputError, OSError) as error:
            bad[place] = str(error)
    return Prepared(good, inputs, bad)


def _joined(pieces: list[Future[Prepared]]) -> Prepared:
    done = [piece.result() for piece in pieces]
    return Prepared(
        [place for piece in done for place in piece.places],
        [value for piece in done for value in piece.inputs],
        {place: why for piece in done for place, why in piece.bad.items()},
    )


class _Held(Protocol):
    """Features that are there, and why others are not."""

    @property
    def bad(self) -> dict[int, str]: ...
    def features(self) -> NDArray[np.float32]: ...


class _Store(_Held, Protocol):
    """Where features go: a cache entry, or memory."""

    @property
    def done(self) -> int: ...
    def append(self, stop: int, rows: NDArray[np.float32], bad: Mapping[int, str]) -> None: ...


class _Memory:
    """A store without a cache."""

    def __init__(self, n: int, dim: int) -> None:
        self.done = self._rows = 0
        self.bad: dict[int, str] = {}
        self._features = np.empty((n, dim), np.float32)

    def append(self, stop: int, rows: NDArray[np.float32], bad: Mapping[int, str]) -> None:
        self._features[self._rows : self._rows + len(rows)] = rows
        self._rows += len(rows)
        self.bad.update(bad)
        self.done = stop

    def features(self) -> NDArray[np.float32]:
        features = self._features[: self._rows]
        features.setflags(write=False)
        return features


class _Given:
    """A feature matrix (n, d) that is there already: rows that are not finite are left out, nothing else is copied."""

    def __init__(self, items: NDArray[Any], dim: int) -> None:
        if items.ndim != 2 or items.shape[1] != dim or items.dtype.kind not in "fiu":
            raise InputError(f"features must be numbers of the shape (n, {dim}), but are {items.dtype} {items.shape}")
        with np.errstate(over="ignore"):
            self._features = np.asarray(items, np.float32).view()
        # A row's sum of finite numbers may overflow, but then the row itself is looked at.
        suspects = np.flatnonzero(~np.isfinite(self._features.sum(axis=1, dtype=np.float64)))
        places = [int(i) for i in suspects if not np.isfinite(self._features[i]).all()]
        self.bad = dict.fromkeys(places, "its features are not all finite")

    def features(self) -> NDArray[np.float32]:
        features = np.delete(self._features, list(self.bad), axis=0) if self.bad else self._features
        features.setflags(write=False)
        return features


@dataclass(eq=False)
class _Job:
    """One call of `encode_samples`."""

    encoder: Encoder
    samples: Samples
    batch_size: int
    readers: int
    progress: Progress | None
    strict: bool
    computed: int = 0

    def check(self, bad: Mapping[int, str]) -> None:
        """In a strict run, stop at a sample that cannot be used."""
        if self.strict and bad:
            place = min(bad)
            raise InputError(
                f"{self.samples.source(place)}: {bad[place]}. This run is strict: mend or remove the sample, or leave "
                "strict out"
            )

    def fill(self, store: _Store, known: Known) -> None:
        """Settle all samples that the store has not settled yet."""
        n = len(self.samples)
        self.check(known.bad)
        self._say(store.done)
        todo = [i for i in range(store.done, n) if i not in known.rows and i not in known.bad]
        tail = _Tail(store, known, self.encoder.dim)
        batches = prepared_batches(self.encoder, self.samples.items, todo, self.batch_size, self.readers)
        try:
            for number, batch in enumerate(batches, 1):
                self.check(batch.bad)
                tail.add(*self._encode(batch))
                following = number * self.batch_size
                tail.settle(todo[following] if following < len(todo) else n)
                self._say(tail.stop)
            tail.settle(n)
        finally:  # when interrupted, too
            batches.close()
            tail.store_now()

    def _encode(self, batch: Prepared) -> tuple[dict[int, NDArray[np.float32]], dict[int, str]]:
        if not batch.inputs:
            return {}, batch.bad
        features = np.asarray(self.encoder.encode(batch.inputs), dtype=np.float32)
        wanted = (len(batch.inputs), self.encoder.dim)
        if features.shape != wanted:
            raise InputError(
                f"the encoder '{self.encoder.name}' must return features of the shape {wanted}, but returned "
                f"{features.shape}"
            )
        self.computed += len(features)
        infinite = {
            place: "its features are not all finite"
            for place, good in zip(batch.places, np.asarray(np.isfinite(features).all(axis=1)), strict=True)
            if not good
        }
        self.check(infinite)
        rows = {place: row for place, row in zip(batch.places, features, strict=True) if place not in infinite}
        return rows, batch.bad | infinite

    def _say(self, done: int) -> None:
        if self.progress is not None:
            self.progress(done, len(self.samples))

    def result(self, store: _Held) -> EncodedSamples:
        """Return what the store holds, with what belongs to it."""
        samples, bad = self.samples, store.bad
        self.check(bad)
        self._say(len(samples))
        kept = np.array([i for i in range(len(samples)) if i not in bad], dtype=np.int64)
        problems = [Problem(samples.source(place), why) for place, why in sorted(bad.items())]
        if not len(kept):
            raise InputError(f"none of the {len(samples)} samples can be encoded; the first is {problems[0]}")
        lost = np.setdiff1d(samples.labels, samples.labels[kept]).tolist()
        problems += [
            Problem(f"class {samples.class_names[label]}", "none of its samples can be read") for label in lost
        ]
        return EncodedSamples(
            store.features(),
            samples.labels[kept],
            kept,
            (*samples.problems, *problems),
            samples.class_names,
            None if samples.domains is None else samples.domains[kept],
            None if samples.clients is None else samples.clients[kept],
            self.computed,
            None if samples.groups is None else samples.groups[kept],
        )


class _Tail:
    """What is settled but not stored yet: rows and reasons of the samples since the store's last block."""

    def __init__(self, store: _Store, known: Known, dim: int) -> None:
        self._store, self._known, self._dim = store, known, dim
        self._rows: dict[int, NDArray[np.float32]] = {}
        self._bad: dict[int, str] = {}
        self._since = time.monotonic()
        self.stop = store.done

    def add(self, rows: Mapping[int, NDArray[np.float32]], bad: Mapping[int, str]) -> None:
        self._rows.update(rows)
        self._bad.update(bad)

    def settle(self, stop: int) -> None:
        """Count the samples up to `stop` as settled; store them when there are many, or it is time."""
        self.stop = stop
        if stop - self._store.done >= _STORE_SAMPLES or time.monotonic() - self._since > _STORE_SECONDS:
            self.store_now()

    def store_now(self) -> None:
        """Store the samples that are settled, in blocks that are not too large for memory."""
        for start in range(self._store.done, self.stop, _MOST_AT_ONCE):
            self._store_block(range(start, min(start + _MOST_AT_ONCE, self.stop)))
        self._rows.clear()
        self._bad.clear()
        self._since = time.monotonic()

    def _store_block(self, places: range) -> None:
        known = self._known
        bad = {i: why for i in places if (why := self._bad.get(i, known.bad.get(i))) is not None}
        rows = [self._rows[i] if i in self._rows else known.rows[i] for i in places if i not in bad]
        self._store.append(places.stop, np.stack(rows) if rows else np.zeros((0, self._dim), np.float32), bad)
