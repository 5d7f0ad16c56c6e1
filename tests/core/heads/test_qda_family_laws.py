"""Laws of the QDA family with pooling: where it meets LDA, naive Bayes and itself in other coordinates."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedmoments import fit
from fedmoments.core.classifier import DiagonalClassifier, QuadraticClassifier
from fedmoments.core.heads import make_head
from fedmoments.core.heads.lda import Lda
from fedmoments.core.heads.low_rank_qda import LowRankQda
from fedmoments.core.heads.naive_bayes import NaiveBayes
from fedmoments.core.heads.qda import Qda
from fedmoments.core.statistics import Ledger, Statistics, StatisticsSpec
from fedmoments.errors import InputError, NotEnoughDataError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

C, D = 5, 6
SPEC = StatisticsSpec.of("class_grams", "client_means")
SOURCES = ["exact", "diagonal", "free"]
SHRINKAGES = ["automatic", "none", 0.3, "relative:0.2", "blend:0.1"]
POOLINGS = ["none", "blend:0.4", "friedman:0.3", "borrow:9", 2.5]


def draw(seed: int = 0, *, n_classes: int = C, dim: int = D, n: int = 400) -> tuple[Floats, Ints]:
    """Return overlapping classes of unequal size, each with a covariance of its own."""
    rng = np.random.default_rng(seed)
    y = np.concatenate([np.repeat(np.arange(n_classes), 2 * dim), rng.integers(0, n_classes, n)])
    mixing = rng.normal(size=(n_classes, dim, dim)) / 3 + np.eye(dim)
    X = 2 * rng.normal(size=(n_classes, dim))[y] + np.einsum("nd,nde->ne", rng.normal(size=(len(y), dim)), mixing[y])
    return X + 1.0, y


def measure(X: Floats, y: Ints, *, n_classes: int = C, clients: int = 12) -> Statistics:
    holders = np.random.default_rng(9).integers(0, clients, len(y))
    return Ledger.of(X, y, holders, SPEC, n_classes=n_classes).statistics()


X, y = draw()
FRESH = 3 * np.random.default_rng(1).normal(size=(80, D)) + 1.0
STATS = measure(X, y)


def apart_from_a_constant(scores: Any) -> Floats:
    """Return scores without what is common to all classes of a sample, which decides nothing."""
    return np.asarray(scores - scores.mean(axis=1, keepdims=True))


def assert_same(ours: Any, theirs: Any, tolerance: float = 1e-8) -> None:
    np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance * max(1.0, float(np.abs(theirs).max())))


# -------------------------------------------------------------------------------------------------- Friedman's path


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("shrinkage", SHRINKAGES)
def test_friedman_zero_is_qda(source: str, shrinkage: Any) -> None:
    path = Qda(source, shrinkage, "friedman:0").fit(STATS).scores(FRESH)
    assert_same(path, Qda(source, shrinkage, "none").fit(STATS).scores(FRESH))


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("shrinkage", SHRINKAGES)
@pytest.mark.parametrize("pooling", ["friedman:1", "blend:1"])
def test_friedman_one_is_lda(source: str, shrinkage: Any, pooling: str) -> None:
    path = Qda(source, shrinkage, pooling).fit(STATS).scores(FRESH)
    lda = Lda(source, shrinkage).fit(STATS).scores(FRESH)
    assert_same(apart_from_a_constant(path), apart_from_a_constant(lda))
    half = Qda(source, shrinkage, "friedman:0.5").fit(STATS).scores(FRESH)
    assert not np.allclose(apart_from_a_constant(half), apart_from_a_constant(lda), rtol=1e-2)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("shrinkage", SHRINKAGES)
def test_endlessly_borrowing_is_lda(source: str, shrinkage: Any) -> None:
    lda = apart_from_a_constant(Lda(source, shrinkage).fit(STATS).scores(FRESH))
    errors = []
    for kappa in (1e2, 1e4, 1e6, 1e12):
        borrowed = apart_from_a_constant(Qda(source, shrinkage, kappa).fit(STATS).scores(FRESH))
        errors.append(np.abs(borrowed - lda).max() / np.abs(lda).max())
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 1e-8


@pytest.mark.parametrize("pooling", POOLINGS)
def test_qda_is_the_density_of_its_pooled_covariances(pooling: Any) -> None:
    scatters = [np.cov(X[y == c].T) * (np.sum(y == c) - 1) for c in range(C)]
    dofs = np.bincount(y) - 1.0
    total = sum(scatters)
    kind, _, amount = str(pooling).partition(":")
    expected = np.empty((len(FRESH), C))
    for c in range(C):
        if kind == "friedman":
            weight = float(amount)
            covariance = (1 - weight) * scatters[c] + weight * total
            covariance /= (1 - weight) * dofs[c] + weight * dofs.sum()
        elif kind in ("none", "blend"):
            weight = float(amount or 0.0)
            covariance = (1 - weight) * scatters[c] / dofs[c] + weight * total / dofs.sum()
        else:
            kappa = float(amount or kind)
            covariance = (scatters[c] + kappa * total / dofs.sum()) / (dofs[c] + kappa)
        covariance = covariance + 0.2 * np.eye(D)
        centred = FRESH - X[y == c].mean(axis=0)
        distances = np.einsum("nd,de,ne->n", centred, np.linalg.inv(covariance), centred)
        expected[:, c] = np.log(np.mean(y == c)) - 0.5 * np.linalg.slogdet(covariance)[1] - 0.5 * distances
    assert_same(Qda(shrinkage=0.2, pooling=pooling).fit(STATS).scores(FRESH), expected)


# -------------------------------------------------------------------------------------------------- low rank, diagonal


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("shrinkage", SHRINKAGES)
@pytest.mark.parametrize("pooling", [*POOLINGS, "automatic"])
def test_rank_zero_is_naive_bayes_with_pooling(source: str, shrinkage: Any, pooling: Any) -> None:
    low_rank = LowRankQda(0, source, shrinkage, pooling).fit(STATS).scores(FRESH)
    variances = NaiveBayes("exact" if source == "diagonal" else source, pooling, shrinkage)
    assert_same(low_rank, variances.fit(STATS).scores(FRESH))


@pytest.mark.parametrize("rank", [D, D + 3])
@pytest.mark.parametrize("source", ["exact", "free"])
@pytest.mark.parametrize("shrinkage", SHRINKAGES)
@pytest.mark.parametrize("pooling", POOLINGS)
def test_full_rank_is_full_qda_with_pooling(source: str, shrinkage: Any, pooling: Any, rank: int) -> None:
    low_rank = LowRankQda(rank, source, shrinkage, pooling).fit(STATS).scores(FRESH)
    assert_same(low_rank, Qda(source, shrinkage, pooling).fit(STATS).scores(FRESH), 1e-7)


@pytest.mark.parametrize("shrinkage", SHRINKAGES)
@pytest.mark.parametrize("pooling", POOLINGS)
def test_diagonal_qda_from_squares_is_naive_bayes(shrinkage: Any, pooling: Any) -> None:
    squares = Statistics.of(X, y, StatisticsSpec.of("class_squares"), n_classes=C)
    diagonal = Qda("diagonal", shrinkage, pooling).fit(squares).scores(FRESH)
    assert_same(diagonal, NaiveBayes(pooling=pooling, shrinkage=shrinkage).fit(squares).scores(FRESH))
    assert_same(diagonal, LowRankQda(0, "diagonal", shrinkage, pooling).fit(squares).scores(FRESH))


# -------------------------------------------------------------------------------------------------- Fisher subspace


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("shrinkage", SHRINKAGES)
def test_fisher_qda_and_naive_bayes_in_all_directions_fully_pooled_are_lda(source: str, shrinkage: Any) -> None:
    lda = apart_from_a_constant(Lda(source, shrinkage).fit(STATS).scores(FRESH))
    for head in (
        Qda(source, shrinkage, "friedman:1", "fisher", "all"),
        NaiveBayes(source, "blend:1", shrinkage, subspace="fisher", directions="all"),
    ):
        assert_same(apart_from_a_constant(head.fit(STATS).scores(FRESH)), lda)


@pytest.mark.parametrize("pooling", [*POOLINGS, "automatic"])
def test_with_as_many_fisher_directions_as_dimensions_nothing_is_lost(pooling: Any) -> None:
    # Six classes in four dimensions: the subspace is all there is, and QDA does not depend on coordinates.
    X, y = draw(3, n_classes=6, dim=4)
    stats, fresh = measure(X, y, n_classes=6), 3 * np.random.default_rng(2).normal(size=(50, 4))
    inside = Qda(shrinkage="none", pooling=pooling, subspace="fisher", directions="all").fit(stats)
    full = Qda(shrinkage="none", pooling=pooling).fit(stats)
    assert_same(apart_from_a_constant(inside.scores(fresh)), apart_from_a_constant(full.scores(fresh)))


def test_fisher_qda_is_qda_on_projected_features() -> None:
    classifier = Qda(shrinkage="none", pooling="blend:0.3", subspace="fisher", directions=2).fit(STATS)
    assert isinstance(classifier, QuadraticClassifier)
    assert classifier.basis is not None
    assert classifier.whiteners.shape == (C, 2, 2)
    projected = Statistics.of(X @ classifier.basis, y, StatisticsSpec.of("class_grams"), n_classes=C)
    expected = Qda(shrinkage="none", pooling="blend:0.3").fit(projected).scores(FRESH @ classifier.basis)
    assert_same(classifier.scores(FRESH), expected)


def test_fisher_naive_bayes_is_naive_bayes_on_projected_features() -> None:
    classifier = NaiveBayes(pooling=3.0, subspace="fisher", directions=2).fit(STATS)
    assert isinstance(classifier, DiagonalClassifier)
    assert classifier.basis is not None
    projected = Statistics.of(X @ classifier.basis, y, StatisticsSpec.of("class_squares"), n_classes=C)
    expected = NaiveBayes(pooling=3.0).fit(projected).scores(FRESH @ classifier.basis)
    assert_same(classifier.scores(FRESH), expected)


# -------------------------------------------------------------------------------------------------- free covariances


@pytest.mark.parametrize("pooling", [*POOLINGS, "automatic"])
@pytest.mark.parametrize("subspace", ["full", "fisher"])
def test_one_sample_per_client_makes_free_qda_exact(pooling: Any, subspace: str) -> None:
    stats = Ledger.of(X, y, np.arange(len(y)), SPEC, n_classes=C).statistics()
    free = Qda("free", pooling=pooling, subspace=subspace).fit(stats).scores(FRESH)
    exact = Qda("exact", pooling=pooling, subspace=subspace).fit(stats).scores(FRESH)
    assert_same(apart_from_a_constant(free), apart_from_a_constant(exact))
    low_rank = {source: LowRankQda(2, source, pooling=pooling).fit(stats).scores(FRESH) for source in ("free", "exact")}
    assert_same(low_rank["free"], low_rank["exact"])


def test_a_class_that_one_client_holds_has_the_pooled_free_covariance() -> None:
    holders = np.where(y == 2, 0, np.random.default_rng(9).integers(0, 12, len(y)))
    stats = Ledger.of(X, y, holders, SPEC, n_classes=C).statistics()
    assert np.bincount(stats.rows.labels)[2] == 1
    shared = Lda("free", 0.5).fit(stats)
    for pooling in ("none", "friedman:0.2", "automatic"):
        classifier = Qda("free", 0.5, pooling).fit(stats)
        assert isinstance(classifier, QuadraticClassifier)
        covariance = np.linalg.inv(classifier.whiteners[2].T @ classifier.whiteners[2])
        # LDA's weights are the inverse covariance times the means: the same covariance gives them back.
        np.testing.assert_allclose(covariance @ dict(shared.arrays())["weights"], classifier.means.T, atol=1e-7)


def test_qda_free_is_a_preset_that_needs_client_means_alone() -> None:
    head = make_head("qda-free")
    assert str(head.needs) == "counts + client_means"
    means = Ledger.of(X, y, np.arange(len(y)) % 12, head.needs, n_classes=C).statistics()
    assert (head.fit(means).predict(X) == y).mean() > 0.8


# -------------------------------------------------------------------------------------------------- what it is for


def heavy_tailed(seed: int, n: int) -> tuple[Floats, Ints]:
    """Return 3 classes in 60 dimensions; every sample is stretched by a factor of its own, every class by another."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 3
    stretch = np.exp(0.5 * rng.normal(size=(n, 1))) * np.array([0.8, 1.0, 1.2])[y][:, None]
    return stretch * rng.normal(size=(n, 60)) + 3 * np.eye(3, 60)[y], y


def test_pooled_by_direction_qda_withstands_heavy_tails_that_ruin_qda() -> None:
    X, y = heavy_tailed(0, 3000)
    stats = Statistics.of(X, y, StatisticsSpec.of("class_grams"), n_classes=3)
    X_test, y_test = heavy_tailed(1, 3000)

    def accuracy(head: Any) -> float:
        return float((head.fit(stats).predict(X_test) == y_test).mean())

    lda, plain = accuracy(Lda()), accuracy(Qda(pooling="none"))
    assert plain < lda - 0.1
    assert accuracy(Qda()) > lda - 0.005
    assert accuracy(Qda(subspace="fisher")) > lda - 0.005


def test_automatic_pooling_rescues_classes_with_fewer_samples_than_dimensions() -> None:
    rng = np.random.default_rng(4)
    y, y_test = np.repeat(np.arange(6), 12), np.repeat(np.arange(6), 100)
    means, mixing = 0.8 * rng.normal(size=(6, 40)), np.eye(40) + rng.normal(size=(40, 40)) / 3
    X, X_test = (means[labels] + rng.normal(size=(len(labels), 40)) @ mixing for labels in (y, y_test))
    stats = Statistics.of(X, y, StatisticsSpec.of("class_grams"), n_classes=6)
    accuracy = {
        pooling: (Qda(pooling=pooling).fit(stats).predict(X_test) == y_test).mean() for pooling in ("none", "automatic")
    }
    assert accuracy["automatic"] > accuracy["none"] + 0.05


# -------------------------------------------------------------------------------------------------- edges


@pytest.mark.parametrize("pooling", [*POOLINGS, "automatic"])
@pytest.mark.parametrize("subspace", ["full", "fisher"])
def test_empty_classes_and_classes_of_one_sample(pooling: Any, subspace: str) -> None:
    few_X, few_y = np.vstack([X, 9 * np.ones((1, D))]), np.append(y, C + 1)
    stats = Statistics.of(few_X, few_y, StatisticsSpec.of("class_grams"), n_classes=C + 2)
    classifier = Qda(pooling=pooling, subspace=subspace).fit(stats)
    scores = classifier.scores(FRESH)
    assert np.isneginf(scores[:, C]).all()
    assert np.isfinite(np.delete(scores, C, axis=1)).all()
    assert classifier.predict(9 * np.ones((1, D))).tolist() == [C + 1]


@pytest.mark.parametrize("subspace", ["full", "fisher"])
def test_an_offset_of_1000_changes_no_prediction(subspace: str) -> None:
    plain, moved = (Qda(subspace=subspace).fit(measure(X + offset, y)) for offset in (0.0, 1000.0))
    assert np.array_equal(plain.predict(FRESH), moved.predict(FRESH + 1000.0))


@pytest.mark.parametrize(
    "make",
    [
        lambda: Qda(pooling="half"),
        lambda: Qda(subspace="half"),
        lambda: Qda(directions="some"),
        lambda: LowRankQda(pooling="friedman:2"),
        lambda: NaiveBayes(pooling="friedman:2"),
        lambda: NaiveBayes(subspace="half"),
        lambda: NaiveBayes(directions=0),
        lambda: NaiveBayes(subspace="fisher", unbiased=False),
    ],
)
def test_wrong_hyper_parameters_are_refused(make: Any) -> None:
    with pytest.raises(InputError, match=r"arrived|unbiased=False is for subspace='full'"):
        make()


def test_naive_bayes_needs_squares_in_the_full_space_and_class_grams_in_the_fisher_subspace() -> None:
    assert NaiveBayes().needs == StatisticsSpec.of("class_squares")
    assert NaiveBayes(subspace="fisher").needs == StatisticsSpec.of("class_grams")


def test_a_singular_pooled_covariance_has_no_fisher_subspace() -> None:
    flat = np.hstack([X, np.zeros((len(X), 1))])
    stats = Statistics.of(flat, y, StatisticsSpec.of("class_grams"), n_classes=C)
    with pytest.raises(NotEnoughDataError, match="singular"):
        Qda(shrinkage="none", subspace="fisher").fit(stats)
    assert (Qda(subspace="fisher").fit(stats).predict(flat) == y).mean() > 0.8


def test_clients_that_differ_do_not_let_priors_decide() -> None:
    """Eight sites, each a little off: the free covariance is some fifty times too large, and classes differ in size."""
    rng = np.random.default_rng(0)
    y = rng.choice(3, size=4000, p=[0.7, 0.2, 0.1])
    sites = rng.integers(0, 8, size=4000)
    X = rng.normal(size=(4000, 6)) + 4.0 * np.eye(3, 6)[y] + 0.5 * rng.normal(size=(8, 6))[sites]
    parties = {site: (X[sites == site], y[sites == site]) for site in range(8)}
    found = {priors: fit("lda-free", parties, priors=priors).predict(X) == y for priors in ("balanced", "data")}
    assert make_head("lda-free").settings()["priors"] == "balanced"
    assert found["balanced"].mean() > 0.9
    assert found["data"].mean() < 0.75


def test_a_class_covariance_that_is_singular_but_for_rounding_is_refused() -> None:
    """Ten samples a class span nine of ten dimensions; what rounding adds is no tenth."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        y = np.arange(20) % 2
        stats = Statistics.of(rng.normal(size=(20, 10)), y, StatisticsSpec.of("class_grams"), n_classes=2)
        with pytest.raises(NotEnoughDataError, match="is singular"):
            Qda(pooling="none", shrinkage="none").fit(stats)


@pytest.mark.parametrize("pooling", [0.0, 1.0])
def test_naive_bayes_gives_a_class_of_one_sample_the_pooled_variance_whatever_divides(pooling: float) -> None:
    X, y = np.array([[0.0], [2.0], [4.0], [9.0], [13.0], [17.0], [7.0]]), [0, 0, 0, 1, 1, 1, 2]
    stats = Statistics.of(X, y, StatisticsSpec.of("class_squares"), n_classes=3)
    fitted = NaiveBayes(pooling=pooling, unbiased=False).fit(stats)
    assert isinstance(fitted, DiagonalClassifier)
    assert 1.0 / fitted.precisions[2, 0] == pytest.approx(10.0)


@pytest.mark.parametrize("floor", [-1.0, float("inf"), float("nan"), "a"])
def test_a_floor_that_is_no_floor_is_refused(floor: Any) -> None:
    with pytest.raises(InputError, match="floor is a finite share from 0"):
        NaiveBayes(floor=floor)


def test_without_a_floor_a_constant_dimension_is_refused() -> None:
    X, y = np.array([[0.0, 1.0], [2.0, 1.0], [4.0, 5.0], [9.0, 7.0]]), [0, 0, 1, 1]
    stats = Statistics.of(X, y, StatisticsSpec.of("class_squares"), n_classes=3)
    with pytest.raises(NotEnoughDataError, match="a dimension is constant in class 0"):
        NaiveBayes(pooling=0.0, floor=0.0).fit(stats)
    assert NaiveBayes(pooling=0.0).fit(stats).predict(X).tolist() == y


@pytest.mark.parametrize("rank", [-1, 2.5, "2", None])
def test_a_rank_that_is_no_whole_number_is_refused(rank: Any) -> None:
    with pytest.raises(InputError, match="rank is a whole number from 0"):
        LowRankQda(rank=rank)
