"""Where a covariance comes from: one class a source. Heads do not know which one they are given.

=========  =======================================================  ==========================================
source     pooled within-class scatter                              needs
=========  =======================================================  ==========================================
exact      B − Σ_c N_c μ_c μ_cᵀ                                     gram (per class: class grams)
scaled     that of exact; per class R_cΣR_c, R_c² = var_c/var      gram (per class: gram, class squares)
diagonal   its diagonal, Σ_c D_c − N_c μ_c²                         class squares
spherical  its trace, spread evenly                                 class norms
free       Σ_c (N_c−1)/(K_c−1) Σ_k n_kc (μ_kc−μ_c)(μ_kc−μ_c)ᵀ       client means (pooled: or it, as free scatter)
energy     that of free, every class scaled to its exact trace      client means, class norms
robust     that of free, far client means weighing less             client means
sketch     Σ n_kc (μ_kc−μ_c)(μ_kc−μ_c)ᵀ + Σ_k V_kᵀV_k + R           client means, scatter sketches
=========  =======================================================  ==========================================

The divisor of the free estimate is K_c − 1, how many means the server holds for class c less one (FedCOF's Eq. 7 and
8 print K − 1, which is biased wherever a client lacks the class). A class with K_c = 1 has no free covariance: its
scatter is 0 and it counts through shrinkage alone.

``scaled`` gives every class the correlations of all and variances of its own, R_c being diagonal: GH-OFL's A, B, N, D,
for the price of LDA and C·d numbers. **Law** its diagonal is exact; **Law** classes whose covariances differ by
one factor have their very own.

What rounding alone leaves of a scatter counts as 0 (``core.gaussian.precision``): samples that do not differ have no
spread, however far from the origin they lie.

``sketch`` chooses the isotropic share of R by itself, ``sketch:0.3`` is told it; see
``core.gaussian.sketch_scatter``. Sketch rows that have a label give a covariance a class
(``core.gaussian.sketch_classes``); rows of all classes together give none, and every class has the pooled one.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.gaussian.covariance_source import CovarianceSource
from fedmoments.core.gaussian.free_sources import Energy, Free, Robust
from fedmoments.core.gaussian.precision import (
    DEAD,
    MOST_CODE,
    noise_of_codes,
    noise_of_rows,
    noise_of_squares,
)
from fedmoments.core.gaussian.residual import check_share
from fedmoments.core.gaussian.scatter import (
    DiagonalScatter,
    MatrixScatter,
    Scatter,
    without_spread,
)
from fedmoments.core.gaussian.sketch_classes import SketchClasses
from fedmoments.core.gaussian.sketch_scatter import SketchScatter, between_scatter
from fedmoments.core.linalg import add_gram, add_packed, new_gram, packed_diagonal, symmetrize_upper
from fedmoments.core.statistics.spec import StatisticsSpec
from fedmoments.core.statistics.statistics import Statistics
from fedmoments.errors import ClientsPooledError, InputError, MissingMomentError, UnknownNameError

__all__ = ["RICHEST", "SOURCES", "CovarianceSource", "covariance_source", "richest"]

Floats = NDArray[np.float64]


class Exact(CovarianceSource):
    """Second moments were sent."""

    name = "exact"
    pooled_needs = StatisticsSpec.of("gram")
    class_needs = StatisticsSpec.of("class_grams")
    variance_needs = StatisticsSpec.of("class_squares")

    def pooled(self, stats: Statistics, means: Floats) -> Scatter:
        matrix, gram = new_gram(stats.dim), stats.global_array("gram")
        add_packed(matrix, gram)
        add_gram(matrix, means[stats.classes] * np.sqrt(stats.class_counts)[:, None], weight=-1.0)
        squares = np.asarray(packed_diagonal(gram), np.float64)
        rounding = noise_of_squares(squares, float(stats.n_samples), stats.fixed_point)
        away = means[stats.classes] - stats.sums.sum(axis=0) / stats.n_samples
        between = np.asarray(stats.class_counts @ np.square(away))
        return MatrixScatter(matrix, float(stats.n_samples - len(stats.classes)), rounding, between)

    def class_scatters(self, stats: Statistics, means: Floats) -> Iterator[tuple[int, Floats, float]]:
        for label, gram in stats.class_grams:
            count = stats.counts[label]
            rounding = noise_of_squares(np.diagonal(gram), float(count), stats.fixed_point)
            scatter = gram - count * np.outer(means[label], means[label])
            yield label, MatrixScatter(scatter, float(count - 1), rounding).matrix, float(count - 1)

    def least_deviation(self, stats: Statistics, means: Floats) -> float:
        squares = float(stats.n_samples) * np.square(np.abs(means).max(axis=0))
        noise = noise_of_squares(squares, float(stats.n_samples), stats.fixed_point)
        return float(np.sqrt(noise.max() / stats.n_samples))

    def variances(self, stats: Statistics, means: Floats) -> tuple[Floats, Floats]:
        scatter = np.zeros_like(means)
        scatter[stats.classes] = stats.class_array("class_squares")
        scatter -= stats.counts[:, None] * means**2
        scatter[without_spread(scatter, self.variance_rounding(stats))] = 0.0
        return scatter, np.maximum(stats.counts - 1.0, 0.0)

    def variance_rounding(self, stats: Statistics) -> Floats:
        rounding = np.zeros((stats.n_classes, stats.dim))
        rounding[stats.classes] = noise_of_squares(
            stats.class_array("class_squares"), stats.class_counts[:, None].astype(np.float64), stats.fixed_point
        )
        return rounding


class Scaled(Exact):
    """The gram and class squares were sent: correlations of all classes, variances of each."""

    name = "scaled"
    class_needs = StatisticsSpec.of("gram", "class_squares")

    def class_scatters(self, stats: Statistics, means: Floats) -> Iterator[tuple[int, Floats, float]]:
        scatter = self.pooled(stats, means)
        pooled = symmetrize_upper(scatter.scaled(1.0 / max(scatter.weight, 1.0)))
        ratios, dof = self.ratios(stats, means)
        for label in stats.classes.tolist():
            own = ratios[label]
            yield label, dof[label] * (own[:, None] * pooled * own), float(dof[label])

    def ratios(self, stats: Statistics, means: Floats) -> tuple[Floats, Floats]:
        """Return R_c (C, d), standard deviations of a class over the pooled ones, and degrees of freedom (C,)."""
        scatter, dof = self.variances(stats, means)
        pooled = scatter.sum(axis=0) / max(float(dof.sum()), 1.0)
        shares = scatter / np.maximum(dof, 1.0)[:, None] / np.where(pooled > 0.0, pooled, 1.0)
        return np.sqrt(shares), dof


class Diagonal(Exact):
    """Only squares were sent, or only variances are wanted: no correlation between dimensions."""

    name = "diagonal"
    pooled_needs = StatisticsSpec.of("class_squares")
    class_needs = pooled_needs

    def pooled(self, stats: Statistics, means: Floats) -> Scatter:
        scatter, dof = self.variances(stats, means)
        return DiagonalScatter(scatter.sum(axis=0), float(dof.sum()), self.variance_rounding(stats).sum(axis=0))

    def class_scatters(self, stats: Statistics, means: Floats) -> Iterator[tuple[int, Floats, float]]:
        scatter, dof = self.variances(stats, means)
        for label in stats.classes.tolist():
            yield label, np.diag(scatter[label]), float(dof[label])


class Spherical(Diagonal):
    """One variance a class, the same in all directions."""

    name = "spherical"
    pooled_needs = StatisticsSpec.of("class_norms")
    class_needs = pooled_needs
    variance_needs = pooled_needs

    def variances(self, stats: Statistics, means: Floats) -> tuple[Floats, Floats]:
        total = np.zeros((stats.n_classes, 1))
        total[stats.classes] = stats.class_array("class_norms")
        total[:, 0] -= stats.counts * np.einsum("ij,ij->i", means, means)
        spread = np.repeat(total / stats.dim, stats.dim, axis=1)
        spread[without_spread(spread, self.variance_rounding(stats))] = 0.0
        return spread, np.maximum(stats.counts - 1.0, 0.0)

    def variance_rounding(self, stats: Statistics) -> Floats:
        norms, counts = stats.class_array("class_norms"), stats.class_counts[:, None].astype(np.float64)
        rounding = np.zeros((stats.n_classes, stats.dim))
        rounding[stats.classes] = noise_of_squares(norms, counts, stats.fixed_point) / stats.dim
        return rounding


class Sketch(CovarianceSource):
    """Scatter sketches: the leading part of every client's scatter, and the trace of the rest.

    Parameters
    ----------
    share
        Isotropic share of what was not sent, from 0 to 1; None: automatic.
    """

    name = "sketch"
    pooled_needs = StatisticsSpec.of("client_means", "scatter_sketch")
    class_needs = pooled_needs
    variance_needs = pooled_needs

    def __init__(self, share: float | None = None) -> None:
        self.share = None if share is None else check_share(share)

    def pooled(self, stats: Statistics, means: Floats) -> SketchScatter:
        if "client_means" not in stats.spec.moments:
            raise ClientsPooledError(
                f"a scatter from sketches needs client means that are kept apart, but these statistics hold "
                f"{stats.spec}: fit from the ledger, or from statistics merged with their client means"
            )
        held_by = np.bincount(stats.rows.labels, minlength=stats.n_classes)
        code, noise = noise_of_codes(stats), DEAD**2 * noise_of_rows(stats, means)
        return SketchScatter(
            stats.shared("between", None, lambda: between_scatter(stats.rows, means)),
            float(np.maximum(held_by - 1, 0).sum()),
            stats.sketches.canonical(),
            weight=float(stats.n_samples - len(stats.classes)),
            share=self.share,
            rounding=(noise + MOST_CODE * code, noise),
            code=code / (stats.n_samples * stats.dim),
        )

    def classes(self, stats: Statistics, means: Floats, basis: Floats | None = None) -> SketchClasses:
        """Return the class scatters, in a subspace V (d, k) if one is given."""
        if not stats.sketches.by_class:
            raise MissingMomentError(
                "these scatter sketches hold no class covariances or variances: their rows are those of all classes of "
                "a client together. Use a head on the pooled covariance (sketch, lda-sketch, qda-sketch, or fishermix "
                "with spread=pooled), plan rows of each class (SketchPlan(rows='class')), or take another source of "
                "covariance: exact, diagonal or free"
            )
        key = self.name if self.share is None else f"{self.name}:{self.share:g}"
        scatter = stats.shared("scatter", key, lambda: self.pooled(stats, means))
        return SketchClasses.of(stats, means, scatter, basis)

    def class_scatters(self, stats: Statistics, means: Floats) -> Iterator[tuple[int, Floats, float]]:
        classes = self.classes(stats, means)
        for label in stats.classes.tolist():
            yield label, classes.scatter(label), float(stats.counts[label] - 1)

    def variances(self, stats: Statistics, means: Floats) -> tuple[Floats, Floats]:
        return self.classes(stats, means).diagonals(), self.class_dof(stats, means)

    def class_dof(self, stats: Statistics, means: Floats) -> Floats:  # noqa: ARG002 - counts say it
        return np.asarray(np.maximum(stats.counts - 1.0, 0.0) * stats.sketches.by_class)


#: The free source with FedCOF's printed divisor.
ALL_CLIENTS = "free:clients"
#: That of the most that statistics hold: see :func:`richest`. Where nobody says what they hold, ``exact``.
RICHEST = "richest"
#: All covariance sources by name.
SOURCES: dict[str, CovarianceSource] = {
    s.name: s for s in (Exact(), Scaled(), Diagonal(), Spherical(), Free(), Energy(), Robust(), Sketch())
}


def covariance_source(name: str) -> CovarianceSource:
    """Return the source of that name: one of ``SOURCES``, ``sketch:SHARE`` or ``richest``.

    ``free:clients`` is the free one with the divisor that FedCOF prints.

    Examples
    --------
    >>> str(covariance_source("free").pooled_needs)
    'counts + client_means'
    >>> str(covariance_source("sketch:0.3").pooled_needs)
    'counts + client_means + scatter_sketch'
    >>> covariance_source("sketch:2")
    Traceback (most recent call last):
    fedmoments.errors.InputError: sketch:SHARE takes the isotropic share of what was not sent, a number from 0 to 1; ...
    """
    kind, colon, share = name.partition(":")
    if kind == Sketch.name and colon:
        return Sketch(_parse_share(share))
    if name == ALL_CLIENTS:
        return Free(all_clients=True)
    if name == RICHEST:
        return SOURCES["exact"]
    if name not in SOURCES:
        raise UnknownNameError("covariance source", name, [*SOURCES, "sketch:SHARE"])
    return SOURCES[name]


def richest(spec: StatisticsSpec) -> tuple[str, str]:
    """Return the richest (source, spread) of class covariances that statistics hold; exact ones where they hold none.

    Class grams come first, then the gram with class squares (``scaled``), the gram alone (all classes have the pooled
    covariance), client means (``free``), and class squares alone (``diagonal``).

    Examples
    --------
    >>> richest(StatisticsSpec.of("gram", "class_squares")), richest(StatisticsSpec.of("gram", "client_means"))
    (('scaled', 'class'), ('exact', 'pooled'))
    """
    order = (("exact", "class"), ("scaled", "class"), ("exact", "pooled"), ("free", "class"), ("diagonal", "class"))
    for name, spread in order:
        source = SOURCES[name]
        if (source.class_needs if spread == "class" else source.pooled_needs) <= spec:
            return name, spread
    return order[0]


def _parse_share(text: str) -> float:
    try:
        return check_share(float(text))
    except ValueError:
        raise InputError(
            "sketch:SHARE takes the isotropic share of what was not sent, a number from 0 to 1; "
            f"'{text}' arrived. Without one, as 'sketch', it is chosen from the statistics"
        ) from None
