"""Client means as they travel with a scatter sketch: one a class, in the code that the contribution's budget allows."""

import numpy as np
from numpy.typing import NDArray

from fedmoments.linalg import blocks
from fedmoments.statistics.coding import round_means
from fedmoments.statistics.sketch_plan import SketchPlan

__all__ = ["round_to_budget", "whole_classes"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def whole_classes(labels: Ints, owners: Ints) -> tuple[Ints, Ints]:
    """Say which rows are shares of the same class of the same contribution.

    Returns
    -------
    tuple
        (r,) the class that each row belongs to, numbered by contribution and label; (w,) a row of each.

    Examples
    --------
    >>> whole_classes(np.array([0, 0, 1, 0]), np.array([0, 0, 0, 1]))
    (array([0, 0, 1, 2]), array([0, 2, 3]))
    """
    keys = owners * (int(labels.max(initial=0)) + 1) + labels
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    return inverse.astype(np.int64), first.astype(np.int64)


def round_to_budget(sums: Floats, counts: Ints, owners: Ints, plan: SketchPlan) -> Floats:
    """Return sums whose means are rounded, contribution by contribution.

    Parameters
    ----------
    sums
        (r, d) sums of features, one row a class of a contribution.
    counts, owners
        (r,) samples and contribution of every row.
    plan
        How each contribution spends its budget.

    Examples
    --------
    >>> round_to_budget(np.array([[3.0, 0.3]]), np.array([3]), np.array([0]), SketchPlan("1KB")).round(6)
    array([[3. , 0.3]])
    """
    _, contribution = np.unique(owners, return_inverse=True)
    n_samples = np.bincount(contribution, weights=counts).astype(np.int64)
    present = np.bincount(contribution)
    kinds, kind = np.unique(np.stack([n_samples, present]), axis=1, return_inverse=True)
    chosen = [plan.choose(n, p, sums.shape[1]).means or "" for n, p in kinds.T.tolist()]
    codes = np.array(chosen)[kind.reshape(-1)][contribution]
    rounded = np.array(sums)
    for code in dict.fromkeys(code for code in chosen if code):
        rows = np.flatnonzero(codes == code)
        for block in blocks(len(rows)):  # so that no copy of all rows is made for every step of coding
            mine = rows[block]
            rounded[mine] = round_means(sums[mine] / counts[mine, None], code) * counts[mine, None]
    return rounded
