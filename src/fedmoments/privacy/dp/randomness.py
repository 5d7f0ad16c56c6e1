"""Random bits for noise that protects: the ChaCha20 key stream of 32 bytes from the operating system.

Whoever can guess the noise can subtract it, so a generator made for statistics (NumPy's, Python's ``random``) will not
do: all its outputs follow from a few. Without its key, a ChaCha20 stream is indistinguishable from random bits.
"""

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.errors import InputError
from fedmoments.extras import require

__all__ = ["KEY_BYTES", "Stream"]

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
