"""The size and the arithmetic of any set of moments, so that every head can be priced from what it sends.

With d features, a client that holds |C_k| classes sends, in floats::

    counts                            |C_k| whole numbers, part of every upload
    sums, class squares, thirds, …    |C_k| · d
    gram                              d(d+1)/2 packed, d² not packed
    class grams                       |C_k| times that
    client means                      |C_k| · s · d (and |C_k| · s whole numbers), s means a class
    scatter sketch                    by its plan, in codes of its own: see :mod:`fedmoments.core.costs.sketches`

Which classes the numbers belong to (labels) is not counted: that is a bit a class, and the wire format's business.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedmoments.core.costs.cost import check_whole
from fedmoments.core.costs.sketches import sketch_size
from fedmoments.core.statistics import MOMENTS, Layout, Moment, SketchPlan
from fedmoments.errors import InputError, UnknownNameError

__all__ = ["PayloadSize", "check_present_classes", "floats_of", "flops_of", "moments_size"]


@dataclass(frozen=True)
class PayloadSize:
    """How many numbers an upload holds: whole numbers (counts) apart from floats.

    Parameters
    ----------
    counts, floats
        How many of each.
    coded, coded_bytes
        How many of the floats travel in a code of their own, and the bytes of those: scatter sketches, and means beside
        them that have a budget.

    Examples
    --------
    >>> PayloadSize(counts=4, floats=100) + PayloadSize(counts=1, floats=20)
    PayloadSize(counts=5, floats=120)
    >>> PayloadSize(counts=4, floats=100).numbers
    104
    >>> PayloadSize(counts=4, floats=100, coded=90, coded_bytes=95).bytes(4)
    135
    """

    counts: int
    floats: int
    coded: int = field(default=0, repr=False)
    coded_bytes: int = field(default=0, repr=False)

    @property
    def numbers(self) -> int:
        """Counts and floats together."""
        return self.counts + self.floats

    def bytes(self, bytes_per_number: float) -> float:
        """Bytes of the floats, where those that have no code of their own are so wide."""
        return (self.floats - self.coded) * bytes_per_number + self.coded_bytes

    def __add__(self, other: "PayloadSize") -> "PayloadSize":
        return PayloadSize(
            self.counts + other.counts,
            self.floats + other.floats,
            self.coded + other.coded,
            self.coded_bytes + other.coded_bytes,
        )


#: Counts are part of every upload and are no moment of their own; naming them does no harm.
COUNTS = "counts"


def _moments(names: Iterable[str]) -> list[Moment]:
    """Return the named moments, each once."""
    known = [COUNTS, *MOMENTS]
    for name in names:
        if name not in known:
            raise UnknownNameError("moment", name, known)
    return [MOMENTS[name] for name in MOMENTS if name in set(names)]


def check_present_classes(present_classes: int | ArrayLike, clients: int | None = None) -> tuple[int, int]:
    """Return how many clients there are and Σ_k |C_k|.

    Parameters
    ----------
    present_classes : int or (K,) array of int
        Σ_k |C_k|, or |C_k| of every client.
    clients
        K, when it is known; without it a plain number is the classes of one client.

    Examples
    --------
    >>> check_present_classes([3, 0, 2])
    (3, 5)
    >>> check_present_classes(2870, clients=100)
    (100, 2870)
    """
    array = np.asarray(present_classes)
    if array.ndim > 1 or array.dtype.kind not in "iu" or array.size == 0 or np.any(array < 0):
        raise InputError(
            "present_classes must be a whole number of zero or more, or a non-empty list of them with one entry per "
            f"client, but is {present_classes!r:.80}."
        )
    if array.ndim == 1 and clients is not None and len(array) != clients:
        raise InputError(
            f"present_classes must have one entry for each of the {clients} clients, but has {len(array)}; "
            "pass their sum if only that is known."
        )
    listed = len(array) if array.ndim == 1 else 1
    return (listed if clients is None else clients), int(array.sum())


def moments_size(
    moments: Iterable[str],
    d: int,
    present: NDArray[np.int64],
    means_per_client: int,
    *,
    packed: bool,
    sketch: SketchPlan | None = None,
    samples: ArrayLike | None = None,
) -> PayloadSize:
    """Size of the uploads of clients that hold so many classes, (K,).

    Examples
    --------
    >>> from fedmoments.core.costs.sketches import evenly
    >>> moments_size(["counts", "sums"], 512, evenly(2870, 100), 1, packed=True)
    PayloadSize(counts=2870, floats=1469440)
    """
    chosen, plan = _moments(list(moments)), sketch or SketchPlan()
    classes = int(present.sum())
    rows = classes * means_per_client
    times = {Layout.GLOBAL: len(present), Layout.CLASS: classes, Layout.ROWS: rows}
    counts = rows if any(moment.layout is Layout.ROWS for moment in chosen) else classes
    coded = PayloadSize(0, 0)
    if any(moment.layout is Layout.SKETCH for moment in chosen):
        coded = _coded(plan, d, present, means_per_client, samples)
        chosen = [moment for moment in chosen if moment.layout not in _in_codes(plan)]
    floats = sum(times[moment.layout] * (moment.width(d) if packed else moment.unpacked_width(d)) for moment in chosen)
    return PayloadSize(counts, floats) + coded


def _in_codes(plan: SketchPlan) -> tuple[Layout, ...]:
    """Return what travels in codes: with a budget the means too."""
    return (Layout.SKETCH,) if plan.budget is None else (Layout.SKETCH, Layout.ROWS)


def _coded(
    plan: SketchPlan, d: int, present: NDArray[np.int64], means_per_client: int, samples: ArrayLike | None
) -> PayloadSize:
    if means_per_client > 1 and plan.budget is not None:
        raise InputError(
            f"means_per_client must be 1 beside scatter sketches with a budget ('{plan.budget}'), which counts one "
            f"mean a class, but is {means_per_client}."
        )
    size = sketch_size(plan, d, present, samples)
    return PayloadSize(0, size.numbers, size.numbers, size.bytes)


def floats_of(
    moments: Iterable[str],
    d: int,
    present_classes: int | ArrayLike,
    means_per_client: int = 1,
    packed: bool = True,  # noqa: FBT001, FBT002
    *,
    sketch: SketchPlan | None = None,
) -> PayloadSize:
    """Numbers that a client uploads when it sends these moments.

    Parameters
    ----------
    moments
        Names of moments; naming one twice counts it once.
    d
        Feature dimensions, after the feature map.
    present_classes : int or (K,) array of int
        Classes that the client holds; for many clients together, one entry per client.
    means_per_client
        Mean rows per client and class, for ``client_means``: at most, since a class with few samples sends fewer.
    packed
        Whether symmetric matrices travel as d(d+1)/2 numbers rather than d².
    sketch
        How scatter sketches are planned, where they are among the moments; the default plan if it is not said.

    Returns
    -------
    PayloadSize
        Counts and floats, of all the clients together.

    Examples
    --------
    >>> floats_of(["counts", "sums", "gram"], d=512, present_classes=100)
    PayloadSize(counts=100, floats=182528)
    >>> floats_of(["client_means"], d=512, present_classes=[100, 20], means_per_client=2)
    PayloadSize(counts=240, floats=122880)
    >>> floats_of(["client_means", "scatter_sketch"], d=512, present_classes=5).bytes(4)
    10148
    """
    d, means = check_whole("d", d), check_whole("means_per_client", means_per_client)
    check_present_classes(present_classes)
    present = np.atleast_1d(np.asarray(present_classes, np.int64))
    return moments_size(moments, d, present, means, packed=packed, sketch=sketch)


def flops_of(moments: Iterable[str], d: int, classes: int, samples: int, *, dense_sums: bool = True) -> int:
    """Multiply-adds to measure these moments once the features are there.

    A sample costs d(d+1)/2 for a gram (or its class's gram), d for squares and client means, 2d for thirds or fourths.

    Parameters
    ----------
    moments
        Names of moments; naming one twice counts it once.
    d, classes, samples
        Feature dimensions, number of classes C and samples n of the client.
    dense_sums
        Whether class sums cost dC a sample, a product with one-hot labels (Fed3R, Appendix E), or d, an addition to the
        row of the sample's class (FedNCM).

    Returns
    -------
    int
        FLOPs; one multiply-add is one.

    Examples
    --------
    >>> flops_of(["counts", "sums", "gram"], d=1280, classes=1203, samples=13)
    30675840
    >>> flops_of(["counts", "sums"], d=1280, classes=1203, samples=13, dense_sums=False)
    16640
    """
    d, classes = check_whole("d", d), check_whole("classes", classes)
    samples = check_whole("samples", samples, least=0)
    columns = classes if dense_sums else 1
    return samples * sum(
        moment.flops(d) * (columns if moment.name == "sums" else 1) for moment in _moments(list(moments))
    )
