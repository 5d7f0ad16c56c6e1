"""How many numbers the clients of a real split send."""

from typing import Any

import numpy as np

from fedmoments.federation.costs import PayloadSize, floats_of
from fedmoments.statistics import MOMENTS, Layout, StatisticsSpec

__all__ = ["upload_size"]


def upload_size(spec: StatisticsSpec, dim: int, cells: Any) -> PayloadSize:
    """Return counts and floats that all clients send together: packed, and nothing for what a client does not hold.

    Scatter sketches are not in it: how large they are is a matter of plans (:mod:`fedmoments.simulation.budgets`).

    Parameters
    ----------
    spec
        What is measured.
    dim
        Dimension of the features it is measured on, after any map.
    cells
        (K, C) sparse array of samples by client and class (:meth:`fedmoments.data.Split.cells`). A client without a
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
