"""How many numbers the clients of a real split send, and how much memory their statistics take."""

from typing import Any

import numpy as np

from fedmoments.core.costs import PayloadSize, floats_of
from fedmoments.core.costs.budgets import sketch_sizes
from fedmoments.core.observations.rows import BYTES_PER_NUMBER
from fedmoments.core.statistics import MOMENTS, Layout, SketchPlan, StatisticsSpec
from fedmoments.core.statistics.moments import Moment

__all__ = ["coded_size", "room_of", "upload_size"]

#: How often the numbers of a moment are in memory at once, from the first client to the classifier.
COPIES = {Layout.CLASS: 5, Layout.GLOBAL: 2, Layout.ROWS: 1, Layout.SKETCH: 4}
#: The same of one row (d,) a class: heads hold means, variances and their terms as arrays (C, d) of their own besides.
SMALL_COPIES = 7
#: Matrices (d, d) that solving takes, and those in which a client compresses its sketch.
SQUARES, SKETCH_SQUARES = 4, 8


def upload_size(spec: StatisticsSpec, dim: int, cells: Any) -> PayloadSize:
    """Return counts and floats that all clients send together: packed, and nothing for what a client does not hold.

    Scatter sketches are not in it: how large they are is a matter of plans (``core.costs.budgets``).

    Parameters
    ----------
    spec
        What is measured.
    dim
        Dimension of the features it is measured on, after any map.
    cells
        (K, C) sparse array of samples by client and class (:meth:`fedmoments.samples.Split.cells`). A client without a
        sample sends nothing.

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> cells = csr_array(np.array([[3, 0], [1, 9], [0, 0]]))
    >>> upload_size(StatisticsSpec.of("gram"), 4, cells)
    PayloadSize(counts=3, floats=32)
    >>> upload_size(StatisticsSpec.of("client_means", means_per_client=2), 4, cells)
    PayloadSize(counts=4, floats=16)
    """
    present = np.diff(cells.indptr)
    senders = present > 0
    if not senders.any():
        return PayloadSize(0, 0)
    apart = [name for name in spec.sent if MOMENTS[name].layout is Layout.ROWS]
    added = [name for name in spec.sent if not MOMENTS[name].layout.apart]
    each_class = floats_of(added, dim, present[senders])
    if not apart:
        return each_class
    # A class with too few samples for several means is sent as one; a row brings its own count.
    shares = np.where(cells.data >= 2 * spec.means_per_client, spec.means_per_client, 1)
    rows = np.bincount(np.repeat(np.arange(len(present)), present), weights=shares, minlength=len(present))
    each_row = floats_of(apart, dim, rows[senders].astype(np.int64))
    return PayloadSize(each_row.counts, each_row.floats + each_class.floats)


def coded_size(spec: StatisticsSpec, dim: int, cells: Any, plan: SketchPlan) -> tuple[PayloadSize, int | None]:
    """Return the numbers that all clients send, and the bytes where a sketch, and means within its budget, are coded.

    Parameters
    ----------
    spec, dim, cells
        As in :func:`upload_size`.
    plan
        How scatter sketches are made.

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> coded_size(StatisticsSpec.of("gram"), 4, csr_array(np.array([[3, 0], [1, 9]])), SketchPlan())
    (PayloadSize(counts=3, floats=32), None)
    """
    if not spec.has_sketch:
        return upload_size(spec, dim, cells), None
    coded, present = sketch_sizes(plan, dim, cells), np.diff(cells.indptr)
    in_codes = (Layout.SKETCH,) if plan.budget is None else (Layout.SKETCH, Layout.ROWS)
    rest = [name for name in spec.sent if MOMENTS[name].layout not in in_codes]
    more = floats_of(rest, dim, present[present > 0]).floats if rest and present.any() else 0
    return PayloadSize(int(cells.nnz), coded.numbers + more), coded.bytes + more * BYTES_PER_NUMBER


def room_of(spec: StatisticsSpec, dim: int, cells: Any, plan: SketchPlan) -> int:
    """Return the bytes of memory that measuring statistics and fitting a head from them takes, features left out.

    What is allocated: mean rows once, as they lie in the ledger (heads read them in blocks); what is added up as the
    total, its copy, the numbers that a head takes from it, and the classifier; a few matrices (d, d) where a head
    solves for one.

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> rows = room_of(StatisticsSpec.of("client_means"), 100, csr_array(np.ones((9000, 10))), SketchPlan())
    >>> round(rows / 8 / 100 / 90_000, 2)
    1.0
    """
    shares = np.where(cells.data >= 2 * spec.means_per_client, spec.means_per_client, 1)
    times = {Layout.CLASS: int(cells.shape[1]), Layout.GLOBAL: 1, Layout.ROWS: int(shares.sum())}
    times[Layout.SKETCH] = sketch_sizes(plan, dim, cells).rows if spec.has_sketch else 0
    sent = [MOMENTS[name] for name in spec.sent]
    numbers = sum(_copies(moment, dim) * moment.width(dim) * times[moment.layout] for moment in sent)
    square = any(moment.layout.apart or moment.width(dim) > dim for moment in sent)
    return 8 * (numbers + (SQUARES * square + SKETCH_SQUARES * spec.has_sketch) * dim * dim)


def _copies(moment: Moment, dim: int) -> int:
    small = moment.layout is Layout.CLASS and moment.width(dim) <= dim
    return SMALL_COPIES if small else COPIES[moment.layout]
