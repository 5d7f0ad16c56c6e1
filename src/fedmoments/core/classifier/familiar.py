"""What a classifier has seen: class means and variances, by which it knows what it does not know.

With μ_c the class means, v the variances inside classes, μ and t those of all samples (t = v plus the variance of class
means), and D²(x; m, s) = Σ_j (x_j − m_j)²/s_j, the distance of a sample to the classes is

    mahalanobis   min_c D²(x; μ_c, v) / d
    relative      [min_c D²(x; μ_c, v) − D²(x; μ, t)] / (d·w),    w = mean_j t_j/v_j − 1

after Lee et al. (2018) and Ren et al. (2021). Samples of the classes have a relative distance of about 0, samples that
belong to no class but vary as all of them do about 1. Full covariances do no better on held-out classes and other data
than their diagonals do (docs/calibration.md), which take (C + 2)·d numbers instead of d².

Relative distances see nothing of directions in which classes do not differ, Mahalanobis distances little of samples
between classes, and neither sees that all features are low together: of rectified features, 0 is a common value of each
by itself, but black and empty images have it in nearly all. So there is a third distance,

    level         −uᵀ(x − μ)/σ_u,    u = μ/‖μ‖,    σ_u² = uᵀTu with the covariance T of all samples,

where the statistics hold that covariance and the origin is at least three σ_u away (features around the origin have no
level). Levels are sums of many features and nearly normal, below their mean; that is the tail they are given. A sample
is unknown by any distance. Relative distances of samples of the classes exceed q with a probability
of about exp(−q/0.26). Squared Mahalanobis distances are those of χ² with four degrees of freedom, however many
dimensions there are: features vary together; four times such a distance exceeds x with probability (1 + x/2)·exp(−x/2).
Both constants were chosen on BANKING77, CIFAR-10, digits and Office-Caltech with SqueezeNet. The familiarity of a
sample is the smallest of these probabilities times their number: the share of familiar samples that are about as new.

**Law** features times a constant change no relative and no Mahalanobis distance.
**Law** a sample is beyond the thresholds of a share if and only if its familiarity is below that share.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.linalg import blocks
from fedmoments.errors import InputError

__all__ = ["Distance", "Familiar"]

Distance = Literal["relative", "mahalanobis", "level"]
Floats = NDArray[np.floating[Any]]

#: Mean of the exponential tail of relative distances.
TAIL = 0.26
#: Degrees of freedom of squared Mahalanobis distances.
FREEDOM = 4
#: Deviations of the level by which the origin lies below the mean, at least, of features that have a level.
LEAST_LEVEL = 3.0
#: Names of its tensors in a classifier file begin so.
PREFIX = "familiar."
#: Dimensions with less than this share of the mean variance have that share.
LEAST_SHARE = 1e-3


@dataclass(frozen=True, eq=False)
class Familiar:
    """Moments of what a classifier was fitted from.

    Parameters
    ----------
    means
        (C, d) class means in mapped features; of classes without a sample, anything.
    variances
        (d,) inside classes.
    shares
        (C,) of all samples; 0 of a class without one.
    level
        (1,) variance of all samples along their mean; None where it is not known, or they have no level.

    Examples
    --------
    >>> seen = Familiar(np.array([[0.0, 0.0], [4.0, 0.0]]), np.ones(2), np.array([0.5, 0.5]))
    >>> seen.distances(np.array([[0.0, 0.0], [2.0, 0.0], [9.0, 0.0]])).round(2)
    array([-0.2,  1. ,  3.8])
    >>> round(seen.threshold(0.01), 2)
    1.2
    """

    means: NDArray[np.float64]
    variances: NDArray[np.float64]
    shares: NDArray[np.float64]
    level: NDArray[np.float64] | None = None

    def __post_init__(self) -> None:
        n_classes, dim = self.means.shape if self.means.ndim == 2 else (-1, -1)
        if self.variances.shape != (dim,) or self.shares.shape != (n_classes,):
            raise InputError(
                f"what a classifier has seen are means (C, d), variances (d,) and shares (C,), but these are of shapes "
                f"{self.means.shape}, {self.variances.shape} and {self.shares.shape}"
            )
        sound = [np.isfinite(self._present), self.variances > 0, self.shares >= 0, np.isclose(self.shares.sum(), 1.0)]
        if not all(np.all(each) for each in sound):
            raise InputError(
                "what a classifier has seen has finite means, variances above 0 and shares that sum to 1, but other "
                "numbers arrived"
            )
        if self.level is not None and (self.level.shape != (1,) or not 0.0 < self.level[0] < math.inf):
            raise InputError("the variance of what a classifier has seen along its mean is one number above 0, or none")

    @cached_property
    def _present(self) -> NDArray[np.float64]:
        return self.means[self.shares > 0]

    @cached_property
    def total(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Mean (d,) and variances (d,) of all samples."""
        shares = self.shares[self.shares > 0]
        mean = shares @ self._present
        return mean, self.variances + shares @ (self._present - mean) ** 2

    @cached_property
    def _unit(self) -> float:
        """w, by how much relative distances of samples that belong to no class exceed those of the classes."""
        return float(np.mean(self.total[1] / self.variances)) - 1.0

    def distances(self, Z: Floats, kind: Distance = "relative") -> NDArray[np.float64]:
        """Return the distance (n,) of mapped features Z (n, d) to the classes; see the module.

        Of one class alone, and of classes with equal means, relative distances are Mahalanobis distances less 1.
        """
        if kind not in get_args(Distance):
            raise InputError(f"the distance must be one of {', '.join(get_args(Distance))}, not {kind!r}")
        if kind == "level" and self.level is None:
            raise InputError(
                "this classifier knows of no level of its features: they lie around the origin, or its head is fitted "
                "from statistics without a covariance between features; take the distance 'relative' or 'mahalanobis'"
            )
        found = np.empty(len(Z))
        for block in blocks(len(Z)):
            rows = np.asarray(Z[block], np.float64)
            found[block] = (
                rows @ self.downwards[0] + self.downwards[1] if kind == "level" else self._nearest(rows, kind)
            )
        return found

    def _nearest(self, Z: NDArray[np.float64], kind: Distance) -> NDArray[np.float64]:
        mean, total = self.total
        away = (Z - mean) / np.sqrt(self.variances)
        centres = (self._present - mean) / np.sqrt(self.variances)
        squares = np.einsum("nd,nd->n", away, away)
        nearest = (np.einsum("cd,cd->c", centres, centres) - 2.0 * away @ centres.T).min(axis=1) + squares
        if kind == "mahalanobis" or not self.has_relative:
            return np.asarray(np.maximum(nearest, 0.0) / len(mean) - (kind == "relative"))
        around = ((Z - mean) ** 2 / total).sum(axis=1)
        return np.asarray((nearest - around) / (len(mean) * self._unit))

    @cached_property
    def downwards(self) -> tuple[NDArray[np.float64], float]:
        """What levels are made of: samples times a slope (d,), plus a number; zeros where there is no level."""
        mean = self.total[0]
        if self.level is None:
            return np.zeros_like(mean), 0.0
        size = float(np.linalg.norm(mean))
        deviation = float(np.sqrt(self.level[0]))
        return -mean / (size * deviation), size / deviation

    @property
    def n_distances(self) -> int:
        """By how many distances a sample may be unknown."""
        return 2 + (self.level is not None)

    @property
    def has_relative(self) -> bool:
        """Whether class means differ; of one class alone relative distances are Mahalanobis distances less 1."""
        return self._unit > 1e-9

    @property
    def tail(self) -> float:
        """Mean of the exponential tail of relative distances, times d·w."""
        return TAIL * len(self.variances) * self._unit

    def familiarity(self, Z: Floats) -> NDArray[np.float64]:
        """Return about which share (n,) of samples of the classes is as new as mapped features Z (n, d), at most 1."""
        away = FREEDOM * self.distances(Z, "mahalanobis")
        share = (1.0 + away / 2.0) * np.exp(-away / 2.0)
        if self.has_relative:
            share = np.minimum(share, np.exp(-np.maximum(self.distances(Z), 0.0) / TAIL))
        if self.level is not None:
            share = np.minimum(share, 0.5 * np.exp(-0.5 * np.maximum(self.distances(Z, "level"), 0.0) ** 2))
        return np.asarray(np.minimum(self.n_distances * share, 1.0))

    def threshold(self, share: float, kind: Distance = "relative") -> float:
        """Return the distance that about this share of samples of the classes exceeds.

        Parameters
        ----------
        share
            From 0 to 1, both excluded.
        kind
            Of distances.
        """
        if not 0.0 < share < 1.0:
            raise InputError(f"the share of familiar samples that are rejected must lie between 0 and 1, not {share}")
        if kind == "relative" and self.has_relative:
            return -TAIL * math.log(share)
        from scipy.special import chdtri

        if kind == "level":
            return math.sqrt(max(-2.0 * math.log(2.0 * share), 0.0))
        return float(chdtri(FREEDOM, share)) / FREEDOM - (kind == "relative")

    def times_power(self, exponent: int) -> "Familiar | None":
        """Return what was seen of features multiplied by 2^exponent; None where variances leave what float64 holds."""
        with np.errstate(over="ignore", under="ignore"):
            grown = [np.ldexp(self.means, exponent), np.ldexp(self.variances, 2 * exponent)]
            level = None if self.level is None else np.ldexp(self.level, 2 * exponent)
        spreads = grown[1:] if level is None else [grown[1], level]
        if not all(np.isfinite(array).all() for array in (*grown, *spreads)) or any((s <= 0).any() for s in spreads):
            return None
        return Familiar(grown[0], grown[1], self.shares, level)

    def tensors(self) -> dict[str, NDArray[Any]]:
        """Return what a classifier file holds of it; means in single precision."""
        kept = np.where((self.shares > 0)[:, None], self.means, 0.0)
        with np.errstate(over="ignore"):
            narrow = kept.astype(np.float32)
        single = np.isfinite(narrow).all() and (narrow.any() or not kept.any())
        parts = {"means": narrow if single else kept, "variances": self.variances, "shares": self.shares}
        if self.level is not None:
            parts["level"] = self.level
        return {f"{PREFIX}{name}": array for name, array in parts.items()}

    @staticmethod
    def taken_from(tensors: dict[str, NDArray[Any]]) -> "Familiar | None":
        """Remove its tensors from those of a file and return it; None where there are none, as in files of 0.1."""
        own: Mapping[str, NDArray[Any]] = {
            name.removeprefix(PREFIX): tensors.pop(name) for name in list(tensors) if name.startswith(PREFIX)
        }
        if not own:
            return None
        if set(own) - {"level"} != {"means", "variances", "shares"} or any(a.dtype.kind != "f" for a in own.values()):
            raise InputError(
                f"what it has seen must be means, variances, shares and a level, but {sorted(own)} arrived"
            )
        return Familiar(**{name: array.astype(np.float64) for name, array in own.items()})
