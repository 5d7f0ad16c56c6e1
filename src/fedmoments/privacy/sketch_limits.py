"""How much of a client's scatter may leave as a sketch, and what a sketch cannot go with.

A client with n samples of |C| classes has n − |C| directions in which samples differ from their class means: its
*spare* samples. A sketch of that many rows spans them all, and with the class means tells every sample up to a rotation
among samples. So a client cuts its own sketch, whatever the terms ask for:

    r ≤ share · (n − |C|),    and r = 0 where n − |C| < spare.

Where rows belong to classes, both hold in every class, whose spare samples are n_c − 1: a row of a small class is near
to one of its samples more often than a row of all classes is. Rows that are cut leave their energy to the residual
trace, so that tr M, or that of every class, stays exact.

A sketch is read row by row. It adds nothing up across clients, so nothing that hides a client among others works on it:
secure sums, noise and blurred counts are refused, not ignored (``Mode.check_sketch``). Their counterpart that adds up
is ``gram``.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from fedmoments.core.statistics import Statistics
from fedmoments.errors import InputError
from fedmoments.settings.policy import SHARE, SPARE

__all__ = ["allowed_rank", "check_limits", "limit_sketch", "spare_samples"]


def spare_samples(stats: Statistics) -> int:
    """Return n − |C|, the rank at which a client's sketch would span its samples.

    Examples
    --------
    >>> from fedmoments.core.statistics import StatisticsSpec
    >>> spare_samples(Statistics.of([[1.0], [2.0], [4.0]], [0, 0, 1], StatisticsSpec(), n_classes=2))
    1
    """
    return stats.n_samples - len(stats.classes)


def check_limits(share: Any, spare: Any) -> None:
    """Refuse a share that is not from 0 to 1, or a least number of spare samples that is not 0 or more.

    Examples
    --------
    >>> check_limits(1.5, 20)
    Traceback (most recent call last):
    fedmoments.errors.InputError: the share of spare samples that a sketch may span is from 0 to 1, not 1.5
    """
    if type(share) not in (int, float) or not 0 <= share <= 1:
        raise InputError(f"the share of spare samples that a sketch may span is from 0 to 1, not {share!r}")
    if type(spare) is not int or spare < 0:
        raise InputError(f"the fewest spare samples of a sketch are a whole number of 0 or more, not {spare!r}")


def allowed_rank(spare: int, *, share: float = SHARE, least: int = SPARE) -> int:
    """Return the largest rank that a client lets out.

    Parameters
    ----------
    spare
        n − |C|, of the samples that leave.
    share
        Of them, the largest part that a sketch spans.
    least
        With fewer, there are no rows.

    Examples
    --------
    >>> allowed_rank(80), allowed_rank(19), allowed_rank(19, least=0)
    (20, 0, 4)
    """
    check_limits(share, least)
    return 0 if spare < least else int(share * max(spare, 0) + 1e-9)


def limit_sketch(stats: Statistics, share: float = SHARE, least: int = SPARE) -> Statistics:
    """Return one client's statistics with no more sketch rows than its rules allow; the trace stays exact.

    Parameters
    ----------
    stats
        What one client measured, without what it withholds.
    share
        Largest part of n − |C| that the sketch spans; 0 for no rows at all.
    least
        With fewer spare samples n − |C|, there are no rows.

    Examples
    --------
    >>> from fedmoments.core.statistics import SketchPlan, StatisticsSpec
    >>> X, y = np.random.default_rng(0).normal(size=(42, 8)), [0] * 21 + [1] * 21
    >>> spec = StatisticsSpec.of("scatter_sketch", sketch=SketchPlan(None, rank=6))
    >>> stats = Statistics.of(X, y, spec, n_classes=2)
    >>> cut = limit_sketch(stats, share=0.1)
    >>> stats.sketches.sizes, cut.sketches.sizes
    (array([6]), array([4]))
    >>> round(stats.sketches.trace - cut.sketches.trace, 9)
    0.0
    """
    check_limits(share, least)
    if not stats.spec.has_sketch or not len(stats.sketch_sizes):
        return stats
    sketches = stats.sketches
    if len(sketches) > (len(stats.classes) if sketches.by_class else 1):
        raise InputError(
            f"a client limits its own sketch, but statistics of {int(stats.sketch_owners.max()) + 1} contributions "
            "arrived: limit each before they are merged"
        )
    spare = (stats.class_counts - 1).tolist() if sketches.by_class else [spare_samples(stats)]
    most = [allowed_rank(own, share=share, least=least) for own in spare]
    if (sketches.sizes <= most).all():
        return stats
    # Rows come by falling singular value, those of a block together.
    block = np.repeat(np.arange(len(sketches)), sketches.sizes)
    kept = np.arange(len(block)) - sketches.starts[block] < np.array(most)[block]
    lost = np.bincount(block[~kept], np.square(sketches.rows[~kept]).sum(axis=1), len(sketches))
    return replace(
        stats,
        arrays={**stats.arrays, "scatter_sketch": np.ascontiguousarray(sketches.rows[kept])},
        sketch_sizes=np.minimum(sketches.sizes, most),
        sketch_residuals=stats.sketch_residuals + lost,
    )
