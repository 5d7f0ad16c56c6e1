"""How one simulated federation measures: in fixed point, as a deployed one does, or else in float64, and why.

In fixed point the statistics, and so the classifiers, are bit for bit those of a deployed federation of these clients.
Whether that is possible is decided before anything is measured, once for a setting and seed: the norms of the features,
how much they vary and how many numbers clients send are known.
"""

from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.linalg import blocks
from fedmoments.core.statistics import MOMENTS, FixedPoint, StatisticsSpec
from fedmoments.core.statistics.moments import cell_sums
from fedmoments.samples import DROPPED, Split
from fedmoments.samples.features import Features

__all__ = ["MOST_NUMBERS", "Form", "choose_form"]

#: Numbers that all clients together may send for their statistics to be measured client by client, which takes about
#: 8 s of one core then.
MOST_NUMBERS = 500_000_000
#: Steps of the fixed point must be smaller than this share of what a feature varies by within classes.
COARSE = 0.05


@dataclass(frozen=True)
class Form:
    """The fixed point that is measured in, or None for float64, and the reason."""

    fixed_point: FixedPoint | None
    reason: str | None = None


@dataclass(frozen=True, eq=False)
class _Scale:
    """Norms (n,) of the training samples, and the mean over coordinates of the variance within classes."""

    norms: NDArray[np.float64]
    variance: float


_SCALES: "WeakKeyDictionary[Features, _Scale]" = WeakKeyDictionary()


def choose_form(features: Features, split: Split, spec: StatisticsSpec, numbers: int, form: FixedPoint | None) -> Form:
    """Return the form that statistics are measured in.

    Parameters
    ----------
    features, split
        What clients measure, and who holds what.
    spec, numbers
        What every client sends, and how many numbers all of them send together.
    form
        The fixed point that is asked for, or None for float64.

    Examples
    --------
    >>> from fedmoments.samples.features import Samples
    >>> part = Samples(np.array([[3.0, 4.0], [0.0, 2.0]]), np.array([0, 0]))
    >>> split = Split(np.array([0, 0]), n_clients=1, scheme="by hand")
    >>> features = Features("toy", 1, part, part)
    >>> choose_form(features, split, StatisticsSpec(), 2, FixedPoint()).reason
    >>> choose_form(features, split, StatisticsSpec(), 2, FixedPoint(norm_bound=4.0)).reason
    'a training sample has the norm 5, more than the norm bound of 4 ...'
    """
    if form is None:
        return Form(None, "it was asked for in float64")
    held = split.clients != DROPPED
    if numbers > MOST_NUMBERS:
        return Form(
            None,
            f"its clients together send {numbers:,} numbers: too many to measure client by client here "
            f"(the most are {MOST_NUMBERS:,})",
        )
    if int(held.sum()) > form.max_samples:
        return Form(
            None, f"there are {int(held.sum()):,} samples, more than the {form.max_samples:,} that are agreed on"
        )
    scale = _scale_of(features)
    longest = float(scale.norms[held].max(initial=0.0))
    if longest > form.norm_bound:
        return Form(
            None,
            f"a training sample has the norm {longest:.6g}, more than the norm bound of {form.norm_bound:g} that a "
            "federation agrees on by default: scale features, or put them on the unit sphere",
        )
    for degree in sorted({MOMENTS[name].degree for name in spec.sent}):
        step, spread = form.resolution(degree), scale.variance ** (degree / 2)
        if step > COARSE * spread > 0:
            return Form(
                None,
                f"features vary by {scale.variance**0.5:.3g} within classes, too little for steps of {step:.3g} in "
                f"sums of degree {degree}, which a federation has by default (norm bound {form.norm_bound:g}): scale "
                "features, or agree on a smaller norm bound",
            )
    return Form(form)


def _scale_of(features: Features) -> _Scale:
    """Return norms and variance of training samples, worked out once for all settings and seeds."""
    if features not in _SCALES:
        X, y = features.train.X, features.train.y
        n, dim = len(X), features.dim
        centre = X.mean(axis=0, dtype=np.float64) if n else np.zeros(dim)
        norms, sums = np.empty(n), np.zeros((features.n_classes, dim))
        total = 0.0
        for block in blocks(n):
            rows = X[block].astype(np.float64)
            norms[block] = np.sqrt(np.einsum("ij,ij->i", rows, rows))
            rows -= centre
            total += float(np.einsum("ij,ij->", rows, rows))
            sums += cell_sums(rows, y[block], features.n_classes)
        counts = np.bincount(y, minlength=features.n_classes)
        between = float((np.einsum("ij,ij->i", sums, sums) / np.maximum(counts, 1)).sum())
        _SCALES[features] = _Scale(norms, max(total - between, 0.0) / max(n * dim, 1))
    return _SCALES[features]
