"""Random Fourier features and their bandwidth."""

import numpy as np
import numpy.typing as npt
import pytest
from scipy.spatial import distance

from fedmoments.core.maps import RandomFourier, median_bandwidth
from fedmoments.errors import InputError, NotEnoughDataError

Array = npt.NDArray[np.float64]


def bandwidth_of(X: Array) -> float:
    return median_bandwidth(len(X), X.sum(axis=0), float((X**2).sum()))


@pytest.fixture
def digits() -> Array:
    datasets = pytest.importorskip("sklearn.datasets")
    images: Array = datasets.load_digits().data.astype(np.float64)[:300]
    return images


def test_fourier_gram_error_falls_as_one_over_the_root_of_features(digits: Array) -> None:
    sigma = bandwidth_of(digits)
    kernel = np.exp(-distance.squareform(distance.pdist(digits, "sqeuclidean")) / (2 * sigma**2))
    widths = [64, 256, 1024, 4096]
    errors = []
    for width in widths:
        maps = [RandomFourier(digits.shape[1], width, sigma, seed) for seed in range(6)]
        errors.append(np.sqrt(np.mean([(m(digits) @ m(digits).T - kernel) ** 2 for m in maps])))
    slope = np.polyfit(np.log(widths), np.log(errors), 1)[0]
    assert -0.58 < slope < -0.42
    assert errors[-1] < 0.02


def test_fourier_features_follow_their_formula() -> None:
    fourier = RandomFourier(3, 5, 2.0, seed=1)
    X = np.random.default_rng(0).normal(size=(4, 3))
    naive = [
        [
            np.sqrt(2 / 5) * np.cos(sum(x[i] * fourier.frequencies[i, j] for i in range(3)) + fourier.phases[j])
            for j in range(5)
        ]
        for x in X
    ]
    np.testing.assert_allclose(fourier(X), naive, rtol=1e-12, atol=1e-14)


def test_frequencies_scale_with_one_over_the_bandwidth() -> None:
    one, thousand = RandomFourier(50, 200, 1.0, seed=3), RandomFourier(50, 200, 1000.0, seed=3)
    np.testing.assert_allclose(one.frequencies, 1000 * thousand.frequencies, rtol=1e-15)
    assert one.frequencies.var() == pytest.approx(1.0, rel=4 * np.sqrt(2 / 10_000))


def test_phases_are_in_the_half_open_circle() -> None:
    phases = RandomFourier(1, 10_000, 1.0, seed=3).phases
    assert phases.min() >= 0
    assert phases.max() < 2 * np.pi


def test_median_bandwidth_is_the_root_mean_square_distance_of_all_pairs(digits: Array) -> None:
    naive = np.sqrt(np.mean([np.sum((a - b) ** 2) for i, a in enumerate(digits) for b in digits[:i]]))
    assert bandwidth_of(digits) == pytest.approx(naive, rel=1e-12)
    total_covariance = np.cov(digits.T)
    assert bandwidth_of(digits) == pytest.approx(np.sqrt(2 * np.trace(total_covariance)), rel=1e-12)


def test_median_bandwidth_is_near_the_median_distance(digits: Array) -> None:
    assert bandwidth_of(digits) == pytest.approx(np.median(distance.pdist(digits)), rel=0.05)


def test_median_bandwidth_takes_class_statistics_too(digits: Array) -> None:
    halves = [digits[:100], digits[100:]]
    by_class = median_bandwidth([100, 200], [half.sum(axis=0) for half in halves], float((digits**2).sum()))
    assert by_class == pytest.approx(bandwidth_of(digits), rel=1e-12)


@pytest.mark.parametrize(
    ("counts", "sums", "squares", "error", "message"),
    [
        (1, [1.0], 1.0, NotEnoughDataError, "at least 2 samples"),
        (3, [3.0, 3.0], 6.0, NotEnoughDataError, "do not differ"),
        (2, [0.0], 0.0, NotEnoughDataError, "do not differ"),
        (2, [10.0], 3.0, InputError, "which no samples have"),
        (2, [1.0], float("nan"), InputError, "squared_norm_total must be"),
        (2, [1.0], -1.0, InputError, "squared_norm_total must be"),
        (-2, [1.0], 1.0, InputError, "counts must be"),
        ([[2]], [1.0], 1.0, InputError, "counts must be"),
        (2, 1.0, 1.0, InputError, "sums must be"),
        (2, [float("nan")], 1.0, InputError, "sums must be"),
    ],
)
def test_statistics_without_a_bandwidth_are_refused(
    counts: npt.ArrayLike, sums: npt.ArrayLike, squares: float, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        median_bandwidth(counts, sums, squares)
