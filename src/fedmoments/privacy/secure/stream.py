"""Masks: the ChaCha20 key stream of a random 32-byte seed, read as little-endian 64-bit words.

Word i of the mask is bytes 8i … 8i+7 of the stream with nonce 0 and block counter from 0. A seed masks one vector and
no other, so that the nonce need not vary. Blocks of 64 bytes are independent: words start … stop − 1 are made without
those before them, by setting the counter to ⌊start / 8⌋.
"""

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.errors import InputError
from fedmoments.extras import require

__all__ = ["MOST_WORDS", "SEED_BYTES", "Block", "Words", "add_stream", "stream"]

Words = NDArray[np.uint64]
Block = tuple[int, int]

#: A ChaCha20 key.
SEED_BYTES = 32
#: Longest vector, so that a report stays below a billion bytes and the 32-bit counter never wraps.
MOST_WORDS = 900_000_000 // 8

#: Words of one 64-byte block of the stream.
_STEP = 8
#: Words made at once: 128 kB of key stream are added while they are still in the processor's cache.
_PIECE = 16_384
_ZEROS = memoryview(bytes(8 * _PIECE))


def stream(seed: bytes, start: int, stop: int) -> Words:
    """Return words ``start`` … ``stop`` − 1 of a seed's mask, (stop − start,) uint64.

    Examples
    --------
    >>> seed = bytes(range(32))
    >>> bool((stream(seed, 13, 40) == stream(seed, 0, 40)[13:]).all())
    True
    """
    words = np.zeros(max(stop - start, 0), np.uint64)
    add_stream(words, seed, [(start, stop)])
    return words


def add_stream(total: Words, seed: bytes, blocks: Sequence[Block], *, minus: bool = False) -> None:
    """Add a seed's mask at some blocks to ``total`` in place, modulo 2⁶⁴.

    Parameters
    ----------
    total
        (m,) uint64, where m is the length of all blocks together; the blocks stand in it one after the other.
    seed
        32 bytes.
    blocks
        Pairs (start, stop) of coordinates.
    minus
        Subtract it instead.

    Examples
    --------
    >>> total = np.array([10, 20, 30], np.uint64)
    >>> add_stream(total, bytes(32), [(0, 2), (7, 8)])
    >>> add_stream(total, bytes(32), [(0, 2), (7, 8)], minus=True)
    >>> total
    array([10, 20, 30], dtype=uint64)
    """
    apply = np.subtract if minus else np.add
    at = 0
    piece = bytearray(8 * (_PIECE + _STEP))
    words = np.frombuffer(piece, "<u8")
    for start, stop in blocks:
        if not 0 <= start <= stop <= MOST_WORDS:
            raise InputError(f"a block of a mask lies between 0 and {MOST_WORDS}, not from {start} to {stop}")
        cipher, skip = _cipher(seed, start // _STEP), start % _STEP
        if skip:
            cipher.update(bytes(8 * skip))
        for begin in range(start, stop, _PIECE):
            n = min(_PIECE, stop - begin)
            cipher.update_into(_ZEROS[: 8 * n], piece)
            part = total[at : at + n]
            apply(part, words[:n], out=part)
            at += n


def _cipher(seed: bytes, counter: int) -> Any:
    if len(seed) != SEED_BYTES:
        raise InputError(f"a seed has {SEED_BYTES} bytes, but {len(seed)} arrived")
    ciphers = require("cryptography.hazmat.primitives.ciphers", "Masking", "privacy")
    nonce = counter.to_bytes(4, "little") + bytes(12)
    return ciphers.Cipher(ciphers.algorithms.ChaCha20(seed, nonce), None).encryptor()


if sys.byteorder != "little":  # pragma: no cover
    raise ImportError("fedmoments.privacy.secure works on little-endian machines only")
