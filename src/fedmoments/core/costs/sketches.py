"""What scatter sketches cost: by plan, because they travel in codes of their own.

A client with n_k samples of |C_k| classes in d dimensions sends what :meth:`SketchPlan.choose` says::

    plan with a budget    |C_k| means + r_k sketch rows in their codes + scales + 8 bytes of residual trace ≤ budget
    plan with a rank r    min(r, share·(n_k − |C_k|)) rows in the plan's code + scales + 8 bytes; means are not in it

Where n_k is not known, clients have as many samples as the rank asks for: the figure is then the most they can send.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedmoments.core.costs.checks import check_whole
from fedmoments.core.statistics import SketchPlan
from fedmoments.errors import InputError

__all__ = ["SketchSize", "evenly", "sketch_size"]

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
    (19664, True)
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
