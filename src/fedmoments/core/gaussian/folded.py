"""FedCOF's free scatter of all clients of a partition in two passes over their samples, so that no client mean is kept.

The first pass adds up classes. Once their means are known, the second makes the mean of each (client, class) cell, a
block of cells at a time, and folds it into one weighted Gram product. What is held is one order of the samples and a
count and a label a cell, but no matrix of rows: some 90 bytes a sample, while they are sorted, instead of 8·d a cell.

**Law** the statistics are those that keep every client's means, for whoever looks at their pooled scatter: the same up
to the rounding of float64, for it is the same product over the same rows.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedmoments.core.gaussian.precision import noise_of_rows
from fedmoments.core.gaussian.scatter import RowScatter
from fedmoments.core.linalg import pack_symmetric
from fedmoments.core.statistics.mean_rows import MeanRows
from fedmoments.core.statistics.partition import ClientCells
from fedmoments.core.statistics.spec import StatisticsSpec
from fedmoments.core.statistics.statistics import Statistics

__all__ = ["folded_spec", "folded_statistics"]

_MEANS, _SCATTER = "client_means", ("contributors", "free_scatter")


def folded_spec(spec: StatisticsSpec) -> StatisticsSpec:
    """Return a spec with the free scatter of all clients in place of their means, where it has them.

    Examples
    --------
    >>> str(folded_spec(StatisticsSpec.of("client_means", "gram")))
    'counts + sums + gram + contributors + free_scatter'
    """
    if _MEANS not in spec.moments:
        return spec
    return StatisticsSpec.of(*(name for name in spec.moments if name != _MEANS), *_SCATTER)


def folded_statistics(
    X: ArrayLike, y: ArrayLike, clients: ArrayLike, spec: StatisticsSpec, *, n_classes: int
) -> Statistics:
    """Return what all clients of a partition measured, their means folded into one free scatter.

    Parameters
    ----------
    X, y, clients, n_classes
        As for :meth:`fedmoments.Ledger.of`.
    spec
        What clients measure: ``client_means`` and additive moments; or what is left of it (:func:`folded_spec`).

    Examples
    --------
    >>> import fedmoments as fm
    >>> rng, y = np.random.default_rng(0), np.arange(60) % 2
    >>> X, clients = rng.normal(size=(60, 3)) + 5.0 * y[:, None], rng.integers(0, 9, size=60)
    >>> folded = folded_statistics(X, y, clients, fm.spec_for("fedcof"), n_classes=2)
    >>> kept = fm.Ledger.of(X, y, clients, fm.spec_for("fedcof"), n_classes=2)
    >>> bool(np.allclose(fm.fit("fedcof", folded).scores(X), fm.fit("fedcof", kept).scores(X)))
    True
    """
    cells = ClientCells(X, y, clients, n_classes=n_classes)
    whole = folded_spec(spec)
    added = cells.added(StatisticsSpec.of(*(name for name in whole.moments if name not in _SCATTER)))
    means = added.sums / np.maximum(added.counts, 1)[:, None]
    sums: Any = cells  # read in blocks, as an array would be
    scatter = RowScatter(MeanRows(cells.labels, cells.counts, sums), added.counts, means, noise_of_rows(added, means))
    packed = pack_symmetric(scatter.scaled(1.0))
    held_by = np.bincount(cells.labels, minlength=n_classes)[added.classes]
    arrays = dict(added.arrays) | {
        "contributors": held_by[:, None].astype(np.float64),
        "free_scatter": np.append(packed, scatter.spread.sum()),
    }
    return Statistics(whole, n_classes, added.dim, added.classes, added.class_counts, arrays)
