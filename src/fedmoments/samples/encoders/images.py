"""How an image becomes numbers: decode, turn upright, crop to a square, resize — and, on the batch, normalise.

The square is cut from the centre, its side a fraction ``crop`` of the image's short side, and resized once to
``size`` × ``size``. An image whose short side is below ``size`` has nothing to spare and keeps its whole short side:
an 8 × 8 digit is enlarged as it is. Then (x − mean) / scale per channel, on 0–255.
"""

import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedmoments.errors import InputError, MissingExtraError
from fedmoments.extras import require
from fedmoments.samples.encoders.dicom import dicom_pixels, is_dicom

__all__ = ["IMAGENET", "ImagePreprocessing", "open_image"]

# How far a large image may be shrunk by fast means (a JPEG's own scaling, averaging of whole blocks) before the proper
# filter: to this many times the size that is requested. Pillow calls 2 "reasonable" and 3 "nearly as good as none".
_GAP = 2.0
_SMALLEST, _LARGEST = 32, 4096
_RULE = "centre square of crop × short side, whole when the short side is below size; Pillow, gap 2"


@dataclass(frozen=True)
class ImagePreprocessing:
    """Everything that happens to an image before a model sees it.

    Parameters
    ----------
    size
        Side of the square in pixels, 32 to 4096.
    crop
        Fraction of the short side that is kept, above 0, at most 1.
    interpolation
        ``"bicubic"`` or ``"bilinear"``, both with anti-aliasing.
    channels
        Their order when they reach the model, ``"RGB"`` or ``"BGR"``.
    mean, scale
        Per channel in that order, on a scale of 0–255: x ↦ (x − mean) / scale.

    Examples
    --------
    >>> images = ImagePreprocessing(size=96)
    >>> images.prepare(np.zeros((8, 8), np.uint8)).shape
    (3, 96, 96)
    >>> images.describe()["crop"]
    0.875
    """

    size: int = 224
    crop: float = 0.875
    interpolation: Literal["bicubic", "bilinear"] = "bilinear"
    channels: Literal["RGB", "BGR"] = "RGB"
    mean: tuple[float, float, float] = (0.485 * 255, 0.456 * 255, 0.406 * 255)
    scale: tuple[float, float, float] = (0.229 * 255, 0.224 * 255, 0.225 * 255)

    def __post_init__(self) -> None:
        size: object = self.size
        if isinstance(size, bool) or not isinstance(size, int) or not _SMALLEST <= size <= _LARGEST:
            raise InputError(f"size of images must be {_SMALLEST} to {_LARGEST} pixels, but is {size!r}")
        if not 0 < self.crop <= 1:
            raise InputError(f"crop of images must be above 0 and at most 1, but is {self.crop!r}")
        if self.interpolation not in ("bicubic", "bilinear"):
            raise InputError(f"interpolation of images must be 'bicubic' or 'bilinear', but is {self.interpolation!r}")
        if self.channels not in ("RGB", "BGR"):
            raise InputError(f"channels of images must be 'RGB' or 'BGR', but are {self.channels!r}")
        object.__setattr__(self, "crop", float(self.crop))
        self._check_channel_values()

    def _check_channel_values(self) -> None:
        for name in ("mean", "scale"):
            values = tuple(float(value) for value in getattr(self, name))
            if len(values) != 3 or not np.isfinite(values).all() or (name == "scale" and min(values) <= 0):
                raise InputError(f"{name} of images must be three finite numbers (scale: above 0), but is {values}")
            object.__setattr__(self, name, values)

    def describe(self) -> dict[str, Any]:
        """Return all of it as JSON-able values; :meth:`from_description` reads it back."""
        return {
            "size": self.size,
            "crop": self.crop,
            "interpolation": self.interpolation,
            "channels": self.channels,
            "mean": list(self.mean),
            "scale": list(self.scale),
            "rule": _RULE,
        }

    @classmethod
    def from_description(cls, description: Mapping[str, Any]) -> "ImagePreprocessing":
        """Make it again from :meth:`describe`.

        Examples
        --------
        >>> ImagePreprocessing.from_description(IMAGENET.describe()) == IMAGENET
        True
        """
        if description.get("rule") != _RULE:
            raise InputError(
                f"images were cropped by the rule {description.get('rule')!r}, but only {_RULE!r} is known"
            )
        try:
            values = {name: description[name] for name in cls.__dataclass_fields__}
            return cls(**{**values, "mean": tuple(values["mean"]), "scale": tuple(values["scale"])})
        except (KeyError, TypeError) as error:
            raise InputError(f"a description of image preprocessing is incomplete: {error!r}") from error

    def prepare(self, sample: Any) -> NDArray[np.uint8]:
        """Return an image, upright, cropped and resized, as RGB bytes (3, size, size).

        Parameters
        ----------
        sample
            A ``pathlib.Path``, the bytes of an image file, a PIL image, or uint8 of shape (h, w) or (h, w, 1|3|4).
            Transparent pixels are shown on white.

        Raises
        ------
        InputError
            When it is damaged, truncated, absurdly large or none of these; says why.
        """
        pillow = require("PIL.Image", "Reading images", "torch")
        image = open_image(sample, pillow, enough=_GAP * self.size / self.crop)
        width, height = image.size
        short = min(width, height)
        side = short * self.crop if short >= self.size else float(short)
        left, top = (width - side) / 2, (height - side) / 2
        image = image.resize(
            (self.size, self.size),
            getattr(pillow.Resampling, self.interpolation.upper()),
            box=(left, top, left + side, top + side),
            reducing_gap=_GAP,
        )
        return np.ascontiguousarray(np.asarray(image).transpose(2, 0, 1))

    def normalize(self, batch: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Return what the model takes, (n, 3, size, size) float32, of prepared images (n, 3, size, size).

        Examples
        --------
        >>> images = ImagePreprocessing(channels="BGR", mean=(3, 2, 1), scale=(1, 1, 2))
        >>> pixels = np.array([10, 20, 30], np.uint8).reshape(1, 3, 1, 1)
        >>> images.normalize(pixels).ravel().tolist()
        [27.0, 18.0, 4.5]
        """
        ordered = batch if self.channels == "RGB" else batch[:, ::-1]
        mean = np.array(self.mean, np.float32).reshape(1, 3, 1, 1)
        scale = np.array(self.scale, np.float32).reshape(1, 3, 1, 1)
        return np.ascontiguousarray((ordered.astype(np.float32) - mean) / scale)


#: The usual preparation of an ImageNet model.
IMAGENET = ImagePreprocessing()


#: Formats that Pillow hands to another program (Ghostscript), or to the system.
_PROGRAMS = ("EPS", "WMF", "EMF")


def open_image(sample: Any, pillow: Any, enough: float) -> Any:
    """Return a sample as an upright RGB image of PIL; ``enough`` pixels along the short side will do."""
    if isinstance(sample, np.ndarray):
        return _rgb(pillow.fromarray(_checked_pixels(sample)))
    if not isinstance(sample, Path | bytes | bytearray | pillow.Image):
        raise InputError(
            "an image must be a pathlib.Path, the bytes of a file, a PIL image or an array of uint8, "
            f"but is {type(sample).__name__}"
        )
    upright = require("PIL.ImageOps", "Reading images", "torch").exif_transpose
    try:
        return _opened(sample, pillow, enough, upright)
    except InputError:
        raise
    except MissingExtraError:
        raise
    except FileNotFoundError as error:
        raise InputError("there is no such file") from error
    except pillow.UnidentifiedImageError as error:
        raise InputError("it is not an image of a format that Pillow reads, or its beginning is damaged") from error
    except (pillow.DecompressionBombError, pillow.DecompressionBombWarning) as error:
        raise InputError(_bomb(pillow)) from error
    except Exception as error:  # decoders meet hostile bytes: whatever they raise, this image cannot be read
        raise InputError(f"the image cannot be read: {str(error) or type(error).__name__}") from error


def _opened(sample: Any, pillow: Any, enough: float, upright: Any) -> Any:
    """Return an image of PIL, or one that a file or its bytes hold, upright and in RGB."""
    if isinstance(sample, pillow.Image):
        _refuse_bomb(sample, pillow)
        return _rgb(upright(sample))
    if is_dicom(sample):
        return _rgb(pillow.fromarray(dicom_pixels(sample, pillow.MAX_IMAGE_PIXELS)))
    with pillow.open(sample if isinstance(sample, Path) else io.BytesIO(sample)) as image:
        if image.format in _PROGRAMS:
            raise InputError(f"{image.format} files are programs that draw an image: save it as PNG")
        _refuse_bomb(image, pillow)
        fraction = enough / min(image.size)
        if fraction < 1:
            image.draft(None, (int(image.width * fraction) + 1, int(image.height * fraction) + 1))
        upright(image, in_place=True)
        return _rgb(image)


def _refuse_bomb(image: Any, pillow: Any) -> None:
    limit = pillow.MAX_IMAGE_PIXELS
    if limit is not None and image.width * image.height > limit:
        raise InputError(f"{_bomb(pillow)}: it has {image.width} × {image.height}")


def _bomb(pillow: Any) -> str:
    return f"the image has more than {pillow.MAX_IMAGE_PIXELS} pixels (PIL.Image.MAX_IMAGE_PIXELS)"


def _checked_pixels(array: NDArray[Any]) -> NDArray[np.uint8]:
    if array.dtype != np.uint8:
        raise InputError(f"an image array must be of uint8, 0–255, but is of {array.dtype}: scale and convert it first")
    grey = array[:, :, 0] if array.ndim == 3 and array.shape[2] == 1 else array
    if array.size == 0 or not (grey.ndim == 2 or (grey.ndim == 3 and grey.shape[2] in (3, 4))):
        raise InputError(f"an image array must be (h, w) or (h, w, 1|3|4) and not empty, but is {array.shape}")
    return np.ascontiguousarray(grey)


def _rgb(image: Any) -> Any:
    """Return a PIL image as RGB: sixteen bits become eight, transparency becomes white."""
    if image.mode == "F":
        raise InputError("the image holds floating-point numbers without an agreed white: save it with 8 or 16 bits")
    if image.mode.startswith("I"):
        pillow = require("PIL.Image", "Reading images", "torch")
        grey = np.clip(np.asarray(image), 0, 65535) // 257
        image = pillow.fromarray(grey.astype(np.uint8))
    if image.has_transparency_data:
        pillow = require("PIL.Image", "Reading images", "torch")
        image = image.convert("RGBA")
        image = pillow.alpha_composite(pillow.new("RGBA", image.size, (255, 255, 255, 255)), image)
    image.load()  # before its file is closed
    return image if image.mode == "RGB" else image.convert("RGB")
