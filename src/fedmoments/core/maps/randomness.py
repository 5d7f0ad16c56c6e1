r"""Random numbers that are the same bits on every machine and with every library version.

Clients draw the same projection from a public seed, so the stream is part of the protocol. numpy's ``Generator.normal``
may change between versions, and ``log``, ``cos`` and ``sin`` of the C library differ in the last bit between platforms;
none of these is used here. The generator, named by `GENERATOR`, is:

1. **Key**: the first 16 bytes of SHA-256 of the ASCII text ``fedmoments.maps/1/<stream>/<seed>``, read as a
   little-endian integer. ``<stream>`` names what is drawn, so that two arrays of one seed are independent.
2. **Words**: Philox-4x64 with 10 rounds (Salmon et al., 2011), counter from 0, through ``numpy.random.Philox``, which
   raises the counter before each block of four 64-bit words. numpy guarantees this raw stream (NEP 19); a test compares
   it with Philox written out in Python integers.
3. **Uniforms** on [0, 1): the upper 53 bits of a word, times 2⁻⁵³. On the open interval (0, 1): the upper 52 bits k as
   (k + ½)·2⁻⁵². Both are exact; the second is never 0 or 1, is symmetric about ½, and has 52 bits because k + ½ would
   need 54 with one more.
4. **Normals**: the inverse of the normal distribution function, algorithm AS 241 (PPND16, Wichura 1988, relative error
   about 10⁻¹⁶) of a uniform on (0, 1). The largest possible normal is 8.2.

The steps in 3 and 4 use only ``+ - × ÷ √`` in float64, one numpy call each, and exact scaling by powers of two; the
logarithm in the tails is a series written with the same operations. IEEE 754 fixes the result of each to the last bit,
and separate calls cannot be fused into one rounding. So nothing has to be rounded to a grid. What remains as a risk is
a machine that does not follow IEEE 754 binary64 (x87 extended precision on 32-bit builds): compare
`FeatureMap.content_hash` where in doubt.
"""

import hashlib

import numpy as np
import numpy.typing as npt

from fedmoments.errors import InputError

__all__ = [
    "GENERATOR",
    "checked_generator",
    "normals_from_words",
    "open_uniforms_from_words",
    "standard_normals",
    "uniforms",
]

GENERATOR = "sha256-philox4x64-as241/1"

_BLOCK = 2**16  # words turned into normals at a time: the temporaries stay in cache

# AS 241 (PPND16): numerator and denominator, constant term first, in the centre, the tail and the far tail.
_CENTRE = (
    (
        3.3871328727963666080e0,
        1.3314166789178437745e2,
        1.9715909503065514427e3,
        1.3731693765509461125e4,
        4.5921953931549871457e4,
        6.7265770927008700853e4,
        3.3430575583588128105e4,
        2.5090809287301226727e3,
    ),
    (
        1.0,
        4.2313330701600911252e1,
        6.8718700749205790830e2,
        5.3941960214247511077e3,
        2.1213794301586595867e4,
        3.9307895800092710610e4,
        2.8729085735721942674e4,
        5.2264952788528545610e3,
    ),
)
_TAIL = (
    (
        1.42343711074968357734e0,
        4.63033784615654529590e0,
        5.76949722146069140550e0,
        3.64784832476320460504e0,
        1.27045825245236838258e0,
        2.41780725177450611770e-1,
        2.27238449892691845833e-2,
        7.74545014278341407640e-4,
    ),
    (
        1.0,
        2.05319162663775882187e0,
        1.67638483018380384940e0,
        6.89767334985100004550e-1,
        1.48103976427480074590e-1,
        1.51986665636164571966e-2,
        5.47593808499534494600e-4,
        1.05075007164441684324e-9,
    ),
)
_FAR_TAIL = (
    (
        6.65790464350110377720e0,
        5.46378491116411436990e0,
        1.78482653991729133580e0,
        2.96560571828504891230e-1,
        2.65321895265761230930e-2,
        1.24266094738807843860e-3,
        2.71155556874348757815e-5,
        2.01033439929228813265e-7,
    ),
    (
        1.0,
        5.99832206555887937690e-1,
        1.36929880922735805310e-1,
        1.48753612908506148525e-2,
        7.86869131145613259100e-4,
        1.84631831751005468180e-5,
        1.42151175831644588870e-7,
        2.04426310338993978564e-15,
    ),
)
_LOG_2 = 0.6931471805599453
_SQRT_HALF = 0.7071067811865476
# log((1+s)/(1-s)) = 2s·(1 + s²/3 + s⁴/5 + …); |s| ≤ 0.172, so 13 terms leave less than 1e-20.
_LOG_SERIES = tuple(1.0 / (2 * term + 1) for term in range(13))


def checked_generator(name: object, of: str) -> None:
    """Raise InputError unless ``name`` is the generator of this version.

    Examples
    --------
    >>> checked_generator(GENERATOR, of="RandomProjection")
    """
    if name != GENERATOR:
        raise InputError(
            f"the generator of {of} must be '{GENERATOR}', but got {name!r}; "
            "its numbers were drawn in another way: use the version of fedmoments that the other parties use"
        )


def uniforms(seed: int, stream: str, count: int) -> npt.NDArray[np.float64]:
    """Draw uniform numbers on [0, 1).

    Parameters
    ----------
    seed
        The public seed.
    stream
        What is drawn, in ASCII; different names give independent numbers.
    count
        How many.

    Returns
    -------
    array of shape (count,), float64

    Examples
    --------
    >>> uniforms(0, "example", 2).tolist() == uniforms(0, "example", 3)[:2].tolist()
    True
    """
    words: npt.NDArray[np.uint64] = _philox(seed, stream).random_raw(count)
    return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53


def standard_normals(seed: int, stream: str, count: int) -> npt.NDArray[np.float64]:
    """Draw normal numbers with mean 0 and variance 1.

    Parameters and the law of prefixes are those of `uniforms`.

    Returns
    -------
    array of shape (count,), float64

    Examples
    --------
    >>> float(standard_normals(0, "example", 10_000).std().round(1))
    1.0
    """
    philox = _philox(seed, stream)
    normals = np.empty(count)
    for start in range(0, count, _BLOCK):
        stop = min(start + _BLOCK, count)
        normals[start:stop] = normals_from_words(philox.random_raw(stop - start))
    return normals


def open_uniforms_from_words(words: npt.NDArray[np.uint64]) -> npt.NDArray[np.float64]:
    """Turn 64-bit words into uniform numbers on the open interval (0, 1), exactly and symmetrically.

    Parameters
    ----------
    words : array of shape (n,), uint64

    Returns
    -------
    array of shape (n,), float64

    Examples
    --------
    >>> ends = open_uniforms_from_words(np.array([0, 2**64 - 1], dtype=np.uint64))
    >>> bool(0 < ends[0]) and bool(ends[0] == 1 - ends[1])
    True
    """
    return ((words >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52


def normals_from_words(words: npt.NDArray[np.uint64]) -> npt.NDArray[np.float64]:
    """Turn 64-bit words into standard normal numbers, one each.

    Parameters
    ----------
    words : array of shape (n,), uint64

    Returns
    -------
    array of shape (n,), float64

    Examples
    --------
    >>> normals_from_words(np.array([0, 2**63, 2**64 - 1], dtype=np.uint64)).round(2).tolist()
    [-8.21, 0.0, 8.21]
    """
    p = open_uniforms_from_words(words)
    q = p - 0.5
    central = np.abs(q) <= 0.425
    normals = np.empty_like(q)
    middle = q[central]
    normals[central] = middle * _ratio(_CENTRE, 0.180625 - middle * middle)
    outer = ~central
    smaller = np.minimum(p[outer], 1.0 - p[outer])
    r = np.sqrt(-_log(smaller))
    size = _ratio(_TAIL, r - 1.6)
    far = r > 5.0
    size[far] = _ratio(_FAR_TAIL, r[far] - 5.0)
    normals[outer] = np.copysign(size, q[outer])
    return normals


def _philox(seed: int, stream: str) -> np.random.Philox:
    digest = hashlib.sha256(f"fedmoments.maps/1/{stream}/{seed}".encode("ascii")).digest()
    return np.random.Philox(key=int.from_bytes(digest[:16], "little"), counter=0)


def _polynomial(coefficients: tuple[float, ...], x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    value = np.full_like(x, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):  # Horner's rule; one rounding per numpy call
        np.multiply(value, x, out=value)
        np.add(value, coefficient, out=value)
    return value


def _ratio(
    coefficients: tuple[tuple[float, ...], tuple[float, ...]], x: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    return _polynomial(coefficients[0], x) / _polynomial(coefficients[1], x)


def _log(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    mantissa, exponent = np.frexp(x)
    small = mantissa < _SQRT_HALF
    mantissa = np.where(small, mantissa * 2.0, mantissa)
    exponent = exponent - small
    s = (mantissa - 1.0) / (mantissa + 1.0)
    return 2.0 * s * _polynomial(_LOG_SERIES, s * s) + exponent * _LOG_2
