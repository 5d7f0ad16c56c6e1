"""Laws of synthetic samples: their moments, one draw for every pass, held or not, and no axes."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from fedmoments.core.gaussian import ClassGaussians, FisherClasses, GaussianSamples
from fedmoments.core.gaussian.pooling import fisher_class_covariances
from fedmoments.core.gaussian.projected import projected_class_covariances
from fedmoments.core.gaussian.synthesis import parse_spread_factors
from fedmoments.core.statistics import Ledger, Statistics, StatisticsSpec
from fedmoments.errors import InputError, NotEnoughDataError

Array = npt.NDArray[Any]
C, K = 4, 3
TAU = np.array([0.9, 0.5, 1.0, 2.0])
ALL = np.ones(C, bool)


def described(seed: int = 0) -> tuple[Array, Array]:
    """Return means (C, k) and covariances (C, k, k)."""
    rng = np.random.default_rng(seed)
    factors = rng.normal(size=(C, K, K)) + 2 * np.eye(K)
    return 3 * rng.normal(size=(C, K)), factors @ factors.transpose(0, 2, 1)


def drawn(per_class: int = 400, *, present: Array = ALL, seed: int = 0, **options: Any) -> GaussianSamples:
    means, covariances = described()
    return GaussianSamples(means, covariances, TAU, present, per_class, seed, **options)


def of_class(samples: GaussianSamples, label: int) -> Array:
    return np.concatenate([rows for owner, rows in samples if owner == label])


def test_class_means_are_exact_because_samples_come_in_pairs() -> None:
    means, _ = described()
    for label in range(C):
        rows = of_class(drawn(), label)
        np.testing.assert_allclose(rows.mean(axis=0), means[label], rtol=0, atol=1e-12)
        np.testing.assert_allclose(rows[:200] + rows[200:], np.broadcast_to(2 * means[label], (200, K)), atol=1e-12)


def test_the_covariance_of_a_draw_is_that_of_the_class_times_tau_squared() -> None:
    means, covariances = described()
    n = 40_000
    for label in range(C):
        rows = of_class(drawn(n), label) - means[label]
        wanted = TAU[label] ** 2 * covariances[label]
        found = rows.T @ rows / n
        # an entry of the sample covariance has the variance (σ_ii σ_jj + σ_ij²)/pairs
        spread = np.sqrt((np.outer(np.diag(wanted), np.diag(wanted)) + wanted**2) / (n // 2))
        assert np.abs((found - wanted) / spread).max() < 4.5
        white = np.linalg.solve(np.linalg.cholesky(wanted), rows.T)
        assert abs((white**4).mean() - 3.0) < 0.1  # normal, not merely of those moments
        assert abs((white[:, : n // 2] ** 3).mean(axis=1)).max() < 0.1


@pytest.mark.parametrize("per_class", [400, 20_000])
def test_held_and_drawn_again_samples_are_the_same_bit_for_bit(per_class: int) -> None:
    held, again = drawn(per_class), drawn(per_class, most_bytes=0)
    assert held.held
    assert not again.held
    for one, two, three in zip(held, again, again, strict=True):
        assert one[0] == two[0] == three[0]
        assert np.array_equal(one[1], two[1])
        assert np.array_equal(one[1], three[1])
    assert held.shape == (C * per_class, K) == (sum(len(rows) for _, rows in again), K)
    assert next(iter(held))[1] is next(iter(held))[1]
    assert next(iter(again))[1] is not next(iter(again))[1]


def test_every_class_is_drawn_equally_often_in_blocks_of_one_class() -> None:
    labels = [label for label, rows in drawn(20_000) for _ in range(len(rows))]
    assert np.bincount(labels).tolist() == [20_000] * C
    assert labels == sorted(labels)


def test_a_class_that_is_not_there_is_not_drawn_and_changes_no_other() -> None:
    means, covariances = described()
    more = GaussianSamples(
        np.vstack([means, np.zeros((2, K))]),
        np.concatenate([covariances, np.stack([np.eye(K)] * 2)]),
        np.append(TAU, [1.0, 1.0]),
        np.append(ALL, [False, False]),
        400,
    )
    for (one, rows), (two, others) in zip(drawn(), more, strict=True):
        assert one == two
        assert np.array_equal(rows, others)


def test_the_seed_makes_the_draw() -> None:
    assert np.array_equal(of_class(drawn(seed=3), 1), of_class(drawn(seed=3), 1))
    assert not np.array_equal(of_class(drawn(seed=3), 1), of_class(drawn(seed=4), 1))
    noise = [of_class(drawn(), label)[:200] - described()[0][label] for label in (0, 1)]
    assert abs(np.corrcoef(noise[0][:, 0], noise[1][:, 0])[0, 1]) < 0.3  # classes have streams of their own


def test_samples_turn_with_the_axes() -> None:
    means, covariances = described()
    turn = np.linalg.qr(np.random.default_rng(5).normal(size=(K, K)))[0]
    turned = GaussianSamples(means @ turn, turn.T @ covariances @ turn, TAU, ALL, 400)
    for (_, rows), (_, others) in zip(drawn(), turned, strict=True):
        np.testing.assert_allclose(others, rows @ turn, rtol=0, atol=1e-11)


def test_large_draws_are_in_single_precision() -> None:
    small, large = drawn(100_000), drawn(200_000)
    assert small.dtype == np.float64 == next(iter(small))[1].dtype
    assert large.dtype == np.float32 == next(iter(large))[1].dtype
    assert np.prod(small.shape) * 8 <= 1 << 24 < np.prod(large.shape) * 8
    np.testing.assert_allclose(of_class(large, 0).mean(axis=0), described()[0][0], atol=1e-4)


def test_in_the_fisher_subspace_class_covariances_average_to_the_identity() -> None:
    rng = np.random.default_rng(1)
    y = np.arange(300) % 3
    X = rng.normal(size=(300, 5)) @ rng.normal(size=(5, 5)) + 2 * rng.normal(size=(3, 5))[y]
    gaussians = ClassGaussians(Statistics.of(X, y, StatisticsSpec.of("class_grams"), n_classes=3))
    own = FisherClasses.of(gaussians, spread="class", pooling="none")
    np.testing.assert_allclose(own.covariances.mean(axis=0), np.eye(2), atol=1e-10)
    borrowed = FisherClasses.of(gaussians, spread="class")
    np.testing.assert_allclose(borrowed.covariances, (99 * own.covariances + 0.5 * np.eye(2)) / 99.5, atol=1e-10)
    pooled = FisherClasses.of(gaussians, spread="pooled")
    assert own.differ
    assert not pooled.differ
    np.testing.assert_array_equal(pooled.covariances, np.stack([np.eye(2)] * 3))


@pytest.mark.parametrize("source", ["exact", "free", "diagonal", "spherical"])
@pytest.mark.parametrize("pooling", ["none", "automatic", "blend:0.3", 7.0])
def test_class_covariances_in_the_subspace_are_those_of_the_full_space_projected(source: str, pooling: Any) -> None:
    rng = np.random.default_rng(2)
    y, holders = rng.choice([0, 1, 3], 60), rng.integers(6, size=60)
    y[-1] = 4  # one sample: no covariance of its own; nobody has class 2
    X = rng.normal(size=(60, 7)) @ rng.normal(size=(7, 7)) + 3 * rng.normal(size=(5, 7))[y] + 100
    spec = StatisticsSpec.of("class_grams", "client_means")
    gaussians = ClassGaussians(Ledger.of(X, y, holders, spec, n_classes=5).statistics(), source)
    found = FisherClasses.of(gaussians, pooling=pooling, shrinkage="blend:0.1", directions="all")
    expected = fisher_class_covariances(gaussians, found.subspace, pooling, "blend:0.1")
    np.testing.assert_allclose(found.covariances, expected, rtol=1e-8, atol=1e-8)
    for label, inside, dof in projected_class_covariances(gaussians, found.subspace.basis):
        naive = {c: (S, nu) for c, S, nu in gaussians.class_covariances()}[label]
        np.testing.assert_allclose(inside, found.subspace.covariance(naive[0]), rtol=1e-8, atol=1e-8)
        assert dof == naive[1]


@pytest.mark.parametrize("tau", ["", "wide", "0.9,0.8", "0", "-1", "nan", "0.9,0.9,inf"])
def test_wrong_spread_factors_are_refused(tau: str) -> None:
    with pytest.raises(InputError, match=r"a positive number, or one for each of 3 classes .* arrived"):
        parse_spread_factors(tau, 3)


@pytest.mark.parametrize(("change", "words"), [({"per_class": 5}, "pairs"), ({"seed": -1}, "seed")])
def test_wrong_draws_are_refused(change: dict[str, int], words: str) -> None:
    with pytest.raises(InputError, match=words):
        drawn(**change)  # type: ignore[arg-type]


def test_a_singular_covariance_is_named() -> None:
    means, covariances = described()
    covariances[2] = 0.0
    with pytest.raises(NotEnoughDataError, match="class 2 is singular"):
        list(GaussianSamples(means, covariances, TAU, ALL))
    with pytest.raises(InputError, match="spread is class"):
        FisherClasses.of(None, spread="both")  # type: ignore[arg-type]
