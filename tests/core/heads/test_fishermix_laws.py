"""Laws of FisherMix: what it tends to, what it does not depend on, and that it is worth its class covariances."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import fedmoments as fm
from fedmoments.core.classifier import LinearClassifier, load
from fedmoments.core.gaussian import ClassGaussians, FisherClasses, GaussianSamples
from fedmoments.core.heads.fishermix import FisherMix
from fedmoments.core.heads.lda import Lda
from fedmoments.core.softmax import Block, SoftmaxLoss
from fedmoments.core.statistics import Ledger, Statistics, StatisticsSpec
from fedmoments.errors import InputError, MissingMomentError

Array = npt.NDArray[Any]
C, D = 4, 6
SPEC = StatisticsSpec.of("class_grams", "client_means")


def draw(n: int = 400, seed: int = 0, *, unlike: float = 1.0) -> tuple[Array, Array]:
    """Return classes of unequal size; ``unlike`` tells how much their covariances differ."""
    rng = np.random.default_rng(7)
    means, spread = 1.5 * rng.normal(size=(C, D)), np.eye(D) + 0.3 * rng.normal(size=(D, D))
    own = spread + unlike * 0.8 * rng.normal(size=(C, D, D))
    rng = np.random.default_rng(seed)
    y = rng.choice(C, n, p=[0.4, 0.3, 0.2, 0.1])
    return means[y] + np.einsum("nij,nj->ni", own[y], rng.normal(size=(n, D))), y


X, LABELS = draw()
TEST_X, TEST_Y = draw(6000, 1)
STATS = Ledger.of(X, LABELS, np.arange(len(X)) % 9, SPEC, n_classes=C).statistics()


def fitted(stats: Statistics = STATS, **settings: Any) -> LinearClassifier:
    classifier = FisherMix(**settings).fit(stats)
    assert isinstance(classifier, LinearClassifier)
    return classifier


def differences(scores: Array) -> Array:
    return np.asarray(scores - scores.mean(axis=1, keepdims=True))


@pytest.mark.parametrize("priors", ["data", "balanced"])
@pytest.mark.parametrize("covariance", ["exact", "free"])
def test_with_the_pooled_covariance_it_tends_to_lda_as_samples_grow(priors: str, covariance: str) -> None:
    lda = differences(Lda(covariance=covariance).fit(STATS).scores(TEST_X))
    if priors == "balanced":
        lda = differences(lda - ClassGaussians(STATS).log_priors)
    errors = []
    for samples in (400, 6400, 102_400):
        squares = []
        for seed in range(3):
            head = FisherMix(
                covariance, "pooled", directions="all", samples=samples, draw_seed=seed, decay=0.0, priors=priors
            )
            squares.append(np.mean((differences(head.fit(STATS).scores(TEST_X)) - lda) ** 2))
        errors.append(float(np.sqrt(np.mean(squares)) / lda.std()))
    assert errors[2] < 0.02
    assert errors[2] < 0.5 * errors[1] < 0.25 * errors[0]  # each has 16 times the samples: an error 4 times smaller


def test_the_same_seed_gives_the_same_head_bit_for_bit_and_another_seed_another() -> None:
    assert fitted(draw_seed=5).digest() == fitted(draw_seed=5).digest()
    assert fitted(draw_seed=5).digest() != fitted(draw_seed=6).digest()
    close = (fitted(draw_seed=5).predict(TEST_X) == fitted(draw_seed=6).predict(TEST_X)).mean()
    assert close > 0.97


@pytest.mark.parametrize("covariance", ["exact", "free", "diagonal", "spherical"])
def test_the_same_statistics_from_another_partition_give_the_same_head_to_rounding(covariance: str) -> None:
    whole = Ledger.of(X, LABELS, np.arange(len(X)), SPEC, n_classes=C)
    order = np.random.default_rng(3).permutation(len(X))
    other = Ledger.of(X[order], LABELS[order], order, SPEC, n_classes=C)
    expected = fitted(whole.statistics(), covariance=covariance).scores(TEST_X)
    found = fitted(other.statistics(), covariance=covariance).scores(TEST_X)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-10 * float(np.abs(expected).max()))


def test_equal_fisher_eigenvalues_do_not_make_rounding_large() -> None:
    # Means at the corners of a simplex and equal covariances: all directions separate equally well.
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(40, C))
    noise -= noise.mean(axis=0)
    noise = np.linalg.solve(np.linalg.cholesky(noise.T @ noise / 39), noise.T).T
    even = np.concatenate([3.0 * np.eye(C)[c] + noise for c in range(C)])
    labels = np.repeat(np.arange(C), 40)
    order = rng.permutation(len(even))
    points = 2 * rng.normal(size=(200, C))
    one = fitted(Statistics.of(even, labels, SPEC, n_classes=C)).scores(points)
    two = fitted(Statistics.of(even[order], labels[order], SPEC, n_classes=C)).scores(points)
    np.testing.assert_allclose(one, two, rtol=0, atol=1e-8 * float(np.abs(one).max()))


@pytest.mark.parametrize("name", ["fishermix", "fishermix-free", "proto-hyper", "proto-hyper-free"])
def test_an_offset_of_1000_changes_nothing(name: str) -> None:
    holders = np.arange(len(X)) % 9
    far = Ledger.of(X + 1000, LABELS, holders, SPEC, n_classes=C).statistics()
    expected = fm.make_head(name).fit(STATS).scores(TEST_X)
    found = fm.make_head(name).fit(far).scores(TEST_X + 1000)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6 * float(np.abs(expected).max()))


def test_samples_that_are_not_held_give_the_same_head() -> None:
    assert fitted(most_bytes=0).digest() == fitted().digest()


@pytest.mark.parametrize("decay", [0.0, 1e-3])
@pytest.mark.parametrize("spread", ["class", "pooled"])
def test_its_loss_on_its_own_samples_is_below_that_of_lda(decay: float, spread: str) -> None:
    classes = FisherClasses.of(ClassGaussians(STATS), spread=spread)
    fisher, tau = classes.subspace, 0.9
    samples = GaussianSamples(fisher.means, classes.covariances, np.full(C, tau), classes.present)
    loss = SoftmaxLoss([Block(rows, label) for label, rows in samples], C, decay=decay)
    head = fitted(spread=spread, decay=decay, priors="balanced")
    weights: Array = np.linalg.lstsq(fisher.basis, head.weights, rcond=None)[0]
    mine = loss(weights / tau**2, head.bias / tau**2)[0]
    means = fisher.means
    lda = loss(means.T / tau**2, -0.5 * np.einsum("ck,ck->c", means, means) / tau**2)[0]
    assert mine < lda + (1e-6 if spread == "pooled" else 0.0)
    if spread == "class":
        assert mine < 0.97 * lda


def test_class_covariances_make_a_better_linear_head_than_lda_where_they_differ() -> None:
    # A narrow class beside a wide one: LDA cuts half way, and gives away the wide one's tail.
    rng = np.random.default_rng(0)
    y = np.arange(4000) % 2
    many = rng.normal(size=(4000, 3)) * np.array([0.3, 3.0])[y][:, None] + np.array([[0.0, 0, 0], [4.0, 0, 0]])[y]
    stats = Statistics.of(many, y, SPEC, n_classes=2)
    lda = (Lda().fit(stats).predict(many) == y).mean()
    own, pooled = ((fitted(stats, spread=spread).predict(many) == y).mean() for spread in ("class", "pooled"))
    assert own > lda + 0.02
    assert pooled == pytest.approx(lda, abs=0.005)


def test_tau_one_a_class_is_that_of_the_class() -> None:
    assert fitted(tau="0.9,0.9,0.9,0.9").digest() == fitted(tau=0.9).digest() == fitted(tau="0.9").digest()
    narrow = fitted(tau="0.2,1,1,1").predict(TEST_X)  # a class that is drawn narrowly is chosen less often
    assert (narrow == 0).sum() < (fitted(tau=1.0).predict(TEST_X) == 0).sum()
    with pytest.raises(InputError, match="one for each of 4 classes"):
        fitted(tau="0.9,0.8")


def test_more_decay_is_a_flatter_head() -> None:
    norms = [float(np.linalg.norm(fitted(decay=decay).weights)) for decay in (0.0, 1e-3, 1e-1, 10.0)]
    assert norms == sorted(norms, reverse=True)


def test_priors_of_the_data_choose_frequent_classes_more_often() -> None:
    data, balanced = (np.bincount(fitted(priors=priors).predict(TEST_X)) for priors in ("data", "balanced"))
    assert data[0] > balanced[0]
    assert data[3] < balanced[3]
    equal = np.concatenate([np.flatnonzero(c == LABELS)[:30] for c in range(C)])
    stats = Statistics.of(X[equal], LABELS[equal], SPEC, n_classes=C)
    np.testing.assert_allclose(
        differences(fitted(stats, priors="data").scores(TEST_X)),
        differences(fitted(stats, priors="balanced").scores(TEST_X)),
        rtol=1e-9,
        atol=1e-9,
    )


def test_an_empty_class_is_never_predicted_and_has_no_weight() -> None:
    stats = Statistics.of(X, LABELS + (LABELS >= 2), SPEC, n_classes=C + 1)
    head = fitted(stats)
    assert head.present.tolist() == [True, True, False, True, True]
    assert not (head.predict(50 * np.random.default_rng(0).normal(size=(500, D))) == 2).any()
    assert (head.weights[:, 2] == 0).all()


def test_fewer_directions_live_in_fewer_dimensions() -> None:
    for k in (1, 2):
        assert np.linalg.matrix_rank(fitted(directions=k).weights) == k


def test_it_needs_what_its_spread_and_source_need() -> None:
    assert str(FisherMix().needs) == str(StatisticsSpec.of("class_grams"))
    assert str(FisherMix(spread="pooled").needs) == str(StatisticsSpec.of("gram"))
    assert str(fm.make_head("fishermix-free").needs) == str(StatisticsSpec.of("client_means"))
    with pytest.raises(MissingMomentError, match="class_grams"):
        FisherMix("exact").fit(Statistics.of(X, LABELS, StatisticsSpec.of("gram"), n_classes=C))
    alone = Statistics.of(X, LABELS, StatisticsSpec.of("gram"), n_classes=C)
    np.testing.assert_allclose(fitted(alone, spread="pooled").scores(TEST_X), fitted(spread="pooled").scores(TEST_X))


def test_it_survives_its_file(tmp_path: Path) -> None:
    head = fitted()
    head.save(tmp_path / "head")
    again = load(tmp_path / "head")
    assert again.digest() == head.digest()
    np.testing.assert_array_equal(again.predict(TEST_X), head.predict(TEST_X))


def test_classes_that_do_not_differ_are_told_apart_by_their_priors() -> None:
    same = np.tile(np.random.default_rng(0).normal(size=(10, D)), (3, 1))
    stats = Statistics.of(same, np.repeat([0, 1, 1], 10), SPEC, n_classes=2)
    assert (fitted(stats).predict(TEST_X) == 1).all()


@pytest.mark.parametrize(
    "settings",
    [
        {"covariance": "guess"},
        {"spread": "own"},
        {"shrinkage": "much"},
        {"directions": 0},
        {"pooling": "some"},
        {"tau": 0.0},
        {"tau": "wide"},
        {"samples": 3},
        {"draw_seed": -1},
        {"decay": -1.0},
        {"decay": float("nan")},
        {"priors": "mine"},
    ],
)
def test_wrong_hyper_parameters_are_refused_before_anything_is_fitted(settings: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        FisherMix(**settings)
    assert replace(FisherMix(), draw_seed=1) == FisherMix(draw_seed=1)


@pytest.mark.parametrize("name", ["fishermix", "proto-hyper"])
def test_a_rare_class_is_found_as_often_as_by_lda(name: str) -> None:
    """One sample in 300, 4.5 standard deviations away: neither decay nor priors may outweigh it."""
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], [18_000, 60])
    X, unseen = rng.normal(size=(len(y), 5)), rng.normal(size=(4000, 5))
    X[y == 1, 0] += 4.5
    unseen[:, 0] += 4.5
    parties = {"a": (X, y)}
    found = {head: (fm.fit(head, parties).predict(unseen) == 1).mean() for head in ("gh-lda", name)}
    assert found[name] > found["gh-lda"] - 0.03


@pytest.mark.parametrize("tau", [0.5, 0.9, 1.5])
def test_how_narrow_samples_are_drawn_does_not_sharpen_the_scores(tau: float) -> None:
    lda = fm.make_head("gh-lda").fit(STATS).scores(TEST_X)
    for name, hyper in (("fishermix", {}), ("proto-hyper", {"distill": 0.0})):
        head = fm.make_head(name, spread="pooled", tau=tau, decay=0.0, samples=40_000, **hyper)
        slope = np.polyfit(differences(lda).ravel(), differences(head.fit(STATS).scores(TEST_X)).ravel(), 1)[0]
        assert slope == pytest.approx(1.0, abs=0.1)


def test_tau_may_be_a_list() -> None:
    assert FisherMix(tau=[0.8, 0.9]) == FisherMix(tau="0.8,0.9")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="a positive number, or one a class"):
        FisherMix(tau=[0.8, -1.0])  # type: ignore[arg-type]
