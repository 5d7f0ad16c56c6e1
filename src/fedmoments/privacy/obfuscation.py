"""Obfuscation of counts: a client tells of every class a number of samples that is only about right.

FedCOF's Appendix N: with n samples of a class at a client, and 0 < ε < 1, smaller for more noise,

    ñ = max(n + noise, 0),    noise ~ U(−(1−ε)n, (1−ε)n),  N(0, 1/ε) or Laplace(1/ε),

where 1/ε is the standard deviation of the Gaussian and the scale of the Laplace distribution. ñ is rounded to a whole
number, and a class whose ñ is 0 is not sent. The mean of a class stays as it is: what is sent are ñ, and every sum
over the class times ñ/n.

**This is obfuscation and not differential privacy.** The mean is exact and depends on every sample; a class that is
not sent tells that it is small; the noise is not calibrated to anything; and where features lie on a grid, as floats
do, the true n can follow from the exact mean (n·mean must lie on the grid; in half precision it does, but for factors
of two). It blurs how many samples of a class a
client has for somebody who only looks. For a promise, use :mod:`fedmoments.privacy.dp`.
"""

import hashlib
import math
import os
import re
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from fedmoments.core.statistics import Layout, Statistics, StatisticsSpec
from fedmoments.core.statistics.moments import cell_sums, moment
from fedmoments.errors import InputError, UnknownNameError

__all__ = ["KINDS", "Obfuscation", "obfuscate", "parse_obfuscation"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Distributions that the noise may have.
KINDS = ("uniform", "gaussian", "laplace")
_FORM = "KIND:EPSILON, such as laplace:0.5, with KIND uniform, gaussian or laplace and 0 < EPSILON < 1"


@dataclass(frozen=True)
class Obfuscation:
    """How a client blurs its counts.

    Parameters
    ----------
    kind
        ``uniform``, ``gaussian`` or ``laplace``.
    epsilon
        Between 0 and 1; smaller for more noise. FedCOF's intensity, not a privacy budget.

    Examples
    --------
    >>> stats = Statistics.of(np.ones((30, 2)), [0] * 20 + [1] * 10, StatisticsSpec.of("client_means"), n_classes=2)
    >>> blurred = Obfuscation("laplace", 0.1).apply(stats, seed=1)
    >>> blurred.counts, blurred.row_counts
    (array([29,  9]), array([29,  9]))
    >>> blurred.rows.block_means()
    array([[1., 1.],
           [1., 1.]])
    """

    kind: str
    epsilon: float

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise UnknownNameError("obfuscation", self.kind, KINDS)
        given: Any = self.epsilon
        number = isinstance(given, int | float) and not isinstance(given, bool)
        if not number or not 0 < given < 1:
            raise InputError(f"the epsilon of an obfuscation must be between 0 and 1, not {self.epsilon!r}")

    def __str__(self) -> str:
        return f"{self.kind}:{self.epsilon:g}"

    # ---------------------------------------------------------------------------------------------- applying it

    def require(self, spec: StatisticsSpec) -> None:
        """Raise InputError unless counts beside these moments can be changed so that data could still have both.

        First moments alone can be weighted anew. Second moments and sketches tell the true count whatever is written
        beside them: the scatter of n samples has n − 1 directions, that of one sample none.

        Examples
        --------
        >>> Obfuscation("uniform", 0.5).require(StatisticsSpec.of("client_means"))
        >>> Obfuscation("uniform", 0.5).require(StatisticsSpec.of("gram"))
        Traceback (most recent call last):
        fedmoments.errors.InputError: counts cannot be obfuscated beside the moment 'gram': no data would have both, ...
        """
        if spec.has_sketch:
            raise InputError(
                "counts cannot be obfuscated beside scatter sketches: their trace and rank are of all classes together "
                "and grow with the true counts, so that no data would have both and the counts could be read from "
                "them. Measure client means alone, or do not obfuscate"
            )
        for name in spec.sent:
            if moment(name).degree > 1:
                raise InputError(
                    f"counts cannot be obfuscated beside the moment '{name}': no data would have both, and the true "
                    "count follows from its rank or its powers. Measure client means or sums alone, or do not obfuscate"
                )

    def counts(self, counts: Ints, *, seed: int | str | None) -> Ints:
        """Return blurred counts, whole numbers of 0 or more.

        Parameters
        ----------
        counts
            (k,) true ones.
        seed
            As for :meth:`apply`.

        Examples
        --------
        >>> Obfuscation("uniform", 0.9).counts(np.array([100, 100]), seed=0)
        array([90, 92])
        """
        u = _uniforms(len(counts), seed)
        if self.kind == "uniform":
            noise = (1 - self.epsilon) * counts * (2 * u - 1)
        elif self.kind == "gaussian":
            noise = ndtri(u) / self.epsilon
        else:
            side = np.where(u < 0.5, -1.0, 1.0)
            noise = -side * np.log1p(-np.abs(2 * u - 1)) / self.epsilon
        return np.rint(np.maximum(counts + noise, 0.0)).astype(np.int64)

    def apply(self, stats: Statistics, *, seed: int | str | None = None) -> Statistics:
        """Return one client's statistics with blurred counts and the same means.

        Parameters
        ----------
        stats
            What the client measured; apply it before rounding to fixed point wherever there is a choice.
        seed
            None takes the noise from the system's cryptographic generator. A simulation gives a seed, another for
            every client: the same one gives the same noise.

        Raises
        ------
        InputError
            When a moment does not go with it; see :meth:`require`.
        """
        self.require(stats.spec)
        form = stats.fixed_point
        if form is not None:
            return self.apply(stats.to_float(), seed=seed).quantized(form)
        if stats.spec.keeps_clients_apart:
            return self._of_rows(stats, seed)
        blurred = self.counts(stats.class_counts, seed=seed)
        return _weighted(stats, blurred > 0, blurred)

    def _of_rows(self, stats: Statistics, seed: int | str | None) -> Statistics:
        """Blur the count of every row; a class has what its rows have together."""
        blurred = self.counts(stats.row_counts, seed=seed)
        left = blurred > 0
        places = np.searchsorted(stats.classes, stats.row_labels)
        of_class = cell_sums(blurred[:, None], places, len(stats.classes))[:, 0].astype(np.int64)
        means = stats.arrays["client_means"][left] * (blurred[left] / stats.row_counts[left])[:, None]
        changed = _weighted(stats, of_class > 0, of_class)
        return replace(
            changed,
            arrays={**changed.arrays, "client_means": means},
            row_labels=stats.row_labels[left],
            row_counts=blurred[left],
            row_owners=stats.row_owners[left],
        )


def _weighted(stats: Statistics, left: NDArray[np.bool_], counts: Ints) -> Statistics:
    """Return statistics of the classes that are left, (p,), with every moment of a class times its count's ratio."""
    ratio = (counts[left] / stats.class_counts[left])[:, None]
    arrays: dict[str, NDArray[Any]] = {}
    for name, array in stats.arrays.items():
        arrays[name] = array[left] * ratio if moment(name).layout is Layout.CLASS else array
    return replace(stats, classes=stats.classes[left], class_counts=counts[left], arrays=arrays)


def _uniforms(n: int, seed: int | str | None) -> Floats:
    """Return n numbers strictly between 0 and 1, in steps of 2⁻⁵²."""
    if seed is None:
        raw = os.urandom(8 * n)
    else:
        raw = hashlib.shake_256(f"fedmoments obfuscation\n{seed}".encode()).digest(8 * n)
    bits = np.frombuffer(raw, "<u8") >> np.uint64(12)
    return np.asarray(np.ldexp(bits.astype(np.float64) + 0.5, -52))


def parse_obfuscation(text: str) -> Obfuscation:
    """Return an obfuscation that was typed as ``laplace:0.5``.

    Examples
    --------
    >>> parse_obfuscation("laplace:0.5")
    Obfuscation(kind='laplace', epsilon=0.5)
    >>> parse_obfuscation("laplace")
    Traceback (most recent call last):
    fedmoments.errors.InputError: an obfuscation is typed as KIND:EPSILON, such as laplace:0.5, ...
    """
    given: Any = text
    match = re.fullmatch(r"(\w+):([-+.\deE]+)", given) if isinstance(given, str) else None
    try:
        epsilon = float(match[2]) if match else math.nan
    except ValueError:
        epsilon = math.nan
    if match is None or math.isnan(epsilon):
        raise InputError(f"an obfuscation is typed as {_FORM}, but {text!r} arrived")
    return Obfuscation(match[1], epsilon)


def obfuscate(stats: Statistics, word: str, *, seed: int | str | None = None) -> Statistics:
    """Return one client's statistics with blurred counts: :func:`parse_obfuscation` and :meth:`Obfuscation.apply`.

    Examples
    --------
    >>> stats = Statistics.of(np.ones((9, 2)), [0] * 9, StatisticsSpec(), n_classes=1)
    >>> obfuscate(stats, "uniform:0.1", seed=3).sums
    array([[14., 14.]])
    """
    return parse_obfuscation(word).apply(stats, seed=seed)
