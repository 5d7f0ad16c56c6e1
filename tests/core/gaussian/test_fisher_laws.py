"""The Fisher subspace: its laws, a naive referee, and what it says when it is not defined."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.linalg import eigh

import fedmoments as fm
from fedmoments.core.gaussian import ClassGaussians, FisherSubspace
from fedmoments.core.gaussian.fisher import parse_directions
from fedmoments.core.statistics import Statistics, StatisticsSpec
from fedmoments.errors import FitWarning, InputError, NotEnoughDataError

Floats = NDArray[np.floating[Any]]
BOTH = StatisticsSpec.of("gram", "client_means")


def federation(
    n_classes: int = 5, dim: int = 8, seed: int = 0, n: int = 300, clients: int = 20, scale: float = 1.0
) -> tuple[Floats, NDArray[np.int64], Statistics]:
    """Return features around class means with one covariance for all, labels, and statistics of many clients."""
    rng = np.random.default_rng(seed)
    mixing = rng.normal(size=(dim, dim))
    y = rng.integers(0, n_classes, n)
    X = scale * (2.0 * rng.normal(size=(n_classes, dim))[y] + rng.normal(size=(n, dim)) @ mixing)
    holders = rng.integers(0, clients, n)
    parts = [Statistics.of(X[holders == k], y[holders == k], BOTH, n_classes=n_classes) for k in range(clients)]
    return X, y, Statistics.merge(parts)


def scores_in(fisher: FisherSubspace, gaussians: ClassGaussians, X: Floats) -> Floats:
    """Return LDA's scores in the subspace, where the covariance is the identity."""
    bias = gaussians.log_priors - 0.5 * np.einsum("ck,ck->c", fisher.means, fisher.means)
    return np.asarray(fisher.project(X) @ fisher.means.T + bias)


def relative(scores: Floats) -> Floats:
    """Return scores less the first class's: what a sample adds to all classes changes no decision."""
    return np.asarray(scores - scores[:, :1])


@settings(max_examples=40, deadline=None)
@given(
    n_classes=st.integers(2, 9),
    dim=st.integers(1, 12),
    source=st.sampled_from(["exact", "free"]),
    seed=st.integers(0, 10**6),
    scale=st.sampled_from([1e-3, 1.0, 1e3]),
)
def test_law_lda_in_all_fisher_dimensions_is_lda_in_the_full_space(
    n_classes: int, dim: int, source: str, seed: int, scale: float
) -> None:
    X, _, stats = federation(n_classes, dim, seed, scale=scale)
    gaussians = ClassGaussians(stats, source)
    fisher = FisherSubspace.of(gaussians, directions="all")
    assert fisher.dim <= min(n_classes - 1, dim)
    full = fm.make_head("gh-lda", covariance=source).fit(stats).scores(X)
    np.testing.assert_allclose(relative(scores_in(fisher, gaussians, X)), relative(full), rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("source", ["exact", "free"])
@pytest.mark.parametrize(("n_classes", "dim"), [(4, 30), (12, 5)])
def test_the_small_eigenproblem_is_the_generalised_one(source: str, n_classes: int, dim: int) -> None:
    """The referee solves S_B v = λ S_W v in d dimensions."""
    _, _, stats = federation(n_classes, dim, n=500)
    gaussians = ClassGaussians(stats, source)
    within = gaussians.pooled_covariance("blend:0.05")
    centred = gaussians.means - gaussians.global_mean
    between = (centred * (gaussians.counts / stats.n_samples)[:, None]).T @ centred
    values, vectors = eigh(between, within)
    fisher = FisherSubspace.of(gaussians, shrinkage="blend:0.05", directions="all")
    rank = min(n_classes - 1, dim)
    np.testing.assert_allclose(fisher.eigenvalues, values[::-1][:rank], rtol=1e-8)
    np.testing.assert_allclose(fisher.covariance(within), np.eye(rank), atol=1e-9)
    np.testing.assert_allclose(fisher.covariance(between), np.diag(fisher.eigenvalues), atol=1e-8)
    overlap = np.abs(vectors[:, ::-1][:, :rank].T @ within @ fisher.basis)
    np.testing.assert_allclose(overlap, np.eye(rank), atol=1e-6)


def test_energy_and_numbers_of_directions_keep_the_leading_ones() -> None:
    _, _, stats = federation(7, 10)
    gaussians = ClassGaussians(stats)
    every = FisherSubspace.of(gaussians, directions="all")
    assert every.dim == len(every.eigenvalues) == 6
    assert (np.diff(every.eigenvalues) <= 0).all()
    assert every.energy[-1] == pytest.approx(1.0)
    for k in range(1, 7):
        some = FisherSubspace.of(gaussians, directions=k)
        np.testing.assert_allclose(some.basis, every.basis[:, :k], rtol=1e-12, atol=1e-12)
        share = float(every.energy[k - 1])
        assert FisherSubspace.of(gaussians, directions=f"energy:{share}").dim == k
    assert FisherSubspace.of(gaussians, directions=100).dim == 6
    assert FisherSubspace.of(gaussians, directions="automatic").energy[-1] == pytest.approx(1.0)


def test_an_empty_class_neither_moves_the_subspace_nor_has_a_mean_in_it() -> None:
    X, y, _ = federation(3, 4)
    spec = StatisticsSpec.of("gram")
    without = FisherSubspace.of(ClassGaussians(Statistics.of(X, y, spec, n_classes=3)), directions="all")
    holes = FisherSubspace.of(ClassGaussians(Statistics.of(X, 2 * y, spec, n_classes=6)), directions="all")
    np.testing.assert_allclose(holes.basis, without.basis, atol=1e-12)
    np.testing.assert_array_equal(holes.means[1::2], 0.0)


def test_a_class_far_away_hides_no_other() -> None:
    rng = np.random.default_rng(0)
    y = np.arange(600) % 4
    X = rng.normal(size=(600, 5)) + 4.0 * np.eye(4, 5)[y]
    X[y == 3] += 1e7
    stats = Statistics.of(X, y, StatisticsSpec.of("class_grams"), n_classes=4)
    with pytest.warns(FitWarning, match=r"rounding is .* % of the covariance"):
        assert FisherSubspace.of(ClassGaussians(stats), directions="all").dim == 3
    with pytest.warns(FitWarning, match=r"rounding is .* % of the covariance"):
        lda, fisher = (fm.make_head(name).fit(stats).predict(X) == y for name in ("gh-lda", "gh-qda-fisher"))
    assert fisher.mean() > lda.mean() - 0.01


def test_one_class_or_equal_means_leave_no_direction() -> None:
    X, y, _ = federation(1, 4)
    fisher = FisherSubspace.of(ClassGaussians(Statistics.of(X, y, StatisticsSpec.of("gram"), n_classes=1)))
    assert fisher.dim == 0
    assert fisher.project(X).shape == (len(X), 0)


@pytest.mark.parametrize("second", ["constant", "the first times a third"])
def test_a_singular_covariance_is_refused_with_advice(second: str) -> None:
    X, y, _ = federation(2, 3)
    X = np.column_stack([X, 0.0 * X[:, 0] if second == "constant" else X[:, 0] / 3.0])
    stats = Statistics.of(X, y, StatisticsSpec.of("gram"), n_classes=2)
    with pytest.raises(NotEnoughDataError, match=r"singular.*more shrinkage"):
        FisherSubspace.of(ClassGaussians(stats), shrinkage="none")


@pytest.mark.parametrize("wrong", [0, -3, "some", "energy:0", "energy:1.5", "energy:", "share:0.5", 0.5, "nan"])
def test_a_wrong_number_of_directions_is_refused(wrong: str | float) -> None:
    with pytest.raises(InputError, match="directions is automatic"):
        parse_directions(wrong)
