"""Quadratic discriminant analysis, GH-QDA: every class has its own covariance, shrunk towards the pooled one.

score_c = log π_c − ½ log|Σ̃_c| − ½ (x−μ_c)ᵀ Σ̃_c⁻¹ (x−μ_c), with Σ̃_c = T_c⁻¹T_c⁻ᵀ and T_c lower triangular. A class with
no covariance of its own (one sample, or one row of client means) has the pooled one.

``pooling`` makes it regularised discriminant analysis, on the way from QDA (``none``) to LDA (``blend:1``). With
``subspace="fisher"`` everything happens in the k ≤ C − 1 Fisher directions: (C, k, k) numbers instead of (C, d, d).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.classifier import Classifier, QuadraticClassifier
from fedmoments.core.gaussian import ClassGaussians, FisherSubspace, Pooling, Shrinkage, covariance_source
from fedmoments.core.gaussian.class_gaussians import check_priors
from fedmoments.core.gaussian.class_means import believed_means, check_means
from fedmoments.core.gaussian.fisher import MOST_DIRECTIONS, parse_directions
from fedmoments.core.gaussian.graded import graded_whiteners
from fedmoments.core.gaussian.pooling import PooledClasses, fisher_class_covariances
from fedmoments.core.gaussian.whitening import class_whiteners, log_determinants
from fedmoments.core.heads.head import Head
from fedmoments.core.heads.registry import Preset
from fedmoments.core.statistics import Statistics, StatisticsSpec
from fedmoments.errors import InputError

__all__ = ["PRESETS", "Qda"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Qda(Head):
    """Gaussian classes with a full covariance each.

    Parameters
    ----------
    covariance
        ``exact`` (class grams), ``diagonal``, ``spherical``, ``free`` (client means), ``energy`` (and class norms),
        ``robust`` (far client means weigh less) or ``sketch`` (sketch rows).
    shrinkage
        Of every class covariance towards the identity; see :meth:`fedmoments.ClassGaussians.class_shrinkage`. GH-OFL's
        default is ``blend:0.1``.
    pooling
        Of every class covariance towards the pooled one; see ``core.gaussian.Pooling``. ``automatic`` in the
        full space grades it by direction (``core.gaussian.graded``): half in Fisher directions, almost all
        elsewhere. ``none`` is GH-OFL's QDA.
    subspace
        ``full``, or ``fisher``: computed in the Fisher subspace of the pooled covariance.
    directions
        Of the Fisher subspace: a number, ``all``, ``energy:SHARE`` or ``automatic`` (99.5 % of the energy, at most 256,
        as in GH-OFL; a class far away takes all the energy, and the others cannot be told apart any more).
    priors
        ``data``: classes are as frequent as in the data; ``balanced``: all equally, as where a covariance may be too
        large by the differences of clients.
    means
        As in :class:`~fedmoments.core.heads.lda.Lda`.

    Examples
    --------
    >>> X, y = np.array([[0.0, 0.0], [0.1, 0.2], [0.2, 0.1], [3.0, 9.0], [9.0, 3.0], [4.0, 4.0]]), [0, 0, 0, 1, 1, 1]
    >>> stats = Statistics.of(X, y, StatisticsSpec.of("class_grams"), n_classes=2)
    >>> Qda(shrinkage="blend:0.1", pooling="none").fit(stats).predict([[0.1, 0.1], [2.0, 2.0]])
    array([0, 1])
    >>> Qda(subspace="fisher", pooling="friedman:0.2").fit(stats).predict([[0.1, 0.1], [9.0, 2.0]])
    array([0, 1])
    """

    slow = True

    covariance: str = "exact"
    shrinkage: Shrinkage | str | float = "automatic"
    pooling: Pooling | str | float = "automatic"
    subspace: str = "full"
    directions: str | int = MOST_DIRECTIONS
    priors: str = "data"
    means: str = "measured"

    def __post_init__(self) -> None:
        check_priors(self.priors)
        check_means(self.means)
        Shrinkage.parse(self.shrinkage)
        Pooling.parse(self.pooling)
        covariance_source(self.covariance)
        parse_directions(self.directions)
        if self.subspace not in ("full", "fisher"):
            raise InputError(f"subspace is full or fisher; '{self.subspace}' arrived")

    @property
    def needs(self) -> StatisticsSpec:
        return covariance_source(self.covariance).class_needs

    def solve(self, stats: Statistics) -> Classifier:
        gaussians = ClassGaussians(stats, self.covariance)
        present, basis, inside = gaussians.present, None, None
        means = believed_means(gaussians, self.means, self.shrinkage)
        if self.subspace == "fisher":
            fisher = FisherSubspace.of(gaussians, shrinkage=self.shrinkage, directions=self.directions)
            inside = fisher_class_covariances(gaussians, fisher, self.pooling, self.shrinkage)
            basis, means = fisher.basis, means @ fisher.basis
            covariances: Iterable[tuple[int, Floats]] = (
                (label, inside[label]) for label in np.flatnonzero(present).tolist()
            )
        else:
            covariances = self._pooled(gaussians)
        if basis is None and Pooling.parse(self.pooling).kind == "automatic":
            whiteners, log_precision = graded_whiteners(gaussians, self.shrinkage)
        else:
            whiteners = class_whiteners(stats, covariances, means.shape[1], inside)
            log_precision = log_determinants(whiteners, present)
        bias = gaussians.prior_scores(self.priors, self.shrinkage) + log_precision
        return QuadraticClassifier(
            offset=gaussians.global_mean, means=means, whiteners=whiteners, bias=bias, basis=basis, present=present
        )

    def _pooled(self, gaussians: ClassGaussians) -> Iterator[tuple[int, Floats]]:
        for label, covariance, add in PooledClasses.of(gaussians, self.pooling, self.shrinkage).covariances():
            covariance[np.diag_indices_from(covariance)] += add
            gaussians.check_class(label, covariance, add)
            yield label, covariance


PRESETS = (
    Preset("gh-qda", Qda, "QDA with a full covariance a class, pooled by direction", "GH-OFL"),
    Preset("gh-qda-fisher", Qda, "QDA in the Fisher subspace, half pooled", "GH-OFL", {"subspace": "fisher"}),
    Preset(
        "qda-free",
        Qda,
        "QDA on the free covariances of client means, pooled by direction",
        "new here, after FedCOF",
        {"covariance": "free", "priors": "balanced"},
    ),
    Preset(
        "qda-energy",
        Qda,
        "QDA on free covariances scaled to the exact trace of every class",
        "new here, after FedCOF",
        {"covariance": "energy"},
    ),
    Preset(
        "qda-sketch",
        Qda,
        "QDA in the Fisher subspace on labelled sketch rows, half pooled; LDA where rows are pooled",
        "new here, after FedCOF",
        {"covariance": "sketch", "subspace": "fisher"},
    ),
)
