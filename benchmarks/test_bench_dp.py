"""Discrete Gaussian noise: the vectorised sampler against NumPy's normal numbers and against one number at a time."""

from collections.abc import Callable

import numpy as np

from fedmoments.privacy.dp import Stream, discrete_gaussian

#: As many numbers as a release of 77 classes with a gram in 128 dimensions.
SIZE = 77 * 129 + 128 * 129 // 2


def test_noise_that_protects_costs_little_more_than_noise_that_does_not(compare: Callable[..., float]) -> None:
    rng, scales = np.random.default_rng(0), np.full(SIZE, 2.0**40)
    compare(
        "discrete Gaussian / rounded NumPy normal",
        lambda: discrete_gaussian(scales),
        lambda: np.rint(rng.normal(size=SIZE) * scales).astype(np.int64),
        at_most=40.0,
    )


def test_vectors_beat_single_numbers(compare: Callable[..., float]) -> None:
    source = Stream()
    one = np.array([2.0**40])
    compare(
        "discrete Gaussian, 200 numbers at once and one by one",
        lambda: discrete_gaussian(np.repeat(one, 200), source),
        lambda: [discrete_gaussian(one, source) for _ in range(200)],
        at_least=10.0,
    )
