"""Class covariances in a subspace, without a (d, d) matrix a class where that can be helped.

With a basis V (d, k), VᵀΣ_cV is needed, not Σ_c. From class grams it is Vᵀ((S_c − N_c μ_c μ_cᵀ)·V), and one triangle of
S_c suffices; from variances (V·v)ᵀV, scaled by them (R_cV)ᵀΣ(R_cV); from client means and sketches the rows are
projected first, all classes at once. At the size of iNaturalist (54,555 rows, 1,203 classes, d = 1280, k = 256) that is
36 GFLOP instead of 1,000.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, lapack

from fedmoments.core.gaussian.class_gaussians import ClassGaussians, require_classes
from fedmoments.core.gaussian.free_sources import Free
from fedmoments.core.gaussian.precision import noise_of_squares
from fedmoments.core.gaussian.scatter import MatrixScatter
from fedmoments.core.gaussian.sources import Exact, Scaled, Sketch, covariance_source
from fedmoments.core.linalg import blocks

__all__ = ["projected_class_covariances"]

Floats = NDArray[np.float64]


def projected_class_covariances(gaussians: ClassGaussians, basis: Floats) -> Iterator[tuple[int, Floats, float]]:
    """Yield (label, VᵀΣ_cV (k, k), degrees of freedom) of every class present; zeros where there are none.

    Parameters
    ----------
    gaussians
        Means and class covariances of any source.
    basis
        V, (d, k).

    Examples
    --------
    >>> from fedmoments.core.statistics import Statistics, StatisticsSpec
    >>> X, y = np.array([[0.0, 0.0], [2.0, 4.0], [1.0, 5.0]]), [0, 0, 1]
    >>> gaussians = ClassGaussians(Statistics.of(X, y, StatisticsSpec.of("class_grams"), n_classes=2))
    >>> [(label, inside.item(), dof) for label, inside, dof in projected_class_covariances(gaussians, np.eye(2)[:, :1])]
    [(0, 2.0, 1.0), (1, 0.0, 0.0)]
    """
    source = covariance_source(gaussians.source)
    require_classes(gaussians.stats, source.class_needs, f"class covariances of source '{gaussians.source}'")
    if type(source) is Exact:
        scatters = _of_grams(gaussians, basis)
    elif isinstance(source, Scaled):
        scatters = _of_ratios(gaussians, source, basis)
    elif isinstance(source, Free):
        scatters = _of_rows(gaussians, source, basis)
    elif isinstance(source, Sketch):
        scatters = _of_sketches(gaussians, source, basis)
    else:
        scatters = _of_variances(gaussians, basis)
    for label, scatter, dof in scatters:
        if gaussians.flat:
            scatter[:] = 0.0
        yield label, (scatter + scatter.T) / (2.0 * max(dof, 1.0)), dof


def _of_grams(gaussians: ClassGaussians, basis: Floats) -> Iterator[tuple[int, Floats, float]]:
    stats, columns = gaussians.stats, np.asfortranarray(basis)
    for label, packed in zip(stats.classes.tolist(), stats.class_array("class_grams"), strict=True):
        upper, _ = lapack.dtpttr(stats.dim, packed, uplo="U")
        count = float(stats.counts[label])
        rounding = noise_of_squares(np.diagonal(upper), count, stats.fixed_point)
        upper = blas.dsyr(-count, gaussians.means[label], a=upper, lower=0, overwrite_a=1)
        scatter = MatrixScatter(upper, count - 1.0, rounding).matrix
        yield label, basis.T @ blas.dsymm(1.0, scatter, columns, lower=0), count - 1.0


def _of_ratios(gaussians: ClassGaussians, source: Scaled, basis: Floats) -> Iterator[tuple[int, Floats, float]]:
    pooled = gaussians.raw_covariance()
    ratios, dof = source.ratios(gaussians.stats, gaussians.means)
    for label in gaussians.stats.classes.tolist():
        mine = basis * ratios[label][:, None]
        yield label, dof[label] * (mine.T @ pooled @ mine), float(dof[label])


def _of_variances(gaussians: ClassGaussians, basis: Floats) -> Iterator[tuple[int, Floats, float]]:
    variances, dof = gaussians.class_variances()
    for label in gaussians.stats.classes.tolist():
        yield label, (basis * variances[label][:, None]).T @ basis, float(dof[label])


def _of_sketches(gaussians: ClassGaussians, source: Sketch, basis: Floats) -> Iterator[tuple[int, Floats, float]]:
    classes = source.classes(gaussians.stats, gaussians.means, basis)
    for label in gaussians.stats.classes.tolist():
        yield label, classes.scatter(label), float(gaussians.class_dof[label])


def _of_rows(gaussians: ClassGaussians, source: Free, basis: Floats) -> Iterator[tuple[int, Floats, float]]:
    rows, stats = gaussians.stats.rows, gaussians.stats
    centres, weights = source.weighted(stats, gaussians.means)
    inside = np.empty((len(rows), basis.shape[1]))
    for block in blocks(len(rows)):
        centred = rows.block_means(block) - centres[rows.labels[block]]
        inside[block] = (centred @ basis) * np.sqrt(weights[block])[:, None]
    order = np.argsort(rows.labels, kind="stable")
    bounds = np.searchsorted(rows.labels[order], np.append(stats.classes, stats.n_classes))
    for label, start, stop in zip(stats.classes.tolist(), bounds[:-1], bounds[1:], strict=True):
        mine = inside[order[start:stop]]
        yield label, mine.T @ mine, float(gaussians.class_dof[label])
