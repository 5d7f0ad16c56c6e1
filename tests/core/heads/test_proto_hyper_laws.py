"""Laws of Proto-Hyper: what leaves the base as it is, what a teacher changes, and what the head does not depend on."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import fedmoments as fm
from fedmoments.core.classifier import Classifier, LinearClassifier, load
from fedmoments.core.gaussian import ClassGaussians, FisherClasses
from fedmoments.core.heads.lda import Lda
from fedmoments.core.heads.proto_hyper import ProtoHyper, automatic_rank
from fedmoments.core.statistics import Ledger, Statistics, StatisticsSpec
from fedmoments.errors import FitWarning, InputError

Array = npt.NDArray[Any]
C, D = 4, 6
SPEC = StatisticsSpec.of("class_grams", "client_means")
BASES = ("lda", "nb", "qda")


def draw(n: int = 400, seed: int = 0, n_classes: int = C) -> tuple[Array, Array]:
    """Return classes of unequal size and unlike covariances."""
    rng = np.random.default_rng(7)
    means = 1.5 * rng.normal(size=(n_classes, D))
    own = np.eye(D) + 0.6 * rng.normal(size=(n_classes, D, D))
    rng = np.random.default_rng(seed)
    shares = np.linspace(2.0, 1.0, n_classes)
    y = rng.choice(n_classes, n, p=shares / shares.sum())
    return means[y] + np.einsum("nij,nj->ni", own[y], rng.normal(size=(n, D))), y


X, LABELS = draw()
POINTS, ANSWERS = draw(3000, 1)
STATS = Ledger.of(X, LABELS, np.arange(len(X)) % 9, SPEC, n_classes=C).statistics()


def fitted(stats: Statistics = STATS, **settings: Any) -> Classifier:
    return ProtoHyper(**settings).fit(stats)


def differences(scores: Array) -> Array:
    return np.asarray(scores - scores.mean(axis=1, keepdims=True))


def log_densities(classes: FisherClasses, Z: Array, *, diagonal: bool) -> Array:
    """Return the naive log-density of every class, a sample after the other."""
    out = np.zeros((len(Z), C))
    for c in range(C):
        S = np.diag(np.diag(classes.covariances[c])) if diagonal else classes.covariances[c]
        for i, z in enumerate(Z):
            away = z - classes.subspace.means[c]
            out[i, c] = -0.5 * np.linalg.slogdet(S)[1] - 0.5 * away @ np.linalg.solve(S, away)
    return out


def test_a_teacher_that_is_the_base_leaves_it_unchanged() -> None:
    head = fitted(base="lda", teacher="lda", distill=1.0, directions="all")
    expected = differences(Lda().fit(STATS).scores(POINTS))
    np.testing.assert_allclose(differences(head.scores(POINTS)), expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("base", ["nb", "qda"])
def test_a_quadratic_teacher_that_is_the_base_leaves_it_unchanged(base: str) -> None:
    head = fitted(base=base, teacher=base, teacher_lda=0.0, distill=1.0, pooling="blend:0.5")
    classes = FisherClasses.of(ClassGaussians(STATS), pooling="blend:0.5")
    Z = classes.subspace.project(POINTS[:50])
    expected = log_densities(classes, Z, diagonal=base == "nb") + ClassGaussians(STATS).log_priors
    np.testing.assert_allclose(differences(head.scores(POINTS[:50])), differences(expected), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("base", BASES)
def test_the_student_is_the_base_plus_a_linear_term(base: str) -> None:
    student = fitted(base=base)
    plain = fitted(base=base, teacher=base, teacher_lda=float(base == "lda"), distill=1.0)
    assert student.kind == {"lda": "linear", "nb": "diagonal", "qda": "quadratic"}[base]
    gap = differences(student.scores(POINTS)) - differences(plain.scores(POINTS))
    assert np.abs(gap).max() > 0.05
    fisher = FisherClasses.of(ClassGaussians(STATS)).subspace
    Z = fisher.project(POINTS)
    residual = np.linalg.lstsq(Z, gap, rcond=None)[0]
    np.testing.assert_allclose(Z @ residual, gap, atol=1e-8 * float(np.abs(gap).max()))


def fresh(classes: FisherClasses, label: int, n: int = 300) -> tuple[Array, Array]:
    """Return samples of a class in the subspace, and points of the full space that are projected to them."""
    fisher, rng = classes.subspace, np.random.default_rng([11, label])
    Z = fisher.means[label] + 0.9 * rng.normal(size=(n, fisher.dim)) @ np.linalg.cholesky(classes.covariances[label]).T
    return Z, fisher.offset + Z @ np.linalg.pinv(fisher.basis)


def divergence(teacher: Array, student: Array) -> float:
    """Return the mean Kullback-Leibler divergence at temperature 4."""
    q, p = (np.exp(v / 4) / np.exp(v / 4).sum(axis=1, keepdims=True) for v in map(differences, (teacher, student)))
    return float((q * np.log(q / p)).sum(axis=1).mean())


def loss_of(classifier: Classifier, base: str) -> float:
    """Return GH-OFL's loss of a student on fresh samples of its classes, without decay, naively."""
    classes = FisherClasses.of(ClassGaussians(STATS), pooling="quarter" if base == "lda" else "automatic")
    total = 0.0
    for c in range(C):
        Z, points = fresh(classes, c)
        student = classifier.scores(points) - ClassGaussians(STATS).log_priors
        lda = -0.5 * ((Z[:, None] - classes.subspace.means) ** 2).sum(axis=2)
        teacher = 0.7 * lda + 0.3 * log_densities(classes, Z, diagonal=False)
        right = student[:, c] - np.log(np.exp(differences(student)).sum(axis=1)) - student.mean(axis=1)
        total += 0.4 * 16 * divergence(teacher, student) - 0.6 * float(right.mean())
    return total / C


@pytest.mark.parametrize("base", BASES)
def test_its_loss_is_below_that_of_the_base(base: str) -> None:
    plain = fitted(base=base, teacher=base, teacher_lda=float(base == "lda"), distill=1.0)
    assert loss_of(fitted(base=base), base) < loss_of(plain, base) - 0.003


@pytest.mark.parametrize("base", BASES)
def test_the_residual_has_the_rank_that_was_asked_for(base: str) -> None:
    plain = fitted(base=base, teacher=base, teacher_lda=float(base == "lda"), distill=1.0)
    Z = FisherClasses.of(ClassGaussians(STATS)).subspace.project(POINTS)
    losses = []
    for rank in (1, 2, 3, 16):
        student = fitted(base=base, rank=rank)
        gap = student.scores(POINTS) - plain.scores(POINTS)
        residual = np.linalg.lstsq(np.hstack([Z, np.ones((len(Z), 1))]), gap, rcond=None)[0][:-1]
        assert np.linalg.matrix_rank(residual, tol=1e-7) <= rank
        losses.append(loss_of(student, base))
    assert losses[0] > losses[2]
    assert fitted(base=base, rank=16).digest() == fitted(base=base).digest()  # 3 directions: all of them


def test_the_automatic_rank_is_that_of_the_paper() -> None:
    assert [automatic_rank(c) for c in (2, 10, 100, 1203)] == [16, 16, 128, 128]
    ranks = [automatic_rank(c) for c in range(10, 101)]
    assert ranks == sorted(ranks)
    assert all(rank >= c for c, rank in zip(range(10, 101), ranks, strict=True))  # never a bound up to 100 classes


def test_without_class_covariances_a_warning_says_why_the_teacher_teaches_nothing() -> None:
    with pytest.warns(FitWarning, match=r"teaches nothing: with spread='pooled'.*identity.*LDA.*measure class grams"):
        pooled = fitted(spread="pooled", directions="all")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        same = fitted(spread="pooled", teacher="lda", directions="all")
        fitted(spread="pooled", teacher_lda=1.0)
        fitted(spread="pooled", distill=0.0)
        for base in BASES:
            fitted(base=base)
    assert pooled.digest() == same.digest()
    assert (pooled.predict(POINTS) == Lda().fit(STATS).predict(POINTS)).mean() > 0.98


def test_classes_of_one_sample_have_no_covariance_and_are_told_of() -> None:
    stats = Statistics.of(X[:3], [0, 1, 2], SPEC, n_classes=3)
    with pytest.warns(FitWarning, match="no class has two samples"):
        head = ProtoHyper(shrinkage=1.0).fit(stats)
    assert head.predict(X[:3]).tolist() == [0, 1, 2]


def test_a_quadratic_teacher_draws_the_student_towards_it() -> None:
    classes = FisherClasses.of(ClassGaussians(STATS))
    away = []
    for share in (0.0, 0.5, 1.0):
        head = fitted(teacher_lda=share, distill=1.0, priors="balanced")
        drawn = [fresh(classes, c) for c in range(C)]
        away.append(sum(divergence(log_densities(classes, Z, diagonal=False), head.scores(x)) for Z, x in drawn))
    assert away[0] < away[1] < away[2]
    assert away[0] < 0.9 * away[2]


def test_the_same_seed_gives_the_same_head_bit_for_bit_held_or_not() -> None:
    for base in BASES:
        head = fitted(base=base, draw_seed=5)
        assert (
            head.digest()
            == fitted(base=base, draw_seed=5).digest()
            == fitted(base=base, draw_seed=5, most_bytes=0).digest()
        )
        assert head.digest() != fitted(base=base, draw_seed=6).digest()


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("covariance", ["exact", "free", "diagonal"])
def test_the_same_statistics_from_another_partition_give_the_same_head_to_rounding(covariance: str, base: str) -> None:
    order = np.random.default_rng(3).permutation(len(X))
    one = Ledger.of(X, LABELS, np.arange(len(X)), SPEC, n_classes=C).statistics()
    two = Ledger.of(X[order], LABELS[order], order, SPEC, n_classes=C).statistics()
    expected = fitted(one, covariance=covariance, base=base).scores(POINTS)
    found = fitted(two, covariance=covariance, base=base).scores(POINTS)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-10 * float(np.abs(expected).max()))


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("factor", [0.1, 3e4])
def test_features_times_a_constant_change_no_prediction(base: str, factor: float) -> None:
    scaled = Ledger.of(factor * X, LABELS, np.arange(len(X)) % 9, SPEC, n_classes=C).statistics()
    assert np.array_equal(fitted(scaled, base=base).predict(factor * POINTS), fitted(base=base).predict(POINTS))


@pytest.mark.parametrize("base", BASES)
def test_an_empty_class_is_never_predicted(base: str) -> None:
    stats = Statistics.of(X, LABELS + (LABELS >= 2), SPEC, n_classes=C + 1)
    head = fitted(stats, base=base)
    assert head.present.tolist() == [True, True, False, True, True]
    far = 50 * np.random.default_rng(0).normal(size=(500, D))
    assert not (head.predict(far) == 2).any()
    same = np.array([0, 1, -1, 2, 3])[head.predict(POINTS)] == fitted(base=base).predict(POINTS)
    assert same.mean() > 0.97  # a class draws its samples by its label: the same but for sampling noise


@pytest.mark.parametrize("base", BASES)
def test_it_survives_its_file(base: str, tmp_path: Path) -> None:
    head = fitted(base=base)
    head.save(tmp_path / "head")
    again = load(tmp_path / "head")
    assert again.digest() == head.digest()
    assert type(again) is type(head)
    np.testing.assert_array_equal(again.predict(POINTS), head.predict(POINTS))


@pytest.mark.parametrize("base", BASES)
def test_it_is_as_good_as_its_base_and_better_than_guessing(base: str) -> None:
    plain = fitted(base=base, teacher=base, teacher_lda=float(base == "lda"), distill=1.0)
    assert (fitted(base=base).predict(POINTS) == ANSWERS).mean() > (plain.predict(POINTS) == ANSWERS).mean() - 0.02


def test_priors_are_those_of_the_data_or_none() -> None:
    data, balanced = fitted(priors="data"), fitted(priors="balanced")
    assert isinstance(data, LinearClassifier)
    assert isinstance(balanced, LinearClassifier)
    np.testing.assert_array_equal(data.weights, balanced.weights)
    np.testing.assert_allclose(data.bias - balanced.bias, ClassGaussians(STATS).log_priors, rtol=1e-12)


def test_it_needs_what_its_spread_and_source_need() -> None:
    assert str(ProtoHyper().needs) == str(StatisticsSpec.of("class_grams"))
    assert str(ProtoHyper(spread="pooled").needs) == str(StatisticsSpec.of("gram"))
    assert str(fm.make_head("proto-hyper-free").needs) == str(StatisticsSpec.of("client_means"))


@pytest.mark.parametrize(
    "settings",
    [
        {"base": "ridge"},
        {"teacher": "ridge"},
        {"covariance": "guess"},
        {"spread": "own"},
        {"shrinkage": "much"},
        {"directions": 0},
        {"pooling": "some"},
        {"rank": 0},
        {"rank": "high"},
        {"teacher_lda": 1.5},
        {"distill": -0.1},
        {"softness": 0.0},
        {"tau": -1.0},
        {"samples": 7},
        {"draw_seed": -1},
        {"decay": float("inf")},
        {"priors": "mine"},
    ],
)
def test_wrong_hyper_parameters_are_refused_before_anything_is_fitted(settings: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"arrived|Known are"):
        ProtoHyper(**settings)


def test_a_fit_that_would_take_hours_is_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedmoments.core.heads.proto_hyper.MUCH", 1e3)
    with pytest.warns(FitWarning, match="do not fit into most_bytes=0: use fewer samples"):
        fitted(most_bytes=0)
    fitted()
