"""Every caution is given when there is a reason, names the classes, says what to do, and is silent otherwise."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from fedmoments.core.diagnostics import NEEDS, Caution, Diagnostics, diagnose
from fedmoments.core.statistics import FixedPoint, Ledger, StatisticsSpec
from fedmoments.errors import FitWarning

Array = npt.NDArray[Any]
Change = Callable[[Array, Array, Array], tuple[Array, Array, Array]]


def sound(seed: int = 0, n: int = 3000, d: int = 6) -> tuple[Array, Array, Array]:
    """Features, labels and clients that give no reason for any caution."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 4, size=n)
    return rng.normal(size=(n, d)) + 4 * np.eye(4, d)[y], y, rng.integers(0, 30, size=n)


def found(X: Array, y: Array, clients: Array, **options: Any) -> Diagnostics:
    return diagnose(Ledger.of(X, y, clients, NEEDS, n_classes=4, **options))


def caution_of(diagnostics: Diagnostics, kind: str) -> Caution:
    (caution,) = [caution for caution in diagnostics.cautions if caution.kind == kind]
    return caution


@pytest.mark.parametrize("seed", range(5))
def test_gaussian_classes_everywhere_alike_give_no_caution(seed: int) -> None:
    assert found(*sound(seed)).cautions == ()


@pytest.mark.parametrize("seed", range(5))
def test_few_clients_without_shift_are_not_taken_for_shift(seed: int) -> None:
    X, y, _ = sound(seed)
    few = found(X, y, np.random.default_rng(seed).integers(0, 3, size=len(y)))
    assert "feature-shift" not in [caution.kind for caution in few.cautions]


def empty(X: Array, y: Array, k: Array) -> tuple[Array, Array, Array]:
    return X[y != 2], y[y != 2], k[y != 2]


def one_client(X: Array, y: Array, k: Array) -> tuple[Array, Array, Array]:
    return X, y, np.where(y == 2, 0, k)


def single(X: Array, y: Array, k: Array) -> tuple[Array, Array, Array]:
    mine = np.flatnonzero(y == 2)[:5]
    k = k.copy()
    k[mine] = 100 + np.arange(5)
    return X, y, k


def few(X: Array, y: Array, k: Array) -> tuple[Array, Array, Array]:
    keep = np.concatenate([np.flatnonzero(y != 2), np.flatnonzero(y == 2)[:6]])
    return X[keep], y[keep], k[keep]


def heavy(X: Array, y: Array, k: Array) -> tuple[Array, Array, Array]:
    mean = 4 * np.eye(4, X.shape[1])[2]
    return np.where((y == 2)[:, None], mean + np.sign(X - mean) * np.abs(X - mean) ** 3 / 4, X), y, k


def shifted(X: Array, y: Array, k: Array) -> tuple[Array, Array, Array]:
    return X + np.where(y == 2, 2.0 * (k % 2), 0.0)[:, None], y, k


def duplicate(X: Array, y: Array, k: Array) -> tuple[Array, Array, Array]:
    return X - 4 * np.eye(4, X.shape[1])[2] * (y == 2)[:, None] + 4 * np.eye(4, X.shape[1])[0] * (y == 2)[:, None], y, k


@pytest.mark.parametrize(
    ("change", "kind", "figure", "words"),
    [
        (empty, "empty-class", 0.0, "can never be predicted"),
        (one_client, "one-client", None, "shrinkage alone"),
        (single, "single-sample", 5.0, "5 of 125 client means (4 %)"),
        (few, "few-samples", 6.0, "fewer samples than there are dimensions (6; the fewest: 6)"),
        (heavy, "heavy-tails", None, "excess kurtosis beyond 3"),
        (shifted, "feature-shift", None, "differ from client to client"),
    ],
)
def test_a_class_in_trouble_is_named(change: Change, kind: str, figure: float | None, words: str) -> None:
    caution = caution_of(found(*change(*sound())), kind)
    assert caution.classes == (2,)
    assert words in caution.what
    assert caution.advice.endswith(".")
    assert figure is None or caution.figures == (figure,)
    assert caution.partners == ()


def test_near_duplicates_are_named_as_a_pair() -> None:
    caution = caution_of(found(*duplicate(*sound())), "near-duplicates")
    assert (caution.classes, caution.partners) == ((0,), (2,))
    assert caution.figures[0] < 1
    assert "1 pair of classes is closer" in caution.what


def test_shift_in_all_classes_is_told_by_its_size() -> None:
    X, y, k = sound()
    caution = caution_of(found(X + 2.0 * (k % 2)[:, None], y, k), "feature-shift")
    assert set(caution.classes) == {0, 1, 2, 3}
    assert "times as large as the exact one over all classes" in caution.what
    assert list(caution.figures) == sorted(caution.figures, reverse=True)


def test_fewer_samples_than_dimensions_make_the_covariance_singular() -> None:
    X, y, k = sound(n=60, d=80)
    caution = caution_of(found(X, y, k), "singular")
    assert "exact pooled covariance has rank 56 in 80 dimensions" in caution.what
    assert caution.classes == ()
    assert "fedcgs" in caution.advice


def test_few_clients_make_the_free_covariance_singular_and_it_is_told() -> None:
    X, y, k = sound(d=20)
    means = Ledger.of(X, y, k % 3, StatisticsSpec.of("client_means"), n_classes=4)
    for source in (found(X, y, k % 3), diagnose(means)):
        caution = caution_of(source, "singular")
        assert "The free pooled covariance has rank 8 in 20 dimensions: it is singular" in caution.what
        assert "--means-per-client" in caution.advice
        assert "fedcgs" not in caution.advice, "which needs the exact one"


def test_both_covariances_are_named_when_both_are_singular() -> None:
    X, y, k = sound(n=60, d=80)
    caution = caution_of(found(X, y, k % 3), "singular")
    assert "exact pooled covariance has rank 56 in 80 dimensions, and the free one 8: they are singular" in caution.what


def test_under_shift_the_advice_names_heads_that_stay_usable_and_those_that_do_not() -> None:
    X, y, k = sound()
    advice = caution_of(found(X + 2.0 * (k % 2)[:, None], y, k), "feature-shift").advice
    assert "fedcof and lda-free stay usable" in advice
    assert "qda-free and nb-free lose most" in advice


def test_lost_digits_are_told_with_a_remedy() -> None:
    X, y, k = sound()
    form = FixedPoint(norm_bound=1024.0, max_samples=2**24)
    with pytest.warns(FitWarning, match=r"rounding is .* norm_bound=1024"):
        caution = caution_of(found(X / 1000, y, k, fixed_point=form), "lost-digits")
    assert "norm bound" in caution.advice
    assert "lost-digits" in [c.kind for c in found(X + 1e4, y, k).cautions]


def test_the_worst_classes_come_first() -> None:
    X, y, k = sound()
    keep = np.concatenate([np.flatnonzero(y == c)[:n] for c, n in enumerate((6, 2, 4, 500))])
    caution = caution_of(found(X[keep], y[keep], k[keep]), "few-samples")
    assert (caution.classes, caution.figures) == ((1, 2, 0), (2.0, 4.0, 6.0))
