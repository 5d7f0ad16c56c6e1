"""How rows of numbers travel in few bytes.

Two kinds of rows are coded, each row by itself, in one of five codes:

========  ==========================================  ===============================================
code      *means*, which lie anywhere                 *factors*, rows of a sketch, centred round 0
========  ==========================================  ===============================================
float64   as they are                                 as they are
float32   nearest float32                             float32 · s, s a power of two
float16   nearest float16                             float16 · s, s a power of two
int8      low + u·step, u = 0 … 255                   u·s, u = −127 … 127
int4      –                                           u·s, u = −7 … 7, two numbers a byte
========  ==========================================  ===============================================

``low``, ``step`` and ``s`` are one float32 a row. Decoding multiplies and adds in float64, entry by entry, and so gives
the same numbers on every machine. Rounding is to nearest, ties to even.

Fifteen steps up to the largest entry of a row would be wide: most entries are far smaller. So s of int4 is 2^(−j/4) of
that, j = 0 … 8, whichever has the least squared error, and what is beyond 7·s is cut off: of 512 normal entries 1.2 %
of the energy is lost instead of 1.7, of Laplacian ones 2.8 instead of 4.2.

**Law (idempotence)**: coding what was decoded gives the same codes, scales and values, for all finite rows that a code
can hold. It holds because the lowest and highest mean of a row are decoded to ``low`` and ``low + 255·step`` and the
largest entry of a factor row to ±127·s or ±7·s, from which the same float32 numbers follow again. What is too small for
that is not kept: a row of means whose spread is below 2⁻²⁴ of its lowest value is constant, exact to float32, and
scales are never below 2⁻¹²⁶, the least normal float32 (but 0 for a row that is 0).

**Law (no gain of energy)**: a factor that is sent with the trace it is a part of, :func:`coded_factor`, never has more
energy Σ‖row‖² than that trace once it is decoded: if rounding made it so, all rows are shortened in common, by about as
little as the code can tell.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.errors import InputError, UnknownNameError

__all__ = [
    "CODES",
    "CUTS",
    "FACTORS_LEAST",
    "FACTOR_CODES",
    "MEANS_LEAST",
    "MEANS_MOST",
    "CodedRows",
    "code_factors",
    "code_means",
    "coded_factor",
    "factor_row_bytes",
    "mean_row_bytes",
    "mean_step",
    "pack_nibbles",
    "round_factors",
    "round_means",
    "unpack_nibbles",
]

Floats = NDArray[np.float64]
Scales = NDArray[np.float32]

#: Codes of a number, from most bytes to fewest; and those of factor rows.
CODES = ("float64", "float32", "float16", "int8")
FACTOR_CODES = (*CODES, "int4")

_BITS = {"float64": 64, "float32": 32, "float16": 16, "int8": 8, "int4": 4}
#: The largest whole number of a code of factors.
_PEAK = {"int8": 127, "int4": 7}
#: Steps of int4 that are tried, as shares of a seventh of the largest entry.
CUTS = tuple(2.0 ** (-j / 4) for j in range(9))
#: The largest entry of a factor row is brought below this power of two, high in float16, whose small numbers are few.
_TOP = {"float32": 0, "float16": 15}
#: Exponents of the normal float32 powers of two.
_LEAST, _MOST = -126, 127
#: The least step between numbers of each code, in means and in rows with a float32 scale, and the largest mean.
MEANS_LEAST = {"float32": 2.0**-149, "float16": 2.0**-24, "int8": 2.0**_LEAST}
MEANS_MOST = {"float32": 2.0**127, "float16": 2.0**15, "int8": 2.0**127}
FACTORS_LEAST = {"float32": 2.0**_LEAST, "float16": 2.0**_LEAST, "int8": 2.0**_LEAST, "int4": 2.0**_LEAST}
#: A spread below this share of the lowest value is a constant to float32.
_CONSTANT = 2.0**-24


@dataclass(frozen=True, eq=False)
class CodedRows:
    """Rows as they travel.

    Parameters
    ----------
    code
        One of :data:`FACTOR_CODES`.
    numbers
        (r, d) in the code's own type; int8 is ``uint8`` for means and ``int8`` for factors, and int4 is ``int8``, two
        of which travel in a byte.
    scales
        (r,) float32, what a number of a row is worth; None where numbers are worth themselves.
    lows
        (r,) float32, what the number 0 of a row is worth; None for 0.

    Examples
    --------
    >>> step, low = np.array([0.5], np.float32), np.array([1.0], np.float32)
    >>> coded = CodedRows("int8", np.array([[0, 255]], np.uint8), step, low)
    >>> coded.values(), coded.nbytes
    (array([[  1. , 128.5]]), 10)
    """

    code: str
    numbers: NDArray[Any]
    scales: Scales | None = None
    lows: Scales | None = None

    def __post_init__(self) -> None:
        _known(self.code, FACTOR_CODES)
        own = "int8" if self.code == "int4" else self.code
        expected = np.dtype(np.uint8 if self.code == "int8" and self.lows is not None else own)
        if self.numbers.ndim != 2 or self.numbers.dtype != expected:
            raise InputError(
                f"rows coded as {self.code} are a table (r, d) of {expected}, but an array of {self.numbers.dtype} "
                f"and shape {self.numbers.shape} arrived: code them with code_means or code_factors"
            )
        if self._is_outside(expected):
            raise InputError(
                "numbers of coded rows are finite, -127 to 127 in int8 and -7 to 7 in int4, but some of "
                f"{self.code} are not"
            )
        if self.code in _PEAK and self.scales is None:
            raise InputError(f"rows coded as {self.code} have a float32 scale each, but none arrived")
        self._check_scales("scales", self.scales, least=0.0)
        self._check_scales("lows", self.lows, least=-np.inf)

    def _is_outside(self, dtype: np.dtype[Any]) -> bool:
        """Whether a number is not finite, or beyond the greatest of a signed code."""
        if dtype == np.int8:
            return bool((np.abs(self.numbers.astype(np.int16)) > _PEAK[self.code]).any())
        return not np.isfinite(self.numbers).all()

    def _check_scales(self, name: str, scales: Scales | None, *, least: float) -> None:
        if scales is None:
            return
        if scales.dtype != np.float32 or scales.shape != self.numbers.shape[:1]:
            raise InputError(
                f"coded rows have one float32 a row as {name}, that is of shape {self.numbers.shape[:1]}, but "
                f"{scales.dtype} of shape {scales.shape} arrived"
            )
        if not (np.isfinite(scales) & (scales >= least)).all():
            raise InputError(f"{name} of coded rows are finite numbers of {least:g} or more, but some of these are not")

    @property
    def nbytes(self) -> int:
        """Bytes of numbers, scales and lows."""
        rows, dim = (int(size) for size in self.numbers.shape)
        beside = sum(part.nbytes for part in (self.scales, self.lows) if part is not None)
        return rows * _number_bytes(self.code, dim) + beside

    def values(self) -> Floats:
        """Return the rows decoded, (r, d) float64: the same on every machine."""
        values = self.numbers.astype(np.float64)
        if self.scales is not None:
            values *= self.scales.astype(np.float64)[:, None]
        if self.lows is not None:
            values += self.lows.astype(np.float64)[:, None]
        return values


def mean_row_bytes(code: str, dim: int) -> int:
    """Return the bytes of one coded row of means of ``dim`` numbers.

    Examples
    --------
    >>> [mean_row_bytes(code, 100) for code in CODES]
    [800, 400, 200, 108]
    """
    return _number_bytes(_known(code), dim) + (8 if code == "int8" else 0)


def factor_row_bytes(code: str, dim: int) -> int:
    """Return the bytes of one coded factor row of ``dim`` numbers.

    Examples
    --------
    >>> [factor_row_bytes(code, 100) for code in FACTOR_CODES]
    [800, 404, 204, 104, 54]
    """
    return _number_bytes(_known(code, FACTOR_CODES), dim) + (0 if code == "float64" else 4)


def _number_bytes(code: str, dim: int) -> int:
    """Return the bytes of the numbers of one row."""
    return (_BITS[code] * dim + 7) // 8


def pack_nibbles(numbers: NDArray[np.int8]) -> NDArray[np.uint8]:
    """Return numbers (r, d) of −8 to 7, two a byte, (r, ⌈d/2⌉): the first in the low half; the last half may be 0.

    Examples
    --------
    >>> pack_nibbles(np.array([[1, -1, 7]], np.int8))
    array([[241,   7]], dtype=uint8)
    """
    halves = np.zeros((len(numbers), numbers.shape[1] + numbers.shape[1] % 2), np.uint8)
    halves[:, : numbers.shape[1]] = numbers.view(np.uint8) & 15
    return np.asarray(halves[:, ::2] | halves[:, 1::2] << 4, np.uint8)


def unpack_nibbles(packed: NDArray[np.uint8]) -> NDArray[np.int8]:
    """Return all numbers (r, 2·b) of −8 to 7 that bytes (r, b) hold.

    Examples
    --------
    >>> unpack_nibbles(np.array([[241, 7]], np.uint8))
    array([[ 1, -1,  7,  0]], dtype=int8)
    """
    halves = np.stack([packed & 15, packed >> 4], axis=-1).reshape(len(packed), 2 * packed.shape[1]).astype(np.int8)
    return np.asarray(np.where(halves > 7, halves - 16, halves), np.int8)


def code_means(rows: NDArray[np.floating], code: str) -> CodedRows:
    """Code rows of means.

    Parameters
    ----------
    rows
        (r, d) finite numbers.
    code
        One of :data:`CODES`.

    Examples
    --------
    >>> code_means(np.array([[0.0, 0.1, 1.0]]), "int8").numbers
    array([[  0,  25, 255]], dtype=uint8)
    >>> code_means(np.array([[1e5]]), "float16")
    Traceback (most recent call last):
    ...
    fedmoments.errors.InputError: means up to 100000 do not fit float16, which ends at 65504: choose float32 or int8
    """
    values = _checked(rows, "means")
    if _known(code) == "int8":
        return _code_affine(values)
    with np.errstate(over="ignore"):
        numbers = values.astype(code)
    if not np.isfinite(numbers).all():
        most, end = np.abs(values).max(), float(np.finfo(code).max)
        other = "float32 or int8" if code == "float16" and most <= np.finfo(np.float32).max else "float64"
        raise InputError(f"means up to {most:g} do not fit {code}, which ends at {end:g}: choose {other}")
    return CodedRows(code, numbers)


def round_means(rows: NDArray[np.floating], code: str) -> Floats:
    """Return rows of means as they arrive, (r, d) float64: coded and decoded.

    Examples
    --------
    >>> round_means(np.array([[0.1, 0.1]]), "float16")
    array([[0.09997559, 0.09997559]])
    """
    return code_means(rows, code).values()


def mean_step(rows: NDArray[np.floating], code: str) -> Floats:
    """Return how far neighbouring numbers (r,) of coded rows of means lie apart, at the largest entry of each.

    Examples
    --------
    >>> [mean_step(np.array([[0.0, 510.0]]), code).item() for code in ("int8", "float16", "float64")]
    [2.0, 0.25, 5.684341886080802e-14]
    """
    values = _checked(rows, "means")
    if _known(code) == "int8":
        return np.asarray((values.max(axis=1) - values.min(axis=1)) / 255.0)
    peaks = np.abs(values).max(axis=1)
    return np.asarray(np.ldexp(float(np.finfo(code).eps), np.frexp(peaks)[1] - 1) * (peaks > 0))


def code_factors(rows: NDArray[np.floating], code: str) -> CodedRows:
    """Code factor rows, each with a scale of its own (float64 without).

    Parameters
    ----------
    rows
        (r, d) finite numbers, of any size: a singular value of 10⁶ does not overflow float16.
    code
        One of :data:`FACTOR_CODES`.

    Examples
    --------
    >>> coded = code_factors(np.array([[3e6, -1e6], [0.0, 0.0]]), "int8")
    >>> coded.numbers
    array([[127, -42],
           [  0,   0]], dtype=int8)
    >>> code_factors(np.array([[3e6, -1e6]]), "float16").values()
    array([[3000320., -999936.]])
    >>> code_factors(np.array([[9.0, 2.0, -2.0, 1.0, 1.1, 0.2]]), "int4").numbers
    array([[ 7,  2, -2,  1,  1,  0]], dtype=int8)
    """
    values = _checked(rows, "factor rows")
    if _known(code, FACTOR_CODES) == "float64":
        return CodedRows(code, values + 0.0)  # there is one zero, as on the wire
    peaks = np.abs(values).max(axis=1, initial=0.0)
    if code == "int4":
        scales = _best_scales(values, peaks)
    else:
        scales = _symmetric_scales(peaks, code) if code == "int8" else _power_scales(peaks, code)
    if not np.isfinite(scales).all():
        raise InputError(
            f"factor rows with entries up to {peaks.max():g} do not fit {code} with a float32 scale: "
            "choose float64, or divide the features by a constant"
        )
    parts = values / scales.astype(np.float64)[:, None]
    numbers = _steps(parts, code).astype(np.int8) if code in _PEAK else parts.astype(code)
    numbers += numbers.dtype.type(0)
    scales[~numbers.any(axis=1)] = 0.0
    return CodedRows(code, numbers, scales)


def round_factors(rows: NDArray[np.floating], code: str) -> Floats:
    """Return factor rows as they arrive, (r, d) float64: coded and decoded.

    Examples
    --------
    >>> round_factors(np.array([[127.0, 0.4]]), "int8")
    array([[127.,   0.]])
    """
    return code_factors(rows, code).values()


def coded_factor(rows: NDArray[np.floating], trace: float, code: str) -> tuple[CodedRows, float]:
    """Code a factor V of a part of a scatter so that it has no more energy than the whole; return also what is left.

    Parameters
    ----------
    rows
        V (r, d), finite.
    trace
        Trace of the scatter, 0 or more, in squared units of the features.
    code
        One of :data:`FACTOR_CODES`.

    Returns
    -------
    coded, residual
        Rows with Σ‖row‖² ≤ trace as decoded, and trace − Σ‖row‖² ≥ 0. Coding what was decoded, with the same trace,
        gives the same again.

    Examples
    --------
    >>> coded, residual = coded_factor(np.array([[1.0, 0.999]]), 1.998001, "int8")
    >>> bool((coded.values() ** 2).sum() <= 1.998001), residual < 1e-6
    (True, True)
    >>> coded_factor(np.array([[1.0, 0.0]]), 5.0, "float16")[1]
    4.0
    """
    if not (math.isfinite(trace) and trace >= 0):
        raise InputError(f"the trace of a scatter is a finite number of 0 or more, not {trace}")
    values = _checked(rows, "factor rows")
    shrink, margin = 1.0, 2.0**-52
    while True:
        coded = code_factors(values * shrink, code)
        with np.errstate(over="ignore"):
            energy = float(np.square(coded.values()).sum())
        if not math.isfinite(energy):
            raise InputError(f"the squares of factor rows overflow, although their trace is {trace:g}: both must fit")
        if energy <= trace:
            return coded, trace - energy
        # Whole numbers stay when all rows shrink, and float16 gains at most 2⁻¹⁰: a margin that grows soon suffices.
        shrink *= math.sqrt(trace / energy) * (1.0 - margin)
        margin = min(4.0 * margin, 0.5)


def _code_affine(values: Floats) -> CodedRows:
    """Code means as low + u·step, u = 0 … 255."""
    least, most = values.min(axis=1, initial=np.inf), values.max(axis=1, initial=-np.inf)
    with np.errstate(over="ignore"):
        spreads = most - least
        lows, steps = least.astype(np.float32), (spreads / 255.0).astype(np.float32)
    if not (np.isfinite(lows).all() and np.isfinite(steps).all()):
        raise InputError(f"means up to {np.abs(values).max():g} do not fit int8 with float32 scales: choose float64")
    spacings = np.maximum(steps.astype(np.float64), 2.0**_LEAST)
    numbers = np.rint((values - least[:, None]) / spacings[:, None])
    # Asked of the spread as it is decoded, so that the answer is the same when that is coded again.
    constant = numbers.max(axis=1, initial=0.0) * spacings < _CONSTANT * np.abs(lows.astype(np.float64))
    numbers[constant] = 0.0
    scales = np.where(numbers.any(axis=1), spacings, 0.0).astype(np.float32)
    return CodedRows("int8", numbers.astype(np.uint8), scales, lows + np.float32(0.0))


def _symmetric_scales(peaks: Floats, code: str) -> Scales:
    """Return peak/127 (int4: /7) of every row, but the least normal number at least."""
    with np.errstate(over="ignore"):
        return np.maximum(peaks / _PEAK[code], 2.0**_LEAST).astype(np.float32)


def _steps(parts: Floats, code: str) -> Floats:
    """Return rows in units of their scales as whole numbers of a code; what is beyond them is cut off."""
    return np.asarray(np.clip(np.rint(parts), -_PEAK[code], _PEAK[code]))


def _best_scales(values: Floats, peaks: Floats) -> Scales:
    """Return the scale of every row for int4, of those that are tried the one with the least squared error."""
    best, least = _symmetric_scales(peaks, "int4"), np.full(len(peaks), np.inf)
    unit = values / np.where(peaks > 0, peaks, 1.0)[:, None]  # so that no square overflows
    for cut in CUTS:
        scales = _symmetric_scales(peaks * cut, "int4")
        with np.errstate(over="ignore", invalid="ignore"):
            steps = scales.astype(np.float64) / np.where(peaks > 0, peaks, 1.0)
            errors = np.square(_steps(unit / steps[:, None], "int4") * steps[:, None] - unit).sum(axis=1)
        better = errors < least
        best, least = np.where(better, scales, best), np.where(better, errors, least)
    return np.asarray(best, np.float32)


def _power_scales(peaks: Floats, code: str) -> Scales:
    """Return the power of two of every row that brings its largest entry, as it is rounded, just below 2^top."""
    top = _TOP[code]
    exponents = np.frexp(peaks)[1] - top
    exponents += np.ldexp(peaks, -exponents).astype(code) >= 2.0**top
    exponents = np.maximum(exponents, _LEAST)
    return np.where(exponents > _MOST, np.inf, np.ldexp(1.0, np.minimum(exponents, _MOST))).astype(np.float32)


def _known(code: str, codes: tuple[str, ...] = CODES) -> str:
    """Return the code, if it is one."""
    if code not in codes:
        raise UnknownNameError("code of rows", code, codes)
    return code


def _checked(rows: NDArray[np.floating], what: str) -> Floats:
    """Return finite rows (r, d) in float64."""
    values = np.ascontiguousarray(rows, dtype=np.float64)
    if values.ndim != 2 or values.shape[1] < 1:
        raise InputError(f"{what} are a table (r, d) with d of 1 or more, but an array of shape {values.shape} arrived")
    if not np.isfinite(values).all():
        raise InputError(
            f"{what} are finite numbers, but {int((~np.isfinite(values)).sum())} entries are not: drop them"
        )
    return values
