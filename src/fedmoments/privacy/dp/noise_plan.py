"""From what was agreed on to the noise of every number of a release.

    σ = σ₁(ε, δ)·√releases · Δ,    noise of an entry of weight w: σ/w

The noise is a discrete Gaussian on the integers of the fixed-point form, not a continuous one, and still the analytic
curve of the continuous Gaussian holds for it. Let τ = σ/w be what the curve asks for, in steps of the grid. Take the
continuous release y = c + N(0, τ²), c whole, and round it at random: to the integer x with probability
∝ exp(−(x − y)²/2r²). That is post-processing and keeps the promise. Its outcome has the probability

    ∫ N(y; c, τ²) · exp(−(x−y)²/2r²) / Σ_k exp(−(k−y)²/2r²) dy,

and the sum over k is √(2π)·r·(1 ± 2e^{−2π²r²}) whatever y is (Poisson summation). So x is the discrete Gaussian of
variance **τ² + r²** around c, but for a factor within 1 ± 4e^{−2π²r²}. With r = 1.5 steps that is 1 ± 2·10⁻¹⁹ a number:
over 10⁹ numbers the promise changes by less than 10⁻⁹. r is nothing where a step is 2⁻⁴⁰; counts, whose step is 1,
have a standard deviation of √(τ² + 2.25). What sampling is wrong by (:mod:`~fedmoments.privacy.dp.discrete`) is covered
by :data:`MARGIN`.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.linalg import packed_size
from fedmoments.core.statistics import MOMENTS, FixedPoint, StatisticsSpec
from fedmoments.errors import InputError, PrivacyError
from fedmoments.privacy.dense import DenseLayout
from fedmoments.privacy.dp.accountant import epsilon_of, least_ratio
from fedmoments.privacy.dp.budget import shares_of
from fedmoments.privacy.dp.discrete import MAX_SCALE
from fedmoments.privacy.dp.sensitivity import COUNTS, degree_of, largest_norm, rounding, sample_sensitivity
from fedmoments.privacy.protection import Agreed

__all__ = ["MARGIN", "ROUNDING_SCALE", "NoisePlan", "plan", "require_additive"]

Floats = NDArray[np.float64]

#: Noise is larger by this share than the formulas ask for: room for float64 in sampler and sensitivity.
MARGIN = 1e-6
#: r of the module, in steps of the grid.
ROUNDING_SCALE = 1.5
#: Moments that are packed symmetric matrices.
MATRICES = ("gram", "class_grams")


@dataclass(frozen=True)
class NoisePlan:
    """The noise of one release; everything in it is public.

    Parameters
    ----------
    layout, form
        What is released, and on which grid.
    shares
        Share of the budget of counts and of every moment.
    weights
        w_m, in 1/unit^degree of the features.
    sensitivity
        Δ, by how much one sample (client) changes the weighted vector, with slack and rounding.
    ratio
        σ/Δ that the accountant knows of.
    epsilon, delta
        What this one release promises by itself.
    unit, neighbours
        What it hides, from which neighbouring data.

    Examples
    --------
    >>> layout = DenseLayout(StatisticsSpec.of("gram"), n_classes=10, dim=16)
    >>> noise_plan = plan(layout, FixedPoint(1.0, 10**5), Agreed(epsilon=2.0, budget="equal"))
    >>> {name: round(sigma, 3) for name, sigma in noise_plan.sigmas.items()}
    {'counts': 3.765, 'sums': 3.453, 'gram': 3.453}
    """

    layout: DenseLayout
    form: FixedPoint
    shares: Mapping[str, float]
    weights: Mapping[str, float]
    sensitivity: float
    ratio: float
    epsilon: float
    delta: float
    unit: str
    neighbours: str

    @property
    def sigma(self) -> float:
        """σ of the weighted vector."""
        return self.ratio * self.sensitivity * (1.0 + MARGIN)

    @property
    def sigmas(self) -> dict[str, float]:
        """Standard deviation of the noise of counts and of every moment, in the features' unit to its degree.

        Off-diagonal entries of a matrix have 1/√2 of it.
        """
        return {name: self._grid(name) * self._step(name) for name in self.weights}

    def _step(self, name: str) -> float:
        return 1.0 if name == COUNTS else self.form.resolution(degree_of(name))

    def _grid(self, name: str, factor: float = 1.0) -> float:
        """Scale of the discrete Gaussian of a part, in steps of the grid, at ``factor`` times its weight."""
        return math.hypot(self.sigma / (self.weights[name] * factor * self._step(name)), ROUNDING_SCALE)

    def check_grid(self) -> None:
        """Refuse noise that does not fit the grid's 64 bits."""
        for name in self.weights:
            if self._grid(name) > MAX_SCALE:
                raise InputError(
                    f"the noise of {name} would be {self._grid(name):.3g} steps of the fixed-point grid, but at most "
                    f"{MAX_SCALE:.3g} fit 64 bits: agree on more max_samples than {self.form.max_samples}, which makes "
                    "the grid coarser"
                )

    def grid_scales(self) -> Floats:
        """Return the scale of the noise of every number in steps of the grid, (size,); 0 for the contributors."""
        layout = self.layout
        row = np.concatenate([[self._grid(COUNTS)], *(self._entries(name) for name in layout.of_class)])
        shared = [self._entries(name) for name in layout.of_all]
        return np.concatenate([np.zeros(layout.n_classes), np.tile(row, layout.n_classes), *shared])

    def limits(self, counts: Floats, sigmas: float) -> Floats:
        """Return how large numbers of one client can be, in steps of the grid, but for the contributors.

        Parameters
        ----------
        counts
            (C,) noised counts of its classes, which bound its sums.
        sigmas
            Standard deviations of noise that do not happen.
        """
        layout, most = self.layout, self.form.max_samples
        samples = np.clip(counts, 0.0, most) + sigmas * self._grid(COUNTS)
        rows = [np.full((len(counts), 1), float(most))]
        rows += [np.outer(samples, self._largest(name)) for name in layout.of_class]
        shared = [samples.sum() * self._largest(name) for name in layout.of_all]
        return np.concatenate([np.hstack(rows).ravel(), *shared]) + sigmas * self.grid_scales()[layout.n_classes :]

    def _largest(self, name: str) -> Floats:
        """Return what one sample adds at most to each number of a moment, in steps of the grid."""
        step = self.form.norm_bound ** degree_of(name) / self._step(name)
        return np.full(MOMENTS[name].width(self.layout.dim), step)

    def _entries(self, name: str) -> Floats:
        width = MOMENTS[name].width(self.layout.dim)
        if name not in MATRICES:
            return np.full(width, self._grid(name))
        scales = np.full(packed_size(self.layout.dim), self._grid(name, math.sqrt(2.0)))
        steps = np.arange(self.layout.dim)
        scales[steps * (steps + 3) // 2] = self._grid(name)
        return scales

    def describe(self) -> dict[str, Any]:
        """Return what a reader should know of the noise, as plain values."""
        return {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "unit": self.unit,
            "neighbours": self.neighbours,
            "sensitivity": self.sensitivity,
            "noise_over_sensitivity": self.ratio,
            "shares": dict(self.shares),
            "noise": self.sigmas,
        }


def require_additive(spec: StatisticsSpec) -> None:
    """Refuse client means and scatter sketches: what one sample changes there depends on the data, beyond any noise.

    Examples
    --------
    >>> require_additive(StatisticsSpec.of("client_means"))
    Traceback (most recent call last):
    fedmoments.errors.PrivacyError: counts + client_means cannot be released with differential privacy: ...
    """
    if spec.has_sketch:
        raise PrivacyError(
            f"{spec} cannot be released with differential privacy: by how much one sample turns the leading directions "
            "of a client depends on all its others. Choose a head on sums of all clients, such as fed3r, gh-lda or "
            "fedcof-oracle, which send 'gram'"
        )
    if spec.keeps_clients_apart:
        raise PrivacyError(
            f"{spec} cannot be released with differential privacy: by how much one sample changes a client mean, or a "
            "covariance made of them, depends on the data. Choose a head on sums of all clients, such as fedncm, "
            "fed3r, gh-lda or fedcof-oracle"
        )


@lru_cache(maxsize=64)
def plan(layout: DenseLayout, form: FixedPoint, agreed: Agreed) -> NoisePlan:
    """Return the noise of one of the ``agreed.releases`` planned releases.

    Parameters
    ----------
    layout, form
        What is released, and on which grid.
    agreed
        With an epsilon.

    Examples
    --------
    >>> layout = DenseLayout(StatisticsSpec(), n_classes=10, dim=16)
    >>> once = plan(layout, FixedPoint(1.0, 10**5), Agreed(epsilon=1.0))
    >>> twice = plan(layout, FixedPoint(1.0, 10**5), Agreed(epsilon=1.0, releases=2))
    >>> round(once.ratio, 3), round(twice.ratio / once.ratio, 3)
    (3.731, 1.414)
    """
    require_additive(layout.spec)
    if agreed.epsilon is None:
        raise InputError("noise needs a budget, but no epsilon was agreed on: agree on one, such as epsilon = 2")
    norm = largest_norm(1.0 if agreed.clip is None else agreed.clip)
    shares = shares_of(agreed.budget, layout)
    weights = {name: math.sqrt(share) / norm ** degree_of(name) for name, share in shares.items()}
    if agreed.unit == "client":
        if agreed.client_norm is None:  # Agreed refuses it; said again, because everything hangs on it
            raise InputError("hiding a whole client needs client_norm, a public bound on what it sends")
        _check_room(layout, weights[COUNTS], agreed.client_norm)
        sensitivity = agreed.client_norm * (2.0 if agreed.neighbours == "replace" else 1.0)
    else:
        sensitivity = sample_sensitivity(layout, weights, norm, agreed.neighbours)
        sensitivity += rounding(layout, weights, form, agreed.neighbours)
    ratio = least_ratio(float(agreed.epsilon), agreed.delta) * math.sqrt(agreed.releases)
    noise_plan = NoisePlan(
        layout=layout,
        form=form,
        shares=MappingProxyType(shares),
        weights=MappingProxyType(weights),
        sensitivity=sensitivity,
        ratio=ratio,
        epsilon=epsilon_of(ratio, agreed.delta),
        delta=agreed.delta,
        unit=agreed.unit,
        neighbours=agreed.neighbours,
    )
    noise_plan.check_grid()
    return noise_plan


def _check_room(layout: DenseLayout, weight: float, client_norm: float) -> None:
    """Refuse a norm of clients' contributions that leaves no room for one count of every class."""
    needed = 2.0 * weight * math.sqrt(layout.n_classes if layout.of_all else 1)
    if client_norm < needed:
        raise InputError(
            f"client_norm is {client_norm:g}, but counts of {layout.n_classes} classes alone can take "
            f"{needed / 2:.4g}: agree on {needed * 1.001:.4g} or more (one sample has a norm of 1), or give counts "
            "less of the budget"
        )
