"""No sound contribution is refused: any data, any moments, any fixed point, any way of adding up."""

from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedmoments.core.statistics import MOMENTS, Accumulator, FixedPoint, SketchPlan, Statistics, StatisticsSpec
from fedmoments.core.statistics.coding import CODES
from fedmoments.errors import FixedPointOverflowError, RefusedError
from fedmoments.wire import Agreement, IdentityKey, decode, encode

Array = npt.NDArray[Any]
KEY = IdentityKey.from_bytes(bytes(32))
ROWS = ("int64", "float32", "float16", "bfloat16", "int8")
PLANS = (SketchPlan("means"), SketchPlan("gram*2"), *(SketchPlan(None, 3, code) for code in CODES))
PLANS += tuple(replace(plan, rows="class", share=share) for plan in PLANS for share in (0.5, 1.0))


def agreement(
    spec: StatisticsSpec, dim: int, n_classes: int, bound: float, *, most: int = 2**24, rows: str = "int64"
) -> Agreement:
    rows = "budget" if spec.plan and spec.plan.budget else rows
    return Agreement("00" * 32, "11" * 32, "22" * 32, n_classes, dim, spec, FixedPoint(bound, most), rows)


def make_features(kind: str, n: int, dim: int, seed: int) -> Array:
    """Return features on which rounding, cancellation and bounds are as awkward as they get."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, dim))
    if kind == "constant":
        X = np.repeat(rng.normal(size=(1, dim)), n, axis=0)
    elif kind == "far off":
        X = 1000.0 + 1e-4 * X
    elif kind == "tiny":
        X *= 1e-9
    elif kind == "sparse":
        X *= rng.random(X.shape) < 0.1
    elif kind == "one direction":
        X = X[:, :1] * rng.normal(size=(1, dim))
    elif kind == "zero":
        X *= 0.0
    elif kind == "float32, normalised":
        X = X.astype(np.float32)
        X /= np.linalg.norm(X, axis=1, keepdims=True)
    elif kind == "at the bound":
        X /= np.linalg.norm(X, axis=1, keepdims=True)
    elif kind == "axes":
        X = np.eye(dim)[rng.integers(0, dim, n)] * rng.choice([-1.0, 1.0], size=(n, 1))
    return X


KINDS = (
    *("normal", "constant", "far off", "tiny", "sparse", "one direction"),
    *("zero", "float32, normalised", "at the bound", "axes"),
)
UNIT_NORM = ("float32, normalised", "at the bound", "axes")


def spec_of(names: Iterable[str], means: int, sketch: SketchPlan) -> StatisticsSpec:
    """Return a spec with as many means and such a plan as the moments allow."""
    sketched = "scatter_sketch" in names
    one = (sketched and sketch.budget is not None) or not {"client_means", "scatter_sketch"} & set(names)
    return StatisticsSpec.of(*names, means_per_client=1 if one else means, sketch=sketch if sketched else None)


def specs() -> st.SearchStrategy[StatisticsSpec]:
    return st.builds(
        spec_of, st.sets(st.sampled_from(sorted(MOMENTS))), st.integers(1, 3), sketch=st.sampled_from(PLANS)
    )


def check_sound(stats: Statistics, terms: Agreement, *, narrow: bool = False) -> Statistics:
    """Encode and decode; ``narrow`` data may be beyond the bound by a rounding that the fixed point refuses itself."""
    if narrow:
        try:
            stats = stats.quantized(terms.fixed_point)
        except FixedPointOverflowError:
            return stats
    data = encode(stats, terms, client="c", version=1, key=KEY)
    found = decode(data, terms, lambda client: KEY.public)
    if terms.rows == "int64":
        assert found.statistics == stats.quantized(terms.fixed_point)
    if terms.spec.has_sketch:
        assert np.array_equal(found.statistics.sketches.rows, stats.sketches.rows)
        assert np.array_equal(found.statistics.sketches.residuals, stats.sketches.residuals)
    return found.statistics


@settings(deadline=None, max_examples=400)
@given(
    spec=specs(),
    kind=st.sampled_from(KINDS),
    n=st.integers(0, 40),
    dim=st.integers(1, 6),
    n_classes=st.integers(1, 4),
    seed=st.integers(0, 2**32),
    room=st.sampled_from([1.0, 1.0, 3.7, 1e3, 1e9]),
    most=st.sampled_from([0, 2**24, 2**40]),
    rows=st.sampled_from(ROWS),
    batch=st.sampled_from([1, 7, 40]),
)
def test_sound_contributions_are_taken_in(
    spec: StatisticsSpec,
    kind: str,
    n: int,
    dim: int,
    n_classes: int,
    seed: int,
    room: float,
    most: int,
    rows: str,
    batch: int,
) -> None:
    X = make_features(kind, n, dim, seed)
    y = np.random.default_rng(seed + 1).integers(0, n_classes, n)
    norm = 1.0 if kind in UNIT_NORM else float(np.linalg.norm(X, axis=1).max(initial=1e-10))
    bound = min(norm * room, 1e12)
    accumulator = Accumulator(spec, n_classes=n_classes, dim=dim)
    for start in range(0, n, batch):
        accumulator.update(X[start : start + batch], y[start : start + batch])
    terms = agreement(spec, dim, n_classes, bound, most=most or max(n, 1), rows=rows)
    check_sound(accumulator.statistics(), terms, narrow=kind == "float32, normalised")


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("names", [*combinations(sorted(MOMENTS), 2), ("sums",), tuple(MOMENTS)], ids="+".join)
def test_every_join_of_two_moments_and_of_all(names: tuple[str, ...], rows: str) -> None:
    check_join(spec_of(names, 2, SketchPlan(None, 3, "int8")), rows)


@pytest.mark.parametrize("budget", ["means", "gram", "gram*4"])
@pytest.mark.parametrize("other", sorted(MOMENTS))
def test_every_join_with_scatter_sketches_within_a_budget(other: str, budget: str) -> None:
    check_join(StatisticsSpec.of("scatter_sketch", other, sketch=SketchPlan(budget)), "budget")


def check_join(spec: StatisticsSpec, rows: str) -> None:
    for kind in KINDS:
        X, y = make_features(kind, 60, 5, 3), np.arange(60) % 3
        bound = 1.0 if kind in UNIT_NORM else float(np.linalg.norm(X, axis=1).max()) + 1e-9
        terms = agreement(spec, 5, 3, bound, most=60, rows=rows)
        check_sound(Statistics.of(X, y, spec, n_classes=3, seed=1), terms, narrow=kind == "float32, normalised")


@pytest.mark.parametrize("kind", ["normal", "constant", "far off", "one direction", "float32, normalised"])
@pytest.mark.parametrize("rows", ROWS)
def test_five_hundred_and_twelve_dimensions(kind: str, rows: str) -> None:
    spec = spec_of(("gram", "class_squares", "scatter_sketch"), 2, SketchPlan(None, 20, "int8"))
    X, y = make_features(kind, 300, 512, 5), np.arange(300) % 4
    bound = 1.0 if kind in UNIT_NORM else float(np.linalg.norm(X, axis=1).max())
    check_sound(Statistics.of(X, y, spec, n_classes=4), agreement(spec, 512, 4, bound, rows=rows))
    grams = StatisticsSpec.of("class_grams", "class_thirds", "class_fourths")
    check_sound(Statistics.of(X[:40], y[:40], grams, n_classes=4), agreement(grams, 512, 4, bound))


@pytest.mark.parametrize("kind", ["constant", "far off", "float32, normalised"])
def test_many_samples_one_at_a_time_where_everything_cancels(kind: str) -> None:
    spec = StatisticsSpec.of("class_grams", "class_fourths", "class_thirds")
    X = make_features(kind, 1, 3, 7)
    stats = Statistics.of(X, [0], spec, n_classes=1)
    for _ in range(17):  # doubling adds the same features 2¹⁷ times, with the roundings of as many sums
        stats = stats + stats
    one_by_one = Accumulator(spec, n_classes=1, dim=3)
    for _ in range(5000):
        one_by_one.update(X, [0])
    bound = 1.0 if kind in UNIT_NORM else float(np.linalg.norm(X))
    for sound in (stats, one_by_one.statistics()):
        terms = agreement(spec, 3, 1, bound, most=sound.n_samples)
        check_sound(sound, terms, narrow=kind == "float32, normalised")


def test_a_client_without_samples_contributes_nothing() -> None:
    for names in [(), ("client_means",), ("gram", "class_fourths"), tuple(MOMENTS)]:
        spec = spec_of(names, 1, SketchPlan("means"))
        empty = Statistics.zero(spec, n_classes=3, dim=4)
        assert check_sound(empty, agreement(spec, 4, 3, 1.0)).n_samples == 0


def test_half_precision_rounds_means_and_nothing_else() -> None:
    spec = StatisticsSpec.of("client_means", "gram", means_per_client=2)
    rng = np.random.default_rng(0)
    stats = Statistics.of(rng.normal(size=(50, 16)), rng.integers(0, 3, 50), spec, n_classes=3)
    for rows, error in (("float16", 2.0**-11), ("bfloat16", 2.0**-8), ("float32", 2.0**-24)):
        found = check_sound(stats, agreement(spec, 16, 3, 16.0, rows=rows))
        assert np.array_equal(found.raw("gram"), stats.quantized(FixedPoint(16.0, 2**24)).raw("gram"))
        assert np.array_equal(found.row_counts, stats.row_counts)
        difference = np.abs(found.rows.block_means() - stats.rows.block_means())
        assert (difference <= error * np.abs(stats.rows.block_means()) * (1 + 1e-6) + 1e-7).all()
        assert difference.max() > 0


def test_half_precision_means_become_sums_rounded_to_even() -> None:
    spec = StatisticsSpec.of("client_means")
    terms = agreement(spec, 64, 1, 1e9, most=2**40, rows="bfloat16")
    bits = terms.fixed_point.bits(1)
    assert bits < 0
    X = np.repeat(np.random.default_rng(0).integers(-2000, 2000, size=(1, 64)), 3, axis=0).astype(float)
    data = encode(Statistics.of(X, [0, 0, 0], spec, n_classes=1), terms, client="c", version=1, key=KEY)
    halves = np.frombuffer(data[-128:], "<u2").astype("<u4") << 16
    exact = [Fraction(float(mean)) * 3 * Fraction(2) ** bits for mean in halves.view("<f4")]
    found = decode(data, terms, lambda client: KEY.public).statistics.raw("client_means")
    assert found[0].tolist() == [round(value) for value in exact]
    assert any(value.denominator > 1 for value in exact)


def test_no_type_rounds_beyond_the_norm_bound() -> None:
    spec = StatisticsSpec.of("client_means")
    for bound in (0.3, 1.0, 3.1, 7e-9, 1e-12, 60000.1):
        for rows in ("float32", "float16", "bfloat16", "int8"):
            stats = Statistics.of([[bound], [bound], [-bound]], [0, 0, 1], spec, n_classes=2)
            found = check_sound(stats, agreement(spec, 1, 2, bound, rows=rows))
            room = 1e-9 if rows in ("float16", "bfloat16") else 2.0**-22  # float32 numbers are as close as that
            assert np.abs(found.rows.block_means()).max() <= bound * (1 + room) + 2.0**-53


@pytest.mark.parametrize("names", [("class_squares",), ("class_grams",), ("gram",), ("class_norms", "class_squares")])
def test_features_as_small_as_the_resolution(names: tuple[str, ...]) -> None:
    spec = StatisticsSpec.of(*names)
    for seed in range(20):
        X = 1e-7 * make_features("at the bound", 9, 6, seed)
        found = check_sound(Statistics.of(X, np.arange(9) % 3, spec, n_classes=3), agreement(spec, 6, 3, 1e-7, most=9))
        assert np.abs(found.arrays[spec.sent[-1]]).max() < 200


def test_means_below_the_least_normal_number_of_half_precision() -> None:
    spec = StatisticsSpec.of("client_means", "class_squares")
    X = np.full((40, 3), 4e-8)  # float16 has 0 and 6e-8 there, and nothing between
    found = check_sound(
        Statistics.of(X, np.zeros(40, int), spec, n_classes=1), agreement(spec, 3, 1, 1e-7, rows="float16")
    )
    assert found.rows.block_means()[0, 0] == pytest.approx(2.0**-24)


def test_means_too_large_for_half_precision_are_refused_at_the_client() -> None:
    spec = StatisticsSpec.of("client_means")
    stats = Statistics.of([[70_000.0]], [0], spec, n_classes=1)
    check_sound(stats, agreement(spec, 1, 1, 1e5, rows="bfloat16"))
    with pytest.raises(RefusedError, match=r"not-finite: .* need rows of int64"):
        encode(stats, agreement(spec, 1, 1, 1e5, rows="float16"), client="c", version=1, key=KEY)
