"""The generator: its raw words, its normals, and the bits of the matrices drawn from it."""

import hashlib

import numpy as np
import pytest
from scipy import special, stats

from fedmoments.core.maps import RandomFourier, RandomProjection
from fedmoments.core.maps.randomness import (
    normals_from_words,
    open_uniforms_from_words,
    standard_normals,
    uniforms,
)

MASK = 2**64 - 1


def philox_4x64_10(key: int, count: int) -> list[int]:
    """Return raw words of Philox as Salmon et al. (2011) define it, in Python integers; numpy's counter starts at 1."""
    words: list[int] = []
    counter = 0
    while len(words) < count:
        counter += 1
        x = [counter, 0, 0, 0]
        k = [key & MASK, key >> 64]
        for round_ in range(10):
            if round_:
                k = [(k[0] + 0x9E3779B97F4A7C15) & MASK, (k[1] + 0xBB67AE8584CAA73B) & MASK]
            first = 0xD2E7470EE14C6C93 * x[0]
            second = 0xCA5A826395121157 * x[2]
            x = [(second >> 64) ^ x[1] ^ k[0], second & MASK, (first >> 64) ^ x[3] ^ k[1], first & MASK]
        words.extend(x)
    return words[:count]


def key_of(stream: str, seed: int) -> int:
    return int.from_bytes(hashlib.sha256(f"fedmoments.maps/1/{stream}/{seed}".encode()).digest()[:16], "little")


def test_words_are_those_of_philox_written_out() -> None:
    words = np.array(philox_4x64_10(key_of("fourier/phases", 7), 10), dtype=np.uint64)
    expected = [(int(word) >> 11) / 2**53 for word in words]
    assert uniforms(7, "fourier/phases", 10).tolist() == expected
    assert standard_normals(7, "fourier/phases", 10).tolist() == normals_from_words(words).tolist()


def test_normals_are_the_inverse_distribution_function_of_uniforms() -> None:
    centre = np.random.Philox(key=1).random_raw(200_000)
    tails = np.geomspace(1, 2**51, 5_000).astype(np.uint64) << np.uint64(12)
    words = np.concatenate([centre, tails, ~tails])
    np.testing.assert_allclose(normals_from_words(words), special.ndtri(open_uniforms_from_words(words)), rtol=5e-15)


def test_normals_are_odd_about_one_half() -> None:
    words = np.random.Philox(key=2).random_raw(10_000)
    np.testing.assert_array_equal(normals_from_words(words), -normals_from_words(~words))


def test_normals_of_extreme_words_are_finite() -> None:
    ends = normals_from_words(np.array([0, 2**64 - 1], dtype=np.uint64))
    assert ends[0] == -ends[1]
    assert 8 < ends[1] < 8.3


def test_normals_are_normal() -> None:
    normals = standard_normals(3, "test", 200_000)
    assert stats.kstest(normals, "norm").pvalue > 0.01
    assert abs(normals.mean()) < 4 / np.sqrt(normals.size)
    assert abs(normals.var() - 1) < 4 * np.sqrt(2 / normals.size)


def test_uniforms_are_uniform() -> None:
    assert stats.kstest(uniforms(3, "test", 200_000), "uniform").pvalue > 0.01


def test_a_shorter_draw_is_a_prefix_of_a_longer_one_across_blocks() -> None:
    long = standard_normals(5, "test", 2**16 + 100)
    np.testing.assert_array_equal(long[: 2**16 - 1], standard_normals(5, "test", 2**16 - 1))


def test_streams_and_seeds_are_independent() -> None:
    draws = [standard_normals(seed, stream, 20_000) for seed in (0, 1) for stream in ("a", "b")]
    correlations = np.asarray(np.corrcoef(draws))[np.triu_indices(4, k=1)]
    assert np.abs(correlations).max() < 4.5 / np.sqrt(20_000)


def test_frozen_hash_of_a_projection() -> None:
    projection = RandomProjection(input_dim=512, n_components=300, seed=2026)
    assert projection.content_hash() == "8d60e29496a726165732a12c60d8839f2b1c304a4aa8cf81816246b4603b64b3"
    assert projection.fingerprint() == "afc7419015e184a5ab3705bbf058e8f4477bf651df34b00f8543b3edf8aee664"
    assert [float(x).hex() for x in projection.matrix[0, :2]] == ["0x1.ed99079365ad1p-7", "-0x1.679c6771da68ap-5"]


def test_frozen_hash_of_a_fourier_map() -> None:
    fourier = RandomFourier(input_dim=384, n_features=500, bandwidth=1.3, seed=2026)
    assert fourier.content_hash() == "45f4f4a7d9faff9d5d73a74052d591e402e6f106817e9d5de1ba3c8a0b447eb5"
    assert fourier.fingerprint() == "712c86d262bc21cd3aa3946d6eaf0929dc677f130165a9688482b2ea60cbcbe9"


def test_content_hash_is_of_little_endian_rows() -> None:
    projection = RandomProjection(3, 2, seed=0)
    raw = b"".join(np.float64(entry).astype("<f8").tobytes() for row in projection.matrix for entry in row)
    assert projection.content_hash() == hashlib.sha256(raw).hexdigest()


@pytest.mark.parametrize("small", [1, 7])
def test_fewer_columns_are_the_first_columns_of_more(small: int) -> None:
    few, many = RandomFourier(5, small, 2.0, seed=1), RandomFourier(5, 20, 2.0, seed=1)
    np.testing.assert_array_equal(few.frequencies, many.frequencies[:, :small])
    np.testing.assert_array_equal(few.phases, many.phases[:small])
    few_p, many_p = RandomProjection(5, small, seed=1), RandomProjection(5, 20, seed=1)
    np.testing.assert_allclose(few_p.matrix * np.sqrt(small), many_p.matrix[:, :small] * np.sqrt(20), rtol=1e-15)
