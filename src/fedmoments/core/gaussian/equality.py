"""Whether classes have different covariances, or the same one that was measured from few samples.

If all were Σ, a class covariance from ν_c degrees of freedom would differ from the pooled one by chance:

    E‖Σ̂_c − Σ̂_pool‖² = (1/ν_c − 1/ν)·(tr(Σ)² + tr(Σ²)),

in squared Frobenius norms, with ν = Σ_c ν_c, whatever d and ν_c. The *ratio* of Σ_c ν_c‖Σ̂_c − Σ̂_pool‖² to what chance
gives is 1 then, and above 1 where classes differ. No inverse is taken, so it serves in more dimensions than samples (as
in Schott 2007); where Σ = I it is Nagao's test of 1973. The ratio is compared with a χ² of as many degrees of freedom
as match its variance, f = (C − 1)·(tr(Σ)² + tr(Σ²))²/(2·(tr(Σ²)² + tr(Σ⁴))).

It assumes Gaussian classes: heavy tails look like different covariances.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc

__all__ = ["CovarianceEquality"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class CovarianceEquality:
    """How much class covariances differ, and how likely chance alone makes them differ as much.

    Parameters
    ----------
    ratio
        Squared differences from the pooled covariance, in units of what chance gives; about 1 for equal covariances.
    chance
        Probability of such a ratio, or a larger one, for equal covariances of Gaussian classes.

    Examples
    --------
    >>> pooled = np.diag([2.5, 1.0])
    >>> classes = [(np.diag([4.0, 1.0]), 50.0), (np.diag([1.0, 1.0]), 50.0)]
    >>> CovarianceEquality.of(classes, pooled).chance < 1e-3
    True
    >>> CovarianceEquality.of([(pooled, 50.0), (pooled, 50.0)], pooled)
    CovarianceEquality(ratio=0.0, chance=1.0)
    """

    ratio: float
    chance: float

    @classmethod
    def of(cls, classes: Iterable[tuple[Floats, float]], pooled: Floats) -> "CovarianceEquality":
        """Compare class covariances with the pooled one.

        Parameters
        ----------
        classes
            Covariance (d, d) and degrees of freedom ν_c of every class; those with ν_c = 0 are passed over.
        pooled
            (d, d), the mean of the class covariances weighted by ν_c or nearly so.
        """
        statistic, dofs = 0.0, []
        for covariance, dof in classes:
            if dof > 0:
                statistic += dof * float(np.square(covariance - pooled).sum())
                dofs.append(dof)
        total = sum(dofs)
        trace, square = float(np.trace(pooled)) ** 2, float(np.square(pooled).sum())
        if len(dofs) < 2 or square <= 0.0:
            return cls(ratio=1.0, chance=1.0)
        fourth = float(np.square(pooled @ pooled).sum())
        degrees = (len(dofs) - 1) * (trace + square) ** 2 / (2.0 * (square**2 + fourth))
        # The pooled covariance is an estimate too:
        # E tr(Σ̂)² = tr(Σ)² + 2tr(Σ²)/ν and E tr(Σ̂²) = tr(Σ²) + (tr(Σ)² + tr(Σ²))/ν.
        true_square = max((square - trace / total) / (1.0 + 1.0 / total - 2.0 / total**2), 0.0)
        unit = trace + (1.0 - 2.0 / total) * true_square
        ratio = statistic / (unit * sum(1.0 - dof / total for dof in dofs))
        return cls(ratio=ratio, chance=float(chdtrc(degrees, ratio * degrees)))
