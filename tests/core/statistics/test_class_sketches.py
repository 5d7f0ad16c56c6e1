"""Sketch rows of each class by itself: how a client spends them, from a stream of any batching, in bounded memory."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedmoments.core.statistics import Ledger, Statistics, StatisticsSpec
from fedmoments.core.statistics.accumulator import Accumulator
from fedmoments.core.statistics.files import pack_statistics, unpack_statistics
from fedmoments.core.statistics.fixed_point import FixedPoint
from fedmoments.core.statistics.scatter_stream import ScatterStream, sketch_rows
from fedmoments.core.statistics.sketch_plan import SketchPlan
from fedmoments.errors import FileFormatError, InputError

Array = npt.NDArray[Any]


def samples(n: int, d: int, n_classes: int, seed: int = 0) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, n_classes, n)
    return rng.normal(size=(n, d)) * rng.uniform(0.2, 3.0, size=(n_classes, d))[y] + rng.normal(size=(n_classes, d))[
        y
    ], y


def spectra(X: Array, y: Array) -> dict[int, Array]:
    """Return the singular values of every class, centred, by a loop."""
    return {int(c): np.linalg.svd(X[y == c] - X[y == c].mean(axis=0), compute_uv=False) for c in np.unique(y)}


def spec_of(plan: SketchPlan) -> StatisticsSpec:
    return StatisticsSpec.of("scatter_sketch", sketch=plan)


def test_rows_go_to_the_largest_singular_values_of_all_classes_within_the_cap_of_each() -> None:
    X, y = samples(120, 20, 4)
    plan = SketchPlan(None, rank=9, code="float64", rows="class")
    sketch = Statistics.of(X, y, spec_of(plan), n_classes=5).sketches
    left = {c: list(values[: (len(X[y == c]) - 1) // 4]) for c, values in spectra(X, y).items()}
    chosen: dict[int, list[float]] = {c: [] for c in left}
    for _ in range(9):
        best = max((c for c in left if left[c]), key=lambda c: left[c][0])
        chosen[best].append(left[best].pop(0))
    assert sketch.labels.tolist() == [0, 1, 2, 3]
    assert sketch.by_class
    for (rows, residual, _), label in zip(sketch.blocks(), sketch.labels.tolist(), strict=True):
        np.testing.assert_allclose(np.linalg.norm(rows, axis=1), chosen[label], rtol=1e-9)
        energy = (spectra(X, y)[label] ** 2).sum()
        assert residual == pytest.approx(energy - (rows**2).sum(), rel=1e-9)


@pytest.mark.parametrize("counts", [(1, 1, 1), (2, 4, 3), (5, 1, 2)])
def test_a_class_has_at_most_a_quarter_of_its_spare_samples(counts: tuple[int, ...]) -> None:
    y = np.repeat(np.arange(len(counts)), counts)
    X = np.random.default_rng(0).normal(size=(len(y), 8))
    sketch = Statistics.of(X, y, spec_of(SketchPlan("gram", rows="class")), n_classes=3).sketches
    assert sketch.sizes.tolist() == [(count - 1) // 4 for count in counts]


@settings(max_examples=30)
@given(cuts=st.lists(st.integers(0, 400), max_size=6), seed=st.integers(0, 3))
def test_law_any_batching_gives_the_same_bits(cuts: list[int], seed: int) -> None:
    X, y = samples(400, 40, 6, seed)
    spec = spec_of(SketchPlan("means/2", rows="class"))
    stream = Accumulator(spec, n_classes=6, dim=40)
    for part, labels in zip(np.split(X, sorted(cuts)), np.split(y, sorted(cuts)), strict=True):
        stream.update(part, labels)
    ours, theirs = stream.statistics().sketches, Statistics.of(X, y, spec, n_classes=6).sketches
    np.testing.assert_array_equal(ours.rows, theirs.rows)
    np.testing.assert_array_equal(ours.residuals, theirs.residuals)


def test_law_a_compressed_stream_keeps_the_bound_of_frequent_directions_in_every_class() -> None:
    X, y = samples(3000, 50, 5)
    capacity = 4
    stream = ScatterStream(50, capacity, buffer=2 * sketch_rows(capacity), by_class=True)
    stream.update(X, y)
    assert stream.error > 0
    assert stream.nbytes < 8 * 50 * (3 * sketch_rows(capacity) + 64 + 5)
    kept = {label: rows for label, rows, _ in stream.blocks(capacity)}
    for label, rows, trace in stream.blocks(capacity):
        away = X[y == label] - X[y == label].mean(axis=0)
        lost = np.linalg.eigvalsh(away.T @ away - rows.T @ rows)
        assert lost[0] > -1e-9 * trace
        assert trace == pytest.approx(np.square(away).sum(), rel=1e-10)
    exact = sorted((value**2 for values in spectra(X, y).values() for value in values), reverse=True)[:capacity]
    told = sorted((float(row @ row) for rows in kept.values() for row in rows), reverse=True)
    assert all(mine <= theirs + 1e-9 * theirs for mine, theirs in zip(told, exact, strict=True))
    assert all(mine >= theirs - stream.error for mine, theirs in zip(told, exact, strict=True))


def test_labelled_sketches_merge_split_and_travel_in_files() -> None:
    X, y = samples(200, 12, 4)
    spec = spec_of(SketchPlan(None, rank=6, code="int8", rows="class"))
    # Fixed point: float64 adds a client's samples in another order in a ledger, so its last bits may differ there.
    form = FixedPoint(norm_bound=64.0, max_samples=1_000)
    parts = [Statistics.of(X[k::4], y[k::4], spec, n_classes=4, fixed_point=form) for k in range(4)]
    total = Statistics.merge(parts)
    assert total - parts[2] == Statistics.merge([parts[0], parts[1], parts[3]])
    assert Ledger.of(X, y, np.arange(200) % 4, spec, n_classes=4, fixed_point=form).statistics() == total
    again = unpack_statistics(pack_statistics(total), "the file")
    assert again == total
    np.testing.assert_array_equal(again.sketch_labels, total.sketch_labels)
    pooled = spec_of(SketchPlan(None, rank=6, code="int8", rows="pooled"))
    assert Statistics.of(X, y, pooled, n_classes=4) != Statistics.of(X, y, spec, n_classes=4)
    moved = unpack_statistics(pack_statistics(parts[0]), "the file")
    object.__setattr__(moved, "sketch_labels", moved.sketch_labels + 9)
    with pytest.raises(FileFormatError, match="belongs to a class without samples"):
        unpack_statistics(pack_statistics(moved), "the file")


def test_an_automatic_plan_serves_what_left_it_open_and_no_other() -> None:
    plan = SketchPlan("means", rows="automatic")
    assert plan.settled(77).serves(plan)
    assert plan.settled(77).serves(SketchPlan("means", rows="class"))
    assert not plan.settled(77).serves(SketchPlan("means", rows="pooled"))
    assert not plan.settled(77).serves(SketchPlan("means/2", rows="automatic"))
    with pytest.raises(InputError, match="automatic, pooled, class"):
        SketchPlan(rows="own")


def test_a_class_budget_counts_residual_traces_and_sizes() -> None:
    choice = SketchPlan("means", rows="class").choose(n_samples=10_000, present=10, dim=512)
    assert choice.by_class
    assert choice.bytes(10, 512) <= 4 * 512 * 10 < choice.bytes(10, 512) + 260
    assert choice.bytes(10, 512) == 10 * 520 + choice.rank * 260 + 10 * 16
