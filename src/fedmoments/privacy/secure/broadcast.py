"""What all parties are told between the two phases of FedCOF under secure sums: class means, weights and a scale.

With N_c samples of class c at K_c clients, the second phase adds up the matrices

    M_k = Σ_c w_c n_kc (μ_kc − μ_c)(μ_kc − μ_c)ᵀ,    w_c = (N_c − 1)/(K_c − 1)  (0 where K_c = 1)

as integers, M_k·2^bits rounded. **No sum of valid contributions can overflow**: Σ_k M_k is positive semi-definite, so
no entry exceeds its trace, and because μ_c is the mean over the very same clients

    tr Σ_k M_k = Σ_c w_c (Σ_k n_kc ‖μ_kc‖² − N_c ‖μ_c‖²) ≤ Σ_c w_c N_c R² =: bound.

The most bits with bound·2^bits ≤ 2⁶² are used; rounding adds at most half a unit a client. The scale is public, and
needs no more than what the first phase opened: counts and numbers of clients.
"""

import hashlib
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.linalg import add_gram, new_gram, pack_symmetric, packed_diagonal, packed_size
from fedmoments.core.statistics import FixedPoint, Statistics, StatisticsSpec
from fedmoments.core.statistics.fixed_point import MAX_BITS, RANGE_BITS, SLACK
from fedmoments.errors import FixedPointOverflowError, InputError, reading
from fedmoments.files import pack_tensors, unpack_tensors
from fedmoments.privacy.secure.context import Context

__all__ = ["Broadcast"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Words = NDArray[np.uint64]

KIND = "free scatter broadcast"
#: Fewest bits that a scale can have: bounds beyond 2¹⁰⁰⁰ are not numbers.
LEAST_BITS = -900


@dataclass(frozen=True, eq=False)
class Broadcast:
    """Means and weights of the classes that enough clients hold, and the scale of the second phase.

    Parameters
    ----------
    n_classes
        C.
    classes
        (p,) ascending labels that were kept; the others are suppressed.
    means
        (p, d) class means μ_c, in feature units.
    weights
        (p,) w_c.
    bits
        Binary digits behind the point of what the second phase adds up.
    form
        The federation's fixed-point form.

    Examples
    --------
    >>> form = FixedPoint(norm_bound=4.0, max_samples=100)
    >>> parts = [Statistics.of([[x], [3.0]], [0, 1], StatisticsSpec(), n_classes=2, fixed_point=form) for x in (1, 2)]
    >>> broadcast = Broadcast.of(parts[0] + parts[1], np.array([2, 2]))
    >>> broadcast.means.tolist(), broadcast.weights.tolist(), broadcast.bits
    ([[1.5], [3.0]], [1.0, 1.0], 56)
    >>> Broadcast.from_bytes(broadcast.to_bytes()).digest == broadcast.digest
    True
    >>> total = broadcast.vector(parts[0]) + broadcast.vector(parts[1])
    >>> broadcast.read(total)  # the scatter of two means at 1 and 2, and its trace
    array([0.5, 0.5])
    """

    n_classes: int
    classes: Ints
    means: Floats
    weights: Floats
    bits: int
    form: FixedPoint

    @classmethod
    def of(cls, stats: Statistics, contributors: Ints) -> "Broadcast":
        """Return what follows from the first phase.

        Parameters
        ----------
        stats
            Counts and sums of the classes that are kept, in fixed point.
        contributors
            (C,) how many clients hold a class.
        """
        if stats.fixed_point is None:
            raise InputError("the first phase adds up in fixed point, but statistics in float64 arrived")
        counts, held_by = stats.class_counts, contributors[stats.classes]
        if (held_by < 1).any() or (held_by > counts).any():
            raise InputError(
                "a class that was opened must have from 1 to as many clients as samples, but "
                f"{held_by.tolist()} clients and {counts.tolist()} samples arrived: a contributor sent no statistics"
            )
        weights = np.where(held_by >= 2, (counts - 1) / np.maximum(held_by - 1, 1), 0.0)
        bound = float(weights @ counts) * stats.fixed_point.norm_bound**2
        bits = math.floor(RANGE_BITS - math.log2(bound)) if bound > 0 else MAX_BITS
        means = stats.class_array("sums") / counts[:, None]
        return cls(stats.n_classes, stats.classes, means, weights, min(bits, RANGE_BITS), stats.fixed_point)

    @property
    def dim(self) -> int:
        """Dimension d of the features."""
        return int(self.means.shape[1])

    @property
    def size(self) -> int:
        """Numbers of a vector of the second phase: the packed matrix, and its spread."""
        return packed_size(self.dim) + 1

    @property
    def digest(self) -> str:
        """SHA-256 of the bytes, 64 hexadecimal digits: reports of the second phase are bound to it."""
        return hashlib.sha256(self.to_bytes()).hexdigest()

    def context(self, first: Context) -> Context:
        """Return the context of the second phase, which belongs to this broadcast and no other.

        Parameters
        ----------
        first
            Context of the first phase.
        """
        both = f"fedmoments second phase 1\n{first.fingerprint}\n{self.digest}"
        return Context(first.federation, first.round, hashlib.sha256(both.encode()).hexdigest())

    # ---------------------------------------------------------------------------------------------- there and back

    def to_bytes(self) -> bytes:
        """Return it as it travels: safetensors, checksummed; about 8·p·(d + 2) bytes."""
        tensors = {"classes": self.classes, "means": self.means, "weights": self.weights}
        form = {"norm_bound": self.form.norm_bound, "max_samples": self.form.max_samples}
        return pack_tensors(KIND, tensors, {"n_classes": self.n_classes, "bits": self.bits, "form": form})

    @classmethod
    def from_bytes(cls, data: bytes) -> "Broadcast":
        """Read what :meth:`to_bytes` wrote.

        Raises
        ------
        FileFormatError
            When it is damaged, or holds numbers that no first phase gives.
        """
        tensors, header = unpack_tensors(data, KIND, "the broadcast")
        with reading("the broadcast of the server is not valid"):
            n_classes, bits = header["n_classes"], header["bits"]
            if not all(type(number) is int for number in (n_classes, bits)):
                raise InputError(f"n_classes and bits must be whole numbers, not {n_classes!r} and {bits!r}")
            form = FixedPoint(**header["form"])
            broadcast = cls(n_classes, tensors["classes"], tensors["means"], tensors["weights"], bits, form)
            broadcast._check()
        return broadcast

    def _check(self) -> None:
        self._check_labels()
        longest = self.form.norm_bound * (1 + SLACK)
        if not (np.linalg.norm(self.means, axis=1) <= longest).all():
            raise InputError(
                f"a class mean is longer than the agreed norm_bound {self.form.norm_bound:g}, or no number"
            )
        if not ((self.weights >= 0) & (self.weights < self.form.max_samples)).all():
            raise InputError(f"weights must be from 0 to the agreed max_samples {self.form.max_samples}")
        if not LEAST_BITS <= self.bits <= RANGE_BITS:
            raise InputError(f"bits must be a whole number from {LEAST_BITS} to {RANGE_BITS}, not {self.bits!r}")

    def _check_labels(self) -> None:
        """Refuse labels out of order, and arrays of another type or shape than theirs."""
        p = len(self.classes)
        kinds = [(array.dtype.str, array.ndim) for array in (self.classes, self.means, self.weights)]
        if kinds != [("<i8", 1), ("<f8", 2), ("<f8", 1)] or self.weights.shape != (p,) or self.means.shape[0] != p:
            raise InputError(f"labels, means and weights of {p} classes were expected, but {kinds} arrived")
        if p and (self.classes[0] < 0 or self.classes[-1] >= self.n_classes or (np.diff(self.classes) <= 0).any()):
            raise InputError(f"labels must ascend from 0 to {self.n_classes - 1} without repetition")

    # ---------------------------------------------------------------------------------------------- the second phase

    def vector(self, stats: Statistics) -> Words:
        """Return what a client adds in the second phase, (size,) uint64: M_k and Σ_c n_kc ‖μ_kc − μ_c‖².

        Parameters
        ----------
        stats
            The client's statistics of the first phase: counts and sums (or client means, one a class), fixed point.

        Raises
        ------
        InputError
            When they are of another form, or of other classes or dimension.
        FixedPointOverflowError
            When the scale of the broadcast is too fine for them.
        """
        if (stats.n_classes, stats.dim, stats.fixed_point) != (self.n_classes, self.dim, self.form):
            raise InputError(
                f"the broadcast is for {self.n_classes} classes in {self.dim} dimensions in {self.form}, but {stats!r} "
                f"in {stats.fixed_point} arrived: use the statistics of the first phase"
            )
        mine = stats.restricted(StatisticsSpec())
        places = np.isin(mine.classes, self.classes)
        own = np.searchsorted(self.classes, mine.classes[places])
        counts = mine.class_counts[places].astype(np.float64)
        centred = mine.class_array("sums")[places] / counts[:, None] - self.means[own]
        spread = float(counts @ np.einsum("ij,ij->i", centred, centred))
        matrix = new_gram(self.dim)
        add_gram(matrix, centred * np.sqrt(counts * self.weights[own])[:, None])
        numbers = np.append(np.ldexp(pack_symmetric(matrix), self.bits), np.ldexp(spread, self.form.bits(2)))
        if np.abs(numbers).max() > math.ldexp(1 + SLACK, RANGE_BITS):
            raise FixedPointOverflowError(
                f"with {self.bits} bits behind the point, what this client would add does not fit 64 bits: the server "
                "broadcast a scale that does not belong to the statistics of the first phase"
            )
        return np.asarray(np.rint(numbers).astype(np.int64).view(np.uint64))

    def read(self, total: Words) -> Floats:
        """Return the free scatter, packed, and its spread, from the sum over exactly the clients of the first phase.

        Raises
        ------
        InputError
            When the sum cannot be one of the matrices that were agreed on: it is checked against what bounds it.
        """
        if total.shape != (self.size,):
            raise InputError(f"a sum of the second phase has {self.size} numbers, but {total.shape} arrived")
        numbers = total.view(np.int64)
        diagonal = packed_diagonal(numbers[:-1])
        most = math.ldexp(1 + 2 * SLACK, RANGE_BITS)
        if numbers[-1] < 0 or diagonal.min() < 0 or diagonal.astype(np.float64).sum() > most:
            raise InputError(
                "the sum of the second phase is not a scatter around the class means of the first: a contributor sent "
                "something else, or masks did not cancel"
            )
        return np.append(np.ldexp(numbers[:-1].astype(np.float64), -self.bits), self.form.dequantize(numbers[-1:], 2))
