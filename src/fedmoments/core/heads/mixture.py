"""LDA with several modes a class: for clients that differ in more than their labels (hospitals, cameras, styles).

score_c(x) = log π_c + log Σ_j (n_cj/N_c)·exp(−½ (x−m_cj)ᵀΣ̃⁻¹(x−m_cj)), with modes m_cj from the clients' means of the
class (:mod:`fedmoments.core.gaussian.shift`) and Σ̃ from the scatter inside clients and B₂/F: what clients differ by is
no spread of their samples. With one covariance for all modes every mode has a linear score.

**Law** F ≤ 1 is LDA on Ŵ, bit for bit. **Law** multiplying features by a constant changes no prediction.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from fedmoments.core.classifier import Classifier, LinearClassifier
from fedmoments.core.classifier.mixture import MixtureClassifier
from fedmoments.core.gaussian import ClassGaussians, Scatter, Shrinkage
from fedmoments.core.gaussian.class_gaussians import check_priors
from fedmoments.core.gaussian.class_means import believed_means, check_means
from fedmoments.core.gaussian.shift import MOST_MODES, Modes, Shift, merged_modes
from fedmoments.core.gaussian.sketch_scatter import SketchScatter
from fedmoments.core.heads.head import Head
from fedmoments.core.heads.registry import Preset
from fedmoments.core.heads.temperature import closed_temperature
from fedmoments.core.linalg import lower_factor, solve_positive, symmetrize_upper
from fedmoments.core.statistics import Statistics, StatisticsSpec
from fedmoments.errors import InputError

__all__ = ["PRESETS", "Mixture"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Mixture(Head):
    """Gaussian modes with one covariance, from client means and scatter sketches.

    Parameters
    ----------
    shrinkage
        Of the covariance; see :class:`fedmoments.Shrinkage`.
    priors
        ``data``: classes are as frequent as in the data; ``balanced``: all equally.
    means
        As in :class:`~fedmoments.core.heads.lda.Lda`.
    modes
        Modes that a class has at most; 1 is LDA around class means with the covariance inside clients.

    Examples
    --------
    Two clients see the same two classes, one of them with everything moved by (20, 0).

    >>> rng = np.random.default_rng(0)
    >>> y = np.arange(200) % 2
    >>> X = rng.normal(size=(200, 2)) + np.stack([0 * y, 4 * y], axis=1)
    >>> spec = StatisticsSpec.of("client_means", "scatter_sketch")
    >>> parts = [Statistics.of(X + [shift, 0], y, spec, n_classes=2) for shift in (0, 20)]
    >>> classifier = Mixture().fit(Statistics.merge(parts))
    >>> classifier.info["shift"] > 10, len(classifier.labels)
    (True, 4)
    """

    shrinkage: Shrinkage | str | float = "automatic"
    priors: str = "data"
    means: str = "measured"
    modes: int = MOST_MODES

    covariance = "sketch"

    def __post_init__(self) -> None:
        Shrinkage.parse(self.shrinkage)
        check_priors(self.priors)
        check_means(self.means)
        if self.modes < 1:
            raise InputError(f"a class has 1 mode or more; modes={self.modes} arrived")

    @property
    def needs(self) -> StatisticsSpec:
        return StatisticsSpec.of("client_means", "scatter_sketch")

    def solve(self, stats: Statistics) -> Classifier:
        gaussians = ClassGaussians(stats, "sketch")
        shift = Shift.of(stats, gaussians.means)
        ratio = max(shift.ratio, 1.0)
        covariance = _covariance(gaussians, _inside(gaussians, ratio), self.shrinkage)
        lower = lower_factor(covariance) if ratio > 1.0 and not gaussians.flat else None
        means = believed_means(gaussians, self.means, self.shrinkage)
        if lower is None:
            return _lda(gaussians, means, covariance, self).noting(shift=shift.ratio)
        modes = self._modes(gaussians, means, shift, lower)
        # In the whitened space a mode's weights are its centre: L⁻ᵀz brings them back.
        weights = solve_triangular(lower, modes.centres.T, lower=True, trans="T")
        shares = np.log(modes.counts / np.maximum(stats.counts, 1)[modes.labels])
        bias = gaussians.prior_scores(self.priors, self.shrinkage)[modes.labels] + shares
        bias -= 0.5 * np.einsum("md,md->m", modes.centres, modes.centres)
        return MixtureClassifier(
            weights=weights, bias=bias, labels=modes.labels, offset=gaussians.global_mean, present=gaussians.present
        ).noting(shift=shift.ratio, modes=len(modes.labels))

    def _modes(self, gaussians: ClassGaussians, means: Floats, shift: Shift, lower: Floats) -> Modes:
        """Return the merged modes, less the global mean, in the space where the covariance is the identity."""
        rows, counts = gaussians.stats.rows, gaussians.stats.rows.counts.astype(np.float64)
        trust = counts * shift.variance / (1.0 + counts * shift.variance)
        away = rows.block_means(slice(None)) - gaussians.global_mean - gaussians.centred_means[rows.labels]
        centres = means[rows.labels] + trust[:, None] * away
        white = solve_triangular(lower, centres.T, lower=True).T
        return merged_modes(white, counts, rows.labels, self.modes)

    def temperature_of(self, classifier: Classifier, stats: Statistics) -> float:
        inside = _inside(ClassGaussians(stats, self.covariance), max(classifier.info["shift"], 1.0))
        return closed_temperature(classifier, stats, self.covariance, self.shrinkage, inside, means=self.means)


def _inside(gaussians: ClassGaussians, ratio: float) -> Scatter:
    """Return the scatter inside clients and B₂/F; the pooled one where clients do not differ."""
    scatter = gaussians.scatter
    if ratio <= 1.0 or gaussians.flat or not isinstance(scatter, SketchScatter):
        return scatter
    return gaussians.stats.shared("scatter inside clients", ratio, lambda: scatter.with_between(1.0 / ratio))


def _covariance(gaussians: ClassGaussians, scatter: Scatter, shrinkage: Shrinkage | str | float) -> Floats:
    """Return the shrunk covariance (d, d)."""
    if scatter is gaussians.scatter:
        return gaussians.pooled_covariance(shrinkage)
    keep, add = gaussians.amounts(shrinkage, trace=scatter.trace, dof=scatter.dof)
    covariance = symmetrize_upper(scatter.scaled(keep / scatter.weight))
    covariance[np.diag_indices_from(covariance)] += add
    return covariance


def _lda(gaussians: ClassGaussians, means: Floats, covariance: Floats, head: Mixture) -> Classifier:
    weights = solve_positive(covariance, means.T)
    bias = gaussians.prior_scores(head.priors, head.shrinkage) - 0.5 * np.einsum("cd,dc->c", means, weights)
    return LinearClassifier(weights=weights, bias=bias, offset=gaussians.global_mean, present=gaussians.present)


PRESETS = (
    Preset(
        "mixture-sketch",
        Mixture,
        "LDA with a mode a kind of client, on client means and scatter sketches",
        "new here, after FedCOF",
    ),
)
