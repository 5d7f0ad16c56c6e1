"""By how much one sample, or one client, changes a release.

A release is one long vector: counts, sums and every other moment that is sent, each times a public weight w_m; packed
symmetric matrices have √2 on their off-diagonal entries, so that their norm is the Frobenius norm of the matrix. With
‖x‖ ≤ R one sample's share of a moment of degree g has a norm of at most R^g, because it is the g-th tensor power of x
or its diagonal (coordinate-wise powers) or trace (norms); the count has g = 0.

**Add or remove one sample** Δ² = Σ_m w_m² R^{2g}, attained by x = R·e₁.

**Replace one sample** x of class c by x' of class c'. For every moment in which they meet, with p = ‖x‖², q = ‖x'‖² and
u = ⟨x, x'⟩, ‖φ(x) − φ(x')‖² ≤ p^g + q^g − 2u^g (equal for tensor powers; their diagonals and traces are nearer). For
any u this grows with p and q, so both are R², and u = R²t, −1 ≤ t ≤ 1. In the moments where they do not meet, both
shares count whole, w²·2R^{2g}. So with meeting moments M

    Δ² = 2·Σ_m w_m² R^{2g} − 2·min_t Σ_{m∈M} w_m² R^{2g} t^g.

Samples of one class meet in all moments (also in the count, t⁰ = 1), those of two classes only in moments of all
classes (the gram: its minimum is 0 at t = 0, which gives √2 times the Δ of adding). The larger of the two holds.

**One client** has its whole weighted vector clipped to a norm of S: Δ = S for adding or removing it, 2S for replacing.

Beyond the formulas: norms may exceed R by ``SLACK`` (features normalised in float32), and each client rounds every sum
to the grid: a difference of two rounded sums is off by at most one step of the grid an entry. Clipped clients are
rounded towards zero, which needs no such room. Sums in float64 over n samples of a client are off by at most n²·2⁻⁵² of
one sample's share, and much less where rows are added block by block: up to 60,000 samples a client that is covered, in
the worst case, by :data:`fedmoments.privacy.dp.noise_plan.MARGIN`.
"""

import math
from collections.abc import Mapping

import numpy as np

from fedmoments.core.statistics import MOMENTS, FixedPoint
from fedmoments.core.statistics.fixed_point import SLACK
from fedmoments.errors import PrivacyError
from fedmoments.privacy.dense import DenseLayout

__all__ = ["COUNTS", "degree_of", "largest_norm", "rounding", "sample_sensitivity"]

#: The name under which counts have a weight; moments have their own.
COUNTS = "counts"
#: Steps of the grid by which an entry of a difference may be off: half a step for each of two roundings.
GRID_STEPS = 1.0


def degree_of(name: str) -> int:
    """Return by which power of the features a part of the release grows; 0 for counts.

    Examples
    --------
    >>> degree_of("counts"), degree_of("gram")
    (0, 2)
    """
    return 0 if name == COUNTS else MOMENTS[name].degree


def largest_norm(clip: float) -> float:
    """Return the largest norm that a sample clipped to ``clip`` may have, rounding included.

    Examples
    --------
    >>> largest_norm(2.0)
    2.00002
    """
    return clip * (1.0 + SLACK)


def sample_sensitivity(layout: DenseLayout, weights: Mapping[str, float], norm: float, neighbours: str) -> float:
    """Return Δ of one sample, in weighted units, before rounding.

    Parameters
    ----------
    layout
        Which moments, of how many classes.
    weights
        w_m of ``counts`` and of every moment of the layout.
    norm
        R, largest norm of a sample.
    neighbours
        ``add-remove`` or ``replace``.

    Examples
    --------
    >>> from fedmoments.core.statistics import StatisticsSpec
    >>> layout = DenseLayout(StatisticsSpec.of("gram"), n_classes=3, dim=4)
    >>> unit = {"counts": 1.0, "sums": 1.0, "gram": 1.0}
    >>> round(sample_sensitivity(layout, unit, 1.0, "add-remove") ** 2, 9)
    3.0
    >>> round(sample_sensitivity(layout, unit, 1.0, "replace") ** 2, 9)
    6.0
    """
    for name in layout.spec.sent:
        if not MOMENTS.is_built_in(name):
            raise PrivacyError(
                f"how much one sample can change the moment '{name}', which is not a part of fedmoments, is proven "
                "nowhere: no noise hides it for sure. Measure it without an epsilon, or leave it out"
            )
    energies = {name: (weights[name] * norm ** degree_of(name)) ** 2 for name in (COUNTS, *layout.spec.sent)}
    total = sum(energies.values())
    if neighbours == "add-remove":
        return math.sqrt(total)
    pairs = [_least_overlap(energies)]
    if layout.n_classes > 1:
        pairs.append(_least_overlap({name: energies[name] for name in layout.of_all}))
    return math.sqrt(2.0 * total - 2.0 * min(pairs))


def _least_overlap(energies: Mapping[str, float]) -> float:
    """Return min over −1 ≤ t ≤ 1 of Σ energy·t^degree: a polynomial, so at an end or where its slope is 0."""
    if not energies:
        return 0.0
    coefficients = np.zeros(1 + max(degree_of(name) for name in energies))
    for name, energy in energies.items():
        coefficients[degree_of(name)] += energy
    polynomial = np.polynomial.Polynomial(coefficients)
    roots = polynomial.deriv().roots() if len(coefficients) > 2 else np.zeros(0)
    inside = [float(root.real) for root in roots if abs(root.imag) < 1e-6 and abs(root.real) <= 1.0]
    return min(float(polynomial(t)) for t in (-1.0, 1.0, *inside))


def rounding(layout: DenseLayout, weights: Mapping[str, float], form: FixedPoint, neighbours: str) -> float:
    """Return by how much rounding to the grid may add to Δ of one sample, in weighted units.

    Examples
    --------
    >>> from fedmoments.core.statistics import StatisticsSpec
    >>> layout = DenseLayout(StatisticsSpec.of("gram"), n_classes=3, dim=4)
    >>> rounding(layout, {"counts": 1.0, "sums": 1.0, "gram": 1.0}, FixedPoint(1.0, 10**6), "replace") < 1e-10
    True
    """
    energy = sum(
        (weights[name] * form.resolution(degree_of(name))) ** 2 * MOMENTS[name].unpacked_width(layout.dim)
        for name in layout.spec.sent
    )
    return GRID_STEPS * math.sqrt(energy) * (2.0 if neighbours == "replace" else 1.0)
