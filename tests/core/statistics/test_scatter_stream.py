"""A client's class-centred scatter from a stream: exact while nothing was lost, within its bound beyond."""

import tracemalloc
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedmoments.core.statistics.scatter_stream import CHUNK, ScatterStream, buffer_rows, sketch_rows
from fedmoments.errors import InputError

Array = npt.NDArray[Any]


def samples(n: int, d: int, n_classes: int, *, seed: int = 0, offset: float = 0.0) -> tuple[Array, Array]:
    """Return features (n, d) with a falling spectrum round class means, and labels (n,)."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, n_classes, n)
    turn = np.linalg.qr(rng.normal(size=(d, d)))[0]
    return rng.normal(size=(n, d)) / np.arange(1, d + 1) @ turn + rng.normal(size=(n_classes, d))[y] + offset, y


def naive(X: Array, y: Array) -> Array:
    """Return the scatter by a loop over classes and samples."""
    total = np.zeros((X.shape[1], X.shape[1]))
    for c in np.unique(y):
        mean = X[y == c].mean(axis=0)
        for x in X[y == c]:
            total += np.outer(x - mean, x - mean)
    return total


def narrow(d: int, capacity: int) -> ScatterStream:
    """Return a stream with hardly more rows than it needs: it compresses at few dimensions already."""
    return ScatterStream(d, capacity, buffer=2 * sketch_rows(capacity))


def streamed(stream: ScatterStream, X: Array, y: Array, cuts: Iterable[int] = ()) -> ScatterStream:
    """Return the stream after the samples, cut into batches at ``cuts``."""
    cuts = list(cuts)
    for part, labels in zip(np.split(X, cuts), np.split(y, cuts), strict=True):
        stream.update(part, labels)
    return stream


def scatter(stream: ScatterStream, rank: int) -> Array:
    rows, _ = stream.factor(rank)
    return np.asarray(rows.T @ rows)


def close(ours: Array, theirs: Array, tolerance: float = 1e-10) -> bool:
    """Return whether two scatters differ by little of the larger one's norm."""
    return bool(np.abs(ours - theirs).max() <= tolerance * np.linalg.norm(theirs, 2))


# ---------------------------------------------------------------------------------------------- while nothing was lost

#: (samples, dimensions, classes, capacity): in the first chunk, in the buffer, added up in a (d, d) matrix.
LOSSLESS = [(1, 3, 2, 3), (7, 5, 3, 5), (64, 40, 2, 40), (200, 300, 10, 80), (1000, 20, 4, 20), (1000, 60, 30, 30)]


@pytest.mark.parametrize("size", LOSSLESS)
@pytest.mark.parametrize("offset", [0.0, 1e3])
def test_law_the_scatter_is_exact_while_nothing_was_lost(size: tuple[int, int, int, int], offset: float) -> None:
    n, d, n_classes, capacity = size
    X, y = samples(n, d, n_classes, offset=offset)
    stream = streamed(ScatterStream(d, capacity), X, y, range(7, n, 7))
    expected = naive(X, y)
    assert stream.error == 0.0
    assert close(scatter(stream, d), expected)
    assert stream.factor(0)[1] == pytest.approx(np.trace(expected), rel=1e-11)
    assert stream.n_samples == n
    assert stream.classes.tolist() == np.unique(y).tolist()
    assert stream.counts.tolist() == np.unique(y, return_counts=True)[1].tolist()
    changed = X.copy()
    changed[-1] += 1.0
    assert n == 1 or not close(scatter(stream, d), naive(changed, y))  # the referee can tell


@pytest.mark.parametrize("size", LOSSLESS[1:])
def test_rows_are_singular_vectors_times_singular_values(size: tuple[int, int, int, int]) -> None:
    n, d, n_classes, capacity = size
    X, y = samples(n, d, n_classes)
    rank = min(capacity, 5)
    rows, _ = streamed(ScatterStream(d, capacity), X, y).factor(rank)
    centred = X - np.array([X[y == c].mean(axis=0) for c in y])
    _, values, vectors = np.linalg.svd(centred, full_matrices=False)
    rank = min(rank, n - len(np.unique(y)))
    theirs = vectors[:rank] * values[:rank, None]
    theirs *= np.sign(np.take_along_axis(theirs, np.abs(theirs).argmax(axis=1)[:, None], axis=1))
    np.testing.assert_allclose(rows, theirs, atol=1e-8 * values[0])
    assert (np.diff(np.linalg.norm(rows, axis=1)) <= 0).all()


def test_as_many_rows_as_the_buffer_holds_are_exact_and_one_more_is_not() -> None:
    d, capacity = 400, 3
    n = buffer_rows(capacity) + 1
    X, y = np.random.default_rng(0).normal(size=(n, d)), np.zeros(n, int)
    stream = streamed(ScatterStream(d, capacity), X, y)
    assert stream.error == 0.0
    assert close(scatter(stream, d), naive(X, y))
    more = np.random.default_rng(1).normal(size=(2 * CHUNK, d))
    stream.update(more, np.zeros(len(more), int))
    assert stream.error > 0.0


def test_a_scatter_of_low_rank_is_exact_however_long_the_stream() -> None:
    d, rank = 150, 4
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(3000, rank)) @ rng.normal(size=(rank, d)), rng.integers(0, 3, 3000)
    stream = streamed(narrow(d, rank), X, y)
    assert stream.buffer < d  # it did compress
    assert stream.error == 0.0
    assert close(scatter(stream, 100), naive(X, y))
    assert len(stream.factor(100)[0]) == rank


@pytest.mark.parametrize("d", [4, 200])
def test_nothing_and_single_samples_have_no_scatter(d: int) -> None:
    stream = narrow(d, 3)
    assert (stream.factor(3)[0].shape, stream.factor(3)[1], stream.n_samples, len(stream.classes)) == (
        (0, d),
        0.0,
        0,
        0,
    )
    stream.update(np.zeros((0, d)), [])
    for label in range(2 * CHUNK + 3):
        stream.update(np.full((1, d), float(label)), [label])
    assert (stream.factor(3)[0].shape, stream.factor(3)[1]) == ((0, d), 0.0)
    stream.update(np.full((500, d), 7.0), np.full(500, 7))  # the same sample again
    assert (stream.factor(3)[0].shape, stream.factor(3)[1]) == ((0, d), 0.0)
    assert stream.counts[7] == 501


# ---------------------------------------------------------------------------------------------------- beyond the buffer


@pytest.mark.parametrize("capacity", [0, 3, 20])
@pytest.mark.parametrize("n", [500, 3000])
def test_law_what_is_lost_stays_within_the_bound_of_frequent_directions(capacity: int, n: int) -> None:
    d = 130
    X, y = samples(n, d, 5)
    expected = naive(X, y)
    stream = streamed(narrow(d, capacity), X, y)
    assert stream.error > 0.0
    kept = np.concatenate(
        [*stream._rows, stream._centred().rows]
    )  # all that is held, beyond the rank that is given out
    lost = expected - kept.T @ kept
    values, slack = np.linalg.eigvalsh(lost), 1e-10 * np.linalg.norm(expected, 2)
    assert values[0] >= -slack
    assert values[-1] <= stream.error + slack
    assert stream.error <= np.trace(lost) / (sketch_rows(capacity) / 2) + slack
    tail = np.sort(np.linalg.eigvalsh(expected))[: d - capacity].sum()
    assert stream.error <= tail / (sketch_rows(capacity) / 2 - capacity) + slack
    rows, trace = stream.factor(capacity)
    assert len(rows) == capacity
    assert trace == pytest.approx(np.trace(expected), rel=1e-11)
    best = np.sort(np.linalg.eigvalsh(expected))[::-1][:capacity].sum()
    assert float(np.square(rows).sum()) <= best * (1 + 1e-10)
    assert float(np.square(rows).sum()) >= best - capacity * stream.error - slack


def test_the_leading_rows_are_kept_nearly_whole() -> None:
    X, y = samples(4000, 200, 4)
    expected = naive(X, y)
    rows, _ = streamed(narrow(200, 10), X, y).factor(10)
    best = np.sort(np.linalg.eigvalsh(expected))[::-1][:10].sum()
    assert float(np.square(rows).sum()) >= 0.999 * best


# ----------------------------------------------------------------------------------------------- batches, order, offset


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(0, 600), max_size=8), st.sampled_from([(90, 4), (90, 16), (20, 4)]))
def test_law_any_batching_gives_the_same_bits(cuts: list[int], size: tuple[int, int]) -> None:
    d, capacity = size  # compressed, added up late, added up early
    X, y = samples(600, d, 6)
    whole, cut = (streamed(narrow(d, capacity), X, y, at) for at in ([], sorted(cuts)))
    assert np.array_equal(whole.factor(capacity)[0], cut.factor(capacity)[0])
    assert whole.factor(capacity)[1] == cut.factor(capacity)[1]
    assert whole.error == cut.error


def test_asking_in_between_changes_nothing() -> None:
    X, y = samples(700, 90, 6)
    asked, silent = narrow(90, 4), narrow(90, 4)
    for i in range(0, 700, 10):
        asked.update(X[i : i + 10], y[i : i + 10])
        asked.factor(2)
        _ = asked.classes, asked.counts, asked.n_samples
        silent.update(X[i : i + 10], y[i : i + 10])
    assert np.array_equal(asked.factor(4)[0], silent.factor(4)[0])
    assert asked.factor(4)[1] == silent.factor(4)[1]


@pytest.mark.parametrize("d", [20, 90])
def test_single_samples_are_as_good_as_batches_and_copies_are_kept(d: int) -> None:
    X, y = samples(600, d, 6)
    stream, place = narrow(d, 4), np.empty((1, d))
    for x, label in zip(X, y, strict=True):
        place[0] = x  # the caller's array is used again
        stream.update(place, [int(label)])
    assert np.array_equal(stream.factor(4)[0], streamed(narrow(d, 4), X, y).factor(4)[0])


@pytest.mark.parametrize("order", ["sorted", "reversed", "shuffled", "one class late"])
def test_order_of_samples_matters_only_within_the_bound(order: str) -> None:
    X, y = samples(900, 90, 6)
    places = {
        "sorted": np.argsort(y, kind="stable"),
        "reversed": np.arange(900)[::-1],
        "shuffled": np.random.default_rng(1).permutation(900),
        "one class late": np.argsort(y == 0, kind="stable"),
    }[order]
    for capacity in (4, 40):
        one, other = (streamed(narrow(90, capacity), X[at], y[at]) for at in (np.arange(900), places))
        difference = float(np.linalg.norm(scatter(one, capacity) - scatter(other, capacity), 2))
        if capacity == 40:  # added up: nothing was lost
            assert (one.error, other.error) == (0.0, 0.0)
            assert close(scatter(one, 90), scatter(other, 90))
        else:
            below = np.sort(np.linalg.eigvalsh(naive(X, y)))[::-1][capacity]
            assert difference <= max(one.error, other.error) + below
        assert one.factor(0)[1] == pytest.approx(other.factor(0)[1], rel=1e-11)


@pytest.mark.parametrize("capacity", [3, 40])
@pytest.mark.parametrize("offset", [1e3, -1e6])
def test_an_offset_of_the_features_drops_out(offset: float, capacity: int) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.integers(-1000, 1000, (600, 90)) / 1024.0, rng.integers(0, 6, 600)  # exact with the offset too
    plain, moved = (streamed(narrow(90, capacity), X + shift, y) for shift in (0.0, offset))
    assert moved.factor(0)[1] == pytest.approx(plain.factor(0)[1], rel=1e-9)
    assert close(scatter(moved, capacity), scatter(plain, capacity), 1e-6 if capacity == 3 else 1e-8)
    assert plain.factor(0)[1] == pytest.approx(np.trace(naive(X, y)), rel=1e-12)


def test_within_a_chunk_an_offset_drops_out_bit_for_bit() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.integers(-1000, 1000, (CHUNK, 9)) / 1024.0, rng.integers(0, 6, CHUNK)
    plain, moved = (streamed(ScatterStream(9, 9), X + shift, y).factor(9) for shift in (0.0, 2.0**40))
    assert np.array_equal(plain[0], moved[0])
    assert plain[1] == moved[1]


# -------------------------------------------------------------------------------------------------- capacity and memory


def test_memory_stays_within_the_stated_bound_and_does_not_grow_with_the_stream() -> None:
    d, capacity, n_classes = 1500, 5, 3
    rng = np.random.default_rng(0)
    stream = ScatterStream(d, capacity)
    held = (stream.buffer + CHUNK + n_classes) * d * 8
    peaks = []
    for _ in range(4):
        batches = [rng.normal(size=(50, d)) for _ in range(8)]
        tracemalloc.start()
        try:
            for X in batches:
                stream.update(X, rng.integers(0, n_classes, 50))
                assert stream.nbytes <= held
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    assert stream.error > 0
    assert max(peaks) <= 2.5 * held + 8 * 8 * (stream.buffer + CHUNK) ** 2 < d * d * 8
    assert peaks[-1] <= 1.1 * max(peaks[:2])


def test_memory_of_what_is_added_up_is_one_matrix() -> None:
    stream = ScatterStream(100, 100)
    for seed in range(30):
        streamed(stream, *samples(99, 100, 3, seed=seed))
        assert stream.nbytes <= max(stream.buffer + CHUNK + 3, 100 + 5 * CHUNK + 3) * 100 * 8
    assert stream.nbytes <= (100 + 5 * CHUNK + 3) * 100 * 8


# ------------------------------------------------------------------------------------------------------------ refusals


def test_a_batch_that_is_refused_leaves_the_stream_as_it_was() -> None:
    X, y = samples(100, 5, 3)
    stream = streamed(ScatterStream(5, 5), X, y)
    rows, trace = stream.factor(5)
    bad = np.full((70, 5), 1.0)
    bad[69, 0] = np.nan
    refusals: list[tuple[Array, Any, str]] = [
        (bad, np.zeros(70, int), "finite"),
        (X[:, :4], y, r"X of shape \(100, 4\)"),
        (X, y[:3], r"labels of shape \(3,\)"),
        (X[0], y[:1], r"X of shape \(5,\)"),
        (X, y + 0.5, "whole numbers"),
    ]
    for features, labels, words in refusals:
        with pytest.raises(InputError, match=words):
            stream.update(features, labels)
    assert np.array_equal(stream.factor(5)[0], rows)
    assert stream.factor(5)[1] == trace
    assert stream.n_samples == 100


def test_ranks_and_buffers_that_cannot_be_are_refused() -> None:
    with pytest.raises(InputError, match="rank of 0 or more"):
        ScatterStream(0, 3)
    with pytest.raises(InputError, match="rank of 0 or more"):
        ScatterStream(3, -1)
    with pytest.raises(InputError, match="a buffer of 22 rows"):
        ScatterStream(50, 3, buffer=22)
    stream = streamed(narrow(90, 3), *samples(600, 90, 3))
    with pytest.raises(InputError, match=r"0 to 3 rows.*4 were requested"):
        stream.factor(4)
    with pytest.raises(InputError, match="-1 were requested"):
        ScatterStream(3, 3).factor(-1)


@pytest.mark.parametrize("rows", [30, 48])
def test_a_scatter_that_overflows_is_named(rows: int) -> None:
    stream = ScatterStream(12, capacity=4)
    with np.errstate(all="ignore"):
        stream.update(1e300 * np.random.default_rng(0).normal(size=(rows, 12)), np.zeros(rows, np.int64))
        with pytest.raises(InputError, match="overflows float64: its features are too large"):
            stream.factor(4)
