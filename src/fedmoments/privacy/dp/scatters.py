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
"""

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.linalg import pack_symmetric, packed_diagonal, unpack_symmetric

__all__ = ["SCATTERS", "ScatterForm", "repair_class_moment", "repair_gram"]

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
