"""How far class means are to be believed: the mean of few samples lies too far out.

In the space where the shrunk covariance Σ̃ is the identity, the mean of n_c of N samples differs from the true one by a
noise of squared length e_c = E·(1/n_c − 1/N), E = tr(Σ̃⁻¹Σ), and so the measured squared distance q_c of a class from
the mean of all samples is too large by e_c on average. With P the mean squared distance of the true class means, the
best guess of a class mean is the measured one, moved towards the mean of all samples:

    μ_g + s_c·(μ_c − μ_g),    s_c = P/(P + e_c)

P is the one under which the measured q_c are most likely, that is q_c/E ~ (P + e_c)/E · χ²/E with E degrees of freedom:
P = Σ w_c (q_c − e_c)/Σ w_c with w_c = (P + e_c)⁻², solved by repetition. It is no smaller than its own standard error,
so that classes which noise may have put apart are not all put into one place.

Classes of many samples are moved by nothing that matters. In a long tail the small classes otherwise repel samples by
½·e_c (BANKING77 with 1 to 100 samples a class, 100 clients: QDA 68.7 → 73.9, where FedCOF has 73.9).

**Laws** s_c → 1 with many samples; classes of one size share one s; features times a constant change none.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack, solve_triangular

from fedmoments.core.floats import is_single
from fedmoments.core.gaussian.class_gaussians import ClassGaussians
from fedmoments.core.gaussian.shrinkage import Shrinkage
from fedmoments.core.linalg import lower_factor
from fedmoments.errors import InputError

__all__ = ["MEANS", "believed_means", "check_means", "trust_in_means"]

Floats = NDArray[np.float64]

#: Class means as they were measured, or each as far from the mean of all samples as noise leaves it.
MEANS = ("measured", "shrunk")
#: Repetitions at most, and the change below which there are no more.
MOST_STEPS, STEP = 200, 1e-10


def check_means(means: str) -> None:
    """Refuse what is neither ``measured`` nor ``shrunk``."""
    if means not in MEANS:
        raise InputError(f"means is {' or '.join(MEANS)}; '{means}' arrived")


def believed_means(
    gaussians: ClassGaussians, means: str = "measured", shrinkage: Shrinkage | str | float = "automatic"
) -> Floats:
    """Return class means (C, d) less the global mean: as measured, or shrunk; 0 for a class without a sample.

    Examples
    --------
    >>> from fedmoments.core.statistics import Statistics, StatisticsSpec
    >>> X, y = np.array([[0.0], [2.0], [0.0], [2.0], [9.0]]), [0, 0, 0, 0, 1]
    >>> gaussians = ClassGaussians(Statistics.of(X, y, StatisticsSpec.of("gram"), n_classes=2))
    >>> believed_means(gaussians).ravel(), believed_means(gaussians, "shrunk").round(2).ravel()
    (array([-1.6,  6.4]), array([-1.59,  6.08]))
    """
    check_means(means)
    centred = gaussians.centred_means
    if means == "measured":
        return centred
    key = gaussians.source, str(Shrinkage.parse(shrinkage)), is_single()
    shares = gaussians.stats.shared("trust", key, lambda: _shares(gaussians, centred, shrinkage))
    return centred * shares[:, None]


def _shares(gaussians: ClassGaussians, centred: Floats, shrinkage: Shrinkage | str | float) -> Floats:
    """Return s_c (C,); 1 where nothing is known of the noise of means."""
    scatter, counts = gaussians.scatter, gaussians.counts
    if scatter.dof <= 0 or scatter.weight <= 0 or gaussians.flat:
        return np.ones(len(counts))
    lower = lower_factor(gaussians.pooled_covariance(shrinkage))
    if lower is None:  # a singular covariance has no noise in the directions that decide
        return np.ones(len(counts))
    keep, add = gaussians.amounts(shrinkage, trace=scatter.trace, dof=scatter.dof)
    inverse = lapack.dtrtri(lower.T, lower=0)[0]
    noise = (len(lower) - add * float(np.vdot(inverse, inverse))) / keep if keep > 0.0 else 0.0
    white = solve_triangular(lower, centred.T, lower=True)
    return trust_in_means(np.einsum("dc,dc->c", white, white), noise, counts)


def trust_in_means(distances: Floats, noise: float, counts: NDArray[np.int64]) -> Floats:
    """Return s_c (C,), from 0 to 1: how much of a class's distance from the mean of all is more than noise.

    Parameters
    ----------
    distances
        (C,) q_c, squared distances in a space where samples of a class spread by E in all.
    noise
        E.
    counts
        (C,) samples n_c; 0 for classes that do not count.

    Examples
    --------
    >>> trust_in_means(np.array([9.0, 9.0, 9.0]), 5.0, np.array([1, 10, 1000])).round(2)
    array([0.61, 0.94, 1.  ])
    """
    shares, total = np.ones(len(counts)), float(counts.sum())
    own = (counts > 0) & (counts < total)
    if noise <= 0.0 or not own.any():
        return shares
    errors = noise * (1.0 / counts[own] - 1.0 / total)
    known = distances[own]
    least = float(np.sqrt(2.0 / (noise * np.sum(errors**-2.0))))
    size = max(float(np.mean(known - errors)), least)
    for _ in range(MOST_STEPS):
        weights = ((size + errors.min()) / (size + errors)) ** 2
        step = max(float(weights @ (known - errors) / weights.sum()), least)
        if abs(step - size) <= STEP * size:
            break
        size = step
    shares[own] = size / (size + errors)
    return shares
