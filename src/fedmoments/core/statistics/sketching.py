"""One client's scatter sketch: the stream that it is made from, and the rows that travel of it."""

import math

import numpy as np

from fedmoments.core.statistics.coding import FACTORS_LEAST, MEANS_LEAST, MEANS_MOST, coded_factor
from fedmoments.core.statistics.scatter_stream import ScatterStream
from fedmoments.core.statistics.sketch_plan import Choice, SketchPlan
from fedmoments.core.statistics.sketches import Sketches
from fedmoments.errors import InputError

__all__ = ["sketch_of", "stream_of"]

#: Features of so many steps of a code are the least that travel in it.
LEAST_STEPS = 256.0


def stream_of(plan: SketchPlan, n_classes: int, dim: int) -> ScatterStream:
    """Return the stream that a client's sketch by a settled plan is made from.

    Its capacity is as if all classes came: what is compressed must not depend on when a class is seen first.

    Examples
    --------
    >>> stream_of(SketchPlan("means", rows="class"), n_classes=3, dim=64).capacity
    21
    """
    return ScatterStream(dim, plan.capacity(n_classes, dim), by_class=plan.by_class)


def sketch_of(scatter: ScatterStream, plan: SketchPlan) -> Sketches:
    """Return the blocks of one client: leading rows as they travel, and the trace of all that each leaves out.

    A client without a sample has none.

    Examples
    --------
    >>> plan = SketchPlan(None, rank=1, code="float16", rows="pooled")
    >>> scatter = stream_of(plan, 1, 2)
    >>> scatter.update(np.array([[0.0, 1.0], [4.0, 1.0], [2.0, 0.0], [2.0, 2.0], [2.0, 1.0]]), [0, 0, 0, 0, 0])
    >>> sketch = sketch_of(scatter, plan)
    >>> sketch.rows.round(2), sketch.residuals.round(2), sketch.labels
    (array([[2.83, 0.  ]]), array([2.]), array([-1]))
    """
    choice = plan.choose(scatter.n_samples, len(scatter.classes), scatter.dim)
    most = plan.class_ranks(scatter.counts) if plan.by_class else None
    blocks = scatter.blocks(choice.rank, most)
    _check_size(scatter, choice, sum(trace for _, _, trace in blocks))
    coded = [coded_factor(rows, trace, choice.code) for _, rows, trace in blocks]
    return Sketches(
        np.concatenate([np.zeros((0, scatter.dim)), *(factor.values() for factor, _ in coded)]),
        np.array([len(rows) for _, rows, _ in blocks], np.int64),
        np.array([residual for _, residual in coded], np.float64),
        np.zeros(len(blocks), np.int64),
        np.array([label for label, _, _ in blocks], np.int64),
    )


def _check_size(scatter: ScatterStream, choice: Choice, trace: float) -> None:
    """Refuse features that are too large or too small for the codes that means and rows travel in."""
    size = max(scatter.size, math.sqrt(trace / max(scatter.n_samples, 1)))
    if choice.means in MEANS_MOST and size > MEANS_MOST[choice.means]:
        raise InputError(
            f"features of size {size:.2g} are so large that their means do not fit {choice.means}: divide them by a "
            "constant, or let sketches travel in float64 (a rank instead of a budget)"
        )
    for code, least in ((choice.means or "float64", MEANS_LEAST), (choice.code, FACTORS_LEAST)):
        if 0.0 < size < LEAST_STEPS * least.get(code, 0.0):
            raise InputError(
                f"features of size {size:.2g} are so small that {code} keeps too little of their means and sketches: "
                "multiply them by a constant, or let sketches travel in float64 (a rank instead of a budget)"
            )
