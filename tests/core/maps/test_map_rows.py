"""Normalise, clip and offset."""

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedmoments.core.maps import Clip, Normalize, Offset

Array = npt.NDArray[np.float64]
ANY_FINITE = hnp.arrays(
    np.float64,
    st.tuples(st.integers(1, 4), st.integers(1, 5)),
    elements=st.floats(allow_nan=False, allow_infinity=False),
)
RADII = st.floats(1e-200, 1e200)


def safe_norms(X: Array) -> Array:
    return np.array([float(np.hypot.reduce(row)) for row in X])


@given(ANY_FINITE)
def test_normalised_rows_have_norm_one_or_are_zero(X: Array) -> None:
    norms = safe_norms(Normalize()(X))
    np.testing.assert_allclose(norms, np.any(X != 0, axis=1).astype(float), rtol=1e-14)


@given(ANY_FINITE)
def test_normalise_is_idempotent(X: Array) -> None:
    once = Normalize()(X)
    np.testing.assert_allclose(Normalize()(once), once, rtol=1e-14, atol=1e-300)


def test_normalise_ignores_scale() -> None:
    X = np.random.default_rng(0).normal(size=(5, 4))
    for scale in (1e-300, 1e-10, 7.0, 1e300):
        np.testing.assert_allclose(Normalize()(scale * X), Normalize()(X), rtol=1e-13)


@given(ANY_FINITE, RADII)
def test_clip_is_idempotent_bit_for_bit(X: Array, radius: float) -> None:
    once = Clip(radius)(X)
    np.testing.assert_array_equal(Clip(radius)(once), once)


@given(ANY_FINITE, RADII)
def test_clipped_rows_are_within_and_keep_their_direction(X: Array, radius: float) -> None:
    clipped = Clip(radius)(X)
    assert (safe_norms(clipped) <= radius * (1 + 1e-15)).all()
    np.testing.assert_allclose(Normalize()(clipped), Normalize()(X), rtol=1e-12, atol=1e-100)


@given(ANY_FINITE, RADII)
def test_rows_within_stay_bit_identical_and_rows_outside_reach_the_sphere(X: Array, radius: float) -> None:
    with np.errstate(over="ignore"):
        norms = safe_norms(X)
    clipped = Clip(radius)(X)
    within = norms < radius * (1 - 1e-14)
    outside = norms > radius * (1 + 1e-14)
    assert X[within].tobytes() == clipped[within].tobytes()
    np.testing.assert_allclose(safe_norms(clipped[outside]), radius, rtol=1e-13)


@pytest.mark.parametrize("d", [3, 384, 1280])
def test_the_exact_norm_of_a_clipped_row_is_never_above_the_bound(d: int) -> None:
    from fractions import Fraction

    X = np.random.default_rng(d).normal(size=(20, d)) * 100
    for row in Clip(0.7)(X):
        assert sum(Fraction(float(x)) ** 2 for x in row) <= Fraction(0.7) ** 2


def test_clip_of_nothing_outside_is_the_input_itself() -> None:
    X = np.ones((3, 2))
    assert Clip(2.0)(X) is X


def test_offset_subtracts_and_its_negative_restores() -> None:
    X = np.random.default_rng(0).integers(-100, 100, size=(5, 3)).astype(float)
    vector = np.array([1.0, -2.0, 4.0])
    np.testing.assert_array_equal(Offset(vector)(X), X - vector)
    np.testing.assert_array_equal((Offset(vector) | Offset(-vector))(X), X)


def test_offset_keeps_a_covariance_from_cancelling() -> None:
    rng = np.random.default_rng(0)
    X = 1e8 + rng.normal(size=(1000, 2))
    expected = np.cov(X.T)

    def from_moments(Z: Array) -> Array:
        mean = Z.mean(axis=0)
        result: Array = (Z.T @ Z - len(Z) * np.outer(mean, mean)) / (len(Z) - 1)
        return result

    np.testing.assert_allclose(from_moments(Offset([1e8, 1e8])(X)), expected, rtol=1e-6, atol=1e-8)
    assert not np.allclose(from_moments(X), expected, rtol=1e-6)
