"""Additive statistics as one dense vector of integers modulo 2⁶⁴: what is masked, summed and noised.

A sparse vector would tell which classes a client holds, so every class has its place, held or not::

    contributors (C) │ class 0: count, moments of a class │ … │ class C−1: … │ moments of all classes

``contributors`` holds 1 for every class that the client holds a sample of: in a sum, how many clients hold it. Adding
vectors modulo 2⁶⁴ is adding the fixed-point statistics, so a sum of vectors is the vector of the merged statistics.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.statistics import MOMENTS, FixedPoint, Layout, Statistics, StatisticsSpec
from fedmoments.errors import FixedPointOverflowError, InputError

__all__ = ["DenseLayout"]

Words = NDArray[np.uint64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class DenseLayout:
    """Where each number of additive statistics stands in the dense vector.

    Parameters
    ----------
    spec
        Moments that add up across clients; client means and scatter sketches do not.
    n_classes, dim
        C, and the dimension d of the features.

    Examples
    --------
    >>> form = FixedPoint(norm_bound=4.0, max_samples=100)
    >>> layout = DenseLayout(StatisticsSpec.of("gram"), n_classes=3, dim=2)
    >>> layout.size  # 3 contributors, 3 · (1 count + 2 sums), 3 numbers of the gram
    15
    >>> one = Statistics.of([[1.0, 2.0]], [2], layout.spec, n_classes=3, fixed_point=form)
    >>> two = Statistics.of([[0.5, 0.5]], [2], layout.spec, n_classes=3, fixed_point=form)
    >>> total = layout.pack(one) + layout.pack(two)
    >>> layout.unpack(total, form) == one + two, layout.contributors(total)
    (True, array([0, 0, 2]))
    """

    spec: StatisticsSpec
    n_classes: int
    dim: int

    def __post_init__(self) -> None:
        if self.spec.has_sketch:
            raise InputError(
                f"{self.spec} holds scatter sketches, which are laid side by side and never added up: send 'gram', "
                "which adds up to what they approximate"
            )
        if self.spec.keeps_clients_apart:
            raise InputError(
                f"{self.spec} holds client means, which are not added up across clients: take the additive part, or "
                "add up inside cohorts"
            )

    # ---------------------------------------------------------------------------------------------- places

    @property
    def of_class(self) -> tuple[str, ...]:
        """Moments that every class has, in order."""
        return tuple(name for name in self.spec.sent if MOMENTS[name].layout is Layout.CLASS)

    @property
    def of_all(self) -> tuple[str, ...]:
        """Moments of all classes together, in order."""
        return tuple(name for name in self.spec.sent if MOMENTS[name].layout is Layout.GLOBAL)

    @cached_property
    def class_width(self) -> int:
        """Numbers that one class has: its count, and its moments."""
        return 1 + sum(MOMENTS[name].width(self.dim) for name in self.of_class)

    @cached_property
    def global_width(self) -> int:
        """Numbers of the moments of all classes."""
        return sum(MOMENTS[name].width(self.dim) for name in self.of_all)

    @property
    def size(self) -> int:
        """Numbers of the whole vector."""
        return self.n_classes * (1 + self.class_width) + self.global_width

    @property
    def contributor_block(self) -> slice:
        """Where the contributors stand."""
        return slice(0, self.n_classes)

    def class_block(self, label: int) -> slice:
        """Return where count and moments of a class stand."""
        start = self.n_classes + label * self.class_width
        return slice(start, start + self.class_width)

    @property
    def classes_block(self) -> slice:
        """Where counts and moments of all classes stand."""
        return slice(self.n_classes, self.n_classes * (1 + self.class_width))

    @property
    def global_block(self) -> slice:
        """Where the moments of all classes together stand."""
        return slice(self.size - self.global_width, self.size)

    # ---------------------------------------------------------------------------------------------- there and back

    def pack(self, stats: Statistics) -> Words:
        """Return statistics in fixed point as a dense vector, (size,) uint64.

        Raises
        ------
        InputError
            When they are not in fixed point, or of other classes or dimension.
        MissingMomentError
            When they lack a moment of the layout.
        """
        if stats.fixed_point is None or (stats.n_classes, stats.dim) != (self.n_classes, self.dim):
            raise InputError(
                f"a dense vector is made of fixed-point statistics of {self.n_classes} classes in {self.dim} "
                f"dimensions, but {stats!r} arrived: quantize them to the agreed form"
            )
        part = stats.restricted(self.spec)
        vector = np.zeros(self.size, np.uint64)
        vector[: self.n_classes][part.classes] = 1
        table = vector[self.classes_block].reshape(self.n_classes, self.class_width)
        table[part.classes, 0] = part.class_counts.view(np.uint64)
        at = 1
        for name in self.of_class:
            width = MOMENTS[name].width(self.dim)
            table[part.classes, at : at + width] = part.arrays[name].view(np.uint64)
            at += width
        at = self.global_block.start
        for name in self.of_all:
            width = MOMENTS[name].width(self.dim)
            vector[at : at + width] = part.arrays[name].view(np.uint64)
            at += width
        return vector

    def unpack(self, vector: NDArray[Any], form: FixedPoint) -> Statistics:
        """Return the fixed-point statistics of a dense vector; classes whose count is not positive are absent.

        Raises
        ------
        InputError
            When the vector has another length, or holds a negative count or one beyond what was agreed on: its masks
            did not cancel, or a contributor lied.
        FixedPointOverflowError
            When all classes together have more samples than were agreed on: moments of all classes may have wrapped.
        """
        numbers = self.signed(vector)
        table = numbers[self.classes_block].reshape(self.n_classes, self.class_width)
        counts = table[:, 0]
        if counts.size and (counts.min() < 0 or counts.max() > form.max_samples):
            worst = int(counts[np.abs(counts).argmax()])
            raise InputError(
                f"a sum of counts must be from 0 to {form.max_samples}, but one of {worst} came out: masks that do not "
                "cancel, or a contributor that did not send statistics"
            )
        if counts.sum() > form.max_samples:
            raise FixedPointOverflowError(
                f"together these contributions hold {counts.sum()} samples, more than the agreed "
                f"max_samples={form.max_samples}: agree on a larger one and measure again"
            )
        classes = np.flatnonzero(counts)
        arrays: dict[str, NDArray[Any]] = {}
        at = 1
        for name in self.of_class:
            width = MOMENTS[name].width(self.dim)
            arrays[name] = np.ascontiguousarray(table[classes, at : at + width])
            at += width
        at = self.global_block.start
        for name in self.of_all:
            width = MOMENTS[name].width(self.dim)
            arrays[name] = numbers[at : at + width].copy()
            at += width
        return Statistics(
            self.spec, self.n_classes, self.dim, classes, counts[classes].copy(), arrays, fixed_point=form
        )

    def contributors(self, vector: NDArray[Any]) -> Ints:
        """Return how many clients hold each class, (C,)."""
        return self.signed(vector)[self.contributor_block].copy()

    def signed(self, vector: NDArray[Any]) -> Ints:
        """Return a vector modulo 2⁶⁴ as signed numbers, (size,) int64."""
        if vector.shape != (self.size,) or vector.dtype not in (np.uint64, np.int64):
            raise InputError(
                f"a dense vector of this layout has {self.size} numbers of 64 bits, but {vector.shape} of type "
                f"{vector.dtype} arrived"
            )
        return np.ascontiguousarray(vector).view(np.int64)
