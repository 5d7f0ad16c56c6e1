"""What a payload budget means for one federation: how sketches are planned, and behind which projection.

The projection is public, so it cannot depend on what a single client holds. It is as wide as the client that holds most
needs it to be: all classes under a budget in bytes, any number of them under one that grows with the classes. Whoever
holds less spends the rest on sketch rows and digits.
"""

from typing import Any

import numpy as np

from fedmoments.core.costs.sketches import SketchSize, sketch_size
from fedmoments.core.statistics import SketchPlan

__all__ = ["plan_of", "sketch_sizes"]


def plan_of(
    budget: str | None, *, n_classes: int, dim: int, projection: int | None = None
) -> tuple[SketchPlan, int | None]:
    """Return the plan of a budget, and the dimensions that features are projected to (None: as they are).

    Rows belong to one class each, or to all together, as the number of classes says.

    Parameters
    ----------
    budget
        As it was typed; None is the default plan.
    n_classes, dim
        C, and the dimension of the features as they are, which words like ``means`` refer to.
    projection
        Dimensions that were asked for besides.

    Examples
    --------
    >>> plan_of("means/8", n_classes=10, dim=512)
    (SketchPlan(budget='256/class', rank=None, code='int8', share=0.25, spare=0, rows='pooled'), 144)
    >>> plan_of("means", n_classes=10, dim=512)
    (SketchPlan(budget='means', rank=None, code='int8', share=0.25, spare=0, rows='pooled'), None)
    """
    if budget is None:
        return SketchPlan().settled(n_classes), projection
    plan = SketchPlan(budget).settled(n_classes)
    width = plan.at(dim).projection(n_classes, projection or dim) or projection
    return (plan.at(dim) if width else plan), width


def sketch_sizes(plan: SketchPlan, dim: int, cells: Any) -> SketchSize:
    """Return what all clients of a split send of means and sketches.

    Parameters
    ----------
    plan
        How clients spend their bytes.
    dim
        Dimension of what they measure.
    cells
        (K, C) sparse array of samples by client and class.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.sparse import csr_array
    >>> sketch_sizes(SketchPlan("means"), 64, csr_array(np.array([[90, 0], [40, 50], [0, 0]])))
    SketchSize(numbers=642, bytes=708, rows=7)
    """
    present, samples = np.diff(cells.indptr), np.asarray(cells.sum(axis=1)).ravel()
    if not plan.by_class:
        return sketch_size(plan, dim, present, samples)
    owners = np.repeat(np.arange(len(present)), present)
    most = np.bincount(owners, plan.class_ranks(cells.data.astype(np.int64)), len(present)).astype(np.int64)
    return sketch_size(plan, dim, present, samples, most)
