"""Condition, effective rank, Fisher directions and distances between classes, each against a naive referee."""

from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.linalg import eigh

from fedmoments.core.diagnostics import Conditioning, fisher_curve, nearest_classes, spectrum_of
from fedmoments.core.diagnostics.spectrum import steps
from fedmoments.core.gaussian import ClassGaussians, FisherSubspace
from fedmoments.core.statistics import Ledger, Statistics, StatisticsSpec

Array = npt.NDArray[Any]
SPEC = StatisticsSpec.of("gram", "client_means")
SHRINKAGES = ["automatic", "relative:0.3", "blend:0.1", "absolute:0.5"]


def draw(seed: int = 0, n: int = 600, d: int = 9, n_classes: int = 6) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    means, mixing = 0.5 * rng.normal(size=(n_classes, d)), rng.normal(size=(d, d)) / np.sqrt(d)
    y = rng.integers(0, n_classes - 1, size=n)  # the last class has no sample
    return means[y] + rng.normal(size=(n, d)) @ mixing, y


def classes(source: str, seed: int = 0, **options: Any) -> ClassGaussians:
    X, y = draw(seed, **options)
    return ClassGaussians(Ledger.of(X, y, np.arange(len(y)) % 40, SPEC, n_classes=6).statistics(), source)


@pytest.mark.parametrize("source", ["exact", "free"])
@pytest.mark.parametrize("shrinkage", SHRINKAGES)
def test_conditioning_is_that_of_the_eigenvalues_before_and_after_shrinkage(source: str, shrinkage: str) -> None:
    gaussians = classes(source)
    found = spectrum_of(gaussians, shrinkage)
    for one, word in ((found.before, "none"), (found.after, shrinkage)):
        covariance = gaussians.pooled_covariance(word)
        assert one.condition == pytest.approx(np.linalg.cond(covariance), rel=1e-6)
        shares = np.linalg.eigvalsh(covariance) / np.trace(covariance)
        assert one.effective_rank == pytest.approx(np.prod(shares**-shares), rel=1e-9)
        assert one.participation == pytest.approx(np.trace(covariance) ** 2 / np.sum(covariance**2), rel=1e-9)
        assert one.rank == 9
    inverse = np.linalg.inv(gaussians.pooled_covariance(shrinkage))
    assert found.whitened_trace == pytest.approx(np.trace(inverse @ gaussians.pooled_covariance("none")), rel=1e-9)


def test_a_singular_covariance_has_a_rank_and_no_condition() -> None:
    X, y = draw(n=20, d=50)
    stats = Statistics.of(X, y, SPEC, n_classes=6)
    found = spectrum_of(ClassGaussians(stats))
    assert (found.before.condition, found.before.rank) == (None, 20 - len(np.unique(y)))
    assert found.after.rank == 50
    assert found.after.condition is not None


def test_conditioning_of_known_spectra() -> None:
    assert Conditioning.of(np.ones(7)) == Conditioning(1.0, 7, pytest.approx(7.0), pytest.approx(7.0))  # type: ignore[arg-type]
    one = Conditioning.of(np.array([3.0, 0.0, 0.0]))
    assert (one.condition, one.rank, one.effective_rank, one.participation) == (None, 1, 1.0, 1.0)
    assert Conditioning.of(np.zeros(3)) == Conditioning(None, 0, 0.0, 0.0)


@pytest.mark.parametrize("scale", [1e-4, 1e4])
def test_multiplying_features_by_a_constant_changes_no_conditioning(scale: float) -> None:
    X, y = draw()
    made = [Statistics.of(factor * X, y, SPEC, n_classes=6) for factor in (1.0, scale)]
    first, second = (spectrum_of(ClassGaussians(stats)) for stats in made)
    assert second.after.condition == pytest.approx(first.after.condition, rel=1e-6)
    assert second.before.effective_rank == pytest.approx(first.before.effective_rank, rel=1e-6)


def referee_accuracies(gaussians: ClassGaussians, sizes: tuple[int, ...], X: Array, y: Array) -> list[float]:
    """Return the accuracy of LDA in the first k eigenvectors of S_B v = λ S_W v, one k after the other."""
    within, present = gaussians.pooled_covariance(), gaussians.present
    centred = np.where(present[:, None], gaussians.means - gaussians.global_mean, 0.0)
    between = (centred * (gaussians.counts / gaussians.counts.sum())[:, None]).T @ centred
    vectors = eigh(between, within)[1][:, ::-1]
    found = []
    for k in sizes:
        V = vectors[:, :k]
        means, covariance = gaussians.means @ V, V.T @ within @ V
        gaps = (X @ V)[:, None, :] - means
        distances = np.einsum("nci,ij,ncj->nc", gaps, np.linalg.inv(covariance), gaps)
        priors = gaussians.log_priors if gaussians.source == "exact" else 0.0
        scores = np.where(present, priors - 0.5 * distances, -np.inf)
        found.append(float((scores.argmax(axis=1) == y).mean()))
    return found


@pytest.mark.parametrize("source", ["exact", "free"])
def test_accuracy_and_energy_of_the_first_directions_equal_the_referee(source: str) -> None:
    gaussians = classes(source)
    X, y = draw(0, n=1000)
    fisher = FisherSubspace.of(gaussians, directions="all")
    curve = fisher_curve(gaussians, fisher, test=(X, y))
    assert curve.directions == (2, 4)
    assert curve.accuracy == pytest.approx(referee_accuracies(gaussians, curve.directions, X, y))
    centred = np.where(gaussians.present[:, None], gaussians.means - gaussians.global_mean, 0.0)
    between = (centred * (gaussians.counts / gaussians.counts.sum())[:, None]).T @ centred
    values = eigh(between, gaussians.pooled_covariance(), eigvals_only=True)[::-1]
    assert curve.energy == pytest.approx([values[:2].sum() / values.sum(), 1.0])
    assert curve.enough == 1 + int((np.cumsum(values) / values.sum() < 0.995).sum())


@pytest.mark.parametrize("source", ["exact", "free"])
@pytest.mark.parametrize("shrinkage", SHRINKAGES)
def test_lda_in_all_fisher_directions_is_lda_in_the_full_space(source: str, shrinkage: str) -> None:
    gaussians = classes(source, seed=3)
    fisher = FisherSubspace.of(gaussians, shrinkage=shrinkage, directions="all")
    curve = fisher_curve(gaussians, fisher, shrinkage=shrinkage, test=draw(3, n=3000))
    assert curve.accuracy is not None
    assert curve.accuracy[-1] == curve.full_accuracy
    assert curve.accuracy[0] < curve.accuracy[-1]


def test_without_test_samples_there_is_energy_alone() -> None:
    gaussians = classes("exact")
    curve = fisher_curve(gaussians, FisherSubspace.of(gaussians, directions="all"))
    assert (curve.accuracy, curve.full_accuracy) == (None, None)
    assert len(curve.energy) == len(curve.directions)


@pytest.mark.parametrize("directions", [1, 2, 3, 7, 8, 9, 255])
def test_steps_double_and_end_with_all(directions: int) -> None:
    found = steps(directions)
    assert found[-1] == directions
    assert all(later == 2 * earlier for earlier, later in pairwise(found[:-1]))
    assert len(set(found)) == len(found)


def test_the_nearest_class_is_that_of_mahalanobis_without_the_noise_of_the_means() -> None:
    gaussians = classes("exact", seed=5)
    fisher = FisherSubspace.of(gaussians, directions="all")
    trace = spectrum_of(gaussians).whitened_trace
    found = nearest_classes(fisher, gaussians.counts, trace)
    inverse = np.linalg.inv(gaussians.pooled_covariance())
    for a in range(5):
        gaps = {b: gaussians.means[a] - gaussians.means[b] for b in range(5) if b != a}
        squares = {
            b: gap @ inverse @ gap - trace * (1 / gaussians.counts[a] + 1 / gaussians.counts[b])
            for b, gap in gaps.items()
        }
        nearest = min(squares, key=lambda b: squares[b])
        assert found.nearest[a] == nearest
        assert found.distance[a] == pytest.approx(np.sqrt(max(squares[nearest], 0.0)), rel=1e-6)
    assert found.nearest[5] == -1
    assert np.isnan(found.distance[5])


def test_two_classes_of_the_same_distribution_are_no_distance_apart_on_average() -> None:
    rng = np.random.default_rng(0)
    squares, raw = [], []
    for _ in range(60):
        X = rng.normal(size=(240, 40))
        gaussians = ClassGaussians(Statistics.of(X, np.arange(240) % 2, SPEC, n_classes=2))
        fisher = FisherSubspace.of(gaussians, shrinkage="none", directions="all")
        counts = gaussians.counts
        trace = spectrum_of(gaussians, "none").whitened_trace
        gap = fisher.means[0] - fisher.means[1]
        raw.append(float(gap @ gap))
        squares.append(raw[-1] - trace * (1 / counts[0] + 1 / counts[1]))
        assert nearest_classes(fisher, counts, trace).distance[0] ** 2 == pytest.approx(max(squares[-1], 0), abs=1e-9)
    # What is left is the inverse covariance's own bias, ν/(ν − d − 1).
    assert abs(np.mean(squares)) < 0.25
    assert np.mean(raw) > 0.6
    distance = nearest_classes(fisher, counts, trace)
    assert 0.25 < distance.error[0] <= 0.5
