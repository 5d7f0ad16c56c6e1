"""Client-level privacy: a client's whole contribution is clipped to a public norm S before it leaves.

With the weights of the release (one sample has a norm of at most 1) a client's vector v is sent as s·v, s ≤ 1, such
that ‖sent‖ ≤ S. Sums are rounded towards zero and counts up, ⌈s·n⌉: a class that is there stays there, no mean grows
longer and what the server checks of a contribution (‖A_c‖ ≤ n_c R, a positive semi-definite scatter) still holds.
Rounding is part of what is measured: s is found by bisection on the norm of the rounded vector.

Counts of 1 alone have a norm, w·√(classes). Where a client of many classes exceeds S/2 by them, it keeps the classes
with most samples. Moments of all classes cannot be cut down to some classes, so with those S must have room for all,
S ≥ 2w√C: a public condition, refused before anything is measured.
"""

import math
from dataclasses import replace

import numpy as np

from fedmoments.core.linalg import packed_diagonal
from fedmoments.core.statistics import Statistics
from fedmoments.errors import InputError
from fedmoments.privacy.dense import DenseLayout
from fedmoments.privacy.dp.noise_plan import MATRICES, NoisePlan, plan
from fedmoments.privacy.dp.sensitivity import COUNTS
from fedmoments.privacy.protection import Agreed

__all__ = ["clip_client", "weighted_norm"]

#: Halvings of the interval in which s lies.
STEPS = 40


def weighted_norm(stats: Statistics, noise_plan: NoisePlan) -> float:
    """Return the norm of a contribution in the weights of a release: one sample has at most 1.

    Examples
    --------
    >>> from fedmoments.core.statistics import FixedPoint, StatisticsSpec
    >>> form, layout = FixedPoint(1.0, 1000), DenseLayout(StatisticsSpec.of("gram"), n_classes=2, dim=2)
    >>> stats = Statistics.of([[0.6, 0.8]], [0], layout.spec, n_classes=2, fixed_point=form)
    >>> round(weighted_norm(stats, plan(layout, form, Agreed(epsilon=1.0))), 4)
    1.0
    """
    energy = noise_plan.weights[COUNTS] ** 2 * float(np.square(stats.class_counts.astype(np.float64)).sum())
    for name in stats.spec.sent:
        values = stats.class_array(name)
        squares = float(np.square(values).sum())
        if name in MATRICES:
            squares = 2.0 * squares - float(np.square(packed_diagonal(values)).sum())
        energy += noise_plan.weights[name] ** 2 * squares
    return math.sqrt(energy)


def clip_client(stats: Statistics, agreed: Agreed) -> Statistics:
    """Return a client's contribution, clipped to the agreed norm ``client_norm``; unchanged if it is within.

    Parameters
    ----------
    stats
        One client's, in fixed point, without client means.
    agreed
        Of unit ``client``.

    Examples
    --------
    >>> from fedmoments.core.statistics import FixedPoint, StatisticsSpec
    >>> form = FixedPoint(1.0, 10**5)
    >>> stats = Statistics.of([[0.6, 0.8]] * 50, [0] * 50, StatisticsSpec(), n_classes=2, fixed_point=form)
    >>> clip_client(stats, Agreed(epsilon=1.0, unit="client", client_norm=10.0)).counts
    array([10,  0])
    """
    if stats.fixed_point is None or agreed.client_norm is None:
        raise InputError(
            "a contribution in fixed point is clipped to an agreed client_norm, but "
            f"{stats!r} and client_norm {agreed.client_norm} arrived"
        )
    layout = DenseLayout(stats.spec, stats.n_classes, stats.dim)
    noise_plan, bound = plan(layout, stats.fixed_point, agreed), agreed.client_norm
    if weighted_norm(stats, noise_plan) <= bound:
        return stats
    if not layout.of_all:  # with moments of all classes, the plan made sure of room for every class
        stats = _fewer_classes(stats, max(1, int((bound / (2.0 * noise_plan.weights[COUNTS])) ** 2)))
    low, high = 0.0, 1.0
    for _ in range(STEPS):
        middle = 0.5 * (low + high)
        fits = weighted_norm(_scaled(stats, middle), noise_plan) <= bound
        low, high = (middle, high) if fits else (low, middle)
    return _scaled(stats, low)


def _fewer_classes(stats: Statistics, most: int) -> Statistics:
    """Keep the classes with most samples; the first of equals."""
    if len(stats.classes) <= most:
        return stats
    order = np.argsort(-stats.class_counts, kind="stable")[:most]
    keep = np.sort(order)
    arrays = {name: array[keep] for name, array in stats.arrays.items()}
    return replace(stats, classes=stats.classes[keep], class_counts=stats.class_counts[keep], arrays=arrays)


def _scaled(stats: Statistics, factor: float) -> Statistics:
    """Return factor·stats with counts rounded up and all other numbers towards zero."""
    counts = np.maximum(np.ceil(factor * stats.class_counts), 1.0).astype(np.int64)
    arrays = {name: np.trunc(factor * array).astype(np.int64) for name, array in stats.arrays.items()}
    return replace(stats, class_counts=counts, arrays=arrays)
