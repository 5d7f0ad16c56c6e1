"""Small pictures: a palette PNG whose colour has one transparency a value, so that it suits any background."""

import base64
import struct
import zlib

import numpy as np
from numpy.typing import NDArray

__all__ = ["shade_uri"]


def shade_uri(shades: NDArray[np.uint8], colour: tuple[int, int, int]) -> str:
    """Return a picture as a data URI: shades (rows, columns) from 0, transparent, to 255, the full colour.

    Examples
    --------
    >>> shade_uri(np.zeros((2, 3), np.uint8), (0, 0, 0))[:36]
    'data:image/png;base64,iVBORw0KGgoAAA'
    """
    height, width = shades.shape
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    lines = np.concatenate([np.zeros((height, 1), np.uint8), shades], axis=1).tobytes()
    chunks = [
        _chunk(b"IHDR", header),
        _chunk(b"PLTE", bytes(colour) * 256),
        _chunk(b"tRNS", bytes(range(256))),
        _chunk(b"IDAT", zlib.compress(lines, 9)),
        _chunk(b"IEND", b""),
    ]
    picture = b"\x89PNG\r\n\x1a\n" + b"".join(chunks)
    return "data:image/png;base64," + base64.b64encode(picture).decode()


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
