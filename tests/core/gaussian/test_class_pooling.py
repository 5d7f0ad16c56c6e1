"""Pooling of class covariances: each kind is its formula, against matrices written out."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.linalg import sqrtm

from fedmoments.core.gaussian import ClassGaussians, FisherSubspace, Pooling
from fedmoments.core.gaussian.equality import CovarianceEquality
from fedmoments.core.gaussian.graded import OUTSIDE, graded_class_covariances
from fedmoments.core.gaussian.pooling import PooledClasses, fisher_class_covariances
from fedmoments.core.gaussian.whitening import class_whiteners, log_determinants
from fedmoments.core.statistics import Ledger, Statistics, StatisticsSpec
from fedmoments.errors import InputError, NotEnoughDataError

Floats = NDArray[np.float64]

C, D = 4, 6
SOURCES = ["exact", "diagonal", "spherical", "free"]
SHRINKAGES = ["automatic", "none", 0.25, "relative:0.5", "blend:0.1"]
POOLINGS = ["automatic", "none", "blend:0.3", "friedman:0.4", "borrow:7", 2.5]


def draw(seed: int = 0, scale: float = 1.0) -> Statistics:
    """Return four classes of unequal size and covariance over nine clients; class 3 has one sample, class 4 none."""
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(C), [40, 25, 12, 1])
    mixing = rng.normal(size=(C, D, D)) / 3 + np.eye(D)
    X = 3 * rng.normal(size=(C, D))[y] + np.einsum("nd,nde->ne", rng.normal(size=(len(y), D)), mixing[y])
    holders = rng.integers(0, 9, len(y))
    spec = StatisticsSpec.of("class_grams", "client_means")
    return Ledger.of(scale * X, y, holders, spec, n_classes=C + 1).statistics()


STATS = draw()


# -------------------------------------------------------------------------------------------------- words


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("automatic", Pooling()),
        ("auto", Pooling()),
        ("none", Pooling("none")),
        (1, Pooling("borrow", 1.0)),
        ("2.5", Pooling("borrow", 2.5)),
        ("borrow:1e3", Pooling("borrow", 1000.0)),
        ("friedman:0.5", Pooling("friedman", 0.5)),
        ("blend:1", Pooling("blend", 1.0)),
        (Pooling("blend", 0.5), Pooling("blend", 0.5)),
    ],
)
def test_words_and_numbers_are_parsed(text: Any, expected: Pooling) -> None:
    assert Pooling.parse(text) == expected
    assert Pooling.parse(str(expected)) == expected


@pytest.mark.parametrize(
    "text", ["half", "friedman:", "friedman:1.5", "blend:-0.1", -1.0, "borrow:nan", "inf", "none:3", "automatic:1", ""]
)
def test_what_is_no_pooling_is_refused(text: Any) -> None:
    with pytest.raises(InputError, match=r"pooling is one of automatic, none, blend:w, friedman:λ .* arrived"):
        Pooling.parse(text)


# -------------------------------------------------------------------------------------------------- shares

dofs = st.lists(st.integers(0, 500), min_size=1, max_size=8).map(lambda values: np.array(values, float))


@given(dofs, st.integers(1, 300), st.floats(0.0, 1.0), st.floats(0.0, 1e4))
def test_each_share_is_its_formula_and_one_without_a_covariance(
    dof: Floats, dim: int, amount: float, kappa: float
) -> None:

    def expected(share: Callable[[float], float]) -> Floats:
        return np.array([share(value) if value > 0 else 1.0 for value in dof])

    total = dof.sum()
    for pooling, share in (
        (Pooling("none"), lambda _: 0.0),
        (Pooling("blend", amount), lambda _: amount),
        (Pooling("borrow", kappa), lambda value: kappa / (value + kappa)),
        (Pooling("friedman", amount), lambda value: amount * total / ((1 - amount) * value + amount * total)),
        (Pooling(), lambda value: (dim + value) / (dim + 2 * value)),
    ):
        shares = pooling.shares(dof, dim=dim)
        np.testing.assert_allclose(shares, expected(share), rtol=1e-12, atol=1e-300)
        assert (shares >= 0).all()
        assert (shares <= 1 + 1e-12).all()


def test_automatic_is_half_or_more_and_more_where_samples_are_few() -> None:
    shares = [float(Pooling().shares(np.full(3, dof), dim=20)[0]) for dof in (1e6, 1000.0, 100.0, 10.0, 1.0)]
    assert shares == sorted(shares)
    assert 0.5 < shares[0] < 0.501
    assert shares[-1] > 0.95


def test_friedmans_covariance_is_the_ratio_of_blended_scatters() -> None:
    gaussians = ClassGaussians(STATS)
    classes = {label: (dof * own, dof) for label, own, dof in gaussians.class_covariances()}
    total, nu = sum(S for S, _ in classes.values()), sum(dof for _, dof in classes.values())
    for amount in (0.0, 0.3, 0.9, 1.0):
        pooled = PooledClasses.of(gaussians, Pooling("friedman", amount), "none")
        for label, covariance, add in pooled.covariances():
            scatter, dof = classes[label]
            if dof > 0:
                expected = ((1 - amount) * scatter + amount * total) / ((1 - amount) * dof + amount * nu)
                np.testing.assert_allclose(covariance, expected, rtol=1e-9, atol=1e-12)
            else:
                np.testing.assert_allclose(covariance, total / nu, rtol=1e-9, atol=1e-12)
            assert add == 0.0


def test_borrowed_degrees_of_freedom_are_those_of_the_pooled_covariance() -> None:
    gaussians = ClassGaussians(STATS, "free")
    shared = gaussians.pooled_covariance("none")
    own = {label: (covariance, dof) for label, covariance, dof in gaussians.class_covariances()}
    for label, covariance, _ in PooledClasses.of(gaussians, 5.0, "none").covariances():
        mine, dof = own[label]
        np.testing.assert_allclose(covariance, (dof * mine + 5 * shared) / (dof + 5), rtol=1e-9, atol=1e-12)


# -------------------------------------------------------------------------------------------------- the full space


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("shrinkage", SHRINKAGES)
def test_no_pooling_is_the_class_covariance_and_all_pooling_that_of_lda(source: str, shrinkage: Any) -> None:
    gaussians = ClassGaussians(STATS, source)
    _, dof = gaussians.class_variances()
    for label, covariance, add in PooledClasses.of(gaussians, "none", shrinkage).covariances():
        if dof[label] > 0:
            own = next(S for each, S, _ in gaussians.class_covariances() if each == label)
            keep, expected = gaussians.class_shrinkage(shrinkage, float(np.trace(own)))
            np.testing.assert_allclose(covariance, keep * own, rtol=1e-12, atol=1e-14)
            assert add == pytest.approx(expected)
    lda = gaussians.pooled_covariance(shrinkage)
    for pooling in ("blend:1", "friedman:1"):
        for _, covariance, add in PooledClasses.of(gaussians, pooling, shrinkage).covariances():
            np.testing.assert_allclose(covariance + add * np.eye(D), lda, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("shrinkage", ["automatic", "none", 0.25, "relative:0.5"])
@pytest.mark.parametrize("pooling", POOLINGS)
def test_every_class_is_shrunk_by_the_same_amount(pooling: Any, shrinkage: Any) -> None:
    amounts = {add for _, _, add in PooledClasses.of(ClassGaussians(STATS), pooling, shrinkage).covariances()}
    assert len(amounts) == 1


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("pooling", POOLINGS)
def test_pooled_covariances_scale_with_the_squared_unit_of_features(source: str, pooling: Any) -> None:
    small, large = ClassGaussians(STATS, source), ClassGaussians(draw(scale=64.0), source)
    pairs = zip(
        PooledClasses.of(small, pooling, "automatic").covariances(),
        PooledClasses.of(large, pooling, "automatic").covariances(),
        strict=True,
    )
    for (_, ours, add), (_, theirs, added) in pairs:
        np.testing.assert_allclose(4096 * ours, theirs, rtol=1e-9, atol=1e-9)
        assert added == pytest.approx(4096 * add)


def test_classes_without_samples_are_not_yielded() -> None:
    labels = [label for label, _, _ in PooledClasses.of(ClassGaussians(STATS), "automatic", "automatic").covariances()]
    assert labels == [0, 1, 2, 3]
    assert [label for label, _ in graded_class_covariances(ClassGaussians(STATS))] == [0, 1, 2, 3]


# -------------------------------------------------------------------------------------------------- the Fisher subspace


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("shrinkage", SHRINKAGES)
@pytest.mark.parametrize("pooling", POOLINGS)
def test_covariances_in_the_fisher_subspace_are_projected(source: str, shrinkage: Any, pooling: Any) -> None:
    gaussians = ClassGaussians(STATS, source)
    fisher = FisherSubspace.of(gaussians, shrinkage=shrinkage)
    inside = fisher_class_covariances(gaussians, fisher, pooling, shrinkage)
    _, dof = gaussians.class_variances()
    shares = Pooling.parse(pooling).shares(dof, dim=fisher.dim)
    # What shrinkage does to the pooled covariance, found by comparing it with the one that was not shrunk.
    plain, shrunk = gaussians.pooled_covariance("none"), gaussians.pooled_covariance(shrinkage)
    keep = 0.9 if shrinkage == "blend:0.1" else 1.0
    add = float(np.trace(shrunk - keep * plain)) / D
    for label, own, _ in gaussians.class_covariances():
        blended = (1 - shares[label]) * (keep * own + add * np.eye(D)) + shares[label] * shrunk
        expected = fisher.basis.T @ blended @ fisher.basis
        np.testing.assert_allclose(inside[label], expected, rtol=1e-7, atol=1e-9)
    np.testing.assert_array_equal(inside[C], np.eye(fisher.dim))
    if pooling != "automatic":  # which counts one dimension for variances
        variances = fisher_class_covariances(gaussians, fisher, pooling, shrinkage, diagonal=True)
        np.testing.assert_allclose(variances, np.diagonal(inside, axis1=1, axis2=2), rtol=1e-12)


# -------------------------------------------------------------------------------------------------- graded


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("shrinkage", SHRINKAGES)
def test_graded_covariances_scale_the_deviation_in_whitened_coordinates(source: str, shrinkage: Any) -> None:
    gaussians = ClassGaussians(STATS, source)
    plain, shrunk = gaussians.pooled_covariance("none"), gaussians.pooled_covariance(shrinkage)
    keep = 0.9 if shrinkage == "blend:0.1" else 1.0
    root = np.real(sqrtm(shrunk))
    inverse = np.linalg.inv(root)
    fisher = FisherSubspace.of(gaussians, shrinkage=shrinkage, directions="all")
    directions = root @ fisher.basis
    np.testing.assert_allclose(directions.T @ directions, np.eye(fisher.dim), atol=1e-8)
    _, dof = gaussians.class_variances()
    share = Pooling().shares(dof, dim=fisher.dim)
    inside = directions @ directions.T
    outside = np.sqrt(OUTSIDE / np.sqrt(D - fisher.dim)) * (np.eye(D) - inside)
    own = {label: covariance for label, covariance, _ in gaussians.class_covariances()}
    for label, graded in graded_class_covariances(gaussians, shrinkage):
        deviation = keep * (own[label] - plain) if dof[label] > 0 else np.zeros((D, D))
        factors = np.sqrt(1 - share[label]) * inside + outside
        expected = root @ (np.eye(D) + factors @ inverse @ deviation @ inverse @ factors) @ root
        np.testing.assert_allclose(graded, expected, rtol=1e-7, atol=1e-8)
        assert np.linalg.eigvalsh(graded).min() > 0
    assert fisher.dim == C - 1


def test_in_the_fisher_subspace_graded_is_automatic_pooling() -> None:
    gaussians = ClassGaussians(STATS)
    fisher = FisherSubspace.of(gaussians, directions="all")
    inside = fisher_class_covariances(gaussians, fisher, "automatic")
    for label, graded in graded_class_covariances(gaussians):
        np.testing.assert_allclose(fisher.covariance(graded), inside[label], rtol=1e-8, atol=1e-9)


def test_graded_covariances_of_one_class_are_nearly_the_pooled_one() -> None:
    X = np.random.default_rng(0).normal(size=(30, D))
    gaussians = ClassGaussians(Statistics.of(X, [1] * 30, StatisticsSpec.of("class_grams"), n_classes=3))
    ((label, graded),) = graded_class_covariances(gaussians)
    assert label == 1
    np.testing.assert_allclose(graded, gaussians.pooled_covariance("automatic"), rtol=1e-9, atol=1e-12)


# -------------------------------------------------------------------------------------------------- whiteners


def test_whiteners_whiten_and_tell_of_singular_covariances() -> None:
    covariances = [(label, covariance) for label, covariance in graded_class_covariances(ClassGaussians(STATS))]
    whiteners = class_whiteners(STATS, covariances, D)
    log_precision = log_determinants(whiteners, STATS.counts > 0)
    for label, covariance in covariances:
        np.testing.assert_allclose(whiteners[label] @ covariance @ whiteners[label].T, np.eye(D), atol=1e-9)
        assert log_precision[label] == pytest.approx(-0.5 * np.linalg.slogdet(covariance)[1])
        assert np.array_equal(whiteners[label], np.tril(whiteners[label]))
    assert not whiteners[C].any()
    with pytest.raises(NotEnoughDataError, match=r"covariance of class 2 \(12 samples, 6 dimensions\) is singular"):
        class_whiteners(STATS, [(2, np.zeros((D, D)))], D)


# -------------------------------------------------------------------------------------------------- equality


def compare(X: Floats, y: NDArray[np.int64]) -> CovarianceEquality:
    gaussians = ClassGaussians(Statistics.of(X, y, StatisticsSpec.of("class_grams"), n_classes=int(y.max()) + 1))
    classes = [(own, dof) for _, own, dof in gaussians.class_covariances()]
    return CovarianceEquality.of(classes, gaussians.pooled_covariance("none"))


@pytest.mark.parametrize(("n_classes", "dim", "n"), [(2, 1, 30), (3, 5, 12), (8, 10, 6), (5, 40, 9)])
def test_equal_covariances_differ_as_much_as_chance_says(n_classes: int, dim: int, n: int) -> None:
    rng = np.random.default_rng(5)
    y = np.repeat(np.arange(n_classes), n + 3 * np.arange(n_classes))
    spread = np.geomspace(1.0, 0.1, dim)
    found = [compare(rng.normal(size=(len(y), dim)) * spread, y) for _ in range(200)]
    ratios, chances = np.array([each.ratio for each in found]), np.array([each.chance for each in found])
    assert abs(ratios.mean() - 1.0) < 4 * ratios.std() / np.sqrt(200)
    assert 0.01 < (chances < 0.05).mean() < 0.12
    assert (chances < 1e-3).mean() < 0.03


def test_different_covariances_are_told_from_equal_ones() -> None:
    rng = np.random.default_rng(6)
    y = np.repeat([0, 1], 60)
    X = rng.normal(size=(120, 8)) * np.where(y == 0, 1.0, 1.6)[:, None]
    found = compare(X, y)
    assert found.chance < 1e-4
    assert found.ratio > 2


def test_equality_does_not_depend_on_units_or_rotations() -> None:
    rng = np.random.default_rng(7)
    y = rng.integers(0, 4, 100)
    X = rng.normal(size=(100, 6)) * (1 + 0.2 * y[:, None])
    rotation, _ = np.linalg.qr(rng.normal(size=(6, 6)))
    plain = compare(X, y)
    for other in (1e-3 * X, X @ rotation, X + 10):
        assert compare(other, y).ratio == pytest.approx(plain.ratio, rel=1e-8)
        assert compare(other, y).chance == pytest.approx(plain.chance, rel=1e-6)


def test_too_little_to_compare_is_no_difference() -> None:
    assert CovarianceEquality.of([(np.eye(2), 5.0), (np.ones((2, 2)), 0.0)], np.eye(2)).chance == 1.0
    assert CovarianceEquality.of([(np.zeros((2, 2)), 5.0)] * 2, np.zeros((2, 2))).chance == 1.0
