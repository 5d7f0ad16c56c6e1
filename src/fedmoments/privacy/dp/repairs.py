"""From a noisy vector to statistics that every head can be fitted from: post-processing, which costs no privacy.

1. **Counts.** A class whose noisy count is below 1, or below :data:`DROP_BELOW` standard deviations of its noise, is
   dropped: as far as the release tells, it has no sample. Its samples stay in moments of all classes.
2. **Sums.** Unbiased as they are; a mean longer than the clip norm R is cut back to R.
3. **Second moments.** The noise-aware ridge of :mod:`fedmoments.privacy.dp.scatters` is put *into* the released matrix,
   so that whatever a head inverts (the total scatter, the within scatter, a class covariance, variances), and whatever
   its own shrinkage is, it inverts a matrix that has at least as much in every direction as the noise can have.
4. Third and fourth moments stay as they are.
"""

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.statistics import MOMENTS, FixedPoint, Statistics
from fedmoments.errors import InputError, NotEnoughDataError
from fedmoments.privacy.dense import DenseLayout
from fedmoments.privacy.dp.noise_plan import NoisePlan, plan
from fedmoments.privacy.dp.scatters import SCATTERS, repair_class_moment, repair_gram
from fedmoments.privacy.dp.sensitivity import COUNTS, largest_norm
from fedmoments.privacy.protection import Agreed

__all__ = ["DROP_BELOW", "repair", "repair_as_planned"]

Floats = NDArray[np.float64]

#: Classes with a noisy count below this many standard deviations of its noise are dropped. A class without a sample is
#: kept by chance once in six times, then with a mean of nothing but noise; one with 3 σ samples is lost once in 44.
DROP_BELOW = 1.0


def repair(
    noisy: NDArray[np.uint64] | NDArray[np.int64],
    layout: DenseLayout,
    form: FixedPoint,
    agreed: Agreed,
    *,
    servers: int = 1,
) -> Statistics:
    """Return statistics in float64 that heads can be fitted from.

    Parameters
    ----------
    noisy
        (size,) dense vector with the noise of :func:`~fedmoments.privacy.dp.noise_vector` in it, modulo 2⁶⁴.
    layout, form, agreed
        What the noise was made for.
    servers
        How many parties added the full noise: 2 on secure sums, all clients where each noises its own.

    Raises
    ------
    NotEnoughDataError
        When no class has a count that stands out of the noise.

    Examples
    --------
    >>> from fedmoments.core.statistics import StatisticsSpec
    >>> layout, form = DenseLayout(StatisticsSpec(), n_classes=2, dim=2), FixedPoint(1.0, 10**5)
    >>> stats = Statistics.of([[0.6, 0.8]] * 100, [1] * 100, layout.spec, n_classes=2, fixed_point=form)
    >>> repair(layout.pack(stats), layout, form, Agreed(epsilon=8.0)).classes
    array([1])
    """
    if servers < 1:
        raise InputError(f"noise is added by one server, by both of a secure sum or by every client, not by {servers}")
    return repair_as_planned(noisy, plan(layout, form, agreed), agreed, servers=servers)


def repair_as_planned(
    noisy: NDArray[np.uint64] | NDArray[np.int64], noise_plan: NoisePlan, agreed: Agreed, *, servers: int = 1
) -> Statistics:
    """Return statistics in float64 from a vector with the noise of a plan in it; see :func:`repair`."""
    layout, form = noise_plan.layout, noise_plan.form
    sigmas = {name: sigma * servers**0.5 for name, sigma in noise_plan.sigmas.items()}
    table, shared = _split(layout.signed(noisy), layout, form)
    counts = table.pop(COUNTS)[:, 0]
    keep = counts >= max(1.0, DROP_BELOW * sigmas[COUNTS])
    if not keep.any():
        raise NotEnoughDataError(
            f"no class has a count that stands out of the noise of {sigmas[COUNTS]:.3g}: agree on a larger epsilon, on "
            "more clients, or on a coarser set of classes"
        )
    counts = counts[keep]
    sums = _shortened(table.pop("sums")[keep], counts, largest_norm(1.0 if agreed.clip is None else agreed.clip))
    arrays: dict[str, Floats] = {"sums": sums}
    for name, rows in table.items():
        arrays[name] = (
            repair_class_moment(name, rows[keep], sums, counts, sigma=sigmas[name], sums_sigma=sigmas["sums"])
            if name in SCATTERS
            else rows[keep]
        )
    for name, row in shared.items():
        arrays[name] = repair_gram(row, sums, counts, sigma=sigmas[name], sums_sigma=sigmas["sums"])
    classes = np.flatnonzero(keep)
    return Statistics(layout.spec, layout.n_classes, layout.dim, classes, counts.astype(np.int64), arrays)


def _split(
    numbers: NDArray[np.int64], layout: DenseLayout, form: FixedPoint
) -> tuple[dict[str, Floats], dict[str, Floats]]:
    """Return the moments of classes, each (C, width), and of all classes, each (width,), as floats."""
    rows = numbers[layout.classes_block].reshape(layout.n_classes, layout.class_width)
    table, at = {COUNTS: rows[:, :1].astype(np.float64)}, 1
    for name in layout.of_class:
        width = MOMENTS[name].width(layout.dim)
        table[name] = form.dequantize(rows[:, at : at + width], MOMENTS[name].degree)
        at += width
    shared: dict[str, Floats] = {}
    at = layout.global_block.start
    for name in layout.of_all:
        width = MOMENTS[name].width(layout.dim)
        shared[name] = form.dequantize(numbers[at : at + width], MOMENTS[name].degree)
        at += width
    return table, shared


def _shortened(sums: Floats, counts: Floats, norm: float) -> Floats:
    """Cut back sums whose mean is longer than ``norm``."""
    lengths = np.linalg.norm(sums, axis=1)
    return np.asarray(sums * np.minimum(1.0, counts * norm / np.maximum(lengths, 1e-300))[:, None])
