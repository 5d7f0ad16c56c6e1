"""The draws against their distributions, and against the raw stream that numpy promises to keep."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fedmoments.errors import InputError
from fedmoments.samples.splits.draws import apportion, even_sizes, generator, log_dirichlet, multinomial, shuffle

EXTREME_ALPHAS = [5e-324, 1e-300, 1e-3, 0.01, 0.1, 1.0, 100.0, 1e6, 1e12, 1e300]


@pytest.mark.parametrize("alpha", [0.05, 0.3, 1.0, 7.0, 1000.0])
def test_a_dirichlet_proportion_is_beta_distributed(alpha: float) -> None:
    rng, size = generator(3), 4
    logs = np.stack([log_dirichlet(rng, alpha, size) for _ in range(4000)])
    shares = np.exp(logs)
    shares /= shares.sum(axis=1, keepdims=True)
    for i in range(size):
        result = stats.kstest(shares[:, i], stats.beta(alpha, (size - 1) * alpha).cdf)
        assert result.pvalue > 1e-3


@pytest.mark.parametrize("alpha", EXTREME_ALPHAS)
def test_extreme_concentrations_give_finite_logarithms(alpha: float) -> None:
    for size in (1, 2, 1203):
        logs = log_dirichlet(generator(0), alpha, size)
        assert logs.shape == (size,)
        assert np.isfinite(logs).all()
        assert logs.max() == 0


def test_a_vanishing_concentration_puts_the_mass_on_each_class_equally_often() -> None:
    rng = generator(1)
    tops = np.bincount([int(log_dirichlet(rng, 1e-3, 5).argmax()) for _ in range(5000)], minlength=5)
    assert stats.chisquare(tops).pvalue > 1e-3


def test_multinomial_counts_follow_the_proportions() -> None:
    proportions = np.array([0.5, 0.0, 0.2, 0.3, 0.0])
    with np.errstate(divide="ignore"):
        counts = multinomial(generator(0), 100_000, np.log(proportions))
    assert counts.sum() == 100_000
    assert counts[1] == counts[4] == 0
    assert stats.chisquare(counts[[0, 2, 3]], 100_000 * proportions[[0, 2, 3]]).pvalue > 1e-3


@given(
    n=st.integers(0, 10**6), size=st.integers(1, 300), alpha=st.sampled_from(EXTREME_ALPHAS), seed=st.integers(0, 99)
)
def test_apportioned_counts_sum_exactly_and_stay_within_one_of_their_share(
    n: int, size: int, alpha: float, seed: int
) -> None:
    logs = log_dirichlet(generator(seed), alpha, size)
    counts = apportion(n, logs)
    shares = np.exp(logs) / np.exp(logs).sum()
    assert counts.sum() == n
    assert counts.min() >= 0
    assert np.abs(counts - n * shares).max() <= 1 + 1e-6


@given(n=st.integers(0, 1000), parts=st.integers(1, 300))
def test_even_sizes_sum_exactly_and_differ_by_at_most_one(n: int, parts: int) -> None:
    sizes = even_sizes(n, parts)
    assert sizes.sum() == n
    assert len(sizes) == parts
    assert sizes.max() - sizes.min() <= 1


def test_a_shuffle_is_a_uniform_permutation() -> None:
    rng = generator(0)
    codes = [int(shuffle(rng, 3) @ np.array([9, 3, 1])) for _ in range(6000)]
    _, counts = np.unique(codes, return_counts=True)
    assert len(counts) == 6
    assert stats.chisquare(counts).pvalue > 1e-3


def test_uniform_numbers_are_the_raw_stream_of_pcg64() -> None:
    # numpy fixes the raw stream for good; this is what makes splits independent of its release.
    raw = np.random.PCG64(11).random_raw(1000)
    np.testing.assert_array_equal(generator(11).random(1000), (raw >> np.uint64(11)) * 2.0**-53)
    assert [int(value) for value in np.random.PCG64(0).random_raw(2)] == [11749869230777074271, 4976686463289251617]


@pytest.mark.parametrize("seed", [-1, 1.5, True, None, "0"])
def test_a_seed_that_is_no_whole_number_is_refused(seed: object) -> None:
    with pytest.raises(InputError, match="seed must be a whole number of at least 0"):
        generator(seed)  # type: ignore[arg-type]


def test_a_generator_is_used_and_advanced() -> None:
    rng = np.random.default_rng(0)
    assert generator(rng) is rng
    assert not np.array_equal(shuffle(rng, 20), shuffle(rng, 20))
