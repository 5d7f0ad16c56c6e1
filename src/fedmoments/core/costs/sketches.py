"""What scatter sketches cost: by plan, because they travel in codes of their own.

A client with n_k samples of |C_k| classes in d dimensions sends what :meth:`SketchPlan.choose` says::

    plan with a budget    |C_k| means + r_k sketch rows in their codes + scales + 8 bytes of residual trace ≤ budget
    plan with a rank r    min(r, share·(n_k − |C_k|)) rows in the plan's code + scales + 8 bytes; means are not in it

Where n_k is not known, clients have as many samples as the rank asks for: the figure is then the most they can send.

What a payload budget means for one federation: how sketches are planned, and behind which projection.

The projection is public, so it cannot depend on what a single client holds. It is as wide as the client that holds most
needs it to be: all classes under a budget in bytes, any number of them under one that grows with the classes. Whoever
holds less spends the rest on sketch rows and digits.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedmoments.core.costs.cost import check_whole
from fedmoments.core.statistics import SketchPlan
from fedmoments.errors import InputError

__all__ = ["SketchSize", "evenly", "plan_of", "sketch_size", "sketch_sizes"]


#: So many samples that no rank is cut for want of them.
_MANY = 10**12


@dataclass(frozen=True)
class SketchSize:
    """Coded rows of all clients: numbers (scales not counted), bytes (scales included), and sketch rows among them."""

    numbers: int
    bytes: int
    rows: int


def evenly(total: int, clients: int) -> NDArray[np.int64]:
    """Return (K,) whole numbers that add up to a total and differ by one at most.

    Examples
    --------
    >>> evenly(7, 3)
    array([3, 2, 2])
    """
    least, more = divmod(total, clients)
    return np.full(clients, least, np.int64) + (np.arange(clients) < more)


def sketch_size(
    plan: SketchPlan,
    d: int,
    present_classes: ArrayLike,
    samples: ArrayLike | None = None,
    most_rows: ArrayLike | None = None,
) -> SketchSize:
    """Return numbers and bytes of the coded rows of all clients together.

    Parameters
    ----------
    plan
        How clients choose codes and ranks.
    d
        Feature dimensions, after the feature map.
    present_classes : (K,) array of int
        |C_k| of every client; one without classes sends nothing.
    samples : (K,) array of int
        n_k of every client; as many as the rank asks for by default.
    most_rows : (K,) array of int
        How many sketch rows every client may send by the samples of its single classes, where rows belong to these; by
        default as many as if all its classes had the same number of samples.

    Examples
    --------
    >>> size = sketch_size(SketchPlan("means"), 512, [5, 5])
    >>> size.bytes, size.bytes <= 2 * 4 * 512 * 5
    (20296, True)
    >>> sketch_size(SketchPlan("means"), 512, [5, 5], [9, 9]).rows
    2
    """
    d, present = check_whole("d", d), np.atleast_1d(np.asarray(present_classes))
    held = np.full(present.shape, _MANY) if samples is None else np.atleast_1d(np.asarray(samples))
    if held.shape != present.shape or (held < present).any():
        raise InputError(
            f"samples must be one whole number for each of the {len(present)} clients, no less than its classes, "
            f"but {samples!r:.80} arrived."
        )
    even = present * plan.class_ranks(held // np.maximum(present, 1)) if plan.by_class else held
    most = even if most_rows is None else np.atleast_1d(np.asarray(most_rows))
    numbers = size = rows = 0
    kinds, times = np.unique(np.stack([held, present, most])[:, present > 0], axis=1, return_counts=True)
    for (n, p, cap), clients in zip(kinds.T.tolist(), times.tolist(), strict=True):
        chosen = plan.choose(n, p, d)
        choice = replace(chosen, rank=min(chosen.rank, cap))
        means = p * d if choice.means else 0
        numbers += clients * (means + choice.rank * d + (p if choice.by_class else 1))
        size += clients * choice.bytes(p, d)
        rows += clients * choice.rank
    return SketchSize(numbers, size, rows)


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
        Dimensions that were requested besides.

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
    SketchSize(numbers=1090, bytes=736, rows=14)
    """
    present, samples = np.diff(cells.indptr), np.asarray(cells.sum(axis=1)).ravel()
    if not plan.by_class:
        return sketch_size(plan, dim, present, samples)
    owners = np.repeat(np.arange(len(present)), present)
    most = np.bincount(owners, plan.class_ranks(cells.data.astype(np.int64)), len(present)).astype(np.int64)
    return sketch_size(plan, dim, present, samples, most)
