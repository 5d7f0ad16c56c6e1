"""The scatter of every client within its classes, W = B − Σ A_c A_cᵀ/n_c over N − p degrees of freedom.

Second moments that pass every inequality can still be invented. Three numbers of W are compared between clients:

- its *size* tr(W)/(N − p);
- its *shape*, the squared distance ‖W/tr(W) − M‖², which shrinks with 1/(N − p) as that of a mean does;
- its weight in *narrow* directions, those in which classes scatter least, ⟨W, M⁻¹⟩/tr(W): little in the shape, but
  what whitening heads divide by.

Size and weight are linear in W: their expectation does not depend on how many samples a client has. M, of trace 1, is
the scatter as most see it: clients are dealt to groups, and every entry is the median of the groups' sums, so that
junk of a few clients is in a few groups. Where only squares or norms of coordinates were measured, W is its diagonal or
its trace, and the numbers that need more are left out. A scatter sketch has the trace of W, and of its directions only
the leading ones, which no other client shares: they are not compared.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from fedmoments.core.linalg import pack_symmetric, packed_diagonal, unpack_symmetric
from fedmoments.core.statistics import Statistics
from fedmoments.privacy.robust.centres import Cells

__all__ = ["FINEST", "Scatter", "measure_scatter", "within_variance"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Clients are dealt to at most so many groups.
GROUPS = 15
#: Eigenvalues of M below this share of their mean count as that much.
FLOOR = 1e-2
#: A scatter of less than this share of the usual size is none at all: it has no directions.
NOTHING = 1e-9
#: Moments of which W, its diagonal or its trace can be made.
FINEST = ("gram", "class_squares", "class_norms", "scatter_sketch")


@dataclass(frozen=True)
class Scatter:
    """Numbers of every client's scatter.

    Parameters
    ----------
    freedom
        (K,) N − p, samples less classes.
    numbers
        ``size`` and ``narrow`` -> (K,), two-sided; NaN without a degree of freedom.
    shape
        (K,) squared distances; NaN without a degree of freedom, None where W is a trace.
    variance
        What the squared distance is by M alone, in units of that of one degree of freedom.
    """

    freedom: Ints
    numbers: dict[str, Floats]
    shape: Floats | None = None
    variance: float = 0.0


def finest(stats: Statistics) -> str | None:
    """Return the finest second moment of which W can be made, or None."""
    return next((name for name in FINEST if name in stats.spec.moments), None)


def _whole(stats: Statistics, name: str) -> Floats:
    """Return a second moment added up over classes: packed (d(d+1)/2,), (d,) or (1,)."""
    return stats.global_array(name) if name == "gram" else stats.class_array(name).sum(axis=0)


def _roots(stats: Statistics) -> Floats:
    """Return A_c/√n_c, (p, d)."""
    return np.asarray(stats.class_array("sums") / np.sqrt(stats.class_counts)[:, None])


def _explained(roots: Floats, name: str) -> Floats:
    """Return what class sums explain of the moment, in its own form."""
    if name == "gram":
        return pack_symmetric(roots.T @ roots)
    squares = np.square(roots).sum(axis=0)
    return np.asarray(squares if name == "class_squares" else squares.sum(keepdims=True))


def _scatter(stats: Statistics, name: str) -> Floats:
    """Return W in the moment's own form."""
    return np.asarray(_whole(stats, name) - _explained(_roots(stats), name))


def _trace(stats: Statistics, name: str) -> float:
    """Return tr W."""
    if name == "scatter_sketch":
        return stats.sketches.trace
    whole = _whole(stats, name)
    diagonal = packed_diagonal(whole) if name == "gram" else whole
    return float(diagonal.sum() - np.square(_roots(stats)).sum())


def within_variance(parts: Sequence[Statistics], cells: Cells) -> float:
    """Return the trace of the scatter within classes, per degree of freedom, over all clients.

    Without second moments it is the free estimate: the scatter of client means around class means, by their counts.

    Examples
    --------
    >>> from fedmoments.privacy.robust.centres import stack
    >>> from fedmoments.core.statistics import StatisticsSpec
    >>> stats = Statistics.of([[0.0], [2.0], [4.0]], [0, 0, 0], StatisticsSpec.of("gram"), n_classes=1)
    >>> round(within_variance([stats], stack({"a": stats})), 9)
    4.0
    """
    name = finest(parts[0])
    if name is not None:
        freedom = sum(part.n_samples - len(part.classes) for part in parts)
        total = sum(_trace(part, name) for part in parts)
        return max(total / max(freedom, 1), 0.0)
    sizes = np.bincount(cells.labels, cells.counts, cells.n_classes)
    totals = np.zeros((cells.n_classes, cells.means.shape[1]))
    np.add.at(totals, cells.labels, cells.means * cells.counts[:, None])
    gaps = cells.means - (totals / np.maximum(sizes, 1)[:, None])[cells.labels]
    freedom = len(cells.labels) - int((sizes > 0).sum())
    return float((cells.counts * np.square(gaps).sum(axis=1)).sum() / max(freedom, 1))


def measure_scatter(parts: Sequence[Statistics], use: NDArray[np.bool_]) -> Scatter | None:
    """Return the numbers of every client's scatter, or None without second moments.

    Parameters
    ----------
    parts
        Statistics of K clients.
    use
        (K,) whose scatter M is made of.
    """
    name = finest(parts[0])
    if name is None:
        return None
    freedom = np.array([part.n_samples - len(part.classes) for part in parts], np.int64)
    known = np.flatnonzero(freedom > 0)
    traces = np.full(len(parts), np.nan)
    for k in known.tolist():
        traces[k] = max(_trace(parts[k], name), 0.0)
    numbers = {"size": traces / np.maximum(freedom, 1)}
    speakers = known[use[known]]
    if name in ("class_norms", "scatter_sketch") or not len(speakers):
        return Scatter(freedom, numbers)
    usual = _usual(parts, speakers, numbers["size"], name)
    narrow, typical = _narrow(usual, name), float(np.median(numbers["size"][speakers]))
    numbers["narrow"], shape = np.full((2, len(parts)), np.nan)
    for k in known.tolist():
        own = _scatter(parts[k], name)
        own = own / traces[k] if traces[k] > NOTHING * typical * freedom[k] else np.zeros_like(own)
        numbers["narrow"][k] = own @ narrow
        shape[k] = _norm2(own - usual, name)
    return Scatter(freedom, numbers, shape, np.pi / 2 / float(freedom[speakers].sum()))


def _usual(parts: Sequence[Statistics], speakers: Ints, sizes: Floats, name: str) -> Floats:
    """Return M as most see it, in the moment's own form, of trace 1.

    Groups are dealt in the order of size, so that they do not depend on the order of the clients.
    """
    order = speakers[np.argsort(sizes[speakers], kind="stable")]
    n_groups = min(GROUPS, len(order))
    sums: list[Floats | float] = [0.0] * n_groups
    for place, k in enumerate(order.tolist()):
        sums[place % n_groups] = sums[place % n_groups] + _scatter(parts[k], name)
    stacked = np.stack([np.asarray(total) for total in sums])
    traces = (packed_diagonal(stacked) if name == "gram" else stacked).sum(axis=1)
    stacked = stacked[traces > 0] / traces[traces > 0, None]
    if not len(stacked):
        return np.zeros(stacked.shape[1])
    middle = np.asarray(np.median(stacked, axis=0))
    trace = float((packed_diagonal(middle) if name == "gram" else middle).sum())
    return middle / trace if trace > 0 else middle


def _narrow(usual: Floats, name: str) -> Floats:
    """Return the vector whose product with W, in the moment's own form, is ⟨W, M⁻¹⟩."""
    if name == "class_squares":
        return np.asarray(1.0 / np.maximum(usual, FLOOR * usual.mean() or 1.0))
    values, vectors = eigh(unpack_symmetric(usual))
    inverse = (vectors / np.maximum(values, FLOOR * values.mean() or 1.0)) @ vectors.T
    return 2 * pack_symmetric(inverse) - _diagonal_of(inverse)


def _diagonal_of(matrix: Floats) -> Floats:
    return pack_symmetric(np.diag(np.diag(matrix)))


def _norm2(values: Floats, name: str) -> float:
    """Return the squared Frobenius norm of what is packed, or of a diagonal."""
    if name == "class_squares":
        return float(values @ values)
    diagonal = np.asarray(packed_diagonal(values), np.float64)
    return float(2 * (values @ values) - diagonal @ diagonal)
