"""Ridge regression onto one-hot labels, W = (G + λI)⁻¹B with B = [N_c μ_c], columns normalised to unit norm.

What G is makes the method:

- ``total`` scatter, G = Σ x xᵀ: **Fed3R** (Fanì et al., 2024), the same as centralised ridge regression for every
  partition and sampling order.
- ``within`` scatter, Ĝ = Σ_c (N_c−1) Σ̃_c + N μ_g μ_gᵀ (FedCOF Eq. 11): **FedCOF** (Goswami et al., 2025) with the free
  covariances of client means, its **oracle** with exact ones, which need only Fed3R's payload because
  Σ_c (N_c−1) Σ_c = Σ x xᵀ − Σ_c N_c μ_c μ_cᵀ. Shrinkage γ enters as γ(N−C)·I, C counting classes with samples. From
  scatter sketches (``sketch``) it costs FedCOF's bytes, or any others, and tends to the oracle as rows are added.

λ is absolute (0.01 in the papers), relative to tr(G)/d, or automatic. Automatic λ of a total scatter minimises
generalised cross-validation, which follows from the sums alone; of a within scatter it is 0, because shrinkage
regularises it already.

Few client means make G a ridge plus few rows; then the dual system, rows × rows, is solved instead of d × d.

N μ_g μ_gᵀ is not added to a matrix: features far from the origin would drown their own spread in it. What is left of G
is solved for μ_c − μ_g and μ_g (``core.gaussian.linear_rules.around_mean``).

Where samples of a class do not differ, the within scatter tends to a multiple of the identity, σ²·I, σ → 0, and the
weights of class c to μ_c − μ_g less its part along μ_g, of unit norm: the class mean nearest by angle, seen from μ_g.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.classifier import Classifier, LinearClassifier
from fedmoments.core.gaussian import ClassGaussians, Shrinkage, covariance_source
from fedmoments.core.gaussian.class_gaussians import total_scatter
from fedmoments.core.gaussian.linear_rules import around_mean
from fedmoments.core.gaussian.precision import TOLERANCE, check_digits, directions, warn_equal, warn_far, warn_noise
from fedmoments.core.gaussian.sources import ALL_CLIENTS
from fedmoments.core.heads.head import Head
from fedmoments.core.heads.registry import Preset
from fedmoments.core.heads.temperature import DIAGONAL
from fedmoments.core.linalg import (
    gcv_ridge,
    solve_definite,
    solve_positive,
    solve_rows_plus_ridge,
    symmetrize_upper,
)
from fedmoments.core.maps import FeatureMap, RandomFourier, median_bandwidth
from fedmoments.core.statistics import Statistics, StatisticsSpec
from fedmoments.errors import InputError

__all__ = ["PRESETS", "FourierRidge", "Ridge"]

Floats = NDArray[np.float64]

#: What the free scatter of a class may be divided by.
DIVISORS = ("holders", "clients")
#: With fewer rows than this share of the dimension, the dual solve is faster.
DUAL_SHARE = 0.75
#: The least ridge that generalised cross-validation tries, as a share of the mean eigenvalue.
LEAST_GCV = 1e-8
#: The dual solve divides by the ridge: below this share of the mean eigenvalue, digits would cancel.
DUAL_LEAST_RIDGE = 1e-8


@dataclass(frozen=True)
class Ridge(Head):
    """Ridge regression on the total or the within-class scatter.

    Parameters
    ----------
    scatter
        ``total`` (Fed3R) or ``within`` (FedCOF).
    covariance
        Source of the within scatter: ``exact``, ``diagonal``, ``spherical``, ``free``, ``sketch`` or
        ``sketch:SHARE``. Not used with ``total``.
    shrinkage
        Of the within covariance; see :class:`fedmoments.Shrinkage`. Not used with ``total``.
    ridge
        λ: ``automatic``, a number (absolute), or ``relative:r`` for r·tr(G)/d.
    intercept
        Fit an unpenalised constant (total scatter only).
    normalize
        Scale every class's weights (and constant) to unit norm, as the papers do.
    divisor
        Of the free covariance of a class: ``holders``, K_c − 1 with the K_c clients that hold it, which is unbiased, or
        ``clients``, K − 1 with all of them, as FedCOF's Eq. 8 prints it, for those who compare.

    Examples
    --------
    >>> X, y = np.array([[1.0, 0.0], [2.0, 0.5], [0.0, 1.0], [0.5, 2.0]]), [0, 0, 1, 1]
    >>> stats = Statistics.of(X, y, StatisticsSpec.of("gram"), n_classes=2)
    >>> Ridge(ridge=0.01).fit(stats).predict([[3.0, 1.0]])
    array([0])
    """

    scatter: str = "total"
    covariance: str = "exact"
    shrinkage: Shrinkage | str | float = "automatic"
    ridge: Shrinkage | str | float = "automatic"
    intercept: bool = False
    normalize: bool = True
    divisor: str = "holders"

    def __post_init__(self) -> None:
        Shrinkage.parse(self.shrinkage)
        covariance_source(self.covariance)
        if self.divisor not in DIVISORS:
            raise InputError(f"divisor is one of {', '.join(DIVISORS)}; '{self.divisor}' arrived")
        if self.divisor != DIVISORS[0] and (self.scatter, self.covariance) != ("within", "free"):
            raise InputError(f"a divisor of '{self.divisor}' belongs to the free covariance of the within scatter")
        if self.scatter not in ("total", "within"):
            raise InputError(f"scatter must be 'total' or 'within', not '{self.scatter}'")
        if Shrinkage.parse(self.ridge).kind == "blend":
            raise InputError(f"ridge is automatic, none, a number, absolute:λ or relative:r, not '{self.ridge}'")
        if self.intercept and self.scatter == "within":
            raise InputError(
                "an intercept belongs to the total scatter: the within scatter holds the global mean already"
            )

    @property
    def needs(self) -> StatisticsSpec:
        return StatisticsSpec.of("gram") if self.scatter == "total" else covariance_source(self.covariance).pooled_needs

    @property
    def apart_needs(self) -> StatisticsSpec:
        plain = self.scatter == "within" and self.covariance in DIAGONAL
        return self.needs | StatisticsSpec.of("client_means") if plain else self.needs

    @property
    def folds_means(self) -> bool:
        return self.scatter == "within" and self.covariance == "free" and self.divisor == DIVISORS[0]

    def score_degree(self, classifier: Classifier) -> int:  # noqa: ARG002
        return 1 if self.normalize else 0

    def least_temperature(self, classifier: Classifier) -> float:  # noqa: ARG002
        return 0.0  # scores without a unit are no log-probabilities either

    def solve(self, stats: Statistics) -> Classifier:
        weights, bias = self._total(stats) if self.scatter == "total" else self._within(stats)
        if self.normalize:
            norms = np.linalg.norm(weights, axis=0)
            norms[norms == 0] = 1.0
            weights /= norms
            bias /= norms
        return LinearClassifier(weights=weights, bias=bias, present=stats.counts > 0)

    def _total(self, stats: Statistics) -> tuple[Floats, Floats]:
        """Fed3R: G = Σ x xᵀ, around the mean if there is an intercept."""
        n, counts = stats.n_samples, stats.counts.astype(np.float64)
        mean = stats.sums.sum(axis=0) / n
        scatter, noise = total_scatter(stats)
        gram, right, energy = stats.gram, stats.sums.T.copy(), float(n)
        if self.intercept:
            gram = scatter.matrix.copy()
            right -= np.outer(mean, counts)
            energy -= float(counts @ counts) / n
        amount = self._total_penalty(stats, gram, right, energy)
        spread = scatter.trace * scatter.weight
        self._check_spread(stats, scatter.weight, spread, float(np.trace(gram)))
        around = scatter.matrix
        around[np.diag_indices_from(around)] += amount
        if Shrinkage.parse(self.ridge).kind == "automatic" and 0.0 < TOLERANCE * spread < directions(stats) * noise:
            warn_noise(stats, directions(stats) * noise / spread, "the total scatter that the ridge is chosen by")
        else:
            check_digits(stats, around, noise, amount, "the total scatter")
        if self.intercept:
            weights = solve_positive(around, right)
            return weights, counts / n - mean @ weights
        solved = solve_definite(around, _columns(stats))
        if solved is not None:
            return _ridge_weights(stats, solved), np.zeros(stats.n_classes)
        gram[np.diag_indices_from(gram)] += amount
        return solve_positive(gram, right), np.zeros(stats.n_classes)

    def _check_spread(self, stats: Statistics, weight: float, spread: float, trace: float) -> None:
        """Warn where samples do not differ, or differ by little against their distance from the origin."""
        if weight > 0 and spread == 0.0 and (stats.fixed_point is not None or stats.sums.sum(axis=0).any()):
            warn_equal(stats)
        elif self._blind(trace, spread):
            warn_far(float(np.sqrt(trace / spread)))

    def _total_penalty(self, stats: Statistics, gram: Floats, right: Floats, energy: float) -> float:
        """Return λ for a total scatter."""
        penalty = Shrinkage.parse(self.ridge)
        if penalty.kind == "automatic":
            return gcv_ridge(gram, right, energy=energy, n_samples=stats.n_samples)
        return penalty.amounts(trace=float(np.trace(gram)), dim=stats.dim, dof=float(stats.n_samples))[1]

    def _blind(self, trace: float, spread: float) -> bool:
        """Return whether the least ridge that cross-validation tries outweighs the spread of the samples."""
        automatic = Shrinkage.parse(self.ridge).kind == "automatic"
        return automatic and not self.intercept and 0.0 < spread < LEAST_GCV * trace

    def _within(self, stats: Statistics) -> tuple[Floats, Floats]:
        """FedCOF and its oracle: Ĝ = keep·scatter + N μ_g μ_gᵀ + (add·(N−C) + λ)·I."""
        source = ALL_CLIENTS if self.divisor == "clients" else self.covariance
        gaussians = ClassGaussians(stats, source)
        scatter, mean, n = gaussians.scatter, gaussians.global_mean, stats.n_samples
        spread = float(n - len(stats.classes))
        none = np.zeros(stats.n_classes)
        if scatter.n_rows is not None and scatter.n_rows + 1 < DUAL_SHARE * stats.dim:
            keep, add = gaussians.amounts(self.shrinkage, trace=scatter.trace, dof=scatter.dof)
            rows = np.sqrt(keep) * scatter.factor()
            within = float(np.einsum("ij,ij->", rows, rows)) / stats.dim + add * spread
            diagonal = add * spread + self._penalty(within + n * float(mean @ mean) / stats.dim)
            if diagonal > DUAL_LEAST_RIDGE * within:
                solved = solve_rows_plus_ridge(rows, diagonal, _columns(stats))
                return _ridge_weights(stats, solved), none
        matrix = scatter.scaled(1.0)
        keep, add = gaussians.amounts(self.shrinkage, trace=scatter.trace, dof=scatter.dof)
        matrix *= keep
        entries = np.diag_indices_from(matrix)
        matrix[entries] += add * spread
        penalty = self._penalty((float(np.trace(matrix)) + n * float(mean @ mean)) / stats.dim)
        matrix[entries] += penalty
        symmetrize_upper(matrix)
        check_digits(stats, matrix, scatter.noise * scatter.weight, add * spread + penalty)
        solution = solve_definite(matrix, _columns(stats))
        if solution is not None:
            return _ridge_weights(stats, solution), none
        return solve_positive(matrix + n * np.outer(mean, mean), stats.sums.T.copy()), none

    def _penalty(self, mean_eigenvalue: float) -> float:
        """Return λ for a within scatter."""
        penalty = Shrinkage.parse(self.ridge)
        if penalty.kind == "automatic":
            return 0.0
        return penalty.amount * (mean_eigenvalue if penalty.kind == "relative" else 1.0)


def _columns(stats: Statistics) -> Floats:
    """Return μ_c − μ_g of the classes present, and μ_g: (d, p + 1)."""
    mean = stats.sums.sum(axis=0) / stats.n_samples
    return np.asfortranarray(np.vstack([stats.sums[stats.classes] / stats.class_counts[:, None] - mean, mean]).T)


def _ridge_weights(stats: Statistics, solved: Floats) -> Floats:
    """Return (A + N μ_g μ_gᵀ)⁻¹·[N_c μ_c] (d, C) from A⁻¹ times :func:`_columns`."""
    weights = np.zeros((stats.dim, stats.n_classes))
    mean = stats.sums.sum(axis=0) / stats.n_samples
    weights[:, stats.classes] = around_mean(solved, mean, stats.n_samples) * stats.class_counts
    return weights


@dataclass(frozen=True)
class FourierRidge(Ridge):
    """Fed3R-RF: ridge regression after random Fourier features of an RBF kernel.

    Parameters
    ----------
    n_features
        D, how many random features (5,000 or 10,000 in the paper).
    bandwidth
        σ of the kernel, in feature units; ``automatic`` estimates the typical distance of two samples from a first
        exchange of counts, sums and norms.
    map_seed
        Public seed of the map.
    scatter, covariance, shrinkage, ridge, intercept, normalize
        As in :class:`Ridge`.

    Examples
    --------
    >>> FourierRidge(n_features=64, bandwidth=2.0).feature_map(8, None).output_dim(8)
    64
    """

    n_features: int = 5000
    bandwidth: str | float = "automatic"
    map_seed: int = 0

    #: What the automatic bandwidth is estimated from.
    PILOT: ClassVar[StatisticsSpec] = StatisticsSpec.of("class_norms")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bandwidth != "automatic":
            try:
                positive = float(self.bandwidth) > 0
            except ValueError:
                positive = False
            if not positive:
                raise InputError(f"bandwidth must be 'automatic' or a positive number, not '{self.bandwidth}'")

    @property
    def pilot_needs(self) -> StatisticsSpec | None:
        return self.PILOT if self.bandwidth == "automatic" else None

    def mapped_dim(self, dim: int) -> int:  # noqa: ARG002 - as many as there are random features
        return self.n_features

    def feature_map(self, dim: int, pilot: Statistics | None) -> FeatureMap | None:
        if self.bandwidth != "automatic":
            bandwidth = float(self.bandwidth)
        elif pilot is None:
            raise InputError("an automatic bandwidth needs the clients' counts, sums and norms first, or give a number")
        else:
            norms = float(pilot.class_array("class_norms").sum())
            bandwidth = median_bandwidth(pilot.n_samples, pilot.sums.sum(axis=0), norms)
        return RandomFourier(dim, self.n_features, bandwidth, self.map_seed)


PRESETS = (
    Preset("fed3r", Ridge, "ridge on the total scatter", "Fed3R, Fanì et al. 2024"),
    Preset("fed3r-rf", FourierRidge, "ridge on random Fourier features", "Fed3R, Fanì et al. 2024"),
    Preset(
        "fedcof",
        Ridge,
        "ridge on the within scatter, free covariance of client means",
        "FedCOF, Goswami et al. 2025",
        {"scatter": "within", "covariance": "free"},
    ),
    Preset(
        "fedcof-oracle",
        Ridge,
        "ridge on the within scatter, exact covariance (Fed3R's payload)",
        "FedCOF, Goswami et al. 2025",
        {"scatter": "within", "covariance": "exact"},
    ),
    Preset(
        "fedcof-diagonal",
        Ridge,
        "ridge on the within scatter, diagonal covariances sent",
        "FedCOF, Goswami et al. 2025",
        {"scatter": "within", "covariance": "diagonal"},
    ),
    Preset(
        "fedcof-spherical",
        Ridge,
        "ridge on the within scatter, one variance a class sent",
        "FedCOF, Goswami et al. 2025",
        {"scatter": "within", "covariance": "spherical"},
    ),
    Preset(
        "sketch",
        Ridge,
        "ridge on the within scatter, from client means and scatter sketches",
        "new here, after FedCOF",
        {"scatter": "within", "covariance": "sketch"},
    ),
)
