"""The discrete Gaussian on the integers, P(x) ∝ exp(−x²/2s²), from a cryptographic stream of bits.

After Canonne, Kamath and Steinke, "The discrete Gaussian for differential privacy" (2020), algorithm 3: a discrete
Laplace number y of scale t, P(y) ∝ exp(−|y|/t), is kept with probability exp(−(|y| − s²/t)²/2s²). Here t is the power
of two next to s, so that its uniform part is a run of bits, exactly; any t > 0 is valid, and this one keeps two of
three.

1. |y| = u + t·v with u uniform on 0 … t−1, kept with probability exp(−u/t), and v geometric, P(v ≥ k) = exp(−k).
2. A fair sign; −0 is thrown away, or 0 would come twice as often.
3. A coin of probability exp(−g), g ≥ 0, is ⌊g⌋ coins of probability exp(−1), all of which must fall well, and one of
   exp(−(g − ⌊g⌋)) ≥ 1/e. No coin is ever compared with a number below 1/e, so **the tails have no holes**: every
   integer that fits comes out with its own probability, down to exp(−1000) and beyond.

How exact
---------
s is the float64 that is given (no rounding to an integer s²). The coins of 1/e are exact to 2⁻⁶², all others compare 53
fair bits with a float64 and are wrong by less than 2⁻⁵⁰ of themselves; g is wrong by less than 2⁻⁵⁰·(1 + g). Hence the
probability of x differs from the ideal one by a factor within 1 ± (8 + 4x²/s²)·2⁻⁵⁰, at most 1 ± 6·10⁻¹² for |x| ≤ 40s;
over m numbers the logarithms add up to about 12·m·2⁻⁵⁰, 10⁻⁷ for ten million. What is calibrated with a margin of 10⁻⁶
(:data:`fedmoments.privacy.dp.noise_plan.MARGIN`) covers it for ε ≥ 0.5. How long a draw takes depends on the
noise: whoever can time the server to nanoseconds is not defended against.

Random bits for noise that protects: the ChaCha20 key stream of 32 bytes from the operating system.

Whoever can guess the noise can subtract it, so a generator made for statistics (NumPy's, Python's ``random``) will not
do: all its outputs follow from a few. Without its key, a ChaCha20 stream is indistinguishable from random bits.
"""

import os
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedmoments.errors import InputError
from fedmoments.extras import require

__all__ = ["KEY_BYTES", "MAX_SCALE", "Stream", "discrete_gaussian"]


Words = NDArray[np.uint64]

#: A key of ChaCha20.
KEY_BYTES = 32
#: One key and nonce give 2³² blocks of 64 bytes; a new key is taken long before.
MOST_WORDS = 2**34


class Stream:
    """An endless stream of 64-bit words.

    Parameters
    ----------
    key
        32 bytes; by default fresh ones from the operating system. **A key that anybody else knows protects nothing**:
        a fixed one is for tests and for figures that must come out the same twice.

    Examples
    --------
    >>> Stream().words(3).shape
    (3,)
    >>> bool((Stream(bytes(32)).words(4) == Stream(bytes(32)).words(4)).all())
    True
    """

    def __init__(self, key: bytes | None = None) -> None:
        if key is not None and len(key) != KEY_BYTES:
            raise InputError(f"a key of ChaCha20 has {KEY_BYTES} bytes, but {len(key)} arrived: take os.urandom(32)")
        self._start(os.urandom(KEY_BYTES) if key is None else key)

    def _start(self, key: bytes) -> None:
        ciphers: Any = require("cryptography.hazmat.primitives.ciphers", "Noise that protects", "privacy")
        self._cipher = ciphers.Cipher(ciphers.algorithms.ChaCha20(key, bytes(16)), None).encryptor()
        self._left = MOST_WORDS

    def words(self, n: int) -> Words:
        """Return the next ``n`` words, (n,) uint64."""
        if n > self._left:
            self._start(self._cipher.update(bytes(KEY_BYTES)))
        self._left -= n
        return np.frombuffer(self._cipher.update(bytes(8 * n)), np.uint64)


Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Largest s: 16 s still fit int64 beside the sum that the noise is added to. More than 16 s has a chance below 10⁻⁵⁵.
MAX_SCALE = 2.0**58
#: Numbers that are worked on at once: memory does not grow with what is requested.
BLOCK = 2**16
#: exp(−1) in units of 2⁻⁶⁴, rounded: wrong by at most 2⁻⁶⁵.
INVERSE_E = np.uint64(6786177901268885275)


def discrete_gaussian(scale: ArrayLike, source: Stream | None = None) -> Ints:
    """Return independent discrete Gaussian numbers, one for every scale, int64.

    Parameters
    ----------
    scale
        s > 0, at most 2⁵⁸, of any shape. The variance is s² but for less than 10⁻⁷ s² where s ≥ 1.
    source
        Where bits come from; by default a fresh stream of the operating system's randomness.

    Examples
    --------
    >>> noise = discrete_gaussian(np.full(20_000, 50.0), Stream(bytes(32)))
    >>> bool(abs(noise.std() / 50 - 1) < 0.02), noise.dtype
    (True, dtype('int64'))
    """
    scales = np.asarray(scale, np.float64)
    if scales.size and not (scales.min() > 0 and scales.max() <= MAX_SCALE):
        raise InputError(
            f"the scale of discrete noise must be above 0 and at most 2⁵⁸ steps of the grid, but {scales.min():g} to "
            f"{scales.max():g} arrived: agree on more max_samples, which makes the grid coarser"
        )
    source = source or Stream()
    flat = scales.ravel()
    noise = np.empty(flat.size, np.int64)
    for start in range(0, flat.size, BLOCK):
        noise[start : start + BLOCK] = _block(flat[start : start + BLOCK], source)
    return noise.reshape(scales.shape)


def _block(scales: Floats, source: Stream) -> Ints:
    """Draw until every number of a block was kept."""
    noise = np.empty(len(scales), np.int64)
    todo = np.arange(len(scales))
    while len(todo):
        values, kept = _proposals(scales[todo], source)
        noise[todo[kept]] = values[kept]
        todo = todo[~kept]
    return noise


def _proposals(scales: Floats, source: Stream) -> tuple[Ints, NDArray[np.bool_]]:
    """Return one proposal for every scale, and whether it is kept."""
    bits = np.clip(np.rint(np.log2(scales)), 0, 62).astype(np.uint64)
    step = np.left_shift(np.uint64(1), bits)
    words = source.words(len(scales))
    uniform = words & (step - np.uint64(1))
    negative = words >> np.uint64(63) == 1  # bits above the uniform part, which has at most 58
    width = step.astype(np.float64)
    kept = _short_coins(uniform.astype(np.float64) / width, source)
    steps = _geometric(len(scales), source)
    kept &= steps < np.right_shift(np.uint64(2**62), bits)  # beyond 16 s at the largest s: int64 ends there
    size = uniform + step * steps
    kept &= ~(negative & (size == 0))
    lengths = size.astype(np.float64)
    kept[kept] = _coins(0.5 * np.square((lengths[kept] - scales[kept] ** 2 / width[kept]) / scales[kept]), source)
    values = size.astype(np.int64)
    return np.where(negative, -values, values), kept


def _short_coins(exponents: Floats, source: Stream) -> NDArray[np.bool_]:
    """Return coins, true with probability exp(−exponent), each exponent from 0 to 1."""
    fair = (source.words(len(exponents)) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return np.asarray(fair < np.exp(-exponents))


def _coins(exponents: Floats, source: Stream) -> NDArray[np.bool_]:
    """Return coins, true with probability exp(−exponent), each exponent 0 or more."""
    whole = np.floor(exponents)
    kept = _short_coins(exponents - whole, source)
    return kept & (_geometric(len(exponents), source) >= whole)


def _geometric(n: int, source: Stream) -> NDArray[np.uint64]:
    """Return how many coins of probability 1/e are true before the first false one, (n,): P(v ≥ k) = exp(−k)."""
    counts = np.zeros(n, np.uint64)
    running = np.arange(n)
    while len(running):
        running = running[source.words(len(running)) < INVERSE_E]
        counts[running] += np.uint64(1)
    return counts
