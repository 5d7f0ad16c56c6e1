"""Noisy second moments of classes, made fit to be inverted.

A head inverts a scatter, S_c − A_c A_cᵀ/N_c. Noise makes it indefinite, and its least eigenvalues, which count most
once inverted, are noise. E, the noise in a scatter, has an operator norm of about

==============  ==================  ==========================================================
moment          ‖E‖                 why
==============  ==================  ==========================================================
gram, S_c       σ√(2d)              symmetric, σ on the diagonal and σ/√2 beside it
class squares   σ√(2 ln 2d)         diagonal: the largest of d normal numbers
class norms     σ√2/d               a multiple of the identity, whose trace has noise of σ
==============  ==================  ==========================================================

**One scatter of all classes** is projected on the positive semi-definite matrices (negative eigenvalues become 0), then
gets the ridge λ = ‖E‖ on its diagonal.

**Scatters of C classes.** Each has noise of ‖E‖ where the pooled one, Σ_c, has only √C‖E‖ on N samples, and ridges that
differ from class to class would move log-determinants against each other: naive Bayes and QDA then answer the same
class whatever they are asked. So class covariances are first drawn to the pooled one by as much as noise outweighs
them,

    Σ_c ← k_c Σ_c + (1 − k_c) Σ,    k_c = θ/(θ + ‖E‖/N_c),    θ = tr(Σ)/d,

then made semi-definite, then get **one** ridge for all, ρ = max_c k_c‖E‖/N_c + √C‖E‖/N, which is at least what the
noise that is left can have: λ_c = ρ·N_c. Without noise k_c = 1 and ρ = 0.

The sums' own noise takes σ_A²/N_c out of every diagonal entry of a class's scatter on average; it is added first.

From a noisy vector to statistics that every head can be fitted from: post-processing, which costs no privacy.

1. **Counts.** A class whose noisy count is below 1, or below :data:`DROP_BELOW` standard deviations of its noise, is
   dropped: as far as the release tells, it has no sample. Its samples stay in moments of all classes.
2. **Sums.** Unbiased as they are; a mean longer than the clip norm R is cut back to R.
3. **Second moments.** The noise-aware ridge of :mod:`fedmoments.privacy.dp.scatters` is put *into* the released matrix,
   so that whatever a head inverts (the total scatter, the within scatter, a class covariance, variances), and whatever
   its own shrinkage is, it inverts a matrix that has at least as much in every direction as the noise can have.
4. Third and fourth moments stay as they are.
"""

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.linalg import pack_symmetric, packed_diagonal, unpack_symmetric
from fedmoments.core.statistics import MOMENTS, FixedPoint, Statistics
from fedmoments.errors import InputError, NotEnoughDataError
from fedmoments.privacy.dense import DenseLayout
from fedmoments.privacy.dp.noise_plan import NoisePlan, plan
from fedmoments.privacy.dp.sensitivity import COUNTS, largest_norm
from fedmoments.privacy.protection import Agreed

__all__ = ["DROP_BELOW", "SCATTERS", "ScatterForm", "repair", "repair_as_planned", "repair_class_moment", "repair_gram"]


Floats = NDArray[np.float64]


class ScatterForm(ABC):
    """How a second moment stores what a scatter has; stateless. Rows are numbers of one class, (width,)."""

    @abstractmethod
    def noise_norm(self, sigma: float, dim: int) -> float:
        """Return ‖E‖ for noise of ``sigma`` an entry."""

    @abstractmethod
    def between(self, sums: Floats, counts: Floats) -> Floats:
        """Return A_c A_cᵀ/N_c of every class, (C, width)."""

    @abstractmethod
    def identity(self, dim: int) -> Floats:
        """Return the identity matrix, (width,)."""

    @abstractmethod
    def trace(self, row: Floats) -> float:
        """Return the trace."""

    def definite(self, row: Floats) -> Floats:
        """Return the nearest positive semi-definite matrix."""
        return np.maximum(row, 0.0)


class _Matrix(ScatterForm):
    """Packed symmetric matrices: gram and class grams."""

    def noise_norm(self, sigma: float, dim: int) -> float:
        return sigma * float(np.sqrt(2.0 * dim))

    def between(self, sums: Floats, counts: Floats) -> Floats:
        return np.stack([pack_symmetric(np.outer(own, own) / n) for own, n in zip(sums, counts, strict=True)])

    def identity(self, dim: int) -> Floats:
        return pack_symmetric(np.eye(dim))

    def trace(self, row: Floats) -> float:
        return float(packed_diagonal(row).sum())

    def definite(self, row: Floats) -> Floats:
        values, vectors = np.linalg.eigh(unpack_symmetric(row))
        return pack_symmetric((vectors * np.maximum(values, 0.0)) @ vectors.T)


class _Diagonal(ScatterForm):
    """Diagonals: class squares."""

    def noise_norm(self, sigma: float, dim: int) -> float:
        return sigma * float(np.sqrt(2.0 * np.log(2.0 * dim)))

    def between(self, sums: Floats, counts: Floats) -> Floats:
        return np.asarray(sums**2 / counts[:, None])

    def identity(self, dim: int) -> Floats:
        return np.ones(dim)

    def trace(self, row: Floats) -> float:
        return float(row.sum())


class _Trace(ScatterForm):
    """Traces: class norms."""

    def noise_norm(self, sigma: float, dim: int) -> float:
        return sigma * float(np.sqrt(2.0)) / dim

    def between(self, sums: Floats, counts: Floats) -> Floats:
        return np.asarray(np.square(sums).sum(axis=1, keepdims=True) / counts[:, None])

    def identity(self, dim: int) -> Floats:
        return np.full(1, float(dim))

    def trace(self, row: Floats) -> float:
        return float(row[0])


#: The form of every second moment.
SCATTERS: dict[str, ScatterForm] = {
    "gram": _Matrix(),
    "class_grams": _Matrix(),
    "class_squares": _Diagonal(),
    "class_norms": _Trace(),
}


def repair_gram(packed: Floats, sums: Floats, counts: Floats, *, sigma: float, sums_sigma: float) -> Floats:
    """Return the second moment of all classes with a scatter that has at least λ = σ√(2d) in every direction.

    Parameters
    ----------
    packed
        (d(d+1)/2,) noisy Σ x xᵀ.
    sums, counts
        (C, d) and (C,) of the classes that were kept, counts 1 or more.
    sigma, sums_sigma
        Noise of a diagonal entry of the moment, and of an entry of the sums.

    Examples
    --------
    >>> gram = repair_gram(np.array([1.0, 0.0, -3.0]), np.array([[1.0, 0.0]]), np.ones(1), sigma=0.5, sums_sigma=0.0)
    >>> gram.round(9)  # the scatter diag(0, −3) became diag(0, 0) + 0.5·√4
    array([2., 0., 1.])
    """
    form, dim = SCATTERS["gram"], sums.shape[1]
    means = sums / counts[:, None]
    between = pack_symmetric(means.T @ sums)
    lost = float((sums_sigma**2 / counts).sum())
    scatter = form.definite(packed - between + lost * form.identity(dim))
    return np.asarray(scatter + form.noise_norm(sigma, dim) * form.identity(dim) + between)


def repair_class_moment(
    name: str, rows: Floats, sums: Floats, counts: Floats, *, sigma: float, sums_sigma: float
) -> Floats:
    """Return a second moment of every class, (C, width), whose scatters can be inverted; see the module.

    Parameters
    ----------
    name
        One of :data:`SCATTERS`, of classes.
    rows
        (C, width) noisy numbers.
    sums, counts, sigma, sums_sigma
        As in :func:`repair_gram`.

    Examples
    --------
    >>> squares = np.array([[4.0, -1.0], [6.0, 2.0]])
    >>> sums, counts = np.zeros((2, 2)), np.array([10.0, 10.0])
    >>> repair_class_moment("class_squares", squares, sums, counts, sigma=0.0, sums_sigma=0.0)
    array([[4., 0.],
           [6., 2.]])
    >>> bool((repair_class_moment("class_squares", squares, sums, counts, sigma=1.0, sums_sigma=0.0) > 1).all())
    True
    """
    form, dim = SCATTERS[name], sums.shape[1]
    identity, between = form.identity(dim), form.between(sums, counts)
    scatters = rows - between + (sums_sigma**2 / counts)[:, None] * identity
    total, noise = float(counts.sum()), form.noise_norm(sigma, dim)
    pooled = form.definite(scatters.sum(axis=0))
    typical = form.trace(pooled) / (total * dim)
    own = _shares(typical, noise / counts)
    ridge = float((own * noise / counts).max()) + float(np.sqrt(len(counts))) * noise / total
    mixed = own[:, None] * scatters + ((1.0 - own) * counts / total)[:, None] * pooled
    definite = np.stack([form.definite(row) for row in mixed])
    return np.asarray(definite + (ridge * counts)[:, None] * identity + between)


def _shares(typical: float, noises: Floats) -> Floats:
    """Return k_c: 1 without noise, 0 where there is nothing but noise."""
    return np.where(noises > 0, typical / np.maximum(typical + noises, np.finfo(np.float64).tiny), 1.0)


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
