"""How a sound becomes numbers: read, mix to one channel, resample, level, cut silence, and a mel spectrogram.

A sound is a WAV file (its path or its bytes; whole or floating-point samples, any rate and number of channels), or an
array (n,) at :data:`RATE`.

====================  ==============================================================================================
level                 a sound quieter than −30 dB of full scale is amplified to that
silence               windows of 30 ms that are 40 dB below the loud ones are left out, but for 180 ms around the others
spectrogram           frames of 25 ms every 10 ms (Hann); power in 40 triangles, even on the mel scale, of equal area
parts                 of 1.6 s, every 0.77 s; the last is filled with zeros where it has three quarters
====================  ==============================================================================================
"""

import io
import math
import warnings
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.errors import InputError

__all__ = ["MELS", "PART", "PREPROCESSING", "RATE", "mel_filters", "mel_frames", "mel_parts", "open_sound"]

Floats = NDArray[np.float32]

#: Samples a second; a frame, and from one frame to the next; triangles.
RATE, FRAME, HOP, MELS = 16_000, 400, 160, 40
#: Frames of a part, and from one to the next.
PART, STEP = 160, 77
LEVEL, QUIET = -30.0, -40.0
#: Samples of a window that is silent or not, and windows around sound that are kept.
WINDOW, AROUND = 480, 6
#: Shortest sound, in seconds.
SHORTEST = 0.1
PREPROCESSING = {
    "rate": RATE, "frame": FRAME, "hop": HOP, "mels": MELS, "scale": "Slaney, triangles of equal area", "power": 2,
    "part": PART, "step": STEP, "level": LEVEL, "silence": [QUIET, WINDOW, AROUND],
}  # fmt: skip


def open_sound(sample: Any) -> Floats:
    """Return a sound as one channel at :data:`RATE`, levelled and without silence, (n,).

    Raises
    ------
    InputError
        When it is no sound, is damaged, shorter than a tenth of a second, or silent.

    Examples
    --------
    >>> open_sound(np.sin(np.arange(RATE) / 9).astype(np.float32)).shape
    (16000,)
    >>> open_sound(b"no sound")
    Traceback (most recent call last):
    fedmoments.errors.InputError: it is not a WAV file (File format b'no s' not understood. Only 'RIFF', 'RIFX', ...
    """
    rate, wave = (RATE, np.asarray(sample)) if isinstance(sample, np.ndarray) else _read(sample)
    wave = _one_channel(wave)
    if rate != RATE:
        from scipy.signal import resample_poly

        common = math.gcd(rate, RATE)
        wave = resample_poly(wave, RATE // common, rate // common)
    if len(wave) < SHORTEST * RATE:
        raise InputError(f"the sound is shorter than {SHORTEST:g} seconds")
    power = float(np.mean(np.square(wave)))
    if power == 0.0:
        raise InputError("the sound is silent")
    gain = max(1.0, 10 ** (LEVEL / 20) / math.sqrt(power))
    return np.asarray(_without_silence(wave * gain), np.float32)


def _read(sample: Any) -> tuple[int, NDArray[Any]]:
    """Return rate and samples of a WAV file."""
    from scipy.io import wavfile

    if not isinstance(sample, bytes | str | Path):
        raise InputError(f"a sound must be a WAV file or an array, but is {type(sample).__name__}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", wavfile.WavFileWarning)  # chunks that say who made it
            rate, wave = wavfile.read(io.BytesIO(sample) if isinstance(sample, bytes) else sample)
    except OSError:  # the file, not what is in it
        raise
    except Exception as error:  # whatever the library makes of damaged bytes
        raise InputError(
            f"it is not a WAV file ({str(error) or type(error).__name__}): convert it, for instance with ffmpeg"
        ) from error
    if not 1_000 <= rate <= 768_000:
        raise InputError(f"its rate of {rate} samples a second is not one of sound")
    return int(rate), wave


def _one_channel(wave: NDArray[Any]) -> NDArray[np.float64]:
    """Return samples as numbers from −1 to 1, the mean of all channels."""
    if wave.ndim not in (1, 2) or wave.dtype.kind not in "iuf" or not wave.size:
        raise InputError(f"a sound must be numbers (n,) or (n, channels), but an array {wave.dtype} {wave.shape} came")
    values = wave.astype(np.float64)
    if wave.dtype.kind == "u":  # of 8 bits, around 128
        values = (values - 2 ** (8 * wave.dtype.itemsize - 1)) / 2 ** (8 * wave.dtype.itemsize - 1)
    elif wave.dtype.kind == "i":
        values /= 2 ** (8 * wave.dtype.itemsize - 1)
    if not np.isfinite(values).all():
        raise InputError("the sound holds NaN or infinity")
    return np.asarray(values if wave.ndim == 1 else values.mean(axis=1))


def _without_silence(wave: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return a sound without long windows that are much quieter than the loud ones."""
    n = len(wave) // WINDOW
    if n < 2:
        return wave
    power = np.square(wave[: n * WINDOW]).reshape(n, WINDOW).mean(axis=1)
    loud = power > np.quantile(power, 0.95) * 10 ** (QUIET / 10)
    near = np.convolve(loud, np.ones(2 * AROUND + 1))[AROUND : AROUND + n] > 0
    kept = np.repeat(near, WINDOW)
    return np.concatenate([wave[: n * WINDOW][kept], wave[n * WINDOW :]])


@lru_cache(maxsize=1)
def mel_filters() -> Floats:
    """Return the weights (40, 201) of the power at each frequency in every triangle.

    Up to 1000 Hz 15 mel are 1000 Hz; above, 27 mel are a factor of 6.4.

    Examples
    --------
    >>> mel_filters().shape, [int(top) for top in mel_filters().argmax(axis=1)[[0, 20, 39]]]
    ((40, 201), [2, 44, 185])
    """
    step = math.log(6.4) / 27
    top = 15.0 + math.log(RATE / 2 / 1000.0) / step
    mels = np.linspace(0.0, top, MELS + 2)
    edges = np.where(mels < 15.0, mels * 200.0 / 3.0, 1000.0 * np.exp(step * (mels - 15.0)))
    frequencies = np.linspace(0.0, RATE / 2, FRAME // 2 + 1)
    below, middle, above = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    rising, falling = (frequencies - below) / (middle - below), (above - frequencies) / (above - middle)
    return np.asarray(np.maximum(np.minimum(rising, falling), 0.0) * 2.0 / (above - below), np.float32)


def mel_frames(wave: NDArray[np.floating]) -> Floats:
    """Return the mel spectrogram (frames, 40) of a sound (n,) at :data:`RATE`, a frame around every 10 ms.

    Examples
    --------
    >>> mel_frames(np.sin(2 * np.pi * 1000 * np.arange(RATE) / RATE)).shape
    (101, 40)
    """
    padded = np.pad(np.asarray(wave, np.float64), FRAME // 2)
    frames = np.lib.stride_tricks.sliding_window_view(padded, FRAME)[::HOP]
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(FRAME) / FRAME)
    power = np.square(np.abs(np.fft.rfft(frames * hann, axis=1)))
    return np.asarray(power @ mel_filters().T, np.float32)


def mel_parts(wave: NDArray[np.floating]) -> Floats:
    """Return the parts (p, 160, 40) of a sound's mel spectrogram; at least one.

    Examples
    --------
    >>> mel_parts(np.ones(16_000)).shape, mel_parts(np.ones(48_000)).shape
    ((1, 160, 40), (3, 160, 40))
    """
    frames = math.ceil((len(wave) + 1) / HOP)
    starts = list(range(0, max(1, frames - PART + STEP + 1), STEP))
    if len(starts) > 1 and len(wave) - starts[-1] * HOP < 0.75 * PART * HOP:
        starts.pop()
    missing = (starts[-1] + PART) * HOP - len(wave)
    mels = mel_frames(np.pad(wave, (0, max(missing, 0))))
    return np.stack([mels[start : start + PART] for start in starts])
