"""Gaussian classes in the Fisher subspace: what the trained heads draw their samples from.

The pooled covariance is the identity there. With the spread ``class`` every class has its own covariance, shrunk by the
amounts of the pooled one and pooled with it as ``core.gaussian.pooling`` says; with the spread ``diagonal`` it has the
diagonal of that alone (GH-OFL §3.3: diag(Σ_c) in the subspace, where D was sent and S was not); with the spread
``pooled`` all have the identity, and naive Bayes, LDA and QDA are one rule.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.gaussian.class_gaussians import ClassGaussians
from fedmoments.core.gaussian.fisher import FisherSubspace
from fedmoments.core.gaussian.pooling import Pooling, fisher_class_covariances
from fedmoments.core.gaussian.shrinkage import Shrinkage
from fedmoments.core.gaussian.sources import RICHEST, richest
from fedmoments.core.statistics.spec import StatisticsSpec
from fedmoments.errors import InputError

__all__ = ["FisherClasses", "check_spread", "richest_classes"]

Floats = NDArray[np.float64]


def check_spread(spread: str) -> None:
    """Refuse what is not ``class``, ``diagonal`` or ``pooled``.

    Examples
    --------
    >>> check_spread("own")
    Traceback (most recent call last):
    fedmoments.errors.InputError: spread is class (a covariance each), diagonal (variances each) or pooled (one for ...
    """
    if spread not in ("class", "diagonal", "pooled"):
        raise InputError(
            "spread is class (a covariance each), diagonal (variances each) or pooled (one for all classes); "
            f"'{spread}' arrived"
        )


def richest_classes(covariance: str, spread: str, spec: StatisticsSpec) -> tuple[str, str]:
    """Return the source and the spread that a head takes from statistics of that spec.

    Those asked for, unless ``richest`` was and class grams are missing.

    Examples
    --------
    >>> richest_classes("richest", "class", StatisticsSpec.of("gram", "class_squares"))
    ('scaled', 'class')
    >>> richest_classes("exact", "class", StatisticsSpec.of("gram", "class_squares"))
    ('exact', 'class')
    """
    if covariance != RICHEST:
        return covariance, spread
    source, most = richest(spec)
    if (source, most) == ("exact", "class"):
        return covariance, spread
    return source, "pooled" if "pooled" in (most, spread) else spread


@dataclass(frozen=True, eq=False)
class FisherClasses:
    """Means and covariances of classes in the Fisher subspace.

    Parameters
    ----------
    subspace
        Directions, and class means in them.
    covariances
        (C, k, k), positive definite.
    present
        (C,) whether a class has a sample.
    differ
        Whether any class has a covariance of its own. If none has, all are the identity.

    Examples
    --------
    >>> from fedmoments.core.statistics import Statistics, StatisticsSpec
    >>> X, y = np.array([[0.0, 0.0], [2.0, 0.1], [0.1, 5.0], [2.0, 5.1]]), [0, 0, 1, 1]
    >>> gaussians = ClassGaussians(Statistics.of(X, y, StatisticsSpec.of("class_grams"), n_classes=2))
    >>> FisherClasses.of(gaussians, spread="class").covariances.shape
    (2, 1, 1)
    """

    subspace: FisherSubspace
    covariances: Floats
    present: NDArray[np.bool_]
    differ: bool

    @classmethod
    def of(
        cls,
        gaussians: ClassGaussians,
        *,
        spread: str = "class",
        shrinkage: Shrinkage | str | float = "automatic",
        directions: str | int | float = "automatic",
        pooling: Pooling | str | float = "quarter",
    ) -> "FisherClasses":
        """Return the classes of a Gaussian description.

        Parameters
        ----------
        gaussians
            With a covariance a class where ``spread`` is ``class`` or ``diagonal``.
        spread
            ``class``, ``diagonal`` or ``pooled``.
        shrinkage
            Of the pooled covariance, and by the same amount of every class covariance.
        directions
            How many to keep; see :func:`fedmoments.core.gaussian.fisher.parse_directions`.
        pooling
            See ``core.gaussian.Pooling``; or ``quarter``, which borrows k/4 degrees of freedom: little, and
            enough to be positive definite.
        """
        check_spread(spread)
        subspace = FisherSubspace.of(gaussians, shrinkage=shrinkage, directions=directions)
        present, n_classes, identity = gaussians.present, len(gaussians.counts), np.eye(subspace.dim)
        if spread == "pooled":
            same = np.broadcast_to(identity, (n_classes, subspace.dim, subspace.dim))
            return cls(subspace, same, present, differ=False)
        kind = Pooling("borrow", subspace.dim / 4.0) if pooling == "quarter" else Pooling.parse(pooling)
        own = fisher_class_covariances(gaussians, subspace, kind, shrinkage)
        if spread == "diagonal":
            own *= identity
        return cls(subspace, own, present, differ=bool((gaussians.class_dof > 0).any()))
