"""Laws of products in float32: off by no more than the bound says, however far features lie from the origin."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import fedmoments as fm
from fedmoments.core.floats import BLOCK, add_samples, current_precision
from fedmoments.core.linalg import new_gram, symmetrize_upper
from fedmoments.errors import UnknownNameError

Floats = NDArray[np.float64]
UNIT = 2.0**-24


def exact_gram(X: NDArray[Any]) -> NDArray[np.longdouble]:
    """The naive referee: products in eighty bits."""
    wide = X.astype(np.longdouble)
    return np.asarray(wide.T @ wide)


def bound_of(X: NDArray[Any]) -> Floats:
    """The law's bound for every entry, and what float64 itself may lose."""
    bound = np.zeros((X.shape[1], X.shape[1]))
    for start in range(0, len(X), BLOCK):
        rows = X[start : start + BLOCK].astype(np.float64)
        away = np.abs(rows - rows.mean(axis=0)) + 2 * UNIT * np.abs(rows.mean(axis=0))
        bound += away.T @ away
    wide = np.abs(X).astype(np.float64)
    return np.asarray((BLOCK + 4) * UNIT * bound + len(X) * 2.0**-50 * (wide.T @ wide))


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(1, 5000),
    dim=st.integers(1, 6),
    offset=st.sampled_from([0.0, 1.0, -1000.0, 1e6]),
    kind=st.sampled_from([np.float32, np.float64]),
    seed=st.integers(0, 2**20),
)
def test_a_gram_in_float32_is_within_the_bound(n: int, dim: int, offset: float, kind: Any, seed: int) -> None:
    X = (np.random.default_rng(seed).standard_normal((n, dim)) + offset).astype(kind)
    out = new_gram(dim)
    with fm.precision("float32"):
        add_samples(out, X)
    assert (np.abs(symmetrize_upper(out) - exact_gram(X)) <= bound_of(X)).all()


def drawn(offset: float, n: int = 6000, dim: int = 24, classes: int = 5) -> tuple[NDArray[Any], NDArray[Any]]:
    rng = np.random.default_rng(1)
    y = rng.integers(classes, size=n)
    return rng.standard_normal((n, dim)) + 2.0 * rng.standard_normal((classes, dim))[y] + offset, y


@pytest.mark.parametrize("offset", [0.0, 1000.0])
@pytest.mark.parametrize("head", ["gh-lda", "fed3r", "gh-qda", "fedcof"])
def test_classifiers_of_both_precisions_agree_at_any_offset(head: str, offset: float) -> None:
    """float32 without centring gives eigenvalues below zero at 1000: 2⁻²⁴ of a million is 0.06."""
    X, y = drawn(offset)
    clients = np.arange(len(X)) % 60
    hyper: dict[str, Any] = {"ridge": "absolute:1", "intercept": True} if head == "fed3r" else {}
    made = fm.make_head(head, **hyper)

    def scores() -> Floats:
        ledger = fm.Ledger.of(X, y, clients, made.needs, n_classes=5, fold=True)
        return np.asarray(fm.fit(made, ledger).scores(X[:500]))

    wide = scores()
    with fm.precision("float32"):
        single = scores()
    assert not np.array_equal(wide, single)
    assert np.abs(wide - single).max() <= 2e-4 * np.abs(wide - wide.mean(axis=1, keepdims=True)).max()


def test_scatter_inside_classes_stays_definite_far_from_the_origin() -> None:
    X, y = drawn(1000.0)
    with fm.precision("float32"):
        stats = fm.Statistics.of(X, y, fm.spec_for("gh-lda"), n_classes=5)
    covariance = fm.ClassGaussians(stats).pooled_covariance("none")
    exact = fm.ClassGaussians(fm.Statistics.of(X - 1000.0, y, stats.spec, n_classes=5)).pooled_covariance("none")
    assert np.abs(covariance - exact).max() < 1e-5
    assert np.linalg.eigvalsh(covariance)[0] == pytest.approx(np.linalg.eigvalsh(exact)[0], rel=1e-4)


def test_all_but_large_products_stays_as_it_is() -> None:
    X, y = drawn(3.0)
    spec = fm.StatisticsSpec.of("class_squares", "client_means")
    with fm.precision("float32"):
        single = fm.Statistics.of(X.astype(np.float32), y, spec, n_classes=5)
    assert single == fm.Statistics.of(X.astype(np.float32), y, spec, n_classes=5)


def test_fixed_point_is_exact_whatever_the_precision() -> None:
    X, y = drawn(0.0, n=500)
    form = fm.FixedPoint(norm_bound=64.0, max_samples=10_000)

    def shard() -> fm.Statistics:
        made = fm.Accumulator(fm.spec_for("gh-lda"), n_classes=5, dim=24, fixed_point=form)
        return made.update(X, y).statistics()

    exact = shard()
    with fm.precision("float32"):
        assert shard() == exact


def test_a_fit_of_one_precision_is_not_taken_for_one_of_another() -> None:
    X, y = drawn(0.0)
    stats = fm.Ledger.of(X, y, np.arange(len(X)) % 60, fm.spec_for("fedcof"), n_classes=5).statistics()
    with fm.precision("float32"):
        single = fm.fit("fedcof", stats)
    wide = fm.fit("fedcof", stats)
    fresh = fm.Ledger.of(X, y, np.arange(len(X)) % 60, fm.spec_for("fedcof"), n_classes=5).statistics()
    assert wide.digest() == fm.fit("fedcof", fresh).digest() != single.digest()


def test_the_precision_ends_with_its_block() -> None:
    def fails() -> None:
        with fm.precision("float32"):
            raise ZeroDivisionError

    refused: Callable[[], None] = fails
    with pytest.raises(ZeroDivisionError):
        refused()
    assert current_precision() == "float64"
    with pytest.raises(UnknownNameError, match="unknown precision 'half'"), fm.precision("half"):
        pass
