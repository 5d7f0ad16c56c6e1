"""What an encoder does, in a few hundred numbers: its features of a few samples that everybody can make.

Weights and a description of the preprocessing do not tell what a network does with them: a ReLU that becomes a Hardtanh
has no weights. So an encoder is also run on a *probe*, :data:`SAMPLES` images, sentences or feature rows drawn by
:mod:`fedmoments.core.maps.randomness` (the same bits on every machine). Each feature vector is folded into
:data:`BUCKETS` sums with random signs (a count sketch), and all sums are rounded to 16 bits of the largest. These
numbers are the encoder's **behaviour**.

Two machines, runtimes (torch, ONNX), numbers of threads or sizes of batches give features that differ in their last
bits, and two numbers on the two sides of a rounding boundary have different hashes however close they are. So
behaviours are never hashed to be compared: they *agree* when no number differs by more than :data:`TOLERANCE` of the
largest of both. Measured for the bundled encoders: torch against ONNX, one thread against two and batches of one
against eight differ by 3e-5 at most, which is the rounding; leaky ReLUs (0.01) for ReLUs by 0.2 to 1, another pooling
by 0.4 to 0.9, a normalisation left out by 0.9 or more.

Images are put in as pixels of the size that the network takes. Cropping and resizing are part of the description, and
networks magnify a last bit of resampling: with one pixel value in a hundred off by one, features differ by up to 6 %.
"""

import base64
import binascii
import math
import re
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.maps.randomness import standard_normals, uniforms
from fedmoments.errors import FileFormatError, InputError

__all__ = ["BUCKETS", "SAMPLES", "TOLERANCE", "Behaviour", "describe_difference", "probe_pixels", "probe_samples"]

#: Largest difference of two numbers of agreeing behaviours, per unit of the largest number.
TOLERANCE = 2e-3
#: Samples of a probe.
SAMPLES = 4
#: Numbers that the features of one sample are folded into.
BUCKETS = 64

_MOST = 32767
_NOT_FINITE = -32768
_TEXT = re.compile(r"1 ([0-9.e+-]{1,30}) ([A-Za-z0-9+/=]{1,2000})")
_SIDE = 96
#: Words of a probe: cases, accents, digits, punctuation and other scripts, which tokenizers treat differently.
_PROSE = (
    "the card was declined at 7:45 , why ? Transfer naïve Ångström weather don't re-enter PIN money account lost in "
    "Zürich ; refund 3.14 % please 中文 help me understand exchange rates over-night straße top-up ATM العربية cat"
)
_WORDS = tuple(_PROSE.split())


@dataclass(frozen=True)
class Behaviour:
    """What an encoder makes of the probe.

    Parameters
    ----------
    scale
        The largest absolute sum.
    values
        ``SAMPLES × BUCKETS`` sums in 32767ths of it; −32768 stands for one that is not finite.

    Examples
    --------
    >>> one = Behaviour.of(np.ones((4, 5), np.float32))
    >>> one.agrees(Behaviour.of(np.ones((4, 5), np.float32) + 1e-6)), one.agrees(Behaviour.of(np.full((4, 5), 1.01)))
    (True, False)
    >>> Behaviour.from_text(one.to_text()) == one
    True
    """

    scale: float
    values: tuple[int, ...]

    @classmethod
    def of(cls, features: NDArray[Any]) -> "Behaviour":
        """Return the behaviour of an encoder whose features of the probe are these, (SAMPLES, d)."""
        n, dim = features.shape
        drawn = uniforms(0, f"encoder-probe/fold/{dim}", dim)
        buckets, signs = np.divmod((drawn * (2 * BUCKETS)).astype(np.int64), 2)
        folded = np.zeros((n, BUCKETS))
        with np.errstate(invalid="ignore"):
            np.add.at(folded.T, buckets, (features.astype(np.float64) * (2 * signs - 1)).T)
        finite = np.isfinite(folded)
        # Seven digits, so that text and number are the same.
        scale = float(f"{np.abs(folded[finite]).max(initial=0.0):.6e}")
        quantised = np.full(folded.shape, _NOT_FINITE, np.int64)
        steps = folded[finite] / scale * _MOST if scale else folded[finite]
        quantised[finite] = np.clip(np.rint(steps), -_MOST, _MOST)
        return cls(scale, tuple(quantised.ravel().tolist()))

    def difference(self, other: "Behaviour") -> float:
        """Return the largest difference of two numbers, per unit of the largest number; infinite where one is not.

        Examples
        --------
        >>> Behaviour(1.0, (32767, 0)).difference(Behaviour(1.0, (32767, -32768)))
        inf
        """
        ours, theirs = (np.array(behaviour.values, np.int64) for behaviour in (self, other))
        if ours.shape != theirs.shape or ((ours == _NOT_FINITE) != (theirs == _NOT_FINITE)).any():
            return math.inf
        largest = max(self.scale, other.scale)
        if not largest:
            return 0.0
        finite = ours != _NOT_FINITE
        gap = np.abs(ours[finite] * (self.scale / largest) - theirs[finite] * (other.scale / largest))
        return float(gap.max(initial=0.0)) / _MOST

    def agrees(self, other: "Behaviour") -> bool:
        """Return whether two behaviours differ by no more than machines and runtimes do."""
        return self.difference(other) <= TOLERANCE

    @property
    def digest(self) -> str:
        """SHA-256 of these very numbers: a name on one machine, never compared with another's."""
        return sha256(self.to_text().encode()).hexdigest()

    def to_text(self) -> str:
        """Return all of it as text, some 700 characters: the version of the probe, the scale, base64 of int16."""
        data = base64.b64encode(np.array(self.values, "<i2").tobytes()).decode()
        return f"1 {self.scale:.6e} {data}"

    @classmethod
    def from_text(cls, text: object) -> "Behaviour":
        """Read what :meth:`to_text` wrote; everything in it is checked.

        Examples
        --------
        >>> Behaviour.from_text("2 …")
        Traceback (most recent call last):
        fedmoments.errors.FileFormatError: an encoder's behaviour must be a text of version 1, a scale and 256 ...
        """
        match = _TEXT.fullmatch(text) if isinstance(text, str) else None
        try:
            if match is None:
                raise ValueError("it has another form")
            values = np.frombuffer(base64.b64decode(match[2], validate=True), "<i2")
            scale = float(match[1])
            if values.size != SAMPLES * BUCKETS or not math.isfinite(scale) or scale < 0:
                raise ValueError(f"it has {values.size} numbers and the scale {scale}")
        except (ValueError, binascii.Error) as error:
            raise FileFormatError(
                f"an encoder's behaviour must be a text of version 1, a scale and {SAMPLES * BUCKETS} numbers, but "
                f"{error}: it was damaged, or written by another version of fedmoments"
            ) from error
        return cls(scale, tuple(values.tolist()))


def describe_difference(difference: float) -> str:
    """Return a sentence about a difference of behaviours.

    Examples
    --------
    >>> describe_difference(0.31)
    'on the same probe their features differ by 31 % of the largest, where machines and runtimes differ by 0.2 % at
    most'
    """
    much = f"{difference:.2g}" if difference < 1e-3 else f"{100 * difference:.2g} %"
    return (
        f"on the same probe their features differ by {much} of the largest, where machines and runtimes differ by "
        f"{100 * TOLERANCE:g} % at most"
    )


def probe_samples(modality: str, dim: int) -> list[Any]:
    """Return the samples of a probe, as a data set holds them.

    Parameters
    ----------
    modality
        ``"image"``: uint8 (96, 96, 3), see :func:`probe_pixels`. ``"text"``: sentences of 3 to 24 words. ``"audio"``:
        a second at 16 kHz of noise whose loudness rises and falls. ``"features"``: rows (dim,).
    dim
        Of the features; for rows.

    Examples
    --------
    >>> [image.shape for image in probe_samples("image", 1280)]
    [(96, 96, 3), (96, 96, 3), (96, 96, 3), (96, 96, 3)]
    >>> [len(sentence.split()) for sentence in probe_samples("text", 384)]
    [3, 6, 12, 24]
    """
    if modality == "image":
        return list(np.ascontiguousarray(probe_pixels(_SIDE).transpose(0, 2, 3, 1)))
    if modality == "text":
        return [_sentence(place, n_words=3 * 2**place) for place in range(SAMPLES)]
    if modality == "audio":
        return [_sound(place) for place in range(SAMPLES)]
    if modality == "features":
        return list(standard_normals(0, "encoder-probe/features", SAMPLES * dim).reshape(SAMPLES, dim))
    raise InputError(f"there is no probe of the modality {modality!r}: it may be image, text, audio or features")


def probe_pixels(size: int) -> NDArray[np.uint8]:
    """Return images of a probe, (SAMPLES, 3, size, size): squares of random colours, of 2, 6, 18 and 54 pixels.

    Examples
    --------
    >>> probe_pixels(224).shape
    (4, 3, 224, 224)
    """
    images = np.empty((SAMPLES, 3, size, size), np.uint8)
    for place, image in enumerate(images):
        side = 2 * 3**place
        number = math.ceil(size / side)
        colours = uniforms(0, f"encoder-probe/image/{place}", 3 * number * number).reshape(3, number, number)
        image[:] = (colours * 256).astype(np.uint8).repeat(side, axis=1).repeat(side, axis=2)[:, :size, :size]
    return images


def _sound(place: int) -> NDArray[np.float32]:
    drawn = standard_normals(0, f"encoder-probe/audio/{place}", 16_000)
    smooth = np.convolve(drawn, np.ones(2**place) / 2**place, "same")
    return np.asarray(0.1 * smooth * (1.0 + np.sin(np.arange(16_000) * (place + 1) / 1_600)), np.float32)


def _sentence(place: int, n_words: int) -> str:
    drawn = uniforms(0, f"encoder-probe/text/{place}", n_words)
    return " ".join(_WORDS[int(number * len(_WORDS))] for number in drawn)
