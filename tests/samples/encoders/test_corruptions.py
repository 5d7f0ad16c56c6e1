"""Corruptions: what they do to images of any size, against formulas and referees, and through encoder and cache."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.samples.encoders.pictures import SHAPES, picture

from fedmoments.errors import InputError, UnknownNameError
from fedmoments.samples.corruptions import corrupt, corruption_names, families
from fedmoments.samples.corruptions.kernels import (
    bell_kernel,
    blur_with,
    disc_kernel,
    gaussian_blurred,
    read_at,
    streak_kernel,
)

pillow = pytest.importorskip("PIL.Image")
NAMES = corruption_names()


def difference(image: NDArray[np.uint8], name: str, severity: int, repeats: int = 4) -> float:
    """Return the mean absolute difference that a corruption makes, in 255ths."""
    clean = image.astype(float)
    found = [np.abs(corrupt(image, name, severity, index=i) - clean).mean() for i in range(repeats)]
    return float(np.mean(found))


def test_there_are_nineteen_in_four_families() -> None:
    assert list(families()) == ["noise", "blur", "weather", "digital"]
    assert tuple(itertools.chain(*families().values())) == NAMES
    assert len(set(NAMES)) == 19


def test_frost_is_pale_blue_crystals_that_leave_the_image_visible() -> None:
    image = picture((96, 96, 3))
    found = corrupt(image, "frost", 5, seed=1).astype(float)
    assert np.corrcoef(found.ravel(), image.ravel())[0, 1] > 0.3
    ice = corrupt(np.zeros((96, 96, 3), np.uint8), "frost", 5, seed=1).astype(float)
    assert (ice[..., 2] >= ice[..., 0]).all()
    assert ice.std() > 15  # a texture, not a veil
    assert (corrupt(np.zeros((96, 96, 3), np.uint8), "frost", 5, seed=2) != ice).mean() > 0.5


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", NAMES)
def test_an_image_changes_but_not_its_shape(name: str, shape: tuple[int, ...]) -> None:
    image = picture(shape)
    before = image.copy()
    for severity in range(1, 6):
        found = corrupt(image, name, severity, seed=3, index=7)
        assert found.shape == shape
        assert found.dtype == np.uint8
        assert not np.shares_memory(found, image)
        np.testing.assert_array_equal(image, before)
        np.testing.assert_array_equal(corrupt(image, name, severity, seed=3, index=7), found)
        assert (found != image).any() or (name == "saturate" and len(shape) == 2)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", NAMES)
def test_severity_five_is_stronger_than_one(name: str, shape: tuple[int, ...]) -> None:
    if name == "saturate" and len(shape) == 2:
        pytest.skip("a grey image has no colours")
    image = picture(shape)
    assert difference(image, name, 5) > 1.1 * difference(image, name, 1)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("saturate", "spatter", "snow")])
def test_severities_ascend_on_a_photograph(name: str) -> None:
    from sklearn.datasets import load_sample_image

    image = np.asarray(pillow.fromarray(load_sample_image("china.jpg")).crop((0, 0, 427, 427)).resize((96, 96)))
    strengths = [difference(image, name, severity) for severity in range(1, 6)]
    if name in (
        "fog",
        "frost",
    ):  # clouds and ice differ from severity to severity: a middle one may happen to be darker
        assert strengths[4] > strengths[0]
    else:
        assert strengths == sorted(strengths)


@pytest.mark.parametrize(
    "name", ["gaussian-noise", "glass-blur", "motion-blur", "snow", "frost", "fog", "elastic-transform"]
)
def test_seed_name_severity_and_place_all_count(name: str) -> None:
    image = picture((32, 32, 3))
    found = {
        corrupt(image, name, severity, seed=seed, index=index).tobytes()
        for severity in (2, 3)
        for seed in (0, 1, 2**40)
        for index in (0, 1)
    }
    assert len(found) == 12


@pytest.mark.parametrize("shape", [(1, 1), (1, 1, 3), (1, 40), (40, 1, 3), (2, 3), (3, 300, 3)])
@pytest.mark.parametrize("name", NAMES)
def test_odd_shapes_and_flat_images_are_taken(name: str, shape: tuple[int, ...]) -> None:
    for image in (picture(shape), np.zeros(shape, np.uint8), np.full(shape, 255, np.uint8)):
        with np.errstate(all="raise", under="ignore"):
            assert corrupt(image, name, 5).shape == shape


@pytest.mark.parametrize("name", families()["blur"])
def test_blur_leaves_a_flat_image_flat(name: str) -> None:
    for value in (0, 1, 100, 255):
        image = np.full((33, 50, 3), value, np.uint8)
        np.testing.assert_array_equal(corrupt(image, name, 5), image)


def test_a_view_is_as_good_as_an_array() -> None:
    image = picture((40, 40, 3))
    for name in NAMES:
        turned = np.ascontiguousarray(image[::-1, ::2])
        np.testing.assert_array_equal(corrupt(image[::-1, ::2], name, 3), corrupt(turned, name, 3))


@pytest.mark.parametrize("severity", [0, 6, -1, 1.0, 2.5, True, "3", None])
def test_other_severities_are_refused(severity: Any) -> None:
    with pytest.raises(InputError, match=r"severity of the corruption 'fog' must be .* 1 \(weak\) to 5") as caught:
        corrupt(picture((8, 8)), "fog", severity)
    assert repr(severity) in str(caught.value)


def test_numpy_whole_numbers_are_numbers() -> None:
    image = picture((8, 8))
    found = corrupt(image, "fog", np.int64(3), seed=np.int32(1), index=np.uint8(2))  # type: ignore[arg-type]
    np.testing.assert_array_equal(found, corrupt(image, "fog", 3, seed=1, index=2))


@pytest.mark.parametrize("name", ["frosts", "Fog", "gaussian_noise", "", None])
def test_other_names_are_refused(name: Any) -> None:
    with pytest.raises(UnknownNameError, match=r"unknown corruption '.*Known are: brightness, contrast"):
        corrupt(picture((8, 8)), name, 1)


@pytest.mark.parametrize(
    "image",
    [
        np.zeros((8, 8)),
        np.zeros((8, 8), np.int8),
        np.zeros((0, 8), np.uint8),
        np.zeros((8, 0, 3), np.uint8),
        np.zeros(8, np.uint8),
        np.zeros((8, 8, 4), np.uint8),
        np.zeros((8, 8, 1), np.uint8),
        np.zeros((2, 8, 8, 3), np.uint8),
        [[1, 2], [3, 4]],
        b"bytes",
        None,
    ],
)
def test_other_images_are_refused(image: Any) -> None:
    with pytest.raises(InputError, match="an image to corrupt must be"):
        corrupt(image, "fog", 1)


@pytest.mark.parametrize("wrong", [{"seed": -1}, {"seed": 1.5}, {"index": -1}, {"index": True}])
def test_other_seeds_and_places_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="must be a whole number of at least 0"):
        corrupt(picture((8, 8)), "fog", 1, **wrong)


# Formulas of noise ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("side", "name", "severity", "variance"),
    [
        (32, "gaussian-noise", 3, 0.08**2),
        (224, "gaussian-noise", 2, 0.12**2),
        (32, "shot-noise", 5, 0.5 / 50),
        (224, "shot-noise", 2, 0.5 / 25),
        (32, "speckle-noise", 5, (0.5 * 0.2) ** 2),
        (224, "speckle-noise", 1, (0.5 * 0.15) ** 2),
        (32, "impulse-noise", 5, 0.07 * 0.25),
        (224, "impulse-noise", 5, 0.27 * 0.25),
    ],
)
def test_noise_has_the_published_variance(side: int, name: str, severity: int, variance: float) -> None:
    image = np.full((side, side, 3), 128, np.uint8)
    count = max(4, 100_000 // image.size)
    noise = np.stack([corrupt(image, name, severity, index=i) for i in range(count)]) / 255 - 128 / 255
    assert abs(noise.mean()) < 5 * math.sqrt(variance / noise.size)
    assert np.mean(noise**2) == pytest.approx(variance, rel=0.06)


def test_noise_between_the_scales_lies_between() -> None:
    image = np.full((96, 96, 3), 128, np.uint8)
    way = math.log(96 / 32) / math.log(7)
    assert np.std(corrupt(image, "gaussian-noise", 1) / 255) == pytest.approx(0.04 ** (1 - way) * 0.08**way, rel=0.03)


def test_channels_are_noisy_on_their_own() -> None:
    noise = corrupt(np.full((96, 96, 3), 128, np.uint8), "gaussian-noise", 2).reshape(-1, 3).astype(float)
    assert np.abs(np.corrcoef(noise.T) - np.eye(3)).max() < 0.05


# Referees of blur ----------------------------------------------------------------------------------------------------


def direct(image: NDArray[np.float32], kernel: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """Convolve one pixel after the other; an image's border is a mirror."""
    (height, width, _), reach = image.shape, kernel.shape[0] // 2
    found = np.zeros(image.shape)
    for y, x in np.ndindex(height, width):
        for dy, dx in np.ndindex(kernel.shape):
            row, column = y - (dy - reach), x - (dx - reach)
            while not 0 <= row < height:
                row = -1 - row if row < 0 else 2 * height - 1 - row
            while not 0 <= column < width:
                column = -1 - column if column < 0 else 2 * width - 1 - column
            found[y, x] += float(kernel[dy, dx]) * image[row, column]
    return found


def random_image(height: int, width: int) -> NDArray[np.float32]:
    return np.random.default_rng(height).random((height, width, 2), np.float32)


@pytest.mark.parametrize("size", [(8, 8), (5, 11), (2, 3), (13, 12)])
@pytest.mark.parametrize(
    "kernel",
    [disc_kernel(0.1), disc_kernel(1.5), disc_kernel(3.2), streak_kernel(4.0, 2.0, 30.0)],
    ids=["small disc", "disc", "large disc", "streak"],
)
def test_fourier_convolution_is_direct_convolution(size: tuple[int, int], kernel: NDArray[np.float32]) -> None:
    image = random_image(*size)
    np.testing.assert_allclose(blur_with(image, kernel), direct(image, kernel), atol=2e-6)


@pytest.mark.parametrize("sigma", [0.05, 0.4, 1.0, 2.7])
def test_gaussian_blur_is_direct_convolution_with_a_bell(sigma: float) -> None:
    rng, reach = np.random.default_rng(0), math.ceil(4 * sigma)
    draws = sigma * rng.standard_normal(400_000)  # a bell read linearly between pixels, by chance
    weights = [np.maximum(0, 1 - np.abs(draws - j)).mean() for j in range(-reach, reach + 1)]
    np.testing.assert_allclose(bell_kernel(sigma), weights, atol=3e-3)
    bell = bell_kernel(sigma)
    image = random_image(9, 7)
    np.testing.assert_allclose(gaussian_blurred(image, sigma), direct(image, np.outer(bell, bell)), atol=2e-6)


@pytest.mark.parametrize("radius", [0.07, 0.3, 1.0, 1.5, 4.3])
def test_a_disc_is_the_average_over_a_disc(radius: float) -> None:
    kernel = disc_kernel(radius).astype(float)
    rng = np.random.default_rng(1)
    distance, turn = radius * np.sqrt(rng.random(200_000)), rng.uniform(0, 2 * np.pi, 200_000)
    y, x, reach = distance * np.sin(turn), distance * np.cos(turn), kernel.shape[0] // 2
    for row, column in np.ndindex(kernel.shape):
        hat = np.maximum(0, 1 - np.abs(y - row + reach)) * np.maximum(0, 1 - np.abs(x - column + reach))
        assert kernel[row, column] == pytest.approx(hat.mean(), abs=4e-3)
    assert kernel.sum() == pytest.approx(1, abs=1e-6)
    np.testing.assert_allclose(kernel, kernel[::-1, ::-1].T, atol=1e-7)


@pytest.mark.parametrize("angle", [-45.0, 0.0, 33.0, 90.0, 135.0])
def test_a_streak_begins_at_the_centre_and_goes_along_its_angle(angle: float) -> None:
    kernel = streak_kernel(6.0, 3.0, angle).astype(float)
    places = np.arange(kernel.shape[0]) - kernel.shape[0] // 2
    down, along = float(kernel.sum(1) @ places), float(kernel.sum(0) @ places)
    t = np.linspace(0, 6, 10_001)
    mean = float((t * np.exp(-0.5 * (t / 3) ** 2)).sum() / np.exp(-0.5 * (t / 3) ** 2).sum())
    turn = math.radians(angle)
    assert (down, along) == pytest.approx((mean * math.sin(turn), mean * math.cos(turn)), abs=0.02)


def test_reading_between_pixels_is_linear() -> None:
    from scipy.ndimage import map_coordinates

    image = random_image(7, 9)
    y, x = np.random.default_rng(2).uniform(-3, 10, (2, 20, 30))
    found = read_at(image, y, x)
    for channel in range(2):
        referee = map_coordinates(image[:, :, channel], (y, x), order=1, mode="reflect")
        np.testing.assert_allclose(found[:, :, channel], referee, atol=1e-5)


def test_a_defocus_blurs_as_far_at_any_size() -> None:
    """A point of a large image and one of an image twice as large spread over the same share of it."""
    widths = []
    for side in (224, 448):
        image = np.zeros((side, side), np.uint8)
        image[side // 4 : 3 * side // 4] = 200  # an edge
        row = corrupt(image, "defocus-blur", 3)[:, 0].astype(int)
        widths.append(np.count_nonzero((row > 0) & (row < 200)) / side)
    assert widths[0] == pytest.approx(widths[1], rel=0.1)


# Formulas of the others ----------------------------------------------------------------------------------------------


def test_colours_change_as_hue_saturation_and_value_do() -> None:
    from colorsys import hsv_to_rgb, rgb_to_hsv

    image = np.random.default_rng(0).integers(1, 255, (32, 32, 3), dtype=np.uint8)
    bright, vivid = corrupt(image, "brightness", 3), corrupt(image, "saturate", 4)
    for pixel, brighter, stronger in zip(*(a.reshape(-1, 3) for a in (image, bright, vivid)), strict=True):
        hue, saturation, value = rgb_to_hsv(*(pixel / 255))
        np.testing.assert_allclose(brighter / 255, hsv_to_rgb(hue, saturation, min(1, value + 0.15)), atol=0.003)
        if saturation:
            wanted = hsv_to_rgb(hue, min(1, 2 * saturation + 0.1), value)
            np.testing.assert_allclose(stronger / 255, wanted, atol=0.003)


def test_contrast_shrinks_towards_the_mean_of_each_channel() -> None:
    image = picture((32, 32, 3)).astype(float)
    mean = image.mean((0, 1))
    np.testing.assert_allclose(corrupt(picture((32, 32, 3)), "contrast", 2), mean + (image - mean) * 0.5, atol=0.51)


def test_grey_stays_grey_and_has_no_colours_to_change() -> None:
    image = picture((32, 32))
    for severity in range(1, 6):
        np.testing.assert_array_equal(corrupt(image, "saturate", severity), image)
        colours = np.repeat(image[:, :, None], 3, axis=2)
        np.testing.assert_array_equal(corrupt(colours, "saturate", severity), colours)
