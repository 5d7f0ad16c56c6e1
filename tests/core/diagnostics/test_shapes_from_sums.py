"""Skewness and kurtosis from sums of powers: as from the samples, or left out and counted where digits are gone."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import kurtosis, skew

from fedmoments.core.diagnostics import gaussianity
from fedmoments.core.diagnostics.shapes import NEEDS, TOLERANCE, coordinate_shapes
from fedmoments.core.statistics import FixedPoint, Statistics, StatisticsSpec
from fedmoments.errors import MissingMomentError

Array = npt.NDArray[Any]


def draw(seed: int, n: int = 400) -> tuple[Array, Array]:
    """Coordinates of every shape: Gaussian, exponential, heavy-tailed, two-valued."""
    rng = np.random.default_rng(seed)
    shapes = [rng.normal(size=(n, 3)), rng.exponential(size=(n, 3)), rng.standard_t(4, size=(n, 3))]
    X = np.concatenate([*shapes, rng.integers(0, 2, size=(n, 2)).astype(float)], axis=1)
    return X * np.geomspace(0.1, 10, X.shape[1]), rng.integers(0, 3, size=n)


def measured(X: Array, y: Array, **options: Any) -> Statistics:
    return Statistics.of(X, y, NEEDS, n_classes=4, **options)


def referee(X: Array, y: Array) -> tuple[Array, Array]:
    """Return skewness and excess kurtosis (3, d) from the samples themselves."""
    labels = range(3)
    return np.stack([skew(X[y == c]) for c in labels]), np.stack([kurtosis(X[y == c]) for c in labels])


def test_shapes_from_sums_are_those_of_the_samples() -> None:
    X, y = draw(0)
    shapes = coordinate_shapes(measured(X, y))
    expected = referee(X, y)
    np.testing.assert_allclose(shapes.skewness, expected[0], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(shapes.kurtosis, expected[1], rtol=1e-9, atol=1e-9)
    assert not shapes.constant.any()
    assert not shapes.lost.any()


def test_summaries_are_over_all_classes_and_dimensions_and_by_class() -> None:
    X, y = draw(1)
    found = gaussianity(measured(X, y))
    for tail, values in zip((found.skewness, found.kurtosis), referee(X, y), strict=True):
        size = np.abs(values)
        figures = [size.mean(), np.median(size), np.percentile(size, 90)]
        np.testing.assert_allclose([tail.mean, tail.median, tail.p90], figures, rtol=1e-9)
        by_class = np.stack([size.mean(axis=1), np.median(size, axis=1), np.percentile(size, 90, axis=1)], axis=1)
        np.testing.assert_allclose(tail.by_class[:3], by_class, rtol=1e-9)
        assert np.isnan(tail.by_class[3]).all(), "a class without a sample has no shape"
        assert tail.counts.sum() + tail.beyond == found.coordinates == 33
        assert np.allclose(np.diff(tail.edges), tail.edges[1])


def test_shapes_of_a_union_are_those_of_merged_statistics() -> None:
    X, y = draw(2)
    parts = Statistics.merge(measured(X[k::7], y[k::7]) for k in range(7))
    whole = gaussianity(measured(X, y))
    assert gaussianity(parts).kurtosis.mean == pytest.approx(whole.kurtosis.mean, rel=1e-9)
    assert gaussianity(measured(X[::2], y[::2])).kurtosis.mean != pytest.approx(whole.kurtosis.mean, rel=1e-3)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e5])
def test_multiplying_features_by_a_constant_changes_no_shape(scale: float) -> None:
    X, y = draw(3)
    found, same = gaussianity(measured(X, y)), gaussianity(measured(scale * X, y))
    assert same.skewness.mean == pytest.approx(found.skewness.mean, rel=1e-9)
    assert same.kurtosis.p90 == pytest.approx(found.kurtosis.p90, rel=1e-9)


@pytest.mark.parametrize(("offset", "most_lost"), [(0.0, 0.0), (30.0, 0.0), (1e3, 0.75), (1e4, 1.0), (1e6, 1.0)])
def test_what_is_kept_is_right_however_large_the_offset(offset: float, most_lost: float) -> None:
    X, y = draw(4)
    X = X / X.std(axis=0)
    shapes = coordinate_shapes(measured(X + offset, y))
    for found, expected in zip((shapes.skewness, shapes.kurtosis), referee(X, y), strict=True):
        known = np.isfinite(found)
        assert np.all(np.abs(found - expected)[known] <= TOLERANCE * (1 + np.abs(expected[known])))
    lost = (shapes.lost | shapes.constant).mean()
    assert lost <= most_lost
    assert lost == 1 or offset < 1e4, "of features this far out, a kurtosis from sums is noise"
    assert np.array_equal(np.isnan(shapes.skewness), shapes.lost | shapes.constant)


@pytest.mark.parametrize("offset", [0.0, 10.0, 300.0, 2e3])
@pytest.mark.parametrize("form", [None, FixedPoint(norm_bound=8e3, max_samples=2000)])
def test_the_error_bound_is_not_exceeded(
    offset: float, form: FixedPoint | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedmoments.core.diagnostics.shapes.TOLERANCE", 0.3)
    X, y = draw(5)
    shapes = coordinate_shapes(measured(X + offset, y, fixed_point=form))
    for found, expected in zip((shapes.skewness, shapes.kurtosis), referee(X, y), strict=True):
        with np.errstate(invalid="ignore"):
            exceeded = np.abs(found - expected) > 2 * shapes.errors * (1 + np.abs(expected))
        assert not exceeded.any()


def test_a_coarse_fixed_point_is_told_from_a_fine_one() -> None:
    X, y = draw(6)
    X = X / np.linalg.norm(X, axis=1, keepdims=True)
    coarse = gaussianity(measured(X, y, fixed_point=FixedPoint(norm_bound=1024.0, max_samples=2**24)))
    fine = gaussianity(measured(X, y, fixed_point=FixedPoint(norm_bound=1.0, max_samples=1000)))
    assert coarse.coordinates < 0.2 * fine.coordinates
    assert coarse.lost + coarse.constant > 0.8 * 33
    assert (fine.lost, fine.constant) == (0, 0)
    assert fine.kurtosis.median == pytest.approx(gaussianity(measured(X, y)).kurtosis.median, rel=1e-4)


def test_coordinates_that_do_not_vary_are_left_out_and_counted() -> None:
    X, y = draw(7)
    X[:, 0] = 0.0
    X[:, 1] = 1234.567
    X[y == 2, 2] = -3.0
    found = gaussianity(measured(X, y))
    assert (found.constant, found.lost, found.coordinates) == (7, 0, 33 - 7)
    varying = gaussianity(measured(X[:, 3:], y))
    assert found.skewness.by_class[2, 0] == pytest.approx(varying.skewness.by_class[2, 0])


@pytest.mark.parametrize("n", [1, 2, 3])
def test_classes_of_fewer_than_four_samples_are_left_out_and_counted(n: int) -> None:
    X, y = draw(8)
    few = np.concatenate([np.flatnonzero(y != 1), np.flatnonzero(y == 1)[:n]])
    found = gaussianity(measured(X[few], y[few]))
    assert (found.too_few, found.coordinates) == (1, 22)
    assert np.isnan(found.kurtosis.by_class[1]).all()


@pytest.mark.parametrize("n", [20, 60, 400])
def test_gaussian_samples_show_about_what_chance_is_said_to_show(n: int) -> None:
    X = np.random.default_rng(9).normal(size=(4 * n, 300))
    found = gaussianity(measured(X, np.repeat(np.arange(4), n)))
    assert found.skewness.mean == pytest.approx(found.skewness.by_chance, rel=0.06)
    assert found.kurtosis.mean == pytest.approx(found.kurtosis.by_chance, rel=0.06)


def test_nothing_known_is_no_number_and_no_error() -> None:
    found = gaussianity(measured(np.ones((5, 3)), np.zeros(5, int)))
    assert (found.coordinates, found.constant) == (0, 3)
    assert np.isnan(found.skewness.mean)


def test_two_moments_do_not_suffice() -> None:
    X, y = draw(0)
    with pytest.raises(MissingMomentError, match="class_thirds"):
        gaussianity(Statistics.of(X, y, StatisticsSpec.of("class_squares"), n_classes=4))
