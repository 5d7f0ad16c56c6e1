"""How images are prepared: the geometry against Pillow's own steps, all kinds of input, all kinds of damage."""

import io
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from fedmoments.errors import InputError
from fedmoments.samples.encoders import IMAGENET, ImagePreprocessing

Pixels = NDArray[np.uint8]


def picture(height: int, width: int, seed: int = 0) -> Pixels:
    """A smooth random colour image (height, width, 3)."""
    coarse = np.random.default_rng(seed).integers(0, 256, (6, 7, 3)).astype(np.uint8)
    return np.asarray(Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC))


def encoded(pixels: Pixels | Image.Image, kind: str, **how: Any) -> bytes:
    image = pixels if isinstance(pixels, Image.Image) else Image.fromarray(pixels)
    buffer = io.BytesIO()
    image.save(buffer, kind, **how)
    return buffer.getvalue()


def shown(prepared: Pixels) -> Pixels:
    return prepared.transpose(1, 2, 0)


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
def test_preparing_is_a_centre_crop_and_one_resize(interpolation: Any) -> None:
    image = Image.fromarray(picture(320, 448))
    side = 320 * 0.875  # 280, from (84, 20)
    expected = image.crop((84, 20, 84 + 280, 20 + 280)).resize((224, 224), Image.Resampling[interpolation.upper()])
    prepared = ImagePreprocessing(interpolation=interpolation).prepare(image)
    assert side == 280
    assert prepared.shape == (3, 224, 224)
    assert prepared.dtype == np.uint8
    assert prepared.flags.c_contiguous
    # The crop is the border of the filter's support only; a pixel at the edge may see one pixel beyond it.
    difference = np.abs(shown(prepared).astype(int) - np.asarray(expected))
    assert difference[2:-2, 2:-2].max() <= 1
    assert difference.max() <= 8


def test_an_image_below_the_size_is_enlarged_whole() -> None:
    digit = np.random.default_rng(1).integers(0, 256, (8, 8)).astype(np.uint8)
    expected = Image.fromarray(digit).resize((96, 96), Image.Resampling.BILINEAR)
    prepared = ImagePreprocessing(size=96).prepare(digit)
    np.testing.assert_array_equal(prepared, np.stack([np.asarray(expected)] * 3))


def test_a_narrow_small_image_keeps_its_whole_short_side() -> None:
    pixels = picture(40, 100)
    expected = Image.fromarray(pixels[:, 30:70]).resize((96, 96), Image.Resampling.BILINEAR)
    difference = shown(ImagePreprocessing(size=96).prepare(pixels)).astype(int) - np.asarray(expected)
    assert np.abs(difference[:, 4:-4]).max() <= 1


def test_a_path_bytes_a_pil_image_and_an_array_are_prepared_alike(tmp_path: Path) -> None:
    pixels = picture(240, 250)
    data = encoded(pixels, "PNG")
    path = tmp_path / "image.png"
    path.write_bytes(data)
    expected = IMAGENET.prepare(pixels)
    for sample in (path, data, bytearray(data), Image.fromarray(pixels)):
        np.testing.assert_array_equal(IMAGENET.prepare(sample), expected)


def test_grey_arrays_of_two_and_three_axes_are_alike() -> None:
    grey = picture(60, 50)[:, :, 0].copy()
    expected = IMAGENET.prepare(grey)
    np.testing.assert_array_equal(IMAGENET.prepare(grey[:, :, np.newaxis]), expected)
    np.testing.assert_array_equal(IMAGENET.prepare(np.stack([grey] * 3, 2)), expected)


@pytest.mark.parametrize("orientation", [3, 6, 8])
def test_exif_orientation_is_applied(orientation: int) -> None:
    upright = picture(300, 260)
    turns = {3: 2, 6: 1, 8: 3}[orientation]
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = encoded(np.rot90(upright, turns).copy(), "PNG", exif=exif)
    expected = IMAGENET.prepare(upright)
    np.testing.assert_array_equal(IMAGENET.prepare(data), expected)
    with Image.open(io.BytesIO(data)) as image:
        np.testing.assert_array_equal(IMAGENET.prepare(image), expected)
        assert image.size == Image.open(io.BytesIO(data)).size  # the caller's image is as it was


def test_transparent_pixels_are_white() -> None:
    pixels = np.zeros((64, 64, 4), np.uint8)
    pixels[:, :, 0] = 200
    assert (ImagePreprocessing(size=32).prepare(pixels) == 255).all()
    assert (ImagePreprocessing(size=32).prepare(encoded(pixels, "PNG")) == 255).all()


def test_a_palette_and_its_colours_are_alike() -> None:
    palette = Image.fromarray(picture(64, 64)).quantize(8)
    expected = IMAGENET.prepare(np.asarray(palette.convert("RGB")))
    np.testing.assert_array_equal(IMAGENET.prepare(encoded(palette, "PNG")), expected)


def test_sixteen_bits_become_eight() -> None:
    eight = picture(64, 64)[:, :, 0]
    sixteen = encoded(Image.fromarray(eight.astype(np.uint16) * 257), "PNG")
    np.testing.assert_array_equal(IMAGENET.prepare(sixteen), IMAGENET.prepare(eight.copy()))


def test_cmyk_is_read() -> None:
    image = Image.fromarray(picture(64, 64)).convert("CMYK")
    assert IMAGENET.prepare(encoded(image, "JPEG")).shape == (3, 224, 224)


def test_a_large_jpeg_is_scaled_fast_and_faithfully() -> None:
    pixels = picture(1500, 2000)
    data = encoded(pixels, "JPEG", quality=95)
    small = ImagePreprocessing(size=96)
    with Image.open(io.BytesIO(data)) as image:
        slow = image.convert("RGB")
    side = 1500 * 0.875
    box = ((2000 - side) / 2, (1500 - side) / 2, (2000 + side) / 2, (1500 + side) / 2)
    expected = np.asarray(slow.resize((96, 96), Image.Resampling.BILINEAR, box=box)).astype(int)
    difference = np.abs(shown(small.prepare(data)) - expected)
    assert difference.mean() < 0.5
    assert difference.max() <= 6


def test_threads_prepare_what_one_does() -> None:
    samples = [encoded(picture(200 + i, 300, seed=i), "JPEG") for i in range(12)]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(IMAGENET.prepare, samples))
    for sample, prepared in zip(samples, together, strict=True):
        np.testing.assert_array_equal(IMAGENET.prepare(sample), prepared)


def test_normalizing_is_what_the_formula_says() -> None:
    images = ImagePreprocessing(size=32, channels="BGR", mean=(1, 2, 3), scale=(4, 5, 6))
    batch = np.random.default_rng(0).integers(0, 256, (2, 3, 32, 32)).astype(np.uint8)
    normalized = images.normalize(batch)
    assert normalized.dtype == np.float32
    for channel, source in enumerate((2, 1, 0)):
        expected = (batch[:, source].astype(np.float64) - images.mean[channel]) / images.scale[channel]
        np.testing.assert_allclose(normalized[:, channel], expected, rtol=1e-6)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "GIF"])
@pytest.mark.parametrize("part", [0.0, 0.01, 0.3, 0.8])
def test_a_truncated_image_is_refused(kind: str, part: float) -> None:
    data = encoded(picture(300, 300), kind)
    with pytest.raises(InputError, match=r"cannot be read|not an image"):
        IMAGENET.prepare(data[: int(len(data) * part)])


def test_damaged_bytes_are_refused_or_read_but_never_crash() -> None:
    rng = np.random.default_rng(0)
    whole = {kind: encoded(picture(80, 80), kind) for kind in ("JPEG", "PNG", "GIF", "BMP", "TIFF", "WEBP")}
    for data in whole.values():
        for _ in range(20):
            damaged = bytearray(data)
            for place in rng.integers(0, len(data), 8):
                damaged[place] = rng.integers(0, 256)
            with suppress(InputError):
                assert ImagePreprocessing(size=32).prepare(bytes(damaged)).shape == (3, 32, 32)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        IMAGENET.prepare(tmp_path / "none.png")


def test_a_file_that_is_no_image_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "note.jpg"
    path.write_text("not a picture")
    with pytest.raises(InputError, match="not an image"):
        IMAGENET.prepare(path)


@pytest.mark.parametrize("limit", [100, 300, 399])
def test_an_absurdly_large_image_is_refused(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    data = encoded(np.zeros((20, 20, 3), np.uint8), "PNG")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
    with pytest.raises(InputError, match=f"more than {limit} pixels"):
        IMAGENET.prepare(data)


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")  # as in a program that does not raise it
def test_an_absurdly_large_image_is_refused_where_pillow_only_warns(monkeypatch: pytest.MonkeyPatch) -> None:
    data = encoded(np.zeros((20, 20, 3), np.uint8), "PNG")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 300)
    with pytest.raises(InputError, match="20 × 20"):
        IMAGENET.prepare(data)


@pytest.mark.parametrize(
    ("sample", "reason"),
    [
        (np.zeros((8, 8)), "uint8"),
        (np.zeros((8,), np.uint8), "empty"),
        (np.zeros((3, 8, 8), np.uint8), r"\(h, w\)"),
        (np.zeros((0, 8), np.uint8), "empty"),
        ("picture.png", "pathlib.Path"),
        (None, "NoneType"),
        (Image.new("F", (40, 40)), "floating-point"),
    ],
)
def test_what_is_no_image_is_refused(sample: Any, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        IMAGENET.prepare(sample)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"size": 8}, "32 to 4096"),
        ({"size": 100_000}, "32 to 4096"),
        ({"size": 96.0}, "32 to 4096"),
        ({"crop": 0.0}, "crop"),
        ({"crop": 1.5}, "crop"),
        ({"interpolation": "nearest"}, "interpolation"),
        ({"channels": "GBR"}, "channels"),
        ({"scale": (1.0, 0.0, 1.0)}, "scale"),
        ({"mean": (1.0, 2.0)}, "mean"),
        ({"mean": (1.0, 2.0, float("nan"))}, "mean"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        ImagePreprocessing(**settings)


def test_a_description_reads_back_and_an_unknown_rule_does_not() -> None:
    images = ImagePreprocessing(96, 0.9, "bicubic", "BGR", (1, 2, 3), (4, 5, 6))
    assert ImagePreprocessing.from_description(images.describe()) == images
    with pytest.raises(InputError, match="rule"):
        ImagePreprocessing.from_description({**images.describe(), "rule": "stretch"})
    with pytest.raises(InputError, match="incomplete"):
        ImagePreprocessing.from_description({"rule": images.describe()["rule"]})
