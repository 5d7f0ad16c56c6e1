"""Scatter sketches inside statistics: they merge, leave and come back like the rest, and never lose the trace."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from fedmoments.core.statistics import (
    Accumulator,
    FixedPoint,
    Ledger,
    SketchPlan,
    Statistics,
    StatisticsSpec,
    load_statistics,
    save_statistics,
)
from fedmoments.errors import InputError, MergeError, MissingMomentError

C, D = 4, 24
FORM = FixedPoint(64.0, 10**5)
PLANS = [
    SketchPlan("means"),
    SketchPlan("means/2"),
    SketchPlan("gram"),
    SketchPlan(None, rank=5, code="float64"),
    SketchPlan(None, rank=3, code="float16"),
    SketchPlan(None, rank=0),
]


def party(seed: int, n: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, C, n)
    return rng.normal(size=(n, D)) * np.linspace(2, 0.2, D) + 3 * y[:, None], y


def measured(seed: int, n: int, plan: SketchPlan, *, form: FixedPoint | None = None) -> Statistics:
    return Statistics.of(
        *party(seed, n), StatisticsSpec.of("scatter_sketch", sketch=plan), n_classes=C, fixed_point=form
    )


def scatter(seed: int, n: int) -> NDArray[np.float64]:
    """The class-centred scatter of a party, by its definition."""
    X, y = party(seed, n)
    total = np.zeros((D, D))
    for x, label in zip(X, y, strict=True):
        off = x - X[y == label].mean(axis=0)
        total += np.outer(off, off)
    return total


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_law_the_trace_is_exact_whatever_the_rank_and_the_code(plan: SketchPlan) -> None:
    parts = [measured(seed, 30 + seed, plan) for seed in range(3)]
    expected = sum(np.trace(scatter(seed, 30 + seed)) for seed in range(3))
    assert Statistics.merge(parts).sketches.trace == pytest.approx(expected, rel=1e-10)


def test_law_full_rank_is_the_whole_scatter() -> None:
    plan = SketchPlan(None, rank=D, code="float64", share=1.0)
    rows = measured(0, 80, plan).sketches.rows
    np.testing.assert_allclose(rows.T @ rows, scatter(0, 80), rtol=0, atol=1e-10 * np.trace(scatter(0, 80)))


@given(order=st.permutations(range(5)), plan=st.sampled_from(PLANS), fixed=st.booleans())
def test_law_merging_does_not_depend_on_order(order: list[int], plan: SketchPlan, *, fixed: bool) -> None:
    parts = [measured(seed, 12 + seed, plan, form=FORM if fixed else None) for seed in range(5)]
    one, other = Statistics.merge(parts), Statistics.merge([parts[i] for i in order])
    assert one.digest() == other.digest() or not fixed
    assert sorted(one.sketches.keys()) == sorted(other.sketches.keys())
    first, second = (each.sketches.canonical().rows for each in (one, other))
    assert np.array_equal(first, second)


@given(st.sampled_from(PLANS))
def test_law_merged_then_subtracted_was_never_there(plan: SketchPlan) -> None:
    a, b = measured(0, 20, plan, form=FORM), measured(1, 25, plan, form=FORM)
    assert (a + b) - b == a
    longer = replace(b, sketch_residuals=b.sketch_residuals + 1.0)
    with pytest.raises(MergeError, match="a scatter sketch that is not in this sum"):
        _ = (a + b) - longer


def test_owners_tell_contributions_apart_after_any_merge() -> None:
    plan = PLANS[0]
    left = measured(0, 20, plan) + measured(1, 20, plan)
    whole = left + (measured(2, 20, plan) + measured(3, 20, plan))
    assert whole.sketch_owners.tolist() == [0, 1, 2, 3]
    assert whole.row_owners.tolist() == sorted(whole.row_owners.tolist())
    assert set(whole.row_owners.tolist()) == {0, 1, 2, 3}


@pytest.mark.parametrize("plan", PLANS, ids=str)
@pytest.mark.parametrize("fold", [False, True])
def test_a_ledger_lets_sketches_join_leave_and_be_replaced(plan: SketchPlan, *, fold: bool) -> None:
    spec = StatisticsSpec.of("scatter_sketch", sketch=plan)
    ledger = Ledger(spec, n_classes=C, dim=D, fixed_point=FORM, fold=fold)
    parts = {seed: measured(seed, 15 + seed, plan, form=FORM) for seed in range(4)}
    for seed in (0, 1, 2):
        ledger.join(seed, parts[seed])
    assert ledger.statistics() == Statistics.merge([parts[0], parts[1], parts[2]])
    ledger.leave(1)
    ledger.replace(0, parts[3])
    assert ledger.statistics() == Statistics.merge([parts[2], parts[3]])
    assert ledger.client(0) == parts[3]
    ledger.leave(0)
    ledger.leave(2)
    assert ledger.statistics() == Statistics.zero(spec, n_classes=C, dim=D, fixed_point=FORM)


def test_restricting_drops_the_sketch_and_leaves_the_means_as_they_were_measured() -> None:
    stats = measured(0, 40, SketchPlan("means"))
    alone = Statistics.of(*party(0, 40), StatisticsSpec.of("client_means"), n_classes=C)
    assert stats.restricted(StatisticsSpec.of("client_means")) == alone


@pytest.mark.parametrize("form", [None, FORM], ids=["float64", "fixed point"])
def test_what_is_sent_has_rounded_means_and_is_the_same_when_sent_again(form: FixedPoint | None) -> None:
    stats = measured(0, 40, SketchPlan("means"), form=form) + measured(1, 30, SketchPlan("means"), form=form)
    sent = stats.as_sent()
    off = np.abs(sent.rows.block_means() - stats.rows.block_means())
    span = np.ptp(stats.rows.block_means(), axis=1)
    assert 0 < off.max() <= (span / 255).max()
    assert sent.as_sent() is sent
    assert sent.sketches.keys() == stats.sketches.keys()
    exact = measured(0, 40, PLANS[3])
    assert exact.as_sent() is exact


def test_shares_of_a_class_are_one_mean_again_where_a_sketch_travels() -> None:
    spec = StatisticsSpec.of("scatter_sketch", means_per_client=3)
    several = Statistics.of(*party(0, 60), spec, n_classes=C)
    whole = Statistics.of(*party(0, 60), StatisticsSpec.of("scatter_sketch"), n_classes=C)
    assert len(several.rows) == 3 * C
    np.testing.assert_allclose(several.as_sent().rows.block_means(), whole.as_sent().rows.block_means(), atol=1e-9)


@pytest.mark.parametrize("plan", PLANS, ids=str)
@pytest.mark.parametrize("form", [None, FORM], ids=["float64", "fixed point"])
def test_a_file_brings_sketches_back(tmp_path: Path, plan: SketchPlan, form: FixedPoint | None) -> None:
    stats = (measured(0, 40, plan, form=form) + measured(1, 20, plan, form=form)).as_sent()
    save_statistics(tmp_path / "some.stats", stats, {})
    again, _ = load_statistics(tmp_path / "some.stats")
    assert again == stats
    assert again.spec == stats.spec
    assert again.rounded == stats.rounded
    assert again.sketch_owners.tolist() == stats.sketch_owners.tolist()


def test_a_plan_without_a_sketch_is_refused() -> None:
    with pytest.raises(InputError, match="only with the moment 'scatter_sketch'"):
        StatisticsSpec.of("gram", sketch=SketchPlan("means"))


def test_one_upload_has_one_plan() -> None:
    one, other = (StatisticsSpec.of("scatter_sketch", sketch=SketchPlan(word)) for word in ("means", "gram"))
    with pytest.raises(InputError, match="one upload has one scatter sketch"):
        _ = one | other
    needs = StatisticsSpec.of("scatter_sketch")
    assert needs <= one
    assert (needs | other).plan == other.sketch
    assert not one <= other


def test_clients_of_one_sample_a_class_have_nothing_to_sketch() -> None:
    X: Any = np.eye(D)[:C]
    stats = Statistics.of(X, np.arange(C), StatisticsSpec.of("scatter_sketch"), n_classes=C)
    assert stats.sketch_sizes.tolist() == [0]
    assert stats.sketch_residuals.tolist() == [0.0]


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_law_shares_of_a_class_are_one_mean_again_even_when_restricting_hid_them(plan: SketchPlan) -> None:
    shares = StatisticsSpec.of("scatter_sketch", means_per_client=2, sketch=plan)
    several = Statistics.merge([Statistics.of(*party(seed, 40), shares, n_classes=C) for seed in range(3)])
    whole = Statistics.merge([measured(seed, 40, plan) for seed in range(3)]).as_sent()
    assert len(several.rows) > len(whole.rows)
    for each in (several, several.restricted(StatisticsSpec.of("scatter_sketch"))):
        sent = each.as_sent()
        assert np.array_equal(sent.row_labels, whole.row_labels)
        assert np.array_equal(sent.row_counts, whole.row_counts)
        assert np.allclose(sent.rows.block_means(), whole.rows.block_means(), rtol=1e-6)


def test_plans_that_read_alike_are_told_apart_when_they_do_not_merge() -> None:
    fine, coarse = (measured(0, 40, SketchPlan("means", share=share)) for share in (0.5, 0.25))
    assert str(fine.spec) == str(coarse.spec)
    with pytest.raises(MergeError, match=r"share=0\.5.*share=0\.25"):
        fine + coarse
    with pytest.raises(MissingMomentError, match=r"share=0\.25.*share=0\.5"):
        fine.restricted(coarse.spec)
    ledger = Ledger(coarse.spec, n_classes=C, dim=D)
    with pytest.raises(MergeError, match=r"share=0\.5.*needs.*share=0\.25"):
        ledger.join("clinic", fine)


def test_law_batches_do_not_show_in_a_sketch_though_classes_come_one_after_the_other() -> None:
    rng, dim, n = np.random.default_rng(3), 400, 900
    y = np.arange(n) // 45
    X = rng.normal(size=(n, dim)) * np.linspace(2, 0.1, dim) + y[:, None]
    spec = StatisticsSpec.of("scatter_sketch", sketch=SketchPlan("means/2"))
    whole = Statistics.of(X, y, spec, n_classes=20)
    stream = Accumulator(spec, n_classes=20, dim=dim)
    for start in range(0, n, 50):
        stream.update(X[start : start + 50], y[start : start + 50])
    together = Ledger.of(X, y, np.zeros(n, np.int64), spec, n_classes=20).statistics()
    for other in (stream.statistics(), together):
        assert np.array_equal(other.sketches.rows, whole.sketches.rows)
        assert np.array_equal(other.sketch_residuals, whole.sketch_residuals)
