"""How far sums can be told from rounding, and what is said where they cannot.

A scatter S − N μ² is the difference of two sums of squares. Either is rounded, so that of N equal samples not 0 is left
but up to

    u = a·ε·S + b·(r₂ + 2·√(S/N)·r₁),    a = min(0.2·N + 8, 24·√N),    b = 7·√N,

with ε = 2⁻⁵² and, in fixed point, r₁ and r₂ the resolutions of sums and of sums of squares. Equal samples round alike,
so that their errors add up: 0.1·ε·S a sample in a block of BLAS and a client in a running sum, as measured up to 10⁶
samples and 20,000 clients. What is not above u counts as 0. Samples that differ round by a sixteenth of it or so.

A dimension in which the samples of no class differ beyond u has no spread, but where class means differ in it, there
may be one that rounding hides: up to u of it is missing.

Steps of fixed point are as large in all entries of a matrix, so that an eigenvalue, and a rule that compares two
classes, is off by more than one entry is: by 2·√d steps of a random matrix at most, of which those d directions that
are solved with see a few. Five was measured: against a referee of sixty digits, one random example in some 10,000 still
misses one point on a boundary unsaid, and a default federation of sentence vectors (norms of 1, a bound of 1,024) is
not warned of what changes none of its predictions.

Deviations of client means from class means are differences of numbers, not of their squares: they are off by √N·ε of
the means, by r₁/n of a mean of n samples, and by the code that means travel in.
"""

import warnings

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.linalg import EPSILON, least_eigenvalue
from fedmoments.core.statistics.fixed_point import FixedPoint
from fedmoments.core.statistics.rounding import mean_steps
from fedmoments.core.statistics.statistics import Statistics
from fedmoments.errors import FitWarning

__all__ = [
    "CODE_TOLERANCE",
    "DEAD",
    "HIDDEN",
    "LEAST_SPREAD",
    "MEANS_ONLY",
    "MOST_CODE",
    "TOLERANCE",
    "TYPICAL",
    "check_any_left",
    "check_digits",
    "check_means",
    "directions",
    "noise_of_codes",
    "noise_of_rows",
    "noise_of_squares",
    "warn_code",
    "warn_equal",
    "warn_far",
    "warn_flat",
    "warn_noise",
]

Floats = NDArray[np.float64]

#: Equal samples leave up to this many times √N·ε of their size between client means and class means.
DEAD = 24.0
#: Samples that differ round by this share of what equal ones do.
TYPICAL = 1.0 / 16.0
#: Rounding of a covariance, as a share of its least eigenvalue, from which predictions may differ from exact ones.
TOLERANCE = 0.01
#: Rounding of client means by their code, as a share of the standard deviation inside classes, that is warned of.
CODE_TOLERANCE = 0.25
#: Where classes have no spread, the variance they are given, as a share of the variance between them.
LEAST_SPREAD = 2.0**-40
#: Squares of rounding errors by a code, (½)², are 3 times their mean, 1/12; those of a mean and its class mean add up.
MOST_CODE = 6.0
#: In fixed point, scores are off by this many times what one entry of a matrix is.
DIRECTIONS = 5.0
#: The scatter of class means, as a share of rounding, from which a dimension counts: below, it is as good as constant.
HIDDEN = 1e-4
#: Where only means decide, nothing is divided by a small spread: a hundredth of what is allowed elsewhere is asked.
MEANS_ONLY = 100.0
#: Standard deviation of a rounding to whole numbers, 1/√12.
_STEP = 12.0**-0.5


def noise_of_squares(squares: Floats, counts: Floats | float, form: FixedPoint | None) -> Floats:
    """Return u (…), what rounding may leave of sums of squares of equal numbers once those of means are subtracted.

    Parameters
    ----------
    squares
        (…) Σ x² over samples.
    counts
        How many samples; broadcasts against ``squares``.
    form
        The fixed-point form of the sums, or None for float64.

    Examples
    --------
    >>> bool(noise_of_squares(np.array([1e6]), 100.0, None) < 1e-8)
    True
    >>> noise_of_squares(np.array([1e6]), 100.0, FixedPoint(1e6, 2**20)).round(2)
    array([17.32])
    """
    root = np.sqrt(counts)
    rounding = np.minimum(0.2 * np.square(root) + 8.0, DEAD * root) * EPSILON * squares
    if form is not None:
        size = np.sqrt(squares / np.maximum(counts, 1.0))
        rounding = rounding + DEAD * _STEP * root * (form.resolution(2) + 2.0 * size * form.resolution(1))
    return np.asarray(rounding)


def noise_of_rows(stats: Statistics, means: Floats) -> float:
    """Return Σ n ‖error‖² over rows of client means, what rounding makes of their scatter around class means.

    Parameters
    ----------
    stats
        With client means.
    means
        (C, d) class means.

    Examples
    --------
    >>> from fedmoments.core.statistics import StatisticsSpec
    >>> stats = Statistics.of([[3.0]] * 4, [0] * 4, StatisticsSpec.of("client_means"), n_classes=1)
    >>> bool(noise_of_rows(stats, np.array([[3.0]])) < 1e-28)
    True
    """
    noise = stats.n_samples * EPSILON**2 * float(stats.counts @ np.einsum("cd,cd->c", means, means))
    if stats.fixed_point is not None:
        noise += stats.dim * (_STEP * stats.fixed_point.resolution(1)) ** 2 * float((1.0 / stats.row_counts).sum())
    return noise


def noise_of_codes(stats: Statistics) -> float:
    """Return Σ n ‖error‖² over rows of client means that travelled in a code, as a scatter sketch's budget allows."""
    plan = stats.spec.plan
    if plan is None or plan.budget is None or not stats.rounded:
        return 0.0
    own = stats.row_owners >= 0  # of the others, nobody knows how many classes their clients held
    steps = mean_steps(stats.rows.block_sums()[own], stats.row_counts[own], stats.row_owners[own], plan)
    return stats.dim * float(stats.row_counts[own] @ (_STEP * steps) ** 2)


def directions(stats: Statistics) -> float:
    """Return how many times the rounding of one entry of a matrix counts in scores: fixed point rounds all alike."""
    return 1.0 if stats.fixed_point is None else DIRECTIONS


def check_any_left(stats: Statistics) -> None:
    """Warn where fixed point has rounded all features of all samples to 0: no head has anything to go by.

    Parameters
    ----------
    stats
        What was measured.
    """
    if stats.fixed_point is not None and len(stats.classes) > 1 and not stats.sums.any():
        warn_equal(stats)


def check_means(stats: Statistics, between: float) -> None:
    """Warn where fixed point has rounded class means by much of the distance between them.

    Parameters
    ----------
    stats
        What was measured.
    between
        Mean squared distance of class means from the global mean; where it is 0, classes cannot be separated anyway.
    """
    if stats.fixed_point is None or between <= 0.0:
        return
    step = _STEP * stats.fixed_point.resolution(1)
    share = MEANS_ONLY * step * float(np.sqrt(stats.dim / (stats.class_counts.min() * between)))
    if share > TOLERANCE:
        warn_noise(stats, share / MEANS_ONLY, "the distances of class means")


def check_digits(
    stats: Statistics, matrix: Floats, noise: float, least: float, what: str = "the covariance inside classes"
) -> None:
    """Warn where rounding has taken digits from a matrix (d, d) that is to be solved with.

    Parameters
    ----------
    stats
        What it was made from.
    matrix
        Symmetric, definite; a singular one is solved without its null space, and not judged.
    noise
        What rounding leaves of an entry of its diagonal.
    least
        A bound from below on these: only where rounding is not small against it, they are looked for.
    what
        What it is, for the message.
    """
    noise *= directions(stats)
    if noise <= TOLERANCE * least:
        return
    lowest = least_eigenvalue(matrix, noise / TOLERANCE)
    if lowest is not None and noise > TOLERANCE * lowest:
        warn_noise(stats, noise / lowest, what)


def warn_flat(stats: Statistics, deviation: float, rule: str = "the nearest class mean decides") -> None:
    """Warn that no spread inside classes is left.

    Parameters
    ----------
    stats
        What was measured.
    deviation
        Standard deviation, in feature units, below which samples cannot be told from equal ones.
    rule
        What tells classes apart then.
    """
    _warn(
        f"the samples of a class do not differ beyond rounding: a standard deviation below {deviation:.2g} cannot be "
        f"distinguished from 0 in {_form(stats)}. Without a spread inside classes, {rule}. If samples do differ, "
        f"{_remedy(stats)}"
    )


def warn_noise(stats: Statistics, share: float, what: str = "the covariance inside classes") -> None:
    """Warn that rounding has taken digits that a solution depends on.

    Parameters
    ----------
    stats
        What was measured.
    share
        Rounding as a share of the least eigenvalue, or of the variance, that is solved with.
    what
        What was rounded.
    """
    _warn(
        f"rounding is {100 * share:.2g} % of {what} where that is least, in {_form(stats)}: predictions can differ "
        f"from exact ones. To keep more digits, {_remedy(stats)}"
    )


def warn_code(share: float) -> None:
    """Warn that client means were rounded to their code by much of the spread inside classes."""
    _warn(
        f"client means were rounded, to fit their budget, by {share:.2g} times the standard deviation inside classes: "
        "they are large against it, and predictions suffer. Subtract a public vector from all features first "
        "(the map Offset of fedmoments.core.maps), or allow a larger budget"
    )


def warn_equal(stats: Statistics) -> None:
    """Warn that all samples of all classes are equal beyond rounding."""
    _warn(
        f"all samples are equal beyond rounding in {_form(stats)}: classes cannot be separated. If samples do differ, "
        f"{_remedy(stats)}"
    )


def warn_far(ratio: float) -> None:
    """Warn that a ridge that scales with the total scatter is that of the offset of the features."""
    _warn(
        f"features lie {ratio:.2g} standard deviations away from the origin, so that even the least ridge in units of "
        "the total scatter outweighs the samples' spread: fit with intercept=True, give the ridge as a number, or "
        "subtract a public vector near their mean from all features first (the map Offset of fedmoments.core.maps)"
    )


def _form(stats: Statistics) -> str:
    size = float(np.abs(stats.sums).max(initial=0.0)) / max(float(stats.counts.max(initial=1)), 1.0)
    if stats.fixed_point is None:
        return f"float64 sums of features of size {size:.2g}"
    bound, most = stats.fixed_point.norm_bound, stats.fixed_point.max_samples
    return f"fixed point with norm_bound={bound:g} and max_samples={most} (features are of size {size:.2g})"


def _remedy(stats: Statistics) -> str:
    centre = "subtract a public vector near their mean from all features first (the map Offset of fedmoments.core.maps)"
    if stats.fixed_point is None:
        return f"{centre}."
    return f"{centre}, and agree on the least norm_bound and max_samples that fit."


def _warn(message: str) -> None:
    warnings.warn(message, FitWarning, stacklevel=6)
