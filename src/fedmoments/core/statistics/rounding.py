"""Client means as they travel with a scatter sketch: one a class, in the code that the contribution's budget allows."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.linalg import blocks
from fedmoments.core.statistics.coding import mean_step, round_means
from fedmoments.core.statistics.fixed_point import FixedPoint
from fedmoments.core.statistics.sketch_plan import SketchPlan

__all__ = ["MOST_PASSES", "mean_steps", "round_to_budget", "whole_classes"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Coding and rounding to fixed point in turn settles after two passes; a few more cost nothing.
MOST_PASSES = 8
#: Rows that are coded at once: a pass makes half a dozen arrays of their size.
BLOCK_ROWS = 256


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


def round_to_budget(
    sums: NDArray[Any], counts: Ints, owners: Ints, plan: SketchPlan, form: FixedPoint | None = None
) -> NDArray[Any]:
    """Return sums whose means are rounded, contribution by contribution.

    Parameters
    ----------
    sums
        (r, d) sums of features, one row a class of a contribution; int64 in fixed point.
    counts, owners
        (r,) samples and contribution of every row.
    plan
        How each contribution spends its budget.
    form
        The fixed point of ``sums``. They are rounded until they stay as they are then, as on the wire.

    Examples
    --------
    >>> round_to_budget(np.array([[3.0, 0.3]]), np.array([3]), np.array([0]), SketchPlan("1KB")).round(6)
    array([[3. , 0.3]])
    """
    rounded = np.array(sums)
    for code, mine in _coded_blocks(counts, owners, plan, sums.shape[1]):
        own = counts[mine, None]
        if form is None:
            rounded[mine] = round_means(sums[mine] / own, code) * own
            continue
        for _ in range(MOST_PASSES):
            before = rounded[mine]
            means = round_means(form.dequantize(before, 1) / own, code)
            rounded[mine] = form.quantize(means * own, 1, own, "client_means")
            if np.array_equal(rounded[mine], before):
                break
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
        for block in blocks(len(rows), BLOCK_ROWS):
            yield code, rows[block]
