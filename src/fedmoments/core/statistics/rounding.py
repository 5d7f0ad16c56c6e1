"""Client means as they travel with a scatter sketch: one a class, in the code that the contribution's budget allows."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.linalg import blocks
from fedmoments.core.statistics.coding import mean_step, round_means
from fedmoments.core.statistics.sketch_plan import SketchPlan

__all__ = ["mean_steps", "round_to_budget", "whole_classes"]

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
    rounded = np.array(sums)
    for code, mine in _coded_blocks(counts, owners, plan, sums.shape[1]):
        rounded[mine] = round_means(sums[mine] / counts[mine, None], code) * counts[mine, None]
    return rounded


def mean_steps(sums: Floats, counts: Ints, owners: Ints, plan: SketchPlan) -> Floats:
    """Return by how much (r,) neighbouring numbers of every row of means differ in the code that it travels in.

    Parameters
    ----------
    sums, counts, owners, plan
        As in :func:`round_to_budget`; rounded or not.

    Examples
    --------
    >>> mean_steps(np.array([[0.0, 255.0] * 50]), np.array([1]), np.array([0]), SketchPlan("120/class"))
    array([1.])
    """
    steps = np.zeros(len(counts))
    for code, mine in _coded_blocks(counts, owners, plan, sums.shape[1]):
        steps[mine] = mean_step(sums[mine] / counts[mine, None], code)
    return steps


def _coded_blocks(counts: Ints, owners: Ints, plan: SketchPlan, dim: int) -> Iterator[tuple[str, Ints]]:
    """Yield codes and rows whose means travel in them, a block at a time: no step of coding copies all rows."""
    _, contribution = np.unique(owners, return_inverse=True)
    n_samples = np.bincount(contribution, weights=counts).astype(np.int64)
    present = np.bincount(contribution)
    kinds, kind = np.unique(np.stack([n_samples, present]), axis=1, return_inverse=True)
    chosen = [plan.choose(n, p, dim).means or "" for n, p in kinds.T.tolist()]
    codes = np.array(chosen)[kind.reshape(-1)][contribution]
    for code in dict.fromkeys(code for code in chosen if code):
        rows = np.flatnonzero(codes == code)
        for block in blocks(len(rows)):
            yield code, rows[block]
