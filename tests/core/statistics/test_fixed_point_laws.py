"""Fixed point: resolution, range, and refusals that leave everything untouched."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedmoments.core.statistics import MOMENTS, FixedPoint, Ledger, Statistics, StatisticsSpec
from fedmoments.errors import FixedPointOverflowError, InputError, MergeError

SPEC = StatisticsSpec.of("class_grams", "class_thirds", "class_fourths", "client_means")


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 6), st.floats(0.5, 1000.0))
def test_rounding_errs_by_half_a_resolution_a_client_at_most(seed: int, n_clients: int, bound: float) -> None:
    rng = np.random.default_rng(seed)
    form = FixedPoint(norm_bound=bound, max_samples=10_000)
    exact, rounded = [], []
    for _ in range(n_clients):
        X = rng.normal(size=(5, 3))
        X *= bound / np.linalg.norm(X, axis=1, keepdims=True) * rng.random((5, 1))
        stats = Statistics.of(X, rng.integers(0, 2, 5), SPEC, n_classes=2)
        exact.append(stats)
        rounded.append(stats.quantized(form))
    ours, theirs = Statistics.merge(rounded).to_float(), Statistics.merge(exact)
    for name in SPEC.sent:
        degree = MOMENTS[name].degree
        clients = 1 if name == "client_means" else n_clients
        slack = 1e-12 * 5 * n_clients * bound**degree
        limit = clients * form.resolution(degree) / 2 + slack
        assert float(np.abs(ours.arrays[name] - theirs.arrays[name]).max(initial=0.0)) <= limit, name


@given(st.floats(1e-3, 1e6), st.integers(1, 2**40), st.integers(1, 4))
def test_no_sum_that_the_agreement_allows_leaves_the_range(bound: float, samples: int, degree: int) -> None:
    form = FixedPoint(norm_bound=bound, max_samples=samples)
    assert samples * bound**degree * 2.0 ** form.bits(degree) <= 2.0**62 * (1 + 1e-9)
    assert form.resolution(degree) == 2.0 ** -form.bits(degree)
    # the finest such scale, unless float64 has no finer numbers
    assert form.bits(degree) == 52 or samples * bound**degree * 2.0 ** (form.bits(degree) + 1) > 2.0**62 * (1 - 1e-9)


def test_the_largest_sum_allowed_comes_back_as_it_was() -> None:
    form = FixedPoint(norm_bound=3.0, max_samples=4)
    X = np.full((4, 1), 3.0)
    stats = Statistics.of(X, [0] * 4, SPEC, n_classes=1, fixed_point=form)
    assert stats.sums.ravel().tolist() == [12.0]
    assert stats.class_array("class_fourths").ravel().tolist() == [4 * 81.0]
    assert max(int(np.abs(array).max()) for array in stats.arrays.values()) <= 2**62


@pytest.mark.parametrize("name", ["sums", "class_norms", "class_squares", "gram", "class_grams", "client_means"])
def test_features_beyond_the_norm_bound_are_refused(name: str) -> None:
    form = FixedPoint(norm_bound=1.0, max_samples=100)
    X, y = [[0.9], [1.5]], [0, 0]
    with pytest.raises(FixedPointOverflowError, match=r"norm_bound\*\*\d allows.*larger norm_bound, or clip"):
        Statistics.of([[1.5]], [0], StatisticsSpec.of(name), n_classes=1, fixed_point=form)
    stats = Statistics.of(X, y, StatisticsSpec.of(name), n_classes=1)
    digest = stats.digest()
    with pytest.raises(FixedPointOverflowError):
        stats.quantized(form)
    assert stats.digest() == digest


def test_more_samples_than_agreed_are_refused_at_measure_merge_and_join() -> None:
    form = FixedPoint(norm_bound=10.0, max_samples=3)

    def of(n: int) -> Statistics:
        return Statistics.of(np.ones((n, 1)), [0] * n, SPEC, n_classes=1, fixed_point=form)

    message = r"hold 4 samples, more than the agreed max_samples=3"
    with pytest.raises(FixedPointOverflowError, match=message):
        of(4)
    two = of(2)
    with pytest.raises(FixedPointOverflowError, match=message):
        two + two
    with pytest.raises(FixedPointOverflowError, match=message):
        Statistics.merge([two, of(1), of(1)])
    for fold in (True, False):
        ledger = Ledger(SPEC, n_classes=1, dim=1, fixed_point=form, fold=fold)
        ledger.join("a", two)
        before = ledger.statistics().digest()
        with pytest.raises(FixedPointOverflowError, match=message):
            ledger.join("b", two)
        with pytest.raises(FixedPointOverflowError, match=message):
            ledger.replace("a", Statistics.of(np.ones((4, 1)), [0] * 4, SPEC, n_classes=1), former=two)
        assert ledger.clients == ("a",)
        assert ledger.statistics().digest() == before
        ledger.join("b", of(1))
        ledger.replace("a", of(2), former=two)
        assert ledger.pool().n_samples == 3
    with pytest.raises(FixedPointOverflowError, match=message):
        Ledger.of(np.ones((4, 1)), [0] * 4, [0, 1, 2, 3], StatisticsSpec(), n_classes=1, fixed_point=form)


def test_a_ledger_refuses_features_beyond_the_bound_and_stays_as_it_was() -> None:
    form = FixedPoint(norm_bound=1.0, max_samples=100)
    ledger = Ledger(SPEC, n_classes=2, dim=1, fixed_point=form)
    ledger.join("good", Statistics.of([[0.5]], [0], SPEC, n_classes=2))
    before = ledger.statistics().digest()
    with pytest.raises(FixedPointOverflowError):
        ledger.join("bad", Statistics.of([[5.0]], [1], SPEC, n_classes=2))
    assert ledger.statistics().digest() == before
    assert "bad" not in ledger


def test_rounding_twice_is_once_and_to_another_form_is_refused() -> None:
    form = FixedPoint(norm_bound=4.0, max_samples=100)
    stats = Statistics.of([[0.1]], [0], SPEC, n_classes=1, fixed_point=form)
    assert stats.quantized(form) is stats
    assert stats.to_float().quantized(form) == stats
    assert stats.to_float().to_float().fixed_point is None
    with pytest.raises(MergeError, match="rounding them again"):
        stats.quantized(FixedPoint(norm_bound=8.0, max_samples=100))


@pytest.mark.parametrize(
    "options", [{"norm_bound": 0.0}, {"norm_bound": np.inf}, {"norm_bound": np.nan}, {"max_samples": 0}]
)
def test_agreements_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(options))):
        FixedPoint(**options)
