"""Matrices inside JSON: little-endian float32, row by row, in base64."""

import base64
import binascii

import numpy as np
import numpy.typing as npt

from fedmoments.errors import InputError

__all__ = ["packed", "unpacked"]


def packed(matrix: npt.ArrayLike) -> str:
    """Return a matrix as text.

    Examples
    --------
    >>> packed([[1.0, 2.0]])
    'AACAPwAAAEA='
    """
    return base64.b64encode(np.asarray(matrix).astype("<f4").tobytes()).decode()


def unpacked(text: str, shape: tuple[int, int], what: str) -> npt.NDArray[np.float64]:
    """Return the read-only matrix that a text holds, in float64.

    Parameters
    ----------
    text
        As :func:`packed` wrote it; anything may arrive.
    shape
        What it must have.
    what
        Whose numbers they are, for messages.

    Examples
    --------
    >>> unpacked("AACAPwAAAEA=", (1, 2), "weights").tolist()
    [[1.0, 2.0]]
    >>> unpacked("AACAPw==", (1, 2), "weights")
    Traceback (most recent call last):
    fedmoments.errors.InputError: weights must be 1 × 2 float32 numbers, but have 4 bytes
    """
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, TypeError, ValueError) as error:
        raise InputError(f"{what} must be base64: {error}") from error
    if len(raw) != 4 * shape[0] * shape[1]:
        raise InputError(f"{what} must be {shape[0]} × {shape[1]} float32 numbers, but have {len(raw)} bytes")
    matrix = np.frombuffer(raw, "<f4").astype(np.float64).reshape(shape)
    matrix.setflags(write=False)
    return matrix
