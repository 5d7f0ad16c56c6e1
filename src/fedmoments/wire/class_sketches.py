"""Whether scatter sketches whose rows belong to classes are such as data have, in each class by itself.

With rows V_c and residual trace ρ_c of class c, T_c = ‖V_c‖² + ρ_c is the trace of its scatter alone. So what holds for
all classes together (:mod:`fedmoments.wire.sketch_block`) holds in each: rows of means in it spread by no more than
T_c, T_c is what its own second moments leave, and no coordinate, and for matrices no direction, of V_c has more energy.
Otherwise a class could be given the scatter of another one, for only sums over classes would be looked at.
"""

import math

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.linalg import packed_diagonal
from fedmoments.core.statistics.coding import CUTS
from fedmoments.wire.body import Refuse
from fedmoments.wire.evidence import MATRICES, Evidence, is_definite, slack_of, slack_of_sums
from fedmoments.wire.reason import Reason

__all__ = ["check_class_sketches", "off_by_coding"]

Floats = NDArray[np.float64]
#: Half a step of a code, in the largest number of a row as it arrives. int4 may have cut off a larger one, but errs no
#: more than with steps of a seventh of that.
HALF_STEPS = {
    "float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "int8": 0.5 / 127, "int4": 0.5 / 7 / min(CUTS),
}  # fmt: skip
#: Second moments of each class.
SECOND = ("class_norms", "class_squares", "class_grams")


def off_by_coding(evidence: Evidence) -> Floats:
    """Return how far coding can move the rows of every block, (b,), in the Frobenius norm."""
    sketches = evidence.stats.sketches
    peaks = np.square(np.abs(sketches.rows).max(axis=1, initial=0.0))
    blocks = np.bincount(np.repeat(np.arange(len(sketches)), sketches.sizes), peaks, len(sketches))
    return np.asarray(math.sqrt(evidence.stats.dim) * HALF_STEPS[evidence.code] * np.sqrt(blocks))


def check_class_sketches(evidence: Evidence, rounding: float, refuse: Refuse) -> None:
    """Check the blocks of a sketch that has one for each class.

    Parameters
    ----------
    evidence
        A contribution.
    rounding
        What float64 sums may be off.
    refuse
        Called with the reason.
    """
    classes, groups, sketches = evidence.classes, evidence.groups, evidence.stats.sketches
    explained = np.square(classes.values) / classes.counts
    between = evidence.per_class((np.square(groups.values) / groups.counts).sum(axis=1)[:, None])[:, 0]
    slack = np.array([
        slack_of_sums(classes[at : at + 1]) + slack_of_sums(groups[evidence.places == at]) + rounding
        for at in range(len(classes))
    ])  # fmt: skip
    low = np.flatnonzero(sketches.traces < between - explained.sum(axis=1) - slack)
    for at in low[:1].tolist():
        refuse(
            Reason.INCONSISTENT,
            f"its scatter sketch has the trace {sketches.traces[at]:.6g} in class {sketches.labels[at]}, but the rows "
            f"of means of that class spread by {between[at] - explained[at].sum():.6g} alone: measure both from the "
            "same samples",
        )
    for name in SECOND:
        if name in evidence.stats.arrays:
            _check_second(evidence, name, slack, refuse)


def _check_second(evidence: Evidence, name: str, slack: Floats, refuse: Refuse) -> None:
    """Check every class against one of its second moments."""
    stats, sketches, form = evidence.stats, evidence.stats.sketches, evidence.form
    array, classes, off = stats.arrays[name], evidence.classes, off_by_coding(evidence)
    explained = np.square(classes.values) / classes.counts
    numbers = form.dequantize(packed_diagonal(array) if name in MATRICES else array, 2)
    left = numbers.sum(axis=1) - explained.sum(axis=1)
    wrong = np.flatnonzero(np.abs(left - sketches.traces) > slack + numbers.shape[1] * form.resolution(2) / 2)
    for at in wrong[:1].tolist():
        refuse(
            Reason.INCONSISTENT,
            f"the trace of its scatter sketch in class {sketches.labels[at]}, {sketches.traces[at]:.6g}, is not what "
            f"its '{name}' less its class sums leave, {left[at]:.6g}: measure both from the same samples",
        )
    if name == "class_norms":
        return
    for at, (rows, _, _) in enumerate(sketches.blocks()):
        room = slack[at] + (2 * float(np.linalg.norm(rows)) + off[at]) * off[at] + form.resolution(2) / 2
        beyond = (np.square(rows).sum(axis=0) > numbers[at] - explained[at] + room).any()
        if not beyond and name in MATRICES and len(rows):
            own = classes[at : at + 1]
            beside = np.concatenate([own.values / np.sqrt(own.counts), rows])
            beyond = not is_definite(array[at], beside, room + slack_of(array[at], own, form), form)
        if beyond:
            refuse(
                Reason.INCONSISTENT,
                f"the rows of its scatter sketch of class {sketches.labels[at]} have more energy in a coordinate or "
                f"direction than its '{name}' leave it",
            )
