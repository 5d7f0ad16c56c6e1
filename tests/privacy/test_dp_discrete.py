"""Discrete Gaussian noise: the law of its numbers, against an exact referee, and where its bits come from."""

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy import stats

from fedmoments.errors import InputError
from fedmoments.privacy.dp.discrete import BLOCK, INVERSE_E, MAX_SCALE, Stream, _coins, _geometric, discrete_gaussian

pytest.importorskip("cryptography")


def fixed(number: Any) -> Any:
    """Return a stream that is the same in every run."""
    return Stream(bytes([number]) * 32)


class Coins:
    """Exact coins for the referee, after Canonne, Kamath and Steinke: fractions and fair integers only."""

    def __init__(self, source: Any) -> None:
        self.source = source
        self.words: list[int] = []

    def below(self, bound: Any) -> Any:
        while True:
            if not self.words:
                self.words = self.source.words(4096).tolist()
            word = self.words.pop()
            if word < 2**64 // bound * bound:
                return word % bound

    def bernoulli(self, p: Any) -> Any:
        return self.below(p.denominator) < p.numerator

    def bernoulli_exp(self, gamma: Any) -> Any:
        """Algorithm 1: a coin of probability exp(−γ)."""
        while gamma > 1:
            if not self.bernoulli_exp(Fraction(1)):
                return False
            gamma -= 1
        k = 1
        while self.bernoulli(gamma / k):
            k += 1
        return k % 2 == 1

    def laplace(self, t: Any) -> Any:
        """Algorithm 2: a discrete Laplace number of scale t."""
        while True:
            u = self.below(t)
            if not self.bernoulli_exp(Fraction(u, t)):
                continue
            v = 0
            while self.bernoulli_exp(Fraction(1)):
                v += 1
            negative, size = self.below(2), u + t * v
            if not (negative and size == 0):
                return -size if negative else size

    def gaussian(self, variance: Any) -> Any:
        """Algorithm 3: a discrete Gaussian number."""
        t = math.isqrt(math.floor(variance)) + 1
        while True:
            y = self.laplace(t)
            if self.bernoulli_exp((abs(y) - variance / t) ** 2 / (2 * variance)):
                return y


def masses(scale: Any, most: Any) -> Any:
    """Return the probabilities of −most … most."""
    x = np.arange(-most, most + 1)
    weights = np.exp(-0.5 * (x / scale) ** 2)
    return x, weights / weights.sum()


def misfit(draws: Any, scale: Any) -> Any:
    """Return the p-value that the draws have that law."""
    x, p = masses(scale, max(3, math.ceil(8 * scale)))
    expected = p * len(draws)
    common = expected >= 8
    seen = np.array([(draws == value).sum() for value in x])
    seen = np.append(seen[common], len(draws) - seen[common].sum())
    expected = np.append(expected[common], expected[~common].sum())
    if expected[-1] < 5:
        seen, expected = seen[:-1], expected[:-1]
        expected = expected * seen.sum() / expected.sum()
    return stats.chisquare(seen, expected).pvalue


@pytest.mark.parametrize("scale", [0.4, 0.7, 1.0, 1.5, 2.9, 11.3])
def test_numbers_have_the_probabilities_of_the_discrete_gaussian(scale: Any) -> None:
    assert misfit(discrete_gaussian(np.full(200_000, scale), fixed(1)), scale) > 1e-3


@pytest.mark.parametrize("scale", [Fraction(7, 10), Fraction(5, 2)])
def test_the_exact_referee_and_the_fast_sampler_agree(scale: Any) -> None:
    coins = Coins(fixed(2))
    naive = np.array([coins.gaussian(scale**2) for _ in range(4000)])
    fast = discrete_gaussian(np.full(40_000, float(scale)), fixed(3))
    assert misfit(naive, float(scale)) > 1e-3
    edges = np.arange(-6, 7)
    table = np.stack([np.histogram(np.clip(each, -6, 5), edges)[0] for each in (naive, fast)])
    assert stats.chi2_contingency(table[:, table.sum(axis=0) > 10]).pvalue > 1e-3


@pytest.mark.parametrize("scale", [1e3, 2.0**40 * 1.37, MAX_SCALE])
def test_large_scales_have_mean_variance_and_shape_of_the_normal_law(scale: Any) -> None:
    z = discrete_gaussian(np.full(200_000, scale), fixed(4)) / scale
    assert abs(z.mean()) < 4 / math.sqrt(len(z))
    assert abs(z.var() - 1) < 4 * math.sqrt(2 / len(z))
    assert stats.kstest(z[:50_000], "norm").pvalue > 1e-3


def test_the_low_bits_of_large_noise_are_fair() -> None:
    draws = discrete_gaussian(np.full(100_000, 2.0**44), fixed(5))
    assert stats.chisquare(np.bincount(draws & 15, minlength=16)).pvalue > 1e-3


def test_tails_have_their_share() -> None:
    z = discrete_gaussian(np.full(1_000_000, 1e6), fixed(6)) / 1e6
    for bound in (2.0, 3.0, 4.0):
        expected = 2 * stats.norm.sf(bound)
        assert stats.binomtest(int((abs(z) > bound).sum()), len(z), expected).pvalue > 1e-3


def test_a_coin_of_a_small_probability_falls_as_often_as_it_should() -> None:
    for exponent in (0.0, 0.3, 1.0, 5.5, 9.2):
        falls = _coins(np.full(500_000, exponent), fixed(7)).sum()
        assert stats.binomtest(int(falls), 500_000, math.exp(-exponent)).pvalue > 1e-3


def test_coins_of_one_over_e_run_geometrically() -> None:
    runs = _geometric(200_000, fixed(8))
    for k in range(1, 8):
        assert stats.binomtest(int((runs >= k).sum()), len(runs), math.exp(-k)).pvalue > 1e-3
    assert abs(Fraction(int(INVERSE_E), 2**64) - Fraction(math.exp(-1))) < Fraction(1, 2**53)


class Scripted(Stream):
    """A stream that says what it is told to."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)

    def words(self, n: Any) -> Any:
        return np.full(n, self.answers.pop(0), np.uint64)


def test_the_tails_have_no_holes() -> None:
    # u = 5, kept; v = 30 coins well, then one badly; the last coin: its fraction, then as many well as it takes.
    well, badly = 0, 2**64 - 1
    script = Scripted(5, well, *[well] * 30, badly, well, *[well] * 500, badly)
    scale = 16.0
    [draw] = discrete_gaussian([scale], script)
    assert draw == 5 + 16 * 30
    assert draw > 30 * scale  # a probability of about exp(−450), far below 2⁻⁵³


def test_every_number_has_the_scale_asked_for() -> None:
    scales = np.tile([1.5, 300.0, 2.0**45], BLOCK)
    draws = discrete_gaussian(scales.reshape(3, -1), fixed(9))
    assert draws.shape == (3, BLOCK)
    assert draws.dtype == np.int64
    z = draws.ravel() / scales
    for start in range(3):
        assert abs(z[start::3].var() - 1) < 0.03


@pytest.mark.parametrize("scale", [0.0, -1.0, 2.0**59, math.nan])
def test_a_scale_that_cannot_be_is_refused(scale: Any) -> None:
    with pytest.raises(InputError, match="at most 2⁵⁸ steps"):
        discrete_gaussian([1.0, scale])


def test_the_stream_is_chacha20() -> None:
    first = fixed(0).words(4).tobytes()
    assert first.hex() == "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"  # RFC 8439, A.1, 1


def test_noise_does_not_come_from_numpy() -> None:
    draws = []
    for _ in range(2):
        np.random.seed(0)  # noqa: NPY002 - whoever seeds it must not fix the noise
        draws.append(discrete_gaussian(np.full(50, 1e6)))
    assert (draws[0] != draws[1]).sum() > 40


def test_a_stream_takes_a_new_key_before_it_is_used_up(monkeypatch: Any) -> None:
    monkeypatch.setattr("fedmoments.privacy.dp.discrete.MOST_WORDS", 8)
    stream = fixed(1)
    words = [stream.words(8) for _ in range(3)]
    monkeypatch.undo()
    same = fixed(1)
    assert (words[0] == same.words(8)).all()
    for each in words[1:]:  # the key that follows is the next 32 bytes under the former one
        same = Stream(same.words(4).tobytes())
        assert (each == same.words(8)).all()
    assert len(np.unique(words)) == 24


def test_a_key_of_another_length_is_refused() -> None:
    with pytest.raises(InputError, match="has 32 bytes, but 5 arrived"):
        Stream(b"12345")
