"""Everything that statistics tell about whether the assumptions of Gaussian heads hold, in one value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np

from fedmoments.core.diagnostics.cautions import Caution, Findings, cautions_of
from fedmoments.core.diagnostics.holdings import Holdings, Neighbours, holdings_of, nearest_classes
from fedmoments.core.diagnostics.shapes import NEEDS as SHAPE_NEEDS
from fedmoments.core.diagnostics.shapes import Gaussianity, gaussianity
from fedmoments.core.diagnostics.spectrum import FisherCurve, HeldOut, Spectrum, fisher_curve, spectrum_of
from fedmoments.core.gaussian import (
    ClassGaussians,
    CovarianceBias,
    FisherSubspace,
    Shrinkage,
    covariance_bias,
    covariance_source,
    require,
)
from fedmoments.core.notebook import html_table
from fedmoments.core.statistics import Ledger, Statistics, StatisticsSpec
from fedmoments.errors import InputError, NotEnoughDataError

__all__ = ["NEEDS", "Diagnostics", "Unknown", "diagnose"]

T = TypeVar("T")

_BIAS_NEEDS = StatisticsSpec.of("client_means", "class_norms")
#: What every diagnostic together needs.
NEEDS = SHAPE_NEEDS | _BIAS_NEEDS | StatisticsSpec.of("gram")
#: Sources of a pooled covariance that are looked at.
SOURCES = ("exact", "free")


@dataclass(frozen=True)
class Unknown:
    """Something that these statistics do not tell.

    Parameters
    ----------
    what
        Which diagnostic.
    why
        A reason in words.
    moments
        What would have to be measured as well; none when no moment would help.
    """

    what: str
    why: str
    moments: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False, repr=False)
class Diagnostics:
    """What statistics tell about the assumptions of Gaussian heads.

    Parameters
    ----------
    dim, n_samples
        d and N.
    measured
        Which moments it was found from.
    holdings
        Who holds how much.
    gaussianity
        Skewness and kurtosis; None when they are not known, as with everything below.
    spectra, curves
        Source of covariance (``exact``, ``free``) -> conditioning, and what the Fisher directions keep.
    bias
        How far the free covariance is from the exact one.
    neighbours
        The nearest class of every class.
    cautions
        What deserves a second look.
    unknown
        What these statistics do not tell, and why.

    Examples
    --------
    See :func:`diagnose`.
    """

    dim: int
    n_samples: int
    measured: str
    holdings: Holdings
    gaussianity: Gaussianity | None
    spectra: dict[str, Spectrum]
    curves: dict[str, FisherCurve]
    bias: CovarianceBias | None
    neighbours: Neighbours | None
    cautions: tuple[Caution, ...]
    unknown: tuple[Unknown, ...]

    def __repr__(self) -> str:
        kinds = ", ".join(caution.kind for caution in self.cautions) or "none"
        return f"Diagnostics({self.n_samples} samples, d={self.dim}; cautions: {kinds})"

    def _repr_html_(self) -> str:
        rows = [(caution.what, caution.advice) for caution in self.cautions] or [("No check found a problem.", "")]
        rows += [(f"not known: {gap.what}", gap.why) for gap in self.unknown]
        return html_table(f"Diagnostics: {self.n_samples:,} samples, d = {self.dim}", ["found", "what to do"], rows)

    @property
    def missing(self) -> tuple[str, ...]:
        """Moments that would have to be measured as well for everything to be known."""
        return tuple(dict.fromkeys(name for gap in self.unknown for name in gap.moments))


def diagnose(
    source: Statistics | Ledger,
    *,
    test: HeldOut | None = None,
    shrinkage: Shrinkage | str | float = "automatic",
) -> Diagnostics:
    """Find out whether the assumptions of Gaussian heads hold, from statistics alone.

    Whatever the statistics do not tell is listed in ``unknown`` with the moments that would.

    Parameters
    ----------
    source
        Merged statistics, or a ledger; :data:`NEEDS` says what everything together needs.
    test
        Features (n, d), in the space that was measured, and labels (n,): gives LDA's accuracy as well.
    shrinkage
        Of the pooled covariances.

    Raises
    ------
    NotEnoughDataError
        When there is no sample at all.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 3, size=300)
    >>> X = rng.normal(size=(300, 8)) + 4 * np.eye(3, 8)[y]
    >>> diagnosis = diagnose(Ledger.of(X, y, np.arange(300) % 10, NEEDS, n_classes=3))
    >>> diagnosis.spectra["exact"].before.condition < 10, diagnosis.curves["exact"].enough, diagnosis.unknown
    (True, 2, ())
    >>> means = Ledger.of(X, y, np.arange(300) % 10, StatisticsSpec.of("client_means"), n_classes=3)
    >>> diagnose(means).missing
    ('class_squares', 'class_thirds', 'class_fourths', 'gram', 'class_norms')
    """
    stats = source.statistics() if isinstance(source, Ledger) else source
    require(stats, StatisticsSpec(), "a diagnosis")
    test = None if test is None else _checked(test, stats)
    look = _Look(stats)
    shapes = look.at("skewness and kurtosis", SHAPE_NEEDS, partial(gaussianity, stats))
    spectra: dict[str, Spectrum] = {}
    curves: dict[str, FisherCurve] = {}
    neighbours: Neighbours | None = None
    for name in SOURCES:
        gaussians = ClassGaussians(stats, name)
        spectrum, fisher = look.directions(name, gaussians, shrinkage)
        if spectrum is not None:
            spectra[name] = spectrum
        if spectrum is not None and fisher is not None:
            curves[name] = fisher_curve(gaussians, fisher, shrinkage=shrinkage, test=test)
            neighbours = neighbours or nearest_classes(fisher, stats.counts, spectrum.whitened_trace)
    bias = look.at("the bias of the free covariance", _BIAS_NEEDS, partial(covariance_bias, stats))
    if not stats.spec.keeps_clients_apart:
        look.lacks("means per class and cells of one sample", StatisticsSpec.of("client_means"))
    holdings = holdings_of(stats)
    findings = Findings(stats.dim, holdings, shapes, tuple(spectra.values()), bias, neighbours)
    return Diagnostics(
        stats.dim,
        stats.n_samples,
        str(stats.spec),
        holdings,
        shapes,
        spectra,
        curves,
        bias,
        neighbours,
        cautions_of(findings),
        tuple(look.unknown),
    )


class _Look:
    """Looks at one thing after the other, and notes what cannot be seen, and why."""

    def __init__(self, stats: Statistics) -> None:
        self._stats = stats
        self.unknown: list[Unknown] = []

    def at(self, what: str, needs: StatisticsSpec, see: Callable[[], T]) -> T | None:
        """Return what ``see`` finds, or None and a note."""
        if not needs <= self._stats.spec:
            self.lacks(what, needs)
            return None
        try:
            return see()
        except NotEnoughDataError as error:
            self.unknown.append(Unknown(what, str(error)))
            return None

    def directions(
        self, source: str, gaussians: ClassGaussians, shrinkage: Shrinkage | str | float
    ) -> tuple[Spectrum | None, FisherSubspace | None]:
        """Return the spectrum of a covariance and its Fisher directions, each None where it cannot be seen."""
        needs = covariance_source(source).pooled_needs
        spectrum = self.at(f"the {source} covariance", needs, partial(spectrum_of, gaussians, shrinkage))
        if spectrum is None:
            return None, None
        subspace = partial(FisherSubspace.of, gaussians, shrinkage=shrinkage, directions="all")
        return spectrum, self.at(f"the Fisher directions of the {source} covariance", needs, subspace)

    def lacks(self, what: str, needs: StatisticsSpec) -> None:
        """Note that moments are missing."""
        lacking = tuple(name for name in needs.sent if name not in self._stats.spec.moments)
        names = " and ".join([", ".join(lacking[:-1]), lacking[-1]] if len(lacking) > 1 else lacking)
        verb = "was" if len(lacking) == 1 else "were"
        self.unknown.append(Unknown(what, f"{names} {verb} not measured", lacking))


def _checked(test: HeldOut, stats: Statistics) -> HeldOut:
    X, y = np.asarray(test[0]), np.asarray(test[1])
    if X.ndim != 2 or X.shape[1] != stats.dim or y.shape != (len(X),):
        raise InputError(
            f"test samples must be features (n, {stats.dim}) and labels (n,), in the space that was measured; arrays "
            f"of the shapes {X.shape} and {y.shape} arrived"
        )
    return X, y
