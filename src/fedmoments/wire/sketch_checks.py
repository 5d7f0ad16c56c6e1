"""Whether a scatter sketch is one that data within the norm bound R can have.

With n_c samples, class sums A_c and a sketch of rows V and residual trace ρ, the trace T = ‖V‖² + ρ is that of the
class-centred scatter:

    T = Σ_c (Σ‖x‖² − ‖A_c‖²/n_c)  ≤  Σ_{c: n_c ≥ 2} (n_c·R² − ‖A_c‖²/n_c),

for a class of one sample has no scatter; a client all of whose classes are such has T = 0. Where second moments are
sent as well, Σ‖x‖² is known and both sides of the equation must agree. No row is longer than √T, so rows need no check
of their own. Slack is as in :mod:`fedmoments.wire.checks`: class sums err by e_c, which moves ‖A_c‖²/n_c by at most
(2‖A_c‖‖e_c‖ + ‖e_c‖²)/n_c, second moments by half a resolution ρ₂ a number, float64 sums by 16·(n + d + 64)·2⁻⁵² of
n·R².
"""

import math

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.linalg import packed_diagonal
from fedmoments.core.statistics import FixedPoint, Statistics
from fedmoments.core.statistics.fixed_point import SLACK
from fedmoments.wire.body import Refuse
from fedmoments.wire.definite import slack_of_sums
from fedmoments.wire.reason import Reason

__all__ = ["check_sketch"]

Floats = NDArray[np.float64]
#: Second moments, and whether they are packed matrices.
SECOND = {"class_norms": False, "class_squares": False, "gram": True, "class_grams": True}


def check_sketch(stats: Statistics, sums: Floats, errors: Floats, form: FixedPoint, refuse: Refuse) -> None:
    """Check the trace of a client's scatter sketch, if it has one.

    Parameters
    ----------
    stats
        Fixed-point statistics of one client.
    sums, errors
        Class sums (p, d) in float64, and how far each may be off, (p, d) or (p, 1).
    form
        Their fixed point.
    refuse
        Called with the reason.
    """
    if not stats.spec.has_sketch or not len(stats.classes):
        return
    with np.errstate(over="ignore"):
        trace = stats.sketches.trace
    if (stats.sketch_residuals < 0).any():
        refuse(
            Reason.INCONSISTENT,
            f"the residual trace of its scatter sketch must be 0 or more, but is {stats.sketch_residuals.min():.6g}",
        )
    counts = stats.class_counts.astype(np.float64)
    if stats.n_samples == len(counts) and trace != 0:
        refuse(
            Reason.INCONSISTENT,
            "every class has one sample, so that there is no scatter, but its scatter sketch has the trace "
            f"{trace:.6g}: its counts are not those of its sketch",
        )
    squares = counts * (form.norm_bound * (1 + SLACK)) ** 2
    rounding = 16 * 2.0**-52 * (stats.n_samples + stats.dim + 64) * float(squares.sum())
    least = np.square(np.maximum(np.abs(sums) - errors, 0.0)).sum(axis=1) / counts
    most = float(np.maximum(squares - least, 0.0)[counts > 1].sum()) + rounding
    if not trace <= most:  # infinity is refused too
        refuse(
            Reason.OUT_OF_RANGE,
            f"its scatter sketch has the trace {trace:.6g}, but its counts, its means and norm_bound="
            f"{form.norm_bound:g} allow {most:.6g}; clip features to the bound",
        )
    slack = slack_of_sums(sums, errors, stats.class_counts[:, None]) + rounding
    _check_second_moments(stats, sums, form, refuse, trace=trace, slack=slack)


def _check_second_moments(
    stats: Statistics, sums: Floats, form: FixedPoint, refuse: Refuse, *, trace: float, slack: float
) -> None:
    """Check that a sketch has the trace that every second moment less the class sums leaves."""
    counts = stats.class_counts.astype(np.float64)
    explained = float((np.square(sums) / counts[:, None]).sum())
    for name, total in _squares(stats, form).items():
        numbers = stats.dim if name == "gram" else len(counts) * (1 if name == "class_norms" else stats.dim)
        if abs(total - explained - trace) > slack + numbers * form.resolution(2) / 2:
            refuse(
                Reason.INCONSISTENT,
                f"the trace of its scatter sketch, {trace:.6g}, is not what its '{name}' less its class sums leave, "
                f"{total - explained:.6g}: measure both from the same samples",
            )


def _squares(stats: Statistics, form: FixedPoint) -> dict[str, float]:
    """Return Σ‖x‖² by second moment that it follows from."""
    totals = {}
    for name, packed in SECOND.items():
        if name in stats.arrays:
            numbers = packed_diagonal(stats.arrays[name]) if packed else stats.arrays[name]
            totals[name] = math.ldexp(float(numbers.astype(np.float64).sum()), -form.bits(2))
    return totals
