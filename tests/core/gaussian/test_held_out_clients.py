"""Clients held out: folds, deviations and trials, and the shrinkage that the evidence gives."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.integrate import quad
from scipy.special import gamma

from fedmoments.core.gaussian.evidence import evidence_shrinkage, log_evidence
from fedmoments.core.gaussian.held_out import folds_of_owners, held_out_folds, of_owners
from fedmoments.core.gaussian.trials import BORROWED, Trials
from fedmoments.core.statistics import Statistics, StatisticsSpec
from fedmoments.samples import parse_split

C, D = 4, 12
MOMENTS = {"sketch": "scatter_sketch", "free": "client_means"}


def federation(source: str, n_clients: int = 15) -> list[Statistics]:
    """Return clients that hold four overlapping classes in unequal shares."""
    rng = np.random.default_rng(0)
    y = rng.integers(C, size=600)
    X = 1.0 + rng.normal(size=(C, D))[y] + rng.normal(size=(600, D)) * np.exp(rng.normal(size=D))
    holders: NDArray[np.int64] = np.asarray(parse_split("dirichlet:0.5").apply(y, n_clients=n_clients, seed=1).clients)
    spec = StatisticsSpec.of(MOMENTS[source])
    return [Statistics.of(X[holders == k], y[holders == k], spec, n_classes=C) for k in np.unique(holders)]


def test_the_evidence_is_the_integral_over_the_prior() -> None:
    """In one dimension: ∫ Wishart(s | σ²) InverseWishart(σ² | κ, ψ) dσ², by quadrature, up to the same constant."""
    s, dof = 3.0, 5.0
    exact, naive = [], []
    for kappa, psi in ((0.5, 1.0), (2.0, 0.3), (7.0, 4.0)):
        exact.append(log_evidence(np.array([s]), dof, np.array([kappa]), np.array([psi])).item())

        def density(log_v: float, kappa: float = kappa, psi: float = psi) -> float:
            v = np.exp(log_v)
            likelihood = v ** (-dof / 2) * np.exp(-s / (2 * v))
            prior = (psi / 2) ** (kappa / 2) / gamma(kappa / 2) * v ** (-kappa / 2 - 1) * np.exp(-psi / (2 * v))
            return float(likelihood * prior * v)

        naive.append(np.log(quad(density, -30, 30, limit=400)[0]))
    np.testing.assert_allclose(np.diff(exact), np.diff(naive), atol=1e-6)


@pytest.mark.parametrize("factor", [1e-6, 10.0])
def test_the_shrinkage_of_the_evidence_scales_with_squared_features_and_ignores_dead_ones(factor: float) -> None:
    rng = np.random.default_rng(0)
    values = np.append(rng.gamma(0.5, size=30), [0.0, 0.0])
    assert evidence_shrinkage(factor * values, 50.0) == pytest.approx(factor * evidence_shrinkage(values, 50.0))
    assert evidence_shrinkage(values[:-2], 50.0) == pytest.approx(evidence_shrinkage(values, 50.0))
    assert evidence_shrinkage(np.zeros(3), 5.0) == 0.0


def test_deviations_of_clients_held_out_have_the_covariance_of_one_sample() -> None:
    rng = np.random.default_rng(0)
    spec, factor = StatisticsSpec.of("client_means"), np.array([[1.0, 0.0], [1.5, 0.5]])
    total, count = np.zeros((2, 2)), 0
    for _ in range(100):
        sizes = rng.integers(1, 9, size=8)
        parts = [Statistics.of(5 + rng.normal(size=(n, 2)) @ factor.T, [0] * n, spec, n_classes=1) for n in sizes]
        for fold in held_out_folds(Statistics.merge(parts), 4):
            total += fold.deviations.T @ fold.deviations
            count += len(fold.deviations)
    assert count == 800
    np.testing.assert_allclose(total / count, factor @ factor.T, rtol=0.15)


@pytest.mark.parametrize("source", ["sketch", "free"])
def test_a_fold_is_fitted_from_the_other_clients_alone(source: str) -> None:
    parts = federation(source)
    stats = Statistics.merge(parts)
    owners, folds = folds_of_owners(stats, 4)
    assert sorted(np.bincount(folds)) == [3, 4, 4, 4]
    for fold, held in enumerate(held_out_folds(stats, 4)):
        others = [part for k, part in enumerate(parts) if k not in owners[folds == fold]]
        assert held.training == Statistics.merge(others)
        assert held.training + of_owners(stats, owners[folds == fold]) == stats


def test_deviations_are_those_of_a_naive_loop() -> None:
    stats = Statistics.merge(federation("free"))
    owners, folds = folds_of_owners(stats, 5)
    fold_of = dict(zip(owners.tolist(), folds.tolist(), strict=True))
    sums, rows = stats.rows.block_sums(), range(len(stats.row_labels))
    for fold, held in enumerate(held_out_folds(stats, 5)):
        naive = []
        for i in rows:
            same = [
                j for j in rows if stats.row_labels[j] == stats.row_labels[i] and fold_of[stats.row_owners[j]] != fold
            ]
            if fold_of[stats.row_owners[i]] == fold and same:
                n, others = stats.row_counts[i], stats.row_counts[same].sum()
                deviation = sums[i] / n - sums[same].sum(axis=0) / others
                naive.append((stats.row_labels[i], *(deviation / np.sqrt(1 / n + 1 / others))))
        found = np.column_stack([held.labels, held.deviations])
        np.testing.assert_allclose(sorted(found.tolist()), sorted(naive), atol=1e-12)


def test_what_several_clients_were_compressed_into_is_never_held_out() -> None:
    stats = Statistics.merge(federation("sketch"))
    owners = np.where(stats.sketch_owners < 5, -1, stats.sketch_owners)
    stats = replace(stats, sketch_owners=owners)
    for held in held_out_folds(stats, 3):
        assert (held.training.sketch_owners == -1).sum() == 5


def test_trials_have_the_covariance_of_the_deviations_and_the_classes_of_the_data() -> None:
    rng = np.random.default_rng(0)
    (held, *_) = held_out_folds(Statistics.merge(federation("free", 40)), 2)
    shares = np.array([0.1, 0.2, 0.3, 0.4])
    trials = Trials.of(held, shares, 40_000)
    np.testing.assert_allclose(np.bincount(trials.labels) / 40_000, shares, atol=1e-4)
    for label in range(C):
        own = held.deviations[held.labels == label]
        part = len(own) / (len(own) + BORROWED)
        both = part * own.T @ own / len(own) + (1 - part) * held.deviations.T @ held.deviations / len(held.deviations)
        for first, scale in ((0, 1.0), (1, 1.5)):
            points = trials.points[first::2][trials.labels[first::2] == label] / scale
            random = rng.normal(size=D)
            np.testing.assert_allclose(np.mean((points @ random) ** 2), random @ both @ random, rtol=0.15)
