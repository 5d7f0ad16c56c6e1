"""Shrinkage: each kind is its formula."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedmoments.core.gaussian import ClassGaussians, Shrinkage
from fedmoments.core.statistics import Ledger, StatisticsSpec
from fedmoments.errors import InputError, NotEnoughDataError

positive = st.floats(1e-6, 1e6)


@given(positive, st.integers(1, 2000), st.floats(1.0, 1e6), st.floats(0.0, 1.0))
def test_each_kind_is_its_formula(trace: float, dim: int, dof: float, amount: float) -> None:
    def amounts(kind: str) -> tuple[float, float]:
        return Shrinkage(kind, 0.0 if kind in ("automatic", "none") else amount).amounts(trace=trace, dim=dim, dof=dof)

    assert amounts("none") == (1.0, 0.0)
    assert amounts("absolute") == (1.0, amount)
    assert amounts("relative") == (1.0, amount * trace / dim)
    assert amounts("automatic") == (1.0, 0.5 * trace / dof)
    assert amounts("blend") == (1.0 - amount, amount * trace / dim)


@pytest.mark.parametrize("source", ["exact", "diagonal", "spherical", "free"])
@pytest.mark.parametrize("shrinkage", ["automatic", "none", 0.25, "absolute:0.25", "relative:0.5", "blend:0.1"])
def test_pooled_covariance_is_shrunk_by_the_formula(source: str, shrinkage: Any) -> None:
    rng = np.random.default_rng(0)
    X, y, holders = rng.normal(size=(60, 4)), rng.integers(0, 3, 60), rng.integers(0, 6, 60)
    spec = StatisticsSpec.of("class_grams", "client_means")
    gaussians = ClassGaussians(Ledger.of(X, y, holders, spec, n_classes=3).statistics(), source)
    plain, scatter = gaussians.pooled_covariance("none"), gaussians.scatter
    trace, dof = (scatter.trace, scatter.dof) if source == "free" else (np.trace(plain), 57.0)
    keep, add = {
        "automatic": (1.0, 0.5 * trace / dof),
        "none": (1.0, 0.0),
        "relative:0.5": (1.0, 0.5 * trace / 4),
        "blend:0.1": (0.9, 0.1 * trace / 4),
    }.get(str(shrinkage), (1.0, 0.25))
    np.testing.assert_allclose(gaussians.pooled_covariance(shrinkage), keep * plain + add * np.eye(4), rtol=1e-12)


def test_blend_keeps_the_trace_of_an_exact_covariance() -> None:
    rng = np.random.default_rng(1)
    spec = StatisticsSpec.of("gram")
    gaussians = ClassGaussians(Ledger.of(rng.normal(size=(50, 3)), [0] * 50, [0] * 50, spec, n_classes=1).statistics())
    plain = gaussians.pooled_covariance("none")
    for alpha in (0.0, 0.3, 1.0):
        assert np.isclose(np.trace(gaussians.pooled_covariance(Shrinkage("blend", alpha))), np.trace(plain))
    np.testing.assert_allclose(gaussians.pooled_covariance("blend:1"), np.eye(3) * np.trace(plain) / 3, atol=1e-12)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("automatic", Shrinkage()),
        ("auto", Shrinkage()),
        ("none", Shrinkage("none")),
        (0.1, Shrinkage("absolute", 0.1)),
        (1, Shrinkage("absolute", 1.0)),
        ("0.1", Shrinkage("absolute", 0.1)),
        ("absolute:2", Shrinkage("absolute", 2.0)),
        ("relative:1e-3", Shrinkage("relative", 1e-3)),
        ("blend:0.05", Shrinkage("blend", 0.05)),
        (Shrinkage("blend", 0.5), Shrinkage("blend", 0.5)),
    ],
)
def test_words_and_numbers_are_parsed(text: Any, expected: Shrinkage) -> None:
    assert Shrinkage.parse(text) == expected
    assert Shrinkage.parse(str(expected)) == expected


@pytest.mark.parametrize(
    "text",
    ["much", "relative:", "relative:lots", -1.0, "absolute:-1", "blend:1.5", "relative:nan", "inf", "automatic:3", ""],
)
def test_what_is_no_shrinkage_is_refused(text: Any) -> None:
    with pytest.raises(InputError, match=r"shrinkage is one of automatic, none, absolute:γ"):
        Shrinkage.parse(text)


@pytest.mark.parametrize("kind", ["automatic", "relative:1", "blend:0.5"])
def test_scaled_kinds_need_a_spread_to_scale_with(kind: str) -> None:
    with pytest.raises(NotEnoughDataError, match=r"no class has two samples.*absolute shrinkage"):
        Shrinkage.parse(kind).amounts(trace=0.0, dim=3, dof=0.0)
    assert Shrinkage.parse(0.5).amounts(trace=0.0, dim=3, dof=0.0) == (1.0, 0.5)
